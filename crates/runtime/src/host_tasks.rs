//! Host tasks: closures that are nodes of the graph and run on other threads than the orchestration.
//!
//! A worker has a few such threads, its sub-workers, started when they are first needed. A simulated worker runs its
//! closures one by one on the orchestration's own thread, so that every run is the same.
//!
//! # Invariants
//! - **HOST-1 (unlocked).** Closures run, and are dropped, while the node is not locked: they may use it.
//! - **HOST-2 (waited for).** A run waits for closures that have begun, even if it has failed.

use crate::backend::{Order, Waiter};
use crate::error::{Error, Result};
use crate::node::{Shared, State};
use ringwork_engine::{Executor, TaskId};
use ringwork_native::trace::tsc_clock;
use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The most closures of a worker that run at the same time.
pub(crate) const SUB_WORKERS: u32 = 4;

/// A closure that waits for its turn.
pub(crate) type Closure = Box<dyn FnOnce() -> std::result::Result<(), String> + Send>;

/// Closures that were not begun, and the threads to run them. Beside the node's state (HOST-1).
#[derive(Default)]
pub(crate) struct Closures {
    waiting: BTreeMap<TaskId, Closure>,
    /// By executor; a thread ends when its sender is dropped.
    threads: BTreeMap<Executor, Sender<Turn>>,
}

/// A closure whose turn has come.
struct Turn {
    task: TaskId,
    on: Executor,
    closure: Closure,
}

/// A closure that has ended.
pub(crate) struct Ended {
    task: TaskId,
    on: Executor,
    start: u64,
    end: u64,
    outcome: std::result::Result<(), String>,
}

/// The closures that threads have finished and the node has not processed yet.
#[derive(Default)]
pub(crate) struct Finished {
    list: Mutex<Vec<Ended>>,
    came: Condvar,
}

impl Finished {
    fn list(&self) -> MutexGuard<'_, Vec<Ended>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, ended: Ended) {
        self.list().push(ended);
        self.came.notify_all();
    }

    /// Waits until a closure has finished, but no longer than `at_most`.
    pub(crate) fn wait(&self, at_most: Duration) {
        let list = self.list();
        if list.is_empty() {
            drop(self.came.wait_timeout(list, at_most));
        }
    }
}

impl Turn {
    fn take(self) -> Ended {
        let Turn { task, on, closure } = self;
        let start = tsc_clock::now();
        let ended = std::panic::catch_unwind(AssertUnwindSafe(closure));
        let outcome = ended.unwrap_or_else(|panic| Err(format!("it panicked: {}", panic_message(&*panic))));
        Ended {
            task,
            on,
            start,
            end: tsc_clock::now(),
            outcome,
        }
    }
}

impl Shared {
    pub(crate) fn keep_closure(&self, task: TaskId, closure: Closure) {
        self.closures().waiting.insert(task, closure);
    }

    /// Takes all closures that have not begun.
    pub(crate) fn take_closures(&self) -> BTreeMap<TaskId, Closure> {
        std::mem::take(&mut self.closures().waiting)
    }

    /// Lets the threads end when they have no work left.
    pub(crate) fn dismiss_sub_workers(&self) {
        self.closures().threads.clear();
    }

    /// Starts closures whose turn has come.
    pub(crate) fn start_hosts(&self, turns: Vec<(TaskId, Executor)>) {
        for (task, on) in turns {
            let closure = self.closures().waiting.remove(&task);
            let closure = closure.unwrap_or_else(|| Box::new(|| Err("its closure is gone".into())));
            let turn = Turn { task, on, closure };
            let here = match &self.waiter {
                Some(waiter) => self.give(turn, waiter).err(),
                None => Some(turn),
            };
            if let Some(turn) = here {
                self.take_here(turn);
            }
        }
    }

    /// Passes a closure to its thread; returns it if no thread could be started.
    fn give(&self, turn: Turn, waiter: &Arc<dyn Waiter>) -> std::result::Result<(), Turn> {
        let known = self.closures().threads.get(&turn.on).cloned();
        let thread = match known {
            Some(thread) => thread,
            None => match self.start_sub_worker(waiter) {
                Some(thread) => {
                    self.closures().threads.insert(turn.on, thread.clone());
                    thread
                }
                None => return Err(turn),
            },
        };
        thread.send(turn).map_err(|unsent| unsent.0)
    }

    fn start_sub_worker(&self, waiter: &Arc<dyn Waiter>) -> Option<Sender<Turn>> {
        let (turns, todo) = channel::<Turn>();
        let (finished, waiter) = (self.finished.clone(), waiter.clone());
        let work = move || {
            for turn in todo {
                finished.put(turn.take());
                waiter.wake();
            }
        };
        let thread = std::thread::Builder::new().name("sub-worker".into());
        let thread = thread.spawn(work).ok()?;
        self.lock().host_threads.push(thread.thread().id());
        Some(turns)
    }

    fn take_here(&self, turn: Turn) {
        let me = std::thread::current().id();
        let (task, mut state) = (turn.task.sequence(), self.lock());
        state.host_threads.push(me);
        let work = state.engine.payload(turn.task);
        let name = work.map_or_else(String::new, ToString::to_string);
        state.tell(Order::HostBegins { task, name });
        drop(state);
        let ended = turn.take();
        let mut state = self.lock();
        state.tell(Order::HostEnds { task });
        state.host_threads.retain(|thread| *thread != me);
        state.host_task_ended(ended);
    }
}

impl State {
    /// Whether this thread runs a host task.
    pub(crate) fn is_host_task(&self) -> bool {
        self.host_threads.contains(&std::thread::current().id())
    }

    /// Processes closures that threads have finished.
    pub(crate) fn take_hosted(&mut self) {
        if self.in_flight.hosted > 0 {
            let ended = std::mem::take(&mut *self.finished.list());
            for ended in ended {
                self.host_task_ended(ended);
            }
        }
    }

    fn host_task_ended(&mut self, ended: Ended) {
        let Ended {
            task,
            on,
            start,
            end,
            outcome,
        } = ended;
        self.in_flight.hosted -= 1;
        let name = self
            .engine
            .payload(task)
            .map_or_else(String::new, ToString::to_string);
        let sub_worker = on.0.saturating_sub(self.first_host().0);
        self.history
            .hosted(task.sequence(), name.clone(), sub_worker, (start, end));
        let worker = self.name.clone();
        let outcome = outcome.map_err(|message| Error::Host {
            worker,
            name,
            message,
        });
        self.host_task_done(task, on, outcome);
    }

    pub(crate) fn host_task_done(&mut self, task: TaskId, on: Executor, outcome: Result<()>) {
        let work = self.engine.payload(task).cloned();
        let reported = match outcome {
            Ok(()) => {
                let waiting = self.engine.successors(task).map(TaskId::sequence);
                self.history.waited_for(task.sequence(), waiting);
                self.tell_ended(task);
                let cells = work.iter().flat_map(|work| work.cells_to_start());
                self.history.waited_for_signals(task.sequence(), cells);
                self.engine.complete(task, on)
            }
            Err(error) => {
                self.record_error(error);
                self.engine.fail(task, on, ())
            }
        };
        debug_assert!(reported.is_ok(), "the closure was dispatched");
        if let Some(work) = work {
            self.release_uses(&work);
        }
    }
}

/// Where closures report that they have finished; see [`Shared`].
pub(crate) type Reports = Arc<Finished>;

pub(crate) fn panic_message(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("without a message")
}
