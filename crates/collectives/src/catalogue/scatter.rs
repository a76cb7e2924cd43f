//! Scatter: one rank deals its data out, one part to each.
//!
//! Model: the root stages one block for every other rank, all meet, every rank pulls its own block from the root.
//!
//! Traffic, for `S` bytes of output on each of `n` ranks: the root stages `S (n-1)`, every other rank pulls
//! `S`; 1 step.

use crate::Team;
use crate::arguments::{member, same_length, times_ranks};
use crate::blocks::{block, stage_blocks};
use ringwork_isa::{Core, In, Out, Rank, Result};

/// `y` becomes the part of the root's `x` that belongs to this rank; `x` elsewhere is not read.
///
/// `y` has the same length on every rank. In place if `y` on the root is its part of `x`.
///
/// # Errors
/// If the root's `x` is not as long as all `y` together, `root` is not a member, the scratch cannot hold
/// one element for every other rank per half, or as [`Core::wait`].
pub async fn scatter<C: Core>(core: &C, team: Team, x: In, y: Out, root: Rank) -> Result<()> {
    let (me, ranks) = team.place();
    member(root, ranks)?;
    let is_root = team.rank() == root;
    if is_root {
        same_length(
            "`x` on the root, one `y` per rank,",
            x.len(),
            times_ranks(y.len(), ranks)?,
        )?;
    }
    if ranks == 1 {
        return core.copy(y, x).await;
    }
    for chunk in team.chunks(y.len(), ranks - 1)? {
        let turn = team.turn_of_one(core, (ranks - 1) * chunk.len()).await?;
        if is_root {
            stage_blocks(core, turn.slot, x, &chunk).await?;
        }
        turn.meet(core).await?;
        let source = if is_root {
            x.part(ranks, me)?.slice(chunk.clone())?
        } else {
            block(turn.slot.on(root)?, chunk.len(), me, chunk.len())?.into()
        };
        core.copy(y.slice(chunk)?, source).await?;
    }
    Ok(())
}
