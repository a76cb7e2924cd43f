//! All-to-all: every rank sends a part of its data to every rank.
//!
//! Model: stage one block for every other rank, meet, pull my block from every rank.
//!
//! Traffic per rank, for `S` bytes of input on each of `n` ranks: `S (n-1)/n` staged and as much pulled; 1 step.

use crate::Team;
use crate::arguments::dealt_part;
use crate::blocks::{block, stage_blocks};
use crate::chunk::clip;
use ringwork_isa::{Core, In, Out, Result, part_range};

/// `y` becomes part `me` of the `x` of all ranks, in rank order. `x` has the same length on every rank, and `y` is
/// `ranks` times part `me` of it: as long as `x` if the ranks divide it, and then it may be in place.
///
/// # Errors
/// If the lengths do not fit, the scratch cannot hold one element for every other rank per half, or as
/// [`Core::wait`].
pub async fn all_to_all<C: Core>(core: &C, team: Team, x: In, y: Out) -> Result<()> {
    let (me, ranks) = team.place();
    let mine = dealt_part(&x, &y, team.place())?;
    if ranks == 1 {
        return core.copy(y, x).await;
    }
    let longest = part_range(x.len(), ranks, 0).len();
    for chunk in team.chunks(longest, ranks - 1)? {
        let turn = team.turn(core, (ranks - 1) * chunk.len()).await?;
        stage_blocks(core, turn.slot, x, &chunk).await?;
        turn.arrive(core).await?;
        let (own, from) = (
            clip(part_range(y.len(), ranks, me), &chunk),
            clip(mine.clone(), &chunk),
        );
        if !own.is_empty() {
            core.copy(y.slice(own)?, x.slice(from)?).await?;
        }
        turn.wait_for_all(core).await?;
        for (peer, index) in team.members().skip(1) {
            let piece = clip(part_range(y.len(), ranks, index), &chunk);
            if !piece.is_empty() {
                let block = block(turn.slot.on(peer)?, chunk.len(), me, piece.len())?;
                core.copy(y.slice(piece)?, block).await?;
            }
        }
    }
    Ok(())
}
