//! The interpreter's lock during a call: held while the other ranks are in step, given back when one is late (PY-2).
//!
//! A call of a few bytes takes less time than giving the lock back and taking it again. So a call begins with the lock
//! held; when it has looked for a peer some 256 times in vain, the core tells its observer, which gives the lock back.

use pyo3::ffi;
use pyo3::prelude::*;
use ringwork_communicator::WaitObserver;
use std::cell::Cell;

/// What this thread's call has done with the interpreter's lock.
#[derive(Clone, Copy)]
enum Lock {
    /// There is no call of this module's on this thread, or it is a worker: nothing to give back.
    NotOurs,
    /// The call holds it.
    Held,
    /// It was given back; this is what it takes to have it again.
    GivenBack(*mut ffi::PyThreadState),
}

thread_local! {
    static LOCK: Cell<Lock> = const { Cell::new(Lock::NotOurs) };
    /// Whether a signal handler raised an exception during the call; it is the thread's current exception.
    static RAISED: Cell<bool> = const { Cell::new(false) };
    /// Its address tells threads apart.
    static THREAD: u8 = const { 0 };
}

/// A number of this thread, which no other thread has at this time.
#[inline]
pub(crate) fn thread() -> usize {
    THREAD.with(|here| std::ptr::from_ref(here) as usize)
}

fn give_back() {
    if let Lock::Held = LOCK.get() {
        // SAFETY: this thread holds the interpreter's lock (`Held`), and touches nothing of Python until it has it again (PY-2).
        LOCK.set(Lock::GivenBack(unsafe { ffi::PyEval_SaveThread() }));
    }
}

fn take_again() {
    if let Lock::GivenBack(state) = LOCK.replace(Lock::Held) {
        // SAFETY: `state` is what `PyEval_SaveThread` returned on this thread, and is used once.
        unsafe { ffi::PyEval_RestoreThread(state) };
    }
}

/// Takes the lock again when dropped, also by a panic.
struct Call {
    before: Lock,
}

impl Drop for Call {
    fn drop(&mut self) {
        take_again();
        LOCK.set(self.before);
    }
}

/// Makes a call that gives the lock back when it waits, or at once if it is `long`.
///
/// # Errors
/// The exception that a signal handler raised during the call: `KeyboardInterrupt`.
pub(crate) fn during<R>(py: Python<'_>, long: bool, call: impl FnOnce() -> R) -> PyResult<R> {
    let before = LOCK.replace(Lock::Held);
    RAISED.set(false);
    let guard = Call { before };
    if long {
        give_back();
    }
    let outcome = call();
    drop(guard);
    if RAISED.replace(false) {
        return Err(PyErr::fetch(py));
    }
    Ok(outcome)
}

/// Does something that may wait without the lock; `work` must not touch anything of Python (PY-2).
pub(crate) fn without<R>(_py: Python<'_>, work: impl FnOnce() -> R) -> R {
    let guard = Call {
        before: LOCK.replace(Lock::Held),
    };
    give_back();
    let done = work();
    drop(guard);
    done
}

/// What the core tells of its waits.
#[derive(Debug)]
pub(crate) struct Observer;

impl WaitObserver for Observer {
    fn waits(&self) {
        give_back();
    }

    fn is_interrupted(&self) -> bool {
        if RAISED.get() {
            return true;
        }
        if !matches!(LOCK.get(), Lock::GivenBack(_)) {
            return false;
        }
        take_again();
        // SAFETY: this thread has the interpreter's lock again.
        if unsafe { ffi::PyErr_CheckSignals() } != 0 {
            RAISED.set(true);
            return true;
        }
        give_back();
        false
    }
}
