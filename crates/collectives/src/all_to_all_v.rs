//! All-to-all with a count of its own for every pair.
//!
//! Model: as [`all_to_all`](crate::all_to_all()): stage one block for every other rank, meet, pull my block from
//! every rank. Every rank knows all counts, so that all make the same number of rounds (TEAM-2).
//!
//! Traffic per rank: its input is staged, its output is pulled; as many rounds as the longest part needs.

use crate::Team;
use crate::arguments::same_length;
use crate::blocks::block;
use crate::chunk::clip;
use ringwork_isa::{Core, Error, In, Out, Result};
use std::ops::Range;

/// `y` becomes the parts that all ranks send to me, in rank order; `x` has my parts for all ranks.
/// `counts[s * ranks + d]` is how many elements go from `s` to `d`: the same list on every rank. `x` and `y` do not overlap.
///
/// # Errors
/// If the counts do not fit `x`, `y` or the ranks, the scratch cannot hold one element for every other rank per half,
/// or as [`Core::wait`].
pub async fn all_to_all_v<C: Core>(core: &C, team: Team, x: In, y: Out, counts: &[usize]) -> Result<()> {
    let (me, ranks) = team.place();
    same_length("the list of counts", counts.len(), ranks * ranks)?;
    let parts = |count: &dyn Fn(usize) -> usize| -> Result<Vec<Range<usize>>> {
        let mut end = 0usize;
        (0..ranks)
            .map(|index| {
                let start = end;
                end = start.checked_add(count(index)).ok_or_else(too_many)?;
                Ok(start..end)
            })
            .collect()
    };
    let (outgoing, incoming) = (
        parts(&|to| counts[me * ranks + to])?,
        parts(&|from| counts[from * ranks + me])?,
    );
    same_length("`x`, all that I send,", x.len(), outgoing[ranks - 1].end)?;
    same_length("`y`, all that I get,", y.len(), incoming[ranks - 1].end)?;
    if ranks == 1 {
        return core.copy(y, x).await;
    }
    let longest = counts.iter().copied().max().unwrap_or(0);
    for chunk in team.chunks(longest, ranks - 1)? {
        let turn = team.turn(core, (ranks - 1) * chunk.len()).await?;
        for (index, part) in outgoing.iter().enumerate().filter(|(index, _)| *index != me) {
            let piece = clip(part.clone(), &chunk);
            if !piece.is_empty() {
                let block = block(turn.slot, chunk.len(), index, piece.len())?;
                core.copy(block, x.slice(piece)?).await?;
            }
        }
        turn.arrive(core).await?;
        for (peer, index) in team.members() {
            turn.wait_for(core, peer).await?;
            let piece = clip(incoming[index].clone(), &chunk);
            if piece.is_empty() {
                continue;
            }
            let source = if index == me {
                x.slice(clip(outgoing[me].clone(), &chunk))?
            } else {
                block(turn.slot.on(peer)?, chunk.len(), me, piece.len())?.into()
            };
            core.copy(y.slice(piece)?, source).await?;
        }
    }
    Ok(())
}

fn too_many() -> Error {
    Error::failed("the counts add up to more than can be counted")
}
