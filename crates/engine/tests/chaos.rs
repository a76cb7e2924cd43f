//! Everything at once, in any order: rings stay within bounds, executors are never overbooked, memory is
//! never shared by two that are alive, and every run can be ended.
#![allow(clippy::unwrap_used, reason = "a test may stop")]
#![allow(clippy::cast_possible_truncation, reason = "small numbers")]

use proptest::prelude::*;
use ringwork_engine::{
    Arena, Bindings, BufferId, Capture, Config, Dispatch, Engine, Error, Executor, Graph, Kind, Outcome,
    Place, SignalId, Spec, TaskId, View,
};
use ringwork_isa::Compare;
use ringwork_testkit::Rng;
use std::collections::BTreeMap;
use std::sync::Arc;

const EXECUTORS: u32 = 4;
const DEPTH: u32 = 2;
const ARENA_BYTES: u64 = 128 * 12;

fn cases(short: u32) -> ProptestConfig {
    let long = ringwork_testkit::long();
    ProptestConfig::with_cases(if long { 50 * short } else { short })
}

fn random_range(rng: &mut Rng) -> View {
    let start = rng.below(48) as u64;
    View::range(start..start + 1 + rng.below(16) as u64)
}

fn graph() -> Arc<Graph<u32>> {
    let mut capture = Capture::new();
    let t = capture.allocate(Arena(0), 100).unwrap().accepted().unwrap();
    let any = || Spec::new(Place::Any(Kind(0)));
    let x = BufferId::parameter(0);
    capture
        .submit(
            &any().input(x, View::range(0..40)).output(t, View::range(0..100)),
            1000,
        )
        .unwrap();
    let pair = Place::Group(vec![Executor(1), Executor(2)]);
    capture
        .submit(&Spec::new(pair).input(t, View::range(0..50)), 1001)
        .unwrap();
    capture
        .submit(&any().when(SignalId(0), Compare::Ge, 1), 1002)
        .unwrap();
    capture
        .submit(
            &any()
                .in_out(x, View::range(10..60))
                .until(SignalId(1), Compare::Ge, 1),
            1003,
        )
        .unwrap();
    Arc::new(capture.finish())
}

/// What the test knows: who runs what, from what the engine said.
struct Booking {
    running: Vec<(Dispatch, Vec<Executor>)>,
    load: [u32; EXECUTORS as usize],
    alone: [bool; EXECUTORS as usize],
}

impl Booking {
    fn start(&mut self, engine: &Engine<u32>, dispatch: Dispatch) -> Result<(), TestCaseError> {
        let members = engine.members(dispatch.task).to_vec();
        prop_assert_eq!(members.len(), dispatch.members as usize);
        for member in &members {
            let at = member.0 as usize;
            prop_assert!(!self.alone[at], "{} has a group", member);
            if members.len() > 1 {
                prop_assert_eq!(self.load[at], 0, "{} is not idle", member);
                self.alone[at] = true;
            }
            self.load[at] += 1;
            prop_assert!(self.load[at] <= DEPTH);
        }
        self.running.push((dispatch, members));
        Ok(())
    }

    /// One member of one running task.
    fn pick(&mut self, rng: &mut Rng) -> Option<(TaskId, Executor)> {
        if self.running.is_empty() {
            return None;
        }
        let at = rng.below(self.running.len());
        let (dispatch, members) = &mut self.running[at];
        let (task, member) = (dispatch.task, members.swap_remove(rng.below(members.len())));
        if members.is_empty() {
            self.running.swap_remove(at);
        }
        self.load[member.0 as usize] -= 1;
        self.alone[member.0 as usize] = false;
        Some((task, member))
    }

    fn lose(&mut self, lost: Executor) {
        for (_, members) in &mut self.running {
            members.retain(|&member| member != lost);
        }
        self.running.retain(|(_, members)| !members.is_empty());
        self.load[lost.0 as usize] = 0;
        self.alone[lost.0 as usize] = false;
    }
}

