//! Every algorithm over queues: its results on grids of many sizes, and its time where there is a closed form.

use super::domain::{Spec, run};
use ringwork_collectives::Algorithm;
use ringwork_collectives::catalogue::{self, CATALOGUE, Call, Entry, Needs, Resources};
use ringwork_collectives::network::ports;
use ringwork_isa::{Collective, Element, Queues, Rank, ReduceOp};
use ringwork_sim::{Topology, lower_bound};

/// All entries that go over queues.
fn by_queues() -> impl Iterator<Item = &'static Entry> {
    CATALOGUE.iter().filter(|entry| entry.needs == Needs::Queues)
}

/// 10 GB/s: 100 ps per byte; 1 us; 50 ps to add a byte.
const A: u64 = 1_000_000;
const B: u64 = 100;
const G: u64 = 50;
const WIRE: &str = "bandwidth: 10 GB/s, latency: 1 us";

fn machine(network: &str) -> Topology {
    let text = format!("network: {{{network}, {WIRE}}}\nchip: {{vector: 20 GB/s}}\n");
    Topology::from_yaml("test", &text).unwrap()
}

/// What is run, on which grid.
#[derive(Clone, Copy)]
struct Run {
    collective: Collective,
    algorithm: Algorithm,
    grid: &'static [u32],
    by_side: &'static [Algorithm],
    root: u32,
    /// Elements of the call and of a slot, and slots of a queue.
    shape: (usize, usize, u32),
}

impl Run {
    fn new(
        collective: Collective,
        algorithm: Algorithm,
        grid: &'static [u32],
        shape: (usize, usize, u32),
    ) -> Run {
        Run {
            collective,
            algorithm,
            grid,
            by_side: &[],
            root: 0,
            shape,
        }
    }

    /// Picoseconds.
    fn time<T: Element>(self, topology: &Topology, timing_only: bool) -> u64 {
        let (count, slot, depth) = self.shape;
        let entry = catalogue::find(self.collective, self.algorithm).unwrap();
        let ports = ports(entry, self.grid, self.by_side);
        let spec = Spec {
            collective: self.collective,
            root: self.root,
            count,
            slots: slot * ports as usize * depth as usize,
            cells: Queues::cells(ports, depth),
            memories: (0, 0),
        };
        let members: Vec<u32> = (0..self.grid.iter().product()).collect();
        run::<T, _, _>(topology, &members, spec, timing_only, |core, m| async move {
            let queues = Queues::new(m.slots.erase(), m.cells, ports, depth)?;
            let call = Call {
                x: m.x.into(),
                y: m.y.into(),
                op: ReduceOp::Sum,
                root: Rank(self.root),
                workers: 1,
                grid: self.grid,
                by_side: self.by_side,
            };
            catalogue::run(&core, entry, Resources::Queues(queues), call).await
        })
    }

    /// Picoseconds on bytes, in one piece.
    fn bytes(topology: &Topology, call: (Collective, Algorithm), grid: &'static [u32], bytes: usize) -> u64 {
        Run::new(call.0, call.1, grid, (bytes, bytes, 2)).time::<u8>(topology, true)
    }
}

const GRIDS: [&[u32]; 12] = [
    &[1],
    &[2],
    &[3],
    &[5],
    &[8],
    &[2, 2],
    &[3, 2],
    &[1, 4],
    &[4, 3],
    &[3, 2, 2],
    &[2, 2, 2],
    &[13],
];

#[test]
fn every_algorithm_gives_what_its_collective_promises_on_every_grid() {
    for grid in GRIDS {
        let ranks: u32 = grid.iter().product();
        let topology = machine(&format!("kind: full, size: {}", ranks.max(2)));
        for entry in by_queues().filter(|entry| entry.fits(ranks, Some(grid)).is_ok()) {
            // Slots smaller than the data, so that it goes in pieces; a queue of one slot as well.
            for (index, shape) in (0u32..).zip([
                (0, 4, 2),
                (1, 4, 2),
                (23, 5, 2),
                (64, 64, 1),
                (97, 3, 4),
                (40, 1, 1),
                (200, 4, 8),
            ]) {
                let parts = if entry.collective.has_parts() {
                    ranks as usize
                } else {
                    1
                };
                let shape = (shape.0 / parts * parts, shape.1, shape.2);
                let run = Run {
                    root: index % ranks,
                    ..Run::new(entry.collective, entry.algorithm, grid, shape)
                };
                run.time::<i32>(&topology, false);
                run.time::<f32>(&topology, false);
            }
        }
    }
}

