//! The node as a user meets it: configuration, bring-up, memory, domains, tasks, failures, the end.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

extern crate ringwork_native as ringwork;

#[path = "support/kernels.rs"]
mod kernels;

use kernels::{increment, meet_or_fail, shift};
use ringwork_isa::{Core, In, Level, Out, Result};
use ringwork_macros::kernel;
use ringwork_runtime::{Device, DomainSpec, Error, Node, NodeBuilder, Program, Rank};
use std::time::Duration;

#[kernel]
async fn copy<C: Core>(core: &C, x: In<i32>, y: Out<i32>) -> Result<()> {
    core.copy(y, x).await
}

#[kernel]
async fn lose_temper<C: Core>(_core: &C) -> Result<()> {
    panic!("the kernel lost its temper")
}

#[kernel]
async fn leave<C: Core>(_core: &C, code: i32) -> Result<()> {
    std::process::exit(code)
}

fn node(devices: u32) -> Node {
    Node::builder().devices(0..devices).launch().unwrap()
}

/// A builder whose launch fails with another error if anything is started.
fn unstartable() -> NodeBuilder {
    Node::builder()
        .program(Program {
            path: "/does/not/exist".into(),
            arguments: vec![],
        })
        .devices(0..2)
}

fn with_domain(members: &[u32], fill: impl FnOnce(DomainSpec) -> DomainSpec) -> NodeBuilder {
    unstartable().domain(fill(DomainSpec::new("tp", members.iter().copied().map(Device))))
}

#[test]
fn wrong_configurations_fail_before_any_process_starts_naming_the_field() {
    let cases = [
        (unstartable().devices([]), "devices", "at least one chip"),
        (
            unstartable().devices([3, 1, 3]),
            "devices",
            "device 3 is there twice",
        ),
        (unstartable().level(Level::Chip), "level", "chip (level 2)"),
        (unstartable().wait_limit(Duration::ZERO), "wait_limit", "zero"),
        (
            with_domain(&[0, 9], |d| d),
            "domain `tp`: members",
            "device 9 is not a chip",
        ),
        (with_domain(&[], |d| d), "domain `tp`: members", "0 members"),
        (
            with_domain(&[1, 1], |d| d),
            "domain `tp`: members",
            "device 1 is there twice",
        ),
        (
            with_domain(&[0, 1], |d| d.buffer::<f32>("b", 300).window_bytes(1024)),
            "domain `tp`: buffers",
            "1280 bytes and the window has 1024",
        ),
        (
            with_domain(&[0], |d| d.buffer::<f32>("b", usize::MAX)),
            "domain `tp`: buffers",
            "more than any memory",
        ),
        (
            with_domain(&[0], |d| d.buffer::<f32>("b", 1).buffer::<i8>("b", 1)),
            "domain `tp`: buffers",
            "`b` is there twice",
        ),
        (
            with_domain(&[0], |d| d.signals("s", u32::MAX)),
            "domain `tp`: signals",
            "more than",
        ),
        (
            with_domain(&[0], |d| d.buffer::<f32>("b", 4).stage("b", Rank(0), &[1f32; 3])),
            "domain `tp`: stage",
            "3 elements and the buffer 4",
        ),
        (
            with_domain(&[0], |d| d.buffer::<f32>("b", 4).stage("b", Rank(1), &[1f32; 4])),
            "domain `tp`: stage",
            "1 ranks",
        ),
        (
            with_domain(&[0], |d| d.buffer::<f32>("b", 4).stage("b", Rank(0), &[1i32; 4])),
            "domain `tp`: stage",
            "i32",
        ),
        (
            with_domain(&[0], |d| d).domain(DomainSpec::new("tp", [Device(1)])),
            "domains",
            "`tp` is there twice",
        ),
    ];
    for (builder, wanted_field, wanted_problem) in cases {
        match builder.launch() {
            Err(Error::Config { field, problem }) => {
                assert_eq!(field, wanted_field);
                assert!(problem.contains(wanted_problem), "{field}: {problem}");
            }
            other => panic!("{wanted_field}: {other:?}"),
        }
    }
}

#[test]
fn contexts_say_what_each_chip_has() {
    let spec = DomainSpec::new("tp", [2, 0].map(Device))
        .buffer::<f32>("scratch", 100)
        .window_bytes(5000)
        .barrier("meet");
    let node = Node::builder().devices([0, 2, 5]).domain(spec).launch().unwrap();
    let contexts = node.contexts();
    assert_eq!(
        contexts
            .iter()
            .map(|context| context.device.0)
            .collect::<Vec<_>>(),
        [0, 2, 5]
    );
    let first = &contexts[0].domains[0];
    assert_eq!(
        (first.rank, first.ranks, first.window_bytes_asked),
        (Rank(1), 2, 5000)
    );
    assert!(first.window_bytes >= 5000);
    assert_eq!(first.buffers["scratch"].count, 100);
    assert_eq!(contexts[1].domains[0].rank, Rank(0));
    assert!(contexts[2].domains.is_empty());
}

