//! The epoch barrier, `isa`'s own code over shipped cells, with scratch that loom watches (BAR-3).

use super::explore;
use super::small_core::SmallCore;
use ringwork_isa::{Barrier, Core, Epoch, Rank, Result, Shared, Tile};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// Which part of the scratch an epoch uses.
type Slot = fn(Shared<u8>, Epoch) -> Shared<u8>;

fn by_parity(scratch: Shared<u8>, epoch: Epoch) -> Shared<u8> {
    scratch.half(epoch)
}

/// What every collective does: write your own, meet, read everybody's; and again.
async fn exchange<C: Core>(
    core: &C,
    scratch: Shared<u8>,
    meet: Barrier,
    rounds: u8,
    slot: Slot,
) -> Result<()> {
    for round in 1..=rounds {
        let epoch = meet.epoch(core).await?;
        assert_eq!(epoch, Epoch::of(round.into()));
        let slot = slot(scratch, epoch);
        let value = |rank: u32| 10 * round + u8::try_from(rank).unwrap();
        core.store(slot, &Tile::new(vec![value(meet.rank().0)])).await?;
        meet.arrive(core, epoch).await?;
        meet.wait(core, epoch).await?;
        for peer in 0..meet.ranks() {
            let tile = core.load(slot.on(Rank(peer))?).await?;
            assert_eq!(tile.values(), [value(peer)], "scratch was overwritten");
        }
    }
    Ok(())
}

fn meets(preemptions: usize, ranks: u32, rounds: u8, slot: Slot) {
    explore(preemptions, move || {
        let core = Arc::new(SmallCore::new(ranks, 2));
        let run = move |core: &SmallCore, me: u32| {
            let kernel = exchange(core, core.scratch(me), core.barrier(me), rounds, slot);
            let end = pin!(kernel).poll(&mut Context::from_waker(Waker::noop()));
            assert_eq!(end, Poll::Ready(Ok(())));
        };
        let others: Vec<_> = (1..ranks)
            .map(|me| {
                let core = core.clone();
                loom::thread::spawn(move || run(&core, me))
            })
            .collect();
        run(&core, 0);
        for other in others {
            other.join().unwrap();
        }
    });
}

#[test]
fn two_ranks_meet_three_times() {
    meets(3, 2, 3, by_parity);
}

#[test]
fn three_ranks_meet_twice() {
    meets(2, 3, 2, by_parity);
}

#[test]
fn three_ranks_meet_three_times() {
    meets(1, 3, 3, by_parity);
}

// Broken on purpose.

#[test]
#[should_panic(expected = "was overwritten")]
fn broken_one_scratch_for_all_epochs_is_overwritten_while_it_is_read() {
    meets(2, 2, 2, |scratch, _| scratch.half(Epoch::default()));
}

#[test]
#[should_panic(expected = "was overwritten")]
fn broken_scratch_by_the_wrong_parity_is_overwritten_while_it_is_read() {
    meets(2, 2, 3, |scratch, epoch| {
        scratch.half(Epoch::of(i32::from(epoch) / 2))
    });
}
