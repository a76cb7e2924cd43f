//! The engine itself: its state, and the ways in.

use crate::access_index::{AccessIndex, Conflict};
use crate::edges::Edges;
use crate::error::{Cancelled, Error, Failure, Fill, Outcome, Ring, RunReport};
use crate::ids::{Arena, BufferId, Executor, NONE, SignalId, Sort, TaskId};
use crate::ready::Ready;
use crate::replay::ReplayState;
use crate::scope::Scopes;
use crate::signal_conditions::Watches;
use crate::slots::{Placed, Slots, State};
use crate::spec::{Access, AccessKind, Config, Place, Placement, Spec, reads_first};

/// A task that starts now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dispatch {
    /// The task.
    pub task: TaskId,
    /// Where, or the first member of its group; [`Engine::members`] has all of them.
    pub executor: Executor,
    /// How many executors start it together.
    pub members: u32,
}

/// A scheduler of tasks that touch memory. See the [module](crate).
#[derive(Debug)]
pub struct Engine<P, E = String> {
    pub(crate) slots: Slots<P>,
    pub(crate) edges: Edges,
    pub(crate) access_index: AccessIndex,
    pub(crate) scopes: Scopes,
    pub(crate) watches: Watches,
    pub(crate) ready: Ready,
    pub(crate) replays: Vec<ReplayState<P>>,
    pub(crate) free_replays: Vec<u32>,
    pub(crate) failure: Option<Failure<E>>,
    pub(crate) cancelled: Vec<Cancelled<P>>,
    /// Every task that was lost with another, and that other; causes come first.
    pub(crate) lost_with: Vec<(TaskId, Option<TaskId>)>,
    pub(crate) completed: u64,
    pub(crate) failed: u64,
    /// Tasks that were dispatched and have not reported.
    pub(crate) running: u32,
    /// Dependencies found or given since the beginning.
    pub(crate) edges_made: u64,
    /// Slots of finished tasks, to be retired.
    pub(crate) finished: Vec<u32>,
    /// The number of the task that is being retired, or 0.
    pub(crate) retiring: u64,
    /// Kept for its allocation, as the next.
    found: Vec<Conflict>,
    satisfied: Vec<u32>,
}

impl<P, E> Engine<P, E> {
    /// An engine with nothing to do.
    ///
    /// # Errors
    /// [`Error::BadConfig`] if it could never run anything.
    pub fn new(config: &Config) -> Result<Engine<P, E>, Error> {
        if config.slots == 0 || config.slots >= 1 << 30 {
            let what = "it needs between 1 and 2^30 slots";
            return Err(Error::BadConfig { what });
        }
        Ok(Engine {
            slots: Slots::new(config.slots),
            edges: Edges::new(),
            access_index: AccessIndex::new(),
            scopes: Scopes::new(&config.arena_bytes),
            watches: Watches::default(),
            ready: Ready::new(&config.executors)?,
            replays: Vec::new(),
            free_replays: Vec::new(),
            failure: None,
            cancelled: Vec::new(),
            lost_with: Vec::new(),
            completed: 0,
            failed: 0,
            running: 0,
            edges_made: 0,
            finished: Vec::new(),
            retiring: 0,
            found: Vec::new(),
            satisfied: Vec::new(),
        })
    }

    /// Takes a task in, after everything before it that touches the same bytes (and one of the two writes).
    ///
    /// # Errors
    /// What is wrong with it, or [`Error::RunFailed`] if something failed before. Nothing has changed then.
    pub fn submit(&mut self, spec: &Spec, payload: P) -> Result<Outcome<TaskId, P>, Error> {
        self.check_running()?;
        let placed = self.ready.check(&spec.place)?;
        self.check_accesses(&spec.accesses)?;
        for &task in &spec.after {
            self.slots.find(task)?;
        }
        if self.slots.used() == self.slots.capacity() {
            let fill = self.slots_full(1)?;
            return Ok(Outcome::Full { fill, payload });
        }
        let slot = self.slots.allocate(placed, spec.priority, Some(payload));
        let slot = slot.expect("a slot is free");
        self.touch_all(slot, &spec.accesses);
        for &task in &spec.after {
            if let Ok(Some(before)) = self.slots.find(task) {
                self.connect(before, slot, true);
            }
        }
        if let Place::Group(members) = &spec.place {
            self.slots.extra_mut(slot).members.extend_from_slice(members);
        }
        if !spec.until.is_empty() {
            self.slots.extra_mut(slot).until.extend_from_slice(&spec.until);
        }
        if !spec.when.is_empty() {
            self.slots.extra_mut(slot).when.extend_from_slice(&spec.when);
            for &condition in &spec.when {
                self.slots[slot].pending += u32::from(self.watches.wait(slot, condition));
            }
        }
        let task = self.slots.id(slot);
        if self.slots[slot].pending == 0 {
            self.activate(slot);
        }
        Ok(Outcome::Accepted(task))
    }

    /// The next task that can start now, if any; it counts as running. Ask again until there is none.
    #[inline]
    pub fn ready(&mut self) -> Option<Dispatch> {
        let (slot, executor) = self.ready.next(&self.slots)?;
        self.running += 1;
        let task = self.slots.id(slot);
        let kept = &mut self.slots[slot];
        kept.state = State::Running;
        if kept.placed == Placed::Group {
            let extra = self.slots.extra_mut(slot);
            extra.outstanding.clone_from(&extra.members);
            return Some(Dispatch {
                task,
                executor: extra.members[0],
                members: u32::try_from(extra.members.len()).unwrap_or(NONE),
            });
        }
        kept.executor = executor;
        Some(Dispatch {
            task,
            executor,
            members: 1,
        })
    }

