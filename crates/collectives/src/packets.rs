//! Small collectives in packets: payload and flag travel together, so data and notification take one hop.
//!
//! They keep the rules of a [`Team`](crate::Team): every call takes an epoch of the barrier for each chunk, puts its
//! packets into that epoch's half of the packet memory, and waits for all ranks. A half has room for one packet to
//! each rank, always at the same places, so a word that was polled as a flag once is never payload later. Only
//! [`broadcast()`], in which one rank sends, has a [`Ring`] of its own and does not wait.
//!
//! They are flat, including the functions they call: polling a separate future costs a small call a tenth of its
//! time.

mod broadcast;

pub use crate::caches::ring_packets;
pub use broadcast::{Ring, broadcast, give, take};

use crate::arguments::{dealt_part, my_part, one_part};
use crate::chunk::{chunks, clip};
use crate::team::members;
use ringwork_isa::{
    Compare, Core, Dtype, Epoch, In, LINE_WORDS, Notify, Out, OwnSignal, Packets, Rank, ReduceOp, Result,
    Shared, part_range,
};
use ringwork_macros::flat;
use std::ops::Range;

/// Part `r` of `y` becomes rank `r`'s `x`; as [`all_gather`](crate::all_gather()).
///
/// # Errors
/// As [`all_gather`](crate::all_gather()).
#[flat]
pub async fn all_gather<C: Core>(core: &C, room: &Room, x: In, y: Out) -> Result<()> {
    let (me, ranks) = room.place();
    one_part(&x, &y, (me, ranks))?;
    if ranks == 1 {
        return core.copy(y, x).await;
    }
    let longest = part_range(y.len(), ranks, 0).len();
    for chunk in room.chunks(y.dtype(), longest) {
        let epoch = room.epoch(core).await?;
        let mine = x.slice(clip(0..x.len(), &chunk))?;
        if !mine.is_empty() {
            core.put_packet(room.for_all(), mine, epoch).await?;
        }
        room.raise(core, epoch).await?;
        for (peer, index) in members(room.me(), room.ranks()) {
            let piece = y.slice(clip(part_range(y.len(), ranks, index), &chunk))?;
            if index != me {
                get(core, room.for_all(), peer, piece, epoch).await?;
            } else if !piece.is_empty() {
                core.copy(piece, mine).await?;
            }
        }
    }
    Ok(())
}

/// `y` becomes part `me` of `x` reduced over all ranks; as [`reduce_scatter`](crate::reduce_scatter()).
///
/// # Errors
/// As [`reduce_scatter`](crate::reduce_scatter()).
#[flat]
pub async fn reduce_scatter<C: Core>(core: &C, room: &Room, x: In, y: Out, op: ReduceOp) -> Result<()> {
    let (me, ranks) = room.place();
    let mine = my_part(&x, &y, (me, ranks))?;
    if ranks == 1 {
        return core.copy(y, x).await;
    }
    let longest = part_range(x.len(), ranks, 0).len();
    for chunk in room.chunks(y.dtype(), longest) {
        let epoch = room.epoch(core).await?;
        deal(core, room, x, &chunk, epoch).await?;
        room.raise(core, epoch).await?;
        let piece = y.slice(clip(0..y.len(), &chunk))?;
        if piece.is_empty() {
            room.meet(core, epoch).await?;
        } else {
            let mine = x.slice(clip(mine.clone(), &chunk))?;
            core.reduce_packets(piece, mine, &room.for_rank(me), op, epoch)
                .await?;
        }
    }
    Ok(())
}

/// `y` becomes part `me` of the `x` of all ranks; as [`all_to_all`](crate::all_to_all()).
///
/// # Errors
/// As [`all_to_all`](crate::all_to_all()).
#[flat]
pub async fn all_to_all<C: Core>(core: &C, room: &Room, x: In, y: Out) -> Result<()> {
    let (me, ranks) = room.place();
    let mine = dealt_part(&x, &y, (me, ranks))?;
    if ranks == 1 {
        return core.copy(y, x).await;
    }
    let longest = part_range(x.len(), ranks, 0).len();
    for chunk in room.chunks(y.dtype(), longest) {
        let epoch = room.epoch(core).await?;
        deal(core, room, x, &chunk, epoch).await?;
        room.raise(core, epoch).await?;
        for (peer, index) in members(room.me(), room.ranks()) {
            let piece = y.slice(clip(part_range(y.len(), ranks, index), &chunk))?;
            if index != me {
                get(core, &room.for_rank(me), peer, piece, epoch).await?;
            } else if !piece.is_empty() {
                core.copy(piece, x.slice(clip(mine.clone(), &chunk))?).await?;
            }
        }
    }
    Ok(())
}

