//! A pipeline of two chips: the second stage of a batch starts when a signal says that its data has arrived.

use ringwork::prelude::*;

const BATCHES: usize = 8;
const LEN: usize = 16;

/// Doubles x into slot `batch` of the next chip's window, and says so.
#[kernel]
async fn first<C: Core>(core: &C, x: In<f32>, inbox: Shared<f32>, full: Signals, batch: usize) -> Result<()> {
    let next = Rank(inbox.me().0 + 1);
    let doubled = core.scale(&core.load(x).await?, 2.0, 0.0).await?;
    core.store(inbox.part(BATCHES, batch)?.on(next)?, &doubled)
        .await?;
    core.notify(full.at(0)?.on(next)?, Notify::Add(1)).await
}

/// y = what arrived in slot `batch`, plus 1.
#[kernel]
async fn second<C: Core>(core: &C, inbox: Shared<f32>, y: Out<f32>, batch: usize) -> Result<()> {
    let x = core.load(inbox.part(BATCHES, batch)?).await?;
    core.store(y, &core.scale(&x, 1.0, 1.0).await?).await
}

fn main() -> ringwork::Result<()> {
    let (left, right) = (Device(0), Device(1));
    let node = Node::builder().devices(0..2).launch()?;
    let spec = DomainSpec::new("pipe", [left, right])
        .buffer::<f32>("inbox", BATCHES * LEN)
        .signals("full", 1);
    let pipe = node.open_domain(&spec)?;
    let (inbox, full) = (pipe.buffer::<f32>("inbox")?, pipe.signals("full")?);
    let arrived = full.cell(Rank(1), 0)?;

    let x = node.tensor(left, &[3.0f32; LEN])?;
    let mut results = Vec::new();
    for _ in 0..BATCHES {
        results.push(node.zeros::<f32>(right, LEN)?);
    }
    node.run(|orch| {
        for (batch, y) in results.iter().enumerate() {
            orch.submit(left, first::task(&x, &inbox, &full, batch))?;
            let needed = i32::try_from(batch + 1).unwrap_or(i32::MAX);
            // It occupies no chip until the signal is there.
            orch.when(arrived, Compare::Ge, needed)
                .submit(right, second::task(&inbox, y, batch))?;
        }
        Ok(())
    })?;
    for y in &results {
        assert_eq!(y.read()?, [7.0; LEN]);
    }
    Ok(())
}
