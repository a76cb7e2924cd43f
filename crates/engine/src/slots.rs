//! Task slots: a fixed number of places for the tasks that are known, and what is kept of each.
//!
//! # Invariants
//! - **SLOT-1 (fixed).** There are as many slots as configured, made once; a full engine says so.
//! - **SLOT-2 (no reuse under a handle).** A handle names a slot and a sequence number, which never repeats;
//!   a handle to a slot that has moved on is a task that is finished.

use crate::error::Error;
use crate::ids::{Executor, NONE, TaskId};
use crate::spec::Condition;

/// Where a task is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Free,
    /// Waits for tasks or signals.
    Waiting,
    /// In a ready queue.
    Ready,
    /// Dispatched; or, for a replay, begun.
    Running,
    /// Has run, waits for signals to be done.
    Deferred,
    /// Will not run; kept until what it waited for is done, so that order still holds through it.
    Cancelled,
}

/// Where a slot's task may run; the members of a group are in its [`Extra`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Placed {
    On(u32),
    /// By index among the kinds.
    Any(u32),
    Group,
    /// Nowhere: it stands for the replay of a graph.
    Replay,
}

/// What few tasks have.
#[derive(Clone, Debug, Default)]
pub(crate) struct Extra {
    /// The group.
    pub(crate) members: Vec<Executor>,
    /// Members that have not reported, as far as dispatched.
    pub(crate) outstanding: Vec<Executor>,
    pub(crate) when: Vec<Condition>,
    pub(crate) until: Vec<Condition>,
}

/// One task.
#[derive(Debug)]
pub(crate) struct Slot<P> {
    /// Its number, or 0 if the slot is free.
    pub(crate) sequence: u64,
    /// What it waits for: edges to it, and conditions that do not hold yet.
    pub(crate) pending: u32,
    /// Head of the list of tasks that wait for it; the next free slot if this one is free.
    pub(crate) successors: u32,
    /// Head of the list of its accesses.
    pub(crate) accesses: u32,
    pub(crate) state: State,
    pub(crate) priority: i8,
    /// Something it needs failed, or it did.
    pub(crate) lost: bool,
    pub(crate) placed: Placed,
    /// Where a single task was dispatched to.
    pub(crate) executor: Executor,
    /// The replay it belongs to or stands for, or `NONE`.
    pub(crate) replay: u32,
    /// Its node in that replay's graph.
    pub(crate) node: u32,
    /// Index of its [`Extra`], or `NONE`.
    pub(crate) extra: u32,
    /// The last task that was made to wait for it, and by which edge: to make one edge per pair.
    pub(crate) mark: u64,
    pub(crate) mark_edge: u32,
    /// The number of the last task that it waited for, or 0.
    pub(crate) released_by: u64,
    pub(crate) payload: Option<P>,
}

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Slots<P> {
    slots: Vec<Slot<P>>,
    free: u32,
    used: u32,
    next_sequence: u64,
    extras: Vec<Extra>,
    free_extras: Vec<u32>,
}

impl<P> Slots<P> {
    pub(crate) fn new(count: u32) -> Slots<P> {
        let slots = (0..count)
            .map(|index| Slot {
                sequence: 0,
                pending: 0,
                successors: if index + 1 < count { index + 1 } else { NONE },
                accesses: NONE,
                state: State::Free,
                priority: 0,
                lost: false,
                placed: Placed::Replay,
                executor: Executor(NONE),
                replay: NONE,
                node: NONE,
                extra: NONE,
                mark: 0,
                mark_edge: NONE,
                released_by: 0,
                payload: None,
            })
            .collect();
        Slots {
            slots,
            free: 0,
            used: 0,
            next_sequence: 1,
            extras: Vec::new(),
            free_extras: Vec::new(),
        }
    }

    pub(crate) fn capacity(&self) -> u32 {
        u32::try_from(self.slots.len()).unwrap_or(NONE)
    }

    pub(crate) fn used(&self) -> u32 {
        self.used
    }

    /// Takes a free slot for a waiting task, or `None` if all are taken.
    #[inline]
    pub(crate) fn allocate(&mut self, placed: Placed, priority: i8, payload: Option<P>) -> Option<u32> {
        let index = self.free;
        let slot = self.slots.get_mut(index as usize)?;
        self.free = slot.successors;
        slot.sequence = self.next_sequence;
        slot.pending = 0;
        slot.successors = NONE;
        slot.accesses = NONE;
        slot.state = State::Waiting;
        slot.priority = priority;
        slot.lost = false;
        slot.placed = placed;
        slot.replay = NONE;
        slot.extra = NONE;
        slot.mark = 0;
        slot.payload = payload;
        self.next_sequence += 1;
        self.used += 1;
        Some(index)
    }

    /// Gives a slot back; its lists must be empty.
    #[inline]
    pub(crate) fn release(&mut self, index: u32) {
        let free = self.free;
        let slot = &mut self.slots[index as usize];
        debug_assert_ne!(slot.state, State::Free, "a slot is given back once");
        slot.sequence = 0;
        slot.state = State::Free;
        slot.payload = None;
        slot.successors = free;
        let extra = std::mem::replace(&mut slot.extra, NONE);
        self.free = index;
        self.used -= 1;
        if extra != NONE {
            let kept = &mut self.extras[extra as usize];
            kept.members.clear();
            kept.outstanding.clear();
            kept.when.clear();
            kept.until.clear();
            self.free_extras.push(extra);
        }
    }

    /// The slot's extra, made if it has none.
    pub(crate) fn extra_mut(&mut self, index: u32) -> &mut Extra {
        let slot = &mut self.slots[index as usize];
        if slot.extra == NONE {
            slot.extra = self.free_extras.pop().unwrap_or_else(|| {
                self.extras.push(Extra::default());
                u32::try_from(self.extras.len() - 1).expect("no more extras than slots")
            });
        }
        &mut self.extras[slot.extra as usize]
    }

    pub(crate) fn extra(&self, index: u32) -> Option<&Extra> {
        self.extras.get(self.slots[index as usize].extra as usize)
    }

    pub(crate) fn id(&self, index: u32) -> TaskId {
        TaskId {
            sequence: self.slots[index as usize].sequence,
            slot: index,
        }
    }

    /// The slot of a task, or `None` if it is finished.
    ///
    /// # Errors
    /// [`Error::UnknownTask`] if there never was such a task.
    pub(crate) fn find(&self, task: TaskId) -> Result<Option<u32>, Error> {
        match self.slots.get(task.slot as usize) {
            Some(slot) if slot.sequence == task.sequence => Ok(Some(task.slot)),
            Some(_) if task.sequence > 0 && task.sequence < self.next_sequence => Ok(None),
            _ => Err(Error::UnknownTask { task }),
        }
    }

    /// Every task that is known, oldest first.
    pub(crate) fn live(&self) -> Vec<u32> {
        let mut live: Vec<u32> = (0..self.capacity())
            .filter(|&index| self[index].state != State::Free)
            .collect();
        live.sort_unstable_by_key(|&index| self[index].sequence);
        live
    }
}

impl<P> std::ops::Index<u32> for Slots<P> {
    type Output = Slot<P>;
    #[inline]
    fn index(&self, index: u32) -> &Slot<P> {
        &self.slots[index as usize]
    }
}

impl<P> std::ops::IndexMut<u32> for Slots<P> {
    #[inline]
    fn index_mut(&mut self, index: u32) -> &mut Slot<P> {
        &mut self.slots[index as usize]
    }
}
