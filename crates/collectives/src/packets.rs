//! Small collectives in packets: payload and flag travel together, so what is staged and what says so are one trip.
//!
//! They keep the rules of a [`Team`](crate::Team): every call takes an epoch of the barrier for each chunk, puts its packets into that
//! epoch's half of the room for packets, and waits for everybody. A half has room for one packet to each rank, always at
//! the same places: where a flag was looked for once there is never anything else, that could be taken for one. Only
//! [`broadcast()`], where one rank has something to say, has a [`Ring`] of its own and does not wait.
//!
//! They are flat, with all they are made of: a future that is polled costs a small call a tenth of its time.

mod broadcast;

pub use broadcast::{Ring, broadcast, ring_packets};
pub(crate) use broadcast::{give, take};

use crate::arguments::{dealt_part, my_part, one_part};
use crate::chunk::{chunks, clip};
use crate::team::members;
use ringwork_isa::{
    Compare, Core, Element, In, LINE_WORDS, Notify, Out, Rank, ReduceOp, Result, Shared, Signal,
    packet_payload, part_range,
};
use ringwork_macros::flat;
use std::ops::Range;

/// Part `r` of `y` becomes rank `r`'s `x`; as [`all_gather`](crate::all_gather()).
///
/// # Errors
/// As [`all_gather`](crate::all_gather()).
#[flat]
pub async fn all_gather<C: Core, T: Element>(core: &C, room: &Room, x: In<T>, y: Out<T>) -> Result<()> {
    let (me, ranks) = room.place();
    one_part(&x, &y, (me, ranks))?;
    if ranks == 1 {
        return core.copy(y, x).await;
    }
    let longest = part_range(y.len(), ranks, 0).len();
    for chunk in room.chunks::<T>(longest) {
        let epoch = core.recall(room.raised).await?.wrapping_add(1);
        let half = room.half(epoch);
        let mine = x.slice(clip(0..x.len(), &chunk))?;
        if !mine.is_empty() {
            core.put_packet(half, mine, epoch).await?;
            core.foresee_packet(room.half(epoch.wrapping_add(1)), mine.len() * T::DTYPE.bytes());
        }
        core.notify(room.raised, Notify::Set(epoch)).await?;
        for (peer, index) in members(room.raised.holder(), room.raised.ranks()) {
            let piece = y.slice(clip(part_range(y.len(), ranks, index), &chunk))?;
            if index != me {
                get(core, room, half, peer, piece, epoch).await?;
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
pub async fn reduce_scatter<C: Core, T: Element>(
    core: &C,
    room: &Room,
    x: In<T>,
    y: Out<T>,
    op: ReduceOp,
) -> Result<()> {
    let (me, ranks) = room.place();
    let mine = my_part(&x, &y, (me, ranks))?;
    if ranks == 1 {
        return core.copy(y, x).await;
    }
    let longest = part_range(x.len(), ranks, 0).len();
    for chunk in room.chunks::<T>(longest) {
        let epoch = core.recall(room.raised).await?.wrapping_add(1);
        let half = room.half(epoch);
        deal(core, room, x, &chunk, epoch).await?;
        core.notify(room.raised, Notify::Set(epoch)).await?;
        let piece = y.slice(clip(0..y.len(), &chunk))?;
        if piece.is_empty() {
            room.meet(core, epoch).await?;
        } else {
            let mine = x.slice(clip(mine.clone(), &chunk))?;
            core.reduce_packets(piece, mine, room.to(half, me)?, room.raised, op, epoch)
                .await?;
        }
    }
    Ok(())
}

/// `y` becomes part `me` of everybody's `x`; as [`all_to_all`](crate::all_to_all()).
///
/// # Errors
/// As [`all_to_all`](crate::all_to_all()).
#[flat]
pub async fn all_to_all<C: Core, T: Element>(core: &C, room: &Room, x: In<T>, y: Out<T>) -> Result<()> {
    let (me, ranks) = room.place();
    let mine = dealt_part(&x, &y, (me, ranks))?;
    if ranks == 1 {
        return core.copy(y, x).await;
    }
    let longest = part_range(x.len(), ranks, 0).len();
    for chunk in room.chunks::<T>(longest) {
        let epoch = core.recall(room.raised).await?.wrapping_add(1);
        let half = room.half(epoch);
        deal(core, room, x, &chunk, epoch).await?;
        core.notify(room.raised, Notify::Set(epoch)).await?;
        for (peer, index) in members(room.raised.holder(), room.raised.ranks()) {
            let piece = y.slice(clip(part_range(y.len(), ranks, index), &chunk))?;
            if index != me {
                get(core, room, room.to(half, me)?, peer, piece, epoch).await?;
            } else if !piece.is_empty() {
                core.copy(piece, x.slice(clip(mine.clone(), &chunk))?).await?;
            }
        }
    }
    Ok(())
}

/// Puts a packet with its part of this chunk of `x` to every other rank.
#[flat]
async fn deal<C: Core, T: Element>(
    core: &C,
    room: &Room,
    x: In<T>,
    chunk: &Range<usize>,
    epoch: i32,
) -> Result<()> {
    let (me, ranks) = room.place();
    let (half, next) = (room.half(epoch), room.half(epoch.wrapping_add(1)));
    for index in (0..ranks).filter(|index| *index != me) {
        let piece = x.slice(clip(part_range(x.len(), ranks, index), chunk))?;
        if !piece.is_empty() {
            core.put_packet(room.to(half, index)?, piece, epoch).await?;
            core.foresee_packet(room.to(next, index)?, piece.len() * T::DTYPE.bytes());
        }
    }
    Ok(())
}

/// Takes `data` out of `peer`'s `packet`; waits for the peer in any case.
#[flat]
async fn get<C: Core, T: Element>(
    core: &C,
    room: &Room,
    packet: Shared<i64>,
    peer: Rank,
    data: Out<T>,
    epoch: i32,
) -> Result<()> {
    let raised = room.raised.on(peer)?;
    if data.is_empty() {
        return core.wait(raised, Compare::Ge, epoch).await.map(drop);
    }
    core.get_packet(data, packet.on(peer)?, raised, epoch).await
}

/// The room for a team's packets, and the counter of its barrier: the barrier's own steps are taken one by one, since at
/// this size a call more is felt. From [`Team::room`](crate::Team::room). A handle: copy it freely.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// By the parity of an epoch: found once, for every call asks for both.
    halves: [Shared<i64>; 2],
    pub(crate) raised: Signal,
    /// Lines of each packet; a half has one to each rank.
    lines: usize,
    most_bytes: usize,
}

impl Room {
    /// Of packets of so many `lines`.
    pub(crate) fn new(packets: Shared<i64>, raised: Signal, lines: usize) -> Room {
        Room {
            halves: [packets.half(0), packets.half(1)],
            raised,
            lines,
            most_bytes: packet_payload(lines),
        }
    }

    /// The half of an epoch.
    #[inline(always)]
    pub(crate) fn half(&self, epoch: i32) -> Shared<i64> {
        self.halves[(epoch & 1) as usize]
    }

    /// My rank and the number of ranks, for part arithmetic.
    #[inline(always)]
    fn place(&self) -> (usize, usize) {
        (self.raised.holder().0 as usize, self.raised.ranks() as usize)
    }

    /// The most bytes that one packet carries.
    #[inline(always)]
    pub(crate) fn most_bytes(&self) -> usize {
        self.most_bytes
    }

    /// The chunks of `total` elements, of which each packet carries one.
    #[inline(always)]
    fn chunks<T: Element>(&self, total: usize) -> impl Iterator<Item = Range<usize>> + use<T> {
        chunks(total, self.most_bytes() / T::DTYPE.bytes())
    }

    /// The packet to a rank, in a half.
    #[inline(always)]
    fn to(&self, half: Shared<i64>, rank: usize) -> Result<Shared<i64>> {
        let words = self.lines * LINE_WORDS;
        half.slice(rank * words..(rank + 1) * words)
    }

    /// Waits for everybody.
    #[flat]
    async fn meet<C: Core>(&self, core: &C, epoch: i32) -> Result<()> {
        core.wait_on(self.raised, 0..self.raised.ranks(), Compare::Ge, epoch)
            .await
    }
}
