//! Packet all-reduce: everybody puts packets, everybody reduces everybody's. For small data.
//!
//! As one-phase, but what is staged carries its own flag: up to 56 bytes travel with it, in one trip where one-phase has
//! two, and more needs no meeting beside.
//!
//! Traffic per rank, for `S` bytes on `n` ranks: `S` put, `(n-1) S` read, and a line more each; 1 step. Exact.

use crate::Team;
use crate::arguments::same_length;
use crate::chunk::chunks;
use crate::packets::{lines_each, no_packets};
use ringwork_isa::{Core, Element, In, Notify, Out, ReduceOp, Result, Shared, Signal, packet_payload};

/// `y[i]` becomes `x[i]` reduced over all ranks, on every rank; data and flags travel together.
///
/// In place if `y` is `x`.
///
/// # Errors
/// If `x` and `y` are not equally long, the team has no packets, or as [`Core::wait`].
pub async fn packet<C: Core, T: Element>(
    core: &C,
    team: Team<T>,
    x: In<T>,
    y: Out<T>,
    op: ReduceOp,
) -> Result<()> {
    same_length("`y`", y.len(), x.len())?;
    if team.ranks() == 1 {
        return core.copy(y, x).await;
    }
    if x.is_empty() {
        return Ok(());
    }
    let packets = team.packets().ok_or_else(no_packets)?;
    let raised = team.meet().signals().at(0)?;
    for chunk in chunks(x.len(), most_bytes(&packets) / T::DTYPE.bytes()) {
        packet_chunk(
            core,
            &packets,
            &raised,
            x.slice(chunk.clone())?,
            y.slice(chunk)?,
            op,
        )
        .await?;
    }
    Ok(())
}

/// Bytes that are reduced at once.
pub(crate) fn most_bytes(packets: &Shared<i64>) -> usize {
    packet_payload(lines_each(packets))
}

/// [`packet`] of at most [`most_bytes`], and not of nothing, by the words that it takes: at this size every one is felt.
#[inline]
pub(crate) async fn packet_chunk<C: Core, T: Element>(
    core: &C,
    packets: &Shared<i64>,
    raised: &Signal,
    x: In<T>,
    y: Out<T>,
    op: ReduceOp,
) -> Result<()> {
    // The barrier's own steps, one by one.
    let raised = *raised;
    let epoch = core.recall(raised).await?.wrapping_add(1);
    let slot = packets.half(epoch);
    core.put_packet(slot, x, epoch).await?;
    core.notify(raised, Notify::Set(epoch)).await?;
    core.reduce_packets(y, x, slot, raised, op, epoch).await
}