#[test]
fn each_side_of_a_grid_may_go_its_own_way() {
    const WAYS: [Algorithm; 3] = [Algorithm::Ring, Algorithm::Direct, Algorithm::HalvingDoubling];
    const PAIRS: [[Algorithm; 2]; 9] = {
        let mut all = [[Algorithm::Ring; 2]; 9];
        let mut i = 0;
        while i < 9 {
            all[i] = [WAYS[i / 3], WAYS[i % 3]];
            i += 1;
        }
        all
    };
    let topology = machine("kind: full, size: 8");
    for by_side in &PAIRS {
        for collective in [
            Collective::AllReduce,
            Collective::AllGather,
            Collective::ReduceScatter,
        ] {
            for algorithm in [Algorithm::Hierarchical, Algorithm::Torus] {
                for shape in [(64, 3, 2), (64, 64, 8)] {
                    let run = Run::new(collective, algorithm, &[4, 2], shape);
                    Run { by_side, ..run }.time::<i32>(&topology, false);
                }
            }
        }
    }
}

#[test]
fn direct_on_a_full_mesh_takes_a_step_each_way() {
    let (s, full) = (64_000u64, machine("kind: full, size: 8"));
    let time = |collective| Run::bytes(&full, (collective, Algorithm::Direct), &[8], 64_000);
    let step = A + s / 8 * B;
    assert_eq!(time(Collective::AllReduce), 2 * step + 7 * s / 8 * G);
    assert_eq!(time(Collective::ReduceScatter), step + 7 * s / 8 * G);
    for collective in [
        Collective::AllGather,
        Collective::AllToAll,
        Collective::Gather,
        Collective::Scatter,
    ] {
        assert_eq!(time(collective), step, "{collective}");
    }
}

#[test]
fn a_ring_takes_its_closed_form_and_half_of_it_both_ways() {
    let (s, n) = (64_000u64, 8);
    let ring = machine("kind: ring, size: 8");
    let time = |collective, algorithm| Run::bytes(&ring, (collective, algorithm), &[8], 64_000);
    for (algorithm, share) in [(Algorithm::Ring, 1), (Algorithm::BidirectionalRing, 2)] {
        let step = A + s / n / share * B;
        // With two lanes a core adds to one after the other, while the other lane's message is on its way.
        let adds = (n - 1) * s / n / share * G * share;
        let gather = (n - 1) * step;
        assert_eq!(time(Collective::AllGather, algorithm), gather, "{algorithm}");
        if share == 1 {
            assert_eq!(time(Collective::ReduceScatter, algorithm), gather + adds);
            assert_eq!(time(Collective::AllReduce, algorithm), 2 * gather + adds);
        }
    }
}

#[test]
fn pieces_of_a_ring_hide_latency_behind_bytes() {
    let text = format!("network: {{kind: ring, size: 8, {WIRE}}}");
    let ring = Topology::from_yaml("test", &text).unwrap();
    // Four pieces under way of 100 us each: the links are never idle, and only the last message waits for its latency.
    let s = 8 * 4 * 1_000_000u64;
    let shape = (8 * 4_000_000, 1_000_000, 8);
    let t = Run::new(Collective::AllReduce, Algorithm::Ring, &[8], shape).time::<u8>(&ring, true);
    assert_eq!(t, 2 * 7 * (s / 8) * B + A);
    // Four pieces of 0.1 us: each step waits for the latency and the first of them, the last step for all.
    let (piece, shape) = (1_000 * B, (8 * 4_000, 1_000, 8));
    let t = Run::new(Collective::AllReduce, Algorithm::Ring, &[8], shape).time::<u8>(&ring, true);
    assert_eq!(t, 2 * 7 * (A + piece) + 3 * piece);
}

