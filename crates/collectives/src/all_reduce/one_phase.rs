//! One-phase all-reduce: every rank stages its data, waits for all ranks, and reduces the data of all ranks.
//!
//! Least latency: one meeting, whatever the number of ranks; but every rank does all of the reading.
//!
//! Traffic per rank, for `S` bytes on `n` ranks: `S` staged, `n S` read, `S` written; 1 step. Exact.

use crate::Team;
use crate::arguments::same_length;
use ringwork_isa::{Core, In, Out, ReduceOp, Result};

/// `y[i]` becomes `x[i]` reduced over all ranks, on every rank; each rank reduces everything itself.
///
/// In place if `y` is `x`.
///
/// # Errors
/// If `x` and `y` are not equally long, the scratch cannot hold one element per half, or as
/// [`Core::wait`].
pub async fn one_phase<C: Core>(core: &C, team: Team, x: In, y: Out, op: ReduceOp) -> Result<()> {
    same_length("`y`", y.len(), x.len())?;
    if team.ranks() == 1 {
        return core.copy(y, x).await;
    }
    for chunk in team.chunks(x.len(), 1)? {
        let turn = team.turn(core, chunk.len()).await?;
        let slot = turn.slot.slice(0..chunk.len())?;
        core.copy(slot, x.slice(chunk.clone())?).await?;
        turn.meet(core).await?;
        core.reduce(y.slice(chunk)?, slot.on_all(), op).await?;
    }
    Ok(())
}
