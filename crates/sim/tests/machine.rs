//! Data, deadlocks, errors, determinism: what a machine promises beyond its times.

mod common;

use common::*;
use proptest::prelude::*;
use ringwork_isa::{
    Compare, Core, Element, Error, ErrorKind, Notify, Rank, ReduceOp, Region, Segment, Span, Tile, with_dtype,
};
use ringwork_sim::{Collective, Machine, Options, SegmentSpec, SimError, StuckOn, Topology, lower_bound};

const KINDS: [&str; 8] = [
    "ring-7",
    "line-5",
    "mesh-2x3",
    "torus-2x3x2",
    "full-8",
    "switch-6",
    "fat-tree-2x4",
    "nodes-2x4",
];

/// The sum over ranks in rank order, as the contract says.
fn reference<T: Element>(n: usize, count: usize) -> Vec<T> {
    (0..count)
        .map(|i| {
            let mut sum = value::<T>(0, i).widen();
            for rank in 1..n {
                sum = T::combine(ReduceOp::Sum, sum, value::<T>(rank, i).widen());
            }
            T::narrow(sum)
        })
        .collect()
}

#[test]
fn direct_all_reduce_has_the_contracts_bits_on_every_kind_of_network_and_dtype() {
    for kind in KINDS {
        let topology = Topology::preset(kind).unwrap();
        let n = topology.ranks() as usize;
        for dtype in DTYPES {
            with_dtype!(dtype, T => {
                let (count, scratch) = (101, 16 * n * n);
                let machine = run_on::<T, _, _>(&topology, Options::default(), count, scratch, true, |core, d| async move {
                    direct_all_reduce(&core, d).await
                });
                let wanted = reference::<T>(n, count);
                for rank in 0..n {
                    assert_eq!(buffer::<T>(&machine, rank, count, scratch), wanted, "{kind} {dtype} rank {rank}");
                }
            });
        }
    }
}

#[test]
fn every_algorithm_leaves_the_sum_on_every_rank() {
    for kind in ["ring-8", "full-8", "torus-2x2x2", "h100x8", "v100x8"] {
        let topology = Topology::preset(kind).unwrap();
        let wanted = reference::<i32>(8, 64);
        for algorithm in 0..3 {
            let machine = run_on::<i32, _, _>(
                &topology,
                Options::default(),
                64,
                256,
                true,
                |core, d| async move {
                    match algorithm {
                        0 => ring_all_reduce(&core, d, RING).await,
                        1 => recursive_doubling(&core, d).await,
                        _ => halving_doubling(&core, d).await,
                    }
                },
            );
            for rank in 0..8 {
                assert_eq!(
                    buffer::<i32>(&machine, rank, 64, 256),
                    wanted,
                    "{kind} {algorithm} {rank}"
                );
            }
        }
    }
}

#[test]
fn timing_only_takes_the_same_time_and_events() {
    let topology = Topology::preset("torus-4x4").unwrap();
    let run = |timing_only: bool, trace: bool| {
        let options = Options {
            timing_only,
            trace,
            ..Options::default()
        };
        let machine = run_on::<f32, _, _>(&topology, options, 4096, 4096, true, |core, d| async move {
            ring_all_reduce(&core, d, RING).await
        });
        (machine.now_ps(), machine.events(), machine.fingerprint())
    };
    assert_eq!(run(false, false), run(true, false));
    assert_eq!(run(false, false), run(false, true));
}

