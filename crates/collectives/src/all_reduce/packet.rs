//! Packet all-reduce: everybody puts packets, everybody reduces everybody's. For small data.
//!
//! As one-phase, but payload and flag travel in one cache line, so there is one trip where one-phase has
//! two. Costs an eighth more traffic, and a copy of every peer's payload.
//!
//! Traffic per rank, for `S` bytes on `n` ranks: `8/7 S` put, `8/7 (n-1) S` read; 1 step. Exact.

use crate::Team;
use crate::arguments::same_length;
use crate::chunk::chunks;
use ringwork_isa::{
    Core, Element, Error, In, Notify, Out, PACKET_WORDS, PAYLOAD_BYTES, ReduceOp, Result, Shared, Signal,
};

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
    let Some(packets) = team.packets() else {
        return Err(Error::failed(
            "this team has no packets; declare them, or use another algorithm",
        ));
    };
    let raised = team.meet().signals().at(0)?;
    for chunk in chunks(x.len(), one_chunk::<T>(&packets)) {
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

/// Elements that are reduced at once.
#[inline]
pub(crate) fn one_chunk<T: Element>(packets: &Shared<i64>) -> usize {
    packets.half(0).len() / PACKET_WORDS * PAYLOAD_BYTES / T::DTYPE.bytes()
}

/// [`packet`] of at most [`one_chunk`], and not of nothing, by the words that it takes: at this size every one is felt.
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
    core.put_packets(slot, x, epoch).await?;
    core.notify(raised, Notify::Set(epoch)).await?;
    core.reduce_packets(y, x, slot, raised, op, epoch).await
}
