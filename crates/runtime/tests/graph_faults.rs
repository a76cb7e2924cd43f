//! Real processes really killed and stopped while graphs are in flight: who is named, what still finishes.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test that prints what it measured"
)]
extern crate ringwork_runtime as ringwork;

mod support;

use ringwork_isa::{Compare, Core, Error as KernelError, InOut, Notify, Rank, Result, Signals, Tile};
use ringwork_macros::{kernel, orchestration};
use ringwork_runtime::{
    Captured, Cause, ChipOrchestrator, CoreKind, Device, DomainSpec, Error, Node, Orchestrator, Tensor,
};
use ringwork_testkit::Rng;
use ringwork_testkit::harness::{self, Test};
use ringwork_testkit::process::{Process, open_files};
use rustix::process::Signal;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use support::roles;
use support::storm::assert_clean;

fn main() -> ExitCode {
    roles::play().unwrap_or_else(|| harness::main(TESTS))
}

const TESTS: &[Test] = &[
    (
        "a_chip_killed_under_a_graph_is_named_and_the_others_finish_their_part",
        killed_under_a_graph,
    ),
    (
        "a_kernel_that_fails_anywhere_in_a_graph_cancels_what_needs_it_and_nothing_else",
        fails_anywhere,
    ),
    (
        "a_chip_stopped_under_a_graph_is_ended_and_named",
        stopped_under_a_graph,
    ),
    (
        "a_task_that_waits_for_the_signal_of_a_stopped_chip_names_the_chip",
        stopped_before_its_signal,
    ),
    (
        "who_waits_for_the_signal_of_a_dead_chip_is_told_of_the_death",
        signal_of_the_dead,
    ),
    (
        "a_task_for_any_chip_runs_on_those_that_are_left",
        anywhere_after_a_death,
    ),
    (
        "a_chip_killed_in_a_graph_of_its_own_is_named_with_it",
        killed_in_its_own_graph,
    ),
    ("an_interrupt_ends_a_graph_of_every_kind_of_wait", interrupted),
];

/// x = x + 1, unless it is `bad`.
#[kernel]
async fn step<C: Core>(core: &C, x: InOut<i32>, bad: i32) -> Result<()> {
    let tile = core.load(x).await?;
    if tile.values()[0] == bad {
        return Err(KernelError::failed("it is bad"));
    }
    core.store(x, &Tile::new(vec![tile.values()[0] + 1])).await
}

/// Waits for what never comes.
#[kernel]
async fn wait_inside<C: Core>(core: &C, row: Signals) -> Result<()> {
    core.wait(row.at(0)?, Compare::Ge, 1).await
}

/// Takes a moment, then tells rank 0.
#[kernel]
async fn tell<C: Core>(core: &C, row: Signals) -> Result<()> {
    std::thread::sleep(Duration::from_millis(50)); // time in which its chip is killed
    core.notify(row.at(0)?.on(Rank(0))?, Notify::Add(1)).await
}

#[kernel]
async fn touch<C: Core>(_core: &C) -> Result<()> {
    Ok(())
}

/// Two chains on the chip's cores.
#[orchestration]
fn on_cores(orch: &mut ChipOrchestrator<'_>, x: InOut<i32>, y: InOut<i32>) -> Result<()> {
    for _ in 0..50 {
        orch.submit(CoreKind::Vector, step::task(x, NEVER))?;
        orch.submit(CoreKind::Vector, step::task(y, NEVER))?;
    }
    Ok(())
}

const NEVER: i32 = -1;
const KILLED: &str = "it was killed by SIGKILL";

fn node(chips: u32) -> Node {
    Node::builder().devices(0..chips).launch().unwrap()
}

fn process(node: &Node, device: Device) -> Process {
    Process::open(node.pid(device).unwrap()).unwrap()
}

fn counters(node: &Node) -> Vec<Tensor<i32>> {
    let devices = node.devices();
    devices
        .iter()
        .map(|chip| node.tensor(*chip, &[0]).unwrap())
        .collect()
}

/// `rounds` steps on every chip, each chip its own chain; and how many of each were taken in.
fn chains(
    orch: &mut Orchestrator<'_>,
    x: &[Tensor<i32>],
    rounds: u32,
    taken: &mut [i32],
) -> ringwork_runtime::Result<()> {
    for _ in 0..rounds {
        for (chip, x) in (0..).zip(x) {
            orch.submit(Device(chip), step::task(x, NEVER))?;
            taken[chip as usize] += 1;
        }
    }
    Ok(())
}

