//! Small collectives in packets: payload and flag travel in one cache line, so what is staged and what says so are one trip.
//!
//! They keep the rules of a [`Team`]: every call takes an epoch of the barrier for each chunk, puts its packets into that
//! epoch's half of the room for packets, and waits for everybody. A rank's packets are laid out in blocks, one for each
//! rank that reads another part of them.

use crate::Team;
use crate::arguments::{member, same_length, times_ranks};
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
    let part = part_range(y.len(), ranks, me).len();
    same_length("`x`, my part of the gathered `y`,", x.len(), part)?;
    if ranks == 1 {
        return core.copy(y, x).await;
    }
    let longest = part_range(y.len(), ranks, 0).len();
    for chunk in room(&team, longest, 1)? {
        let call = Call::begin(core, &team, chunk.len()).await?;
        let mine = x.slice(clip(0..x.len(), &chunk))?;
        call.put(core, 0, mine).await?;
        call.arrive(core).await?;
        for (peer, index) in team.members() {
            let piece = y.slice(clip(part_range(y.len(), ranks, index), &chunk))?;
            if index == me {
                copy(core, piece, mine).await?;
            } else {
                call.get(core, 0, peer, piece).await?;
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
    let mine = part_range(x.len(), ranks, me);
    same_length("`y`, my part of the reduced `x`,", y.len(), mine.len())?;
    if ranks == 1 {
        return core.copy(y, x).await;
    }
    let longest = part_range(x.len(), ranks, 0).len();
    for chunk in room(&team, longest, ranks)? {
        let call = Call::begin(core, &team, chunk.len()).await?;
        call.put_parts(core, x, &chunk).await?;
        call.arrive(core).await?;
        let piece = y.slice(clip(0..y.len(), &chunk))?;
        if piece.is_empty() {
            call.meet(core).await?;
            continue;
        }
        let mine = x.slice(clip(mine.clone(), &chunk))?;
        let (block, raised) = (call.block(me)?, call.raised);
        core.reduce_packets(piece, mine, block, raised, op, call.epoch)
            .await?;
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
    let (_, ranks) = team.place();
    member(root, ranks)?;
    let is_root = team.rank() == root;
    if is_root {
        same_length("`x` on the root", x.len(), y.len())?;
    }
    if ranks == 1 {
        return core.copy(y, x).await;
    }
    for chunk in room(&team, y.len(), 1)? {
        let call = Call::begin(core, &team, chunk.len()).await?;
        let piece = y.slice(chunk.clone())?;
        if is_root {
            let source = x.slice(chunk)?;
            call.put(core, 0, source).await?;
            call.arrive(core).await?;
            core.copy(piece, source).await?;
        } else {
            call.arrive(core).await?;
            call.get(core, 0, root, piece).await?;
        }
        // Who has the root's packets knows that the root has begun, and of no other.
        if is_root || ranks > 2 {
            call.meet(core).await?;
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
    let mine = part_range(x.len(), ranks, me);
    let wanted = times_ranks(mine.len(), ranks)?;
    same_length("`y`, my part of `x` from every rank,", y.len(), wanted)?;
    if ranks == 1 {
        return core.copy(y, x).await;
    }
    let longest = part_range(x.len(), ranks, 0).len();
    for chunk in room(&team, longest, ranks)? {
        let call = Call::begin(core, &team, chunk.len()).await?;
        call.put_parts(core, x, &chunk).await?;
        call.arrive(core).await?;
        for (peer, index) in team.members() {
            let piece = y.slice(clip(part_range(y.len(), ranks, index), &chunk))?;
            if index == me {
                copy(core, piece, x.slice(clip(mine.clone(), &chunk))?).await?;
            } else {
                call.get(core, me, peer, piece).await?;
            }
        }
    }
    Ok(())
}

/// The chunks of `total` elements when half the room for packets has to hold `blocks` of each.
fn room<T: Element>(
    team: &Team<T>,
    total: usize,
    blocks: usize,
) -> Result<impl Iterator<Item = Range<usize>> + use<T>> {
    let lines = team
        .packets()
        .map_or(0, |packets| packets.half(0).len() / PACKET_WORDS)
        / blocks.max(1);
    if lines == 0 {
        return Err(Error::failed(format!(
            "this team has no packets for {blocks} ranks; declare them, or use another algorithm"
        )));
    }
    Ok(chunks(total, lines * PAYLOAD_BYTES / T::DTYPE.bytes()))
}

/// One chunk of one call.
struct Call {
    slot: Shared<i64>,
    /// Words of a block.
    words: usize,
    raised: Signal,
    epoch: i32,
}

impl Call {
    /// With blocks of at most `each` elements.
    #[inline(always)]
    async fn begin<C: Core, T: Element>(core: &C, team: &Team<T>, each: usize) -> Result<Call> {
        let Some(packets) = team.packets() else {
            return Err(Error::failed(
                "this team has no packets; declare them, or use another algorithm",
            ));
        };
        let raised = team.meet().signals().at(0)?;
        let epoch = core.recall(raised).await?.wrapping_add(1);
        Ok(Call {
            slot: packets.half(epoch),
            words: packets_for(each * T::DTYPE.bytes()) * PACKET_WORDS,
            raised,
            epoch,
        })
    }

    #[inline(always)]
    fn block(&self, index: usize) -> Result<Shared<i64>> {
        self.slot.slice(index * self.words..(index + 1) * self.words)
    }

    #[inline(always)]
    async fn put<C: Core, T: Element>(&self, core: &C, index: usize, data: In<T>) -> Result<()> {
        if data.is_empty() {
            return Ok(());
        }
        core.put_packets(self.block(index)?, data, self.epoch).await
    }

    /// Puts what falls into `chunk` of everybody's part of `x` but mine, part `d` into block `d`.
    #[inline(always)]
    async fn put_parts<C: Core, T: Element>(&self, core: &C, x: In<T>, chunk: &Range<usize>) -> Result<()> {
        let (me, ranks) = (self.raised.holder().0 as usize, self.raised.ranks() as usize);
        for index in (0..ranks).filter(|index| *index != me) {
            let piece = x.slice(clip(part_range(x.len(), ranks, index), chunk))?;
            self.put(core, index, piece).await?;
        }
        Ok(())
    }

    #[inline(always)]
    fn arrive<C: Core>(&self, core: &C) -> impl Future<Output = Result<()>> {
        core.notify(self.raised, Notify::Set(self.epoch))
    }

    /// Takes `data` out of block `index` of `peer`; waits for it in any case.
    #[inline(always)]
    async fn get<C: Core, T: Element>(&self, core: &C, index: usize, peer: Rank, data: Out<T>) -> Result<()> {
        let raised = self.raised.on(peer)?;
        if data.is_empty() {
            return core.wait(raised, Compare::Ge, self.epoch).await.map(drop);
        }
        let block = self.block(index)?.on(peer)?;
        core.get_packets(data, block, raised, self.epoch).await
    }

    /// Waits for everybody.
    async fn meet<C: Core>(&self, core: &C) -> Result<()> {
        let (me, ranks) = (self.raised.holder().0, self.raised.ranks());
        for peer in (me + 1..ranks).chain(0..me) {
            core.wait(self.raised.on(Rank(peer))?, Compare::Ge, self.epoch)
                .await?;
        }
        Ok(())
    }
}

async fn copy<C: Core, T: Element>(core: &C, to: Out<T>, from: In<T>) -> Result<()> {
    if from.is_empty() {
        return Ok(());
    }
    core.copy(to, from).await
}
