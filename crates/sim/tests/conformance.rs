//! `SimCore` passes the suite that every core must pass.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use ringwork_conformance::{DATA_BYTES, Machine, SIGNALS, Seat, Windows};
use ringwork_isa::{Rank, Result, SIGNAL_STRIDE_BYTES, Segment};
use ringwork_sim::{Options, SegmentSpec, SimCore, Topology};

/// A switch with as many chips as the domain has ranks, whose instructions all take time.
struct Simulated {
    machine: ringwork_sim::Machine,
    windows: Windows,
    ranks: u32,
}

const HEAD: u64 = SIGNALS as u64 * SIGNAL_STRIDE_BYTES;

impl Machine for Simulated {
    type Core = SimCore;

    fn new(ranks: u32) -> Simulated {
        let chip = "{memory: {bandwidth: 100 GB/s, latency: 10 ns}, dma: {engines: 2, queue: 2}, vector: 100 GB/s, matrix: 1 Tflop/s, signal: 16 B}";
        let size = ranks.max(2);
        let topology = format!(
            "network: {{kind: switch, size: {size}, bandwidth: 10 GB/s, latency: 1 us, blocking: no}}\nchip: {chip}\n"
        );
        let topology = Topology::from_yaml("test", &topology).unwrap();
        let machine = ringwork_sim::Machine::new(&topology, Options::default());
        let stride = HEAD + DATA_BYTES;
        machine
            .define(SegmentSpec {
                segment: Segment(3),
                members: (0..ranks).collect(),
                bytes: stride * u64::from(ranks),
                memory: 0,
            })
            .unwrap();
        let windows = Windows {
            segment: Segment(3),
            stride,
            signals_base: 0,
            data_base: HEAD,
        };
        Simulated {
            machine,
            windows,
            ranks,
        }
    }

    fn windows(&self) -> Windows {
        self.windows
    }

    fn run<K>(&self, kernel: K) -> Vec<Result<()>>
    where
        K: AsyncFn(&SimCore, Seat) -> Result<()> + Clone + Send + Sync + 'static,
    {
        let (ranks, windows) = (self.ranks, self.windows);
        let start = |rank: u32| {
            let kernel = kernel.clone();
            let seat = Seat {
                me: Rank(rank),
                ranks,
                windows,
            };
            let run = move |core: SimCore| async move { kernel(&core, seat).await };
            self.machine.spawn(rank, "test", run).unwrap()
        };
        let tasks: Vec<_> = (0..ranks).map(start).collect();
        self.machine.run().unwrap();
        let outcome = |task| self.machine.outcome(task).unwrap().result;
        tasks.into_iter().map(outcome).collect()
    }

    fn alarm(&self, _: Option<Rank>, _: &str) {
        unreachable!("nobody can die here");
    }
}

ringwork_conformance::suite!(Simulated, simulated);