#[test]
fn a_signal_that_never_comes_is_reported_with_rank_line_signal_and_values() {
    let topology = Topology::preset("ring-3").unwrap();
    let machine = Machine::new(&topology, Options::default());
    let stride = Domain::<u8>::stride(8, 8);
    machine
        .define(SegmentSpec {
            segment: Segment(1),
            members: vec![0, 1, 2],
            bytes: stride * 3,
            memory: 0,
        })
        .unwrap();
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
    assert!(waited.site.file.ends_with("machine.rs"));
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
fn a_ring_of_two_works_though_both_neighbours_are_one_peer_and_its_wrong_form_is_a_deadlock() {
    let topology = Topology::preset("ring-2").unwrap();
    let machine = run_on::<f32, _, _>(
        &topology,
        Options::default(),
        64,
        64,
        true,
        |core, d| async move { ring_all_reduce(&core, d, RING).await },
    );
    assert_eq!(buffer::<f32>(&machine, 0, 64, 64), reference::<f32>(2, 64));
    // Both neighbours' messages counted on one cell, each waiting for two from "the other side".
    let machine = Machine::new(&topology, Options::default());
    let stride = Domain::<u8>::stride(8, 8);
    machine
        .define(SegmentSpec {
            segment: Segment(1),
            members: vec![0, 1],
            bytes: stride * 2,
            memory: 0,
        })
        .unwrap();
    for rank in 0..2 {
        let d = Domain::<u8>::new(rank as usize, 2, 8, 8);
        machine
            .spawn(rank, "wrong", move |core| async move {
                core.notify(d.signal(0).on(Rank(1 - rank))?, Notify::Set(1))
                    .await?;
                core.notify(d.signal(0).on(Rank(1 - rank))?, Notify::Set(1))
                    .await?;
                d.recv(&core, 0, 2).await
            })
            .unwrap();
    }
    let SimError::Deadlock { stuck, .. } = machine.run().unwrap_err() else {
        panic!("no deadlock")
    };
    assert_eq!(stuck.len(), 2);
}

#[test]
fn a_kernel_that_fails_is_named_before_those_who_wait_for_it() {
    let topology = Topology::preset("ring-2").unwrap();
    let machine = Machine::new(&topology, Options::default());
    let stride = Domain::<u8>::stride(8, 8);
    machine
        .define(SegmentSpec {
            segment: Segment(1),
            members: vec![0, 1],
            bytes: stride * 2,
            memory: 0,
        })
        .unwrap();
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
fn dma_engines_are_charged_when_they_take_a_transfer_and_a_full_queue_holds_the_core() {
    let wire = "bandwidth: 10 GB/s, latency: 1 us";
    let time = |dma: &str| {
        let full = topology(&format!(
            "network: {{kind: full, size: 5, {wire}}}\nchip: {{dma: {{{dma}}}}}\n"
        ));
        timed(&full, 10_000, 1, |core, d| async move {
            if d.me > 0 {
                return d.recv(&core, 0, 1).await;
            }
            for to in 1..5 {
                d.send(&core, to, d.buffer, d.buffer, 0).await?;
            }
            Ok(())
        })
    };
    let bytes = 1_000_000;
    assert_eq!(time("engines: 4"), bytes + 1_000_000);
    assert_eq!(time("engines: 2"), 2 * bytes + 1_000_000);
    assert_eq!(time("engines: 1"), 4 * bytes + 1_000_000);
    assert_eq!(time("engines: 1, queue: 0"), 4 * bytes + 1_000_000);
    assert_eq!(time("engines: 1, queue: 1"), 4 * bytes + 1_000_000);
}

#[test]
fn memory_is_a_resource_that_copies_inside_a_chip_use_twice() {
    let chip = topology(
        "network: {kind: ring, size: 2, bandwidth: 10 GB/s, latency: 1 us}\nchip: {memory: {bandwidth: 100 GB/s, latency: 10 ns}}\n",
    );
    let t = timed(&chip, 10_000, 10_000, |core, d| async move {
        if d.me == 0 {
            core.copy(d.scratch, d.buffer).await
        } else {
            Ok(())
        }
    });
    assert_eq!(t, 200_000 + 10_000);
    // What is read must have been written: the second copy waits for the first.
    let t = timed(&chip, 10_000, 10_000, |core, d| async move {
        if d.me > 0 {
            return Ok(());
        }
        core.copy(d.scratch.part(2, 0)?, d.buffer.part(2, 0)?).await?;
        core.copy(d.scratch.part(2, 1)?, d.scratch.part(2, 0)?).await
    });
    assert_eq!(t, 2 * (100_000 + 10_000));
}

#[test]
fn a_product_takes_its_flops_or_its_folds_whichever_is_longer() {
    let time = |chip: &str, shape: [usize; 3]| {
        let machine = topology(&format!(
            "network: {{kind: ring, size: 2, bandwidth: 10 GB/s, latency: 1 us}}\nchip: {{{chip}}}\n"
        ));
        timed(&machine, 8, 8, move |core, d| async move {
            if d.me > 0 {
                return Ok(());
            }
            let [m, k, n] = shape;
            let (a, b) = (Tile::<f32>::hollow(m * k), Tile::hollow(k * n));
            let (a, b) = (a.shaped(m, k)?, b.shaped(k, n)?);
            let product = core.matmul(&a, &b).await?;
            assert!(product.is_hollow() && product.len() == m * n);
            Ok(())
        })
    };
    let shape = [64, 100, 33];
    let flops = 2 * 64 * 100 * 33;
    assert_eq!(time("matrix: 1 Tflop/s", shape), flops);
    // Rows 16, columns 8: 4 x 5 folds of 2R + C + K - 2 cycles, a nanosecond each.
    let folds = 4 * 5 * (32 + 8 + 100 - 2) * 1000;
    let array = "array: {rows: 16, columns: 8, clock: 1 GHz}";
    assert_eq!(time(array, shape), folds);
    assert_eq!(
        time(&format!("matrix: 1 Tflop/s, {array}"), shape),
        folds.max(flops)
    );
    assert_eq!(time(&format!("matrix: 1 Gflop/s, {array}"), shape), flops * 1000);
    assert_eq!(time("vector: 1 GB/s", shape), 0);
}

#[test]
fn stragglers_and_slow_links_slow_what_depends_on_them() {
    let base = "network: {kind: ring, size: 4, bandwidth: 10 GB/s, latency: 1 us}\nchip: {vector: 10 GB/s}\n";
    let time = |extra: &str| {
        timed(
            &topology(&format!("{base}{extra}")),
            40_000,
            40_000,
            |core, d| async move { ring_all_reduce(&core, d, RING).await },
        )
    };
    let even = time("");
    assert!(time("stragglers: [{rank: 2, speed: 0.5}]\n") > even);
    assert!(time("faults: [{from: 0, to: 1, factor: 0.5}]\n") > even);
    assert!(time("faults: [{from: 0, to: 1, failed: true}]\n") > even);
    assert_eq!(
        time("faults: [{from: 1, to: 0, factor: 0.5, direction: one-way}]\n"),
        even,
        "nobody uses that link"
    );
}

#[test]
fn reading_from_another_chip_costs_the_way_there_and_back() {
    let ring = topology("network: {kind: ring, size: 2, bandwidth: 10 GB/s, latency: 1 us}\n");
    let t = timed(&ring, 10_000, 10_000, |core, d| async move {
        if d.me == 0 {
            core.copy(d.scratch, d.buffer.on(Rank(1))?).await
        } else {
            Ok(())
        }
    });
    assert_eq!(t, 2_000_000 + 1_000_000);
    let t = timed(&ring, 10_000, 10_000, |core, d| async move {
        if d.me == 0 {
            core.load(d.buffer.on(Rank(1))?).await.map(drop)
        } else {
            Ok(())
        }
    });
    assert_eq!(t, 2_000_000 + 1_000_000);
}

#[test]
fn a_kernel_that_polls_for_ever_is_stopped_by_the_limit() {
    let ring = Topology::preset("ring-2").unwrap();
    let machine = Machine::new(
        &ring,
        Options {
            limit_ps: 1_000_000_000,
            ..Options::default()
        },
    );
    let stride = Domain::<u8>::stride(8, 8);
    machine
        .define(SegmentSpec {
            segment: Segment(1),
            members: vec![0, 1],
            bytes: stride * 2,
            memory: 0,
        })
        .unwrap();
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
fn the_same_run_has_the_same_timeline_and_the_critical_path_spans_it() {
    let topology = Topology::preset("mesh-3x3").unwrap();
    let run = || {
        let options = Options {
            trace: true,
            ..Options::default()
        };
        run_on::<f32, _, _>(&topology, options, 900, 900 * 9, true, |core, d| async move {
            all_to_all(&core, d).await
        })
    };
    let (a, b) = (run(), run());
    assert_eq!(a.timeline(), b.timeline());
    assert_eq!(a.timeline().hash(), b.timeline().hash());
    let timeline = a.timeline();
    let path = timeline.critical_path();
    assert_eq!(path.first().map(|stretch| stretch.1), Some(0));
    assert_eq!(path.last().map(|stretch| stretch.2), Some(timeline.end_ps()));
    assert!(path.windows(2).all(|pair| pair[0].2 == pair[1].1), "{path:?}");
}

#[test]
fn the_trace_is_the_same_in_every_build() {
    // Made once; debug and release must both give it.
    let topology = Topology::preset("fat-tree-4x4").unwrap();
    let options = Options {
        trace: true,
        ..Options::default()
    };
    let machine = run_on::<f32, _, _>(&topology, options, 1600, 1600 * 16, true, |core, d| async move {
        direct_all_reduce(&core, d).await
    });
    let page = machine.timeline().chrome_json();
    assert_eq!(
        (machine.now_ps(), machine.timeline().hash(), page.len()),
        (2_240_000, 4_802_424_402_815_785_787, 91_020)
    );
}

fn any_topology() -> impl Strategy<Value = String> {
    let network = prop_oneof![
        (2u32..9).prop_map(|n| format!("kind: ring, size: {n}")),
        (2u32..9).prop_map(|n| format!("kind: line, size: {n}")),
        (1u32..4, 2u32..4).prop_map(|(x, y)| format!("kind: mesh, dims: [{x}, {y}]")),
        (1u32..4, 2u32..4, 1u32..3).prop_map(|(x, y, z)| format!("kind: torus, dims: [{x}, {y}, {z}]")),
        (2u32..9).prop_map(|n| format!("kind: full, size: {n}")),
        (2u32..9).prop_map(|n| format!("kind: switch, size: {n}, blocking: no")),
        (2u32..9).prop_map(|n| format!("kind: switch, size: {n}, blocking: 20 GB/s")),
        (2u32..4, 2u32..4).prop_map(|(x, y)| format!("kind: fat-tree, down: [{x}, {y}], up: [2]")),
    ];
    network.boxed()
}

fn run_algorithm(
    network: &str,
    picos_per_byte: u64,
    latency_ns: u64,
    bytes: usize,
    algorithm: usize,
) -> (Machine, Topology) {
    let rate = 1_000_000_000_000 / picos_per_byte;
    let network = network.replace("20 GB/s", &format!("{} B/s", rate * 2));
    let topology = topology(&format!(
        "network: {{{network}, bandwidth: {rate} B/s, latency: {latency_ns} ns}}\nchip: {{vector: {rate} B/s}}\n"
    ));
    let n = topology.ranks() as usize;
    let options = Options {
        timing_only: true,
        ..Options::default()
    };
    let count = bytes * n;
    let machine = run_on::<u8, _, _>(
        &topology,
        options,
        count,
        count * n,
        false,
        |core, d| async move {
            match algorithm {
                0 => ring_all_reduce(&core, d, RING).await,
                1 => direct_all_reduce(&core, d).await,
                _ => all_to_all(&core, d).await,
            }
        },
    );
    (machine, topology)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn doubling_bandwidths_and_halving_latencies_halves_the_time_exactly(network in any_topology(), latency in 0u64..500, bytes in 1usize..3000, algorithm in 0usize..3) {
        let (slow, _) = run_algorithm(&network, 200, latency * 4, bytes, algorithm);
        let (fast, _) = run_algorithm(&network, 100, latency * 2, bytes, algorithm);
        prop_assert_eq!(slow.now_ps(), 2 * fast.now_ps());
    }

    #[test]
    fn time_grows_with_bytes_latency_and_time_per_byte(network in any_topology(), latency in 0u64..500, bytes in 1usize..3000, algorithm in 0usize..3) {
        let time = |ppb, latency, bytes| run_algorithm(&network, ppb, latency, bytes, algorithm).0.now_ps();
        let base = time(100, latency, bytes);
        prop_assert!(time(100, latency, bytes + 100) >= base);
        prop_assert!(time(100, latency + 10, bytes) >= base);
        prop_assert!(time(200, latency, bytes) >= base);
    }

    #[test]
    fn no_link_is_busy_longer_than_the_run_and_no_byte_is_lost(network in any_topology(), latency in 0u64..500, bytes in 1usize..3000, algorithm in 0usize..3) {
        let (machine, topology) = run_algorithm(&network, 100, latency, bytes, algorithm);
        for load in machine.loads() {
            prop_assert!(load.busy_ps <= machine.now_ps(), "{:?}", load);
        }
        let op = if algorithm == 2 { Collective::AllToAll } else { Collective::AllReduce };
        let vector = bytes as u64 * u64::from(topology.ranks());
        let bound = lower_bound(op, &topology, topology.ranks(), vector);
        prop_assert_eq!(bound.check(machine.now_ps(), topology.ranks()), Ok(()), "{} on {}", op, network);
        if network.contains("full") {
            // One hop each: what the links carried is what the algorithm moves.
            let n = u64::from(topology.ranks());
            let moved = match algorithm { 2 => n * (n - 1), _ => 2 * n * (n - 1) };
            prop_assert_eq!(machine.bytes_carried(), moved * bytes as u64);
        }
    }

    #[test]
    fn an_idle_link_never_slows(bytes in 1usize..3000, extra in 0u32..6) {
        let line = |more: &str| {
            let text = format!("network: {{kind: links, chips: 4, bandwidth: 10 GB/s, latency: 1 us, links: [{{from: 0, to: 1}}, {{from: 1, to: 2}}, {{from: 2, to: 3}}, {{from: 3, to: 0}}{more}]}}");
            timed(&topology(&text), 4 * bytes, 4 * bytes, |core, d| async move { ring_all_reduce(&core, d, RING).await })
        };
        // A ring only talks to neighbours, so a diagonal is idle.
        let diagonal = ["", ", {from: 0, to: 2}", ", {from: 1, to: 3}", ", {from: 0, to: 2, lanes: 4}", ", {from: 2, to: 0, direction: one-way}", ", {from: 3, to: 1}"];
        prop_assert_eq!(line(""), line(diagonal[extra as usize]));
    }

    #[test]
    fn the_same_input_gives_the_same_events(network in any_topology(), bytes in 1usize..2000, algorithm in 0usize..3) {
        let (a, _) = run_algorithm(&network, 100, 100, bytes, algorithm);
        let (b, _) = run_algorithm(&network, 100, 100, bytes, algorithm);
        prop_assert_eq!((a.fingerprint(), a.events(), a.now_ps()), (b.fingerprint(), b.events(), b.now_ps()));
    }
}

/// A notification follows its core's transfers, but the core itself sees it at once: program order.
#[test]
fn a_kernel_sees_its_own_notifications_whatever_they_still_wait_for() {
    for preset in ["ring-2", "sip6-torus"] {
        let machine = run_on::<u8, _, _>(
            &Topology::preset(preset).unwrap(),
            Options::default(),
            1 << 16,
            0,
            false,
            |core, d| async move {
                if d.me > 0 {
                    return Ok(());
                }
                for round in 1..=5 {
                    // Under way long after the next two instructions.
                    core.copy(d.buffer.on(d.rank(1))?, d.buffer).await?;
                    core.notify(d.signal(0), Notify::Add(1)).await?;
                    assert_eq!(core.peek(d.signal(0)).await?, round);
                    core.notify(d.signal(0), Notify::Set(round)).await?;
                    assert_eq!(core.wait(d.signal(0), Compare::Ge, round).await?, round);
                }
                Ok(())
            },
        );
        assert!(machine.now_ps() > 0);
    }
}

/// Same input, same trace, to the byte: in every build, on every machine. A change of these numbers is a change
/// of what the simulator predicts.
#[test]
fn traces_are_the_same_bytes_in_every_build() {
    let traced = Options {
        trace: true,
        ..Options::default()
    };
    let of = |preset: &str| {
        let topology = Topology::preset(preset).unwrap();
        run_on::<f32, _, _>(&topology, traced, 768, 768, true, |core, d| async move {
            ring_all_reduce(&core, d, RING).await?;
            all_to_all(
                &core,
                Domain {
                    signals: shifted(d),
                    ..d
                },
            )
            .await
        })
    };
    let hashes: Vec<_> = ["ring-8", "torus-4x2", "h100x8", "v100x8", "nodes-2x4"]
        .iter()
        .map(|preset| {
            let (machine, again) = (of(preset), of(preset));
            let timeline = machine.timeline();
            assert_eq!(timeline.chrome_json(), again.timeline().chrome_json(), "{preset}");
            assert_eq!(timeline.html(), again.timeline().html(), "{preset}");
            format!("{preset} {:016x} {:016x}", timeline.hash(), machine.fingerprint())
        })
        .collect();
    assert_eq!(
        hashes,
        [
            "ring-8 400a3e270a0517cb 901112b3d208a5a5",
            "torus-4x2 4772986acddc0f91 add73a8095cae2bd",
            "h100x8 edffb9fad9217fb5 031491332344d3d1",
            "v100x8 708b6d4e66e8fea3 943d39e99c18a831",
            "nodes-2x4 f17214a13e151f71 17feb970b135be25",
        ]
    );
}

/// Signals that the first collective has not used.
fn shifted(d: Domain<f32>) -> ringwork_isa::Signals {
    ringwork_isa::Signals {
        base: d.signals.base + 16 * 128,
        count: d.signals.count - 16,
        ..d.signals
    }
}
