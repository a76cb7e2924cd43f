//! The litmus table of `docs/memory-model.md`: every row is checked, and its verdict must be the one in the table. On the
//! simulator, with the detector in front of it, every row is run once. Those that loom can run are in the tests of `native`.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod support;

use ringwork_check::{Detector, Program, Seat, TaskFault, Who, watched};
use ringwork_isa::Rank;
use ringwork_sim::{Machine, Options, SegmentSpec, SimError, Topology};
use std::cell::RefCell;
use std::rc::Rc;
use support::{Text, prove, word};

const PAGE: &str = include_str!("../../../docs/memory-model.md");

/// Name, program and verdict of every row.
fn rows() -> Vec<(&'static str, String, &'static str)> {
    let table = PAGE.split("## Litmus tests").nth(1).unwrap();
    let rows = table.lines().filter(|line| line.starts_with("| ")).skip(1);
    rows.map(|line| {
        // A pipe inside a cell is written `\|`.
        let line = line.trim_matches('|');
        let cells: Vec<&str> = line.split(" | ").map(str::trim).collect();
        let [name, program, verdict, _] = cells[..] else {
            panic!("four columns: {line}");
        };
        let program = program.trim_matches('`').replace("\\|", "|");
        (name, program, verdict.trim_matches('*'))
    })
    .collect()
}

#[test]
fn every_litmus_test_has_the_verdict_of_the_table() {
    let rows = rows();
    assert!(rows.len() >= 24, "{} rows", rows.len());
    let mut wrong = Vec::new();
    for (name, program, wanted) in rows {
        let verdict = prove(&program, 1);
        if word(&verdict) != wanted {
            wrong.push(format!("{name} should be {wanted}: {verdict}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Runs a program once on a simulated machine, with a detector that sees every instruction; what is seen of it.
fn simulate(program: &str) -> &'static str {
    let text = Rc::new(Text::new(program));
    let (ranks, calls) = (text.ranks(), u32::try_from(text.longest()).unwrap());
    let layout = Program::new(ranks, 1, async |_, _| Ok(())).layout();
    let ring = Topology::preset(&format!("ring-{}", ranks.max(2))).unwrap();
    let machine = Machine::new(&ring, Options::default());
    let detector = Rc::new(RefCell::new(Detector::new()));
    detector
        .borrow_mut()
        .define(layout.segment, "window", None, layout.bytes());
    let window = SegmentSpec {
        segment: layout.segment,
        members: (0..ranks).collect(),
        bytes: layout.bytes(),
        memory: 0,
    };
    machine.define(window).unwrap();
    for rank in 0..ranks {
        let who = Who {
            chip: Some(rank),
            name: "kernel".into(),
            task: 1,
        };
        let start = detector.borrow_mut().now(Detector::HOST);
        let agent = detector.borrow_mut().begin(who, &start);
        let (text, detector) = (text.clone(), detector.clone());
        let kernel = move |core| async move {
            let core = watched(&core, agent, detector.clone());
            for call in 0..calls {
                let me = Rank(rank);
                text.call(&core, Seat { me, call, layout }).await?;
            }
            Ok(())
        };
        machine.spawn(rank, "litmus", kernel).unwrap();
    }
    let end = machine.run();
    let found = detector.borrow().checked();
    match (found.faults.first(), end) {
        (Some(TaskFault::Race(_)), _) => "race",
        (Some(TaskFault::Misuse { .. }), _) => "misuse",
        (None, Ok(())) if !found.is_proved() => "unproved",
        (None, Ok(())) => "ok",
        (None, Err(SimError::Deadlock { .. })) => "deadlock",
        (None, Err(SimError::Failed { .. })) => "reached",
        (None, Err(error)) => panic!("{program}: {error}"),
    }
}

/// Races that are not in the schedule of the simulator. The detector says then that it proved nothing.
const IN_OTHER_SCHEDULES: [&str; 2] = ["test ignored", "release sequence, one add"];

/// Rows that debug builds of the simulator refuse: a signal goes down.
const REFUSED: [&str; 2] = ["reset", "take away"];

#[test]
fn every_litmus_test_is_seen_by_the_simulator_as_the_table_says() {
    let mut wrong = Vec::new();
    for (name, program, wanted) in rows() {
        let seen = simulate(&program);
        let is_right = match seen {
            "unproved" => wanted != "race" || IN_OTHER_SCHEDULES.contains(&name),
            "reached" => wanted == seen || REFUSED.contains(&name),
            _ => wanted == seen,
        };
        if !is_right {
            wrong.push(format!("{name} should be {wanted}: {seen}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
