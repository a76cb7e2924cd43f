//! Packet all-reduce: every rank puts packets to all others and reduces the packets of all ranks. For small data.
//!
//! As one-phase, but the data carries its own flag: up to 56 bytes share the flag's cache line and take one hop where
//! one-phase takes two, and longer packets need no separate meeting.
//!
//! Traffic per rank, for `S` bytes on `n` ranks: `S` put, `(n-1) S` read, and a line more each; 1 step. Exact.

use crate::Team;
use crate::arguments::same_length;
use crate::chunk::chunks;
use crate::packets::Room;
use ringwork_isa::{Core, In, Out, ReduceOp, Result};
use ringwork_macros::flat;

/// `y[i]` becomes `x[i]` reduced over all ranks, on every rank; data and flags travel in the same packets. In place
/// if `y` is `x`.
///
/// In place if `y` is `x`.
///
/// # Errors
/// If `x` and `y` are not equally long, the team has no packets, or as [`Core::wait`].
pub async fn packet<C: Core>(core: &C, team: Team, x: In, y: Out, op: ReduceOp) -> Result<()> {
    same_length("`y`", y.len(), x.len())?;
    if team.ranks() == 1 {
        return core.copy(y, x).await;
    }
    if x.is_empty() {
        return Ok(());
    }
    let room = team.room()?;
    for chunk in chunks(x.len(), room.most_bytes() / x.dtype().bytes()) {
        packet_chunk(core, &room, x.slice(chunk.clone())?, y.slice(chunk)?, op).await?;
    }
    Ok(())
}

/// [`packet()`] for at least one element and at most one packet. For callers that know the size: the checks and the
/// loop over chunks of [`packet()`] cost a 4-byte call a tenth of its time.
///
/// # Errors
/// As [`Core::wait`].
#[flat]
pub async fn packet_chunk<C: Core>(core: &C, room: &Room, x: In, y: Out, op: ReduceOp) -> Result<()> {
    let (packets, epoch) = (room.for_all(), room.epoch(core).await?);
    core.put_packet(packets, x, epoch).await?;
    room.raise(core, epoch).await?;
    core.reduce_packets(y, x, packets, op, epoch).await
}
