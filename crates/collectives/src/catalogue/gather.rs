//! Gather: one rank gets the data of all ranks, in rank order.
//!
//! Model: stage, meet, the root pulls each part from its owner.
//!
//! Traffic per rank, for `S` bytes of input on each of `n` ranks: `S` staged; the root pulls `S (n-1)`;
//! 1 step.

use crate::Team;
use crate::arguments::{member, same_length, times_ranks};
use crate::blocks::pull_parts;
use ringwork_isa::{Core, In, Out, Rank, Result};

/// `y` on `root` becomes the `x` of all ranks, in rank order; `y` elsewhere is not changed. `x` has the same length
/// on every rank. In place if `x` on the root is its part of `y`.
///
/// # Errors
/// If the root's `y` is not as long as all `x` together, `root` is not a member, the scratch cannot hold
/// one element per half, or as [`Core::wait`].
pub async fn gather<C: Core>(core: &C, team: Team, x: In, y: Out, root: Rank) -> Result<()> {
    let (_, ranks) = team.place();
    member(root, ranks)?;
    let is_root = team.rank() == root;
    if is_root {
        same_length(
            "`y` on the root, one `x` per rank,",
            y.len(),
            times_ranks(x.len(), ranks)?,
        )?;
    }
    if ranks == 1 {
        return core.copy(y, x).await;
    }
    for chunk in team.chunks(x.len(), 1)? {
        let turn = team.turn(core, chunk.len()).await?;
        let mine = x.slice(chunk.clone())?;
        if is_root {
            turn.arrive(core).await?;
            pull_parts(core, &turn, team.members(), mine, y, &chunk).await?;
        } else {
            core.copy(turn.slot.slice(0..mine.len())?, mine).await?;
            turn.meet(core).await?;
        }
    }
    Ok(())
}
