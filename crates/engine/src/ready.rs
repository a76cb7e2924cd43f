//! Ready tasks: which executor runs which task next.
//!
//! Each executor has a queue of tasks directed to it, each kind has a queue of tasks that any executor of
//! the kind may run, and groups have one queue. Within a queue, and between the queues that an executor
//! serves, the order is priority first, then age (order of submission). Executors with room take turns.
//!
//! An executor that is busy is given only tasks that are directed to it. A task that any executor may run waits
//! for an idle one, and tasks behind it in that queue wait too, so that it is not overtaken for ever.
//!
//! # Groups
//! An executor with room is *reserved* for the oldest ready group that includes it, unless an older single
//! task wants it first. A reserved executor is given nothing else, and the group starts when all its members
//! are reserved for it and idle.
//!
//! # Invariants
//! - **READY-1 (no deadlock).** Order is total, so of the groups that are ready the first one is reserved
//!   every member as they fall idle: two groups can never each hold what the other needs.
//! - **READY-2 (no starvation).** Whatever comes later, at the same priority, waits for what came before:
//!   only finitely many tasks can go first.
//! - **READY-3 (together).** A group starts on all members at once; while it runs, no member has anything
//!   else until it has reported.

use crate::error::Error;
use crate::ids::{Executor, Kind, NONE};
use crate::slots::{Placed, Slots, State};
use crate::spec::Place;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

/// Low bits of a key: the sequence number. The high byte is the priority, inverted.
const SEQUENCE: u64 = (1 << 56) - 1;

/// Smaller goes first.
fn key(priority: i8, sequence: u64) -> u64 {
    let rank = u64::from(i8::MAX.abs_diff(priority));
    rank << 56 | sequence & SEQUENCE
}

/// Groups that are looked at, oldest first; those behind wait until they move up.
const LOOK_AHEAD: usize = 64;

/// A set of executors.
#[derive(Clone, Debug)]
struct Bits(Vec<u64>);

impl Bits {
    fn new(count: usize) -> Bits {
        Bits(vec![0; count.div_ceil(64)])
    }
    fn set(&mut self, index: u32, on: bool) {
        let bit = 1 << (index % 64);
        let word = &mut self.0[index as usize / 64];
        *word = if on { *word | bit } else { *word & !bit };
    }
    fn get(&self, index: u32) -> bool {
        self.0[index as usize / 64] >> (index % 64) & 1 == 1
    }
}

type Heap = BinaryHeap<Reverse<(u64, u32)>>;

/// Drops what was cancelled from the top, and returns the key of the first that was not.
fn first<P>(heap: &mut Heap, slots: &Slots<P>) -> Option<u64> {
    while let Some(&Reverse((key, slot))) = heap.peek() {
        let task = &slots[slot];
        if task.state == State::Ready && task.sequence & SEQUENCE == key & SEQUENCE {
            return Some(key);
        }
        heap.pop();
    }
    None
}

/// See the [module](self).
#[derive(Clone, Debug)]
pub(crate) struct Ready {
    kinds: Vec<Kind>,
    /// The kind of each executor, by index.
    kind_of: Vec<u32>,
    depth: Vec<u32>,
    /// Tasks given to each executor.
    load: Vec<u32>,
    lost: Bits,
    /// Executors with room.
    room: Bits,
    /// Executors that were given nothing.
    idle: Bits,
    /// Executors of each kind.
    of_kind: Vec<Bits>,
    directed: Vec<Heap>,
    has_directed: Bits,
    free: Vec<Heap>,
    groups: BTreeMap<u64, u32>,
    reserved: Bits,
    /// The executor that is asked first.
    cursor: u32,
    count: u32,
}

impl Ready {
    pub(crate) fn new(executors: &[(Kind, u32)]) -> Result<Ready, Error> {
        if executors.is_empty() || executors.len() >= 1 << 20 {
            let what = "it needs between 1 and 2^20 executors";
            return Err(Error::BadConfig { what });
        }
        if executors.iter().any(|&(_, depth)| depth == 0) {
            let what = "an executor of depth 0 can never be given a task";
            return Err(Error::BadConfig { what });
        }
        let mut kinds: Vec<Kind> = Vec::new();
        let mut kind_of = Vec::new();
        for &(kind, _) in executors {
            let at = kinds.iter().position(|&known| known == kind);
            let at = at.unwrap_or_else(|| {
                kinds.push(kind);
                kinds.len() - 1
            });
            kind_of.push(u32::try_from(at).unwrap_or(NONE));
        }
        let count = executors.len();
        let mut room = Bits::new(count);
        let mut idle = Bits::new(count);
        let mut of_kind = vec![Bits::new(count); kinds.len()];
        for (index, &kind) in (0..).zip(&kind_of) {
            room.set(index, true);
            idle.set(index, true);
            of_kind[kind as usize].set(index, true);
        }
        Ok(Ready {
            free: vec![Heap::new(); kinds.len()],
            kinds,
            kind_of,
            depth: executors.iter().map(|&(_, depth)| depth).collect(),
            load: vec![0; count],
            lost: Bits::new(count),
            room,
            idle,
            of_kind,
            directed: vec![Heap::new(); count],
            has_directed: Bits::new(count),
            groups: BTreeMap::new(),
            reserved: Bits::new(count),
            cursor: 0,
            count: 0,
        })
    }