fn killed_under_a_graph(rng: &mut Rng) {
    let files = open_files();
    for _ in 0..40 {
        let node = node(3);
        let x = counters(&node);
        let victim = Device(u32::try_from(rng.below(3)).unwrap());
        let (process, moment) = (
            process(&node, victim),
            Duration::from_micros(rng.below(4000) as u64),
        );
        let mut taken = [0; 3];
        let calls = Arc::new(AtomicU32::new(0));
        let error = std::thread::scope(|scope| {
            let killer = scope.spawn(|| {
                std::thread::sleep(moment); // the random moment
                process.signal(Signal::KILL);
            });
            let error = loop {
                let outcome = node.run(|orch| {
                    chains(orch, &x, 20, &mut taken)?;
                    // Host tasks and intermediates of the living must not be harmed either.
                    for (chip, x) in (0..).zip(&x) {
                        let calls = calls.clone();
                        orch.reads(x).host_task("look", move || {
                            calls.fetch_add(1, Ordering::Relaxed);
                            Ok::<(), String>(())
                        })?;
                        orch.scope(|orch| orch.intermediate::<i32>(Device(chip), 100).map(drop))?;
                    }
                    Ok(())
                });
                if let Err(error) = outcome {
                    break error;
                }
            };
            killer.join().unwrap();
            error
        });
        match &error {
            // It died between two runs, or while memory was handed to it.
            Error::Gone { device, cause } => assert_eq!((*device, cause.as_str()), (victim, KILLED)),
            Error::Task(failure) => {
                assert_eq!(
                    (failure.device, failure.kernel.as_str()),
                    (victim, "step"),
                    "{error}"
                );
                assert!(
                    matches!(&failure.cause, Cause::Ended { how, .. } if how == KILLED),
                    "{error}"
                );
                let there = format!("on chip {victim}");
                for text in &failure.cancelled {
                    assert!(text.ends_with(&there) || text == "host task `look`", "{text}");
                }
            }
            other => panic!("{other}"),
        }
        // Whatever was taken in for the others is done.
        for (chip, x) in x.iter().enumerate() {
            if chip != victim.0 as usize {
                assert_eq!(x.read().unwrap(), [taken[chip]], "chip {chip}, after: {error}");
            }
        }
        let alive: Vec<Device> = node
            .devices()
            .into_iter()
            .filter(|chip| *chip != victim)
            .collect();
        node.run(|orch| {
            orch.group(alive.iter().copied(), |chip| {
                Ok(step::task(&x[chip.0 as usize], NEVER))
            })
        })
        .unwrap();
        drop((node, x, process));
        assert_clean(files);
    }
}

fn fails_anywhere(rng: &mut Rng) {
    let node = node(3);
    let x = counters(&node);
    for _ in 0..100 {
        for x in &x {
            x.write(&[0]).unwrap();
        }
        let (chip, bad, rounds) = (rng.below(3), rng.below(40), 40);
        let mut taken = [0; 3];
        let outcome = node.run(|orch| {
            for _ in 0..rounds {
                for (at, x) in (0..).zip(&x) {
                    let bad = if at as usize == chip {
                        i32::try_from(bad).unwrap()
                    } else {
                        NEVER
                    };
                    orch.submit(Device(at), step::task(x, bad))?;
                    taken[at as usize] += 1;
                }
            }
            Ok(())
        });
        let error = outcome.unwrap_err();
        let Error::Task(failure) = &error else {
            panic!("{error}")
        };
        assert_eq!(failure.device.0 as usize, chip, "{error}");
        assert!(matches!(failure.cause, Cause::Kernel(_)), "{error}");
        for (at, x) in x.iter().enumerate() {
            let ran = if at == chip {
                i32::try_from(bad).unwrap()
            } else {
                taken[at]
            };
            assert_eq!(x.read().unwrap(), [ran], "chip {at}, after: {error}");
        }
        let cancelled = i32::try_from(failure.cancelled.len()).unwrap();
        assert_eq!(
            cancelled,
            taken[chip] - i32::try_from(bad).unwrap() - 1,
            "{error}"
        );
    }
}

fn killed_in_its_own_graph(rng: &mut Rng) {
    let files = open_files();
    for round in 0..20 {
        let node = node(2);
        let (x, y) = (counters(&node), counters(&node));
        let tasks = |chip: usize| on_cores::task(&x[chip], &y[chip]);
        let captured: Vec<Captured> = [0, 1]
            .map(|chip: u32| node.capture(Device(chip), &tasks(chip as usize)).unwrap())
            .into();
        let process = process(&node, Device(1));
        let moment = Duration::from_micros(rng.below(3000) as u64);
        let error = std::thread::scope(|scope| {
            let killer = scope.spawn(|| {
                std::thread::sleep(moment); // the random moment
                process.signal(Signal::KILL);
            });
            let error = loop {
                let outcome = node.run(|orch| {
                    for (chip, captured) in captured.iter().enumerate() {
                        let task = tasks(chip);
                        let task = if round % 2 == 0 {
                            task
                        } else {
                            captured.replay(&task)?
                        };
                        orch.submit(captured.device(), task)?;
                    }
                    Ok(())
                });
                if let Err(error) = outcome {
                    break error;
                }
            };
            killer.join().unwrap();
            error
        });
        match &error {
            Error::Gone { device, cause } => assert_eq!((*device, cause.as_str()), (Device(1), KILLED)),
            Error::Task(failure) => {
                assert_eq!((failure.device, failure.kernel.as_str()), (Device(1), "on_cores"));
                assert!(
                    matches!(&failure.cause, Cause::Ended { how, .. } if how == KILLED),
                    "{error}"
                );
            }
            other => panic!("{other}"),
        }
        // The other chip's graph is whole.
        let (first, second) = (x[0].read().unwrap()[0], y[0].read().unwrap()[0]);
        assert!(first == second && first % 50 == 0, "{first}, {second}");
        drop((captured, x, y, node, process));
        assert_clean(files);
    }
}

