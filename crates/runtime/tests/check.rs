//! A node whose runs are checked: races of kernels, of tasks and of the host are found whatever the scheduler did, right
//! programs are proved, and a chip may die at any instruction.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

extern crate ringwork_runtime as ringwork;

#[path = "support/kernels.rs"]
mod kernels;

use kernels::{increment, meet_or_fail, shift};
use ringwork_isa::{
    Compare, Core, ErrorKind, HostPort, In, Notify, Out, Received, Result, Shared, Signals, Tile,
};
use ringwork_macros::{kernel, orchestration};
use ringwork_runtime::chip::explicit;
use ringwork_runtime::{
    Cause, Checked, Checking, ChipOrchestrator, CoreKind, Device, Domain, DomainSpec, Error, Failure, Node,
    Platform, Rank, Response, TaskFault,
};

/// Puts a value to the next chip and tells it; waits for that of the one before, unless `hurries`.
#[kernel]
async fn pass_on<C: Core>(
    core: &C,
    x: In<i32>,
    y: Out<i32>,
    slot: Shared<i32>,
    steps: Signals,
    hurries: bool,
) -> Result<()> {
    let next = Rank((slot.me().0 + 1) % slot.ranks());
    core.copy(slot.on(next)?, x).await?;
    core.notify(steps.at(0)?.on(next)?, Notify::Add(1)).await?;
    if !hurries {
        core.wait(steps.at(0)?, Compare::Ge, 1).await?;
    }
    core.copy(y, slot).await
}

/// Writes a neighbour's part of a window, which its arguments do not say: they say its own.
#[kernel]
async fn reach_over<C: Core>(core: &C, slot: Shared<i32>, to: u32) -> Result<()> {
    core.store(slot.on(Rank(to))?, &Tile::new(vec![7; slot.len()]))
        .await
}

/// y = 7, before a copy that is never joined.
#[kernel]
async fn forget_to_join<C: Core>(core: &C, x: In<i32>, y: Out<i32>) -> Result<()> {
    core.copy_async(y, x).await.map(drop)
}

/// Every rank sets the same signal.
#[kernel]
async fn all_set<C: Core>(core: &C, steps: Signals) -> Result<()> {
    let first = steps.at(0)?.on(Rank(0))?;
    core.notify(first, Notify::Set(1)).await
}

/// Polls the neighbour's signal for ever, or until it changes.
#[kernel]
async fn poll<C: Core>(core: &C, steps: Signals, sets: u32) -> Result<()> {
    if steps.me.0 == sets {
        return core.notify(steps.at(0)?.on(Rank(0))?, Notify::Set(1)).await;
    }
    while !core.test(steps.at(0)?.on(Rank(0))?, Compare::Ge, 1).await? {}
    Ok(())
}

#[kernel]
async fn wait_for<C: Core>(core: &C, steps: Signals, value: i32) -> Result<()> {
    core.wait(steps.at(0)?, Compare::Ge, value).await
}

#[kernel]
async fn fill_and_tell<C: Core>(core: &C, y: Out<i32>, steps: Signals, tells_first: bool) -> Result<()> {
    if tells_first {
        core.notify(steps.at(0)?, Notify::Set(1)).await?;
    }
    core.store(y, &Tile::new(vec![5; y.len()])).await?;
    core.notify(steps.at(0)?, Notify::Set(1)).await
}

/// Answers each request with its double.
#[kernel]
async fn double<C: Core>(core: &C, slots: Shared<i32>, headers: Shared<i32>, cells: Signals) -> Result<()> {
    let mut port = HostPort::open(core, slots, headers, cells).await?;
    while let Received::Data(request) = port.recv(core).await? {
        let mut values = core.load(request.payload()).await?;
        port.release(core, request).await?;
        values.values_mut().iter_mut().for_each(|value| *value *= 2);
        let reply = port.reserve(core, values.len()).await?;
        core.store(reply.place(), &values).await?;
        port.send(core, reply).await?;
    }
    port.stop(core).await
}

fn checked_by(checking: Checking, devices: u32) -> Node {
    Node::builder()
        .devices(0..devices)
        .platform(Platform::Check(checking))
        .launch()
        .unwrap()
}

fn node(devices: u32) -> Node {
    checked_by(Checking::new(), devices)
}

fn domain(node: &Node) -> Domain {
    let spec = DomainSpec::new("tp", node.devices())
        .buffer::<i32>("slot", 4)
        .barrier("meet")
        .signals("steps", 1);
    node.open_domain(&spec).unwrap()
}

