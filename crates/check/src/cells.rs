//! Signals and packet flags with their history, and the conditions under which their order does not matter.
//!
//! A program in which every cell keeps the conditions has one execution up to equivalence: an instruction that can happen
//! stays possible, and those of two ranks commute. So one schedule decides everything.
//!
//! # Conditions
//! - **CELL-1 (forward).** The value never goes back (by serial-number order) while another rank waits for it.
//! - **CELL-2 (no race of writers).** Writes that nothing orders are all `Add`s.
//! - **CELL-3 (no looking).** Another rank reads it by a wait for `>=` or `>` only, or where every write is ordered before
//!   or after the read.
//! - **CELL-4 (thresholds).** If several ranks add, the adds that a wait is satisfied by are the same in every order.

use crate::clock::Clock;
use crate::shadow::Access;
use ringwork_isa::{Compare, Notify, Segment, Signal};
use std::fmt;
use std::hash::Hash;
use std::rc::Rc;

/// Where a cell lies.
pub(crate) type Place = (Segment, u64);

/// The condition that a cell does not keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// CELL-1.
    GoesBack,
    /// CELL-2: a `Set` and an `Add` that nothing orders.
    SetAndAdd,
    /// CELL-3.
    LookedAt,
    /// CELL-4.
    Threshold,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Broken::GoesBack => "its value goes back while another rank waits for it",
            Broken::SetAndAdd => "one rank sets it while another adds to it",
            Broken::LookedAt => "a rank looks at its value while another changes it",
            Broken::Threshold => "which of several adds ends a wait depends on timing",
        })
    }
}

/// One write of a cell.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) value: i32,
    pub(crate) by: Access,
    is_set: bool,
    /// What its writer knew.
    clock: Rc<Clock>,
    /// What a reader of this value learns: for an `Add`, also what the writes before it released.
    pub(crate) released: Rc<Clock>,
}

/// Which value of a cell is read: the number of a write, or the initial one.
pub(crate) type Position = Option<usize>;

#[derive(Clone, Debug)]
pub(crate) struct Cell {
    pub(crate) signal: Signal,
    pub(crate) initial: i32,
    pub(crate) history: Vec<Entry>,
    /// Reads since the last write that must stay ordered with all writes.
    reads: Vec<Access>,
    /// The last write that a wait needed.
    threshold: Position,
    is_waited_for: bool,
    goes_back: bool,
    has_several_writers: bool,
}

/// The findings of one write to a signal cell.
#[derive(Debug, Default)]
pub(crate) struct Written {
    pub(crate) broken: Option<Broken>,
    /// Another rank's `Set` that nothing orders with this one.
    pub(crate) other_writer: Option<Access>,
}

impl Cell {
    pub(crate) fn new(signal: Signal, initial: i32) -> Cell {
        Cell {
            signal,
            initial,
            history: Vec::new(),
            reads: Vec::new(),
            threshold: None,
            is_waited_for: false,
            goes_back: false,
            has_several_writers: false,
        }
    }

    /// Begins again with the value that it has now: whatever comes is ordered after all that was done to it.
    pub(crate) fn settle(&mut self) {
        *self = Cell::new(self.signal, self.value());
    }

    pub(crate) fn value(&self) -> i32 {
        self.history.last().map_or(self.initial, |entry| entry.value)
    }

    pub(crate) fn value_at(&self, position: Position) -> i32 {
        position.map_or(self.initial, |index| self.history[index].value)
    }

    pub(crate) fn latest(&self) -> Position {
        self.history.len().checked_sub(1)
    }

    /// The newest write that `clock` knows: no read may go back behind it.
    pub(crate) fn newest_known(&self, clock: &Clock) -> Position {
        self.history.iter().rposition(|entry| entry.by.is_before(clock))
    }

    /// Whether every write is known.
    pub(crate) fn is_known(&self, clock: &Clock) -> bool {
        if self.has_several_writers {
            return self.history.iter().all(|entry| entry.by.is_before(clock));
        }
        self.history.last().is_none_or(|entry| entry.by.is_before(clock))
    }

    pub(crate) fn write(&mut self, how: Notify, by: Access, clock: &Rc<Clock>) -> Written {
        let mut written = Written::default();
        let is_set = matches!(how, Notify::Set(_));
        let before = self.value();
        let value = match how {
            Notify::Set(value) => value,
            Notify::Add(amount) => before.wrapping_add(amount),
        };
        self.has_several_writers |= self.history.last().is_some_and(|last| last.by.rank != by.rank);
        if self.has_several_writers {
            for earlier in self.history.iter().filter(|entry| !entry.by.is_before(clock)) {
                match (earlier.is_set, is_set) {
                    (true, true) => written.other_writer = Some(earlier.by),
                    (false, false) => {}
                    _ => written.broken = Some(Broken::SetAndAdd),
                }
            }
            if let Some(threshold) = self.threshold
                && !self.history[..=threshold]
                    .iter()
                    .all(|entry| entry.by.is_before(clock))
            {
                written.broken = Some(Broken::Threshold);
            }
        }
        if !self.reads.iter().all(|read| read.is_before(clock)) {
            written.broken = Some(Broken::LookedAt);
        }
        self.reads.clear();
        self.goes_back |= value.wrapping_sub(before) < 0;
        if self.goes_back && self.is_waited_for {
            written.broken = Some(Broken::GoesBack);
        }
        let released = match self.history.last() {
            // A release sequence goes on through adds; a set begins a new one.
            Some(last) if !is_set => {
                let mut all = (*last.released).clone();
                all.join(clock);
                Rc::new(all)
            }
            _ => clock.clone(),
        };
        self.history.push(Entry {
            value,
            by,
            is_set,
            clock: clock.clone(),
            released,
        });
        written
    }

