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
mod error;
mod guards;
mod issue;
mod memory;
mod origins;
mod queues;
mod signals;
mod state;
mod trace;
mod transfer;

pub use error::{SimError, Stuck, StuckOn};
pub use memory::SegmentSpec;

use crate::time::Ps;
use crate::timeline::{Load, Timeline};
use crate::topology::Topology;
use issue::Progress;
use ringwork_isa::stepped::{Answer, CoreId, Engine, Instruction, SteppedCore};
use ringwork_isa::{Compare, Contributions, Counted, Notify, ReduceOp, Result, Segment, Signal, Span};
use state::State;
use std::cell::RefCell;
use std::future::Future;
use std::panic::Location;
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

impl Engine for Inner {
    fn issue(
        &self,
        core: CoreId,
        instruction: Instruction,
        at: &'static Location<'static>,
    ) -> Poll<Result<Answer>> {
        self.state.borrow_mut().issue(core.0, instruction, at)
    }

    fn answer(&self, core: CoreId) -> Poll<Result<Answer>> {
        self.state.borrow_mut().answer(core.0)
    }

    fn copy(&self, core: CoreId, dst: &Span, src: &Span, at: &'static Location<'static>) -> Poll<Result<()>> {
        let state = &mut *self.state.borrow_mut();
        state.core(core.0).at = Some(at);
        let progress = state.copy(core.0, dst, src);
        if let Ok(Progress::Done) = progress {
            state.schedule_wakes();
            return Poll::Ready(Ok(()));
        }
        let again = || Instruction::Copy { dst: *dst, src: *src };
        state.begun(core.0, progress, again).map(|done| done.map(drop))
    }

    fn reduce(
        &self,
        core: CoreId,
        dst: &Span,
        sources: &[Span],
        op: ReduceOp,
        at: &'static Location<'static>,
    ) -> Poll<Result<()>> {
        let state = &mut *self.state.borrow_mut();
        state.core(core.0).at = Some(at);
        let progress = state.reduce(core.0, dst, sources, op);
        let again = || Instruction::Reduce {
            dst: *dst,
            sources: sources.to_vec(),
            op,
        };
        state.begun(core.0, progress, again).map(|done| done.map(drop))
    }

    fn notify(
        &self,
        core: CoreId,
        signal: &Signal,
        how: Notify,
        at: &'static Location<'static>,
    ) -> Poll<Result<()>> {
        let state = &mut *self.state.borrow_mut();
        state.core(core.0).at = Some(at);
        let done = state.notify(core.0, signal, how);
        state.schedule_wakes();
        // A notification is posted: it never has to wait for anything.
        Poll::Ready(done.map(drop))
    }

    fn wait(
        &self,
        core: CoreId,
        signal: &Signal,
        wanted: (Compare, i32),
        at: &'static Location<'static>,
    ) -> Poll<Result<i32>> {
        let state = &mut *self.state.borrow_mut();
        state.core(core.0).at = Some(at);
        match state.wait(core.0, signal, Some(wanted)) {
            Ok(Progress::Value(value)) => Poll::Ready(Ok(value)),
            Ok(_) => state.answer_value(core.0),
            Err(error) => Poll::Ready(Err(error)),
        }
    }

    fn waited(&self, core: CoreId, _at: &'static Location<'static>) -> Poll<Result<i32>> {
        self.state.borrow_mut().answer_value(core.0)
    }
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

    /// Defines a segment, zeroed.
    ///
    /// # Errors
    /// If it exists, a member does not, or a memory is full.
    pub fn define(&self, spec: SegmentSpec) -> std::result::Result<(), SimError> {
        let ranks = self.ranks();
        if let Some(rank) = spec.members.iter().find(|rank| **rank >= ranks) {
            return Err(SimError::NoSuchRank { rank: *rank, ranks });
        }
        let state = &mut *self.inner.state.borrow_mut();
        state.memory.define(spec, &state.topology.chip.memories)
    }

