//! Kernels that wait for ever, fail, or ask for what is not there: each is told with its rank, line and cause.

use crate::common::*;
use ringwork_isa::{Compare, Core, Error, ErrorKind, Notify, Rank, Region, Segment, Span};
use ringwork_sim::{Machine, Options, SegmentSpec, SimError, StuckOn, Topology};

#[test]
fn a_signal_that_never_comes_is_reported_with_rank_line_signal_and_values() {
    let topology = Topology::preset("ring-3").unwrap();
    let machine = machine_with::<u8>(&topology, Options::default(), 8, 8);
    for rank in 0..3 {
        let d = Domain::<u8>::new(rank as usize, 3, 8, 8);
        machine
            .spawn(rank, "hopeful", move |core| async move {
                if d.me == 1 {
                    core.notify(d.signal(5), Notify::Add(1)).await?;
                    core.wait(d.signal(5), Compare::Ge, 2).await?;
                }
                Ok(())
            })
            .unwrap();
    }
    let error = machine.run().unwrap_err();
    let SimError::Deadlock { stuck, .. } = &error else {
        panic!("{error}")
    };
    assert_eq!(stuck.len(), 1);
    assert_eq!((stuck[0].rank, stuck[0].task.as_str()), (1, "hopeful"));
    let StuckOn::Signal(waited) = &stuck[0].on else {
        panic!("{error}")
    };
    assert_eq!((waited.signal, waited.value, waited.needed), (5, 1, 2));
    assert!(waited.site.file.ends_with("failures.rs"));
    assert!(
        error
            .to_string()
            .contains("signal 5 of rank 1 to be >= 2, it is 1"),
        "{error}"
    );
    // The machine is clean again.
    let task = machine.spawn(0, "after", |_| async { Ok(()) }).unwrap();
    assert_eq!(machine.run_until(task).unwrap().result, Ok(()));
}

#[test]
fn a_kernel_that_fails_is_named_before_those_who_wait_for_it() {
    let topology = Topology::preset("ring-2").unwrap();
    let machine = machine_with::<u8>(&topology, Options::default(), 8, 8);
    let d = Domain::<u8>::new(0, 2, 8, 8);
    machine
        .spawn(0, "waits", move |core| async move { d.recv(&core, 0, 1).await })
        .unwrap();
    machine
        .spawn(1, "fails", |_| async {
            Err(Error::failed("expert 9 does not exist"))
        })
        .unwrap();
    let error = machine.run().unwrap_err();
    assert!(
        matches!(&error, SimError::Failed { rank: 1, task, stuck, .. } if task == "fails" && stuck.len() == 1),
        "{error}"
    );
}

#[test]
fn what_is_not_mapped_overlaps_or_belongs_to_another_chip_is_refused() {
    let topology = Topology::preset("ring-2").unwrap();
    let machine = Machine::new(&topology, Options::default());
    machine
        .define(SegmentSpec {
            segment: Segment(7),
            members: vec![1],
            bytes: 64,
            memory: 0,
        })
        .unwrap();
    let span = |start: u64, len: u64, segment: u32| Span {
        segment: Segment(segment),
        base: 0,
        stride: 0,
        me: Rank(0),
        rank: Rank(0),
        ranks: 1,
        dtype: ringwork_isa::Dtype::F32,
        start,
        len,
    };
    let region = move |start, len, segment| {
        Region::<f32, ringwork_isa::ReadWrite>::from_span(span(start, len, segment)).unwrap()
    };
    let check = |rank: u32, dst: (u64, u64, u32), src: (u64, u64, u32)| {
        let task = machine
            .spawn(rank, "copy", move |core| async move {
                core.copy(region(dst.0, dst.1, dst.2), region(src.0, src.1, src.2))
                    .await
            })
            .unwrap();
        machine.run_until(task).unwrap().result
    };
    assert_eq!(check(1, (0, 4, 7), (8, 4, 7)), Ok(()));
    assert_eq!(check(1, (0, 4, 7), (0, 4, 7)), Ok(()));
    assert!(matches!(
        check(1, (0, 4, 7), (2, 4, 7)).unwrap_err().kind(),
        ErrorKind::Overlap { source_index: 0, .. }
    ));
    assert!(matches!(
        check(1, (0, 4, 7), (14, 4, 7)).unwrap_err().kind(),
        ErrorKind::NotMapped { .. }
    ));
    assert!(matches!(
        check(1, (0, 4, 7), (0, 4, 9)).unwrap_err().kind(),
        ErrorKind::NotMapped { .. }
    ));
    assert!(matches!(
        check(0, (0, 4, 7), (8, 4, 7)).unwrap_err().kind(),
        ErrorKind::NotMapped { .. }
    ));
    assert!(
        machine
            .define(SegmentSpec {
                segment: Segment(7),
                members: vec![1],
                bytes: 64,
                memory: 0
            })
            .is_err()
    );
    assert!(machine.spawn(2, "nowhere", |_| async { Ok(()) }).is_err());
}

#[test]
fn a_full_memory_is_refused_and_released_memory_can_be_used_again() {
    let topology = topology(
        "network: {kind: ring, size: 2, bandwidth: 1 GB/s, latency: 1 us}\nchip: {memory: {capacity: 1 MiB}}\n",
    );
    let machine = Machine::new(&topology, Options::default());
    let spec = |segment: u32, bytes: u64| SegmentSpec {
        segment: Segment(segment),
        members: vec![0, 1],
        bytes,
        memory: 0,
    };
    machine.define(spec(1, 2 << 20)).unwrap();
    assert!(matches!(
        machine.define(spec(2, 2)),
        Err(SimError::OutOfMemory { rank: 0, .. })
    ));
    machine.release(Segment(1));
    machine.define(spec(2, 2)).unwrap();
}

#[test]
fn a_kernel_that_polls_for_ever_is_stopped_by_the_limit() {
    let ring = Topology::preset("ring-2").unwrap();
    let options = Options {
        limit_ps: 1_000_000_000,
        ..Options::default()
    };
    let machine = machine_with::<u8>(&ring, options, 8, 8);
    let d = Domain::<u8>::new(0, 2, 8, 8);
    machine
        .spawn(0, "polls", move |core| async move {
            while !core.test(d.signal(0), Compare::Ge, 1).await? {}
            Ok(())
        })
        .unwrap();
    assert!(matches!(machine.run(), Err(SimError::TooLong { .. })));
}

#[test]
fn a_signal_that_would_go_down_is_refused_also_when_the_last_change_is_on_its_way() {
    let topology = Topology::preset("ring-2").unwrap();
    let machine = machine_with::<u8>(&topology, Options::default(), 8, 8);
    let d = Domain::<u8>::new(0, 2, 8, 8);
    let task = machine
        .spawn(0, "down", move |core| async move {
            let theirs = d.signal(3).on(Rank(1))?;
            core.notify(theirs, Notify::Set(5)).await?;
            core.notify(theirs, Notify::Set(4)).await
        })
        .unwrap();
    let outcome = machine.run_until(task).unwrap();
    let error = outcome.result.unwrap_err();
    assert!(
        matches!(
            error.kind(),
            ErrorKind::SignalDown {
                value: 5,
                new: 4,
                rank: Rank(1),
                ..
            }
        ),
        "{error}"
    );
    assert!(error.to_string().contains("failures.rs:"), "{error}");
}
