//! Failures: which tasks fail, which are cancelled with them, and which go on.
//!
//! # Invariants
//! - **FIN-1 (first wins).** The first failure of a run is kept; later ones only spread.
//! - **FIN-2 (downstream).** A task that needs the data of a failed task, or comes after it by an explicit
//!   edge, is cancelled at once, and so on from there. One that only waited for its memory still runs.
//! - **FIN-3 (order through the cancelled).** A cancelled task leaves only when all it waited for has
//!   finished, so a task that waits for its memory does not overtake those it stood behind.
//! - **FIN-4 (no recursion).** However long the chain, spreading and retiring use lists, not the stack.

use crate::engine::Engine;
use crate::error::{Cancelled, Error, Failure, Status};
use crate::ids::{Executor, NONE, TaskId};
use crate::slots::{Placed, State};

impl<P, E> Engine<P, E> {
    /// A task that is not running shall never run, nor what needs it; the run is failed. Of a replay, what
    /// is not running is cancelled. Also for a deadline: a task that waits for a signal to be done, fails.
    ///
    /// # Errors
    /// [`Error::WrongState`] if it is running (stop it, then [`fail`](Engine::fail) it) or over.
    pub fn cancel(&mut self, task: TaskId, error: E) -> Result<(), Error> {
        let wanted = "stop a running task, then fail it; leave one that is over";
        let slot = self.slots.find(task)?.ok_or(Error::WrongState {
            task,
            is: Status::Finished,
            wanted,
        })?;
        match (self.slots[slot].state, self.slots[slot].placed) {
            (State::Waiting | State::Ready | State::Deferred, _) => {
                self.record_failure(Some(task), None, error);
                self.cancel_pending(slot);
            }
            (State::Running, Placed::Replay) => {
                self.record_failure(Some(task), None, error);
                for node in self.live_nodes(self.slots[slot].replay) {
                    self.cancel_pending(node);
                }
                self.mark_lost(slot, None);
            }
            _ => {
                let is = self.status_of(slot);
                return Err(Error::WrongState { task, is, wanted });
            }
        }
        self.retire_finished();
        Ok(())
    }

    /// Nothing more shall start; what is running is left to finish.
    pub fn cancel_all(&mut self, error: E) {
        self.record_failure(None, None, error);
        for slot in self.slots.live() {
            self.cancel_pending(slot);
        }
        self.retire_finished();
    }

    /// An executor is gone. What it was running has failed, what could only run there is cancelled; returns
    /// how many tasks that were. If there were none, the run goes on without it.
    ///
    /// # Errors
    /// [`Error::NoSuchExecutor`] if it is not there.
    pub fn lose(&mut self, executor: Executor, error: E) -> Result<u32, Error> {
        self.ready.check_executor(executor)?;
        self.ready.set_lost(executor, true);
        let (mut error, mut affected) = (Some(error), 0);
        for slot in self.slots.live() {
            let task = self.slots.id(slot);
            let kept = &self.slots[slot];
            let extra = self.slots.extra(slot);
            let hit = match (kept.state, kept.placed) {
                (State::Running, Placed::Replay) => false,
                (State::Running, Placed::Group) => {
                    extra.is_some_and(|extra| extra.outstanding.contains(&executor))
                }
                (State::Running, _) => kept.executor == executor,
                (State::Waiting | State::Ready, Placed::On(on)) => on == executor.0,
                (State::Waiting | State::Ready, Placed::Any(kind)) => {
                    !self.ready.alive_of_kind(kind as usize)
                }
                (State::Waiting | State::Ready, Placed::Group) => {
                    extra.is_some_and(|extra| extra.members.contains(&executor))
                }
                _ => false,
            };
            if !hit {
                continue;
            }
            affected += 1;
            if let Some(error) = error.take() {
                self.record_failure(Some(task), Some(executor), error);
            }
            if self.slots[slot].state == State::Running {
                self.member_reported(slot, executor);
                self.failed_member(slot);
            } else {
                self.cancel_pending(slot);
            }
        }
        self.retire_finished();
        Ok(affected)
    }

    /// From the task that failed to this one, each needing the one before; empty if it was not cancelled.
    #[must_use]
    pub fn path(&self, task: TaskId) -> Vec<TaskId> {
        let mut path = Vec::new();
        let mut wanted = Some(task);
        // Causes were recorded before what they caused.
        for &(lost, because) in self.lost_with.iter().rev() {
            if Some(lost) == wanted {
                path.push(lost);
                wanted = because;
            }
        }
        path.reverse();
        path
    }

    pub(crate) fn record_failure(&mut self, task: Option<TaskId>, executor: Option<Executor>, error: E) {
        self.failure.get_or_insert(Failure {
            task,
            executor,
            error,
        });
    }

    /// Cancels a task that is not running, whatever it waits for; leaves any other alone.
    fn cancel_pending(&mut self, slot: u32) {
        match self.slots[slot].state {
            State::Waiting | State::Ready => self.mark_lost(slot, None),
            State::Deferred => {
                let until = self.slots.extra_mut(slot).until.clone();
                self.slots[slot].pending -= self.watches.cancel(slot, &until);
                self.failed += 1;
                self.mark_lost(slot, None);
                self.finished.push(slot);
            }
            _ => {}
        }
    }

    /// Marks a task as lost, and everything that needs it (FIN-2).
    pub(crate) fn mark_lost(&mut self, slot: u32, because: Option<TaskId>) {
        let mut spread = vec![(slot, because)];
        while let Some((slot, because)) = spread.pop() {
            if std::mem::replace(&mut self.slots[slot].lost, true) {
                continue;
            }
            let task = self.slots.id(slot);
            self.lost_with.push((task, because));
            let kept = &self.slots[slot];
            let not_begun = matches!(kept.state, State::Waiting | State::Ready);
            let needs = self.edges.iter(kept.successors).filter(|&(_, data)| data);
            spread.extend(needs.map(|(to, _)| (to, Some(task))));
            if kept.replay != NONE {
                let replay = &self.replays[kept.replay as usize];
                if kept.placed != Placed::Replay {
                    spread.extend(replay.data_successors(kept.node).map(|to| (to, Some(task))));
                    spread.push((replay.task, Some(task)));
                } else if not_begun {
                    spread.extend(replay.slots.iter().map(|&to| (to, Some(task))));
                }
            }
            if not_begun {
                self.cancel_one(slot, because);
            }
        }
    }

    /// Cancels one waiting or ready task (FIN-3).
    fn cancel_one(&mut self, slot: u32, because: Option<TaskId>) {
        if self.slots[slot].state == State::Ready {
            self.ready.remove(&self.slots, slot);
        } else if let Some(extra) = self.slots.extra(slot) {
            let cancelled = self.watches.cancel(slot, &extra.when);
            self.slots[slot].pending -= cancelled;
        }
        let task = self.slots.id(slot);
        let kept = &mut self.slots[slot];
        kept.state = State::Cancelled;
        if kept.placed != Placed::Replay {
            self.cancelled.push(Cancelled {
                task,
                because,
                payload: kept.payload.take(),
            });
        }
        if kept.pending == 0 {
            self.activate(slot);
        }
    }
}