#[test]
fn halving_doubling_takes_its_closed_form() {
    let (s, full) = (64_000u64, machine("kind: full, size: 8"));
    let time = |collective| Run::bytes(&full, (collective, Algorithm::HalvingDoubling), &[8], 64_000);
    let (way, adds) = (3 * A + 7 * s / 8 * B, 7 * s / 8 * G);
    assert_eq!(time(Collective::AllReduce), 2 * way + adds);
    assert_eq!(time(Collective::ReduceScatter), way + adds);
    assert_eq!(time(Collective::AllGather), way);
}

#[test]
fn a_torus_side_by_side_and_with_all_ports_busy() {
    let s = 38_400u64;
    let text = format!("network: {{kind: torus, dims: [4, 4, 4], {WIRE}}}");
    let torus = Topology::from_yaml("test", &text).unwrap();
    let time = |collective, algorithm| Run::bytes(&torus, (collective, algorithm), &[4, 4, 4], 38_400);
    for (collective, ways) in [
        (Collective::AllReduce, 2),
        (Collective::AllGather, 1),
        (Collective::ReduceScatter, 1),
    ] {
        let (latency, bytes) = (ways * 9 * A, ways * 63 * s / 64 * B);
        assert_eq!(time(collective, Algorithm::Hierarchical), latency + bytes);
        assert_eq!(time(collective, Algorithm::Torus), latency + bytes / 6);
    }
}

#[test]
fn inside_then_between_takes_its_closed_form() {
    let nodes = Topology::from_yaml(
        "test",
        "levels:
  - {name: between, kind: ring, size: 3, bandwidth: 5 GB/s, latency: 4 us}
  - {name: inside, kind: ring, size: 4, bandwidth: 10 GB/s, latency: 1 us}
",
    )
    .unwrap();
    let s = 120_000u64;
    let t = Run::bytes(
        &nodes,
        (Collective::AllReduce, Algorithm::Hierarchical),
        &[4, 3],
        120_000,
    );
    let (inside, between) = (
        2 * 3 * A + 2 * 3 * s / 4 * B,
        2 * 2 * 4 * A + 2 * 2 * (s / 4) / 3 * 2 * B,
    );
    assert_eq!(t, inside + between);
}

#[test]
fn each_side_goes_its_own_way_in_its_own_time() {
    // Everybody with everybody inside, partners between: 4 x 8 ranks, each pair with a link of its own.
    let full = Topology::from_yaml("test", &format!("network: {{kind: full, size: 32, {WIRE}}}")).unwrap();
    let s = 64_000u64;
    let run = Run {
        by_side: &[Algorithm::Direct, Algorithm::HalvingDoubling],
        ..Run::new(
            Collective::AllReduce,
            Algorithm::Hierarchical,
            &[4, 8],
            (64_000, 64_000, 2),
        )
    };
    let inside = A + s / 4 * B;
    let between = 3 * A + (s / 4) * 7 / 8 * B;
    assert_eq!(run.time::<u8>(&full, true), 2 * (inside + between));
}

#[test]
fn all_to_all_pair_by_pair_and_side_by_side() {
    let (s, full) = (64_000u64, machine("kind: full, size: 8"));
    // In each of n exchanges, one or two members pause; nobody has to wait for more than its partner.
    let pairs = Run::bytes(&full, (Collective::AllToAll, Algorithm::Pairwise), &[8], 64_000);
    assert_eq!(pairs, 8 * (A + s / 8 * B));
    // Half of the data to the member next to me, then a quarter to each of those in the other side.
    let sides = Run::bytes(
        &full,
        (Collective::AllToAll, Algorithm::Hierarchical),
        &[2, 4],
        64_000,
    );
    assert_eq!(sides, 2 * A + (s / 2 + s / 4) * B);
}

