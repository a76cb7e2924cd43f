//! Broadcast in packets, whose root does not wait: it goes on when its packet is put.
//!
//! # Model
//! Every broadcast (of more than a packet carries: each chunk of one) has the next number `b`, the same on every rank, and
//! every rank counts them in a signal of its own. The root puts its packet into place `b mod P` of the `P` places of its ring;
//! the others take it from there, whenever they come. Before every number that begins the ring anew, everybody meets.
//!
//! # Invariants
//! - **RING-1 (in step).** The counter of a rank is written by that rank only, one more for every broadcast, whoever is its
//!   root.
//! - **RING-2 (read before written).** A place is written again, for `b + P`, after a meeting that began after every rank had ended
//!   `b`: one of every `P` numbers in a row begins the ring.
//!
//! Beside the meetings no epoch of the team is taken, and nothing of its scratch: other operations neither see nor mind
//! how far a root is ahead.

use crate::arguments::rooted;
use crate::chunk::chunks;
use ringwork_isa::{
    Barrier, Core, Element, In, LINE_WORDS, Notify, Out, Rank, Result, Shared, Signal, packet_payload,
};

/// The packets of a ring of `ranks`: how far a root may be ahead.
///
/// Those of two ranks stay in their nearest caches. With more, who may share cores, a meeting costs more than that is worth: every
/// rank needs a turn for it.
#[must_use]
#[inline]
pub const fn ring_packets(ranks: usize) -> usize {
    if ranks <= 2 { 8 } else { 64 }
}
const _: () = assert!(
    ring_packets(2).is_power_of_two() && ring_packets(3).is_power_of_two(),
    "numbers wrap, and places go on in their order"
);

/// `y` becomes the root's `x`; as [`broadcast`](crate::broadcast()), but the root may return before anybody else has begun.
///
/// # Errors
/// As [`broadcast`](crate::broadcast()).
pub async fn broadcast<C: Core, T: Element>(
    core: &C,
    ring: Ring,
    x: In<T>,
    y: Out<T>,
    root: Rank,
) -> Result<()> {
    let given = ring.given;
    let is_root = rooted((given.holder(), given.ranks()), &x, &y, root)?;
    if given.ranks() == 1 {
        return core.copy(y, x).await;
    }
    for chunk in chunks(y.len(), packet_payload(ring.lines) / T::DTYPE.bytes()) {
        let number = core.recall(given).await?.wrapping_add(1);
        let place = number.cast_unsigned() as usize % ring_packets(given.ranks() as usize);
        if place == 0 {
            ring.meet.arrive_and_wait(core).await?;
        }
        let words = ring.lines * LINE_WORDS;
        let packet = ring.packets.slice(place * words..(place + 1) * words)?;
        let piece = y.slice(chunk.clone())?;
        if is_root {
            let source = x.slice(chunk)?;
            core.put_packet(packet, source, number).await?;
            core.notify(given, Notify::Set(number)).await?;
            core.copy(piece, source).await?;
        } else {
            // Said before it waits: so those who share its core know that it needs no turn until the packet has come.
            core.notify(given, Notify::Set(number)).await?;
            core.get_packet(piece, packet.on(root)?, given.on(root)?, number)
                .await?;
        }
    }
    Ok(())
}

/// The ring of packets that broadcasts go through. From [`Team::ring`](crate::Team::ring). A handle: copy it freely.
#[derive(Clone, Copy, Debug)]
pub struct Ring {
    packets: Shared<i64>,
    given: Signal,
    meet: Barrier,
    /// Lines of each packet.
    lines: usize,
}

impl Ring {
    /// Of packets of so many `lines`.
    pub(crate) fn new(packets: Shared<i64>, given: Signal, meet: Barrier, lines: usize) -> Ring {
        Ring {
            packets,
            given,
            meet,
            lines,
        }
    }
}
