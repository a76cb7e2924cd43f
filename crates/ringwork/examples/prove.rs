//! A kernel is proved free of races and deadlocks; without its wait, the race is shown.
#![allow(clippy::print_stdout, reason = "a program for people prints")]

use ringwork::check::{Fault, prove};
use ringwork::prelude::*;

/// Writes my rank into the next rank's inbox, and reads what the rank before wrote into mine.
async fn pass_on<C: Core>(core: &C, inbox: Shared<i32>, full: Signal, waits: bool) -> KernelResult<()> {
    let next = Rank((inbox.me().0 + 1) % inbox.ranks());
    core.store(inbox.on(next)?, &Tile::new(vec![1])).await?;
    core.notify(full.on(next)?, Notify::Add(1)).await?;
    if waits {
        core.wait(full, Compare::Ge, 1).await?;
    }
    core.load(inbox).await.map(drop)
}

fn main() {
    let right = prove(4, 1, async |core, seat| {
        pass_on(core, seat.buffer(0, 1), seat.signal(0)?, true).await
    });
    right.expect_proved(); // no race, no deadlock, in any order of events

    let wrong = prove(4, 1, async |core, seat| {
        pass_on(core, seat.buffer(0, 1), seat.signal(0)?, false).await
    });
    assert!(matches!(wrong.faults[..], [Fault::Race(_), ..]));
    println!("{wrong}"); // both lines, and what to do
}
