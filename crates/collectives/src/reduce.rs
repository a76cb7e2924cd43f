//! Reduce: the root gets the sum (or another reduction) of everybody's data.
//!
//! Model: stage, meet, the root reduces everybody's slot in rank order.
//!
//! Traffic, for `S` bytes on each of `n` ranks: every rank stages `S`, the root reads `S n`; 1 step.
//! Exact (COL-1).

use crate::Team;
use crate::arguments::{member, same_length};
use ringwork_isa::{Core, Element, In, Out, Rank, ReduceOp, Result};

/// `y[i]` on `root` becomes `x[i]` reduced over all ranks; `y` elsewhere is not touched.
///
/// In place if `y` on the root is `x`.
///
/// # Errors
/// If the root's `x` and `y` are not equally long, `root` is not a member, the scratch cannot hold one
/// element per half, or as [`Core::wait`].
pub async fn reduce<C: Core, T: Element>(
    core: &C,
    team: Team<T>,
    x: In<T>,
    y: Out<T>,
    op: ReduceOp,
    root: Rank,
) -> Result<()> {
    let (_, ranks) = team.place();
    member(root, ranks)?;
    let is_root = team.rank() == root;
    if is_root {
        same_length("`y` on the root", y.len(), x.len())?;
    }
    if ranks == 1 {
        return core.copy(y, x).await;
    }
    for chunk in team.chunks(x.len(), 1)? {
        let turn = team.turn(core, chunk.len()).await?;
        let slot = turn.slot.slice(0..chunk.len())?;
        core.copy(slot, x.slice(chunk.clone())?).await?;
        turn.meet(core).await?;
        if is_root {
            core.reduce(y.slice(chunk)?, slot.on_all(), op).await?;
        }
    }
    Ok(())
}
