//! Broadcast: every rank gets the root's data.
//!
//! Model: the root stages piece by piece and counts the pieces; all other ranks pull each piece as soon as it is
//! counted. No rank waits for the slowest reader: staged data stays until the operation after the next.
//!
//! Traffic, for `S` bytes: the root stages `S`, every other rank pulls `S`; as many steps as there are pieces.

use crate::Team;
use crate::arguments::rooted;
use crate::chunk::chunks;
use ringwork_isa::{Compare, Core, In, Notify, Out, Rank, Result};

/// The number of pieces that data is cut into, and the least and the most bytes of a piece. While the other ranks
/// pull one piece, the root stages the next.
const PIECES: usize = 8;
const LEAST_BYTES: usize = 4 << 10;
const MOST_BYTES: usize = 32 << 10;
/// Ranks meet after this many bytes. A piece is read as soon as it is staged, however many follow.
const CHUNK_BYTES: usize = 1 << 20;

/// `y` becomes the root's `x`, on every rank; `x` elsewhere is not read.
///
/// In place if `x` on the root is `y`.
///
/// # Errors
/// If the root's `x` and `y` are not equally long, `root` is not a member, the scratch cannot hold one
/// element per half, or as [`Core::wait`].
pub async fn broadcast<C: Core>(core: &C, team: Team, x: In, y: Out, root: Rank) -> Result<()> {
    let is_root = rooted((team.rank(), team.ranks()), &x, &y, root)?;
    if team.ranks() == 1 {
        return core.copy(y, x).await;
    }
    let own_counter = team.steps().own(0)?;
    let (counter, size) = (own_counter.signal(), y.dtype().bytes());
    for chunk in team.chunks_within(y.len(), 1, CHUNK_BYTES)? {
        let turn = team.turn_of_one(core, chunk.len()).await?;
        let (slot, target) = (turn.slot.slice(0..chunk.len())?, y.slice(chunk.clone())?);
        let mut count = core.own_value(own_counter).await?;
        turn.arrive(core).await?;
        for piece in chunks(chunk.len(), piece_bytes(chunk.len() * size) / size) {
            count = count.wrapping_add(1);
            if is_root {
                let source = x.slice(chunk.start + piece.start..chunk.start + piece.end)?;
                core.copy(slot.slice(piece)?, source).await?;
                core.notify(counter, Notify::Set(count)).await?;
            } else {
                core.wait(counter.on(root)?, Compare::Ge, count).await?;
                core.copy(target.slice(piece.clone())?, slot.on(root)?.slice(piece)?)
                    .await?;
            }
        }
        if is_root {
            core.copy(target, x.slice(chunk)?).await?;
        } else {
            core.notify(counter, Notify::Set(count)).await?;
        }
        turn.wait_for_all(core).await?;
    }
    Ok(())
}

fn piece_bytes(bytes: usize) -> usize {
    (bytes / PIECES)
        .next_power_of_two()
        .clamp(LEAST_BYTES, MOST_BYTES)
}
