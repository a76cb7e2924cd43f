//! Small collectives in packets: payload and flag travel in one cache line, so what is staged and what says so are one trip.
//!
//! They keep the rules of a [`Team`]: every call takes an epoch of the barrier for each chunk, puts its packets into that
//! epoch's half of the room for packets, and waits for everybody. A rank's packets are laid out in blocks, one for each
//! rank that reads another part of them.
//!
//! The steps are written out in each, the two loops that deal parts to blocks included: functions with instructions in them
//! are futures more, and without those the calls are up to a tenth faster.

use crate::Team;
use crate::arguments::{dealt_part, my_part, one_part, rooted};
use crate::chunk::{chunks, clip};
use ringwork_isa::{
    Compare, Core, Element, Error, In, Notify, Out, PACKET_WORDS, PAYLOAD_BYTES, Rank, ReduceOp, Result,
    Shared, Signal, packets_for, part_range,
};
use std::ops::Range;

/// Part `r` of `y` becomes rank `r`'s `x`; as [`all_gather`](crate::all_gather()).
///
/// # Errors
/// As [`all_gather`](crate::all_gather()), or if the team has no packets.
pub async fn all_gather<C: Core, T: Element>(core: &C, team: Team<T>, x: In<T>, y: Out<T>) -> Result<()> {
    let (me, ranks) = team.place();
    one_part(&x, &y, (me, ranks))?;
    if ranks == 1 {
        return core.copy(y, x).await;
    }
    let (room, longest) = (Room::of(&team)?, part_range(y.len(), ranks, 0).len());
    for chunk in room.chunks::<T>(longest, 1)? {
        let epoch = core.recall(room.raised).await?.wrapping_add(1);
        let blocks = room.blocks::<T>(epoch, chunk.len());
        let mine = x.slice(clip(0..x.len(), &chunk))?;
        if !mine.is_empty() {
            core.put_packets(blocks.at(0)?, mine, epoch).await?;
        }
        core.notify(room.raised, Notify::Set(epoch)).await?;
        for (peer, index) in team.members() {
            let piece = y.slice(clip(part_range(y.len(), ranks, index), &chunk))?;
            if index != me {
                get(core, &room, blocks.at(0)?, peer, piece, epoch).await?;
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
/// As [`reduce_scatter`](crate::reduce_scatter()), or if the team has no packets.
pub async fn reduce_scatter<C: Core, T: Element>(
    core: &C,
    team: Team<T>,
    x: In<T>,
    y: Out<T>,
    op: ReduceOp,
) -> Result<()> {
    let (me, ranks) = team.place();
    let mine = my_part(&x, &y, (me, ranks))?;
    if ranks == 1 {
        return core.copy(y, x).await;
    }
    let (room, longest) = (Room::of(&team)?, part_range(x.len(), ranks, 0).len());
    for chunk in room.chunks::<T>(longest, ranks)? {
        let epoch = core.recall(room.raised).await?.wrapping_add(1);
        let blocks = room.blocks::<T>(epoch, chunk.len());
        for index in (0..ranks).filter(|index| *index != me) {
            let piece = x.slice(clip(part_range(x.len(), ranks, index), &chunk))?;
            if !piece.is_empty() {
                core.put_packets(blocks.at(index)?, piece, epoch).await?;
            }
        }
        core.notify(room.raised, Notify::Set(epoch)).await?;
        let piece = y.slice(clip(0..y.len(), &chunk))?;
        if piece.is_empty() {
            room.meet(core, epoch).await?;
        } else {
            let mine = x.slice(clip(mine.clone(), &chunk))?;
            core.reduce_packets(piece, mine, blocks.at(me)?, room.raised, op, epoch)
                .await?;
        }
    }
    Ok(())
}

/// `y` becomes the root's `x`; as [`broadcast`](crate::broadcast()).
///
/// # Errors
/// As [`broadcast`](crate::broadcast()), or if the team has no packets.
pub async fn broadcast<C: Core, T: Element>(
    core: &C,
    team: Team<T>,
    x: In<T>,
    y: Out<T>,
    root: Rank,
) -> Result<()> {
    let is_root = rooted(&team, &x, &y, root)?;
    if team.ranks() == 1 {
        return core.copy(y, x).await;
    }
    let room = Room::of(&team)?;
    for chunk in room.chunks::<T>(y.len(), 1)? {
        let epoch = core.recall(room.raised).await?.wrapping_add(1);
        let block = room.blocks::<T>(epoch, chunk.len()).at(0)?;
        let piece = y.slice(chunk.clone())?;
        if is_root {
            let source = x.slice(chunk)?;
            core.put_packets(block, source, epoch).await?;
            core.notify(room.raised, Notify::Set(epoch)).await?;
            core.copy(piece, source).await?;
        } else {
            core.notify(room.raised, Notify::Set(epoch)).await?;
            core.get_packets(piece, block.on(root)?, room.raised.on(root)?, epoch)
                .await?;
        }
        // Who has the root's packets knows that the root has begun, and of no other.
        if is_root || team.ranks() > 2 {
            room.meet(core, epoch).await?;
        }
    }
    Ok(())
}

/// `y` becomes part `me` of everybody's `x`; as [`all_to_all`](crate::all_to_all()).
///
/// # Errors
/// As [`all_to_all`](crate::all_to_all()), or if the team has no packets.
pub async fn all_to_all<C: Core, T: Element>(core: &C, team: Team<T>, x: In<T>, y: Out<T>) -> Result<()> {
    let (me, ranks) = team.place();
    let mine = dealt_part(&x, &y, (me, ranks))?;
    if ranks == 1 {
        return core.copy(y, x).await;
    }
    let (room, longest) = (Room::of(&team)?, part_range(x.len(), ranks, 0).len());
    for chunk in room.chunks::<T>(longest, ranks)? {
        let epoch = core.recall(room.raised).await?.wrapping_add(1);
        let blocks = room.blocks::<T>(epoch, chunk.len());
        for index in (0..ranks).filter(|index| *index != me) {
            let piece = x.slice(clip(part_range(x.len(), ranks, index), &chunk))?;
            if !piece.is_empty() {
                core.put_packets(blocks.at(index)?, piece, epoch).await?;
            }
        }
        core.notify(room.raised, Notify::Set(epoch)).await?;
        for (peer, index) in team.members() {
            let piece = y.slice(clip(part_range(y.len(), ranks, index), &chunk))?;
            if index != me {
                get(core, &room, blocks.at(me)?, peer, piece, epoch).await?;
            } else if !piece.is_empty() {
                core.copy(piece, x.slice(clip(mine.clone(), &chunk))?).await?;
            }
        }
    }
    Ok(())
}

/// Takes `data` out of `peer`'s `block`; waits for the peer in any case.
#[inline(always)]
fn get<C: Core, T: Element>(
    core: &C,
    room: &Room,
    block: Shared<i64>,
    peer: Rank,
    data: Out<T>,
    epoch: i32,
) -> impl Future<Output = Result<()>> {
    let raised = room.raised;
    async move {
        if data.is_empty() {
            return core.wait(raised.on(peer)?, Compare::Ge, epoch).await.map(drop);
        }
        core.get_packets(data, block.on(peer)?, raised.on(peer)?, epoch)
            .await
    }
}

/// The room for a team's packets, and the counter of its barrier: the barrier's own steps are taken one by one, since at
/// this size a call more is felt.
struct Room {
    packets: Shared<i64>,
    raised: Signal,
}

impl Room {
    #[inline(always)]
    fn of<T: Element>(team: &Team<T>) -> Result<Room> {
        let Some(packets) = team.packets() else {
            return Err(Error::failed(
                "this team has no packets; declare them, or use another algorithm",
            ));
        };
        let raised = team.meet().signals().at(0)?;
        Ok(Room { packets, raised })
    }

    /// The chunks of `total` elements when half the room has to hold `blocks` of each.
    #[inline(always)]
    fn chunks<T: Element>(
        &self,
        total: usize,
        blocks: usize,
    ) -> Result<impl Iterator<Item = Range<usize>> + use<T>> {
        let lines = self.packets.half(0).len() / PACKET_WORDS / blocks.max(1);
        if lines == 0 {
            return Err(Error::failed(format!(
                "this team has no packets for {blocks} ranks; declare them, or use another algorithm"
            )));
        }
        Ok(chunks(total, lines * PAYLOAD_BYTES / T::DTYPE.bytes()))
    }

    /// The blocks of `each` elements that an epoch has.
    #[inline(always)]
    fn blocks<T: Element>(&self, epoch: i32, each: usize) -> Blocks {
        Blocks {
            slot: self.packets.half(epoch),
            words: packets_for(each * T::DTYPE.bytes()) * PACKET_WORDS,
        }
    }

    /// Waits for everybody.
    async fn meet<C: Core>(&self, core: &C, epoch: i32) -> Result<()> {
        let (me, ranks) = (self.raised.holder().0, self.raised.ranks());
        for peer in (me + 1..ranks).chain(0..me) {
            core.wait(self.raised.on(Rank(peer))?, Compare::Ge, epoch).await?;
        }
        Ok(())
    }
}

/// A rank's packets for one chunk, one block for each rank that reads another part of them.
struct Blocks {
    slot: Shared<i64>,
    /// Words of a block.
    words: usize,
}

impl Blocks {
    #[inline(always)]
    fn at(&self, index: usize) -> Result<Shared<i64>> {
        self.slot.slice(index * self.words..(index + 1) * self.words)
    }
}
