//! A backend whose chips are stepped one at a time by one thread: chips that are simulated, or checked.
//!
//! The machine lives on a thread of its own, because its kernels are not `Send`; the host sends commands and waits for
//! the answer. **The machine moves only while the host waits**: whatever is submitted before starts at the same virtual
//! moment, however long the host took to submit it. So the same program gives the same schedule, and the same times to
//! the picosecond, on a busy host and on an idle one. The machine stops at each event and goes on only when the host
//! has reacted to it.
//!
//! A [`SteppedMachine`] has what differs between machines: which task takes the next step, and whether there is a
//! clock.
//!
//! # Invariants
//! - **SMN-1 (one at a time).** A chip runs its tasks one after the other, in the order they were submitted.
//! - **SMN-2 (aborted at once).** When a task fails, the domains it uses are aborted at that virtual moment.
//! - **SMN-3 (no hang).** A deadlock is reported when nothing can happen any more. While the host may still notify a
//!   domain, its waits are not a deadlock. A kernel that never returns to the executor blocks the thread; the host
//!   notices that nothing moves, and abandons the thread.
//! - **SMN-4 (seen at once).** The machine stops when a task ends and when a signal changes that the host waits for.
//!   While the machine moves, the host reads neither events nor signals.

use super::{Backend, Event, Interrupter, LastSeen, Members, Order, SegmentPlan};
use crate::config::NodeBuilder;
use crate::domain::DomainPlan;
use crate::error::{Error, Result};
use crate::platform::Simulated;
pub(super) use machine::{Starts, SteppedMachine, Stuck, StuckOn};
pub(super) use order::GraphOrder;
use ringwork_check::{Checked, TaskFault};
use ringwork_isa::{Compare, Device, Rank, Segment, Signal, Task};
#[cfg(feature = "sim")]
use ringwork_layout::Bytes;
use ringwork_timeline::Timeline;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use thread::SteppedThread;

mod graph;
mod machine;
mod order;
mod panics;
mod thread;

/// A closure that runs on the machine's thread.
type Command<M> = Box<dyn FnOnce(&mut SteppedThread<M>) + Send>;

/// How long the thread gets to end when asked.
const GRACE: Duration = Duration::from_millis(500);

/// How long an interrupted machine goes on each time, so that kernels learn of the interruption.
const INTERRUPTED_TURN: Duration = Duration::from_millis(20);

/// The state that the host and the machine's thread share.
#[derive(Debug)]
pub(crate) struct Board {
    events: Mutex<Vec<Event>>,
    /// The host has a command: the thread should pause its run.
    attention: AtomicBool,
    /// Counts the machine's steps.
    turns: AtomicU64,
    /// Why virtual time cannot go on, if its counter would overflow.
    over: Mutex<Option<String>>,
    interrupter: Interrupter,
}

impl Board {
    fn events(&self) -> MutexGuard<'_, Vec<Event>> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn over(&self) -> MutexGuard<'_, Option<String>> {
        self.over.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn post(&self, event: Event) {
        self.events().push(event);
    }
}

/// An operation that a machine refused.
#[derive(Debug, thiserror::Error)]
pub(super) enum SteppedError {
    #[error("starting the machine's thread: {0}")]
    NoThread(std::io::Error),
    #[error("the {what} did not answer within {limit_ms} ms")]
    Silent { what: &'static str, limit_ms: u128 },
    #[cfg(feature = "sim")]
    #[error(
        "{what} needs {} of memory and {} are free; ask for less or free some",
        Bytes(*need_bytes),
        Bytes(*have_bytes)
    )]
    OutOfMemory {
        what: String,
        need_bytes: u64,
        have_bytes: u64,
    },
}

impl From<SteppedError> for Error {
    fn from(error: SteppedError) -> Error {
        Error::Platform(Box::new(error))
    }
}

