//! Random programs against a brute-force reference: the same result as in order, and the same order
//! relation, in any order of completion. `RINGWORK_LONG=1` runs 100,000 programs.

#![allow(clippy::unwrap_used, reason = "a test may stop")]
#![allow(clippy::cast_possible_truncation, reason = "small numbers")]

use proptest::prelude::*;
use ringwork_engine::{
    AccessKind, Bindings, BufferId, Capture, Config, Dispatch, Engine, Executor, Kind, Outcome, Place, Spec,
    TaskId, View,
};
use ringwork_testkit::Rng;
use std::sync::Arc;

const BUFFERS: usize = 3;
const BYTES: usize = 96;

#[derive(Clone, Debug)]
struct Program {
    tasks: Vec<Vec<(usize, View, AccessKind)>>,
    /// Explicit edges, as distances back.
    after: Vec<Option<usize>>,
    /// Where each may run: 0..4 directed, 4 any, 5 a pair.
    places: Vec<u8>,
}

fn view() -> impl Strategy<Value = View> {
    let top = BYTES as u64;
    prop_oneof![
        3 => (0..top, 1u64..24).prop_map(move |(start, len)| View::range(start..(start + len).min(top))),
        3 => (0u64..4, 0u64..8, 1u64..4, 1u64..5).prop_map(|(row, column, rows, width)| {
            // Blocks of one matrix with rows of 12 bytes.
            View::strided(row * 12 + column, rows, width, 12).unwrap()
        }),
        1 => (0u64..40, 1u64..5, 1u64..4, 4u64..13)
            .prop_map(|(start, rows, row_bytes, pitch)| View::strided(start, rows, row_bytes, pitch).unwrap()),
        1 => Just(View::range(0..top)),
    ]
}

fn kind() -> impl Strategy<Value = AccessKind> {
    prop_oneof![
        4 => Just(AccessKind::Input),
        3 => Just(AccessKind::OutputExisting),
        2 => Just(AccessKind::InOut),
        1 => Just(AccessKind::NoDependency),
    ]
}

fn program() -> impl Strategy<Value = Program> {
    let task = prop::collection::vec((0..BUFFERS, view(), kind()), 0..4);
    let task = (task, prop::option::weighted(0.1, 1usize..5), 0u8..6);
    prop::collection::vec(task, 1..28).prop_map(|tasks| Program {
        after: tasks.iter().map(|task| task.1).collect(),
        places: tasks.iter().map(|task| task.2).collect(),
        tasks: tasks.into_iter().map(|task| task.0).collect(),
    })
}

fn cases() -> ProptestConfig {
    let long = ringwork_testkit::long();
    ProptestConfig::with_cases(if long { 100_000 } else { 1_500 })
}

impl Program {
    fn spec(&self, index: usize, buffer: impl Fn(usize) -> BufferId, done: &[TaskId]) -> Spec {
        let mut spec = Spec::new(match self.places[index] {
            4 => Place::Any(Kind(7)),
            5 => Place::Group(vec![Executor(index as u32 % 4), Executor((index as u32 + 1) % 4)]),
            on => Place::On(Executor(on.into())),
        });
        for &(which, view, kind) in &self.tasks[index] {
            spec.touch(buffer(which), view, kind);
        }
        if let Some(back) = self.after[index].filter(|&back| back <= index) {
            spec.after.push(done[index - back]);
        }
        spec
    }

    /// Whether `b`, which is later, must come after `a`: by the definition, pair by pair, byte by byte.
    fn conflict(&self, a: usize, b: usize) -> bool {
        let touches = |kind: AccessKind| kind.reads() || kind.writes();
        let explicit = self.after[b] == Some(b - a);
        explicit
            || self.tasks[a].iter().any(|x| {
                self.tasks[b].iter().any(|y| {
                    let both = touches(x.2) && touches(y.2) && (x.2.writes() || y.2.writes());
                    both && x.0 == y.0
                        && x.1
                            .row_ranges()
                            .flatten()
                            .any(|byte| y.1.row_ranges().any(|row| row.contains(&byte)))
                })
            })
    }

    /// `before[b]` has bit `a` if `b` must come after `a`, directly or not.
    fn closure(&self) -> Vec<u64> {
        let mut before = vec![0u64; self.tasks.len()];
        for b in 0..self.tasks.len() {
            for a in 0..b {
                if self.conflict(a, b) {
                    before[b] |= 1 << a | before[a];
                }
            }
        }
        before
    }

