//! Reduce: the root gets the sum (or another reduction) of the data of all ranks.
//!
//! Model: all others stage, all meet, the root reduces their slots and its own data in rank order.
//!
//! Traffic, for `S` bytes on each of `n` ranks: every other rank stages `S`, the root reads `S n`; 1 step.
//! Exact (COL-1).

use crate::Team;
use crate::arguments::{member, same_length};
use ringwork_isa::{Core, In, Out, Rank, ReduceOp, Result};

/// `y[i]` on `root` becomes `x[i]` reduced over all ranks; `y` elsewhere is not touched.
///
/// In place if `y` on the root is `x`.
///
/// # Errors
/// If the root's `x` and `y` are not equally long, `root` is not a member, the scratch cannot hold one
/// element per half, or as [`Core::wait`].
pub async fn reduce<C: Core>(core: &C, team: Team, x: In, y: Out, op: ReduceOp, root: Rank) -> Result<()> {
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
        let x = x.slice(chunk.clone())?;
        if !is_root {
            core.copy(slot, x).await?;
        }
        turn.meet(core).await?;
        if is_root {
            core.reduce(y.slice(chunk)?, slot.on_others(x), op).await?;
        }
    }
    Ok(())
}