fn checked(node: &Node) -> Checked {
    node.clock().checked().unwrap()
}

fn assert_proved(node: &Node) {
    let checked = checked(node);
    assert!(checked.is_proved(), "{checked}\n{checked:?}");
    assert_eq!(checked.exit_code(), 0);
}

/// The faults of a run, as a person reads them.
fn fault<R: std::fmt::Debug>(outcome: ringwork_runtime::Result<R>) -> String {
    match outcome.unwrap_err() {
        Error::Faults { faults, .. } => {
            let texts: Vec<String> = faults.iter().map(ToString::to_string).collect();
            texts.join("\n")
        }
        other => panic!("{other:?}"),
    }
}

fn assert_contains(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "`{part}` is missing in\n{text}");
    }
}

/// Where this line is, as a report says it.
fn line_of(text: &str) -> String {
    let line = include_str!("check.rs")
        .lines()
        .position(|line| line.contains(text));
    format!("tests/check.rs:{}", line.unwrap() + 1)
}

fn pass(node: &Node, domain: &Domain, hurries: bool) -> ringwork_runtime::Result<Vec<i32>> {
    let chips = node.devices();
    let tensors: Vec<_> = chips
        .iter()
        .map(|chip| {
            (
                node.tensor(*chip, &[chip.0 as i32; 4]).unwrap(),
                node.zeros::<i32>(*chip, 4).unwrap(),
            )
        })
        .collect();
    let (slot, steps) = (domain.buffer::<i32>("slot")?, domain.signals("steps")?);
    node.run(|orch| {
        orch.group(chips.iter().copied(), |chip| {
            let (x, y) = &tensors[chip.0 as usize];
            Ok(pass_on::task(x, y, &slot, &steps, hurries))
        })
    })?;
    tensors.iter().map(|(_, y)| Ok(y.read()?[0])).collect()
}

#[test]
fn a_right_program_is_proved_and_its_values_are_right() {
    let node = node(3);
    assert_eq!(pass(&node, &domain(&node), false).unwrap(), [2, 0, 1]);
    assert_proved(&node);
    let checked = checked(&node);
    assert_eq!((checked.chips, checked.tasks, checked.failed), (3, 3, 0));
    assert_contains(&checked.to_string(), &["proved (tier 1", "3 chips, 3 tasks"]);
}

#[test]
fn a_wait_that_is_left_out_is_found_with_both_lines() {
    let node = node(3);
    let text = fault(pass(&node, &domain(&node), true));
    assert_contains(
        &text,
        &[
            "race: kernel `pass_on` on chip ",
            "elements 0..4 in window \"tp\" of rank ",
            &line_of("core.copy(slot.on(next)?, x)"),
            &line_of("core.copy(y, slot)"),
            "help: let kernel `pass_on` on chip ",
            "has not waited for anything that kernel `pass_on` on chip ",
        ],
    );
    assert_eq!(checked(&node).exit_code(), 1);
}

#[test]
fn a_task_that_touches_more_than_its_arguments_say_is_found_though_it_ran_long_after() {
    let node = node(2);
    let domain = domain(&node);
    let slot = domain.buffer::<i32>("slot").unwrap();
    let own = node.zeros::<i32>(Device(1), 4).unwrap();
    let text = fault(node.run(|orch| {
        orch.submit(Device(1), reach_over::task(&slot, 1))?;
        // Chip 0 does other things first; nothing orders its last one with that of chip 1.
        orch.submit(Device(0), reach_over::task(&slot, 1))
    }));
    assert_contains(
        &text,
        &["on chip 0", "on chip 1", "of rank 1", "task 1", "task 2"],
    );
    // The same, one after the other by the graph.
    node.run(|orch| {
        let first = orch.submit(Device(1), reach_over::task(&slot, 1))?;
        orch.after([first]).submit(Device(0), reach_over::task(&slot, 1))
    })
    .unwrap();
    // And by a host that waits.
    node.run(|orch| orch.submit(Device(1), reach_over::task(&slot, 1)))
        .unwrap();
    node.run(|orch| orch.submit(Device(0), reach_over::task(&slot, 1)))
        .unwrap();
    drop(own);
    assert_eq!(checked(&node).faults.len(), 1);
}

#[test]
fn tasks_of_one_chip_are_ordered_by_what_they_say_and_not_by_their_queue() {
    let node = node(1);
    let x = node.zeros::<i32>(Device(0), 8).unwrap();
    node.run(|orch| {
        for _ in 0..5 {
            orch.submit(Device(0), increment::task(&x))?;
        }
        Ok(())
    })
    .unwrap();
    assert_eq!(x.read().unwrap(), [5; 8]);
    assert_proved(&node);
}

