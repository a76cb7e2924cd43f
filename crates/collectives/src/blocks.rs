//! Moves that several collectives share: one block per rank into the scratch, one part per rank out of it.

use crate::chunk::clip;
use crate::team::Turn;
use ringwork_isa::{Core, Element, In, Out, Rank, Result, Shared, part_range};
use std::ops::Range;

/// Block `index` of a slot that holds blocks of `each` elements; its first `len` elements.
#[track_caller]
pub(crate) fn block<T: Element>(slot: Shared<T>, each: usize, index: usize, len: usize) -> Result<Shared<T>> {
    slot.slice(index * each..index * each + len)
}

/// Stages what falls into `chunk` of each of the `parts` parts of `x` but part `except`, part `d` into block `d`.
pub(crate) async fn stage_blocks<C: Core, T: Element>(
    core: &C,
    slot: Shared<T>,
    x: In<T>,
    parts: usize,
    except: Option<usize>,
    chunk: &Range<usize>,
) -> Result<()> {
    for index in (0..parts).filter(|index| Some(*index) != except) {
        let piece = clip(part_range(x.len(), parts, index), chunk);
        if !piece.is_empty() {
            let block = block(slot, chunk.len(), index, piece.len())?;
            core.copy(block, x.slice(piece)?).await?;
        }
    }
    Ok(())
}

/// Pulls what falls into `chunk` from every member's slot into its part of `y`, each as soon as that
/// member has arrived; `mine`, which is what I staged, needs no detour. Waits for everybody.
pub(crate) async fn pull_parts<C: Core, T: Element>(
    core: &C,
    turn: &Turn<T>,
    members: impl Iterator<Item = (Rank, usize)>,
    mine: In<T>,
    y: Out<T>,
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
