//! Captured graphs: what a replay does to what is outside it, and to its own tasks.
#![allow(clippy::unwrap_used, reason = "a test may stop")]

use ringwork_engine::{
    Arena, Binding, Bindings, BufferId, Capture, Config, Engine, Error, Executor, Graph, Kind, Outcome,
    Place, SignalId, Spec, View,
};
use ringwork_isa::Compare;
use std::sync::Arc;

const X: BufferId = BufferId::parameter(0);
const Y: BufferId = BufferId::parameter(1);

fn any() -> Spec {
    Spec::new(Place::Any(Kind(0)))
}

fn all() -> View {
    View::range(0..64)
}

fn engine() -> Engine<&'static str> {
    Engine::new(&Config::new().slots(16).arena(1024).executors(Kind(0), 4)).unwrap()
}

fn bind(x: u64, y: u64) -> Bindings {
    Bindings {
        parameters: vec![BufferId::new(x).into(), BufferId::new(y).into()],
        ..Bindings::default()
    }
}

/// One orchestration for an engine and for a capture: t = f(x); y = g(t); h touches nothing.
macro_rules! orchestrate {
    ($to:expr, $x:expr, $y:expr) => {{
        $to.begin_scope().unwrap();
        let t = $to.allocate(Arena(0), 64).unwrap().accepted().unwrap();
        $to.submit(&any().input($x, all()).output(t, all()), "f").unwrap();
        $to.submit(&any().input(t, all()).output_existing($y, all()), "g")
            .unwrap();
        $to.submit(&any(), "h").unwrap();
        $to.end_scope().unwrap();
    }};
}

/// Whether so many bytes of the arena can be had in one piece.
fn is_free(engine: &mut Engine<&'static str>, bytes: u64) -> bool {
    engine.begin_scope().unwrap();
    let taken = engine.allocate(Arena(0), bytes);
    engine.end_scope().unwrap();
    matches!(taken, Ok(Outcome::Accepted(_)))
}

fn graph() -> Arc<Graph<&'static str>> {
    let mut capture = Capture::new();
    orchestrate!(capture, X, Y);
    Arc::new(capture.finish())
}

fn run(engine: &mut Engine<&'static str>) -> Vec<&'static str> {
    let mut order = Vec::new();
    loop {
        let mut started = Vec::new();
        while let Some(dispatch) = engine.ready() {
            order.push(*engine.payload(dispatch.task).unwrap());
            started.push(dispatch);
        }
        if started.is_empty() {
            return order;
        }
        for dispatch in started {
            engine.complete(dispatch.task, dispatch.executor).unwrap();
        }
    }
}

#[test]
fn one_orchestration_runs_directly_and_replayed_alike() {
    let mut direct = engine();
    orchestrate!(direct, BufferId::new(1), BufferId::new(2));
    let mut replayed = engine();
    replayed.replay(&graph(), &bind(1, 2)).unwrap();
    assert_eq!(run(&mut direct), run(&mut replayed));
    assert_eq!(replayed.live(), 0);
    assert!(is_free(&mut replayed, 1024));
    assert_eq!(replayed.end_run().unwrap().completed, 3);
}

#[test]
fn a_replay_waits_for_what_it_reads_and_is_waited_for_by_what_reads_it() {
    let mut engine = engine();
    let (a, b, c) = (BufferId::new(1), BufferId::new(2), BufferId::new(3));
    engine.submit(&any().output_existing(a, all()), "before").unwrap();
    engine.replay(&graph(), &bind(1, 2)).unwrap();
    engine
        .submit(&any().input(b, all()).output_existing(c, all()), "after")
        .unwrap();
    engine.replay(&graph(), &bind(3, 4)).unwrap();
    engine
        .submit(&any().output_existing(BufferId::new(5), all()), "elsewhere")
        .unwrap();
    let order = run(&mut engine);
    assert_eq!(
        order,
        ["before", "elsewhere", "f", "h", "g", "after", "f", "h", "g"]
    );
}

#[test]
fn a_replay_touches_the_bytes_that_its_parameters_are_bound_to() {
    let mut engine = engine();
    let mut with = bind(7, 8);
    with.parameters[1] = Binding {
        buffer: BufferId::new(7),
        offset: 128,
    };
    engine.replay(&graph(), &with).unwrap();
    let write = |bytes| any().output_existing(BufferId::new(7), View::range(bytes));
    engine.submit(&write(63..64), "over x").unwrap();
    engine.submit(&write(64..128), "between").unwrap();
    engine.submit(&write(128..129), "over y").unwrap();
    assert_eq!(run(&mut engine), ["f", "h", "between", "g", "over x", "over y"]);
    // Overlapping by one byte, and one of the two is written.
    with.parameters[1].offset = 63;
    assert!(matches!(
        engine.replay(&graph(), &with),
        Err(Error::Aliased { .. })
    ));
    with.parameters.pop();
    let refused = engine.replay(&graph(), &with);
    assert_eq!(refused, Err(Error::WrongBindings { got: 1, wanted: 2 }));
}

#[test]
fn replays_press_back_when_slots_or_memory_are_full_and_change_nothing() {
    let mut engine = engine();
    let graph = graph();
    for round in 0..4 {
        engine
            .replay(&graph, &bind(2 * round, 2 * round + 1))
            .unwrap()
            .accepted()
            .unwrap();
    }
    assert_eq!(engine.live(), 16);
    assert!(matches!(
        engine.replay(&graph, &bind(20, 21)),
        Ok(Outcome::Full { .. })
    ));
    assert_eq!(run(&mut engine).len(), 12);
    let mut large = Capture::<&'static str>::new();
    large.allocate(Arena(0), 600).unwrap();
    large.submit(&any(), "large").unwrap();
    let large = Arc::new(large.finish());
    engine
        .replay(&large, &Bindings::default())
        .unwrap()
        .accepted()
        .unwrap();
    assert!(matches!(
        engine.replay(&large, &Bindings::default()),
        Ok(Outcome::Full { .. })
    ));
    assert_eq!(engine.live(), 2);
    assert!(is_free(&mut engine, 1024 - 640) && !is_free(&mut engine, 1024 - 639));
    let mut long = Capture::new();
    for _ in 0..16 {
        long.submit(&any(), "one").unwrap();
    }
    let error = engine
        .replay(&Arc::new(long.finish()), &Bindings::default())
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "task slots: 17 needed, 2 of 16 used; nothing in flight can release enough: raise Config::slots"
    );
}

