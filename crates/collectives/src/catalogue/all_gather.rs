//! All-gather: every rank gets the parts of all ranks, in rank order.
//!
//! Model: stage, meet, pull each part from its owner. A part is pulled as soon as its owner has arrived. Each rank
//! starts at its own place, so that not all ranks read from rank 0 at once.
//!
//! Traffic per rank, for `S` bytes of output on `n` ranks: `S/n` staged, `S (n-1)/n` pulled; 1 step.

use crate::Team;
use crate::arguments::one_part;
use crate::blocks::pull_parts;
use crate::chunk::clip;
use ringwork_isa::{Core, In, Out, Result, part_range};

/// Part `r` of `y` becomes rank `r`'s `x`, on every rank.
///
/// `x` has as many elements as part `me` of `y`: the same number on every rank if the ranks divide `y`. In place if
/// `x` is that part of `y`.
///
/// # Errors
/// If the lengths do not fit, the scratch cannot hold one element per half, or as [`Core::wait`].
pub async fn all_gather<C: Core>(core: &C, team: Team, x: In, y: Out) -> Result<()> {
    let (_, ranks) = team.place();
    one_part(&x, &y, team.place())?;
    if ranks == 1 {
        return core.copy(y, x).await;
    }
    let longest = part_range(y.len(), ranks, 0).len();
    for chunk in team.chunks(longest, 1)? {
        let turn = team.turn(core, chunk.len()).await?;
        let mine = x.slice(clip(0..x.len(), &chunk))?;
        core.copy(turn.slot.slice(0..mine.len())?, mine).await?;
        turn.arrive(core).await?;
        pull_parts(core, &turn, team.members(), mine, y, &chunk).await?;
    }
    Ok(())
}
