//! What the members of a domain share to run staged collectives: scratch memory, a barrier, step counters.

use crate::arguments::same_domain;
use crate::chunk::chunks;
use crate::packets::{Ring, Room, ring_packets};
use ringwork_isa::{
    Barrier, Compare, Core, Element, Error, LINE_WORDS, Notify, Rank, Result, Shared, Signal, Signals,
    packet_lines,
};
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
/// - **TEAM-2 (in step).** Every operation adds the same amount to each counter on every rank, and never
///   resets one. So between operations my own counters are everybody's, and tell an operation where its
///   own count starts.
/// - **TEAM-3 (one epoch, one half).** An operation that uses the scratch uses one epoch `e`, and no
///   other scratch than `half(e)`. (Two epochs would let the next operation have the same parity.)
/// - **TEAM-4 (nobody ahead).** No operation that takes an epoch ends on a rank before every rank has begun it, and it
///   begins on no rank before the one before has ended there. (A [broadcast in packets](crate::packets::broadcast) takes
///   none.)
///
/// Hence `half(e)` is not written again, by the operation of epoch `e + 2`, before the operation of
/// `e + 1` has ended on the writer, so begun on every rank, so everybody has ended the operation of `e`.
///
/// Teams of different element types may share the same scratch bytes, barrier and steps, if the bytes are
/// a multiple of 16: then both halves are the same bytes for every type.
#[derive(Clone, Copy, Debug)]
pub struct Team<T> {
    scratch: Shared<T>,
    meet: Barrier,
    steps: Signals,
    packets: Option<Shared<i64>>,
}

impl<T: Element> Team<T> {
    /// Step counters that a team needs on every rank: one per direction around a ring, and one of broadcasts in packets.
    pub const STEP_CELLS: u32 = 3;

