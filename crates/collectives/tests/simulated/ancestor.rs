//! The ancestor's all-reduce on its own machine: data, and the times that it published.

use super::domain::{Spec, run};
use ringwork_collectives::network::centre;
use ringwork_isa::{Collective, Queues, ReduceOp};
use ringwork_sim::Topology;

/// Columns and rows of cubes, columns and rows of SIPs.
const GRID: [u32; 4] = [4, 4, 3, 2];
const PES: u32 = 8;
const PORTS: u32 = 8;
const HBM: usize = 0;
const SRAM: usize = 1;
const TCM: usize = 2;

/// Nanoseconds for this many bytes per PE: the first PE of each cube, its data in TCM.
fn nanoseconds(bytes: usize, slots: usize, timing_only: bool) -> f64 {
    let topology = Topology::preset("sip6-torus").unwrap();
    let members: Vec<u32> = (0..96).map(|cube| cube * PES).collect();
    let count = bytes / 4;
    let spec = Spec {
        collective: Collective::AllReduce,
        root: 0,
        count,
        slots: count * PORTS as usize,
        cells: Queues::cells(PORTS, 1),
        memories: (TCM, slots),
    };
    let ps = run::<f32, _, _>(&topology, &members, spec, timing_only, |core, m| async move {
        let queues = Queues::new(m.slots.erase(), m.cells, PORTS, 1)?;
        centre(&core, queues, &GRID, m.x.into(), m.y.into(), ReduceOp::Sum).await
    });
    ps as f64 / 1000.0
}

#[test]
fn published_times_are_within_one_percent() {
    let published = [
        (256, TCM, 1678.04),
        (2048, TCM, 1957.04),
        (65_536, TCM, 12_001.04),
        (2048, SRAM, 2389.04),
        (65_536, SRAM, 24_337.04),
    ];
    for (bytes, memory, wanted) in published {
        let got = nanoseconds(bytes, memory, true);
        let off = got / wanted - 1.0;
        assert!(
            off.abs() < 0.01,
            "{bytes} B, memory {memory}: {got} ns, published {wanted}"
        );
    }
}

#[test]
fn times_are_linear_in_the_bytes_and_ordered_by_the_slots_memory() {
    for memory in [TCM, SRAM, HBM] {
        let [a, b, c] = [2048, 4096, 8192].map(|bytes| nanoseconds(bytes, memory, true));
        assert!(
            ((c - b) - 2.0 * (b - a)).abs() < 0.1,
            "memory {memory}: {a} {b} {c}"
        );
    }
    let [tcm, sram] = [TCM, SRAM].map(|memory| nanoseconds(4096, memory, true));
    assert!(tcm < sram);
}

#[test]
fn every_member_has_the_sum() {
    assert_eq!(nanoseconds(256, TCM, false), nanoseconds(256, TCM, true));
}