    /// The first value that satisfies a wait for `>=` or `>`, in a cell that only goes forward.
    pub(crate) fn first_holding(&self, compare: Compare, operand: i32) -> Position {
        if compare.holds(self.initial, operand) {
            return None;
        }
        let below = self
            .history
            .iter()
            .rposition(|entry| !compare.holds(entry.value, operand));
        Some(below.map_or(0, |index| index + 1))
    }

    /// Notes a wait for `>=` or `>` that the write at `position` satisfied.
    pub(crate) fn note_wait(&mut self, position: Position, by: Access) -> Option<Broken> {
        let is_foreign = self.history.iter().any(|entry| entry.by.rank != by.rank);
        self.is_waited_for |= is_foreign || self.history.is_empty();
        if self.goes_back && self.is_waited_for {
            return Some(Broken::GoesBack);
        }
        if let (true, Some(needed)) = (self.has_several_writers, position) {
            let (needed_writes, later) = self.history.split_at(needed + 1);
            let is_after_all = |entry: &Entry| needed_writes.iter().all(|one| one.by.is_before(&entry.clock));
            if !later.iter().all(is_after_all) {
                return Some(Broken::Threshold);
            }
        }
        self.threshold = self.threshold.max(position);
        None
    }

    /// Notes a read that is only right if all writes are ordered with it.
    pub(crate) fn note_read(&mut self, by: Access, clock: &Clock) -> Option<Broken> {
        if !self.is_known(clock) {
            return Some(Broken::LookedAt);
        }
        match self.reads.iter_mut().find(|read| read.agent == by.agent) {
            Some(read) => *read = by,
            None => self.reads.push(by),
        }
        None
    }
}

/// What of a cell can make the instructions that come differ: the writes and reads that not every rank knows of.
#[derive(Debug)]
pub(crate) struct Unsettled<'a> {
    cell: &'a Cell,
    /// Writes before it are known to every rank.
    from: usize,
    reads: Vec<&'a Access>,
}

impl Cell {
    /// What not every rank knows of. `None` if a write that is left did not know of an older one: which of them a wait
    /// needs could then depend on writes that are not in it.
    pub(crate) fn unsettled(&self, clocks: &[Clock]) -> Option<Unsettled<'_>> {
        let is_settled = |access: &Access| clocks.iter().all(|clock| access.is_before(clock));
        let first = self.history.iter().position(|entry| !is_settled(&entry.by));
        let from = first.unwrap_or(self.history.len());
        let (old, left) = self.history.split_at(from);
        let knows_all = |entry: &Entry| old.iter().all(|one| one.by.is_before(&entry.clock));
        let reads = self.reads.iter().filter(|read| !is_settled(read)).collect();
        (!self.has_several_writers || left.iter().all(knows_all)).then_some(Unsettled {
            cell: self,
            from,
            reads,
        })
    }
}

impl Cell {
    /// Forgets the writes and reads that every rank knows of, where nothing that comes depends on them.
    pub(crate) fn forget_settled(&mut self, clocks: &[Clock]) {
        let Some(left) = self.unsettled(clocks) else {
            return;
        };
        let from = left.from;
        if let Some(last) = from.checked_sub(1) {
            self.initial = self.history[last].value;
        }
        self.history.drain(..from);
        self.threshold = self.threshold.and_then(|needed| needed.checked_sub(from));
        self.reads
            .retain(|read| !clocks.iter().all(|clock| read.is_before(clock)));
    }
}

impl Unsettled<'_> {
    pub(crate) fn accesses(&self) -> impl Iterator<Item = &Access> {
        let writes = self.cell.history[self.from..].iter().map(|entry| &entry.by);
        writes.chain(self.reads.iter().copied())
    }

    /// It as a value, with these names for accesses and clocks, and with values relative to the present one.
    pub(crate) fn key<A: Hash, C: Hash>(
        &self,
        access: impl Fn(&Access) -> A,
        clock: impl Fn(&Clock) -> C,
    ) -> impl Hash {
        let cell = self.cell;
        let since = |value: i32| value.wrapping_sub(cell.value());
        let before = self
            .from
            .checked_sub(1)
            .map_or(cell.initial, |last| cell.history[last].value);
        let left: Vec<_> = cell.history[self.from..]
            .iter()
            .map(|entry| {
                let known = (clock(&entry.clock), clock(&entry.released));
                (since(entry.value), access(&entry.by), entry.is_set, known)
            })
            .collect();
        let reads: Vec<A> = self.reads.iter().map(|read| access(read)).collect();
        let threshold = cell.threshold.and_then(|needed| needed.checked_sub(self.from));
        let flags = (cell.is_waited_for, cell.goes_back, cell.has_several_writers);
        (since(before), left, reads, threshold, flags)
    }
}
