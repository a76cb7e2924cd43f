//! All-gather and all-to-all with an input in a window: every rank pulls its part from where it lies.
//!
//! Traffic per rank, for an input of `S` bytes on `n` ranks: all-gather pulls `(n-1) S`, all-to-all `S (n-1)/n`; 2 meetings.

use crate::arguments::{same_domain, same_length, times_ranks};
use ringwork_isa::{Barrier, Core, In, Out, Rank, Result, Shared};

/// Part `r` of `y` becomes rank `r`'s `x`, on every rank.
///
/// # Errors
/// If the lengths do not fit, `x` and `meet` are not of one domain, or as [`Core::wait`].
pub async fn all_gather_into<C: Core>(core: &C, meet: Barrier, x: Shared, y: Out) -> Result<()> {
    same_domain("the data", &x, &meet)?;
    let wanted = times_ranks(x.len(), x.ranks() as usize)?;
    same_length("`y`, everybody's `x`,", y.len(), wanted)?;
    pull(core, meet, x, y, |theirs| Ok(theirs.into())).await
}

/// `y` becomes part `me` of everybody's `x`, one after the other in rank order.
///
/// # Errors
/// If the ranks do not divide `x`, the lengths do not fit, `x` and `meet` are not of one domain, or as [`Core::wait`].
pub async fn all_to_all_into<C: Core>(core: &C, meet: Barrier, x: Shared, y: Out) -> Result<()> {
    same_domain("the data", &x, &meet)?;
    let (me, ranks) = (x.me().0 as usize, x.ranks() as usize);
    let wanted = times_ranks(x.part(ranks, me)?.len(), ranks)?;
    same_length("`y`, my part of `x` from every rank,", y.len(), wanted)?;
    pull(core, meet, x, y, |theirs| Ok(theirs.part(ranks, me)?.into())).await
}

/// Part `r` of `y` becomes the part of rank `r`'s `x` that `mine` selects. All ranks read `x`, and nobody writes it;
/// only I use `y` (WIN-3).
async fn pull<C: Core>(
    core: &C,
    meet: Barrier,
    x: Shared,
    y: Out,
    mine: impl Fn(Shared) -> Result<In>,
) -> Result<()> {
    // If the whole input is empty, every rank knows it and returns at once. If only a rank's own part is empty, the
    // other ranks do not know that, so it takes part.
    if x.is_empty() {
        return Ok(());
    }
    let (me, ranks) = (x.me().0, x.ranks());
    if !y.is_empty() {
        core.copy(y.part(ranks as usize, me as usize)?, mine(x)?).await?;
    }
    if ranks == 1 {
        return Ok(());
    }
    meet.arrive_and_wait(core).await?;
    for step in 1..ranks {
        let peer = (me + step) % ranks;
        let part = y.part(ranks as usize, peer as usize)?;
        if !part.is_empty() {
            core.copy(part, mine(x.on(Rank(peer))?)?).await?;
        }
    }
    meet.arrive_and_wait(core).await
}
