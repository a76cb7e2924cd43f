//! Every collective, on every kind of network: the bits are those of the native run of the same algorithm.
//!
//! A few kinds of network for 2, 5, 8 and 16 ranks, and two for 64. Every kind, for eleven numbers of ranks up to 64, is
//! a test that is ignored unless asked for.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

extern crate ringwork_native as ringwork;

use ringwork_collectives::{Algorithm, Team};
use ringwork_isa::{Rank, ReduceOp, Task};
use ringwork_kernels as kernels;
use ringwork_runtime::{Buffer, DomainSpec, Node, Platform, SignalRow, Simulation, Tensor};
use ringwork_sim::Topology;

/// What every kernel takes.
struct With<'a> {
    x: &'a Tensor<f32>,
    y: &'a Tensor<f32>,
    scratch: &'a Buffer<f32>,
    meet: &'a SignalRow,
    steps: &'a SignalRow,
}

/// Elements for so many ranks and a count.
type Count = fn(usize, usize) -> usize;

/// A collective: its name, elements in and out for `n` ranks of `count`, and its task.
struct Case {
    name: String,
    input: Count,
    output: Count,
    task: Box<dyn Fn(&With<'_>) -> Task>,
}

fn cases() -> Vec<Case> {
    let case = |name: &str, input, output, task: Box<dyn Fn(&With<'_>) -> Task>| Case {
        name: name.into(),
        input,
        output,
        task,
    };
    let (one, all): (Count, Count) = (|_, c| c, |n, c| n * c);
    let mut cases = vec![
        case(
            "all_gather",
            one,
            all,
            Box::new(|w| kernels::all_gather::task(w.x, w.y, w.scratch, w.meet, w.steps)),
        ),
        case(
            "reduce_scatter",
            all,
            one,
            Box::new(|w| kernels::reduce_scatter::task(w.x, w.y, w.scratch, w.meet, w.steps, ReduceOp::Sum)),
        ),
        case(
            "broadcast",
            one,
            one,
            Box::new(|w| kernels::broadcast::task(w.x, w.y, w.scratch, w.meet, w.steps, Rank(1))),
        ),
        case(
            "reduce",
            one,
            one,
            Box::new(|w| kernels::reduce::task(w.x, w.y, w.scratch, w.meet, w.steps, ReduceOp::Sum, Rank(1))),
        ),
        case(
            "gather",
            one,
            all,
            Box::new(|w| kernels::gather::task(w.x, w.y, w.scratch, w.meet, w.steps, Rank(1))),
        ),
        case(
            "scatter",
            all,
            one,
            Box::new(|w| kernels::scatter::task(w.x, w.y, w.scratch, w.meet, w.steps, Rank(1))),
        ),
        case(
            "all_to_all",
            all,
            all,
            Box::new(|w| kernels::all_to_all::task(w.x, w.y, w.scratch, w.meet, w.steps)),
        ),
    ];
    // Packets are the communicator's.
    for algorithm in ringwork_collectives::all_reduce::BY_TEAM
        .into_iter()
        .filter(|algorithm| *algorithm != Algorithm::Packet)
    {
        for op in [ReduceOp::Sum, ReduceOp::Max] {
            cases.push(case(
                &format!("all_reduce {algorithm} {op}"),
                one,
                one,
                Box::new(move |w| {
                    kernels::all_reduce::task(w.x, w.y, w.scratch, w.meet, w.steps, op, algorithm)
                }),
            ));
        }
    }
    cases
}

/// Values whose sum depends on the order and on every rounding.
fn value(rank: usize, i: usize) -> f32 {
    let mixed = u32::try_from(rank * 7919 + i)
        .unwrap()
        .wrapping_mul(2_654_435_761);
    f32::from_bits(0x3f00_0000 | mixed >> 9) * [1.0, 1e-3, -1e4][(mixed >> 5) as usize % 3]
}

/// The bits of every rank's output of every collective.
fn run(platform: Platform, ranks: u32, count: usize) -> Vec<(String, Vec<Vec<u32>>)> {
    let node = Node::builder()
        .devices(0..ranks)
        .platform(platform)
        .launch()
        .unwrap();
    let (chips, n) = (node.devices(), ranks as usize);
    let spec = DomainSpec::new("all", chips.clone())
        // Small, so that everything moves in several chunks.
        .buffer::<f32>("scratch", 2 * n.max(64))
        .barrier("meet")
        .signals("steps", Team::STEP_CELLS);
    let domain = node.open_domain(&spec).unwrap();
    let (scratch, meet, steps) = (
        domain.buffer::<f32>("scratch").unwrap(),
        domain.barrier("meet").unwrap(),
        domain.signals("steps").unwrap(),
    );
    let mut results = Vec::new();
    for case in cases() {
        let (mut x, mut y) = (Vec::new(), Vec::new());
        for (rank, chip) in chips.iter().enumerate() {
            let values: Vec<f32> = (0..(case.input)(n, count)).map(|i| value(rank, i)).collect();
            x.push(node.tensor(*chip, &values).unwrap());
            y.push(node.zeros::<f32>(*chip, (case.output)(n, count)).unwrap());
        }
        node.run(|orch| {
            orch.group(chips.iter().copied(), |chip| {
                Ok((case.task)(&With {
                    x: &x[chip.0 as usize],
                    y: &y[chip.0 as usize],
                    scratch: &scratch,
                    meet: &meet,
                    steps: &steps,
                }))
            })
        })
        .unwrap();
        let bits = |y: &Tensor<f32>| y.read().unwrap().into_iter().map(f32::to_bits).collect();
        results.push((case.name, y.iter().map(bits).collect()));
    }
    results
}

fn same_bits(ranks: u32, count: usize, topologies: &[&str]) {
    let native = run(Platform::Native, ranks, count);
    assert_eq!(native.len(), 7 + 2 * 4);
    for topology in topologies {
        let machine = Topology::preset(topology)
            .or_else(|_| Topology::from_yaml("test", topology))
            .unwrap();
        let simulated = run(Platform::Sim(Simulation::new(machine)), ranks, count);
        for (native, simulated) in native.iter().zip(&simulated) {
            assert!(
                native == simulated,
                "{} over {ranks} ranks on {topology}: {native:?} and {simulated:?}",
                native.0
            );
        }
    }
}

#[test]
fn two_ranks() {
    same_bits(
        2,
        101,
        &["ring-2", "line-2", "full-2", "switch-2", "h100x8", "sip6-torus"],
    );
}

#[test]
fn five_ranks() {
    let degraded = "network: {kind: ring, size: 6, bandwidth: 1 GB/s, latency: 3 us}\n\
                    stragglers: [{rank: 2, speed: 0.1}]\nfaults: [{from: 0, to: 1, failed: true}]\n\
                    chip: {memory: {name: hbm, capacity: 1 GB, bandwidth: 10 GB/s, latency: 90 ns}, vector: 1 GB/s}";
    same_bits(
        5,
        77,
        &["ring-5", "line-5", "full-7", "v100x8", "nodes-3x2", degraded],
    );
}

#[test]
fn eight_ranks() {
    same_bits(
        8,
        64,
        &[
            "ring-8",
            "mesh-2x4",
            "mesh-2x2x2",
            "torus-4x2",
            "torus-2x2x2",
            "fat-tree-4x2",
            "nodes-2x4",
            "ascend-a3-pod",
        ],
    );
}

#[test]
fn sixteen_ranks() {
    same_bits(16, 37, &["torus-4x4", "tpu-v5e-16x16", "switch-16", "sip6-torus"]);
}

/// Every kind of network that holds so many ranks. Sides are as even as they can be; some machines are larger.
fn every_kind(ranks: u32) -> Vec<String> {
    let side = |n: u32| {
        (1..=n)
            .rfind(|side| n.is_multiple_of(*side) && side * side <= n)
            .unwrap()
    };
    let (rows, columns) = (side(ranks), ranks / side(ranks));
    let (deep, flat) = (side(columns), columns / side(columns));
    let few = ranks / 3 + 2;
    let wire = "bandwidth: 50 GB/s, latency: 500 ns";
    let inside = |n: u32| format!("{{kind: ring, size: {n}, {wire}}}");
    let groups = format!(
        "network: {{kind: groups, groups: [{}, {}, {}], between: {{kind: full, {wire}}}}}",
        inside(few),
        inside(2),
        inside(ranks - few + 3)
    );
    // A ring, and a chord from every third chip to the one opposite.
    let near = (0..ranks.max(3)).map(|at| (at, (at + 1) % ranks.max(3)));
    let far = (0..ranks / 2).step_by(3).map(|at| (at, at + ranks / 2));
    let far = far.filter(|(from, to)| to - from > 1 && to - from + 1 < ranks);
    let links: Vec<_> = near
        .chain(far)
        .map(|(from, to)| format!("{{from: {from}, to: {to}}}"))
        .collect();
    let links = format!(
        "network: {{kind: links, chips: {}, {wire}, links: [{}]}}",
        ranks.max(3),
        links.join(", ")
    );
    let one_way = format!("network: {{kind: ring, size: {ranks}, {wire}, direction: one-way}}");
    let blocking = format!("network: {{kind: switch, size: {ranks}, {wire}, blocking: 60 GB/s}}");
    vec![
        format!("ring-{ranks}"),
        format!("line-{ranks}"),
        format!("mesh-{rows}x{columns}"),
        format!("mesh-{rows}x{deep}x{flat}"),
        format!("torus-{rows}x{columns}"),
        format!("torus-{rows}x{deep}x{flat}"),
        format!("full-{ranks}"),
        format!("switch-{ranks}"),
        format!("fat-tree-{columns}x{rows}"),
        format!("nodes-{rows}x{columns}"),
        "sip6-torus".into(),
        "ascend-a3-pod".into(),
        "tpu-v5e-16x16".into(),
        groups,
        links,
        one_way,
        blocking,
    ]
}

#[test]
fn sixty_four_ranks() {
    same_bits(64, 19, &["torus-4x4x4", "sip6-torus"]);
}

#[test]
#[ignore = "takes minutes; run it with `--run-ignored all` (nextest) or `--ignored`"]
fn every_kind_of_network_up_to_sixty_four_ranks() {
    for ranks in [2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64] {
        let kinds = every_kind(ranks);
        let kinds: Vec<&str> = kinds.iter().map(String::as_str).collect();
        same_bits(ranks, 19, &kinds);
    }
}
