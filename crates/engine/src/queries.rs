//! Queries: what an engine knows of its tasks, its memory, and the signals it waits for. None changes anything.

use crate::engine::Engine;
use crate::error::{Error, Failure, Status};
use crate::ids::{BufferId, Executor, NONE, TaskId};
use crate::signal_conditions::Watched;
use crate::slots::{Placed, State};
use crate::spec::Placement;

impl<P, E> Engine<P, E> {
    /// The signals whose values matter now, in the order they were first waited for. Read each once when it
    /// appears, and say so with [`signal_changed`](Engine::signal_changed) whenever it changes.
    pub fn watched(&self) -> impl Iterator<Item = Watched> {
        self.watches.iter()
    }

    /// What was submitted, while the task is known.
    #[must_use]
    pub fn payload(&self, task: TaskId) -> Option<&P> {
        let slot = self.slots.find(task).ok()??;
        match self.slots[slot].replay {
            NONE => self.slots[slot].payload.as_ref(),
            replay => self.replays[replay as usize].payload(self.slots[slot].node),
        }
    }

    /// The tasks that wait for this one, among others perhaps; of a replayed graph's task, those of the graph too.
    pub fn successors(&self, task: TaskId) -> impl Iterator<Item = TaskId> {
        let slot = self.slots.find(task).ok().flatten();
        let head = slot.map_or(NONE, |slot| self.slots[slot].successors);
        let replayed = slot
            .map(|slot| &self.slots[slot])
            .filter(|kept| kept.node != NONE);
        let inside = replayed.and_then(|kept| {
            let replay = self.replays.get(kept.replay as usize)?;
            Some(replay.successors(kept.node))
        });
        let outside = self.edges.iter(head).map(|(to, _)| to);
        let all = outside.chain(inside.into_iter().flatten());
        all.map(|slot| self.slots.id(slot))
    }

    /// The number of the last task that this one waited for, if it had to wait for any.
    #[must_use]
    pub fn released_by(&self, task: TaskId) -> Option<u64> {
        let slot = self.slots.find(task).ok()??;
        Some(self.slots[slot].released_by).filter(|number| *number != 0)
    }

    /// The executors that a running task was given to: one, or its group.
    #[must_use]
    pub fn members(&self, task: TaskId) -> &[Executor] {
        let Ok(Some(slot)) = self.slots.find(task) else {
            return &[];
        };
        let kept = &self.slots[slot];
        match (kept.state, kept.placed) {
            (State::Running, Placed::Group) => self.slots.extra(slot).map_or(&[], |extra| &extra.members),
            (State::Running, Placed::On(_) | Placed::Any(_)) => std::slice::from_ref(&kept.executor),
            _ => &[],
        }
    }

    /// Where a live intermediate is.
    #[must_use]
    pub fn placement(&self, buffer: BufferId) -> Option<Placement> {
        self.scopes.placement(buffer)
    }

    /// Where a task is in its life.
    ///
    /// # Errors
    /// [`Error::UnknownTask`] if there never was such a task.
    pub fn status(&self, task: TaskId) -> Result<Status, Error> {
        let slot = self.slots.find(task)?;
        Ok(slot.map_or(Status::Finished, |slot| self.status_of(slot)))
    }

    /// Tasks that are known: accepted and not yet done.
    #[must_use]
    pub fn live(&self) -> u32 {
        self.slots.used()
    }

    /// Tasks that were dispatched and have not reported.
    #[must_use]
    pub fn running(&self) -> u32 {
        self.running
    }

    /// Dependencies on live tasks that submissions were given, since the engine was made; those inside a
    /// replayed graph are not counted again.
    #[must_use]
    pub fn edges_made(&self) -> u64 {
        self.edges_made
    }

    /// The first thing that went wrong in this run.
    #[must_use]
    pub fn failure(&self) -> Option<&Failure<E>> {
        self.failure.as_ref()
    }

    pub(crate) fn status_of(&self, slot: u32) -> Status {
        match self.slots[slot].state {
            State::Free => Status::Finished,
            State::Waiting => Status::Waiting,
            State::Ready => Status::Ready,
            State::Running => Status::Running,
            State::Deferred => Status::Deferred,
            State::Cancelled => Status::Cancelled,
        }
    }
}
