//! `Platform::Check` for a user's own program: the first kernel of the tutorial on a node, right and with its wait left out.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use ringwork::prelude::*;
use ringwork::runtime::{Checking, Platform};
use std::time::{Duration, Instant};

/// The kernel of `examples/sum.rs`; a beginner may have left the wait out.
#[kernel]
async fn sum<C: Core>(
    core: &C,
    x: In<f32>,
    y: Out<f32>,
    scratch: Shared<f32>,
    meet: Barrier,
    waits: bool,
) -> Result<()> {
    let epoch = meet.epoch(core).await?;
    let slot = scratch.half(epoch);
    core.copy(slot, x).await?;
    if waits {
        meet.arrive_and_wait(core).await?;
    } else {
        meet.arrive(core, epoch).await?;
    }
    core.reduce(y, slot.on_all(), ReduceOp::Sum).await
}

/// The program, on a checked node: the sums on every chip, and what was checked.
fn run(waits: bool) -> ringwork::Result<(Vec<Vec<f32>>, ringwork::check::Checked)> {
    let node = Node::builder()
        .devices(0..3)
        .platform(Platform::Check(Checking::new()))
        .launch()?;
    let spec = DomainSpec::new("tp", node.devices())
        .buffer::<f32>("scratch", 16)
        .barrier("meet");
    let tp = node.open_domain(&spec)?;
    let (mut x, mut y) = (Vec::new(), Vec::new());
    for chip in node.devices() {
        x.push(node.tensor(chip, &[chip.0 as f32; 8])?);
        y.push(node.zeros::<f32>(chip, 8)?);
    }
    for _ in 0..3 {
        node.run(|orch| {
            orch.group(node.devices(), |chip| {
                let at = chip.0 as usize;
                Ok(sum::task(
                    &x[at],
                    &y[at],
                    &tp.buffer("scratch")?,
                    &tp.signals("meet")?,
                    waits,
                ))
            })
        })?;
    }
    let sums = y.iter().map(|y| y.read()).collect::<ringwork::Result<_>>()?;
    Ok((sums, node.clock().checked().unwrap()))
}

#[test]
fn the_program_of_the_tutorial_is_proved() {
    let (sums, checked) = run(true).unwrap();
    assert_eq!(sums, [[3.0; 8]; 3]);
    assert!(checked.is_proved(), "{checked}: {:?}", checked.unproved);
}

#[test]
fn a_wait_that_was_left_out_is_found_in_under_a_second_and_the_message_says_what_to_do() {
    let begin = Instant::now();
    let error = run(false).unwrap_err();
    assert!(begin.elapsed() < Duration::from_secs(1));
    let text = error.to_string();
    for part in [
        "race: kernel `sum` on chip ",
        "in window \"tp\" of rank ",
        "  write  copy         crates/ringwork/tests/checked_node.rs:",
        "  read   reduce       crates/ringwork/tests/checked_node.rs:",
        "help: let kernel `sum` on chip ",
        "notify after its copy",
        "wait for that before its reduce",
    ] {
        assert!(text.contains(part), "`{part}` is missing in\n{text}");
    }
}