/// The parts from which a machine's thread is made.
pub(super) struct Made<M> {
    pub(super) machine: M,
    /// The facts for the race detector, if there is one.
    pub(super) order: Option<GraphOrder>,
    pub(super) tells_deaths_at_once: bool,
}

/// Chips of a machine that is stepped.
pub(super) struct SteppedBackend<M: SteppedMachine> {
    /// Such as `simulated machine`.
    what: &'static str,
    commands: Option<Sender<Command<M>>>,
    board: Arc<Board>,
    /// Receives a message when the requested run has paused.
    running: Option<Receiver<()>>,
    /// Closed when the thread has ended.
    gone: Receiver<()>,
    devices: Vec<Device>,
    ends: Vec<Option<String>>,
    /// Signals that the host waits for.
    watched: Vec<Signal>,
    /// A kernel blocks the thread, which was abandoned.
    lost: bool,
    limit: Duration,
    /// What had been checked when the machine was closed.
    checked: Option<Checked>,
}

impl<M: SteppedMachine> SteppedBackend<M> {
    /// A machine at its beginning, with the domains of `plans` and their data. Each chip may use one segment for its own
    /// graphs, from `own` on.
    pub(super) fn launch(
        what: &'static str,
        make: impl FnOnce() -> Made<M> + Send + 'static,
        builder: &NodeBuilder,
        plans: &[DomainPlan],
        own: Segment,
    ) -> Result<SteppedBackend<M>> {
        let mut backend = SteppedBackend::start(what, make, &builder.devices, own, builder.wait_limit)?;
        for (spec, plan) in builder.domains.iter().zip(plans) {
            backend.create(&plan.segment)?;
            // The plan was checked against the data, so it fits.
            spec.for_each_staged(plan, |rank, offset, bytes| {
                let _ = backend.write(plan.segment.layout.segment, rank, offset, bytes);
            });
        }
        Ok(backend)
    }

    /// Starts the machine's thread. A machine that does not answer for `limit` is abandoned.
    fn start(
        what: &'static str,
        make: impl FnOnce() -> Made<M> + Send + 'static,
        devices: &[Device],
        own: Segment,
        limit: Duration,
    ) -> Result<SteppedBackend<M>> {
        let board = Arc::new(Board {
            events: Mutex::default(),
            attention: AtomicBool::new(false),
            turns: AtomicU64::new(0),
            over: Mutex::default(),
            interrupter: Interrupter::new()?,
        });
        let (commands, inbox) = channel::<Command<M>>();
        let (alive, gone) = channel::<()>();
        let ranks = devices.iter().map(|device| device.0).collect::<Vec<_>>();
        let thread_board = board.clone();
        let thread = std::thread::Builder::new().name("ringwork-machine".into());
        let spawned = thread.spawn(move || {
            let _alive = alive;
            panics::hear_on_this_thread();
            let Made {
                machine,
                order,
                tells_deaths_at_once,
            } = make();
            let place = (ranks, own);
            let mut thread = SteppedThread::new(machine, order, tells_deaths_at_once, place, thread_board);
            while let Ok(command) = inbox.recv() {
                command(&mut thread);
            }
        });
        spawned.map_err(SteppedError::NoThread)?;
        Ok(SteppedBackend {
            what,
            commands: Some(commands),
            board,
            running: None,
            gone,
            devices: devices.to_vec(),
            ends: vec![None; devices.len()],
            watched: Vec::new(),
            lost: false,
            limit,
            checked: None,
        })
    }

    fn send(&self, command: impl FnOnce(&mut SteppedThread<M>) + Send + 'static) -> bool {
        let sent = self.commands.as_ref().map(|to| to.send(Box::new(command)));
        matches!(sent, Some(Ok(())))
    }

