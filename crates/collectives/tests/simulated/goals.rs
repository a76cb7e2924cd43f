//! What the algorithms over queues must reach on machines that people know: closed forms, and published measurements.
//!
//! Queues are sized as by `ringwork sim`, so these are the times that it prints with `--timing-only`.

use ringwork_collectives::Algorithm;
use ringwork_collectives::catalogue::{self, Call};
use ringwork_collectives::domain::Demand;
use ringwork_isa::{Collective, Counts, Dtype, Rank, ReduceOp, Region, Segment};
use ringwork_layout::WindowBuilder;
use ringwork_sim::{Machine, Options, SegmentSpec, Topology};
use std::rc::Rc;

const DATA: Segment = Segment(1);
const RESOURCES: Segment = Segment(2);

/// Microseconds of one call on so many bytes, as nccl-tests count them.
fn us(collective: Collective, machine: &str, algorithm: Algorithm, bytes: usize) -> f64 {
    let topology = Topology::preset(machine).unwrap();
    let ranks = topology.ranks();
    let grid: Rc<[u32]> = topology.grid(ranks).unwrap().into();
    let entry = catalogue::find(collective, algorithm).unwrap();
    let (dtype, elements) = (Dtype::F32, bytes / 4);
    let Counts { send, recv } = collective.counts(elements, ranks as usize);
    let mut window = WindowBuilder::default();
    let (x, y) = (
        window.buffer(dtype, send).unwrap(),
        window.buffer(dtype, recv).unwrap(),
    );
    let data = window.packed(DATA, ranks);
    let mut window = WindowBuilder::default();
    let demand = Demand {
        grid: grid.to_vec(),
        latency_bytes: topology.latency_bytes(),
        ..Demand::new(ranks, dtype, elements)
    };
    let places = demand.declare(entry, &mut window).unwrap();
    let own = window.packed(RESOURCES, ranks);
    let options = Options {
        timing_only: true,
        ..Options::default()
    };
    let machine = Machine::new(&topology, options);
    for layout in [data, own] {
        let segment = SegmentSpec {
            segment: layout.segment,
            members: (0..ranks).collect(),
            bytes: layout.bytes(),
            memory: 0,
        };
        machine.define(segment).unwrap();
    }
    let mut tasks = Vec::new();
    for me in (0..ranks).map(Rank) {
        let resources = places.bind(&own, me).unwrap();
        let (x, y) = (data.span(me, x), data.span(me, y));
        let grid = Rc::clone(&grid);
        let kernel = |core| async move {
            let call = Call {
                x: Region::of_span(x),
                y: Region::of_span(y),
                op: ReduceOp::Sum,
                root: Rank(0),
                workers: ranks,
                grid: &grid,
                by_side: &[],
            };
            catalogue::run(&core, entry, resources, call).await
        };
        tasks.push(machine.spawn(me.0, "call", kernel).unwrap());
    }
    machine.run().unwrap();
    let ends = tasks
        .into_iter()
        .map(|task| machine.outcome(task).unwrap().end_ps);
    ends.max().unwrap() as f64 / 1e6
}

/// That a time is at most so much.
fn at_most(limit: f64, got: f64) {
    assert!(got <= limit, "{got:.2} us, and at most {limit:.2} were expected");
}

/// Presets such as `ring-8`: 50 GB/s and 500 ns a link.
const GB_S: f64 = 50.0;
const LATENCY: f64 = 0.5;
const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// Microseconds of so many bytes on a link of so many GB/s.
fn wire(bytes: usize, gb_s: f64) -> f64 {
    bytes as f64 / gb_s / 1e3
}

#[test]
fn the_ring_of_8_h100_is_within_3_percent_of_what_was_measured() {
    for (bytes, measured) in [(256 * MIB, 1310.0), (1024 * MIB, 5090.0)] {
        let got = us(Collective::AllReduce, "h100x8", Algorithm::Ring, bytes);
        assert!(
            (got / measured - 1.0).abs() < 0.03,
            "{bytes}: {got} and {measured} us"
        );
    }
}

#[test]
fn a_ring_on_a_ring_is_its_closed_form() {
    let closed = 14.0 * (LATENCY + wire(256 * MIB / 8, GB_S));
    let time = |algorithm| us(Collective::AllReduce, "ring-8", algorithm, 256 * MIB);
    at_most(1.1 * closed, time(Algorithm::Ring));
    at_most(1.1 * closed / 2.0, time(Algorithm::BidirectionalRing));
}

#[test]
fn a_broadcast_is_near_a_chain_in_pieces_and_a_scatter_with_all_gather() {
    at_most(
        424.0,
        us(Collective::Broadcast, "line-8", Algorithm::Chain, 16 * MIB),
    );
    let scatter_gather = 2.0 * (LATENCY + wire(16 * MIB / 8, GB_S));
    at_most(
        1.5 * scatter_gather,
        us(
            Collective::Broadcast,
            "full-8",
            Algorithm::ScatterGather,
            16 * MIB,
        ),
    );
}

#[test]
fn a_small_all_gather_behind_a_switch_is_one_exchange() {
    let direct = LATENCY + wire(7 * 4 * KIB, GB_S);
    at_most(
        direct + 4.0 * LATENCY,
        us(Collective::AllGather, "switch-8", Algorithm::Direct, 32 * KIB),
    );
}

#[test]
fn a_double_tree_is_pipelined() {
    let time = |bytes| us(Collective::AllReduce, "h100x8", Algorithm::DoubleTree, bytes);
    at_most(4.0 * time(256 * KIB), time(MIB));
    // The launch, three levels up and down, and twice the data through every link.
    let pipelined = 8.4 + 2.0 * 3.0 * 3.4 + wire(2 * 16 * MIB, 370.0);
    at_most(1.3 * pipelined, time(16 * MIB));
}

#[test]
fn a_ring_over_a_long_edge_does_not_stall() {
    at_most(
        23.1,
        us(Collective::AllReduce, "line-6", Algorithm::Ring, 64 * KIB),
    );
}

#[test]
fn an_all_gather_on_a_mesh_is_at_its_bandwidth() {
    let through_one_port = wire(4 * MIB / 16 * 15, GB_S);
    at_most(
        1.1 * through_one_port,
        us(Collective::AllGather, "mesh-4x4", Algorithm::Torus, 4 * MIB),
    );
}
