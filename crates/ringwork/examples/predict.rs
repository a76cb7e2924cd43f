//! One program, three platforms: processes of this host, and two machines that are only described.
#![allow(clippy::print_stdout, reason = "a program for people prints")]

use ringwork::isa::Algorithm;
use ringwork::kernels;
use ringwork::prelude::*;
use ringwork::runtime::{Platform, Simulation};
use ringwork::sim::Topology;

/// Sums 4,096 elements over eight chips, and returns the virtual time that it took, if there is one.
fn all_reduce_on(platform: Platform) -> ringwork::Result<Option<u64>> {
    const COUNT: usize = 4096;
    let node = Node::builder().devices(0..8).platform(platform).launch()?;
    let chips = node.devices();
    let domain = node.open_domain(&DomainSpec::new("all", chips.clone()).team::<f32>("team", COUNT))?;
    let team = domain.team("team")?;
    let x = node.each(|chip| node.tensor(chip, &[1.0f32; COUNT]))?;
    let y = node.each(|chip| node.zeros::<f32>(chip, COUNT))?;
    node.run(|orch| {
        orch.group(chips, |chip| {
            let (x, y) = (&x[chip], &y[chip]);
            Ok(kernels::all_reduce::task(
                x,
                y,
                &team,
                ReduceOp::Sum,
                Algorithm::TwoPhase,
            ))
        })
    })?;
    for y in y.values() {
        assert_eq!(y.read()?, [8.0; COUNT]); // the data is computed on every platform
    }
    Ok(node.clock().simulated().map(|simulated| simulated.now_ps))
}

fn main() -> ringwork::Result<()> {
    assert_eq!(all_reduce_on(Platform::Native)?, None); // real time
    for name in ["torus-2x4", "v100x8"] {
        let machine = Topology::preset(name).expect("a preset that exists");
        let ps = all_reduce_on(Platform::Sim(Simulation::new(machine)))?;
        println!("{name}: {:.1} us", ps.unwrap_or(0) as f64 / 1e6);
    }
    Ok(())
}
