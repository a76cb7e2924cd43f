//! The memory that members of a domain share for staged collectives: scratch, a barrier, step counters.

use crate::arguments::same_domain;
use crate::caches::{LEAST_PLACES, MOST_STAGED_BYTES, MOVED_WITHIN_BYTES, WORTH_MOVING_BYTES, ring_packets};
use crate::chunk::chunks;
use crate::packets::{Ring, Room};
use ringwork_isa::{
    Barrier, Compare, Core, Dtype, ElementType, Epoch, Error, LINE_WORDS, Notify, Rank, Result, Shared,
    Signal, Signals, packet_lines,
};
use ringwork_macros::flat;
use std::ops::Range;

/// The members of a domain, ready to run staged collectives together. A handle: copy it freely.
///
/// # Model
/// Every operation (a collective whose data fits; otherwise each chunk of one) takes the next epoch `e`
/// of the barrier and works in the half of the scratch that belongs to the parity of `e`. Its single
/// barrier separates staging from reading; the next operation works in the other half, so nobody needs to
/// wait for the slowest reader. Algorithms with more steps inside count them in `steps`.
///
/// # Invariants
/// - **TEAM-1 (one writer).** A counter of rank `r`, in the barrier or in `steps`, is written by `r` only.
/// - **TEAM-2 (in step).** Every operation adds the same amount to each counter on every rank, and never resets one.
///   So between operations my counters equal those of all ranks, and tell an operation where its own count starts.
/// - **TEAM-3 (one epoch, one half).** An operation that uses the scratch uses one epoch `e`, and only `half(e)` of
///   the scratch. (With two epochs the next operation would have the same parity.)
/// - **TEAM-4 (no rank ahead).** An operation that takes an epoch ends on a rank only after every rank has begun it,
///   and begins on a rank only after the operation before has ended there. (A [broadcast in
///   packets](crate::packets::broadcast) takes no epoch.)
///
/// Hence the operation of epoch `e + 2` writes `half(e)` only after the operation of `e + 1` has ended on the writer.
/// Then it has begun on every rank, so every rank has ended the operation of `e`.
///
/// Teams of different element types may share the same scratch bytes, barrier and steps, if the bytes are
/// a multiple of 16: then both halves are the same bytes for every type.
#[derive(Clone, Copy, Debug)]
pub struct Team {
    scratch: Shared,
    meet: Barrier,
    steps: Signals,
    packets: Option<Shared<i64>>,
}

impl Team {
    /// Step counters that a team needs on every rank: one per direction around a ring, one of broadcasts in packets, and one
    /// of what was staged.
    pub const STEP_CELLS: u32 = 4;

    /// A team over a scratch buffer, a barrier and step counters. Only teams over the same three may use them.
    ///
    /// # Errors
    /// If the three are not of one domain, or there are fewer than [`STEP_CELLS`](Team::STEP_CELLS).
    #[track_caller]
    pub fn new<T: ElementType>(scratch: Shared<T>, meet: Barrier, steps: Signals) -> Result<Team> {
        let scratch = scratch.erase();
        same_domain("the scratch", &scratch, &meet)?;
        if (steps.rank(), steps.ranks()) != (meet.rank(), meet.ranks()) {
            return Err(Error::failed(format!(
                "the step signals are held by rank {} of {}, the barrier by rank {} of {}; open both on one domain",
                steps.rank(),
                steps.ranks(),
                meet.rank(),
                meet.ranks()
            )));
        }
        if steps.count < Self::STEP_CELLS {
            return Err(Error::failed(format!(
                "a team needs {} step signals and got {}; declare that many",
                Self::STEP_CELLS,
                steps.count
            )));
        }
        Ok(Team {
            scratch,
            meet,
            steps,
            packets: None,
        })
    }

    /// The same team for elements of another type.
    #[must_use]
    #[inline]
    pub fn of(self, dtype: Dtype) -> Team {
        Team {
            scratch: self.scratch.viewed_as(dtype),
            ..self
        }
    }

    /// A team of handles that are known to belong together.
    #[inline]
    #[must_use]
    pub fn with_all(scratch: Shared, meet: Barrier, steps: Signals, packets: Shared<i64>) -> Team {
        debug_assert!(Team::new(scratch, meet, steps).is_ok_and(|team| team.with_packets(packets).is_ok()));
        Team {
            scratch,
            meet,
            steps,
            packets: Some(packets),
        }
    }

    /// The words that packets of a team need, for this many payload bytes each: one packet to each rank in both
    /// halves, and the ring of broadcasts.
    #[must_use]
    pub fn packet_words(ranks: usize, bytes: usize) -> usize {
        packets_of(ranks) * packet_lines(bytes) * LINE_WORDS
    }