    /// A team over a scratch buffer, a barrier and step counters that nothing else touches (but other
    /// teams of the same three may).
    ///
    /// # Errors
    /// If the three are not of one domain, or there are fewer than [`STEP_CELLS`](Team::STEP_CELLS).
    #[track_caller]
    pub fn new(scratch: Shared<T>, meet: Barrier, steps: Signals) -> Result<Team<T>> {
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

    /// A team of handles that are known to fit together.
    #[inline]
    pub(crate) fn of(scratch: Shared<T>, meet: Barrier, steps: Signals, packets: Shared<i64>) -> Team<T> {
        debug_assert!(Team::new(scratch, meet, steps).is_ok_and(|team| team.with_packets(packets).is_ok()));
        Team {
            scratch,
            meet,
            steps,
            packets: Some(packets),
        }
    }

    /// The words for the packets of a team, if each is to carry so many bytes: one to each rank in both halves, and the
    /// ring of broadcasts.
    #[must_use]
    pub fn packet_words(ranks: usize, bytes: usize) -> usize {
        packets_of(ranks) * packet_lines(bytes) * LINE_WORDS
    }

    /// The same team with room for packets, which [`packet`](crate::all_reduce::packet) needs: as many words as
    /// [`packet_words`](Team::packet_words) says for some number of bytes.
    ///
    /// # Errors
    /// If it is not of the same domain, or no whole packets.
    #[track_caller]
    pub fn with_packets(self, packets: Shared<i64>) -> Result<Team<T>> {
        same_domain("the packets", &packets, &self.meet)?;
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

    /// The room for packets.
    ///
    /// # Errors
    /// If there is none.
    #[inline]
    pub fn room(&self) -> Result<Room> {
        let (packets, lines) = self.packets()?;
        let halves = packets.slice(0..self.ring_at(lines))?;
        Ok(Room::new(halves, self.meet.signals().at(0)?, lines))
    }

    /// The ring of packets that broadcasts go through.
    ///
    /// # Errors
    /// If there is none.
    #[inline]
    pub fn ring(&self) -> Result<Ring> {
        let (packets, lines) = self.packets()?;
        let ring = packets.slice(self.ring_at(lines)..packets.len())?;
        Ok(Ring::new(ring, self.steps.at(GIVEN)?, self.meet, lines))
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

    /// The word at which the ring begins: after both halves.
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
    pub fn scratch(&self) -> Shared<T> {
        self.scratch
    }

    /// Where everybody meets.
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

    /// My rank and the number of ranks, for part arithmetic.
    pub(crate) fn place(&self) -> (usize, usize) {
        (self.rank().0 as usize, self.ranks() as usize)
    }

    /// Every member, from me on and around, so that not everybody reads from the same one at once.
    pub(crate) fn members(&self) -> impl Iterator<Item = (Rank, usize)> + use<T> {
        members(self.rank(), self.ranks())
    }

    /// The chunks of `total` elements when half the scratch has to hold `blocks` of each chunk.
    ///
    /// # Errors
    /// If it cannot hold even one element of each.
    #[track_caller]
    pub(crate) fn chunks(
        &self,
        total: usize,
        blocks: usize,
    ) -> Result<impl Iterator<Item = Range<usize>> + use<T>> {
        let half = self.scratch.half(0).len();
        if total > 0 && half < blocks {
            return Err(Error::failed(format!(
                "the scratch holds {half} elements per half, and this collective over {} ranks needs at least \
                 {blocks}; declare a scratch of {} elements or more",
                self.ranks(),
                blocks.saturating_mul(2)
            )));
        }
        Ok(chunks(total, half / blocks.max(1)))
    }

    /// Begins an operation that stages at most `len` elements, the same number on every rank: learns its epoch, and with
    /// it the place in the scratch to use.
    #[inline(always)]
    pub(crate) async fn turn<C: Core>(&self, core: &C, len: usize) -> Result<Turn<T>> {
        let arrivals = self.meet.signals().at(0)?;
        let epoch = core.recall(arrivals).await?.wrapping_add(1);
        Ok(Turn {
            slot: place(self.scratch.half(epoch), len, epoch)?,
            arrivals,
            epoch,
        })
    }
}

/// The step counter of broadcasts in packets.
const GIVEN: u32 = 2;

/// The packets of each of `ranks` ranks: one to every rank in both halves, and the ring.
#[inline]
fn packets_of(ranks: usize) -> usize {
    2 * ranks + ring_packets(ranks)
}

/// Every member, from me on and around.
#[inline(always)]
pub(crate) fn members(me: Rank, ranks: u32) -> impl Iterator<Item = (Rank, usize)> {
    (0..ranks).map(move |step| {
        let peer = (me.0 + step) % ranks;
        (Rank(peer), peer as usize)
    })
}

/// Where in its half an operation stages `len` elements: every time somewhere else, if there is room. Lines that fell out
/// of a peer's cache since it read them are written in half the time.
#[inline(always)]
fn place<T: Element>(half: Shared<T>, len: usize, epoch: i32) -> Result<Shared<T>> {
    if len * T::DTYPE.bytes() < WORTH_MOVING_BYTES {
        return Ok(half);
    }
    let each = len.next_power_of_two();
    let places = (half.len() / each).max(1);
    // By the golden ratio: whatever share of the epochs is staged here, in whatever order, a place comes again late.
    let turn = epoch.cast_unsigned().wrapping_mul(0x9e37_79b9);
    let at = ((u64::from(turn) * places as u64) >> 32) as usize * each;
    half.slice(at..half.len())
}

/// Less is not moved about: it stays in the nearest cache.
const WORTH_MOVING_BYTES: usize = 16 << 10;

/// One operation of a team: its epoch and its half of the scratch (TEAM-3).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turn<T> {
    /// My half of the scratch for this operation.
    pub(crate) slot: Shared<T>,
    /// My counter of the barrier: the barrier's own steps, one by one, since here a call more is felt.
    arrivals: Signal,
    epoch: i32,
}

impl<T: Element> Turn<T> {
    /// Says that what I staged is ready. Once per operation.
    #[inline(always)]
    pub(crate) fn arrive<C: Core>(&self, core: &C) -> impl Future<Output = Result<()>> {
        core.notify(self.arrivals, Notify::Set(self.epoch))
    }

    /// Waits until `peer` has arrived. An operation must wait for everybody before it ends (TEAM-4).
    #[inline(always)]
    pub(crate) async fn wait_for<C: Core>(&self, core: &C, peer: Rank) -> Result<()> {
        if peer != self.arrivals.holder() {
            core.wait(self.arrivals.on(peer)?, Compare::Ge, self.epoch)
                .await?;
        }
        Ok(())
    }

    /// Arrives and waits for everybody.
    #[inline(always)]
    pub(crate) async fn meet<C: Core>(&self, core: &C) -> Result<()> {
        self.arrive(core).await?;
        self.wait_for_all(core).await
    }

    /// Waits until everybody has arrived.
    #[inline(always)]
    pub(crate) async fn wait_for_all<C: Core>(&self, core: &C) -> Result<()> {
        core.wait_on(self.arrivals, 0..self.arrivals.ranks(), Compare::Ge, self.epoch)
            .await
    }
}