fn random_spec(rng: &mut Rng, ids: &[TaskId]) -> Spec {
    let mut spec = Spec::new(match rng.below(4) {
        0 => Place::On(Executor(rng.below(EXECUTORS as usize) as u32)),
        1 => {
            let first = rng.below(EXECUTORS as usize) as u32;
            Place::Group(
                (0..=rng.below(3) as u32)
                    .map(|i| Executor((first + i) % EXECUTORS))
                    .collect(),
            )
        }
        _ => Place::Any(Kind(0)),
    });
    spec.priority = rng.below(3) as i8;
    for _ in 0..rng.below(3) {
        let (buffer, view) = (BufferId::new(rng.below(2) as u64), random_range(rng));
        spec = match rng.below(3) {
            0 => spec.input(buffer, view),
            1 => spec.output_existing(buffer, view),
            _ => spec.in_out(buffer, view),
        };
    }
    if !ids.is_empty() && rng.below(4) == 0 {
        spec.after.push(ids[rng.below(ids.len())]);
    }
    let (signal, operand) = (SignalId(rng.below(2) as u64), rng.below(6) as i32);
    match rng.below(8) {
        0 => spec.when(signal, Compare::Ge, operand),
        1 => spec.until(signal, Compare::Ge, operand),
        _ => spec,
    }
}

