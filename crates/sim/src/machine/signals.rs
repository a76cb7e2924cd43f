//! Signals of a simulated machine, and who waits for them.

use crate::time::Ps;
use ringwork_isa::{Compare, Notify, SIGNAL_STRIDE_BYTES};
use std::collections::{BTreeSet, HashMap};
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::ops::Range;

/// Where a signal is: its segment, and its offset there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Address(u32, u64);

impl Hash for Address {
    /// Signals of a page come side by side: a core uses many of its own in turn, and those of its neighbours.
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Address(segment, offset) = *self;
        let (page, cell) = (offset >> 12, offset / SIGNAL_STRIDE_BYTES % 32);
        let mixed = (page ^ u64::from(segment) << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = mixed ^ mixed >> 32;
        // The table looks for a place by the low bits, and compares the high ones first.
        state.write_u64((mixed & !31 | cell) ^ cell << 57);
    }
}

/// The hash of one number that is mixed already: the same in every build, and never iterated over.
#[derive(Clone, Copy, Debug, Default)]
struct Mixed(u64);

impl Hasher for Mixed {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(self.0.rotate_left(8) ^ u64::from(*byte));
        }
    }
    fn write_u64(&mut self, value: u64) {
        self.0 = value;
    }
}

/// A signal's value after a notification.
pub(crate) fn changed(value: i32, how: Notify) -> i32 {
    match how {
        Notify::Set(new) => new,
        Notify::Add(amount) => value.wrapping_add(amount),
    }
}

/// A core that waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiter {
    pub(crate) core: u32,
    pub(crate) compare: Compare,
    pub(crate) operand: i32,
}

/// The cores that wait for a signal, the longest first. Usually none or one, which needs no allocation.
#[derive(Clone, Debug, Default)]
pub(crate) struct Waiters {
    first: Option<Waiter>,
    more: Vec<Waiter>,
}

impl Waiters {
    #[inline(always)]
    pub(crate) fn push(&mut self, waiter: Waiter) {
        match self.first {
            None => self.first = Some(waiter),
            Some(_) => self.more.push(waiter),
        }
    }

    /// Takes those whom a value satisfies, and tells of each.
    #[inline(always)]
    pub(crate) fn satisfy(&mut self, value: i32, mut tell: impl FnMut(u32)) {
        let Some(first) = self.first else {
            return;
        };
        let holds = |waiter: &Waiter| waiter.compare.holds(value, waiter.operand);
        if holds(&first) {
            self.first = None;
            tell(first.core);
        }
        if !self.more.is_empty() {
            self.more.retain(|waiter| {
                let satisfied = holds(waiter);
                if satisfied {
                    tell(waiter.core);
                }
                !satisfied
            });
            if self.first.is_none() && !self.more.is_empty() {
                self.first = Some(self.more.remove(0));
            }
        }
    }

    /// Takes all of them.
    pub(crate) fn take(&mut self) -> impl Iterator<Item = u32> {
        let Waiters { first, more } = std::mem::take(self);
        first.into_iter().chain(more).map(|waiter| waiter.core)
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Cell {
    pub(crate) segment: u32,
    pub(crate) offset: u64,
    pub(crate) value: i32,
    pub(crate) waiters: Waiters,
    /// The core that changed it last, and when it did: the cause of the wake-ups that follow.
    pub(crate) cause: (u32, u64),
    /// When it changed last.
    pub(crate) changed_ps: Ps,
    /// Somebody outside wants to know when it changes.
    watched: bool,
}

/// Every signal that was ever touched.
#[derive(Debug, Default)]
pub(crate) struct Signals {
    slots: HashMap<Address, u32, BuildHasherDefault<Mixed>>,
    pub(crate) cells: Vec<Cell>,
    /// Segments that have signals.
    segments: BTreeSet<u32>,
    /// How often segments have gone: what was known of slots before may be wrong.
    gone: u32,
    watched: Vec<u32>,
    /// A watched one was changed.
    news: bool,
}

impl Signals {
    /// The slot of the signal at `offset` of `segment`; `first` is its value if it is new.
    #[inline]
    pub(crate) fn slot(&mut self, segment: u32, offset: u64, first: impl FnOnce() -> i32) -> u32 {
        let (cells, segments) = (&mut self.cells, &mut self.segments);
        *self.slots.entry(Address(segment, offset)).or_insert_with(|| {
            segments.insert(segment);
            cells.push(Cell {
                segment,
                offset,
                value: first(),
                waiters: Waiters::default(),
                cause: (u32::MAX, 0),
                changed_ps: 0,
                watched: false,
            });
            u32::try_from(cells.len() - 1).unwrap_or(u32::MAX)
        })
    }

    /// Watches these slots, and no others.
    pub(crate) fn watch(&mut self, slots: Vec<u32>) {
        for slot in std::mem::replace(&mut self.watched, slots) {
            self.cells[slot as usize].watched = false;
        }
        for slot in &self.watched {
            self.cells[*slot as usize].watched = true;
        }
    }

    /// Whether a watched signal was changed since this was last asked.
    #[inline]
    pub(crate) fn take_news(&mut self) -> bool {
        std::mem::take(&mut self.news)
    }

    /// What is known of slots holds while this stays the same; never 0.
    #[inline]
    pub(crate) fn generation(&self) -> u32 {
        self.gone.wrapping_add(1).max(1)
    }

    /// Forgets the signals of a segment that is gone.
    pub(crate) fn release(&mut self, segment: u32) {
        self.gone = self.gone.wrapping_add(1);
        // Slots stay, so that numbers in flight keep their meaning; only the way to them goes.
        if self.segments.remove(&segment) {
            self.slots.retain(|Address(of, _), _| *of != segment);
        }
    }

    /// Takes up values that were written from outside.
    pub(crate) fn refresh(&mut self, segment: u32, range: Range<u64>, word: impl Fn(u64) -> Option<i32>) {
        if !self.segments.contains(&segment) {
            return;
        }
        for cell in self
            .cells
            .iter_mut()
            .filter(|cell| cell.segment == segment && range.contains(&cell.offset))
        {
            cell.value = word(cell.offset).unwrap_or(cell.value);
        }
    }

    /// Changes a value.
    #[inline]
    pub(crate) fn change(&mut self, slot: u32, how: Notify, cause: (u32, u64)) -> &mut Cell {
        let cell = &mut self.cells[slot as usize];
        cell.value = changed(cell.value, how);
        cell.cause = cause;
        self.news |= cell.watched;
        cell
    }
}
