//! Reduce-scatter: every rank gets its part of the reduction of everybody's data.
//!
//! Model: stage one block for every other rank, meet, reduce the blocks of all ranks for me in rank order.
//!
//! Traffic per rank, for `S` bytes of input on each of `n` ranks: `S (n-1)/n` staged, `S` read, `S/n` written;
//! 1 step. Exact (COL-1).

use crate::Team;
use crate::arguments::my_part;
use crate::blocks::{ForMe, stage_blocks};
use crate::chunk::clip;
use ringwork_isa::{Core, In, Out, ReduceOp, Result, part_range};

/// `y` becomes part `me` of `x` reduced over all ranks.
///
/// `y` has as many elements as that part: the same on every rank if the ranks divide `x`. In place if `y`
/// is that part of `x`, or the beginning of `x`.
///
/// # Errors
/// If the lengths do not fit, the scratch cannot hold one element for every other rank per half, or as
/// [`Core::wait`].
pub async fn reduce_scatter<C: Core>(core: &C, team: Team, x: In, y: Out, op: ReduceOp) -> Result<()> {
    let (_, ranks) = team.place();
    let part = my_part(&x, &y, team.place())?;
    if ranks == 1 {
        return core.copy(y, x).await;
    }
    let longest = part_range(x.len(), ranks, 0).len();
    for chunk in team.chunks(longest, ranks - 1)? {
        let turn = team.turn(core, (ranks - 1) * chunk.len()).await?;
        stage_blocks(core, turn.slot, x, &chunk).await?;
        turn.meet(core).await?;
        let (piece, mine) = (
            y.slice(clip(0..part.len(), &chunk))?,
            x.slice(clip(part.clone(), &chunk))?,
        );
        if !piece.is_empty() {
            let (slot, each) = (turn.slot, chunk.len());
            core.reduce(piece, ForMe { slot, each, mine }, op).await?;
        }
    }
    Ok(())
}