#[test]
fn broadcast_and_reduce_take_their_closed_forms() {
    let (s, full) = (64_000u64, machine("kind: full, size: 8"));
    let time = |collective, algorithm| Run::bytes(&full, (collective, algorithm), &[8], 64_000);
    let (all, part) = (A + s * B, A + s / 8 * B);
    for (algorithm, broadcast, adds) in [
        (Algorithm::Tree, 3 * all, 3 * s * G),
        (Algorithm::Chain, 7 * all, 7 * s * G),
        (Algorithm::ScatterGather, 2 * part, 7 * s / 8 * G),
    ] {
        assert_eq!(
            time(Collective::Reduce, algorithm),
            broadcast + adds,
            "{algorithm}"
        );
        if algorithm != Algorithm::ScatterGather {
            assert_eq!(time(Collective::Broadcast, algorithm), broadcast, "{algorithm}");
        }
    }
    // The root's links carry two parts, one after the other, the others wait for one from a neighbour.
    assert_eq!(time(Collective::Broadcast, Algorithm::ScatterGather), 2 * part);
    for collective in [Collective::Gather, Collective::Scatter] {
        let t = time(collective, Algorithm::Tree);
        assert_eq!(t, 3 * A + 7 * s / 8 * B, "{collective}");
    }
}

#[test]
fn a_chain_in_pieces_takes_its_closed_form() {
    let line = Topology::from_yaml("test", &format!("network: {{kind: line, size: 8, {WIRE}}}")).unwrap();
    for (pieces, each) in [(4, 64_000), (10, 64_000), (40, 16_000)] {
        let run = |collective| Run::new(collective, Algorithm::Chain, &[8], (pieces * each, each, 8));
        let t = run(Collective::Broadcast).time::<u8>(&line, true);
        let piece = each as u64 * B;
        assert_eq!(t, 7 * A + (8 - 2 + pieces as u64) * piece);
        assert_eq!(run(Collective::Reduce).time::<u8>(&line, true), t);
    }
}

#[test]
fn a_double_tree_is_deep_as_a_tree_and_its_pieces_follow_each_other() {
    let full = machine("kind: full, size: 16");
    let time = |bytes, slot| {
        let shape = (bytes, slot, 8);
        Run::new(Collective::AllReduce, Algorithm::DoubleTree, &[16], shape).time::<u8>(&full, true)
    };
    // One byte for each tree: up and down at most five levels, two children after each other at each.
    let small = time(2, 1);
    assert!(
        (2 * 4 * A..=2 * 5 * (A + 2 * B + 2 * G)).contains(&small),
        "{small}"
    );
    // Large data: in one piece every level takes all of it; in many, they overlap.
    let bytes = 4_000_000;
    let (whole, pieces) = (time(bytes, bytes / 2), time(bytes, bytes / 200));
    assert!(pieces * 2 < whole, "{pieces} {whole}");
}

#[test]
fn no_algorithm_beats_the_lower_bound() {
    for (network, grid) in [
        ("kind: full, size: 8", &[8u32][..]),
        ("kind: torus, dims: [4, 4]", &[4, 4]),
        ("kind: ring, size: 6", &[6]),
        ("kind: switch, size: 8, blocking: no", &[2, 4]),
    ] {
        let topology = machine(network);
        for entry in by_queues().filter(|entry| entry.fits(topology.ranks(), Some(grid)).is_ok()) {
            for (bytes, pieces) in [(64, 1), (96_000, 1), (96_000, 7)] {
                let bytes = entry
                    .collective
                    .whole(bytes, 1, topology.ranks() as usize)
                    .unwrap();
                let run = Run::new(
                    entry.collective,
                    entry.algorithm,
                    grid,
                    (bytes, bytes / pieces, 4),
                );
                let t = run.time::<u8>(&topology, true);
                let bound = lower_bound(entry.collective, &topology, topology.ranks(), bytes as u64);
                assert_eq!(
                    bound.check(t, topology.ranks()),
                    Ok(()),
                    "{entry:?} on {network}, {bytes} B"
                );
            }
        }
    }
}