    /// Takes a segment away. Kernels that still use it get [`ringwork_isa::ErrorKind::NotMapped`].
    pub fn release(&self, segment: Segment) {
        let mut state = self.inner.state.borrow_mut();
        state.memory.release(segment);
        state.signals.release(segment.0);
    }

    /// Writes bytes of a segment from outside, in no time. Does nothing if only time is computed.
    ///
    /// # Errors
    /// [`SimError::NotMapped`] if they are not there.
    pub fn write(&self, segment: Segment, offset: u64, bytes: &[u8]) -> std::result::Result<(), SimError> {
        let mut state = self.inner.state.borrow_mut();
        if state.memory.is_hollow() {
            return Ok(());
        }
        state
            .memory
            .host(segment, offset, bytes.len())?
            .copy_from_slice(bytes);
        let State { memory, signals, .. } = &mut *state;
        signals.refresh(segment.0, offset..offset + bytes.len() as u64, |at| {
            memory.word(segment.0, at)
        });
        Ok(())
    }

    /// Sets the signal at this offset of a segment from outside, in no time, and wakes whoever that satisfies. Does
    /// nothing if only time is computed.
    ///
    /// # Errors
    /// [`SimError::NotMapped`] if it is not there.
    pub fn notify(&self, segment: Segment, offset: u64, value: i32) -> std::result::Result<(), SimError> {
        let mut state = self.inner.state.borrow_mut();
        if state.memory.is_hollow() {
            return Ok(());
        }
        state.memory.host(segment, offset, 4)?;
        state.set_from_outside(segment.0, offset, value);
        Ok(())
    }

    /// Watches the signals at these offsets of segments, and no others: [`take_news`](Machine::take_news) then says
    /// when one was changed, so that a host can stop at that very moment of virtual time. Those that are not there
    /// are left out.
    pub fn watch(&self, signals: &[(Segment, u64)]) {
        let State {
            memory, signals: all, ..
        } = &mut *self.inner.state.borrow_mut();
        let slot = |&(segment, offset): &(Segment, u64)| {
            let value = memory.word(segment.0, offset)?;
            Some(all.slot(segment.0, offset, || value))
        };
        let slots = signals.iter().filter_map(slot).collect();
        all.watch(slots);
    }

    /// Whether a watched signal was changed since this was last asked.
    #[must_use]
    pub fn take_news(&self) -> bool {
        self.inner.state.borrow_mut().signals.take_news()
    }

    /// Reads bytes of a segment from outside, in no time; zeros if only time is computed.
    ///
    /// # Errors
    /// [`SimError::NotMapped`] if they are not there.
    pub fn read(&self, segment: Segment, offset: u64, len: usize) -> std::result::Result<Vec<u8>, SimError> {
        let mut state = self.inner.state.borrow_mut();
        if state.memory.is_hollow() {
            return Ok(vec![0; len]);
        }
        state
            .memory
            .host(segment, offset, len)
            .map(|bytes| bytes.to_vec())
    }

    /// Says from outside where bytes of a segment come from, all of one member's window. Does nothing unless this
    /// machine [proves](Options::prove).
    ///
    /// # Errors
    /// [`SimError::NotMapped`] if they are not there.
    pub fn set_origin(
        &self,
        segment: Segment,
        offset: u64,
        origin: &Contributions,
    ) -> std::result::Result<(), SimError> {
        let mut state = self.inner.state.borrow_mut();
        if let Some((origins, at)) = state.memory.host_origins(segment, offset, origin.bytes())? {
            origins.write(&at, origin);
        }
        Ok(())
    }

