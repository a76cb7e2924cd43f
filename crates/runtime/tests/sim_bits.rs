//! Every algorithm of the catalogue, on every kind of network and under the checker: the bits are those of the native run of
//! the same task.
//!
//! A few kinds of network for 1 to 16 ranks, and two for 64. Every kind, for eleven numbers of ranks up to 64, is
//! a test that is ignored unless asked for.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

extern crate ringwork_native as ringwork;

use ringwork_collectives::catalogue::{CATALOGUE, Entry, Needs};
use ringwork_isa::{Arg, Argument, Collective, In, Out, Rank, ReduceOp, Task};
use ringwork_kernels as kernels;
use ringwork_runtime::{
    Checking, DomainSpec, Node, Part, Platform, Simulation, TeamHandle, TeamSpec, Tensor,
};
use ringwork_sim::Topology;

/// A rank's input or output.
enum Memory {
    Own(Tensor<f32>),
    Window(Part<f32>),
}

impl Argument<In<f32>> for Memory {
    fn to_arg(&self) -> Arg {
        match self {
            Memory::Own(tensor) => Argument::<In<f32>>::to_arg(tensor),
            Memory::Window(part) => Argument::<In<f32>>::to_arg(part),
        }
    }
}

impl Argument<Out<f32>> for Memory {
    fn to_arg(&self) -> Arg {
        match self {
            Memory::Own(tensor) => Argument::<Out<f32>>::to_arg(tensor),
            Memory::Window(part) => Argument::<Out<f32>>::to_arg(part),
        }
    }
}

/// A call of a collective by one of its algorithms.
struct Case {
    entry: &'static Entry,
    op: ReduceOp,
}

impl Case {
    fn name(&self) -> String {
        format!("{} {} {}", self.entry.collective, self.entry.algorithm, self.op)
    }

    fn task(&self, x: &Memory, y: &Memory, team: &TeamHandle, root: Rank) -> Task {
        let (op, algorithm) = (self.op, self.entry.algorithm);
        match self.entry.collective {
            Collective::AllReduce => kernels::all_reduce::task(x, y, team, op, algorithm),
            Collective::AllGather => kernels::all_gather::task(x, y, team, algorithm),
            Collective::ReduceScatter => kernels::reduce_scatter::task(x, y, team, op, algorithm),
            Collective::Broadcast => kernels::broadcast::task(x, y, team, root, algorithm),
            Collective::Reduce => kernels::reduce::task(x, y, team, op, root, algorithm),
            Collective::AllToAll => kernels::all_to_all::task(x, y, team, algorithm),
            Collective::Gather => kernels::gather::task(x, y, team, root, algorithm),
            Collective::Scatter => kernels::scatter::task(x, y, team, root, algorithm),
            other => kernels::collective::task(x, y, team, other, op, root, algorithm),
        }
    }
}

/// Every algorithm of the catalogue that moves data and is for so many ranks in such a grid.
fn cases(ranks: u32, grid: &[u32]) -> Vec<Case> {
    let entries = CATALOGUE
        .iter()
        .filter(|entry| entry.collective != Collective::Barrier && entry.fits(ranks, Some(grid)).is_ok());
    let mut cases = Vec::new();
    for entry in entries {
        let ops: &[ReduceOp] = match entry.collective {
            Collective::AllReduce => &[ReduceOp::Sum, ReduceOp::Max],
            _ => &[ReduceOp::Sum],
        };
        cases.extend(ops.iter().map(|op| Case { entry, op: *op }));
    }
    cases
}

/// The same grid on every machine: algorithms for grids are right on any, if not fast.
fn grid(ranks: u32) -> Vec<u32> {
    let rows = (1..=ranks).rfind(|rows| rows * rows <= ranks && ranks.is_multiple_of(*rows));
    vec![ranks / rows.unwrap(), rows.unwrap()]
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
    let cases = cases(ranks, &grid(ranks));
    cases
        .iter()
        .map(|case| (case.name(), run_case(&node, case, count)))
        .collect()
}

fn run_case(node: &Node, case: &Case, count: usize) -> Vec<Vec<u32>> {
    let (entry, chips) = (case.entry, node.devices());
    let n = chips.len();
    // The size of some is that of all ranks' parts together.
    let size = if entry.collective.has_parts() {
        count * n
    } else {
        count
    };
    let counts = entry.collective.counts(size, n);
    let (input, output) = (counts.send, counts.recv);
    let in_window = entry.needs == Needs::Window;
    // Scratch for a part only, so that everything moves in several pieces.
    let team = TeamSpec::new(ringwork_isa::Dtype::F32, 64)
        .algorithm(entry)
        .grid(grid(u32::try_from(n).unwrap()));
    let mut spec = DomainSpec::new("all", chips.clone()).team_by("team", team);
    if in_window {
        spec = spec.buffer::<f32>("x", input).buffer::<f32>("y", output);
    }
    let domain = node.open_domain(&spec).unwrap();
    let team = domain.team("team").unwrap();
    let output_buffer = if entry.is_in_place() { "x" } else { "y" };
    let (mut x, mut y) = (Vec::new(), Vec::new());
    for (rank, chip) in chips.iter().enumerate() {
        let values: Vec<f32> = (0..input).map(|i| value(rank, i)).collect();
        if in_window {
            let rank = Rank(u32::try_from(rank).unwrap());
            let part = |name| domain.buffer::<f32>(name).unwrap().on(rank).unwrap();
            part("x").write(&values).unwrap();
            x.push(Memory::Window(part("x")));
            y.push(Memory::Window(part(output_buffer)));
        } else {
            x.push(Memory::Own(node.tensor(*chip, &values).unwrap()));
            y.push(Memory::Own(node.zeros::<f32>(*chip, output).unwrap()));
        }
    }
    let last = Rank(u32::try_from(n - 1).unwrap());
    node.run(|orch| {
        orch.group(chips.iter().copied(), |chip| {
            let rank = chip.0 as usize;
            Ok(case.task(&x[rank], &y[rank], &team, last))
        })
    })
    .unwrap_or_else(|error| panic!("{}: {error}", case.name()));
    let read = |y: &Memory| match y {
        Memory::Own(tensor) => tensor.read().unwrap(),
        Memory::Window(part) => part.read().unwrap(),
    };
    y.iter()
        .map(|y| read(y).into_iter().map(f32::to_bits).collect())
        .collect()
}

/// The checker takes its time for more.
const MOST_CHECKED: u32 = 8;

fn same_bits(ranks: u32, count: usize, topologies: &[&str]) {
    let native = run(Platform::Native, ranks, count);
    assert!(native.len() > 20, "only {} cases", native.len());
    if ranks <= MOST_CHECKED {
        let checked = run(Platform::Check(Checking::new()), ranks, count);
        for (native, checked) in native.iter().zip(&checked) {
            assert!(native == checked, "{} over {ranks} ranks, checked", native.0);
        }
    }
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
fn one_rank() {
    same_bits(1, 33, &["ring-2", "h100x8"]);
}

#[test]
fn three_ranks() {
    same_bits(3, 50, &["ring-3", "switch-4"]);
}

#[test]
fn four_ranks() {
    same_bits(4, 129, &["ring-4", "mesh-2x2", "h100x8"]);
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