#[test]
fn contexts_know_domains_that_were_opened_later_until_they_are_released() {
    let node = Node::builder().devices([0, 2]).launch().unwrap();
    let spec = DomainSpec::new("late", [2, 0].map(Device))
        .buffer::<f32>("scratch", 100)
        .buffer::<u8>("flags", 3);
    let late = node.open_domain(&spec).unwrap();
    let of_chip_2 = &node.contexts()[1].domains;
    assert_eq!((of_chip_2[0].name.as_str(), of_chip_2[0].rank), ("late", Rank(0)));
    let buffers: Vec<_> = late.buffers().map(|(name, place)| (name, place.count)).collect();
    assert_eq!(buffers, [("flags", 3), ("scratch", 100)]);
    let ranks = late.each(|chip| Ok(late.rank_of(chip))).unwrap();
    assert_eq!(
        (ranks[Device(0)], ranks[Device(2)]),
        (Some(Rank(1)), Some(Rank(0)))
    );
    drop(late);
    assert!(node.contexts()[1].domains.is_empty());
}

#[test]
fn staged_data_is_there_from_the_start_and_windows_are_otherwise_zero() {
    let spec = DomainSpec::new("ring", (0..3).map(Device))
        .buffer::<i32>("slot", 4)
        .buffer::<i32>("empty", 4)
        .barrier("meet")
        .stage("slot", Rank(1), &[7, 8, 9, 10]);
    let node = Node::builder().devices(0..3).domain(spec).launch().unwrap();
    let ring = node.domain("ring").unwrap();
    let slot = ring.buffer::<i32>("slot").unwrap();
    assert_eq!(slot.read(Rank(1)).unwrap(), [7, 8, 9, 10]);
    assert_eq!(slot.read(Rank(0)).unwrap(), [0; 4]);
    assert_eq!(
        ring.buffer::<i32>("empty").unwrap().read(Rank(2)).unwrap(),
        [0; 4]
    );
    slot.write(Rank(0), &[1, 2, 3, 4]).unwrap();
    let y: Vec<_> = node
        .devices()
        .iter()
        .map(|chip| node.zeros::<i32>(*chip, 4).unwrap())
        .collect();
    node.run(|orch| {
        let meet = ring.barrier("meet")?;
        orch.group(node.devices(), |chip| {
            Ok(shift::task(&y[chip.0 as usize], &slot, &meet))
        })
    })
    .unwrap();
    assert_eq!(y[0].read().unwrap(), [7, 8, 9, 10]);
    assert_eq!(y[2].read().unwrap(), [1, 2, 3, 4]);
}

#[test]
fn chip_memory_stays_over_runs_and_slices_share_it() {
    let node = node(2);
    let x = node.tensor(Device(1), &[10, 20, 30]).unwrap();
    let middle = x.slice(1..2).unwrap();
    for _ in 0..3 {
        node.run(|orch| orch.submit(Device(1), increment::task(&middle)))
            .unwrap();
    }
    assert_eq!(x.read().unwrap(), [10, 23, 30]);
    assert!(matches!(
        x.slice(2..4),
        Err(Error::Length {
            have: 3,
            asked: 4,
            ..
        })
    ));
    assert!(matches!(
        x.write(&[1]),
        Err(Error::Length {
            have: 3,
            asked: 1,
            ..
        })
    ));
}

#[test]
fn a_task_cannot_use_what_its_chip_has_no_part_in() {
    let node = node(2);
    let here = node.tensor(Device(0), &[1, 2]).unwrap();
    let there = node.zeros::<i32>(Device(1), 2).unwrap();
    let error = node
        .run(|orch| orch.submit(Device(0), copy::task(&here, &there)))
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "device 0 has no part in a tensor on device 1; its task cannot use it"
    );
    let error = node
        .run(|orch| orch.submit(Device(7), copy::task(&here, &here)))
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "there is no device 7 here; this worker has 0, 1"
    );
}

#[test]
fn a_released_domain_cannot_be_used_but_tasks_that_use_it_finish() {
    let node = node(2);
    let spec = DomainSpec::new("pair", node.devices())
        .buffer::<i32>("slot", 2)
        .barrier("meet");
    let pair = node.open_domain(&spec).unwrap();
    let (slot, meet) = (pair.buffer::<i32>("slot").unwrap(), pair.barrier("meet").unwrap());
    slot.write(Rank(1), &[5, 6]).unwrap();
    let y = [
        node.zeros::<i32>(Device(0), 2).unwrap(),
        node.zeros::<i32>(Device(1), 2).unwrap(),
    ];
    node.run(|orch| {
        orch.group(node.devices(), |chip| {
            Ok(shift::task(&y[chip.0 as usize], &slot, &meet))
        })?;
        pair.release();
        let refused = orch
            .submit(Device(0), shift::task(&y[0], &slot, &meet))
            .unwrap_err();
        assert_eq!(
            refused.to_string(),
            "window \"pair\" was released; open it again before using it"
        );
        Ok(())
    })
    .unwrap();
    assert_eq!(y[0].read().unwrap(), [5, 6]);
    assert!(matches!(slot.read(Rank(0)), Err(Error::Released { .. })));
}

