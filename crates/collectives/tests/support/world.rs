//! A domain to test in: windows, private memory, signals, and handles to them.

use super::calls::typed;
use super::engine::{Failure, Kernel, Machine};
use super::schedule::Schedule;
use ringwork_collectives::{Post, Team};
use ringwork_isa::stepped::SteppedCore;
use ringwork_isa::{Barrier, Dtype, Element, Rank, Region, Result, Segment, Shared, Signals, Span};
use ringwork_layout::{BufferPlace, CellRow, Layout};
use std::cell::Cell;
use std::rc::Rc;

const WINDOW: Segment = Segment(1);
const SIGNALS: Segment = Segment(2);
const PRIVATE: u32 = 100;
/// What memory holds that nobody has written.
pub const POISON: u8 = 0xa5;

const STEPS: u32 = Team::STEP_CELLS;

/// Cells per rank: the barrier, the steps, and twice as many spare ones as there are ranks.
fn cells(ranks: u32) -> u32 {
    1 + STEPS + 2 * ranks
}

/// Room for packets of 448 bytes.
fn packet_words(ranks: u32) -> u64 {
    Team::packet_words(ranks as usize, 448) as u64
}

#[derive(Debug)]
pub struct World {
    pub ranks: u32,
    pub machine: Rc<Machine>,
    scratch_bytes: u64,
    packets: u64,
    window: Layout,
    cells: Layout,
    window_used: Cell<u64>,
    private_used: Cell<u64>,
}

impl World {
    pub fn new(ranks: u32, scratch_bytes: usize) -> World {
        World::with(ranks, scratch_bytes, 16 << 10, 0)
    }

    /// Windows with room for `data_bytes` beside the scratch; signals that start at `first`.
    pub fn with(ranks: u32, scratch_bytes: usize, data_bytes: usize, first: i32) -> World {
        let scratch_bytes = scratch_bytes as u64;
        let packets = scratch_bytes.next_multiple_of(128);
        let data = packets + packet_words(ranks) * 8;
        let window = Layout::packed(WINDOW, ranks, 0, data + data_bytes as u64);
        let machine = Machine::new(ranks as usize, (cells(ranks) * ranks) as usize, first);
        machine.grow(WINDOW, None, usize::try_from(window.bytes()).unwrap(), POISON);
        World {
            ranks,
            machine: Rc::new(machine),
            scratch_bytes,
            window,
            cells: Layout::packed(SIGNALS, ranks, cells(ranks), 0),
            packets,
            window_used: Cell::new(data),
            private_used: Cell::new(0),
        }
    }

    /// Signal cells `from..from + count` of every rank, held by `me`.
    fn signals(&self, me: Rank, from: u32, count: u32) -> Signals {
        self.cells.signals(me, CellRow { first: from, count })
    }

    pub fn meet(&self, me: Rank) -> Barrier {
        Barrier::new(self.signals(me, 0, 1))
    }

    pub fn steps(&self, me: Rank) -> Signals {
        self.signals(me, 1, STEPS)
    }

    /// One spare cell for every rank.
    pub fn matrix(&self, me: Rank) -> Signals {
        self.signals(me, 1 + STEPS, self.ranks)
    }

    /// Slots of `each` elements per half, with their labels and counters.
    pub fn post(&self, dtype: Dtype, each: usize) -> Vec<Post> {
        let slots = self.window_buffer(dtype, self.ranks as usize * 2 * each);
        let labels = self.window_buffer(Dtype::I64, Post::label_words(self.ranks));
        let post = |rank: u32| {
            let (me, at) = (Rank(rank), rank as usize);
            let (sent, taken) = (
                self.matrix(me),
                self.signals(me, 1 + STEPS + self.ranks, self.ranks),
            );
            let (slots, labels) = (Shared::of_span(slots[at]), typed(labels[at]));
            Post::new(slots, labels, sent, taken).unwrap()
        };
        (0..self.ranks).map(post).collect()
    }

    pub fn scratch<T: Element>(&self, me: Rank) -> Shared<T> {
        let len = self.scratch_bytes / T::DTYPE.bytes() as u64;
        Region::from_span(self.window_span(me, 0, T::DTYPE, len)).unwrap()
    }

    pub fn team<T: Element>(&self, me: Rank) -> Team {
        let words = packet_words(self.ranks);
        let packets = Region::from_span(self.window_span(me, self.packets, Dtype::I64, words)).unwrap();
        let team = Team::new(self.scratch::<T>(me), self.meet(me), self.steps(me));
        team.and_then(|team| team.with_packets(packets)).unwrap()
    }

    fn window_span(&self, me: Rank, base: u64, dtype: Dtype, len: u64) -> Span {
        let count = usize::try_from(len).unwrap();
        self.window.span(
            me,
            BufferPlace {
                offset: base,
                dtype,
                count,
            },
        )
    }

    /// A new window buffer: each rank's own handle to it.
    pub fn window_buffer(&self, dtype: Dtype, len: usize) -> Vec<Span> {
        let base = self.window_used.get();
        let end = base + (len * dtype.bytes()) as u64;
        assert!(end <= self.window.stride, "the test needs larger windows");
        self.window_used.set(end.next_multiple_of(16));
        (0..self.ranks)
            .map(|rank| self.window_span(Rank(rank), base, dtype, len as u64))
            .collect()
    }

    /// A new private buffer on every rank.
    pub fn private_buffer(&self, dtype: Dtype, len: usize) -> Vec<Span> {
        let base = self.private_used.get();
        let end = (base + (len * dtype.bytes()) as u64).next_multiple_of(16);
        self.private_used.set(end);
        let one = |rank: u32| {
            let segment = Segment(PRIVATE + rank);
            let end = usize::try_from(end).unwrap();
            self.machine.grow(segment, Some(rank as usize), end, POISON);
            let place = BufferPlace {
                offset: base,
                dtype,
                count: len,
            };
            Layout::packed(segment, 1, 0, 0).private_span(place)
        };
        (0..self.ranks).map(one).collect()
    }

    /// Runs one kernel per rank; what each returned.
    pub fn run(
        &self,
        schedule: Schedule,
        kernel: impl Fn(SteppedCore, Rank) -> Kernel,
    ) -> std::result::Result<Vec<Result<()>>, Failure> {
        self.machine.run(schedule, kernel)
    }

    /// Runs one kernel per rank, all of which succeed.
    pub fn run_well(
        &self,
        schedule: Schedule,
        kernel: impl Fn(SteppedCore, Rank) -> Kernel,
    ) -> std::result::Result<(), String> {
        let results = self
            .run(schedule, kernel)
            .map_err(|failure| failure.to_string())?;
        for (rank, result) in results.into_iter().enumerate() {
            result.map_err(|error| format!("rank {rank}: {error}"))?;
        }
        Ok(())
    }
}
