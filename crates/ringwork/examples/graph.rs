//! A graph of tasks on the cores of one chip: captured once, replayed with other memory.

use ringwork::prelude::*;

#[kernel]
async fn add<C: Core>(core: &C, a: In<f32>, b: In<f32>, y: Out<f32>) -> Result<()> {
    core.store(y, &core.add(&core.load(a).await?, &core.load(b).await?).await?)
        .await
}

#[kernel]
async fn mul<C: Core>(core: &C, a: In<f32>, b: In<f32>, y: Out<f32>) -> Result<()> {
    core.store(y, &core.mul(&core.load(a).await?, &core.load(b).await?).await?)
        .await
}

/// y = (a + b) * a. The order follows from the memory that the tasks read and write.
#[orchestration]
fn formula(orch: &mut ChipOrchestrator<'_>, a: In<f32>, b: In<f32>, y: Out<f32>) -> Result<()> {
    let sum = orch.intermediate::<f32>(y.len())?;
    orch.submit(CoreKind::Vector, add::task(a, b, sum))?;
    orch.submit(CoreKind::Vector, mul::task(sum, a, y))?;
    Ok(())
}

fn main() -> ringwork::Result<()> {
    let node = Node::builder().devices([0]).launch()?;
    let chip = Device(0);
    let (a, b) = (
        node.tensor(chip, &[1.0f32, 2.0])?,
        node.tensor(chip, &[3.0f32, 4.0])?,
    );
    let y = node.zeros::<f32>(chip, 2)?;
    let graph = node.capture(chip, &formula::task(&a, &b, &y))?;
    node.run(|orch| orch.submit(chip, graph.replay(&formula::task(&a, &b, &y))?))?;
    assert_eq!(y.read()?, [4.0, 12.0]);
    node.run(|orch| orch.submit(chip, graph.replay(&formula::task(&b, &a, &y))?))?;
    assert_eq!(y.read()?, [12.0, 24.0]);
    Ok(())
}
