//! `ringwork::check::prove` in a user's own test: the first kernel of the tutorial, right and with a line left out.

use ringwork::check::{Fault, prove};
use ringwork::prelude::*;
use std::time::{Duration, Instant};

/// The kernel of `examples/sum.rs`.
#[kernel]
async fn sum<C: Core>(core: &C, x: In<f32>, y: Out<f32>, scratch: Shared<f32>, meet: Barrier) -> Result<()> {
    let slot = scratch.half(meet.epoch(core).await?);
    core.copy(slot, x).await?;
    meet.arrive_and_wait(core).await?;
    core.reduce(y, slot.on_all(), ReduceOp::Sum).await
}

/// It arrives, and does not wait.
#[kernel]
async fn sum_without_wait<C: Core>(
    core: &C,
    x: In<f32>,
    y: Out<f32>,
    scratch: Shared<f32>,
    meet: Barrier,
) -> Result<()> {
    let epoch = meet.epoch(core).await?;
    let slot = scratch.half(epoch);
    core.copy(slot, x).await?;
    meet.arrive(core, epoch).await?;
    core.reduce(y, slot.on_all(), ReduceOp::Sum).await
}

/// It always uses the same half.
#[kernel]
async fn sum_in_one_half<C: Core>(
    core: &C,
    x: In<f32>,
    y: Out<f32>,
    scratch: Shared<f32>,
    meet: Barrier,
) -> Result<()> {
    let slot = scratch.slice(0..scratch.len() / 2)?;
    core.copy(slot, x).await?;
    meet.arrive_and_wait(core).await?;
    core.reduce(y, slot.on_all(), ReduceOp::Sum).await
}

#[test]
fn the_kernel_of_the_tutorial_is_proved() {
    prove(4, 3, async |core, seat| {
        sum(
            core,
            seat.input(0, 8),
            seat.output(64, 8),
            seat.buffer(0, 16),
            seat.barrier(),
        )
        .await
    })
    .expect_proved();
}

#[test]
fn a_wait_that_was_left_out_is_found_and_the_message_says_what_to_do() {
    let begin = Instant::now();
    let verdict = prove(3, 3, async |core, seat| {
        sum_without_wait(
            core,
            seat.input(0, 8),
            seat.output(64, 8),
            seat.buffer(0, 16),
            seat.barrier(),
        )
        .await
    });
    assert!(begin.elapsed() < Duration::from_secs(1));
    let [Fault::Race(race), ..] = &verdict.faults[..] else {
        panic!("{verdict}");
    };
    let both = [race.first.instruction, race.second.instruction];
    assert!(both.contains(&"copy") && both.contains(&"reduce"), "{verdict}");
    let text = verdict.to_string();
    for part in [
        "race: rank ",
        "while rank ",
        "tests/check.rs:",
        "help: ",
        "wait for that before its reduce",
        "again with the schedule",
    ] {
        assert!(text.contains(part), "`{part}` is missing in\n{text}");
    }
}

#[test]
fn scratch_without_two_halves_is_found_and_the_message_says_what_to_do() {
    let verdict = prove(2, 3, async |core, seat| {
        sum_in_one_half(
            core,
            seat.input(0, 8),
            seat.output(64, 8),
            seat.buffer(0, 16),
            seat.barrier(),
        )
        .await
    });
    assert!(
        verdict
            .to_string()
            .contains("use two halves in turn (`half(epoch)`)"),
        "{verdict}"
    );
}
