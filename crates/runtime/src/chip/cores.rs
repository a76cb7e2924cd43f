//! A chip's cores at work on a graph: here, or on threads beside this one where processors are free.
//!
//! The engine and the threads are kept from one graph to the next, so that a replay pays for nothing but its tasks.

use super::bound::{Bound, Scratch};
use super::{Prepared, SCRATCH_BYTES};
use crate::engine::{BufferId, Config, Dispatch, Engine, Kind};
use ringwork_isa::{Arg, Error, ErrorKind, Result, Span};
use ringwork_native::{Begin, NativeCore, SCRATCH, registry};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// The engine of a chip.
pub(super) type ChipEngine = Engine<Prepared, ()>;

/// Cores of each kind: one for matrices, two for vectors.
const MATRIX_CORES: u32 = 1;
const VECTOR_CORES: u32 = 2;

/// What the cores are called, by executor.
pub(crate) const CORE_NAMES: [&str; 3] = ["matrix core", "vector core 0", "vector core 1"];

/// The configuration of a chip's engine: its cores, its memory for intermediates.
pub(super) fn config() -> Config {
    let config = Config::new().arena(SCRATCH_BYTES);
    let config = config.executors(Kind(0), MATRIX_CORES);
    config.executors(Kind(1), VECTOR_CORES)
}

/// How often to say that cores beside this one make progress.
const LOOK: Duration = Duration::from_millis(50);

/// What a core beside this one is to do: a kernel with its arguments. The core goes along and comes back.
struct Job {
    dispatch: Dispatch,
    begin: Begin,
    entry: &'static registry::KernelEntry,
    args: Vec<Arg>,
    core: Box<NativeCore>,
}

/// What became of it.
type Done = (Dispatch, Box<NativeCore>, Result<()>);

/// A thread for a core; it waits for jobs until it is dropped.
struct Beside {
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
    /// The core itself, while it has nothing to do and its chip has a graph, and a count of what it has begun.
    core: Option<Box<NativeCore>>,
    beats: Arc<AtomicU64>,
}

impl Drop for Beside {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // It has caught its kernels' panics.
            let _ = thread.join();
        }
    }
}

/// What a chip keeps from one graph to the next. Of one that failed, nothing is kept.
struct Crew {
    engine: ChipEngine,
    /// By executor.
    beside: Vec<Option<Beside>>,
    results: (Sender<Done>, Receiver<Done>),
}

thread_local! {
    // A chip has one thread that serves.
    static CREW: RefCell<Option<Box<Crew>>> = const { RefCell::new(None) };
}

impl Crew {
    fn new() -> Result<Crew> {
        let config = config();
        Ok(Crew {
            engine: Engine::new(&config).map_err(super::refused)?,
            beside: (0..config.executors.len()).map(|_| None).collect(),
            results: channel(),
        })
    }
}

/// The cores, and the graph they work on.
pub(super) struct Cores<'c> {
    core: &'c NativeCore,
    crew: Box<Crew>,
    pub(super) scratch: Scratch,
    /// The arguments of the tasks, if they are a captured graph's.
    pub(super) bound: Option<&'c Bound>,
    /// Tasks that were given to a core and not begun.
    given: VecDeque<Dispatch>,
    busy: usize,
    failure: Option<Error>,
    /// When the task before ended here, if nothing but finding the next has been done since.
    ended: Option<u64>,
}

