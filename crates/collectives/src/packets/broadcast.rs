//! Broadcast in packets. The root does not wait: it returns when its packet has been put.
//!
//! # Model
//! Every broadcast (of more than a packet carries: each chunk of one) has the next number `b`, the same on every rank, and
//! every rank counts them in a signal of its own. The root puts its packet into place `b mod P` of the `P` places of its ring;
//! the others take it from there, whenever they come. Before every number that begins the ring anew, everybody meets.
//!
//! # Invariants
//! - **RING-1 (in step).** The counter of a rank is written by that rank only, one more for every broadcast,
//!   whichever rank is its root.
//! - **RING-2 (read before written).** All ranks meet once in every `P` broadcasts. So when broadcast `b + P` writes to
//!   the place of `b`, every rank has finished `b`.
//!
//! Except for the meetings, no epoch of the team and none of its scratch is used: other operations do not depend on
//! how far a root is ahead.

use crate::arguments::rooted;
use crate::caches::ring_packets;
use crate::chunk::chunks;
use ringwork_isa::{
    Barrier, Core, Epoch, In, LINE_WORDS, Notify, Out, OwnSignal, Packets, Rank, Result, Shared,
};
use ringwork_macros::flat;

/// `y` becomes the root's `x`; as [`broadcast`](crate::broadcast()), but the root may return before the other ranks
/// have begun.
///
/// # Errors
/// As [`broadcast`](crate::broadcast()).
pub async fn broadcast<C: Core>(core: &C, ring: &Ring, x: In, y: Out, root: Rank) -> Result<()> {
    let given = ring.given.signal();
    let is_root = rooted((given.holder(), given.ranks()), &x, &y, root)?;
    if given.ranks() == 1 {
        return core.copy(y, x).await;
    }
    for chunk in chunks(y.len(), ring.most_bytes() / y.dtype().bytes()) {
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

/// The root's side of a [`broadcast`] of at least one element and at most one packet.
///
/// # Errors
/// As [`Core::wait`].
#[flat]
pub async fn give<C: Core>(core: &C, ring: &Ring, x: In) -> Result<()> {
    let number = ring.begin(core).await?;
    core.put_packet(&ring.packets, x, number).await?;
    core.notify(ring.given.signal(), Notify::Set(number.into())).await
}

/// The receivers' side of a [`broadcast`].
///
/// # Errors
/// As [`Core::wait`].
#[flat]
pub async fn take<C: Core>(core: &C, ring: &Ring, y: Out, root: Rank) -> Result<()> {
    let number = ring.begin(core).await?;
    // Notified before the wait, so that ranks on the same core know that this rank needs no processor time until the
    // packet arrives.
    core.notify(ring.given.signal(), Notify::Set(number.into()))
        .await?;
    core.get_packet(y, &ring.packets.on(root)?, number).await
}

/// The ring of packets that broadcasts go through. From [`Team::ring`](crate::Team::ring). A handle: copy it freely.
#[derive(Clone, Copy, Debug)]
pub struct Ring {
    packets: Packets,
    /// The signal that counts the broadcasts of this rank.
    given: OwnSignal,
    meet: Barrier,
}

impl Ring {
    /// For packets of this many `lines`.
    pub(crate) fn new(area: Shared<i64>, given: OwnSignal, meet: Barrier, lines: usize) -> Result<Ring> {
        let words = lines * LINE_WORDS;
        let places = ring_packets(area.ranks() as usize);
        let places = u32::try_from(places).unwrap_or(u32::MAX);
        Ok(Ring {
            packets: Packets::new(area, (0, words, words), places, given)?,
            given,
            meet,
        })
    }

    /// The most bytes that one packet carries.
    #[inline(always)]
    #[must_use]
    pub fn most_bytes(&self) -> usize {
        self.packets.payload_bytes()
    }

    /// The number of this rank's next broadcast. All ranks meet here if the ring starts again with it (RING-2).
    #[flat]
    async fn begin<C: Core>(&self, core: &C) -> Result<Epoch> {
        let number = Epoch::of(core.own_value(self.given).await?).next();
        if number.place(self.packets.places()) == 0 {
            self.meet.arrive_and_wait(core).await?;
        }
        Ok(number)
    }
}
