//! The simulated backend: chips of a described machine, in virtual time.
//!
//! The machine lives on a thread of its own, because kernels on it are not `Send`; the host sends it closures and
//! waits for the answers. **Time passes only while the host waits**: all tasks that were submitted before start at
//! the same virtual moment, however long the host took to submit them. So the same program gives the same times, to
//! the picosecond, on a busy host and on an idle one. The host receives each event at its virtual moment, and time
//! continues only when the host has reacted to it.
//!
//! # Invariants
//! - **SMN-1 (one at a time).** A chip runs its tasks one after the other, in the order they were submitted.
//! - **SMN-2 (aborted first).** When a task fails, its domains are aborted at that virtual moment.
//! - **SMN-3 (no hang).** A deadlock is reported when no event is left and the host cannot cause one either: it may
//!   still notify a domain that it serves. A kernel that never returns to its core blocks the thread; the host
//!   notices that no event happens, and leaves the thread behind.
//! - **SMN-4 (seen at once).** Time stops when a task ends and when a signal changes that the host waits for. The
//!   host reads neither ends nor signals while time passes.

use super::{Backend, Event, Interrupter, LastSeen, Members, SegmentPlan};
use crate::config::NodeBuilder;
use crate::domain::DomainPlan;
use crate::error::{Error, Result};
use crate::platform::{Simulated, Simulation};
use ringwork_isa::{Device, Rank, Segment, Signal, Task};
use ringwork_timeline::Timeline;
use sim_thread::SimThread;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

mod graph;
mod panics;
mod sim_thread;

/// A closure for the simulator's thread.
type Command = Box<dyn FnOnce(&mut SimThread) + Send>;

/// How long the thread gets to end when asked.
const GRACE: Duration = Duration::from_millis(500);

/// How long an interrupted machine runs on per step, so that its kernels see the interrupt.
const INTERRUPTED_TURN: Duration = Duration::from_millis(20);

/// The state that host and thread share.
#[derive(Debug)]
pub(crate) struct Board {
    events: Mutex<Vec<Event>>,
    /// The host wants to ask something: a run should pause.
    attention: AtomicBool,
    /// Grows while the machine moves.
    turns: AtomicU64,
    interrupter: Interrupter,
}

impl Board {
    fn events(&self) -> MutexGuard<'_, Vec<Event>> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn post(&self, event: Event) {
        self.events().push(event);
    }
}

/// What a simulated machine could not do.
#[derive(Debug, thiserror::Error)]
enum SimBackendError {
    #[error("starting the simulator's thread: {0}")]
    NoThread(std::io::Error),
    #[error("the simulated machine did not answer within {limit_ms} ms")]
    Silent { limit_ms: u128 },
    #[error("{what} needs {need_bytes} bytes of memory and {have_bytes} are free; ask for less or free some")]
    OutOfMemory {
        what: String,
        need_bytes: u64,
        have_bytes: u64,
    },
    #[error(transparent)]
    Machine(ringwork_sim::SimError),
}

impl From<SimBackendError> for Error {
    fn from(error: SimBackendError) -> Error {
        Error::Platform(Box::new(error))
    }
}

/// Chips of a described machine.
#[derive(Debug)]
pub(crate) struct SimBackend {
    commands: Option<Sender<Command>>,
    board: Arc<Board>,
    /// Answers when a run has paused.
    running: Option<Receiver<()>>,
    /// Closed when the thread has ended.
    gone: Receiver<()>,
    devices: Vec<Device>,
    ends: Vec<Option<String>>,
    /// Signals that the host waits for.
    watched: Vec<Signal>,
    /// A kernel blocks the thread, and is not waited for any more.
    lost: bool,
    limit: Duration,
}

impl SimBackend {
    /// A machine at time 0, with the domains of `plans` and their data. The node's devices are ranks of its topology.
    /// Each may use one segment for its own graphs, from `own` on.
    pub(super) fn launch(
        simulation: &Simulation,
        builder: &NodeBuilder,
        plans: &[DomainPlan],
        own: Segment,
    ) -> Result<SimBackend> {
        let mut backend = SimBackend::start(simulation, &builder.devices, own, builder.wait_limit)?;
        for (spec, plan) in builder.domains.iter().zip(plans) {
            backend.create(&plan.segment)?;
            // The plan was checked against the data, so it fits.
            spec.for_each_staged(plan, |rank, offset, bytes| {
                let _ = backend.write(plan.segment.layout.segment, rank, offset, bytes);
            });
        }
        Ok(backend)
    }

    /// Starts the simulator's thread. A machine that does not answer for `limit` is given up.
    fn start(
        simulation: &Simulation,
        devices: &[Device],
        own: Segment,
        limit: Duration,
    ) -> Result<SimBackend> {
        let board = Arc::new(Board {
            events: Mutex::default(),
            attention: AtomicBool::new(false),
            turns: AtomicU64::new(0),
            interrupter: Interrupter::new()?,
        });
        let (commands, inbox) = channel::<Command>();
        let (alive, gone) = channel::<()>();
        let (simulation, ranks, thread_board) = (
            simulation.clone(),
            devices.iter().map(|device| device.0).collect::<Vec<_>>(),
            board.clone(),
        );
        let thread = std::thread::Builder::new().name("ringwork-sim".into());
        let spawned = thread.spawn(move || {
            let _alive = alive;
            panics::hear_on_this_thread();
            let mut thread = SimThread::new(&simulation, ranks, own, thread_board);
            while let Ok(command) = inbox.recv() {
                command(&mut thread);
            }
        });
        spawned.map_err(SimBackendError::NoThread)?;
        Ok(SimBackend {
            commands: Some(commands),
            board,
            running: None,
            gone,
            devices: devices.to_vec(),
            ends: vec![None; devices.len()],
            watched: Vec::new(),
            lost: false,
            limit,
        })
    }

    fn send(&self, command: impl FnOnce(&mut SimThread) + Send + 'static) -> bool {
        let sent = self.commands.as_ref().map(|to| to.send(Box::new(command)));
        matches!(sent, Some(Ok(())))
    }

    /// Runs a closure on the thread; `None` if the thread is gone or does not answer.
    fn ask<R: Send + 'static>(
        &self,
        question: impl FnOnce(&mut SimThread) -> R + Send + 'static,
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

    /// Lets time pass until an event or `deadline`, and waits for that.
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

    /// Waits for as long until the requested run has paused.
    fn hear(&mut self, patience: Duration) {
        let Some(answer) = &self.running else { return };
        match answer.recv_timeout(patience) {
            Ok(()) => self.running = None,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                self.running = None;
                self.all_ended("the simulator's thread ended; this is a bug of ours");
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
        SimBackendError::Silent { limit_ms }.into()
    }
}

impl Backend for SimBackend {
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
        // Messages of a chip that was ended are ignored.
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
        // A chip may wait for as long as any other moves. A kernel that blocks the thread cannot be asked.
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
        self.board.interrupter.interrupt();
        self.commands = None;
        // A thread that a kernel blocks is left behind: it cannot be ended from outside.
        if !self.lost {
            let _ = self.gone.recv_timeout(GRACE);
        }
    }

    fn simulated(&self) -> Option<Simulated> {
        self.ask(|thread| thread.simulated())
    }

    fn timeline(&self) -> Option<Timeline> {
        self.ask(|thread| thread.timeline())?
    }
}