    /// Runs one task on memory: what it writes depends on who it is and on what it reads.
    fn run(&self, index: usize, memory: &mut [Vec<u64>]) {
        let mut seen = 0x9e37_79b9_u64.wrapping_mul(index as u64 + 1);
        for (buffer, view, kind) in &self.tasks[index] {
            if kind.reads() {
                for byte in view.row_ranges().flatten() {
                    seen = seen.wrapping_mul(31).wrapping_add(memory[*buffer][byte as usize]);
                }
            }
        }
        for (buffer, view, kind) in &self.tasks[index] {
            if kind.writes() {
                for byte in view.row_ranges().flatten() {
                    memory[*buffer][byte as usize] = seen.wrapping_add(byte);
                }
            }
        }
    }
}

fn new_memory() -> Vec<Vec<u64>> {
    vec![vec![0; BYTES]; BUFFERS]
}

fn engine() -> Engine<usize> {
    Engine::new(&Config::new().slots(64).executors(Kind(7), 4)).unwrap()
}

/// Completes all members of a task, and says what it was.
fn finish(engine: &mut Engine<usize>, dispatch: Dispatch) -> usize {
    let index = *engine.payload(dispatch.task).unwrap();
    for executor in engine.members(dispatch.task).to_vec() {
        engine.complete(dispatch.task, executor).unwrap();
    }
    index
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn any_order_of_completion_gives_the_result_of_running_in_order(program in program(), seed: u64) {
        let mut rng = Rng(seed);
        let (mut expected, mut memory) = (new_memory(), new_memory());
        for index in 0..program.tasks.len() {
            program.run(index, &mut expected);
        }
        let mut engine = engine();
        let (mut running, mut ids) = (Vec::new(), Vec::new());
        loop {
            // Submitting, starting and finishing in any mixture. Effects happen when a task finishes, and
            // again: at any moment between, another running task must not notice.
            match rng.below(3) {
                0 if ids.len() < program.tasks.len() => {
                    let index = ids.len();
                    let spec = program.spec(index, |which| BufferId::new(which as u64), &ids);
                    let Outcome::Accepted(id) = engine.submit(&spec, index).unwrap() else { panic!("full") };
                    ids.push(id);
                }
                1 => running.extend(engine.ready()),
                _ if !running.is_empty() => {
                    let dispatch = running.swap_remove(rng.below(running.len()));
                    program.run(finish(&mut engine, dispatch), &mut memory);
                }
                _ if ids.len() == program.tasks.len() && engine.live() == 0 => break,
                _ => {}
            }
        }
        prop_assert_eq!(memory, expected);
        prop_assert_eq!(engine.end_run().unwrap().completed, program.tasks.len() as u64);
    }

    /// With everything submitted first, a task is ready exactly when all before it in the reference are done.
    #[test]
    fn the_order_relation_is_the_transitive_closure_of_overlaps(program in program(), seed: u64) {
        let mut program = program;
        // Places hold tasks back too: let everything run anywhere, with an executor for each.
        program.places.fill(4);
        let mut engine = Engine::<usize>::new(&Config::new().slots(32).executors(Kind(7), 32)).unwrap();
        let mut ids = Vec::new();
        for index in 0..program.tasks.len() {
            let spec = program.spec(index, |which| BufferId::new(which as u64), &ids);
            ids.push(engine.submit(&spec, index).unwrap().accepted().unwrap());
        }
        check_against_closure(&mut engine, &program, seed)?;
    }

    #[test]
    fn a_replay_keeps_the_order_relation(program in program(), seed: u64) {
        let mut program = program;
        program.places.fill(4);
        let mut capture = Capture::new();
        let mut ids = Vec::new();
        for index in 0..program.tasks.len() {
            let spec = program.spec(index, |which| BufferId::parameter(which as u32), &ids);
            ids.push(capture.submit(&spec, index).unwrap().accepted().unwrap());
        }
        let graph = Arc::new(capture.finish());
        let mut engine = Engine::<usize>::new(&Config::new().slots(32).executors(Kind(7), 32)).unwrap();
        let parameters = (0..graph.parameter_bytes().len()).map(|p| BufferId::new(p as u64 + 10).into()).collect();
        let bindings = Bindings { parameters, ..Bindings::default() };
        for round in 0..2 {
            engine.replay(&graph, &bindings).unwrap().accepted().unwrap();
            check_against_closure(&mut engine, &program, seed + round)?;
        }
    }

    #[test]
    fn the_same_calls_give_the_same_answers(program in program(), seed: u64) {
        let trace = || {
            let mut rng = Rng(seed);
            let (mut engine, mut running, mut ids, mut trace) = (engine(), Vec::new(), Vec::new(), Vec::new());
            while ids.len() < program.tasks.len() || engine.live() > 0 {
                if ids.len() < program.tasks.len() && rng.below(2) == 0 {
                    let spec = program.spec(ids.len(), |which| BufferId::new(which as u64), &ids);
                    ids.push(engine.submit(&spec, ids.len()).unwrap().accepted().unwrap());
                }
                while let Some(dispatch) = engine.ready() {
                    trace.push(dispatch);
                    running.push(dispatch);
                }
                if !running.is_empty() {
                    let dispatch = running.swap_remove(rng.below(running.len()));
                    finish(&mut engine, dispatch);
                }
            }
            trace
        };
        prop_assert_eq!(trace(), trace());
    }

    /// A failed task takes with it those that read what it wrote, and explicit successors, and no others
    /// than the reference's downstream; everything else completes.
    #[test]
    fn a_failure_cancels_what_needs_it_and_the_rest_finishes(program in program(), victim: prop::sample::Index, seed: u64) {
        let mut engine = engine();
        let mut ids = Vec::new();
        for index in 0..program.tasks.len() {
            let spec = program.spec(index, |which| BufferId::new(which as u64), &ids);
            ids.push(engine.submit(&spec, index).unwrap().accepted().unwrap());
        }
        let victim = victim.index(program.tasks.len());
        let mut done = vec![false; program.tasks.len()];
        let (mut rng, mut running, mut memory) = (Rng(seed), Vec::new(), new_memory());
        loop {
            running.extend(engine.ready());
            if running.is_empty() {
                break;
            }
            if rng.below(3) == 0 {
                continue;
            }
            let dispatch = running.swap_remove(rng.below(running.len()));
            let index = *engine.payload(dispatch.task).unwrap();
            if index == victim {
                for executor in engine.members(dispatch.task).to_vec() {
                    engine.fail(dispatch.task, executor, format!("task {index} broke")).unwrap();
                }
            } else {
                done[finish(&mut engine, dispatch)] = true;
                program.run(index, &mut memory);
            }
        }
        // What did run, ran as if in order, also around those that never did.
        let mut expected = new_memory();
        (0..program.tasks.len()).filter(|&index| done[index]).for_each(|index| program.run(index, &mut expected));
        prop_assert_eq!(memory, expected);
        prop_assert_eq!(engine.live(), 0, "{:?}", engine.stall());
        let closure = program.closure();
        let paths: Vec<_> = ids.iter().map(|&id| engine.path(id)).collect();
        let report = engine.end_run().unwrap();
        prop_assert_eq!(report.failure.unwrap().task, Some(ids[victim]));
        for lost in &report.cancelled {
            let index = lost.payload.unwrap();
            prop_assert!(!done[index] && closure[index] >> victim & 1 == 1, "{} did not need {}", index, victim);
            prop_assert_eq!(paths[index].first(), Some(&ids[victim]));
            prop_assert_eq!(paths[index].last(), Some(&ids[index]));
        }
        // Direct readers of the victim's last word on a byte must be gone.
        for (index, &done) in done.iter().enumerate().skip(victim + 1) {
            prop_assert!(!done || !reads_from(&program, victim, index), "{} read from {}", index, victim);
        }
        prop_assert_eq!(report.completed as usize + report.cancelled.len() + 1, program.tasks.len());
        // And the next run is clean.
        engine.submit(&program.spec(0, |which| BufferId::new(which as u64), &[]), 0).unwrap();
    }
}