#[test]
fn a_collective_again_and_again_in_one_run_and_in_several_is_proved() {
    let node = node(4);
    let domain = domain(&node);
    let (slot, meet) = (
        domain.buffer::<i32>("slot").unwrap(),
        domain.signals("meet").unwrap(),
    );
    let y: Vec<_> = node
        .devices()
        .iter()
        .map(|chip| node.zeros::<i32>(*chip, 4).unwrap())
        .collect();
    for _ in 0..3 {
        node.run(|orch| {
            for _ in 0..2 {
                orch.group(node.devices(), |chip| {
                    Ok(shift::task(&y[chip.0 as usize], &slot, &meet))
                })?;
            }
            Ok(())
        })
        .unwrap();
    }
    assert_proved(&node);
}

#[test]
fn a_host_that_writes_what_a_task_may_still_read_is_found() {
    let node = node(1);
    let x = node.zeros::<i32>(Device(0), 4).unwrap();
    let other = x.clone();
    let text = fault(node.run(|orch| {
        orch.submit(Device(0), increment::task(&x))?;
        // It says nothing of what it writes.
        orch.host_task("meddle", move || other.write(&[1; 4]))
    }));
    assert_contains(
        &text,
        &[
            "host task `meddle`",
            "kernel `increment` on chip 0",
            "a tensor on device 0",
        ],
    );
    let other = x.clone();
    node.run(|orch| {
        orch.submit(Device(0), increment::task(&x))?;
        orch.writes(&x).host_task("write", move || other.write(&[1; 4]))
    })
    .unwrap();
    assert_eq!(x.read().unwrap(), [1; 4]);
}

#[test]
fn a_copy_that_is_never_joined_and_two_setters_are_misuse() {
    let node = node(2);
    let (x, y) = (
        node.zeros::<i32>(Device(0), 4).unwrap(),
        node.zeros::<i32>(Device(0), 4).unwrap(),
    );
    let text = fault(node.run(|orch| orch.submit(Device(0), forget_to_join::task(&x, &y))));
    assert_contains(
        &text,
        &[
            "misuse: a copy was begun and never joined",
            &line_of("core.copy_async(y, x)"),
        ],
    );
    let domain = domain(&node);
    let steps = domain.signals("steps").unwrap();
    let text = fault(node.run(|orch| orch.group(node.devices(), |_| Ok(all_set::task(&steps)))));
    assert_contains(
        &text,
        &[
            "misuse: two ranks set one signal",
            "signal 0 of rank 0 in window \"tp\"",
            "chip 0",
            "chip 1",
        ],
    );
}

#[test]
fn tasks_that_wait_for_a_signal_come_after_what_it_released() {
    let node = node(2);
    let domain = domain(&node);
    let steps = domain.signals("steps").unwrap();
    let slot = domain.buffer::<i32>("slot").unwrap();
    let run = |tells_first: bool| {
        node.run(|orch| {
            let part = slot.on(Rank(0))?;
            orch.submit(Device(0), fill_and_tell::task(&part, &steps, tells_first))?;
            let after = orch.when(steps.cell(Rank(0), 0)?, Compare::Ge, 1);
            after.submit(Device(1), reach_over::task(&slot, 0))
        })
    };
    run(false).unwrap();
    assert_proved(&node);
    let node = self::node(2);
    let domain = self::domain(&node);
    let steps = domain.signals("steps").unwrap();
    let slot = domain.buffer::<i32>("slot").unwrap();
    let text = fault(node.run(|orch| {
        let part = slot.on(Rank(0))?;
        orch.submit(Device(0), fill_and_tell::task(&part, &steps, true))?;
        let after = orch.when(steps.cell(Rank(0), 0)?, Compare::Ge, 1);
        after.submit(Device(1), reach_over::task(&slot, 0))
    }));
    assert_contains(&text, &["race: ", "fill_and_tell", "reach_over"]);
}

#[test]
fn a_deadlock_names_everybody_who_waits() {
    let node = node(2);
    let steps = domain(&node).signals("steps").unwrap();
    let error = node
        .run(|orch| orch.group(node.devices(), |_| Ok(wait_for::task(&steps, 3))))
        .unwrap_err();
    let Error::Task(failure) = error else {
        panic!("{error:?}")
    };
    let Cause::Kernel(Failure::Returned(error)) = &failure.cause else {
        panic!("{failure}")
    };
    let ErrorKind::Deadlock { waiting } = error.kind() else {
        panic!("{error}")
    };
    assert_eq!(waiting.len(), 2);
    let checked = checked(&node);
    assert!(checked.is_faulty() && checked.exit_code() == 1, "{checked}");
    // The next run begins afresh.
    assert_eq!(pass(&node, &domain(&node), false).unwrap(), [1, 0]);
}

