//! Broadcast in a window: everybody pulls the root's data into the same place of its own.
//!
//! Traffic, for `S` bytes: every rank but the root pulls `S`; 2 meetings.

use crate::arguments::{member, same_domain};
use ringwork_isa::{Barrier, Core, Element, Rank, Result, Shared};

/// `data` becomes what it is on `root`, on every rank.
///
/// # Errors
/// If `root` is not a member, `data` and `meet` are not of one domain, or as [`Core::wait`].
pub async fn broadcast<C: Core, T: Element>(
    core: &C,
    meet: Barrier,
    data: Shared<T>,
    root: Rank,
) -> Result<()> {
    same_domain("the data", &data, &meet)?;
    member(root, data.ranks() as usize)?;
    if data.is_empty() || meet.ranks() == 1 {
        return Ok(());
    }
    meet.arrive_and_wait(core).await?;
    if data.me() != root {
        core.copy(data, data.on(root)?).await?;
    }
    meet.arrive_and_wait(core).await
}
