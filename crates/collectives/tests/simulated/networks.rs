//! Every network algorithm: its sums on grids of many sizes, and its time where there is a closed form.

use super::domain::{Spec, run};
use ringwork_collectives::Algorithm;
use ringwork_collectives::catalogue::{self, Call, Needs, Resources};
use ringwork_collectives::network::ports;
use ringwork_isa::{Collective, Element, Queues, Rank, ReduceOp};
use ringwork_sim::{Topology, lower_bound};

/// The all-reduces that go by messages.
fn by_queues() -> impl Iterator<Item = Algorithm> {
    let all = catalogue::of(Collective::AllReduce);
    all.filter(|entry| entry.needs == Needs::Queues)
        .map(|entry| entry.algorithm)
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

/// Picoseconds of an all-reduce of `count` elements with slots of `slot` elements, `depth` to a queue.
fn time<T: Element>(
    topology: &Topology,
    sizes: &'static [u32],
    algorithm: Algorithm,
    (count, slot, depth): (usize, usize, u32),
    timing_only: bool,
) -> u64 {
    let ports = ports(algorithm, sizes);
    let spec = Spec {
        count,
        slots: slot * ports as usize * depth as usize,
        cells: Queues::cells(ports, depth),
        memories: (0, 0),
    };
    let members: Vec<u32> = (0..sizes.iter().product()).collect();
    run::<T, _, _>(topology, &members, spec, timing_only, |core, m| async move {
        let queues = Queues::new(m.slots.erase(), m.cells, ports, depth)?;
        let call = Call {
            x: m.x.into(),
            y: m.y.into(),
            op: ReduceOp::Sum,
            root: Rank(0),
            workers: 1,
            grid: sizes,
        };
        let entry = catalogue::find(Collective::AllReduce, algorithm).unwrap();
        catalogue::run(&core, entry, Resources::Queues(queues), call).await
    })
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
fn every_algorithm_leaves_the_sum_on_every_member_of_every_grid() {
    for sizes in GRIDS {
        let ranks: u32 = sizes.iter().product();
        let topology = machine(&format!("kind: full, size: {}", ranks.max(2)));
        for algorithm in by_queues() {
            // Slots smaller than the data, so that it goes in pieces; a queue of one slot as well.
            for shape in [
                (0, 4, 2),
                (1, 4, 2),
                (23, 5, 2),
                (64, 64, 1),
                (97, 3, 4),
                (40, 1, 1),
            ] {
                time::<i32>(&topology, sizes, algorithm, shape, false);
                time::<f32>(&topology, sizes, algorithm, shape, false);
            }
        }
    }
}

#[test]
fn direct_on_a_full_mesh_takes_two_steps() {
    let s = 64_000u64;
    let t = time::<u8>(
        &machine("kind: full, size: 8"),
        &[8],
        Algorithm::Direct,
        (64_000, 64_000, 2),
        true,
    );
    assert_eq!(t, 2 * (A + s / 8 * B) + 7 * s / 8 * G);
}

#[test]
fn halving_doubling_takes_its_closed_form() {
    let s = 64_000u64;
    let full = machine("kind: full, size: 8");
    let t = time::<u8>(&full, &[8], Algorithm::HalvingDoubling, (64_000, 64_000, 2), true);
    assert_eq!(t, 2 * 3 * A + 2 * 7 * s / 8 * B + 7 * s / 8 * G);
}

#[test]
fn a_torus_dimension_by_dimension_and_with_all_ports_busy() {
    let s = 38_400u64;
    let text = format!("network: {{kind: torus, dims: [4, 4, 4], {WIRE}}}");
    let torus = Topology::from_yaml("test", &text).unwrap();
    let time = |algorithm| time::<u8>(&torus, &[4, 4, 4], algorithm, (38_400, 38_400, 2), true);
    assert_eq!(time(Algorithm::Hierarchical), 2 * 9 * A + 2 * 63 * s / 64 * B);
    assert_eq!(time(Algorithm::Torus), 2 * 9 * A + 2 * 63 * s / 64 * B / 6);
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
    let t = time::<u8>(
        &nodes,
        &[4, 3],
        Algorithm::Hierarchical,
        (120_000, 120_000, 2),
        true,
    );
    let (inside, between) = (
        2 * 3 * A + 2 * 3 * s / 4 * B,
        2 * 2 * 4 * A + 2 * 2 * (s / 4) / 3 * 2 * B,
    );
    assert_eq!(t, inside + between);
}

#[test]
fn a_double_tree_is_deep_as_a_tree_and_its_pieces_follow_each_other() {
    let full = machine("kind: full, size: 16");
    let time = |bytes, slot| time::<u8>(&full, &[16], Algorithm::DoubleTree, (bytes, slot, 8), true);
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
    for (network, sizes) in [
        ("kind: full, size: 8", &[8u32][..]),
        ("kind: torus, dims: [4, 4]", &[4, 4]),
        ("kind: ring, size: 6", &[6]),
        ("kind: switch, size: 8, blocking: no", &[2, 4]),
    ] {
        let topology = machine(network);
        for algorithm in by_queues() {
            for bytes in [64usize, 64_000] {
                let t = time::<u8>(&topology, sizes, algorithm, (bytes, bytes, 4), true);
                let bound = lower_bound(Collective::AllReduce, &topology, topology.ranks(), bytes as u64);
                assert_eq!(
                    bound.check(t, topology.ranks()),
                    Ok(()),
                    "{algorithm} on {network}, {bytes} B"
                );
            }
        }
    }
}