/// Whether `reader` reads a byte whose last writer before it is `writer`, by the reference.
fn reads_from(program: &Program, writer: usize, reader: usize) -> bool {
    let explicit = program.after[reader] == Some(reader - writer);
    explicit
        || program.tasks[reader]
            .iter()
            .filter(|access| access.2.reads())
            .any(|read| {
                read.1.row_ranges().flatten().any(|byte| {
                    let wrote = |task: &usize| {
                        program.tasks[*task].iter().any(|write| {
                            write.2.writes()
                                && write.0 == read.0
                                && write.1.row_ranges().any(|row| row.contains(&byte))
                        })
                    };
                    (0..reader).rev().find(wrote) == Some(writer)
                })
            })
}

fn check_against_closure(
    engine: &mut Engine<usize>,
    program: &Program,
    seed: u64,
) -> Result<(), TestCaseError> {
    let closure = program.closure();
    let mut rng = Rng(seed);
    let (mut running, mut started, mut done) = (Vec::new(), 0u64, 0u64);
    while engine.live() > 0 {
        while let Some(dispatch) = engine.ready() {
            started |= 1 << *engine.payload(dispatch.task).unwrap();
            running.push(dispatch);
        }
        for (index, before) in closure.iter().enumerate() {
            let may = before & !done == 0;
            prop_assert_eq!(
                started >> index & 1 == 1,
                may,
                "task {} with {:b} done, needs {:b}",
                index,
                done,
                before
            );
        }
        let dispatch = running.swap_remove(rng.below(running.len()));
        done |= 1 << finish(engine, dispatch);
    }
    Ok(())
}