    /// Where bytes of a segment come from, all of one member's window; nobody's input unless this machine
    /// [proves](Options::prove).
    ///
    /// # Errors
    /// [`SimError::NotMapped`] if they are not there.
    pub fn origin(
        &self,
        segment: Segment,
        offset: u64,
        bytes: u64,
    ) -> std::result::Result<Contributions, SimError> {
        let mut state = self.inner.state.borrow_mut();
        let found = state.memory.host_origins(segment, offset, bytes)?;
        Ok(found.map_or_else(
            || Contributions::of(Counted::NOTHING, 0, bytes),
            |(origins, at)| origins.read(&at),
        ))
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
    /// the timeline is called after the core. When it ends, the task that it was started for is polled.
    ///
    /// # Errors
    /// [`SimError::NoSuchTask`] if that task has ended.
    pub fn spawn_inside<F>(
        &self,
        task: TaskId,
        core: &str,
        label: impl Into<String>,
        kernel: impl FnOnce(SimCore) -> F,
    ) -> std::result::Result<TaskId, SimError>
    where
        F: Future<Output = Result<()>> + 'static,
    {
        let mut state = self.inner.state.borrow_mut();
        let parent = state.cores.get(task.0 as usize).and_then(Option::as_ref);
        let rank = parent.map(|parent| parent.rank).ok_or(SimError::NoSuchTask)?;
        let id = state.start_inside(task.0, core, label.into());
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
        self.inner.kernels.borrow_mut().push(Some(Box::pin(kernel(core))));
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
    /// [`SimError::TooLong`].
    pub fn turn(&self) -> std::result::Result<bool, SimError> {
        let mut state = self.inner.state.borrow_mut();
        if state.ready.is_empty() && !state.step() {
            return Ok(false);
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

    /// Nothing can happen any more: whoever is left is stuck.
    fn settle(&self) -> std::result::Result<(), SimError> {
        let mut state = self.inner.state.borrow_mut();
        let stuck: Vec<Stuck> = state
            .cores
            .iter()
            .flatten()
            // Whoever waits for tasks of its own is not what is stuck.
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

    /// Load of every link that carried anything, busiest first, then by number.
    #[must_use]
    pub fn loads(&self) -> Vec<Load> {
        let state = self.inner.state.borrow();
        let fabric = state.network.fabric();
        let mut loads: Vec<Load> = fabric
            .links()
            .filter_map(|link| {
                let (bytes, busy_ps) = state.network.load(link);
                let name = || format!("{} {}", fabric.section(link), fabric.link_name(link));
                (bytes > 0).then(|| Load {
                    name: name(),
                    bytes,
                    busy_ps,
                })
            })
            .collect();
        loads.sort_by_key(|load| std::cmp::Reverse(load.busy_ps));
        loads
    }

    /// The busiest link and its load; ties go to the lowest number.
    #[must_use]
    pub fn busiest(&self) -> Option<Load> {
        let state = self.inner.state.borrow();
        let links = state.network.fabric().links();
        let link = links.max_by_key(|link| (state.network.load(*link).1, u32::MAX - link))?;
        let (bytes, busy_ps) = state.network.load(link);
        let fabric = state.network.fabric();
        (bytes > 0).then(|| Load {
            name: format!("{} {}", fabric.section(link), fabric.link_name(link)),
            bytes,
            busy_ps,
        })
    }

    /// Bytes over all links of the network together.
    #[must_use]
    pub fn bytes_carried(&self) -> u64 {
        let state = self.inner.state.borrow();
        state
            .network
            .fabric()
            .links()
            .map(|link| state.network.load(link).0)
            .sum()
    }

    /// What ran where and when, if the machine was asked to keep it.
    #[must_use]
    pub fn timeline(&self) -> Timeline {
        let loads = self.loads();
        let state = self.inner.state.borrow();
        let (rows, places) = state.trace.all_rows(state.topology.ranks());
        let place = |row: u32| places.get(row as usize).copied().unwrap_or(row);
        let mut timeline = Timeline {
            title: state.topology.name.clone(),
            rows,
            slices: state.trace.slices.clone(),
            arrows: state.trace.arrows.clone(),
            loads,
        };
        for slice in &mut timeline.slices {
            slice.row = place(slice.row);
        }
        for arrow in &mut timeline.arrows {
            (arrow.from.0, arrow.to.0) = (place(arrow.from.0), place(arrow.to.0));
        }
        timeline.sort();
        timeline
    }
}
