//! The ways out: tasks complete, fail, are cancelled, or lose their executor.
//!
//! # Invariants
//! - **FIN-1 (first wins).** The first failure of a run is kept; later ones only spread.
//! - **FIN-2 (downstream).** Whoever needs the data of a failed task, or comes after it by an explicit edge,
//!   is cancelled at once, and so on from there. Who only had to wait for its memory still runs.
//! - **FIN-3 (order through the cancelled).** A cancelled task leaves only when all it waited for has
//!   finished, so a task that waits for its memory does not overtake those it stood behind.
//! - **FIN-4 (no recursion).** However long the chain, spreading and retiring use lists, not the stack.

use super::error::{Cancelled, Error, Failure, Status};
use super::ids::{Executor, NONE, TaskId};
use super::machine::Engine;
use super::slots::{Placed, State};

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
                self.give_up(slot);
            }
            (State::Running, Placed::Replay) => {
                self.record_failure(Some(task), None, error);
                for node in self.live_nodes(self.slots[slot].replay) {
                    self.give_up(node);
                }
                self.doom(slot, None);
            }
            _ => {
                let is = self.status_of(slot);
                return Err(Error::WrongState { task, is, wanted });
            }
        }
        self.settle();
        Ok(())
    }

    /// Nothing more shall start; what is running is left to finish.
    pub fn cancel_all(&mut self, error: E) {
        self.record_failure(None, None, error);
        for slot in self.slots.live() {
            self.give_up(slot);
        }
        self.settle();
        self.break_circles();
        self.settle();
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
                self.give_up(slot);
            }
        }
        self.settle();
        Ok(affected)
    }

    /// An executor that was lost is back.
    ///
    /// # Errors
    /// [`Error::NoSuchExecutor`] if it never was there.
    pub fn restore(&mut self, executor: Executor) -> Result<(), Error> {
        match self.ready.check_executor(executor) {
            Err(Error::NoSuchExecutor { lost: true, .. }) | Ok(()) => {
                self.ready.set_lost(executor, false);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// From the task that failed to this one, each needing the one before; empty if it was not cancelled.
    #[must_use]
    pub fn path(&self, task: TaskId) -> Vec<TaskId> {
        let mut path = Vec::new();
        let mut wanted = Some(task);
        for &(lost, because) in self.lost_with.iter().rev() {
            if Some(lost) == wanted {
                path.push(lost);
                wanted = because;
            }
        }
        path.reverse();
        path
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
        self.settle();
        if left > 0 {
            return Ok(Completion::Partial { left });
        }
        if self.slots[slot].state == State::Deferred {
            return Ok(Completion::Deferred);
        }
        Ok(Completion::Finished)
    }

    /// Frees the executor; returns how many members are still running.
    fn member_reported(&mut self, slot: u32, on: Executor) -> u32 {
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
        if self.slots[slot].extra != NONE && !self.slots[slot].doomed {
            let until = self.slots.extra_mut(slot).until.clone();
            for condition in until {
                self.slots[slot].pending += u32::from(self.watches.wait(slot, condition));
            }
            if self.slots[slot].pending > 0 {
                self.slots[slot].state = State::Deferred;
                return;
            }
        }
        self.completed += u64::from(!self.slots[slot].doomed);
        self.todo.push(slot);
    }

    /// A member failed: what needs the task is cancelled now, the task goes when all members have reported.
    fn failed_member(&mut self, slot: u32) {
        self.failed += u64::from(!self.slots[slot].doomed);
        self.doom(slot, None);
        let left = self.slots.extra(slot).map_or(0, |extra| extra.outstanding.len());
        if left == 0 {
            self.todo.push(slot);
        }
    }

    fn record_failure(&mut self, task: Option<TaskId>, executor: Option<Executor>, error: E) {
        self.failure.get_or_insert(Failure {
            task,
            executor,
            error,
        });
    }

    /// Cancels a task that is not running, whatever it waits for; leaves any other alone.
    fn give_up(&mut self, slot: u32) {
        match self.slots[slot].state {
            State::Waiting | State::Ready => self.doom(slot, None),
            State::Deferred => {
                let until = self.slots.extra_mut(slot).until.clone();
                self.slots[slot].pending -= self.watches.cancel(slot, &until);
                self.failed += 1;
                self.doom(slot, None);
                self.todo.push(slot);
            }
            _ => {}
        }
    }

    /// Marks a task as lost, and everything that needs it (FIN-2).
    fn doom(&mut self, slot: u32, because: Option<TaskId>) {
        let mut spread = vec![(slot, because)];
        while let Some((slot, because)) = spread.pop() {
            if std::mem::replace(&mut self.slots[slot].doomed, true) {
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

    /// Takes a waiting or ready task out of the race (FIN-3).
    fn cancel_one(&mut self, slot: u32, because: Option<TaskId>) {
        if self.slots[slot].state == State::Ready {
            self.ready.remove(&self.slots, slot);
        } else if let Some(extra) = self.slots.extra(slot) {
            let cancelled = self.watches.cancel(slot, &extra.when);
            self.slots[slot].pending -= cancelled;
        }
        let task = self.slots.id(slot);
        let kept = &mut self.slots[slot];
        if std::mem::replace(&mut kept.held, false) {
            kept.pending -= 1;
            self.held -= 1;
        }
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

    /// Something that a task waited for has happened.
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
                self.ready.push(&self.slots, slot);
            }
            State::Cancelled => self.todo.push(slot),
            State::Deferred => {
                self.completed += 1;
                self.todo.push(slot);
            }
            state => unreachable!("a task that is {state:?} waits for nothing"),
        }
    }

    /// Retires what is over, and what that lets go of.
    #[inline]
    pub(crate) fn settle(&mut self) {
        while let Some(slot) = self.todo.pop() {
            self.retire(slot);
            if self.todo.is_empty() && self.failure.is_some() {
                self.break_circles();
            }
        }
    }

    /// If only cancelled tasks are left, whatever they still wait for is each other: lets them go.
    fn break_circles(&mut self) {
        if !self.is_stalled() {
            return;
        }
        let live = self.slots.live();
        let over = |&slot: &u32| {
            let kept = &self.slots[slot];
            kept.state == State::Cancelled || kept.placed == Placed::Replay
        };
        if !live.iter().all(over) {
            return;
        }
        for &slot in &live {
            let mut head = std::mem::replace(&mut self.slots[slot].successors, NONE);
            while let Some((to, rest)) = self.edges.pop(head) {
                head = rest;
                self.arrive(to);
            }
        }
    }

    /// Forgets a task, and tells those who wait for it.
    fn retire(&mut self, slot: u32) {
        let kept = &self.slots[slot];
        let (accesses, replay, node) = (kept.accesses, kept.replay, kept.node);
        let is_replay = kept.placed == Placed::Replay;
        if accesses != NONE {
            let scopes = &mut self.scopes;
            self.map.forget(accesses, |buffer| scopes.drop_user(buffer));
        }
        let mut head = kept.successors;
        while let Some((to, rest)) = self.edges.pop(head) {
            head = rest;
            self.arrive(to);
        }
        self.slots.give(slot);
        if is_replay {
            self.end_replay(replay);
        } else if replay != NONE {
            self.node_done(replay, node);
        }
    }
}
