//! The engine, one promise at a time: rings, scopes, groups, signals, failures, stalls.
#![allow(clippy::unwrap_used, reason = "a test may stop")]

mod accesses;
mod failures;
mod placement;
mod rings;
mod signals;

use ringwork_engine::{
    AccessKind, Arena, BufferId, Completion, Config, Dispatch, Engine, Error, Executor, Kind, MAX_SCOPES,
    Outcome, Place, Ring, SignalId, Spec, Status, TaskId, View,
};
use ringwork_isa::Compare;

const CORE: Kind = Kind(0);
const HOST: Kind = Kind(9);

fn engine(config: Config) -> Engine<&'static str> {
    Engine::new(&config).unwrap()
}

fn on(executor: u32) -> Spec {
    Spec::new(Place::On(Executor(executor)))
}

fn any() -> Spec {
    Spec::new(Place::Any(CORE))
}

fn group(members: &[u32]) -> Spec {
    Spec::new(Place::Group(members.iter().map(|&m| Executor(m)).collect()))
}

fn all(bytes: u64) -> View {
    View::range(0..bytes)
}

fn add(engine: &mut Engine<&'static str>, spec: &Spec, name: &'static str) -> TaskId {
    engine.submit(spec, name).unwrap().accepted().expect("not full")
}

/// Whether so many bytes of arena 0 can be had in one piece.
fn is_free(engine: &mut Engine<&'static str>, bytes: u64) -> bool {
    engine.begin_scope().unwrap();
    let taken = engine.allocate(Arena(0), bytes);
    engine.end_scope().unwrap();
    matches!(taken, Ok(Outcome::Accepted(_)))
}

/// Starts everything that can start; returns the names with the dispatches.
fn start(engine: &mut Engine<&'static str>) -> Vec<(&'static str, Dispatch)> {
    let mut started = Vec::new();
    while let Some(dispatch) = engine.ready() {
        started.push((*engine.payload(dispatch.task).unwrap(), dispatch));
    }
    started
}

fn names(started: &[(&'static str, Dispatch)]) -> Vec<&'static str> {
    started.iter().map(|(name, _)| *name).collect()
}

fn finish(engine: &mut Engine<&'static str>, dispatch: Dispatch) {
    for member in engine.members(dispatch.task).to_vec() {
        engine.complete(dispatch.task, member).unwrap();
    }
}

fn run_all(engine: &mut Engine<&'static str>) -> Vec<&'static str> {
    let mut order = Vec::new();
    while engine.live() > 0 {
        let started = start(engine);
        assert!(!started.is_empty(), "{:?}", engine.stall());
        order.extend(names(&started));
        for (_, dispatch) in started {
            finish(engine, dispatch);
        }
    }
    order
}