    /// An intermediate tensor of the innermost scope. Its bytes hold anything.
    ///
    /// # Errors
    /// [`Error::RingStuck`] if it can never fit.
    pub fn allocate(&mut self, arena: Arena, bytes: u64) -> Result<Outcome<BufferId>, Error> {
        self.check_running()?;
        self.scopes.allocate(arena, bytes, self.slots.used() == 0)
    }

    /// Opens a scope: what is allocated from here on lives until it ends.
    ///
    /// # Errors
    /// [`Error::TooDeep`] past [`MAX_SCOPES`](crate::MAX_SCOPES).
    pub fn begin_scope(&mut self) -> Result<(), Error> {
        self.scopes.begin()
    }

    /// Ends the innermost scope: its intermediates go as soon as their users are done.
    ///
    /// # Errors
    /// [`Error::NoScope`] if none is open.
    pub fn end_scope(&mut self) -> Result<(), Error> {
        self.scopes.end()
    }

    /// Says what value a signal has; tasks whose conditions hold now become ready, or done.
    pub fn signal_changed(&mut self, signal: SignalId, value: i32) {
        let mut satisfied = std::mem::take(&mut self.satisfied);
        self.watches.changed(signal, value, &mut satisfied);
        for slot in satisfied.drain(..) {
            self.arrive(slot);
        }
        self.satisfied = satisfied;
        self.retire_finished();
    }

    /// Ends the run: closes every scope, reports, and is as new.
    ///
    /// # Errors
    /// [`Error::NotDone`] while tasks are left.
    pub fn end_run(&mut self) -> Result<RunReport<P, E>, Error> {
        if self.live() > 0 {
            return Err(Error::NotDone {
                live: self.live(),
                running: self.running,
            });
        }
        self.scopes.end_all();
        self.ready.clear();
        self.lost_with.clear();
        // Nothing is live, so nothing may be tracked or allocated (ENG-3, SCOPE-1).
        debug_assert!(self.access_index.is_empty());
        debug_assert!(self.scopes.is_empty());
        Ok(RunReport {
            completed: std::mem::take(&mut self.completed),
            failed: std::mem::take(&mut self.failed),
            failure: self.failure.take(),
            cancelled: std::mem::take(&mut self.cancelled),
        })
    }

    pub(crate) fn check_running(&self) -> Result<(), Error> {
        match &self.failure {
            Some(failure) => Err(Error::RunFailed { task: failure.task }),
            None => Ok(()),
        }
    }

    fn check_accesses(&self, accesses: &[Access]) -> Result<(), Error> {
        for &Access { buffer, view, kind } in accesses {
            match buffer.sort() {
                Sort::Plain if kind == AccessKind::Output => return Err(Error::NotAllocated { buffer }),
                Sort::Plain => {}
                Sort::Intermediate(_) => {
                    let Some(Placement { bytes, .. }) = self.scopes.placement(buffer) else {
                        return Err(Error::NoSuchBuffer { buffer });
                    };
                    if view.end() > bytes {
                        return Err(Error::OutOfBounds { buffer, view, bytes });
                    }
                }
                Sort::Parameter(_) | Sort::Captured(_) => {
                    let capturing = false;
                    return Err(Error::WrongSort { buffer, capturing });
                }
            }
        }
        Ok(())
    }

    /// No slot is free for `needed` more tasks: back-pressure, or an error if there are not so many slots.
    ///
    /// Edges lead only from earlier to later tasks, so live tasks always run, or wait for a signal; slots
    /// become free.
    pub(crate) fn slots_full(&self, needed: u64) -> Result<Fill, Error> {
        let fill = Fill {
            ring: Ring::Slots,
            used: self.slots.used().into(),
            in_open_scopes: 0,
            capacity: self.slots.capacity().into(),
            needed,
        };
        if needed > fill.capacity {
            return Err(Error::RingStuck { fill });
        }
        Ok(fill)
    }

    /// Enters a slot's accesses in the map and makes it wait for what they conflict with.
    pub(crate) fn touch_all(&mut self, slot: u32, accesses: &[Access]) {
        let mut found = std::mem::take(&mut self.found);
        let mut first = NONE;
        for Access { buffer, view, kind } in reads_first(accesses) {
            let does = (kind.reads(), kind.writes());
            self.access_index
                .touch(slot, (buffer, view), does, &mut first, &mut found);
            self.scopes.retain(buffer);
        }
        self.slots[slot].accesses = first;
        for conflict in found.drain(..) {
            self.connect(conflict.owner, slot, conflict.data);
        }
        self.found = found;
    }

    /// One edge from `before` to `after`, at most.
    pub(crate) fn connect(&mut self, before: u32, after: u32, data: bool) {
        let sequence = self.slots[after].sequence;
        let first = &mut self.slots[before];
        if first.mark == sequence {
            if data {
                self.edges.mark_data(first.mark_edge);
            }
            return;
        }
        first.mark = sequence;
        first.mark_edge = self.edges.push(&mut first.successors, after, data);
        self.slots[after].pending += 1;
        self.edges_made += 1;
    }
}
