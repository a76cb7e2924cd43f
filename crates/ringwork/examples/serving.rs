//! A kernel that keeps running: the host sends it requests through a queue, and receives answers.

use ringwork::isa::{HostPort, Received};
use ringwork::prelude::*;
use ringwork::runtime::Response;

/// Answers each request with its elements doubled, until the host stops sending.
#[kernel]
async fn serve<C: Core>(core: &C, slots: Shared<f32>, headers: Shared<i32>, cells: Signals) -> Result<()> {
    let mut port = HostPort::open(core, slots, headers, cells).await?;
    while let Received::Data(request) = port.recv(core).await? {
        let x = core.load(request.payload()).await?;
        port.release(core, request).await?; // the host may use the slot again
        let reply = port.reserve(core, x.len()).await?;
        core.store(reply.place(), &core.scale(&x, 2.0, 0.0).await?)
            .await?;
        port.send(core, reply).await?;
    }
    port.stop(core).await
}

fn main() -> ringwork::Result<()> {
    let node = Node::builder().devices([0]).launch()?;
    let chip = Device(0);
    let mut port = node.open_port::<f32>(chip, 4, 16)?; // 4 slots of up to 16 elements each way
    let answers = node.run(|orch| {
        orch.submit(chip, serve::task(port.slots(), port.headers(), port.cells()))?;
        let mut answers = Vec::new();
        for request in [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]] {
            port.send(&request)?;
            if let Response::Data(answer) = port.recv()? {
                answers.push(answer.read()?);
            }
        }
        port.stop()?;
        Ok(answers)
    })?;
    assert_eq!(answers, [[2.0, 4.0], [6.0, 8.0], [10.0, 12.0]]);
    Ok(())
}
