//! Broadcast in a window: the root pushes one part of its data to all ranks, which pull the rest from it meanwhile.
//!
//! Each byte is copied once to each rank, as if all ranks pulled everything, but no rank is idle.
//!
//! Traffic, for `S` bytes on `n` ranks: the root pushes `S/n` to each other, and each of those pulls `S (n-1)/n`; 2 meetings.

use crate::arguments::{member, same_domain};
use ringwork_isa::{Barrier, Core, Rank, Result, Shared, part_range};

/// `data` becomes what it is on `root`, on every rank.
///
/// # Errors
/// If `root` is not a member, `data` and `meet` are not of one domain, or as [`Core::wait`].
pub async fn broadcast<C: Core>(core: &C, meet: Barrier, data: Shared, root: Rank) -> Result<()> {
    same_domain("the data", &data, &meet)?;
    member(root, data.ranks() as usize)?;
    if data.is_empty() || meet.ranks() == 1 {
        return Ok(());
    }
    let (me, ranks) = (data.me(), data.ranks());
    // The root is the only reader and writer of this part on all ranks until the meeting; each rank is the only
    // writer of its other parts (WIN-3).
    let pushed = part_range(data.len(), ranks as usize, root.0 as usize);
    meet.arrive_and_wait(core).await?;
    if me == root {
        let part = data.slice(pushed)?;
        for step in 1..ranks {
            core.copy(part.on(Rank((me.0 + step) % ranks))?, part).await?;
        }
    } else {
        for rest in [0..pushed.start, pushed.end..data.len()] {
            let rest = data.slice(rest)?;
            if !rest.is_empty() {
                core.copy(rest, rest.on(root)?).await?;
            }
        }
    }
    meet.arrive_and_wait(core).await
}
