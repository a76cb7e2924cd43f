//! A first program: the sum over four chips, on all of them.

use ringwork::prelude::*;

/// y = the sum of everybody's x: stage, meet, add in rank order.
#[kernel]
async fn sum<C: Core>(core: &C, x: In<f32>, y: Out<f32>, scratch: Shared<f32>, meet: Barrier) -> Result<()> {
    let slot = scratch.half(meet.epoch(core).await?); // double-buffered: one barrier is enough
    core.copy(slot, x).await?; // into my window
    meet.arrive_and_wait(core).await?;
    core.reduce(y, slot.on_all(), ReduceOp::Sum).await // out of everybody's
}

fn main() -> Result<()> {
    let node = Node::builder().devices(0..4).launch()?; // four processes, ready
    let chips = node.devices();
    let spec = DomainSpec::new("tp", chips.clone())
        .buffer::<f32>("scratch", 512)
        .barrier("meet");
    let tp = node.open_domain(&spec)?;
    let (scratch, meet) = (tp.buffer("scratch")?, tp.barrier("meet")?);
    let x = node.each(|chip| node.tensor(chip, &[1.0; 256]))?; // memory of each chip
    let y = node.each(|chip| node.zeros(chip, 256))?;
    node.run(|orch| {
        let task = |chip| sum::task(&x[chip], &y[chip], &scratch, &meet);
        orch.group(chips.clone(), |chip| Ok(task(chip)))
    })?; // returns when every chip is done, or with the first error and its path
    assert_eq!(y[Device(3)].read()?, [4.0; 256]);
    node.close(); // also on drop; nothing is left either way
    Ok(())
}
