//! All-reduce in a window, in place: each rank reduces its slice, then the slices are spread.
//!
//! Traffic per rank, for `S` bytes on `n` ranks: `S` read and `S/n` written for the slice; then either
//! `S (n-1)/n` pushed (2 meetings, the least traffic of all) or as much pulled (3 meetings).

use super::all_gather::pull_slices;
use crate::arguments::same_domain;
use ringwork_isa::{Barrier, Core, Element, ReduceOp, Result, Shared};

/// How reduced slices reach everybody.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Spread {
    /// Everybody pulls: nobody writes to memory that a peer holds in its cache.
    Pull,
    /// Each rank pushes its slice to all: one meeting fewer.
    Push,
}

/// `data[i]` becomes `data[i]` reduced over all ranks, on every rank.
///
/// # Errors
/// If `data` and `meet` are not of one domain, or as [`Core::wait`].
pub async fn all_reduce<C: Core, T: Element>(
    core: &C,
    meet: Barrier,
    data: Shared<T>,
    op: ReduceOp,
    spread: Spread,
) -> Result<()> {
    same_domain("the data", &data, &meet)?;
    if data.is_empty() || meet.ranks() == 1 {
        return Ok(());
    }
    let (me, ranks) = (data.me().0, data.ranks());
    let slice = data.part(ranks as usize, me as usize)?;
    meet.arrive_and_wait(core).await?;
    // WIN-3: of slice `me`, here and elsewhere, I am the only reader and the only writer until we meet.
    match spread {
        Spread::Push => core.reduce_to_all(slice, op).await?,
        Spread::Pull => core.reduce(slice, slice.on_all(), op).await?,
    }
    meet.arrive_and_wait(core).await?;
    if spread == Spread::Pull {
        pull_slices(core, data).await?;
        meet.arrive_and_wait(core).await?;
    }
    Ok(())
}
