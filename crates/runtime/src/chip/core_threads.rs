//! A native chip's cores: they run the tasks of a graph on this thread, or on one thread for each core where
//! processors are free.
//!
//! The engine and the threads are kept from one graph to the next, so a replay only pays for its tasks.

use super::SCRATCH_BYTES;
use super::driver::{CORE_NAMES, ChipEngine, Driver};
use super::replay_arguments::{ReplayArguments, Scratch};
use ringwork_engine::{BufferId, Dispatch};
use ringwork_isa::{Arg, Error, Result, Span};
use ringwork_native::trace::Begin;
use ringwork_native::{NativeCore, SCRATCH};
use ringwork_registry as registry;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// How often to report the progress of core threads to the host.
const LOOK: Duration = Duration::from_millis(50);

/// A kernel with its arguments, for a core thread. The core is sent along and comes back with the result.
struct Job {
    dispatch: Dispatch,
    begin: Begin,
    entry: &'static registry::KernelEntry,
    args: Vec<Arg>,
    core: Box<NativeCore>,
}

/// The result of a task on a core.
type Done = (Dispatch, Box<NativeCore>, Result<()>);

/// A thread that runs the tasks of one core until it is dropped.
struct CoreThread {
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
    /// The core while it is idle and its chip has a graph, and a count of the instructions that it has begun.
    core: Option<Box<NativeCore>>,
    beats: Arc<AtomicU64>,
}

impl Drop for CoreThread {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // The thread catches the panics of its kernels.
            let _ = thread.join();
        }
    }
}

/// What a chip keeps from one graph to the next. After a failure it keeps nothing.
struct CoreThreads {
    driver: Driver,
    /// By executor.
    cores: Vec<Option<CoreThread>>,
    results: (Sender<Done>, Receiver<Done>),
}

thread_local! {
    // A chip has one thread that serves.
    static THREADS: RefCell<Option<Box<CoreThreads>>> = const { RefCell::new(None) };
}

impl CoreThreads {
    fn new() -> Result<CoreThreads> {
        Ok(CoreThreads {
            driver: Driver::new(None)?,
            cores: CORE_NAMES.map(|_| None).into(),
            results: channel(),
        })
    }
}

/// The cores, and the graph they work on.
pub(super) struct Cores<'c> {
    core: &'c NativeCore,
    threads: Box<CoreThreads>,
    pub(super) scratch: Scratch,
    /// The arguments of the tasks, if they are a captured graph's.
    pub(super) bound: Option<&'c ReplayArguments>,
    /// Tasks that a core has received and not begun.
    given: VecDeque<Dispatch>,
    busy: usize,
    /// The end of the last task on this thread, if the thread has done nothing since but look for the next task.
    ended: Option<u64>,
}

