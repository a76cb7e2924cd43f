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
use ringwork_macros::flat;

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
    ring: &Ring,
    x: In<T>,
    y: Out<T>,
    root: Rank,
) -> Result<()> {
    let given = ring.given;
    let is_root = rooted((given.holder(), given.ranks()), &x, &y, root)?;
    if given.ranks() == 1 {
        return core.copy(y, x).await;
    }
    for chunk in chunks(y.len(), ring.most_bytes() / T::DTYPE.bytes()) {
        let piece = y.slice(chunk.clone())?;
        if is_root {
            let source = x.slice(chunk)?;
            give(core, ring, source).await?;
            core.copy(piece, source).await?;
        } else {
            take(core, ring, piece, root).await?;
        }
    }
    Ok(())
}

/// The root's side of a [`broadcast`] of at most what one packet carries, and not of nothing.
#[flat]
pub(crate) async fn give<C: Core, T: Element>(core: &C, ring: &Ring, x: In<T>) -> Result<()> {
    let number = core.recall(ring.given).await?.wrapping_add(1);
    if ring.begins_with(number) {
        ring.meet.arrive_and_wait(core).await?;
    }
    core.put_packet(ring.packet(number)?, x, number).await?;
    core.notify(ring.given, Notify::Set(number)).await
}

/// Everybody else's side of it.
#[flat]
pub(crate) async fn take<C: Core, T: Element>(core: &C, ring: &Ring, y: Out<T>, root: Rank) -> Result<()> {
    let number = core.recall(ring.given).await?.wrapping_add(1);
    if ring.begins_with(number) {
        ring.meet.arrive_and_wait(core).await?;
    }
    // Said before it waits: so those who share its core know that it needs no turn until the packet has come.
    core.notify(ring.given, Notify::Set(number)).await?;
    let (packet, given) = (ring.packet(number)?.on(root)?, ring.given.on(root)?);
    core.get_packet(y, packet, given, number).await
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

    /// The most bytes that one packet carries.
    #[inline(always)]
    pub(crate) fn most_bytes(&self) -> usize {
        packet_payload(self.lines)
    }

    #[inline(always)]
    fn place(&self, number: i32) -> usize {
        number.cast_unsigned() as usize % ring_packets(self.given.ranks() as usize)
    }

    /// Whether the ring begins anew with this broadcast.
    #[inline(always)]
    fn begins_with(&self, number: i32) -> bool {
        self.place(number) == 0
    }

    /// My packet of this broadcast.
    #[inline(always)]
    fn packet(&self, number: i32) -> Result<Shared<i64>> {
        let (place, words) = (self.place(number), self.lines * LINE_WORDS);
        self.packets.slice(place * words..(place + 1) * words)
    }
}