    /// The same team with memory for packets, which [`packet`](crate::all_reduce::packet) needs: as many words as
    /// [`packet_words`](Team::packet_words) says for some number of bytes.
    ///
    /// # Errors
    /// If it is not of the same domain, or no whole packets.
    #[track_caller]
    pub fn with_packets(self, packets: Shared<i64>) -> Result<Team> {
        same_domain("the packets", &packets.erase(), &self.meet)?;
        let unit = packets_of(self.ranks() as usize) * LINE_WORDS;
        if packets.is_empty() || !packets.len().is_multiple_of(unit) {
            let (words, ranks) = (packets.len(), self.ranks());
            return Err(Error::failed(format!(
                "{words} words are no whole packets to {ranks} ranks for both halves and a ring; declare a multiple of {unit}"
            )));
        }
        Ok(Team {
            packets: Some(packets),
            ..self
        })
    }

    /// The memory for packets.
    ///
    /// # Errors
    /// If there is none.
    #[inline]
    pub fn room(&self) -> Result<Room> {
        let (packets, lines) = self.packets()?;
        let halves = packets.slice(0..self.ring_at(lines))?;
        Room::new(halves, self.meet.signals().own(0)?, lines)
    }

    /// The ring of packets that broadcasts go through.
    ///
    /// # Errors
    /// If there is none.
    #[inline]
    pub fn ring(&self) -> Result<Ring> {
        let (packets, lines) = self.packets()?;
        let ring = packets.slice(self.ring_at(lines)..packets.len())?;
        Ring::new(ring, self.steps.own(GIVEN)?, self.meet, lines)
    }

    /// All packets, and the lines of each.
    #[inline]
    fn packets(&self) -> Result<(Shared<i64>, usize)> {
        let Some(packets) = self.packets else {
            return Err(Error::failed(
                "this team has no packets; declare them, or use another algorithm",
            ));
        };
        let lines = packets.len() / packets_of(self.ranks() as usize) / LINE_WORDS;
        Ok((packets, lines))
    }

    /// The index of the ring's first word: after both halves of the packet memory.
    #[inline]
    fn ring_at(&self, lines: usize) -> usize {
        2 * self.ranks() as usize * lines * LINE_WORDS
    }

    /// The rank that holds this handle.
    #[must_use]
    #[inline]
    pub fn rank(&self) -> Rank {
        self.meet.rank()
    }

    /// Members of the domain.
    #[must_use]
    #[inline]
    pub fn ranks(&self) -> u32 {
        self.meet.ranks()
    }

    /// The staging memory.
    #[must_use]
    #[inline]
    pub fn scratch(&self) -> Shared {
        self.scratch
    }

    /// The barrier.
    #[must_use]
    #[inline]
    pub fn meet(&self) -> Barrier {
        self.meet
    }

    /// The step counters.
    #[must_use]
    #[inline]
    pub fn steps(&self) -> Signals {
        self.steps
    }

    /// My rank and the number of ranks, for computing parts.
    pub(crate) fn place(&self) -> (usize, usize) {
        (self.rank().0 as usize, self.ranks() as usize)
    }

    /// Every member, beginning with me, so that not all ranks read from the same one at once.
    pub(crate) fn members(&self) -> impl Iterator<Item = (Rank, usize)> {
        members(self.rank(), self.ranks())
    }

    /// The chunks of `total` elements if half the scratch holds `blocks` blocks of each chunk.
    ///
    /// # Errors
    /// If it cannot hold even one element of each.
    #[track_caller]
    pub(crate) fn chunks(&self, total: usize, blocks: usize) -> Result<impl Iterator<Item = Range<usize>>> {
        self.chunks_within(total, blocks, (self.ranks() as usize - 1) * MOST_STAGED_BYTES)
    }

    /// The same, but at most `most_bytes` per chunk if not everything fits at once.
    #[track_caller]
    pub(crate) fn chunks_within(
        &self,
        total: usize,
        blocks: usize,
        most_bytes: usize,
    ) -> Result<impl Iterator<Item = Range<usize>>> {
        let half = self.scratch.len() / 2;
        if total > 0 && half < blocks {
            return Err(Error::failed(format!(
                "the scratch holds {half} elements per half, and this collective over {} ranks needs at least \
                 {blocks}; declare a scratch of {} elements or more",
                self.ranks(),
                blocks.saturating_mul(2)
            )));
        }
        Ok(chunks(
            total,
            half.min(most_bytes / self.scratch.dtype().bytes()) / blocks.max(1),
        ))
    }

