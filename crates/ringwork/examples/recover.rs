//! A kernel fails: the error has the chip, the kernel and the line, its partners end, and the next run works.
#![allow(clippy::print_stdout, reason = "a program for people prints")]

use ringwork::prelude::*;

/// Meets the others, unless it is told to fail.
#[kernel]
async fn meet_or_fail<C: Core>(core: &C, meet: Barrier, fail: bool) -> Result<()> {
    if fail {
        return Err(KernelError::failed("the input is not a number"));
    }
    meet.arrive_and_wait(core).await
}

fn main() -> ringwork::Result<()> {
    let node = Node::builder().devices(0..3).launch()?;
    let chips = node.devices();
    let all = node.open_domain(&DomainSpec::new("all", chips.clone()).barrier("meet"))?;
    let meet = all.barrier("meet")?;
    let broken = Device(1);
    let failed = node.run(|orch| {
        orch.group(chips.clone(), |chip| {
            Ok(meet_or_fail::task(&meet, chip == broken))
        })
    });
    let message = failed.expect_err("chip 1 failed").to_string();
    println!("{message}");
    assert!(message.contains("chip 1, kernel `meet_or_fail`"));
    node.run(|orch| orch.group(chips, |_| Ok(meet_or_fail::task(&meet, false))))?;
    Ok(())
}
