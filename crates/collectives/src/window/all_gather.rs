//! All-gather in a window, in place: every rank pulls the slices of all others.
//!
//! Traffic per rank, for `S` bytes of result on `n` ranks: `S (n-1)/n` pulled; 2 meetings.

use crate::arguments::same_domain;
use ringwork_isa::{Barrier, Core, Rank, Result, Shared};

/// Part `r` of `data` becomes what it is on rank `r`, on every rank.
///
/// # Errors
/// If `data` and `meet` are not of one domain, or as [`Core::wait`].
pub async fn all_gather<C: Core>(core: &C, meet: Barrier, data: Shared) -> Result<()> {
    same_domain("the data", &data, &meet)?;
    if data.is_empty() || meet.ranks() == 1 {
        return Ok(());
    }
    meet.arrive_and_wait(core).await?;
    pull_slices(core, data).await?;
    meet.arrive_and_wait(core).await
}

/// Pulls every part of `data` but mine from its owner. Needs a meeting before and after: others read part `me` of my
/// memory, which nobody writes, and I write the rest, which nobody reads (WIN-3).
pub(super) async fn pull_slices<C: Core>(core: &C, data: Shared) -> Result<()> {
    let (me, ranks) = (data.me().0, data.ranks());
    for step in 1..ranks {
        let peer = (me + step) % ranks;
        let slice = data.part(ranks as usize, peer as usize)?;
        if !slice.is_empty() {
            core.copy(slice, slice.on(Rank(peer))?).await?;
        }
    }
    Ok(())
}