#[test]
fn a_program_whose_order_matters_is_bounded_and_not_proved() {
    let node = node(2);
    let domain = domain(&node);
    let steps = domain.signals("steps").unwrap();
    node.run(|orch| orch.group(node.devices(), |_| Ok(poll::task(&steps, 1))))
        .unwrap();
    let checked = checked(&node);
    assert_eq!(
        (checked.is_proved(), checked.exit_code()),
        (false, 2),
        "{checked}"
    );
    assert_contains(
        &checked.to_string(),
        &["bounded, not proved", "signal 0 of rank 0"],
    );
    // Nobody sets it: that ends too.
    let node = self::node(2);
    let steps = self::domain(&node).signals("steps").unwrap();
    let error = node
        .run(|orch| orch.group(node.devices(), |_| Ok(poll::task(&steps, 9))))
        .unwrap_err();
    assert!(matches!(error, Error::Task(_)), "{error}");
}

#[test]
fn a_bound_that_is_reached_is_said_and_is_no_proof() {
    let node = checked_by(Checking::new().instructions(5), 3);
    let error = pass(&node, &domain(&node), false).unwrap_err();
    assert_contains(&error.to_string(), &["the bound of instructions was reached"]);
    assert!(!checked(&node).is_proved());
}

#[test]
fn a_failed_kernel_and_its_partners_end_as_they_do_anywhere() {
    let node = node(3);
    let meet = domain(&node).signals("meet").unwrap();
    let error = node
        .run(|orch| orch.group(node.devices(), |_| Ok(meet_or_fail::task(&meet, 1))))
        .unwrap_err();
    let Error::Task(failure) = error else {
        panic!("{error:?}")
    };
    assert_eq!(failure.device, Device(1));
    assert_eq!(failure.others.len(), 2);
}

#[test]
fn a_port_between_the_host_and_a_running_kernel_is_checked() {
    let node = node(1);
    let mut port = node.open_port::<i32>(Device(0), 2, 4).unwrap();
    let answers = node
        .run(|orch| {
            orch.submit(
                Device(0),
                double::task(port.slots(), port.headers(), port.cells()),
            )?;
            let mut answers = Vec::new();
            for number in 0..5 {
                port.send(&[number, 1])?;
                let Response::Data(answer) = port.recv()? else {
                    panic!("no answer")
                };
                answers.extend(answer.read()?);
            }
            port.stop()?;
            assert!(matches!(port.recv()?, Response::Stop));
            Ok(answers)
        })
        .unwrap();
    assert_eq!(answers, [0, 2, 2, 2, 4, 2, 6, 2, 8, 2]);
    let checked = checked(&node);
    assert!(checked.faults.is_empty(), "{checked:?}");
    assert!(checked.is_proved(), "{checked:?}");
}

#[test]
fn intermediates_that_take_the_place_of_others_do_not_race_with_them() {
    let node = Node::builder()
        .devices(0..1)
        .platform(Platform::Check(Checking::new()))
        .intermediate_bytes(8 << 10)
        .launch()
        .unwrap();
    let x = node.zeros::<i32>(Device(0), 1000).unwrap();
    node.run(|orch| {
        for _ in 0..10 {
            orch.scope(|orch| {
                let between = orch.intermediate::<i32>(Device(0), 1000)?;
                orch.submit(Device(0), copy_over::task(&x, between))?;
                orch.submit(Device(0), copy_over::task(between, &x)).map(drop)
            })?;
        }
        Ok(())
    })
    .unwrap();
    assert_proved(&node);
}

#[kernel]
async fn copy_over<C: Core>(core: &C, x: In<i32>, y: Out<i32>) -> Result<()> {
    core.copy(y, x).await
}