    /// Ready tasks.
    pub(crate) fn len(&self) -> u32 {
        self.count
    }

    /// Whether tasks can be placed so, and the short form of it.
    pub(crate) fn check(&self, place: &Place) -> Result<Placed, Error> {
        match place {
            Place::On(executor) => {
                self.check_executor(*executor)?;
                Ok(Placed::On(executor.0))
            }
            Place::Any(kind) => {
                let at = self.kinds.iter().position(|known| known == kind);
                let at = at.filter(|&at| self.alive_of_kind(at));
                let at = at.ok_or(Error::NoSuchKind { kind: *kind })?;
                Ok(Placed::Any(u32::try_from(at).unwrap_or(NONE)))
            }
            Place::Group(members) => {
                for (index, member) in members.iter().enumerate() {
                    self.check_executor(*member)?;
                    if members[..index].contains(member) {
                        let what = format!("{member} is in it twice");
                        return Err(Error::BadGroup { what });
                    }
                }
                if members.is_empty() {
                    let what = "it has none".into();
                    return Err(Error::BadGroup { what });
                }
                Ok(Placed::Group)
            }
        }
    }

    pub(crate) fn check_executor(&self, executor: Executor) -> Result<(), Error> {
        let exists = (executor.0 as usize) < self.load.len();
        if !exists || self.lost.get(executor.0) {
            return Err(Error::NoSuchExecutor {
                executor,
                lost: exists,
            });
        }
        Ok(())
    }

    /// Whether an executor of this kind is left.
    pub(crate) fn alive_of_kind(&self, kind: usize) -> bool {
        let words = self.of_kind[kind].0.iter().zip(&self.lost.0);
        words.into_iter().any(|(kind, lost)| kind & !lost != 0)
    }

    /// An executor can, or can no longer, be given tasks.
    pub(crate) fn set_lost(&mut self, executor: Executor, lost: bool) {
        self.lost.set(executor.0, lost);
        self.room.set(
            executor.0,
            !lost && self.load[executor.0 as usize] < self.depth[executor.0 as usize],
        );
    }

    /// Adds a task, whose state is `Ready`.
    #[inline]
    pub(crate) fn push<P>(&mut self, slots: &Slots<P>, slot: u32) {
        let task = &slots[slot];
        let key = key(task.priority, task.sequence);
        self.count += 1;
        match task.placed {
            Placed::On(executor) => {
                self.directed[executor as usize].push(Reverse((key, slot)));
                self.has_directed.set(executor, true);
            }
            Placed::Any(kind) => self.free[kind as usize].push(Reverse((key, slot))),
            Placed::Group => {
                self.groups.insert(key, slot);
            }
            Placed::Replay => unreachable!("a replay is not dispatched"),
        }
    }

    /// A ready task was cancelled. Single tasks stay in their heap until they come up.
    pub(crate) fn remove<P>(&mut self, slots: &Slots<P>, slot: u32) {
        self.count -= 1;
        let task = &slots[slot];
        if task.placed == Placed::Group {
            self.groups.remove(&key(task.priority, task.sequence));
        }
    }

    /// Forgets every queue; nothing may be ready.
    pub(crate) fn clear(&mut self) {
        debug_assert_eq!(self.count, 0);
        self.directed.iter_mut().for_each(BinaryHeap::clear);
        self.free.iter_mut().for_each(BinaryHeap::clear);
        self.has_directed.0.fill(0);
    }

    /// The next task that can start now, with the executor if it is a single one. It counts as given.
    #[inline]
    pub(crate) fn next<P>(&mut self, slots: &Slots<P>) -> Option<(u32, Executor)> {
        if self.count == 0 {
            return None;
        }
        if !self.groups.is_empty()
            && let Some(slot) = self.next_group(slots)
        {
            return Some((slot, Executor(NONE)));
        }
        let found = self.next_single(slots);
        if !self.groups.is_empty() {
            self.reserved.0.fill(0);
        }
        found
    }

