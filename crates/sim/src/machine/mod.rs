//! A simulated machine: kernels run on it, data and time are computed in the same run.
//!
//! ```
//! use ringwork_isa::{Compare, Core, Notify, Rank, Segment, Signals};
//! use ringwork_sim::{Machine, Options, SegmentSpec, Topology};
//!
//! let machine = Machine::new(&Topology::preset("ring-2").unwrap(), Options::default());
//! let window = SegmentSpec { segment: Segment(1), members: vec![0, 1], bytes: 8192, memory: 0 };
//! machine.define(window).unwrap();
//! for me in 0..2 {
//!     let row = Signals { segment: Segment(1), base: 0, stride: 4096, count: 1, me: Rank(me), ranks: 2 };
//!     machine
//!         .spawn(me, "ping", move |core| async move {
//!             let mine = row.at(0)?;
//!             core.notify(mine.on(Rank(1 - me))?, Notify::Add(1)).await?;
//!             core.wait(mine, Compare::Ge, 1).await?;
//!             Ok(())
//!         })
//!         .unwrap();
//! }
//! machine.run().unwrap();
//! assert_eq!(machine.now_ps(), 500_000); // one latency
//! ```
//!
//! # Invariants
//! - **SIM-1 (deterministic).** No wall clock, no threads, no order of a hash: the same calls give the same
//!   events, to the byte, in every build.
//! - **SIM-2 (same bits).** Data is what the same kernels compute natively.
//! - **SIM-3 (no hang).** When nothing can happen any more and kernels still wait, [`Machine::run`] says
//!   which and for what.

mod alarm;
mod arrive;
mod engine;
mod error;
mod guards;
mod issue;
mod loads;
mod memory;
mod moves;
mod origins;
mod outside;
mod packets;
mod pieces;
mod queues;
mod signals;
mod state;
mod trace;
mod transfer;

pub use error::{SimError, Stuck, StuckOn};
pub use memory::SegmentSpec;

use crate::time::Ps;
use crate::topology::Topology;
use ringwork_isa::Result;
use ringwork_isa::stepped::{CoreId, Engine, SteppedCore};
use state::State;
use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// The core kernels see on this platform.
pub type SimCore = SteppedCore;

/// What a run keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Compute time only: memory has sizes but no bytes.
    pub timing_only: bool,
    /// Keep where bytes come from instead of what they are: see [`Machine::origin`].
    pub prove: bool,
    /// Keep a timeline.
    pub trace: bool,
    /// Stop when the clock passes this; 0 for never.
    pub limit_ps: Ps,
}

/// A task on a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TaskId(u32);

/// How a task ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// What its kernel returned.
    pub result: Result<()>,
    /// Its first instruction.
    pub start_ps: Ps,
    /// When the last thing it did had arrived.
    pub end_ps: Ps,
}

type Kernel = Pin<Box<dyn Future<Output = Result<()>>>>;

struct Inner {
    state: RefCell<State>,
    kernels: RefCell<Vec<Option<Kernel>>>,
    outcomes: RefCell<Vec<Option<Outcome>>>,
    /// Tasks that have ended since they were last asked for.
    ended: RefCell<Vec<TaskId>>,
    limit_ps: Ps,
}

/// A machine that runs kernels in virtual time.
#[derive(Clone)]
pub struct Machine {
    inner: Rc<Inner>,
}

impl std::fmt::Debug for Machine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "Machine({} at {} ps)",
            self.inner.state.borrow().topology.name,
            self.now_ps()
        )
    }
}

impl Machine {
    /// A machine at time 0, its memory empty.
    #[must_use]
    pub fn new(topology: &Topology, options: Options) -> Machine {
        let state = State::new(topology, options);
        let inner = Inner {
            state: RefCell::new(state),
            kernels: RefCell::default(),
            outcomes: RefCell::default(),
            ended: RefCell::default(),
            limit_ps: options.limit_ps,
        };
        Machine {
            inner: Rc::new(inner),
        }
    }