/// Runs the collective with chip 1 dying before its instruction `number`.
fn with_death(number: u64, at_once: bool) -> (ringwork_runtime::Result<()>, Checked) {
    let checking = Checking::new().let_die(Device(1), number);
    let checking = if at_once {
        checking.tell_at_once()
    } else {
        checking
    };
    let node = checked_by(checking, 3);
    let domain = domain(&node);
    let (slot, meet) = (
        domain.buffer::<i32>("slot").unwrap(),
        domain.signals("meet").unwrap(),
    );
    let y: Vec<_> = node
        .devices()
        .iter()
        .map(|chip| node.zeros::<i32>(*chip, 4).unwrap())
        .collect();
    let outcome = node.run(|orch| {
        orch.group(node.devices(), |chip| {
            Ok(shift::task(&y[chip.0 as usize], &slot, &meet))
        })
    });
    (outcome.map(drop), checked(&node))
}

#[test]
fn a_chip_that_dies_at_any_instruction_blocks_nobody_and_is_named() {
    for at_once in [false, true] {
        let mut deaths = 0;
        for number in 0.. {
            let (outcome, checked) = with_death(number, at_once);
            let Err(error) = outcome else {
                assert!(checked.faults.is_empty());
                break;
            };
            deaths += 1;
            let Error::Task(failure) = error else {
                panic!("{number}: {error:?}")
            };
            assert_eq!(failure.device, Device(1), "{number}: {failure}");
            assert!(
                matches!(failure.cause, Cause::Ended { .. }),
                "{number}: {failure}"
            );
            for (device, cause) in &failure.others {
                let Cause::Kernel(Failure::Returned(error)) = cause else {
                    panic!("{device}: {cause}")
                };
                let ErrorKind::PeerDied { rank, .. } = error.kind() else {
                    panic!("{device}: {error}")
                };
                assert_eq!(*rank, Rank(1));
            }
            assert!(checked.faults.is_empty(), "{number}: {checked:?}");
            assert!(!checked.is_proved());
        }
        // Two meetings and a copy: at least five instructions.
        assert!(deaths >= 5, "{deaths}");
    }
}

#[test]
fn a_fault_is_a_value_too() {
    let node = node(2);
    let outcome = pass(&node, &domain(&node), true);
    let Err(Error::Faults { faults, .. }) = outcome else {
        panic!("{outcome:?}")
    };
    let TaskFault::Race(race) = &faults[0] else {
        panic!("{faults:?}")
    };
    let instructions = [race.first.instruction, race.second.instruction];
    assert_eq!(instructions, ["copy", "copy"]);
    assert!(race.first.site.is_some() && race.first.who.chip != race.second.who.chip);
}

/// y = x + 1
#[kernel]
async fn one_more<C: Core>(core: &C, x: In<i32>, y: Out<i32>) -> Result<()> {
    let mut values = core.load(x).await?;
    values.values_mut().iter_mut().for_each(|value| *value += 1);
    core.store(y, &values).await
}

/// y = x + 2, by two tasks; the second one is said to come after the first, or not.
#[orchestration]
fn two_more(orch: &mut ChipOrchestrator<'_>, x: In<i32>, y: Out<i32>, is_ordered: bool) -> Result<()> {
    let between = orch.intermediate::<i32>(x.len())?;
    let first = orch.submit(CoreKind::Vector, one_more::task(x, between))?;
    let after = if is_ordered { vec![first] } else { Vec::new() };
    orch.after(after)
        .submit(CoreKind::Vector, one_more::task(between, y))?;
    Ok(())
}

#[test]
fn a_chips_own_graph_is_proved_all_three_ways() {
    let node = node(1);
    let chip = Device(0);
    let x = node.tensor(chip, &[1; 8]).unwrap();
    let y: Vec<_> = (0..3).map(|_| node.zeros::<i32>(chip, 8).unwrap()).collect();
    let captured = node.capture(chip, &two_more::task(&x, &y[2], true)).unwrap();
    node.run(|orch| {
        orch.submit(chip, two_more::task(&x, &y[0], false))?;
        orch.submit(chip, explicit(two_more::task(&x, &y[1], true)))?;
        orch.submit(chip, captured.replay(&two_more::task(&x, &y[2], true))?)
    })
    .unwrap();
    for y in &y {
        assert_eq!(y.read().unwrap(), [3; 8]);
    }
    assert_proved(&node);
}

#[test]
fn an_edge_that_is_left_out_of_a_chips_own_graph_is_found() {
    let node = node(1);
    let chip = Device(0);
    let (x, y) = (
        node.tensor(chip, &[1; 8]).unwrap(),
        node.zeros::<i32>(chip, 8).unwrap(),
    );
    let text = fault(node.run(|orch| orch.submit(chip, explicit(two_more::task(&x, &y, false)))));
    assert_contains(
        &text,
        &[
            "race: kernel `one_more` on chip 0",
            "the intermediates of chip 0's graph",
        ],
    );
}