#[test]
fn names_and_types_that_a_domain_does_not_have_are_named() {
    let node = node(1);
    let spec = DomainSpec::new("solo", node.devices())
        .buffer::<f32>("a", 1)
        .buffer::<f32>("b", 1);
    let solo = node.open_domain(&spec).unwrap();
    let error = solo.buffer::<f32>("c").unwrap_err().to_string();
    assert_eq!(error, "domain `solo` has no buffer `c`; it has `a`, `b`");
    let error = solo.buffer::<i32>("a").unwrap_err().to_string();
    assert_eq!(error, "buffer `a` of domain `solo` holds f32, not i32");
    assert!(
        solo.barrier("meet")
            .unwrap_err()
            .to_string()
            .ends_with("it has none")
    );
}

#[test]
fn a_failure_carries_its_path_and_frees_its_partners_and_the_next_run_is_clean() {
    let node = node(3);
    let spec = DomainSpec::new("all", node.devices())
        .buffer::<i32>("slot", 1)
        .barrier("meet");
    let all = node.open_domain(&spec).unwrap();
    let meet = all.barrier("meet").unwrap();
    let run = |bad: u32| node.run(|orch| orch.group(node.devices(), |_| Ok(meet_or_fail::task(&meet, bad))));
    for _ in 0..3 {
        let error = run(1).unwrap_err().to_string();
        assert!(
            error.starts_with("node, chip 1, kernel `meet_or_fail`: "),
            "{error}"
        );
        assert!(
            error.contains("tests/support/kernels.rs:") && error.ends_with("this rank has had enough"),
            "{error}"
        );
        run(99).unwrap();
    }
}

#[test]
fn panics_and_exits_are_told_apart_and_say_where() {
    let node = node(3);
    let panicked = node
        .run(|orch| orch.submit(Device(0), lose_temper::task()))
        .unwrap_err()
        .to_string();
    assert!(
        panicked.starts_with("node, chip 0, kernel `lose_temper`: the kernel panicked at "),
        "{panicked}"
    );
    assert!(panicked.ends_with("the kernel lost its temper"), "{panicked}");
    let left = node
        .run(|orch| orch.submit(Device(1), leave::task(3)))
        .unwrap_err()
        .to_string();
    assert_eq!(
        left,
        "node, chip 1, kernel `leave`: it exited with code 3; it was last seen in: kernel `leave`, before its first instruction"
    );
    let gone = node
        .run(|orch| orch.submit(Device(1), leave::task(3)))
        .unwrap_err()
        .to_string();
    assert_eq!(
        gone,
        "device 1 is gone: it exited with code 3; launch a new node to use it again"
    );
    // The other chips still work.
    let x = node.tensor(Device(2), &[1]).unwrap();
    node.run(|orch| orch.submit(Device(2), increment::task(&x)))
        .unwrap();
    assert_eq!(x.read().unwrap(), [2]);
}

#[test]
fn a_host_closure_runs_after_what_was_submitted_and_its_error_has_its_name() {
    let node = node(2);
    let x = node.tensor(Device(0), &[1]).unwrap();
    let seen = node.run(|orch| {
        orch.submit(Device(0), increment::task(&x))?;
        orch.host("collect", || x.read())
    });
    assert_eq!(seen.unwrap(), [2]);
    let error = node
        .run(|orch| orch.host("collect", || Err::<(), _>("no such column")))
        .unwrap_err();
    assert_eq!(error.to_string(), "node, host closure `collect`: no such column");
}

#[test]
fn closing_twice_is_closing_once_and_handles_say_so() {
    let node = node(2);
    let x = node.tensor(Device(0), &[1]).unwrap();
    let pid = node.pid(Device(1)).unwrap();
    node.close();
    node.close();
    assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
    assert!(matches!(x.read(), Err(Error::Closed)));
    assert!(matches!(
        node.run(|orch| orch.submit(Device(0), increment::task(&x))),
        Err(Error::Closed)
    ));
}

#[test]
fn more_tasks_than_a_mailbox_holds_wait_their_turn() {
    let node = node(1);
    let x = node.tensor(Device(0), &[0]).unwrap();
    node.run(|orch| {
        for _ in 0..5000 {
            orch.submit(Device(0), increment::task(&x))?;
        }
        Ok(())
    })
    .unwrap();
    assert_eq!(x.read().unwrap(), [5000]);
}