    /// Ranks there are.
    #[must_use]
    pub fn ranks(&self) -> u32 {
        self.inner.state.borrow().topology.ranks()
    }

    /// The virtual clock.
    #[must_use]
    pub fn now_ps(&self) -> Ps {
        self.inner.state.borrow().now()
    }

    /// Events so far.
    #[must_use]
    pub fn events(&self) -> u64 {
        self.inner.state.borrow().queue.popped()
    }

    /// A hash of the times of all events so far: equal runs have equal ones, traced or not.
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        self.inner.state.borrow().fingerprint
    }

    /// Starts a kernel on a rank, now (plus the chip's launch time).
    ///
    /// # Errors
    /// [`SimError::NoSuchRank`].
    pub fn spawn<F>(
        &self,
        rank: u32,
        label: impl Into<String>,
        kernel: impl FnOnce(SimCore) -> F,
    ) -> std::result::Result<TaskId, SimError>
    where
        F: Future<Output = Result<()>> + 'static,
    {
        let ranks = self.ranks();
        if rank >= ranks {
            return Err(SimError::NoSuchRank { rank, ranks });
        }
        let id = self.inner.state.borrow_mut().start(rank, label.into());
        Ok(self.started(id, rank, kernel))
    }

    /// Starts a kernel for a task that runs, on a core of the same rank, now: there is nothing to launch. Its part of
    /// the timeline is called after the core, with an arrow from the end of the task that it came `after`. When it ends,
    /// the task that it was started for is polled.
    ///
    /// # Errors
    /// [`SimError::NoSuchTask`] if that task has ended.
    pub fn spawn_inside<F>(
        &self,
        task: TaskId,
        after: Option<TaskId>,
        (core, label): (&str, &str),
        kernel: impl FnOnce(SimCore) -> F,
    ) -> std::result::Result<TaskId, SimError>
    where
        F: Future<Output = Result<()>> + 'static,
    {
        let mut state = self.inner.state.borrow_mut();
        let parent = state.cores.get(task.0 as usize).and_then(Option::as_ref);
        let rank = parent.map(|parent| parent.rank).ok_or(SimError::NoSuchTask)?;
        let id = state.start_inside(task.0, after.map(|after| after.0), core, label.to_owned());
        drop(state);
        Ok(self.started(id, rank, kernel))
    }

    /// Keeps the kernel of a core that was started.
    fn started<F>(&self, id: u32, rank: u32, kernel: impl FnOnce(SimCore) -> F) -> TaskId
    where
        F: Future<Output = Result<()>> + 'static,
    {
        let engine = Rc::clone(&self.inner) as Rc<dyn Engine>;
        let core = SteppedCore::new(engine, CoreId(id), ringwork_isa::Device(rank));
        let kernel = kernel(core.clone());
        let kernel = async move {
            kernel.await?;
            core.check_all_awaited()
        };
        self.inner.kernels.borrow_mut().push(Some(Box::pin(kernel)));
        self.inner.outcomes.borrow_mut().push(None);
        TaskId(id)
    }

    /// Runs until nothing is left to happen.
    ///
    /// # Errors
    /// The first kernel that failed, a deadlock, or the clock's limit. Kernels that could not end are gone
    /// afterwards; the machine can be used again.
    pub fn run(&self) -> std::result::Result<(), SimError> {
        while self.turn()? {}
        self.settle()
    }

    /// Runs until a task has ended, and says how.
    ///
    /// # Errors
    /// As [`run`](Machine::run), if the task never ends.
    pub fn run_until(&self, task: TaskId) -> std::result::Result<Outcome, SimError> {
        loop {
            if let Some(outcome) = self.outcome(task) {
                return Ok(outcome);
            }
            if !self.turn()? {
                self.settle()?;
            }
        }
    }

    /// How a task ended; `None` while it has not.
    #[must_use]
    pub fn outcome(&self, task: TaskId) -> Option<Outcome> {
        self.inner
            .outcomes
            .borrow()
            .get(task.0 as usize)
            .cloned()
            .flatten()
    }

    /// The tasks that have ended since this was last called, in the order they did.
    #[must_use]
    pub fn take_ended(&self) -> Vec<TaskId> {
        std::mem::take(&mut *self.inner.ended.borrow_mut())
    }

    /// Goes one step: one event, or one kernel going on; `false` if there is neither. For hosts that look
    /// at something else in between; [`run`](Machine::run) then says whether anybody is left waiting.
    ///
    /// # Errors
    /// [`SimError::TooLong`] and [`SimError::ClockOverflow`].
    pub fn turn(&self) -> std::result::Result<bool, SimError> {
        let mut state = self.inner.state.borrow_mut();
        if state.ready.is_empty() && !state.step() {
            return Ok(false);
        }
        // Times are added with saturation, so this is where an overflow ends up.
        if state.now() == Ps::MAX {
            return Err(SimError::ClockOverflow);
        }
        if self.inner.limit_ps > 0 && state.now() > self.inner.limit_ps {
            return Err(SimError::TooLong {
                at_ps: state.now(),
                limit_ps: self.inner.limit_ps,
            });
        }
        if let Some(core) = state.ready.pop_front() {
            let kernel = self.inner.kernels.borrow_mut()[core as usize].take();
            if let Some(mut kernel) = kernel {
                state.core(core).polling = true;
                drop(state);
                let polled = kernel.as_mut().poll(&mut Context::from_waker(Waker::noop()));
                state = self.inner.state.borrow_mut();
                state.core(core).polling = false;
                match polled {
                    Poll::Pending => self.inner.kernels.borrow_mut()[core as usize] = Some(kernel),
                    Poll::Ready(result) => state.returned(core, result),
                }
            }
        }
        if !state.finished.is_empty() {
            self.collect(&mut state);
        }
        Ok(true)
    }

    /// Notes how finished tasks ended.
    #[cold]
    fn collect(&self, state: &mut State) {
        let end_ps = state.now();
        for core in std::mem::take(&mut state.finished) {
            if let Some(mut ended) = state.cores[core as usize].take() {
                let result = ended.returned.take().unwrap_or(Ok(()));
                let outcome = Outcome {
                    result,
                    start_ps: ended.started_ps,
                    end_ps,
                };
                self.inner.outcomes.borrow_mut()[core as usize] = Some(outcome);
                self.inner.ended.borrow_mut().push(TaskId(core));
                if let Some(parent) = ended.parent
                    && let Some(waiting) = state.cores[parent as usize].as_mut()
                {
                    waiting.children -= 1;
                    state.ready.push_back(parent);
                }
            }
        }
    }

    /// No event is left: the remaining cores are stuck.
    fn settle(&self) -> std::result::Result<(), SimError> {
        let mut state = self.inner.state.borrow_mut();
        let stuck: Vec<Stuck> = state
            .cores
            .iter()
            .flatten()
            // A core that waits for tasks of its own is not the cause.
            .filter(|core| core.children == 0)
            .map(|core| state.stuck(core))
            .collect();
        let (at_ps, mut labels) = (state.now(), Vec::new());
        for core in &mut state.cores {
            labels.push(core.take());
        }
        for cell in &mut state.signals.cells {
            drop(cell.waiters.take());
        }
        drop(state);
        let dropped: Vec<Option<Kernel>> = self
            .inner
            .kernels
            .borrow_mut()
            .iter_mut()
            .map(Option::take)
            .collect();
        drop(dropped);
        let failed = self.take_failure();
        match failed {
            Some((rank, task, error)) => Err(SimError::Failed {
                rank,
                task,
                error: Box::new(error),
                stuck,
            }),
            None if stuck.is_empty() => Ok(()),
            None => Err(SimError::Deadlock { at_ps, stuck }),
        }
    }

    fn take_failure(&self) -> Option<(u32, String, ringwork_isa::Error)> {
        self.inner.state.borrow_mut().failure.take()
    }
}
