//! A chip's cores at work on a graph: here, or on threads beside this one where processors are free.

use super::places::{Scratch, job};
use super::{ChipTask, SCRATCH_BYTES};
use crate::engine::{BufferId, Config, Dispatch, Engine, Kind};
use ringwork_isa::{Arg, Error, ErrorKind, Result, Span};
use ringwork_native::segment::Layout;
use ringwork_native::{NativeCore, SCRATCH, registry};
use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// The engine of a chip.
pub(super) type ChipEngine = Engine<ChipTask, ()>;

/// Cores of each kind: one for matrices, two for vectors.
const MATRIX_CORES: u32 = 1;
const VECTOR_CORES: u32 = 2;

/// What the cores are called, by executor.
pub(crate) const CORE_NAMES: [&str; 3] = ["matrix core", "vector core 0", "vector core 1"];

/// An engine's configuration with the cores of a chip.
pub(super) fn with_cores(config: Config) -> Config {
    let config = config.executors(Kind(0), MATRIX_CORES);
    config.executors(Kind(1), VECTOR_CORES)
}

/// How often to say that cores beside this one make progress.
const LOOK: Duration = Duration::from_millis(50);

/// What a core is to do: a kernel with its arguments.
type Job = (Dispatch, &'static registry::KernelEntry, Vec<Arg>);

/// What became of it.
type Done = (Dispatch, Result<()>);

/// A core on a thread of its own.
struct Beside {
    jobs: Sender<Job>,
    beats: Arc<AtomicU64>,
    thread: JoinHandle<()>,
}

/// The cores, and the graph they work on.
pub(super) struct Cores<'c> {
    core: &'c NativeCore,
    pub(super) engine: ChipEngine,
    scratch: Layout,
    /// What the parameters of a captured graph are this time.
    parameters: &'c [Arg],
    /// Tasks that were given to a core and not begun.
    given: VecDeque<Dispatch>,
    /// By executor.
    beside: Vec<Option<Beside>>,
    busy: usize,
    results: (Sender<Done>, Receiver<Done>),
    failure: Option<Error>,
}

