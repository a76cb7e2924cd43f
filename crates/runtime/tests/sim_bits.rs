//! Every collective, on every kind of network: the bits are those of the native run of the same algorithm.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

extern crate ringwork_native as ringwork;

use ringwork_collectives::{Algorithm, Team, kernels};
use ringwork_isa::{Rank, ReduceOp, Task};
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
    for algorithm in Algorithm::ALL
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
        .signals("steps", Team::<f32>::STEP_CELLS);
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
