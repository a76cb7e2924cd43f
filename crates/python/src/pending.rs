//! Calls that were begun: their handles.

use crate::errors::raised;
use crate::seam::arrays::Holder;
use crate::seam::lock::without;
use pyo3::prelude::*;
use ringwork_communicator::Pending as Begun;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

/// How long a wait goes on before signals are looked for.
pub(crate) const SLICE: Duration = Duration::from_millis(100);

/// What a pending call has besides its operands (PY-1).
pub(crate) struct Owner {
    #[allow(dead_code, reason = "held for their drop")]
    pub(crate) holders: [Option<Holder>; 2],
    #[allow(dead_code, reason = "held for its drop")]
    pub(crate) object: Option<Py<PyAny>>,
}

enum State {
    Begun(Begun<Owner>),
    Done,
    Failed(PyErr),
}

/// A call that was begun. The call has what it touches: dropping the handle abandons the outcome and nothing else.
#[pyclass(module = "ringwork", frozen)]
pub(crate) struct Pending(Mutex<State>);

impl Pending {
    pub(crate) fn new(begun: Begun<Owner>) -> Pending {
        Pending(Mutex::new(State::Begun(begun)))
    }

    fn lock(&self, py: Python<'_>) -> MutexGuard<'_, State> {
        match self.0.try_lock() {
            Ok(state) => state,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                without(py, || self.0.lock().unwrap_or_else(PoisonError::into_inner))
            }
        }
    }

    /// Waits for `limit`; whether it is done.
    fn wait_for(py: Python<'_>, state: &mut State, limit: Duration) -> bool {
        let State::Begun(begun) = state else { return true };
        if !begun.test() && (limit.is_zero() || !without(py, || begun.wait_for(limit))) {
            return false;
        }
        if let State::Begun(begun) = std::mem::replace(state, State::Done)
            && let Err(error) = begun.wait()
        {
            *state = State::Failed(raised(py, &error));
        }
        true
    }
}

#[pymethods]
impl Pending {
    /// Waits until the call is done. Other Python threads run meanwhile. Ctrl-C ends the wait and not the call, which can
    /// be waited for again.
    fn wait(&self, py: Python<'_>) -> PyResult<()> {
        loop {
            let mut state = self.lock(py);
            let done = Pending::wait_for(py, &mut state, SLICE);
            match &*state {
                State::Failed(error) => return Err(error.clone_ref(py)),
                _ if done => return Ok(()),
                _ => drop(state),
            }
            py.check_signals()?;
        }
    }

    /// Whether the call is done, well or not; `wait` returns at once then.
    fn test(&self, py: Python<'_>) -> bool {
        match self.0.try_lock() {
            Ok(mut state) => Pending::wait_for(py, &mut state, Duration::ZERO),
            // Another thread waits for it.
            Err(_) => false,
        }
    }
}
