//! The layout of a communicator's segment, the same on every rank.

use crate::error::Result;
use ringwork_collectives::domain::packet_bytes;
use ringwork_collectives::{Post, Team};
use ringwork_isa::{Barrier, Dtype, Rank, SIGNAL_STRIDE_BYTES, Segment, Shared, Signals, Span};
use ringwork_native::memory::PAGE_BYTES;
use ringwork_native::segment::Layout;

/// The cells of each rank: the barrier, the steps of a team, the call in progress, and for every rank two counters of
/// the chunks sent to it and taken from it.
const MEET: u32 = 0;
const STEPS: u32 = 1;
const CALLS: u32 = STEPS + Team::STEP_CELLS;
const COUNTERS: u32 = CALLS + 1;

/// The least and the most bytes of scratch of a rank, both halves, and the most of all ranks together. Staged data
/// rotates through it, but each rank waits for its pages when it joins.
const LEAST_SCRATCH_BYTES: u64 = 2 << 20;
const MOST_SCRATCH_BYTES: u64 = 4 << 20;
const SCRATCHES_BYTES: u64 = 8 << 20;
/// The most bytes in flight to one rank, both halves, and to all of them.
const SLOT_BYTES: u64 = 64 << 10;
const SLOTS_BYTES: u64 = 1 << 20;

/// Bytes of each rank's packets.
fn packet_area_bytes(ranks: u32) -> u64 {
    Team::packet_words(ranks as usize, packet_bytes(ranks)) as u64 * 8
}

/// Where the scratch begins.
fn scratch_at(ranks: u32) -> u64 {
    packet_area_bytes(ranks).next_multiple_of(128)
}

/// Bytes of each rank's scratch: a power of two.
fn scratch_bytes(ranks: u32) -> u64 {
    let each = SCRATCHES_BYTES / u64::from(ranks.max(1)).next_power_of_two();
    each.clamp(LEAST_SCRATCH_BYTES, MOST_SCRATCH_BYTES)
}

/// Where the labels begin.
fn labels_at(ranks: u32) -> u64 {
    scratch_at(ranks) + scratch_bytes(ranks)
}

/// Bytes of the slot for one rank, among `ranks`.
fn slot_bytes(ranks: u32) -> u64 {
    (SLOTS_BYTES / u64::from(ranks.max(1))).min(SLOT_BYTES) / 256 * 256
}

fn label_bytes(ranks: u32) -> u64 {
    (Post::label_words(ranks) as u64 * 8).next_multiple_of(128)
}

/// The segment of a communicator of `ranks` members.
pub(crate) fn plan(segment: Segment, ranks: u32) -> Result<Layout> {
    let bytes = labels_at(ranks) + label_bytes(ranks) + u64::from(ranks) * slot_bytes(ranks);
    let layout = Layout::windows(segment, ranks, COUNTERS + 2 * ranks, bytes);
    Ok(layout.map_err(ringwork_native::Error::from)?)
}

/// The segment of a buffer of `bytes` bytes per rank.
pub(crate) fn plan_buffer(segment: Segment, ranks: u32, bytes: u64) -> Result<Layout> {
    Ok(Layout::windows(segment, ranks, 0, bytes).map_err(ringwork_native::Error::from)?)
}

/// `len` elements, `offset` bytes into the data of every rank, with `me` as the own rank.
#[inline]
pub(crate) fn region(layout: &Layout, me: Rank, dtype: Dtype, (offset, len): (u64, u64)) -> Shared {
    Shared::of_span(Span {
        segment: layout.segment,
        base: layout.data_offset() + offset,
        stride: layout.stride,
        me,
        rank: me,
        ranks: layout.ranks,
        dtype,
        start: 0,
        len,
    })
}

/// A communicator's segment, from the view of one rank.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) layout: Layout,
    pub(crate) me: Rank,
    /// Looked up once, because every call needs them.
    packet_area_bytes: u64,
    scratch_at: u64,
    scratch_bytes: u64,
}

impl Place {
    pub(crate) fn new(layout: Layout, me: Rank) -> Place {
        let ranks = layout.ranks;
        Place {
            layout,
            me,
            packet_area_bytes: packet_area_bytes(ranks),
            scratch_at: scratch_at(ranks),
            scratch_bytes: scratch_bytes(ranks),
        }
    }

    #[inline]
    fn signals(&self, first: u32, count: u32) -> Signals {
        Signals {
            segment: self.layout.segment,
            base: PAGE_BYTES + u64::from(first) * SIGNAL_STRIDE_BYTES,
            stride: self.layout.stride,
            count,
            me: self.me,
            ranks: self.layout.ranks,
        }
    }

    #[inline]
    pub(crate) fn meet(&self) -> Barrier {
        Barrier::new(self.signals(MEET, 1))
    }

    /// The counters that show how far a rank is in a collective call.
    pub(crate) fn progress(&self) -> Signals {
        self.signals(MEET, CALLS - MEET)
    }

    pub(crate) fn calls(&self) -> Signals {
        self.signals(CALLS, 1)
    }

    #[inline]
    fn region(&self, dtype: Dtype, offset: u64, bytes: u64) -> Shared {
        region(
            &self.layout,
            self.me,
            dtype,
            (offset, bytes / dtype.bytes() as u64),
        )
    }

    /// The memory for packets.
    #[inline]
    pub(crate) fn packets(&self) -> Shared<i64> {
        let words = self.region(Dtype::I64, 0, self.packet_area_bytes);
        words.typed().expect("it was made of words")
    }

    /// The team of all ranks, for elements of type `dtype`.
    #[inline]
    pub(crate) fn team(&self, dtype: Dtype) -> Team {
        let packets = self.packets();
        let scratch = self.region(dtype, self.scratch_at, self.scratch_bytes);
        Team::with_all(scratch, self.meet(), self.signals(STEPS, CALLS - STEPS), packets)
    }

    /// The memory for data in flight between two ranks, for elements of type `dtype`.
    pub(crate) fn post(&self, dtype: Dtype) -> Result<Post> {
        let ranks = self.layout.ranks;
        let labels = self.region(Dtype::I64, labels_at(ranks), Post::label_words(ranks) as u64 * 8);
        let slots = self.region(
            dtype,
            labels_at(ranks) + label_bytes(ranks),
            u64::from(ranks) * slot_bytes(ranks),
        );
        let (sent, taken) = (
            self.signals(COUNTERS, ranks),
            self.signals(COUNTERS + ranks, ranks),
        );
        Ok(Post::new(slots, labels.typed()?, sent, taken)?)
    }
}