    /// Begins an operation in which every rank stages at most `len` elements, the same number on every rank. Returns
    /// the epoch, and with it the place in the scratch.
    #[flat]
    pub(crate) async fn turn<C: Core>(&self, core: &C, len: usize) -> Result<Turn> {
        self.turn_within(core, len, MOVED_WITHIN_BYTES).await
    }

    /// Begins an operation in which only one rank stages. A given rank stages less often then, so its places rotate
    /// further.
    #[flat]
    pub(crate) async fn turn_of_one<C: Core>(&self, core: &C, len: usize) -> Result<Turn> {
        self.turn_within(core, len, 2 * MOVED_WITHIN_BYTES).await
    }

    #[flat]
    async fn turn_within<C: Core>(&self, core: &C, len: usize, bytes: usize) -> Result<Turn> {
        let own = self.meet.signals().own(0)?;
        let (arrivals, epoch) = (own.signal(), Epoch::of(core.own_value(own).await?).next());
        let half = self.scratch.half(epoch);
        let each = len.next_power_of_two();
        let size = half.dtype().bytes();
        let places = half.len().min(bytes / size) / each;
        let slot = if len * size < WORTH_MOVING_BYTES || places < LEAST_PLACES {
            half
        } else {
            let staged = self.steps.own(STAGED)?;
            let count = core.own_value(staged).await?;
            core.notify(staged.signal(), Notify::Set(count.wrapping_add(1)))
                .await?;
            half.slice(place(count, places) * each..half.len())?
        };
        Ok(Turn {
            slot,
            arrivals,
            epoch,
        })
    }
}

/// The staging place of operation `count`: round-robin, shifted by one per lap, so that callers of every second or
/// fourth operation visit all places too.
#[inline(always)]
fn place(count: i32, places: usize) -> usize {
    let count = count.cast_unsigned() as usize;
    (count + count / places) % places
}

/// The step counters of packet broadcasts, and of staged data.
const GIVEN: u32 = 2;
const STAGED: u32 = 3;

/// The packets of each rank: one to every rank in both halves, and the ring.
#[inline]
fn packets_of(ranks: usize) -> usize {
    2 * ranks + ring_packets(ranks)
}

/// Every member, beginning with me and wrapping around.
#[inline(always)]
pub(crate) fn members(me: Rank, ranks: u32) -> impl Iterator<Item = (Rank, usize)> {
    (0..ranks).map(move |step| {
        let peer = (me.0 + step) % ranks;
        (Rank(peer), peer as usize)
    })
}

/// One operation of a team: its epoch and its half of the scratch (TEAM-3).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turn {
    /// My half of the scratch for this operation.
    pub(crate) slot: Shared,
    /// My counter of the barrier. The steps of the barrier are called one by one, because another call would cost
    /// measurable time here.
    arrivals: Signal,
    epoch: Epoch,
}

impl Turn {
    /// Tells all ranks that my staged data is ready. Once per operation.
    #[inline(always)]
    pub(crate) fn arrive<C: Core>(&self, core: &C) -> impl Future<Output = Result<()>> {
        core.notify(self.arrivals, Notify::Set(self.epoch.into()))
    }

    /// Waits until `peer` has arrived. An operation must wait for every rank before it ends (TEAM-4).
    #[flat]
    pub(crate) async fn wait_for<C: Core>(&self, core: &C, peer: Rank) -> Result<()> {
        if peer != self.arrivals.holder() {
            core.wait(self.arrivals.on(peer)?, Compare::Ge, self.epoch)
                .await?;
        }
        Ok(())
    }

    /// Arrives and waits for every rank.
    #[flat]
    pub(crate) async fn meet<C: Core>(&self, core: &C) -> Result<()> {
        self.arrive(core).await?;
        self.wait_for_all(core).await
    }

    /// Waits until every rank has arrived.
    #[flat]
    pub(crate) async fn wait_for_all<C: Core>(&self, core: &C) -> Result<()> {
        core.wait_on(self.arrivals, 0..self.arrivals.ranks(), Compare::Ge, self.epoch)
            .await
    }
}

#[cfg(test)]
mod tests {
    use super::place;

    #[test]
    fn a_place_is_not_taken_again_for_long_whether_every_operation_takes_one_or_every_second_or_fourth() {
        for places in [4usize, 8, 32, 256] {
            for every in [1, 2, 4] {
                let mut taken = vec![None; places];
                for (turn, count) in (0i32..).step_by(every).enumerate().take(8 * places) {
                    let before = taken[place(count, places)].replace(turn);
                    assert!(
                        before.is_none_or(|before| turn - before >= places / 2),
                        "{places} places, every {every}: {before:?}, {turn}"
                    );
                }
                assert!(
                    taken.iter().all(Option::is_some),
                    "{places} places, every {every}"
                );
            }
        }
    }
}
