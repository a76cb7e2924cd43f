//! Reduce-scatter from a window: each rank reduces its slice of everybody's data.
//!
//! Traffic per rank, for `S` bytes of data on each of `n` ranks: `S` read, `S/n` written; 2 meetings.

use crate::arguments::{same_domain, same_length};
use ringwork_isa::{Barrier, Core, Out, ReduceOp, Result, Shared, part_range};

/// `y` becomes part `me` of `data` reduced over all ranks.
///
/// `y` may be that part of `data` itself; the rest of `data` is not changed.
///
/// # Errors
/// If `y` is not as long as part `me` of `data`, `data` and `meet` are not of one domain, or as
/// [`Core::wait`].
pub async fn reduce_scatter<C: Core>(
    core: &C,
    meet: Barrier,
    data: Shared,
    y: Out,
    op: ReduceOp,
) -> Result<()> {
    same_domain("the data", &data, &meet)?;
    let (me, ranks) = (data.me().0 as usize, data.ranks() as usize);
    let part = part_range(data.len(), ranks, me).len();
    same_length("`y`, my part of the reduced `data`,", y.len(), part)?;
    if data.is_empty() {
        return Ok(());
    }
    meet.arrive_and_wait(core).await?;
    if !y.is_empty() {
        core.reduce(y, data.part(ranks, me)?.on_all(), op).await?;
    }
    meet.arrive_and_wait(core).await
}