proptest! {
    #![proptest_config(cases(300))]

    #[test]
    fn whatever_happens_every_run_can_be_ended_and_the_next_is_clean(seed: u64, calm: bool) {
        let mut rng = Rng(seed);
        let config = Config::new().slots(24).arena(ARENA_BYTES).executors_of_depth(Kind(0), EXECUTORS, DEPTH);
        let mut engine = Engine::<u32>::new(&config).unwrap();
        let graph = graph();
        let mut booking = Booking { running: Vec::new(), load: [0; 4], alone: [false; 4] };
        let mut signals = [0, 0];
        // Each run may lose one executor for good; the last has none that another run lost.
        for run in 0..3 {
            let mut ids: Vec<TaskId> = Vec::new();
            for step in 0..120 {
                match rng.below(if calm { 11 } else { 14 }) {
                    0..4 => {
                        let spec = random_spec(&mut rng, &ids);
                        match engine.submit(&spec, step) {
                            Ok(outcome) => ids.extend(outcome.accepted()),
                            Err(error) => {
                                let known = matches!(error, Error::RunFailed { .. } | Error::NoSuchExecutor { .. } | Error::NoSuchKind { .. });
                                prop_assert!(known, "{}", error);
                            }
                        }
                    }
                    4..6 => if let Some(dispatch) = engine.ready() { booking.start(&engine, dispatch)? },
                    6..9 => if let Some((task, member)) = booking.pick(&mut rng) { engine.complete(task, member).unwrap(); },
                    9 => {
                        let which = rng.below(2);
                        signals[which] += 1;
                        engine.signal_changed(SignalId(which as u64), signals[which]);
                    }
                    10 => {
                        let with = Bindings {
                            parameters: vec![BufferId::new(rng.below(2) as u64).into()],
                            after: ids.last().copied().into_iter().collect(),
                        };
                        if let Ok(Outcome::Accepted(task)) = engine.replay(&graph, &with) { ids.push(task) }
                    }
                    11 => if let Some((task, member)) = booking.pick(&mut rng) { engine.fail(task, member, "broke".into()).unwrap(); },
                    12 => if !ids.is_empty() { let _ = engine.cancel(ids[rng.below(ids.len())], "cancelled".into()); },
                    _ => {
                        let lost = Executor(run);
                        if engine.lose(lost, "lost".into()).is_ok() { booking.lose(lost) }
                    }
                }
                prop_assert!(engine.live() <= 24);
                prop_assert_eq!(engine.running() as usize, booking.running.len());
            }
            if rng.below(2) == 0 {
                engine.cancel_all("enough".into());
            }
            // Everything that can happen, happens.
            for round in 0.. {
                prop_assert!(round < 10_000, "it does not end: {:?}", engine.stall());
                while let Some(dispatch) = engine.ready() {
                    booking.start(&engine, dispatch)?;
                }
                for (signal, value) in (0..).zip(&mut signals) {
                    *value += 1;
                    engine.signal_changed(SignalId(signal), *value);
                }
                match booking.pick(&mut rng) {
                    Some((task, member)) => { engine.complete(task, member).unwrap(); }
                    None if engine.live() == 0 => break,
                    None => prop_assert!(round < 1000, "stuck: {:?}", engine.stall()),
                }
            }
            prop_assert_eq!(engine.watched().count(), 0);
            let report = engine.end_run().unwrap();
            prop_assert!(report.failure.is_some() || report.failed == 0 && report.cancelled.is_empty());
            prop_assert!(matches!(engine.allocate(Arena(0), ARENA_BYTES), Ok(Outcome::Accepted(_))));
            engine.end_run().unwrap();
        }
    }

    /// Tensors in a small ring, against tensors that each have memory of their own.
    #[test]
    fn intermediates_in_a_ring_hold_what_they_would_in_memory_of_their_own(seed: u64) {
        let mut rng = Rng(seed);
        let config = Config::new().slots(8).arena(ARENA_BYTES).executors(Kind(0), 3);
        let mut engine = Engine::<(u32, BufferId, BufferId)>::new(&config).unwrap();
        let mut memory = vec![0u32; ARENA_BYTES as usize];
        let mut own: BTreeMap<BufferId, Vec<u32>> = BTreeMap::new();
        // What each task must read, by running in order at submission.
        let mut expected = Vec::new();
        let mut scopes: Vec<Vec<BufferId>> = vec![Vec::new()];
        let mut running: Vec<Dispatch> = Vec::new();
        let mut step = 0;
        while step < 200 || engine.live() > 0 {
            step += 1;
            prop_assert!(step < 5000, "{:?}", engine.stall());
            match rng.below(if step < 200 { 8 } else { 4 }) {
                0 => running.extend(engine.ready()),
                1..4 if !running.is_empty() => {
                    let dispatch = running.swap_remove(rng.below(running.len()));
                    let (number, from, to) = *engine.payload(dispatch.task).unwrap();
                    let (from, to) = (engine.placement(from).unwrap(), engine.placement(to).unwrap());
                    let range = |at: u64, bytes: u64| at as usize..(at + bytes) as usize;
                    let got: Vec<u32> = memory[range(from.offset, from.bytes)].to_vec();
                    prop_assert_eq!(&got, &expected[number as usize], "task {}", number);
                    memory[range(to.offset, to.bytes)].fill(number + 1);
                    engine.complete(dispatch.task, dispatch.executor).unwrap();
                }
                4 if scopes.len() < 5 => {
                    engine.begin_scope().unwrap();
                    scopes.push(Vec::new());
                }
                5 if scopes.len() > 1 => {
                    engine.end_scope().unwrap();
                    scopes.pop();
                }
                _ => {
                    let bytes = 1 + rng.below(200) as u64;
                    let Ok(Outcome::Accepted(to)) = engine.allocate(Arena(0), bytes) else { continue };
                    scopes.last_mut().unwrap().push(to);
                    own.insert(to, vec![0; bytes as usize]);
                    let alive: Vec<BufferId> = scopes.iter().flatten().copied().collect();
                    let from = alive[rng.below(alive.len())];
                    let whole = |engine: &Engine<_>, buffer| View::range(0..engine.placement(buffer).unwrap().bytes);
                    let number = expected.len() as u32;
                    let spec = Spec::new(Place::Any(Kind(0)))
                        .output(to, whole(&engine, to))
                        .input(from, whole(&engine, from));
                    if from == to {
                        continue; // reads what nobody wrote
                    }
                    if let Outcome::Accepted(_) = engine.submit(&spec, (number, from, to)).unwrap() {
                        expected.push(own[&from].clone());
                        own.get_mut(&to).unwrap().fill(number + 1);
                    } else {
                        scopes.last_mut().unwrap().pop();
                    }
                }
            }
            // A tensor that nobody wrote holds anything: give those the value they are expected to have.
            for scope in &scopes {
                for buffer in scope {
                    if own[buffer].iter().all(|&value| value == 0) {
                        let at = engine.placement(*buffer).unwrap();
                        memory[at.offset as usize..(at.offset + at.bytes) as usize].fill(0);
                    }
                }
            }
        }
        engine.end_run().unwrap();
        prop_assert!(matches!(engine.allocate(Arena(0), ARENA_BYTES), Ok(Outcome::Accepted(_))));
    }
}