impl<'c> Cores<'c> {
    pub(super) fn new(core: &'c NativeCore) -> Result<Cores<'c>> {
        let scratch = core
            .scratch(SCRATCH_BYTES)
            .map_err(|error| Error::failed(format!("memory for intermediates: {error}")))?;
        let kept = CREW.with_borrow_mut(Option::take);
        Ok(Cores {
            core,
            crew: kept.map_or_else(|| Crew::new().map(Box::new), Ok)?,
            scratch: Scratch {
                segment: SCRATCH,
                base: scratch.data_offset(),
            },
            bound: None,
            given: VecDeque::new(),
            busy: 0,
            failure: None,
            ended: None,
        })
    }

    /// What orders the tasks.
    pub(super) fn engine(&mut self) -> &mut ChipEngine {
        &mut self.crew.engine
    }

    /// Whether a task has failed.
    pub(super) fn check(&self) -> Result<()> {
        self.failure.clone().map_or(Ok(()), Err)
    }

    /// An intermediate's place in memory.
    pub(super) fn in_scratch(&self, span: Span, buffer: BufferId) -> Span {
        match self.crew.engine.placement(buffer) {
            Some(placement) => self.scratch.at(span, placement.offset),
            None => span,
        }
    }

    /// Runs what is left.
    pub(super) fn finish(mut self) -> Result<()> {
        while self.crew.engine.live() > 0 {
            if !self.advance_any() {
                let stall = self.crew.engine.stall();
                let stall = stall.map_or_else(String::new, |stall| stall.to_string());
                return Err(Error::failed(format!("the chip's graph: {stall}")));
            }
        }
        self.check()?;
        self.crew.engine.end_run().map_err(super::refused)?;
        for beside in self.crew.beside.iter_mut().flatten() {
            // It holds the memory that the chip has now.
            beside.core = None;
        }
        CREW.set(Some(self.crew));
        Ok(())
    }

    /// Makes one step: runs a task here, or waits for one that runs beside.
    ///
    /// # Errors
    /// The failure of a task.
    pub(super) fn advance(&mut self) -> Result<()> {
        self.ended = None;
        self.advance_any();
        self.check()
    }

    /// The same; whether there was a step to make.
    fn advance_any(&mut self) -> bool {
        while let Some(dispatch) = self.crew.engine.ready() {
            self.given.push_back(dispatch);
        }
        let together = self.given.len() + self.busy > 1;
        if together && self.core.has_free_cores() {
            while let Some(dispatch) = self.given.pop_front() {
                self.give(dispatch);
            }
        } else if let Some(dispatch) = self.given.pop_front() {
            self.run_here(dispatch);
            return true;
        }
        let waits = self.busy > 0;
        if waits {
            let (dispatch, core, outcome) = self.wait();
            self.busy -= 1;
            self.ended = None;
            if let Some(beside) = &mut self.crew.beside[dispatch.executor.0 as usize] {
                beside.core = Some(core);
            }
            self.report(dispatch, outcome);
        }
        waits
    }

    fn run_here(&mut self, dispatch: Dispatch) {
        let begin = Begin {
            at: self.ended,
            ..self.begin(dispatch)
        };
        let (ended, outcome) = match self.task(dispatch) {
            Ok((entry, args)) => run(self.core, begin, entry, args),
            Err(error) => (None, Err(error)),
        };
        self.ended = ended;
        self.report(dispatch, outcome);
    }

    /// What the record needs to know of a task.
    fn begin(&self, dispatch: Dispatch) -> Begin {
        Begin {
            core: number_of(dispatch),
            number: dispatch.task.sequence(),
            after: self.crew.engine.let_go_by(dispatch.task),
            at: None,
        }
    }

    /// A task's kernel, and its arguments as a core sees them.
    fn task(&self, dispatch: Dispatch) -> Result<(&'static registry::KernelEntry, &[Arg])> {
        let engine = &self.crew.engine;
        let found = match self.bound {
            Some(bound) => engine.node_of(dispatch.task).and_then(|node| bound.task(node)),
            None => engine
                .payload(dispatch.task)
                .map(|task| (task.entry, &*task.args)),
        };
        found.ok_or_else(|| Error::failed("a task without a kernel"))
    }

    /// Waits for a core beside this one, and speaks for it meanwhile.
    fn wait(&self) -> Done {
        let beats = || {
            let cores = self.crew.beside.iter().flatten();
            cores
                .map(|beside| beside.beats.load(Ordering::Relaxed))
                .sum::<u64>()
        };
        let mut before = beats();
        loop {
            match self.crew.results.1.recv_timeout(LOOK) {
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
        let engine = &mut self.crew.engine;
        let reported = match outcome {
            Ok(()) => engine.complete(dispatch.task, dispatch.executor),
            Err(error) => {
                let kernel = engine
                    .payload(dispatch.task)
                    .map(|task| task.entry.id().to_string());
                self.failure
                    .get_or_insert_with(|| in_graph(error, kernel.as_deref()));
                engine.fail(dispatch.task, dispatch.executor, ())
            }
        };
        debug_assert!(reported.is_ok(), "it was dispatched");
    }

    /// Gives a task to its core's thread; if there is none to be had, it is run here.
    fn give(&mut self, dispatch: Dispatch) {
        let at = dispatch.executor.0 as usize;
        if self.crew.beside[at].is_none() {
            self.crew.beside[at] = start_beside(self.crew.results.0.clone());
        }
        let (entry, args) = match self.task(dispatch) {
            Ok((entry, args)) => (entry, args.to_vec()),
            Err(error) => return self.report(dispatch, Err(error)),
        };
        let begin = self.begin(dispatch);
        let sent = self.crew.beside[at].as_mut().is_some_and(|beside| {
            let core = beside.core.take().unwrap_or_else(|| {
                let (core, beats) = self.core.sibling(number_of(dispatch));
                beside.beats = beats;
                Box::new(core)
            });
            let job = Job {
                dispatch,
                begin,
                entry,
                args,
                core,
            };
            beside.jobs.as_ref().is_some_and(|jobs| jobs.send(job).is_ok())
        });
        if sent {
            self.busy += 1;
        } else {
            self.run_here(dispatch);
        }
    }
}

/// A thread that runs what it is given.
fn start_beside(results: Sender<Done>) -> Option<Beside> {
    let (jobs, todo) = channel::<Job>();
    let work = move || {
        for Job {
            dispatch,
            begin,
            entry,
            args,
            core,
        } in todo
        {
            let ended = std::panic::catch_unwind(AssertUnwindSafe(|| run(&core, begin, entry, &args).1));
            let outcome = ended.unwrap_or_else(|panic| {
                let words = crate::host::words(&*panic);
                Err(Error::failed(format!("the kernel panicked: {words}")))
            });
            if results.send((dispatch, core, outcome)).is_err() {
                return;
            }
        }
    };
    let thread = std::thread::Builder::new().name("core".into()).spawn(work).ok()?;
    Some(Beside {
        jobs: Some(jobs),
        thread: Some(thread),
        core: None,
        beats: Arc::default(),
    })
}

/// The number of a core in its chip's record; 0 is the chip.
fn number_of(dispatch: Dispatch) -> u8 {
    u8::try_from(dispatch.executor.0).map_or(u8::MAX, |executor| executor.saturating_add(1))
}

/// Runs a task of the graph, and records it; returns when it ended as well.
fn run(
    core: &NativeCore,
    begin: Begin,
    entry: &'static registry::KernelEntry,
    args: &[Arg],
) -> (Option<u64>, Result<()>) {
    let begun = core.begin_task(entry, begin);
    let outcome = (entry.run)(core, args);
    (core.end_task(begun, outcome.is_err()), outcome)
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