    fn next_single<P>(&mut self, slots: &Slots<P>) -> Option<(u32, Executor)> {
        let words = self.room.0.len();
        let (first_word, first_bit) = (self.cursor as usize / 64, self.cursor % 64);
        // One word more than there are: the first is looked at from the cursor on, and at the end again.
        for turn in 0..=words {
            let word = (first_word + turn) % words;
            let mut candidates = self.candidates(word);
            if turn == 0 {
                candidates &= u64::MAX << first_bit;
            }
            while candidates != 0 {
                let bit = candidates.trailing_zeros();
                candidates &= candidates - 1;
                let executor = u32::try_from(word).unwrap_or(NONE) * 64 + bit;
                if let Some(slot) = self.pop_for(executor, slots) {
                    let after = executor + 1;
                    self.cursor = if after as usize == self.load.len() {
                        0
                    } else {
                        after
                    };
                    self.count -= 1;
                    self.load[executor as usize] += 1;
                    self.idle.set(executor, false);
                    let room = self.load[executor as usize] < self.depth[executor as usize];
                    self.room.set(executor, room);
                    return Some((slot, Executor(executor)));
                }
            }
        }
        None
    }

    /// Executors of a word that have room, are not reserved, and have a queue with something in it.
    fn candidates(&self, word: usize) -> u64 {
        let mut wanted = self.has_directed.0[word];
        for (heap, of_kind) in self.free.iter().zip(&self.of_kind) {
            if !heap.is_empty() {
                wanted |= of_kind.0[word] & self.idle.0[word];
            }
        }
        wanted & self.room.0[word] & !self.reserved.0[word]
    }

    /// Takes the first task for an executor from the two queues it serves.
    fn pop_for<P>(&mut self, executor: u32, slots: &Slots<P>) -> Option<u32> {
        let kind = self.kind_of[executor as usize] as usize;
        let directed = first(&mut self.directed[executor as usize], slots);
        let free = first(&mut self.free[kind], slots);
        let heap = match (directed, free) {
            (None, None) => {
                self.has_directed.set(executor, false);
                return None;
            }
            (Some(mine), other) if other.is_none_or(|other| mine < other) => {
                &mut self.directed[executor as usize]
            }
            (_, Some(_)) if self.load[executor as usize] == 0 => &mut self.free[kind],
            _ => return None,
        };
        let slot = heap.pop().map(|Reverse((_, slot))| slot);
        if self.directed[executor as usize].is_empty() {
            self.has_directed.set(executor, false);
        }
        slot
    }

    /// Reserves executors for groups, oldest first, and returns a group all of whose members are idle.
    fn next_group<P>(&mut self, slots: &Slots<P>) -> Option<u32> {
        let groups = std::mem::take(&mut self.groups);
        let mut left = self.load.len();
        let mut start = None;
        for (&key, &slot) in groups.iter().take(LOOK_AHEAD) {
            let members = slots.extra(slot).map_or(&[][..], |extra| &extra.members);
            let mut all = true;
            for member in members {
                let kind = self.kind_of[member.0 as usize] as usize;
                let older = |first: Option<u64>| first.is_some_and(|first| first < key);
                if self.reserved.get(member.0)
                    || older(first(&mut self.directed[member.0 as usize], slots))
                    || older(first(&mut self.free[kind], slots))
                {
                    all = false;
                    continue;
                }
                self.reserved.set(member.0, true);
                left -= 1;
                all &= self.load[member.0 as usize] == 0;
            }
            if all {
                start = Some((key, slot));
                break;
            }
            if left == 0 {
                break;
            }
        }
        self.groups = groups;
        let (key, slot) = start?;
        self.groups.remove(&key);
        self.reserved.0.fill(0);
        self.count -= 1;
        for member in slots.extra(slot).map_or(&[][..], |extra| &extra.members) {
            self.load[member.0 as usize] = self.depth[member.0 as usize];
            self.idle.set(member.0, false);
            self.room.set(member.0, false);
        }
        Some(slot)
    }

    /// An executor has reported: it has room again. A member of a group had been given nothing else.
    #[inline]
    pub(crate) fn reported(&mut self, executor: Executor, group: bool) {
        let load = &mut self.load[executor.0 as usize];
        *load = if group { 0 } else { *load - 1 };
        self.idle.set(executor.0, *load == 0);
        self.room.set(executor.0, !self.lost.get(executor.0));
    }
}