impl<'c> Cores<'c> {
    pub(super) fn new(core: &'c NativeCore) -> Result<Cores<'c>> {
        let scratch = core
            .scratch(SCRATCH_BYTES)
            .map_err(|error| Error::failed(format!("memory for intermediates: {error}")))?;
        let kept = THREADS.with_borrow_mut(Option::take);
        Ok(Cores {
            core,
            threads: kept.map_or_else(|| CoreThreads::new().map(Box::new), Ok)?,
            scratch: Scratch {
                segment: SCRATCH,
                base: scratch.data_offset(),
            },
            bound: None,
            given: VecDeque::new(),
            busy: 0,
            ended: None,
        })
    }

    /// The engine of the graph.
    pub(super) fn engine(&mut self) -> &mut ChipEngine {
        &mut self.threads.driver.engine
    }

    /// Whether a task has failed.
    pub(super) fn check(&self) -> Result<()> {
        self.threads.driver.check()
    }

    /// An intermediate's place in memory.
    pub(super) fn in_scratch(&self, span: Span, buffer: BufferId) -> Span {
        match self.threads.driver.engine.placement(buffer) {
            Some(placement) => self.scratch.at(span, placement.offset),
            None => span,
        }
    }

    /// Runs the remaining tasks.
    pub(super) fn finish(mut self) -> Result<()> {
        while self.threads.driver.engine.live() > 0 {
            if !self.advance_any() {
                let stalled = self.threads.driver.stalled();
                return Err(stalled.unwrap_or_else(|| Error::failed("the chip's graph cannot go on")));
            }
        }
        self.check()?;
        self.threads.driver.engine.end_run().map_err(super::refused)?;
        for thread in self.threads.cores.iter_mut().flatten() {
            // The core holds the segments of this moment, which may change before the next graph.
            thread.core = None;
        }
        THREADS.set(Some(self.threads));
        Ok(())
    }

    /// Makes one step: runs a task here, or waits for one that runs on a core thread.
    ///
    /// # Errors
    /// The failure of a task.
    pub(super) fn advance(&mut self) -> Result<()> {
        self.ended = None;
        self.advance_any();
        self.check()
    }

    /// The same; returns whether there was a step to make.
    fn advance_any(&mut self) -> bool {
        while let Some(dispatch) = self.threads.driver.engine.ready() {
            self.given.push_back(dispatch);
        }
        let together = self.given.len() + self.busy > 1;
        // A task whose thread cannot be started is run by `give` itself, so this is a step even if none is busy then.
        let gave = together && self.core.has_free_cores();
        if gave {
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
            if let Some(thread) = &mut self.threads.cores[dispatch.executor.0 as usize] {
                thread.core = Some(core);
            }
            self.threads.driver.report(dispatch, outcome);
        }
        gave || waits
    }

    fn run_here(&mut self, dispatch: Dispatch) {
        let begin = Begin {
            at: self.ended,
            ..self.begin(dispatch)
        };
        let (ended, outcome) = match self.threads.driver.task(dispatch, self.bound) {
            Ok((entry, args)) => run(self.core, begin, entry, args),
            Err(error) => (None, Err(error)),
        };
        self.ended = ended;
        self.threads.driver.report(dispatch, outcome);
    }

    /// The entry with which the start of a task is recorded.
    fn begin(&self, dispatch: Dispatch) -> Begin {
        Begin {
            core: number_of(dispatch),
            number: dispatch.task.sequence(),
            after: self.threads.driver.engine.released_by(dispatch.task),
            at: None,
        }
    }

    /// Waits for a core thread, and reports its progress to the host meanwhile.
    fn wait(&self) -> Done {
        let beats = || {
            let cores = self.threads.cores.iter().flatten();
            cores
                .map(|thread| thread.beats.load(Ordering::Relaxed))
                .sum::<u64>()
        };
        let mut before = beats();
        loop {
            match self.threads.results.1.recv_timeout(LOOK) {
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

    /// Passes a task to its core's thread; if no thread could be started, runs it here.
    fn give(&mut self, dispatch: Dispatch) {
        let at = dispatch.executor.0 as usize;
        if self.threads.cores[at].is_none() {
            self.threads.cores[at] = start_core_thread(self.threads.results.0.clone());
        }
        let (entry, args) = match self.threads.driver.task(dispatch, self.bound) {
            Ok((entry, args)) => (entry, args.to_vec()),
            Err(error) => return self.threads.driver.report(dispatch, Err(error)),
        };
        let begin = self.begin(dispatch);
        let sent = self.threads.cores[at].as_mut().is_some_and(|thread| {
            let core = thread.core.take().unwrap_or_else(|| {
                let (core, beats) = self.core.sibling(number_of(dispatch));
                thread.beats = beats;
                Box::new(core)
            });
            let job = Job {
                dispatch,
                begin,
                entry,
                args,
                core,
            };
            thread.jobs.as_ref().is_some_and(|jobs| jobs.send(job).is_ok())
        });
        if sent {
            self.busy += 1;
        } else {
            self.run_here(dispatch);
        }
    }
}

/// Starts a thread that runs the jobs sent to it.
fn start_core_thread(results: Sender<Done>) -> Option<CoreThread> {
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
                let panic_message = crate::host_tasks::panic_message(&*panic);
                Err(Error::failed(format!("the kernel panicked: {panic_message}")))
            });
            if results.send((dispatch, core, outcome)).is_err() {
                return;
            }
        }
    };
    let thread = std::thread::Builder::new().name("core".into()).spawn(work).ok()?;
    Some(CoreThread {
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
