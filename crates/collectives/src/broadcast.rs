//! Broadcast: everybody gets the root's data.
//!
//! Model: the root stages, all meet, everybody else pulls from the root.
//!
//! Traffic, for `S` bytes: the root stages `S`, every other rank pulls `S`; 1 step.

use crate::Team;
use crate::arguments::rooted;
use ringwork_isa::{Core, Element, In, Out, Rank, Result};

/// What is staged at once: while the others pull it, the root stages the next.
const PIPELINED_BYTES: usize = 64 << 10;

/// `y` becomes the root's `x`, on every rank; `x` elsewhere is not read.
///
/// In place if `x` on the root is `y`.
///
/// # Errors
/// If the root's `x` and `y` are not equally long, `root` is not a member, the scratch cannot hold one
/// element per half, or as [`Core::wait`].
pub async fn broadcast<C: Core, T: Element>(
    core: &C,
    team: Team<T>,
    x: In<T>,
    y: Out<T>,
    root: Rank,
) -> Result<()> {
    let is_root = rooted(&team, &x, &y, root)?;
    if team.ranks() == 1 {
        return core.copy(y, x).await;
    }
    for chunk in team.chunks_of(y.len(), PIPELINED_BYTES / T::DTYPE.bytes())? {
        let turn = team.turn(core, chunk.len()).await?;
        let slot = turn.slot.slice(0..chunk.len())?;
        let piece = y.slice(chunk.clone())?;
        if is_root {
            let source = x.slice(chunk)?;
            core.copy(slot, source).await?;
            turn.meet(core).await?;
            core.copy(piece, source).await?;
        } else {
            turn.meet(core).await?;
            core.copy(piece, slot.on(root)?).await?;
        }
    }
    Ok(())
}
