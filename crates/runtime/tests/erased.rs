//! Memory whose type is known at run time, runs in two halves, and hosts that listen while they wait.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

extern crate ringwork_native as ringwork;

#[path = "support/kernels.rs"]
mod kernels;

use kernels::{increment, meet_or_fail, shift};
use ringwork_isa::{Arg, Dtype, Tag, Task};
use ringwork_runtime::{AnyTensor, Device, DomainSpec, Error, Node, Platform, Rank, Simulation};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

fn platforms() -> [Platform; 2] {
    let ring = ringwork_sim::Topology::preset("ring-4").unwrap();
    [Platform::Native, Platform::Sim(Simulation::new(ring))]
}

fn bytes(values: &[i32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_ne_bytes()).collect()
}

fn read(tensor: &AnyTensor) -> Vec<u8> {
    let mut bytes = vec![0; tensor.bytes()];
    tensor.read(&mut bytes).unwrap();
    bytes
}

/// A task of a kernel with other arguments than its typed ones.
fn with(task: Task, args: Vec<Arg>) -> Task {
    Task { args, ..task }
}

#[test]
fn erased_memory_is_the_argument_of_a_kernel_and_is_copied_as_bytes() {
    for platform in platforms() {
        let node = Node::builder().devices(0..2).platform(platform).launch().unwrap();
        let x = node.any_zeros(Device(1), Dtype::I32, &[2, 3]).unwrap();
        assert_eq!((x.dtype(), x.shape(), x.bytes()), (Dtype::I32, &[2, 3][..], 24));
        x.write(&bytes(&[1, 2, 3, 4, 5, 6])).unwrap();
        let typed = node.zeros::<i32>(Device(1), 1).unwrap();
        let run = node.begin_run().unwrap();
        let second = x.row_range(1..2).unwrap();
        let task = with(increment::task(&typed), vec![second.region()]);
        run.orchestrator().submit(Device(1), task).unwrap();
        run.end(Ok(())).unwrap();
        assert_eq!(read(&x), bytes(&[1, 2, 3, 5, 6, 7]));
        assert_eq!(read(&second), bytes(&[5, 6, 7]));
    }
}

#[test]
fn erased_buffers_are_shared_and_have_parts() {
    for platform in platforms() {
        let spec = DomainSpec::new("tp", [Device(0), Device(1)]).buffer::<i32>("slot", 2);
        let spec = spec
            .barrier("meet")
            .stage_bytes("slot", Rank(1), Dtype::I32, bytes(&[7, 8]));
        let node = Node::builder()
            .devices(0..2)
            .domain(spec)
            .platform(platform)
            .launch()
            .unwrap();
        let tp = node.domain("tp").unwrap();
        let (slot, meet) = (tp.any_buffer("slot").unwrap(), tp.barrier("meet").unwrap());
        slot.on(Rank(0)).unwrap().write(&bytes(&[5, 6])).unwrap();
        let typed = tp.buffer::<i32>("slot").unwrap();
        let y = [0, 1].map(|chip| node.any_zeros(Device(chip), Dtype::I32, &[2]).unwrap());
        node.run(|orch| {
            orch.group([Device(0), Device(1)], |chip| {
                let y = &y[chip.0 as usize];
                let typed = shift::task(&node.zeros::<i32>(chip, 2)?, &typed, &meet);
                let meet = typed.args[2];
                Ok(with(typed, vec![y.region(), slot.window(), meet]))
            })
        })
        .unwrap();
        assert_eq!([read(&y[0]), read(&y[1])], [bytes(&[7, 8]), bytes(&[5, 6])]);
        assert!(slot.on(Rank(2)).is_err());
        assert!(matches!(tp.any_buffer("other"), Err(Error::NoSuchName { .. })));
    }
}