/// Puts a packet with each other rank's part of this chunk of `x`.
#[flat]
async fn deal<C: Core>(core: &C, room: &Room, x: In, chunk: &Range<usize>, epoch: Epoch) -> Result<()> {
    let (me, ranks) = room.place();
    for index in (0..ranks).filter(|index| *index != me) {
        let piece = x.slice(clip(part_range(x.len(), ranks, index), chunk))?;
        if !piece.is_empty() {
            core.put_packet(&room.for_rank(index), piece, epoch).await?;
        }
    }
    Ok(())
}

/// Copies the payload of `peer`'s packet to `data`; waits for the peer in any case.
#[flat]
async fn get<C: Core>(core: &C, packets: &Packets, peer: Rank, data: Out, epoch: Epoch) -> Result<()> {
    let packets = packets.on(peer)?;
    if data.is_empty() {
        return core.wait(packets.raised(), Compare::Ge, epoch).await;
    }
    core.get_packet(data, &packets, epoch).await
}

/// A team's places for packets: two halves by the parity of an epoch, each with one packet to every rank, and the counter of
/// the team's barrier, which says that a rank has put its packets. From [`Team::room`](crate::Team::room). A handle: copy it
/// freely.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// The places of the packets to rank 0. Packets to all ranks use these places too.
    first: Packets,
    /// Words of each place.
    words: usize,
    raised: OwnSignal,
    payload_bytes: usize,
}

impl Room {
    /// For packets of this many `lines`.
    pub(crate) fn new(area: Shared<i64>, raised: OwnSignal, lines: usize) -> Result<Room> {
        let words = lines * LINE_WORDS;
        let first = Packets::new(area, (0, words, area.len() / 2), 2, raised)?;
        Ok(Room {
            first,
            words,
            raised,
            payload_bytes: first.payload_bytes(),
        })
    }

    /// The place of this rank's packet to all ranks.
    #[inline(always)]
    pub(crate) fn for_all(&self) -> &Packets {
        &self.first
    }

    /// The packets to one rank, below the number of ranks.
    #[inline(always)]
    fn for_rank(&self, rank: usize) -> Packets {
        self.first.further(rank * self.words)
    }

    /// The epoch that this rank's next packets begin.
    #[flat]
    pub(crate) async fn epoch<C: Core>(&self, core: &C) -> Result<Epoch> {
        Ok(Epoch::of(core.own_value(self.raised).await?).next())
    }

    /// Notifies the barrier of the team, for ranks that sleep on it: this rank's packets have been put.
    #[inline(always)]
    pub(crate) fn raise<C: Core>(&self, core: &C, epoch: Epoch) -> impl Future<Output = Result<()>> {
        core.notify(self.raised.signal(), Notify::Set(epoch.into()))
    }

    #[inline(always)]
    fn me(&self) -> Rank {
        self.first.me()
    }

    #[inline(always)]
    fn ranks(&self) -> u32 {
        self.first.ranks()
    }

    /// My rank and the number of ranks, for computing parts.
    #[inline(always)]
    fn place(&self) -> (usize, usize) {
        (self.me().0 as usize, self.ranks() as usize)
    }

    /// The most bytes that one packet carries.
    #[inline(always)]
    #[must_use]
    pub fn most_bytes(&self) -> usize {
        self.payload_bytes
    }

    /// The chunks of `total` elements, one per packet.
    #[inline(always)]
    fn chunks(&self, dtype: Dtype, total: usize) -> impl Iterator<Item = Range<usize>> {
        chunks(total, self.most_bytes() / dtype.bytes())
    }

    /// Waits for all ranks.
    #[flat]
    async fn meet<C: Core>(&self, core: &C, epoch: Epoch) -> Result<()> {
        core.wait_on(self.raised.signal(), 0..self.ranks(), Compare::Ge, epoch)
            .await
    }
}