#[test]
fn a_failure_inside_a_replay_spreads_inside_and_out_and_the_rest_finishes() {
    let mut engine = engine();
    let replay = engine.replay(&graph(), &bind(1, 2)).unwrap().accepted().unwrap();
    let after = any().input(BufferId::new(2), all());
    let after = engine.submit(&after, "after").unwrap().accepted().unwrap();
    let f = engine.ready().unwrap();
    engine.fail(f.task, f.executor, "f broke".into()).unwrap();
    assert_eq!(engine.path(after), [f.task, replay, after]);
    assert_eq!(run(&mut engine), ["h"]);
    assert_eq!(engine.live(), 0);
    let report = engine.end_run().unwrap();
    assert_eq!(
        (report.completed, report.failed, report.cancelled.len()),
        (1, 1, 2)
    );
    assert!(is_free(&mut engine, 1024));
}

#[test]
fn a_replay_that_is_downstream_of_a_failure_is_cancelled_whole() {
    let mut engine = engine();
    engine
        .submit(&any().output_existing(BufferId::new(1), all()), "before")
        .unwrap();
    engine.replay(&graph(), &bind(1, 2)).unwrap();
    engine.replay(&graph(), &bind(2, 3)).unwrap();
    let dispatch = engine.ready().unwrap();
    engine
        .fail(dispatch.task, dispatch.executor, "no input".into())
        .unwrap();
    assert_eq!((engine.live(), engine.end_run().unwrap().cancelled.len()), (0, 6));
}

#[test]
fn conditions_of_a_graph_hold_back_each_of_its_replays() {
    let mut capture = Capture::new();
    let signal = SignalId(1);
    capture
        .submit(&any().when(signal, Compare::Ge, 1), "waits")
        .unwrap();
    let graph = Arc::new(capture.finish());
    let mut engine = engine();
    for _ in 0..3 {
        engine.replay(&graph, &Bindings::default()).unwrap();
        engine.signal_changed(signal, 0);
        assert!(run(&mut engine).is_empty());
        assert!(engine.stall().unwrap().to_string().contains("signal 1 >= 1"));
        engine.signal_changed(signal, 1);
        assert_eq!(run(&mut engine), ["waits"]);
    }
}

#[test]
fn tiles_of_a_parameter_are_joined_seen_from_outside() {
    let mut capture = Capture::new();
    for tile in 0..100u64 {
        let (row, column) = (tile / 10, tile % 10);
        let view = View::strided(row * 16 * 1000 + column * 100, 16, 100, 1000).unwrap();
        capture.submit(&any().in_out(X, view), "tile").unwrap();
    }
    let graph = capture.finish();
    assert_eq!(graph.edges(), 0);
    assert_eq!(graph.outside().len(), 2, "{:?}", graph.outside());
    assert_eq!(graph.parameter_bytes(), [160_000]);
}

#[test]
fn a_graph_for_an_executor_that_is_not_there_is_refused_and_nothing_is_kept() {
    let mut capture = Capture::new();
    capture.allocate(Arena(0), 64).unwrap();
    capture.submit(&any(), "fine").unwrap();
    capture
        .submit(&Spec::new(Place::On(Executor(9))), "not fine")
        .unwrap();
    let graph = Arc::new(capture.finish());
    let mut engine = engine();
    assert!(matches!(
        engine.replay(&graph, &Bindings::default()),
        Err(Error::NoSuchExecutor { .. })
    ));
    assert_eq!(engine.live(), 0);
    assert!(is_free(&mut engine, 1024));
}

#[test]
fn an_empty_graph_is_done_at_once() {
    let graph = Arc::new(Capture::<&'static str>::new().finish());
    let mut engine = engine();
    engine.replay(&graph, &Bindings::default()).unwrap();
    assert_eq!(engine.live(), 0);
}

#[test]
fn the_successors_of_a_replayed_task_are_those_of_its_graph() {
    let mut engine = engine();
    engine.replay(&graph(), &bind(1, 2)).unwrap();
    let first = engine.ready().unwrap().task;
    assert_eq!(engine.payload(first), Some(&"f"));
    let after: Vec<_> = engine
        .successors(first)
        .map(|task| *engine.payload(task).unwrap())
        .collect();
    assert_eq!(after, ["g"]);
}