    /// Runs `question` on the machine's thread and returns its answer; `None` if the thread is gone or does not answer.
    fn ask<R: Send + 'static>(
        &self,
        question: impl FnOnce(&mut SteppedThread<M>) -> R + Send + 'static,
    ) -> Option<R> {
        if self.lost {
            return None;
        }
        let (reply, answer) = channel();
        self.board.attention.store(true, Ordering::Relaxed);
        // The host may have stopped waiting by the time there is an answer.
        self.send(move |thread| {
            let _ = reply.send(question(thread));
        });
        let answer = answer.recv_timeout(self.limit).ok();
        self.board.attention.store(false, Ordering::Relaxed);
        answer
    }

    /// Lets time pass until something has happened or until `deadline`, and waits for that.
    fn advance(&mut self, deadline: Instant) {
        if self.running.is_none() {
            let (reply, answer) = channel();
            let asked = self.send(move |thread| {
                thread.run(deadline);
                let _ = reply.send(());
            });
            if !asked {
                return;
            }
            self.running = Some(answer);
        }
        self.hear(deadline.saturating_duration_since(Instant::now()));
    }

    /// Waits at most `patience` for the requested run to pause.
    fn hear(&mut self, patience: Duration) {
        let Some(answer) = &self.running else { return };
        match answer.recv_timeout(patience) {
            Ok(()) => {
                self.running = None;
                let over = self.board.over().take();
                if let Some(why) = over {
                    self.all_ended(&why);
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                self.running = None;
                let what = self.what;
                self.all_ended(&format!("the thread of the {what} ended; this is a bug of ours"));
            }
        }
    }

    fn all_ended(&mut self, cause: &str) {
        for (chip, end) in self.ends.iter_mut().enumerate() {
            if end.is_none() {
                *end = Some(cause.to_owned());
                let cause = cause.to_owned();
                self.board.post(Event::Ended { chip, cause });
            }
        }
    }

    fn silent(&self) -> Error {
        let limit_ms = self.limit.as_millis();
        let what = self.what;
        SteppedError::Silent { what, limit_ms }.into()
    }
}

impl<M: SteppedMachine> Backend for SteppedBackend<M> {
    fn create(&mut self, plan: &SegmentPlan) -> Result<()> {
        let plan = plan.clone();
        self.ask(move |thread| thread.create(&plan))
            .unwrap_or_else(|| Err(self.silent()))
    }

    fn release(&mut self, segment: Segment, _: &[usize]) {
        self.send(move |thread| thread.release(segment));
    }

    fn write(&self, segment: Segment, rank: Rank, offset: u64, bytes: &[u8]) -> bool {
        let bytes = bytes.to_vec();
        self.ask(move |thread| thread.write(segment, rank, offset, &bytes))
            .unwrap_or(false)
    }

    fn read(&self, segment: Segment, rank: Rank, offset: u64, bytes: &mut [u8]) -> bool {
        let len = bytes.len();
        match self.ask(move |thread| thread.read(segment, rank, offset, len)) {
            Some(Some(read)) => {
                bytes.copy_from_slice(&read);
                true
            }
            _ => false,
        }
    }

    fn peek(&self, signal: &Signal) -> Option<i32> {
        let signal = *signal;
        self.ask(move |thread| thread.peek(&signal))?
    }

    fn holds(&self, signal: &Signal, condition: (Compare, i32), waits: bool) -> Option<bool> {
        let signal = *signal;
        self.ask(move |thread| thread.holds(&signal, condition, waits))?
    }

    fn notify(&self, signal: &Signal, value: i32) -> bool {
        let signal = *signal;
        self.ask(move |thread| thread.notify(&signal, value))
            .unwrap_or(false)
    }

    fn watch(&mut self, signals: &[Signal]) -> bool {
        if self.watched != signals {
            self.watched = signals.to_vec();
            let signals = self.watched.clone();
            self.send(move |thread| thread.watch(&signals));
        }
        true
    }

    fn settle(&mut self) -> bool {
        self.ask(|thread| thread.settle()).unwrap_or(false)
    }

    fn moving(&self) -> bool {
        self.running.is_some() && !self.lost
    }

    fn attend(&mut self, segment: Segment, attended: bool) {
        self.ask(move |thread| thread.attend(segment, attended));
    }