impl<'c> Cores<'c> {
    pub(super) fn new(core: &'c NativeCore, parameters: &'c [Arg]) -> Result<Cores<'c>> {
        let scratch = core
            .scratch(SCRATCH_BYTES)
            .map_err(|error| Error::failed(format!("memory for intermediates: {error}")))?;
        let config = with_cores(Config::new().arena(SCRATCH_BYTES));
        Ok(Cores {
            core,
            engine: Engine::new(&config).map_err(super::refused)?,
            scratch,
            parameters,
            given: VecDeque::new(),
            beside: (0..config.executors.len()).map(|_| None).collect(),
            busy: 0,
            results: channel(),
            failure: None,
        })
    }

    /// Whether a task has failed.
    pub(super) fn check(&self) -> Result<()> {
        self.failure.clone().map_or(Ok(()), Err)
    }

    /// An intermediate's place in memory.
    pub(super) fn in_scratch(&self, span: Span, buffer: BufferId) -> Span {
        match self.engine.placement(buffer) {
            Some(placement) => self.place().at(span, placement.offset),
            None => span,
        }
    }

    /// Runs what is left.
    pub(super) fn finish(&mut self) -> Result<()> {
        while self.engine.live() > 0 {
            if self.engine.is_stalled() {
                let stall = self
                    .engine
                    .stall()
                    .map_or_else(String::new, |stall| stall.to_string());
                return Err(Error::failed(format!("the chip's graph: {stall}")));
            }
            self.advance_any();
        }
        self.check()
    }

    /// Makes one step: runs a task here, or waits for one that runs beside.
    ///
    /// # Errors
    /// The failure of a task.
    pub(super) fn advance(&mut self) -> Result<()> {
        self.advance_any();
        self.check()
    }

    fn advance_any(&mut self) {
        while let Some(dispatch) = self.engine.ready() {
            self.given.push_back(dispatch);
        }
        let together = self.given.len() + self.busy > 1;
        if together && self.core.has_free_cores() {
            while let Some(dispatch) = self.given.pop_front() {
                self.give(dispatch);
            }
        } else if let Some(dispatch) = self.given.pop_front() {
            let outcome = self
                .job(dispatch)
                .and_then(|(_, entry, args)| run(self.core, dispatch, entry, &args));
            return self.report(dispatch, outcome);
        }
        if self.busy > 0 {
            let (dispatch, outcome) = self.wait();
            self.busy -= 1;
            self.report(dispatch, outcome);
        }
    }

    /// Waits for a core beside this one, and speaks for it meanwhile.
    fn wait(&self) -> Done {
        let beats = || {
            let cores = self.beside.iter().flatten();
            cores
                .map(|beside| beside.beats.load(Ordering::Relaxed))
                .sum::<u64>()
        };
        let mut before = beats();
        loop {
            match self.results.1.recv_timeout(LOOK) {
                Ok(result) => return result,
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    let now = beats();
                    if now != before {
                        before = now;
                        self.core.say_again();
                    }
                }
            }
        }
    }

    fn report(&mut self, dispatch: Dispatch, outcome: Result<()>) {
        let reported = match outcome {
            Ok(()) => self.engine.complete(dispatch.task, dispatch.executor),
            Err(error) => {
                let kernel = self
                    .engine
                    .payload(dispatch.task)
                    .map(|task| task.kernel.to_string());
                self.failure
                    .get_or_insert_with(|| in_graph(error, kernel.as_deref()));
                self.engine.fail(dispatch.task, dispatch.executor, ())
            }
        };
        debug_assert!(reported.is_ok(), "it was dispatched");
    }

    fn job(&self, dispatch: Dispatch) -> Result<Job> {
        let (entry, args) = job(&self.engine, dispatch, self.place(), self.parameters)?;
        Ok((dispatch, entry, args))
    }

    fn place(&self) -> Scratch {
        Scratch {
            segment: SCRATCH,
            base: self.scratch.data_offset(),
        }
    }

    /// Gives a task to its core's thread.
    fn give(&mut self, dispatch: Dispatch) {
        let job = match self.job(dispatch) {
            Ok(job) => job,
            Err(error) => return self.report(dispatch, Err(error)),
        };
        let at = dispatch.executor.0 as usize;
        if self.beside[at].is_none() {
            self.beside[at] = self.start_beside(number_of(dispatch));
        }
        let sent = match &self.beside[at] {
            Some(beside) => beside.jobs.send(job).map_err(|job| job.0),
            None => Err(job),
        };
        match sent {
            Ok(()) => self.busy += 1,
            // No thread to be had: here, then.
            Err((_, entry, args)) => {
                let outcome = run(self.core, dispatch, entry, &args);
                self.report(dispatch, outcome);
            }
        }
    }

    fn start_beside(&self, number: u8) -> Option<Beside> {
        let (core, beats) = self.core.sibling(number);
        let (jobs, todo) = channel::<Job>();
        let results = self.results.0.clone();
        let work = move || {
            for (dispatch, entry, args) in todo {
                let ended = std::panic::catch_unwind(AssertUnwindSafe(|| run(&core, dispatch, entry, &args)));
                let outcome = ended.unwrap_or_else(|panic| {
                    let words = crate::host::words(&*panic);
                    Err(Error::failed(format!("the kernel panicked: {words}")))
                });
                if results.send((dispatch, outcome)).is_err() {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("core".into()).spawn(work).ok()?;
        Some(Beside { jobs, beats, thread })
    }
}

impl Drop for Cores<'_> {
    fn drop(&mut self) {
        for Beside { jobs, thread, .. } in self.beside.drain(..).flatten() {
            drop(jobs);
            // It has caught its kernels' panics.
            let _ = thread.join();
        }
    }
}

/// The number of a core in its chip's record; 0 is the chip.
fn number_of(dispatch: Dispatch) -> u8 {
    u8::try_from(dispatch.executor.0).map_or(u8::MAX, |executor| executor.saturating_add(1))
}

/// Runs a task of the graph, and records it.
fn run(
    core: &NativeCore,
    dispatch: Dispatch,
    entry: &'static registry::KernelEntry,
    args: &[Arg],
) -> Result<()> {
    let begun = core.begin_task(entry, number_of(dispatch), dispatch.task.sequence());
    let outcome = (entry.run)(core, args);
    core.end_task(begun, outcome.is_err());
    outcome
}

/// An error of a task of the graph. What a chip must understand stays as it is.
pub(super) fn in_graph(error: Error, kernel: Option<&str>) -> Error {
    match error.kind() {
        ErrorKind::PeerDied { .. } | ErrorKind::Aborted { .. } | ErrorKind::Deadline { .. } => error,
        _ => {
            let kernel = kernel.unwrap_or("unknown");
            Error::failed(format!("its task `{kernel}`: {error}"))
        }
    }
}
