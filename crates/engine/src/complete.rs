//! Completion: executors report, finished tasks are retired, and the tasks that waited for them become ready.

use crate::engine::Engine;
use crate::error::{Error, Status};
use crate::ids::{Executor, NONE, TaskId};
use crate::slots::{Placed, State};

/// What a report of an executor did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completion {
    /// Other members of the group are still running.
    Partial {
        /// How many.
        left: u32,
    },
    /// The task has run, and waits for a signal to be done.
    Deferred,
    /// The task is done; what waited only for it is ready.
    Finished,
}

impl<P, E> Engine<P, E> {
    /// An executor has finished its part of a task.
    ///
    /// # Errors
    /// [`Error::NotRunning`] or [`Error::WrongState`] if it was not given that task.
    #[inline]
    pub fn complete(&mut self, task: TaskId, on: Executor) -> Result<Completion, Error> {
        let slot = self.find_running(task, on)?;
        self.report(slot, on, None)
    }

    /// An executor could not finish its part of a task. What needs its data is cancelled; the run is failed.
    ///
    /// # Errors
    /// As [`complete`](Engine::complete).
    pub fn fail(&mut self, task: TaskId, on: Executor, error: E) -> Result<Completion, Error> {
        let slot = self.find_running(task, on)?;
        self.report(slot, on, Some(error))
    }

    fn find_running(&self, task: TaskId, on: Executor) -> Result<u32, Error> {
        let wanted = "executors report tasks that were dispatched to them, once";
        let Some(slot) = self.slots.find(task)? else {
            let is = Status::Finished;
            return Err(Error::WrongState { task, is, wanted });
        };
        let kept = &self.slots[slot];
        if kept.state != State::Running || kept.placed == Placed::Replay {
            let is = self.status_of(slot);
            return Err(Error::WrongState { task, is, wanted });
        }
        let given = match kept.placed {
            Placed::Group => self
                .slots
                .extra(slot)
                .is_some_and(|extra| extra.outstanding.contains(&on)),
            _ => kept.executor == on,
        };
        if !given {
            return Err(Error::NotRunning { task, executor: on });
        }
        Ok(slot)
    }

    #[inline]
    fn report(&mut self, slot: u32, on: Executor, error: Option<E>) -> Result<Completion, Error> {
        let left = self.member_reported(slot, on);
        if let Some(error) = error {
            self.record_failure(Some(self.slots.id(slot)), Some(on), error);
            self.failed_member(slot);
        } else if left == 0 {
            self.has_run(slot);
        }
        self.retire_finished();
        if left > 0 {
            return Ok(Completion::Partial { left });
        }
        if self.slots[slot].state == State::Deferred {
            return Ok(Completion::Deferred);
        }
        Ok(Completion::Finished)
    }

    /// Frees the executor; returns how many members are still running.
    pub(crate) fn member_reported(&mut self, slot: u32, on: Executor) -> u32 {
        let group = self.slots[slot].placed == Placed::Group;
        self.ready.reported(on, group);
        if !group {
            self.running -= 1;
            return 0;
        }
        let outstanding = &mut self.slots.extra_mut(slot).outstanding;
        outstanding.retain(|&member| member != on);
        let left = u32::try_from(outstanding.len()).unwrap_or(NONE);
        self.running -= u32::from(left == 0);
        left
    }

    /// All members have run: the task is done, or failed before, or waits for signals.
    fn has_run(&mut self, slot: u32) {
        if self.slots[slot].extra != NONE && !self.slots[slot].lost {
            let until = self.slots.extra_mut(slot).until.clone();
            for condition in until {
                self.slots[slot].pending += u32::from(self.watches.wait(slot, condition));
            }
            if self.slots[slot].pending > 0 {
                self.slots[slot].state = State::Deferred;
                return;
            }
        }
        self.completed += u64::from(!self.slots[slot].lost);
        self.finished.push(slot);
    }

    /// A member failed: what needs the task is cancelled now, the task goes when all members have reported.
    pub(crate) fn failed_member(&mut self, slot: u32) {
        self.failed += u64::from(!self.slots[slot].lost);
        self.mark_lost(slot, None);
        let left = self.slots.extra(slot).map_or(0, |extra| extra.outstanding.len());
        if left == 0 {
            self.finished.push(slot);
        }
    }

    /// A task waits for one thing less.
    #[inline]
    pub(crate) fn arrive(&mut self, slot: u32) {
        self.slots[slot].pending -= 1;
        if self.slots[slot].pending == 0 {
            self.activate(slot);
        }
    }

    /// A task waits for nothing any more.
    #[inline]
    pub(crate) fn activate(&mut self, slot: u32) {
        let kept = &mut self.slots[slot];
        match kept.state {
            _ if kept.placed == Placed::Replay => self.begin_replay(slot),
            State::Waiting => {
                kept.state = State::Ready;
                kept.released_by = self.retiring;
                self.ready.push(&self.slots, slot);
            }
            State::Cancelled => self.finished.push(slot),
            State::Deferred => {
                self.completed += 1;
                self.finished.push(slot);
            }
            state => unreachable!("a task that is {state:?} waits for nothing"),
        }
    }

    /// Retires every finished task, and those that finish because of it.
    #[inline]
    pub(crate) fn retire_finished(&mut self) {
        while let Some(slot) = self.finished.pop() {
            self.retiring = self.slots[slot].sequence;
            self.retire(slot);
            self.retiring = 0;
        }
    }

    /// Forgets a task; the tasks that wait for it wait for one task less.
    fn retire(&mut self, slot: u32) {
        let kept = &self.slots[slot];
        let (accesses, replay, node) = (kept.accesses, kept.replay, kept.node);
        let is_replay = kept.placed == Placed::Replay;
        if accesses != NONE {
            let scopes = &mut self.scopes;
            self.access_index
                .forget(accesses, |buffer| scopes.drop_user(buffer));
        }
        let mut head = kept.successors;
        while let Some((to, rest)) = self.edges.pop(head) {
            head = rest;
            self.arrive(to);
        }
        self.slots.release(slot);
        if is_replay {
            self.end_replay(replay);
        } else if replay != NONE {
            self.node_done(replay, node);
        }
    }
}
