//! Whose turn it is: one Python thread at a time drives a node, and Ctrl-C reaches it there.
//!
//! A node's waits happen without the interpreter's lock. Ten times a second a wait takes the lock to look for signals; an
//! exception that a signal handler raises interrupts the node, and comes out of the call that waited. The node cannot run
//! anything afterwards.

use super::errors::raised;
use crate::errors::{build, unusable};
use crate::seam::forks::generation;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use ringwork_runtime::Result;
use std::cell::Cell;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

thread_local! {
    /// Whether this thread is in a host closure: part of the run that is under way.
    static IN_CLOSURE: Cell<bool> = const { Cell::new(false) };
}

/// A node's turn, shared by the handles to what lives on it.
#[derive(Clone)]
pub(crate) struct Turn(Arc<State>);

struct State {
    /// The process that made the node (PY-3).
    generation: u32,
    /// The thread that drives the node.
    driver: Mutex<Option<ThreadId>>,
    /// What a signal handler raised.
    raised: Mutex<Option<PyErr>>,
}

/// The turn of a thread, until it is dropped.
pub(crate) struct Taken<'a>(Option<&'a State>);

impl Taken<'_> {
    /// Whether the thread has it already: in a run, or in a host closure of one.
    pub(crate) fn is_nested(&self) -> bool {
        self.0.is_none()
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        if let Some(state) = self.0 {
            *lock(&state.driver) = None;
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Marks this thread as one that runs a closure, until it is dropped.
pub(crate) struct InClosure(bool);

impl InClosure {
    pub(crate) fn begin() -> InClosure {
        InClosure(IN_CLOSURE.replace(true))
    }
}

impl Drop for InClosure {
    fn drop(&mut self) {
        IN_CLOSURE.set(self.0);
    }
}

/// Whether this thread is in a host closure.
pub(crate) fn is_in_closure() -> bool {
    IN_CLOSURE.get()
}

impl Turn {
    /// Of a node that this process makes.
    pub(crate) fn new() -> Turn {
        Turn(Arc::new(State {
            generation: generation(),
            driver: Mutex::default(),
            raised: Mutex::default(),
        }))
    }

    /// Refuses a process that `fork` made: the node is its parent's (PY-3).
    pub(crate) fn check_process(&self, py: Python<'_>) -> PyResult<()> {
        if !self.is_of_another_process() {
            return Ok(());
        }
        let problem =
            "this process was made by os.fork and has no chips; make the node in the process that uses it";
        Err(unusable(py, problem))
    }

    /// Whether this process was made by `fork` from the one that made the node.
    pub(crate) fn is_of_another_process(&self) -> bool {
        self.0.generation != generation()
    }

    /// Called when a handle to memory of the node is dropped. In a process that `fork` made it leaks a reference, as the
    /// last one would tell the parent's chips to give the memory up (PY-3).
    pub(crate) fn leave<H: Clone>(&self, handle: &H) {
        if self.is_of_another_process() {
            std::mem::forget(handle.clone());
        }
    }

    /// Takes the turn for this thread; a thread that has it may take it again.
    pub(crate) fn begin(&self, py: Python<'_>) -> PyResult<Taken<'_>> {
        self.check_process(py)?;
        let me = thread::current().id();
        if is_in_closure() {
            return Ok(Taken(None));
        }
        let mut driver = lock(&self.0.driver);
        match *driver {
            Some(other) if other == me => Ok(Taken(None)),
            Some(_) => {
                let problem = "another thread drives this node now; one thread at a time runs and reads";
                Err(build(py, "NodeError", problem, &PyDict::new(py))?)
            }
            None => {
                *driver = Some(me);
                drop(driver);
                Ok(Taken(Some(&self.0)))
            }
        }
    }

    /// Does something that may wait, without the interpreter's lock.
    pub(crate) fn take<R: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce() -> Result<R> + Send,
    ) -> PyResult<R> {
        let _turn = self.begin(py)?;
        let outcome = py.detach(work);
        self.outcome(py, outcome)
    }

    /// What a call returned, or what a signal handler raised during it.
    pub(crate) fn outcome<R>(&self, py: Python<'_>, outcome: Result<R>) -> PyResult<R> {
        outcome.map_err(|error| {
            let interrupt = if error.is_interrupted() {
                lock(&self.0.raised).take()
            } else {
                None
            };
            interrupt.unwrap_or_else(|| raised(py, &error))
        })
    }

    /// Looks for signals, on a thread that waits; whether to go on waiting.
    pub(crate) fn look(&self) -> bool {
        let looked = Python::try_attach(|py| match py.check_signals() {
            Ok(()) => true,
            Err(error) => {
                *lock(&self.0.raised) = Some(error);
                false
            }
        });
        // The interpreter is ending (PY-4): nobody asks any more.
        looked.unwrap_or(true)
    }
}
