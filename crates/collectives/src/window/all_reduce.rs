//! All-reduce in a window, in place: each rank reduces one slice, then the slices are distributed.
//!
//! Traffic per rank, for `S` bytes on `n` ranks: `S` read and `S/n` written for the slice; then either
//! `S (n-1)/n` pushed (2 meetings, the least traffic of all) or as much pulled (3 meetings).
//!
//! If ranks share cores, the cost is the turn that each rank needs between two meetings. Then only as many ranks push
//! as there are cores; the others arrive, post that, and need no other turn until the end.

use super::all_gather::pull_slices;
use crate::arguments::same_domain;
use ringwork_isa::{Barrier, Compare, Core, Epoch, Notify, ReduceOp, Result, Shared};
use ringwork_macros::flat;

/// How reduced slices reach all ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Spread {
    /// Every rank pulls: nobody writes to memory that a peer holds in its cache.
    Pull,
    /// This many ranks, from rank 0 on, push their slices to all: one meeting fewer. The same number on every rank.
    Push(u32),
}

/// `data[i]` becomes `data[i]` reduced over all ranks, on every rank.
///
/// # Errors
/// If `data` and `meet` are not of one domain, or as [`Core::wait`].
#[flat]
pub async fn all_reduce<C: Core>(
    core: &C,
    meet: Barrier,
    data: Shared,
    op: ReduceOp,
    spread: Spread,
) -> Result<()> {
    same_domain("the data", &data, &meet)?;
    if data.is_empty() || meet.ranks() == 1 {
        return Ok(());
    }
    match spread {
        Spread::Pull => pull(core, meet, data, op).await,
        Spread::Push(workers) => push(core, meet, data, op, workers.clamp(1, meet.ranks())).await,
    }
}

async fn pull<C: Core>(core: &C, meet: Barrier, data: Shared, op: ReduceOp) -> Result<()> {
    let slice = data.part(data.ranks() as usize, data.me().0 as usize)?;
    meet.arrive_and_wait(core).await?;
    // WIN-3: until the meeting, this rank alone reads and writes slice `me`, on all ranks.
    core.reduce(slice, slice.on_all(), op).await?;
    meet.arrive_and_wait(core).await?;
    pull_slices(core, data).await?;
    meet.arrive_and_wait(core).await
}

#[flat]
async fn push<C: Core>(core: &C, meet: Barrier, data: Shared, op: ReduceOp, workers: u32) -> Result<()> {
    // The barrier is written out here step by step.
    let (me, own) = (data.me().0, meet.signals().own(0)?);
    let (arrivals, begun) = (own.signal(), Epoch::of(core.own_value(own).await?).next());
    let done = begun.next();
    if me < workers {
        core.notify(arrivals, Notify::Set(begun.into())).await?;
        core.wait_on(arrivals, 0..arrivals.ranks(), Compare::Ge, begun)
            .await?;
        // WIN-3: until the meeting, this rank alone reads and writes slice `me`, on all ranks.
        let slice = data.part(workers as usize, me as usize)?;
        core.reduce(slice.on_all(), slice.on_all(), op).await?;
    }
    // A rank without work posts both epochs at once: no rank waits for it a second time. So it may be two epochs
    // ahead of a rank that has not begun (BAR-3 allows one). But nothing is staged in these two epochs, and it
    // continues only when all workers are done, so all ranks have begun.
    core.notify(arrivals, Notify::Set(done.into())).await?;
    core.wait_on(arrivals, 0..workers, Compare::Ge, done).await
}
