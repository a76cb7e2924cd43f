//! One chip, one kernel: the sum of two vectors, a tile at a time.

use ringwork::prelude::*;

/// y = a + b, for any element type.
#[kernel]
async fn add<C: Core, T: Element>(core: &C, a: In<T>, b: In<T>, y: Out<T>) -> Result<()> {
    const TILE: usize = 4096;
    for start in (0..y.len()).step_by(TILE) {
        let range = start..y.len().min(start + TILE);
        let left = core.load(a.slice(range.clone())?).await?; // memory to tile
        let right = core.load(b.slice(range.clone())?).await?;
        let sum = core.add(&left, &right).await?;
        core.store(y.slice(range)?, &sum).await?; // tile to memory
    }
    Ok(())
}

fn main() -> ringwork::Result<()> {
    let node = Node::builder().devices([0]).launch()?; // one process, ready for tasks
    let chip = Device(0);
    let a = node.tensor(chip, &[1.0f32; 10_000])?;
    let b = node.tensor(chip, &[2.0f32; 10_000])?;
    let y = node.zeros::<f32>(chip, 10_000)?;
    node.run(|orch| orch.submit(chip, add::task(&a, &b, &y)))?; // returns when the task is done
    assert_eq!(y.read()?, [3.0; 10_000]);
    Ok(())
}
