//! A tensor-parallel layer in one kernel: each chip multiplies its part of the weight, then the chips add their products.

use ringwork::collectives::{Algorithm, Team, all_reduce};
use ringwork::prelude::*;

const TOKENS: usize = 2;
const INPUTS: usize = 8;
const OUTPUTS: usize = 3;

/// y = x * weight, summed over the chips; each has some columns of x and the same rows of the weight.
#[kernel]
async fn linear<C: Core>(
    core: &C,
    x: In<f32>,
    weight: In<f32>,
    y: InOut<f32>,
    scratch: Shared<f32>,
    meet: Barrier,
    steps: Signals,
) -> Result<()> {
    let inputs = weight.len() / OUTPUTS;
    let x = core.load(x).await?.shaped(TOKENS, inputs)?;
    let weight = core.load(weight).await?.shaped(inputs, OUTPUTS)?;
    core.store(y, &core.matmul(&x, &weight).await?).await?;
    let team = Team::new(scratch, meet, steps)?;
    all_reduce(core, team, y.into(), y.into(), ReduceOp::Sum, Algorithm::TwoPhase).await // in place
}

fn main() -> ringwork::Result<()> {
    let node = Node::builder().devices(0..4).launch()?;
    let chips = node.devices();
    let spec = DomainSpec::new("tp", chips.clone())
        .buffer::<f32>("scratch", 64)
        .barrier("meet")
        .signals("steps", Team::STEP_CELLS);
    let tp = node.open_domain(&spec)?;
    let (scratch, meet, steps) = (tp.buffer("scratch")?, tp.barrier("meet")?, tp.signals("steps")?);

    let inputs = INPUTS / chips.len();
    let x = node.each(|chip| node.tensor(chip, &vec![1.0f32; TOKENS * inputs]))?;
    let weight = node.each(|chip| node.tensor(chip, &vec![0.5f32; inputs * OUTPUTS]))?;
    let y = node.each(|chip| node.zeros::<f32>(chip, TOKENS * OUTPUTS))?;
    node.run(|orch| {
        orch.group(chips, |chip| {
            let (x, weight, y) = (&x[chip], &weight[chip], &y[chip]);
            Ok(linear::task(x, weight, y, &scratch, &meet, &steps))
        })
    })?;
    for y in y.values() {
        assert_eq!(y.read()?, [4.0; TOKENS * OUTPUTS]); // 8 inputs of 1.0, times 0.5
    }
    Ok(())
}
