//! Messages between neighbours on a simulated machine: what arrives, and what it takes.
#![allow(clippy::print_stdout, reason = "a program for people prints")]

use ringwork::isa::Queues;
use ringwork::prelude::*;
use ringwork::runtime::{Platform, Simulation};
use ringwork::sim::Topology;

const PORTS: u32 = 2; // east and west
const DEPTH: u32 = 4; // slots in each queue

/// Sends x once around the ring, adding up what comes by: an all-reduce.
#[kernel]
async fn around<C: Core>(
    core: &C,
    x: In<f32>,
    y: Out<f32>,
    slots: Shared<f32>,
    cells: Signals,
) -> Result<()> {
    let (me, ranks) = (slots.me().0, slots.ranks());
    let (left, right) = (Rank((me + ranks - 1) % ranks), Rank((me + 1) % ranks));
    let queues = Queues::new(slots, cells, PORTS, DEPTH)?;
    let (east, west) = (queues.port(0, right, 1)?, queues.port(1, left, 0)?);
    let mut sum = core.load(x).await?;
    let mut passing = sum.clone();
    for _ in 1..ranks {
        core.send(east, &passing).await?;
        passing = core.recv(west, x.len()).await?;
        sum = core.add(&sum, &passing).await?;
    }
    core.store(y, &sum).await
}

fn main() -> ringwork::Result<()> {
    const LEN: usize = 1024;
    let machine = Topology::preset("ring-8").expect("a preset that exists");
    let platform = Platform::Sim(Simulation::new(machine));
    let node = Node::builder().devices(0..8).platform(platform).launch()?;
    let chips = node.devices();
    let spec = DomainSpec::new("ring", chips.clone())
        .buffer::<f32>("slots", (PORTS * DEPTH) as usize * LEN)
        .signals("cells", Queues::cells(PORTS, DEPTH));
    let ring = node.open_domain(&spec)?;
    let (slots, cells) = (ring.buffer("slots")?, ring.signals("cells")?);
    let x = node.each(|chip| node.tensor(chip, &[chip.0 as f32; LEN]))?;
    let y = node.each(|chip| node.zeros::<f32>(chip, LEN))?;
    node.run(|orch| orch.group(chips, |chip| Ok(around::task(&x[chip], &y[chip], &slots, &cells))))?;
    for y in y.values() {
        assert_eq!(y.read()?, [28.0; LEN]); // 0 + 1 + ... + 7
    }
    if let Some(simulated) = node.clock().simulated() {
        println!("{}: {:.1} us", simulated.topology, simulated.now_ps as f64 / 1e6);
    }
    Ok(())
}
