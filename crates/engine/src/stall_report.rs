//! Stall reports: what each task waits for, for deadlines and for graphs that cannot go on.

use crate::engine::Engine;
use crate::ids::TaskId;
use crate::slots::State;
use crate::spec::Condition;
use std::fmt;

/// A task that waits for a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The task.
    pub task: TaskId,
    /// What it waits for.
    pub condition: Condition,
    /// The value that the driver last reported.
    pub value: Option<i32>,
    /// Whether it has run, and waits to be done.
    pub deferred: bool,
    /// Whether signals are all that it waits for.
    pub only: bool,
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let why = if self.deferred { "to be done" } else { "to start" };
        write!(f, "{} waits {why} for {}", self.task, self.condition)?;
        match self.value {
            Some(value) => write!(f, ", it is {value}"),
            None => f.write_str(", its value is not known"),
        }
    }
}

/// One step of a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// Waits for a task.
    Task(TaskId),
    /// Waits for a signal; the last value that was reported.
    Signal(Condition, Option<i32>),
}

/// A task that cannot start, and what it waits for, and what that waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    /// The task.
    pub task: TaskId,
    /// Each waits for the next; the last is the cause.
    pub links: Vec<Link>,
}

impl fmt::Display for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.task)?;
        for link in &self.links {
            match link {
                Link::Task(task) => write!(f, " <- {task}")?,
                Link::Signal(condition, Some(value)) => write!(f, " <- {condition} (it is {value})")?,
                Link::Signal(condition, None) => write!(f, " <- {condition} (not known)")?,
            }
        }
        Ok(())
    }
}

/// Nothing runs, nothing is ready, and tasks are left: they wait for signals, directly or through others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stall {
    /// Tasks left.
    pub live: u32,
    /// One chain for each task that no other waits for, oldest first; the first [`Stall::MAX_CHAINS`].
    pub chains: Vec<Chain>,
}

impl Stall {
    /// Chains in a report, at most.
    pub const MAX_CHAINS: usize = 16;
}

impl fmt::Display for Stall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "nothing runs, nothing is ready, {} tasks are left", self.live)?;
        for chain in &self.chains {
            write!(f, "\n  {chain}")?;
        }
        Ok(())
    }
}

impl<P, E> Engine<P, E> {
    /// Every condition that does not hold yet, oldest task first: what a deadline should name.
    #[must_use]
    pub fn what_waits(&self) -> Vec<Waiting> {
        let mut waiting = Vec::new();
        for slot in self.slots.live() {
            let deferred = self.slots[slot].state == State::Deferred;
            let open = self.open_conditions(slot).count();
            let only = self.slots[slot].pending as usize == open;
            for condition in self.open_conditions(slot) {
                waiting.push(Waiting {
                    only,
                    task: self.slots.id(slot),
                    condition,
                    value: self.watches.value(condition.signal),
                    deferred,
                });
            }
        }
        waiting
    }

    /// Whether nothing runs, nothing is ready, and tasks are left. Constant time.
    #[must_use]
    pub fn is_stalled(&self) -> bool {
        self.running == 0 && self.ready.len() == 0 && self.slots.used() > 0
    }

    /// Why nothing moves, if nothing does.
    #[must_use]
    pub fn stall(&self) -> Option<Stall> {
        if !self.is_stalled() {
            return None;
        }
        let live = self.slots.live();
        let capacity = self.slots.capacity() as usize;
        let mut waits_for = vec![None; capacity];
        let mut waited_for = vec![false; capacity];
        for &slot in &live {
            for (to, _) in self.edges.iter(self.slots[slot].successors) {
                // The oldest is kept: chains lead back to the beginning.
                waits_for[to as usize].get_or_insert(slot);
                waited_for[slot as usize] = true;
            }
            for to in self.replay_waiters(slot) {
                waits_for[to as usize].get_or_insert(slot);
                waited_for[slot as usize] = true;
            }
        }
        let is_last = |slot: &u32| !waited_for[*slot as usize];
        let ends = live.iter().copied().filter(is_last);
        let chains = ends.take(Stall::MAX_CHAINS);
        Some(Stall {
            live: self.slots.used(),
            chains: chains.map(|slot| self.chain(slot, &waits_for)).collect(),
        })
    }

    fn chain(&self, from: u32, waits_for: &[Option<u32>]) -> Chain {
        let mut links = Vec::new();
        let mut at = from;
        loop {
            if let Some(condition) = self.open_conditions(at).next() {
                links.push(Link::Signal(condition, self.watches.value(condition.signal)));
                break;
            }
            let Some(before) = waits_for[at as usize] else {
                break;
            };
            let task = self.slots.id(before);
            links.push(Link::Task(task));
            at = before;
        }
        Chain {
            task: self.slots.id(from),
            links,
        }
    }

    /// Conditions of a slot that it waits for now.
    fn open_conditions(&self, slot: u32) -> impl Iterator<Item = Condition> + '_ {
        let conditions = self
            .slots
            .extra(slot)
            .map_or(&[][..], |extra| match self.slots[slot].state {
                State::Waiting => &extra.when,
                State::Deferred => &extra.until,
                _ => &[],
            });
        self.watches.open(slot, conditions)
    }
}
