//! `SimCore` passes the suite that every core must pass.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use ringwork_conformance::{DATA_BYTES, Machine, SIGNALS, Seat};
use ringwork_isa::{Rank, Result, Segment};
use ringwork_layout::Layout;
use ringwork_sim::{Options, SegmentSpec, SimCore, SimError, Topology};

/// A switch with as many chips as the domain has ranks, whose instructions all take time.
struct Simulated {
    machine: ringwork_sim::Machine,
    layout: Layout,
}

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
        let layout = Layout::packed(Segment(3), ranks, SIGNALS, DATA_BYTES);
        machine
            .define(SegmentSpec {
                segment: layout.segment,
                members: (0..ranks).collect(),
                bytes: layout.bytes(),
                memory: 0,
            })
            .unwrap();
        Simulated { machine, layout }
    }

    fn layout(&self) -> Layout {
        self.layout
    }

    fn run<K>(&self, kernel: K) -> Vec<Result<()>>
    where
        K: AsyncFn(&SimCore, Seat) -> Result<()> + Clone + Send + Sync + 'static,
    {
        let layout = self.layout;
        let start = |rank: u32| {
            let kernel = kernel.clone();
            let me = Rank(rank);
            let seat = Seat { me, layout };
            let run = move |core: SimCore| async move { kernel(&core, seat).await };
            self.machine.spawn(rank, "test", run).unwrap()
        };
        let tasks: Vec<_> = (0..layout.ranks).map(start).collect();
        // The outcome of each task says more than the first error of the run.
        if let Err(error) = self.machine.run() {
            assert!(matches!(error, SimError::Failed { .. }), "{error}");
        }
        let outcome = |task| self.machine.outcome(task).unwrap().result;
        tasks.into_iter().map(outcome).collect()
    }

    fn alarm(&self, _: Option<Rank>, _: &str) {
        unreachable!("nobody can die here");
    }
}

ringwork_conformance::suite!(Simulated, simulated);
ringwork_conformance::suite!(Simulated, stepping);
