//! A collective of the catalogue as a task: the sum over all chips, by an algorithm that you name.

use ringwork::isa::Algorithm;
use ringwork::kernels;
use ringwork::prelude::*;

fn main() -> ringwork::Result<()> {
    const COUNT: usize = 1000;
    let node = Node::builder().devices(0..4).launch()?;
    let chips = node.devices();
    // The memory that the chips share for sums of up to COUNT elements. Longer ones go through it in pieces.
    let tp = node.open_domain(&DomainSpec::new("tp", chips.clone()).team::<f32>("team", COUNT))?;
    let team = tp.team("team")?;
    let x = node.each(|chip| node.tensor(chip, &[chip.0 as f32; COUNT]))?;
    let y = node.each(|chip| node.zeros::<f32>(chip, COUNT))?;
    for algorithm in [Algorithm::OnePhase, Algorithm::TwoPhase, Algorithm::StagedRing] {
        node.run(|orch| {
            orch.group(chips.clone(), |chip| {
                let (x, y) = (&x[chip], &y[chip]);
                Ok(kernels::all_reduce::task(x, y, &team, ReduceOp::Sum, algorithm))
            })
        })?;
        for y in y.values() {
            assert_eq!(y.read()?, [6.0; COUNT]); // 0 + 1 + 2 + 3
        }
    }
    Ok(())
}
