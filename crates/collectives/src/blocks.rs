//! Moves that several collectives share: one block per rank into the scratch, one part per rank out of it.

use crate::chunk::clip;
use crate::team::Turn;
use ringwork_isa::{Core, Erased, In, Out, Rank, Result, Shared, Sources, Span, part_range};
use std::ops::Range;

/// The first `len` elements of the block for rank `to`, in a slot with one block of `each` elements for every other
/// rank.
#[track_caller]
pub(crate) fn block(slot: Shared, each: usize, to: usize, len: usize) -> Result<Shared> {
    let start = place(slot.rank(), slot.ranks() as usize, to) * each;
    slot.slice(start..start + len)
}

/// The index of the block for rank `to` in the slot of `owner`.
fn place(owner: Rank, ranks: usize, to: usize) -> usize {
    (to + ranks - owner.0 as usize - 1) % ranks
}

/// The blocks of all ranks for me, in rank order, with my own data in my place.
#[derive(Debug)]
pub(crate) struct ForMe {
    pub(crate) slot: Shared,
    pub(crate) each: usize,
    pub(crate) mine: In,
}

impl Sources<Erased> for ForMe {
    fn count(&self) -> usize {
        self.slot.ranks() as usize
    }
    fn source(&self, index: usize) -> Span {
        let (span, mine) = (self.slot.span(), self.mine.span());
        let (rank, me) = (Rank(u32::try_from(index).unwrap_or(u32::MAX)), span.me);
        if rank == me {
            return mine;
        }
        Span {
            rank,
            start: span.start + (place(rank, self.count(), me.0 as usize) * self.each) as u64,
            len: mine.len,
            ..span
        }
    }
}

/// Stages the part of `x` for each other rank, as far as it falls into `chunk`, into that rank's block.
pub(crate) async fn stage_blocks<C: Core>(core: &C, slot: Shared, x: In, chunk: &Range<usize>) -> Result<()> {
    let (me, ranks) = (slot.me().0 as usize, slot.ranks() as usize);
    for to in (0..ranks).filter(|to| *to != me) {
        let piece = clip(part_range(x.len(), ranks, to), chunk);
        if !piece.is_empty() {
            let block = block(slot, chunk.len(), to, piece.len())?;
            core.copy(block, x.slice(piece)?).await?;
        }
    }
    Ok(())
}

/// Pulls the elements of `chunk` from every member's slot into its part of `y`, each as soon as that member has
/// arrived. My own part comes from `mine`, without the slot. Waits for every member.
pub(crate) async fn pull_parts<C: Core>(
    core: &C,
    turn: &Turn,
    members: impl Iterator<Item = (Rank, usize)>,
    mine: In,
    y: Out,
    chunk: &Range<usize>,
) -> Result<()> {
    let (me, ranks) = (turn.slot.me(), turn.slot.ranks() as usize);
    for (peer, index) in members {
        turn.wait_for(core, peer).await?;
        let piece = clip(part_range(y.len(), ranks, index), chunk);
        if piece.is_empty() {
            continue;
        }
        let source = if peer == me {
            mine
        } else {
            turn.slot.on(peer)?.slice(0..piece.len())?.into()
        };
        core.copy(y.slice(piece)?, source).await?;
    }
    Ok(())
}