fn stopped_under_a_graph(_: &mut Rng) {
    let builder = Node::builder()
        .devices(0..2)
        .wait_limit(Duration::from_millis(200));
    let node = builder.launch().unwrap();
    let x = counters(&node);
    process(&node, Device(1)).signal(Signal::STOP);
    let mut taken = [0; 2];
    let error = node.run(|orch| chains(orch, &x, 50, &mut taken)).unwrap_err();
    let Error::Task(failure) = &error else {
        panic!("{error}")
    };
    assert_eq!((failure.device, failure.kernel.as_str()), (Device(1), "step"));
    assert!(matches!(&failure.cause, Cause::Stuck { .. }), "{error}");
    assert_eq!(x[0].read().unwrap(), [taken[0]]);
    assert_eq!(failure.cancelled.len(), 49, "{error}");
}

fn stopped_before_its_signal(_: &mut Rng) {
    let builder = Node::builder()
        .devices(0..2)
        .wait_limit(Duration::from_millis(300));
    let node = builder.launch().unwrap();
    let spec = DomainSpec::new("pair", node.devices()).signals("row", 1);
    let row = node.open_domain(&spec).unwrap().signals("row").unwrap();
    let x = counters(&node);
    process(&node, Device(1)).signal(Signal::STOP);
    let error = node.run(|orch| {
        let cell = row.cell(Rank(0), 0)?;
        orch.when(cell, Compare::Ge, 1)
            .submit(Device(0), step::task(&x[0], NEVER))?;
        orch.submit(Device(1), tell::task(&row))
    });
    let error = error.unwrap_err();
    assert!(matches!(error, Error::Overdue { .. }), "{error}");
    assert!(
        error.to_string().contains("; chip 1 is stopped, `kill -CONT "),
        "{error}"
    );
}

fn signal_of_the_dead(_: &mut Rng) {
    let node = node(2);
    let spec = DomainSpec::new("pair", node.devices()).signals("row", 1);
    let row = node.open_domain(&spec).unwrap().signals("row").unwrap();
    let x = counters(&node);
    let victim = process(&node, Device(1));
    let error = node
        .run(|orch| {
            let cell = row.cell(Rank(0), 0)?;
            orch.when(cell, Compare::Ge, 1)
                .submit(Device(0), step::task(&x[0], NEVER))?;
            orch.submit(Device(1), tell::task(&row))?;
            victim.signal(Signal::KILL);
            Ok(())
        })
        .unwrap_err();
    let Error::Task(failure) = &error else {
        panic!("{error}")
    };
    assert_eq!((failure.device, failure.kernel.as_str()), (Device(1), "tell"));
    assert!(
        matches!(&failure.cause, Cause::Ended { how, .. } if how == KILLED),
        "{error}"
    );
    assert_eq!(failure.cancelled, ["kernel `step` on chip 0"]);
    assert_eq!(x[0].read().unwrap(), [0]);
}

fn anywhere_after_a_death(_: &mut Rng) {
    let node = node(2);
    let victim = process(&node, Device(0));
    victim.signal(Signal::KILL);
    assert!(victim.ended(Duration::from_secs(10)));
    // Its end is news to the host in one of these.
    while node.run(|orch| orch.submit(Device(0), touch::task())).is_ok() {}
    node.run(|orch| (0..100).try_for_each(|_| orch.anywhere(touch::task()).map(drop)))
        .unwrap();
    let timeline = node.clock().timeline().unwrap();
    let ran_on = |row| timeline.slices.iter().filter(|slice| slice.row == row).count();
    assert_eq!(timeline.rows, ["chip 0", "chip 1"]);
    assert_eq!(ran_on(1), 100);
}

fn interrupted(_: &mut Rng) {
    let node = node(2);
    let spec = DomainSpec::new("pair", node.devices()).signals("row", 2);
    let row = node.open_domain(&spec).unwrap().signals("row").unwrap();
    let x = counters(&node);
    let called = Arc::new(AtomicU32::new(0));
    let interrupter = node.interrupter();
    let error = node
        .run(|orch| {
            let cell = row.cell(Rank(0), 1)?;
            orch.submit(Device(0), wait_inside::task(&row))?;
            orch.submit(Device(0), step::task(&x[0], NEVER))?;
            orch.when(cell, Compare::Ge, 1)
                .submit(Device(1), step::task(&x[1], NEVER))?;
            let called = called.clone();
            orch.reads(&x[1]).host_task("never", move || {
                called.fetch_add(1, Ordering::Relaxed);
                Ok::<(), String>(())
            })?;
            interrupter.interrupt();
            Ok(())
        })
        .unwrap_err();
    assert!(matches!(error, Error::Interrupted), "{error}");
    assert_eq!(called.load(Ordering::Relaxed), 0);
}
