//! Data goes around a ring: each chip writes into its right neighbour's window, with flow control by signals.

use ringwork::prelude::*;

/// Passes x to the right, `steps` times; then y is what came last.
#[kernel]
async fn shift<C: Core>(
    core: &C,
    x: InOut<i32>,
    y: Out<i32>,
    inbox: Shared<i32>,
    full: Signals, // counts the messages that arrived in my inbox
    free: Signals, // counts the messages that my right neighbour has taken out of its inbox
    steps: i32,
) -> Result<()> {
    let (me, ranks) = (inbox.me().0, inbox.ranks());
    let (left, right) = (Rank((me + ranks - 1) % ranks), Rank((me + 1) % ranks));
    let mut step = core.peek(free.at(0)?).await?; // the steps of earlier tasks
    for _ in 0..steps {
        step = step.wrapping_add(1);
        core.copy(inbox.on(right)?, x).await?; // first the data,
        core.notify(full.at(0)?.on(right)?, Notify::Add(1)).await?; // then the signal
        core.wait(full.at(0)?, Compare::Ge, step).await?;
        core.copy(x, inbox).await?;
        core.notify(free.at(0)?.on(left)?, Notify::Add(1)).await?;
        core.wait(free.at(0)?, Compare::Ge, step).await?; // the next copy must not overwrite unread data
    }
    core.copy(y, x).await
}

fn main() -> ringwork::Result<()> {
    let node = Node::builder().devices(0..3).launch()?;
    let chips = node.devices();
    let spec = DomainSpec::new("ring", chips.clone())
        .buffer::<i32>("inbox", 1)
        .signals("full", 1)
        .signals("free", 1);
    let ring = node.open_domain(&spec)?;
    let (inbox, full, free) = (
        ring.buffer("inbox")?,
        ring.signals("full")?,
        ring.signals("free")?,
    );
    let x = node.each(|chip| node.tensor(chip, &[chip.0 as i32]))?;
    let y = node.each(|chip| node.zeros(chip, 1))?;
    node.run(|orch| {
        // 4 steps on a ring of 3: the data ends one chip to the right.
        orch.group(chips, |chip| {
            Ok(shift::task(&x[chip], &y[chip], &inbox, &full, &free, 4))
        })
    })?;
    assert_eq!(y[Device(0)].read()?, [2]);
    Ok(())
}