#[test]
fn wrong_sizes_and_shapes_are_refused() {
    let node = Node::builder().devices(0..1).launch().unwrap();
    let x = node.any_zeros(Device(0), Dtype::F64, &[2, 3]).unwrap();
    assert!(matches!(
        x.write(&[0; 47]),
        Err(Error::Length {
            have: 6,
            asked: 5,
            ..
        })
    ));
    assert!(matches!(
        x.read(&mut [0; 56]),
        Err(Error::Length {
            have: 6,
            asked: 7,
            ..
        })
    ));
    assert!(x.reshape(&[4]).is_err());
    assert!(x.reshape(&[usize::MAX, 2]).is_err());
    assert!(x.row_range(1..3).is_err());
    assert_eq!(
        x.reshape(&[3, 2]).unwrap().row_range(2..3).unwrap().shape(),
        [1, 2]
    );
    assert!(node.any_zeros(Device(0), Dtype::F64, &[usize::MAX, 2]).is_err());
}

#[test]
fn an_erased_block_has_its_last_dimension_as_columns() {
    let node = Node::builder().devices(0..1).launch().unwrap();
    let x = node.any_zeros(Device(0), Dtype::F32, &[2, 3, 4]).unwrap();
    let Arg::Block(block) = x.block() else {
        panic!("not a block")
    };
    assert_eq!((block.rows, block.columns, block.pitch), (6, 4, 4));
    assert!(block.is_sound());
    let empty = node.any_zeros(Device(0), Dtype::F32, &[3, 0]).unwrap();
    let Arg::Block(block) = empty.block() else {
        panic!("not a block")
    };
    assert!(block.is_sound());
}

#[test]
fn dependencies_follow_from_memory_that_is_named_beside_the_arguments() {
    let node = Node::builder().devices(0..2).launch().unwrap();
    let (x, y) = (
        node.any_zeros(Device(0), Dtype::I32, &[1]),
        node.zeros::<i32>(Device(1), 1),
    );
    let (x, y) = (x.unwrap(), y.unwrap());
    let run = node.begin_run().unwrap();
    let orch = run.orchestrator();
    let inner = orch.any_intermediate(Device(0), Dtype::I32, &[1]).unwrap();
    assert_eq!((inner.shape(), inner.device()), (&[1][..], Device(0)));
    for _ in 0..10 {
        orch.submit(Device(0), with(increment::task(&y), vec![x.region()]))
            .unwrap();
    }
    let seen = x.clone();
    orch.touches(x.region(), Tag::Input)
        .host_task("look", move || {
            assert_eq!(read(&seen), bytes(&[10]));
            Ok::<(), String>(())
        })
        .unwrap();
    run.end(Ok(())).unwrap();
}

#[test]
fn a_run_that_is_dropped_leaves_the_node_as_good_as_new() {
    let spec = DomainSpec::new("tp", [Device(0), Device(1)]).barrier("meet");
    let node = Node::builder().devices(0..2).domain(spec).launch().unwrap();
    let meet = node.domain("tp").unwrap().barrier("meet").unwrap();
    for bad in [1, 9] {
        let run = node.begin_run().unwrap();
        let members = [Device(0), Device(1)];
        run.orchestrator()
            .group(members, |_| Ok(meet_or_fail::task(&meet, bad)))
            .unwrap();
        drop(run);
    }
    node.run(|orch| orch.group([Device(0), Device(1)], |_| Ok(meet_or_fail::task(&meet, 9))))
        .unwrap();
}

#[test]
fn a_host_that_hears_of_a_wait_can_end_it() {
    let spec = DomainSpec::new("tp", [Device(0), Device(1)]).barrier("meet");
    let heard = Arc::new(AtomicU32::new(0));
    let hears = heard.clone();
    let builder = Node::builder().devices(0..2).domain(spec);
    let node = builder
        .on_wait(move || hears.fetch_add(1, Ordering::Relaxed) < 2)
        .launch()
        .unwrap();
    let meet = node.domain("tp").unwrap().barrier("meet").unwrap();
    let error = node
        .run(|orch| orch.submit(Device(0), meet_or_fail::task(&meet, 9)).map(drop))
        .unwrap_err();
    assert!(error.is_interrupted(), "{error}");
    assert_eq!(heard.load(Ordering::Relaxed), 3);
}