    fn abort(&mut self, segment: Segment, reason: &str) {
        let reason = reason.to_owned();
        self.ask(move |thread| thread.abort(segment, &reason));
    }

    fn reset(&mut self, segment: Segment, members: &Members) {
        if members.chips.iter().all(|chip| self.ends[*chip].is_none()) {
            self.ask(move |thread| thread.reset(segment));
        }
    }

    fn submit(&mut self, chip: usize, id: u64, task: &Task) -> Result<bool> {
        if let Some(cause) = &self.ends[chip] {
            return Err(Error::Gone {
                device: self.devices[chip],
                cause: cause.clone(),
            });
        }
        let task = task.clone();
        self.send(move |thread| thread.submit(chip, id, task));
        Ok(true)
    }

    fn events(&mut self) -> Vec<Event> {
        if self.interrupted() && self.board.events().is_empty() {
            self.advance(Instant::now() + INTERRUPTED_TURN);
        }
        if self.moving() {
            self.hear(Duration::ZERO);
        }
        if self.moving() {
            return Vec::new();
        }
        let mut events = std::mem::take(&mut *self.board.events());
        for event in &events {
            if let Event::Ended { chip, cause } = event {
                self.ends[*chip].get_or_insert_with(|| cause.clone());
            }
        }
        // Later events of a chip that was killed are dropped.
        events.retain(|event| match event {
            Event::Ran { chip, .. } | Event::NotMapped { chip, .. } => self.ends[*chip].is_none(),
            Event::Ended { .. } => true,
        });
        events
    }

    fn wait(&mut self, deadline: Option<Instant>) -> bool {
        if (self.moving() || self.board.events().is_empty()) && !self.interrupted() {
            self.advance(deadline.unwrap_or_else(|| Instant::now() + self.limit));
        }
        !self.board.events().is_empty()
    }

    fn interrupted(&self) -> bool {
        self.board.interrupter.is_interrupted()
    }

    fn interrupter(&self) -> Interrupter {
        self.board.interrupter.clone()
    }

    fn end(&self, chip: usize) -> Option<String> {
        self.ends[chip].clone()
    }

    fn last_seen(&self, chip: usize) -> LastSeen {
        // A chip may wait as long as any other chip moves. A kernel that blocks the thread cannot be queried.
        let count = self.board.turns.load(Ordering::Relaxed);
        let what = if self.running.is_some() {
            "a kernel that has not come back to its core".into()
        } else {
            self.ask(move |thread| thread.doing(chip)).unwrap_or_default()
        };
        LastSeen { count, what }
    }

    fn pid(&self, chip: usize) -> Option<u32> {
        self.ends[chip].is_none().then(std::process::id)
    }

    fn kill(&mut self, chip: usize) {
        self.ends[chip].get_or_insert_with(|| "it made no progress and was given up".into());
        self.lost |= self.running.is_some();
    }

    fn close(&mut self) {
        if self.running.is_none() {
            self.checked = self.ask(|thread| thread.checked()).flatten();
        }
        self.board.interrupter.interrupt();
        self.commands = None;
        // A thread that a kernel blocks is abandoned, because a thread cannot be ended from outside.
        if !self.lost {
            let _ = self.gone.recv_timeout(GRACE);
        }
    }

    fn simulated(&self) -> Option<Simulated> {
        self.ask(|thread| thread.simulated())?
    }

    fn timeline(&self) -> Option<Timeline> {
        self.ask(|thread| thread.timeline())?
    }

    fn is_told(&self) -> bool {
        true
    }

    fn hear(&mut self, order: Order) {
        self.send(move |thread| thread.hear(order));
    }

    fn take_faults(&mut self) -> Vec<TaskFault> {
        self.ask(|thread| thread.take_faults()).unwrap_or_default()
    }

    fn checked(&self) -> Option<Checked> {
        self.checked
            .clone()
            .or_else(|| self.ask(|thread| thread.checked())?)
    }
}
