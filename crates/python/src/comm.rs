//! `Comm`: a communicator, and its calls on arrays.

mod calls;

use crate::errors::{argument, raised, unusable};
use crate::pending::{Owner, Pending, SLICE};
use crate::seam::arrays::Holder;
use crate::seam::forks::generation;
use crate::seam::lock::{Observer, during, thread, without};
use crate::window::Window;
use pyo3::prelude::*;
use pyo3::types::PyString;
use ringwork_communicator::{Call, Communicator, Error, Operands};
use ringwork_isa::Dtype;
use std::ops::Deref;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

/// Calls of more bytes give the interpreter's lock back at once: they take longer than that does.
pub(crate) const LONG_BYTES: usize = 16 << 10;

/// A group of ranks that make collective calls together. Made by `ringwork.init`, `Comm.join` or `Comm.split`.
///
/// Threads may share it: their calls are made one after the other. Every rank must make the same calls in the same order.
#[pyclass(module = "ringwork", frozen, weakref)]
pub(crate) struct Comm {
    inner: Mutex<Option<Communicator>>,
    /// The thread that has it in a call; 0 if none.
    pub(crate) user: AtomicUsize,
    generation: u32,
    rank: u32,
    size: u32,
}

/// The communicator, while one thread uses it.
struct Used<'a> {
    comm: &'a Comm,
    inner: MutexGuard<'a, Option<Communicator>>,
}

impl Deref for Used<'_> {
    type Target = Option<Communicator>;
    fn deref(&self) -> &Option<Communicator> {
        &self.inner
    }
}

impl Drop for Used<'_> {
    fn drop(&mut self) {
        self.comm.user.store(0, Ordering::Relaxed);
    }
}

impl Comm {
    pub(crate) fn new(py: Python<'_>, comm: Communicator) -> PyResult<Comm> {
        comm.set_wait_observer(Some(Arc::new(Observer)))
            .map_err(|error| raised(py, &error))?;
        Ok(Comm {
            rank: comm.rank(),
            size: comm.size(),
            inner: Mutex::new(Some(comm)),
            user: AtomicUsize::new(0),
            generation: generation(),
        })
    }

    /// Has the communicator for this thread; waits, without the interpreter's lock, while another thread has it (PY-2).
    #[inline]
    fn used(&self, py: Python<'_>) -> PyResult<Used<'_>> {
        if self.generation != generation() {
            return Err(unusable(
                py,
                "this process was made by os.fork and is not a rank; join in the process that communicates",
            ));
        }
        let inner = match self.inner.try_lock() {
            Ok(inner) => inner,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) if self.user.load(Ordering::Relaxed) == thread() => {
                return Err(unusable(
                    py,
                    "a signal handler called the communicator in the middle of another call",
                ));
            }
            Err(TryLockError::WouldBlock) => {
                without(py, || self.inner.lock().unwrap_or_else(PoisonError::into_inner))
            }
        };
        self.user.store(thread(), Ordering::Relaxed);
        Ok(Used { comm: self, inner })
    }

    /// Does something with the open communicator, when what is pending is done. `long` gives the lock back at once.
    #[inline]
    pub(crate) fn with<R>(
        &self,
        py: Python<'_>,
        long: bool,
        work: impl FnOnce(&Communicator) -> Result<R, Error>,
    ) -> PyResult<R> {
        let used = self.used(py)?;
        let Some(comm) = &*used else {
            return Err(unusable(py, "the communicator is closed"));
        };
        if !comm.settle(Duration::ZERO) {
            while !without(py, || comm.settle(SLICE)) {
                py.check_signals()?;
            }
        }
        let outcome = during(py, long, || work(comm))?;
        outcome.map_err(|error| raised(py, &error))
    }

    /// Makes a call, or begins it.
    #[inline]
    fn make(
        &self,
        py: Python<'_>,
        call: Call,
        (data, holders, bytes): (Operands, [Option<Holder>; 2], usize),
        wait: bool,
    ) -> PyResult<Option<Pending>> {
        if wait {
            self.with(py, bytes > LONG_BYTES, |comm| comm.call(&call, &data))?;
            // Only now may the memory go: the operands first (RAW-1).
            drop(data);
            drop(holders);
            return Ok(None);
        }
        let owner = Owner {
            holders,
            object: None,
        };
        self.begin(py, call, data, owner, None).map(Some)
    }

    pub(crate) fn begin(
        &self,
        py: Python<'_>,
        call: Call,
        data: Operands,
        owner: Owner,
        then: Option<Py<PyAny>>,
    ) -> PyResult<Pending> {
        let used = self.used(py)?;
        let Some(comm) = &*used else {
            return Err(unusable(py, "the communicator is closed"));
        };
        let tell = move || {
            let Some(then) = then else { return };
            // If the interpreter is ending, nobody waits for this any more (PY-4).
            Python::try_attach(|py| {
                if let Err(error) = then.call0(py) {
                    error.write_unraisable(py, None);
                }
            });
        };
        // Without the lock, as the worker may need it before there is room for another call (PY-2).
        let begun = without(py, || comm.begin_call(call, data, owner, tell));
        Ok(Pending::new(begun))
    }

    /// Joins on a thread of its own, so that Ctrl-C is heard while the others have not come.
    fn joining(
        py: Python<'_>,
        join: impl FnOnce() -> Result<Communicator, Error> + Send + 'static,
    ) -> PyResult<Comm> {
        let (done, joined) = sync_channel(1);
        std::thread::Builder::new()
            .name("ringwork-join".into())
            .spawn(move || {
                // If nobody wants it any more, it is dropped here.
                let _ = done.send(join());
            })?;
        loop {
            match without(py, || joined.recv_timeout(SLICE)) {
                Ok(comm) => return Comm::new(py, comm.map_err(|error| raised(py, &error))?),
                Err(RecvTimeoutError::Timeout) => py.check_signals()?,
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(unusable(py, "joining ended without an answer"));
                }
            }
        }
    }
}

impl Drop for Comm {
    fn drop(&mut self) {
        let comm = self
            .inner
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if self.generation != generation() {
            // It is the parent's: a child has neither its threads nor a place among the ranks (PY-3).
            std::mem::forget(comm);
            return;
        }
        let mut comm = Some(comm);
        // Its worker may need the interpreter's lock for its last calls (PY-2).
        Python::try_attach(|py| without(py, || drop(comm.take())));
        // PY-4: the interpreter is ending, so the worker might wait for its lock for ever.
        std::mem::forget(comm);
    }
}

#[pymethods]
impl Comm {
    /// Joins the job that this process was started in, by `ringwork launch`, torchrun, mpirun or srun.
    #[staticmethod]
    fn from_env(py: Python<'_>) -> PyResult<Comm> {
        Comm::joining(py, Communicator::from_env)
    }

    /// Joins the `size` processes of this user and host that give the same `name`. `timeout` in seconds is how long to wait
    /// for them, and how long a call may wait.
    #[staticmethod]
    #[pyo3(signature = (name, rank, size, timeout=60.0))]
    fn join(py: Python<'_>, name: String, rank: u32, size: u32, timeout: f64) -> PyResult<Comm> {
        let timeout = seconds(py, "join", timeout)?;
        Comm::joining(py, move || Communicator::join(&name, rank, size, timeout))
    }

    /// This process's rank.
    #[getter]
    fn rank(&self) -> u32 {
        self.rank
    }

    /// How many ranks there are.
    #[getter]
    fn size(&self) -> u32 {
        self.size
    }

    /// Whether it was closed.
    #[getter]
    fn closed(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.used(py)?.is_none())
    }

    /// How long a call may wait, from now on, in seconds. Waits for what is pending.
    fn set_timeout(&self, py: Python<'_>, timeout: f64) -> PyResult<()> {
        let timeout = seconds(py, "set_timeout", timeout)?;
        let mut used = self.used(py)?;
        if let Some(comm) = &mut *used.inner {
            without(py, || comm.set_timeout(timeout));
        }
        Ok(())
    }

    /// A zeroed array in the window, of the same shape on every rank; a collective call.
    /// `dtype` is a name such as `"f32"` or `"bf16"`, or a dtype of NumPy or torch.
    #[pyo3(signature = (shape, dtype=None))]
    fn zeros(
        &self,
        py: Python<'_>,
        shape: &Bound<'_, PyAny>,
        dtype: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Window> {
        let dtype = match dtype {
            None => Dtype::F32,
            Some(dtype) => dtype_of(dtype, "zeros")?,
        };
        let shape: Vec<usize> = match shape.extract::<usize>() {
            Ok(len) => vec![len],
            Err(_) => shape.extract()?,
        };
        let len = shape
            .iter()
            .try_fold(1usize, |len, dimension| len.checked_mul(*dimension));
        let len = len.filter(|len| {
            len.checked_mul(dtype.bytes())
                .is_some_and(|bytes| isize::try_from(bytes).is_ok())
        });
        let len = len.ok_or_else(|| argument(py, "zeros", "more elements than any memory has"))?;
        let window = self.with(py, true, |comm| comm.alloc_any(dtype, len))?;
        Ok(Window::new(window, &shape))
    }

    /// New communicators: one for each `color`, its ranks ordered by `key` and then by rank here. A collective call.
    #[pyo3(signature = (color, key=0))]
    fn split(&self, py: Python<'_>, color: u32, key: u32) -> PyResult<Comm> {
        let part = self.with(py, true, |comm| comm.split(color, key))?;
        Comm::new(py, part)
    }

    /// A communicator of these ranks, in this order; None for ranks that are not in it. A collective call of all ranks, with
    /// the same list.
    fn group(&self, py: Python<'_>, ranks: Vec<u32>) -> PyResult<Option<Comm>> {
        let group = self.with(py, true, |comm| comm.group(&ranks))?;
        group.map(|group| Comm::new(py, group)).transpose()
    }

    /// A working communicator of the ranks that are alive, after one has died; a call of all survivors.
    fn shrink(&self, py: Python<'_>) -> PyResult<Comm> {
        let rest = self.with(py, true, Communicator::shrink)?;
        Comm::new(py, rest)
    }

    /// Ends every call in this communicator, on every rank, now and later.
    #[pyo3(signature = (reason="the program asked for it"))]
    fn abort(&self, py: Python<'_>, reason: &str) -> PyResult<()> {
        if let Some(comm) = &*self.used(py)? {
            comm.abort(reason);
        }
        Ok(())
    }

    /// Leaves, when what is pending is done; the calls of other ranks then fail. Arrays in the window stay valid. Closing
    /// again does nothing.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let mut used = self.used(py)?;
        let comm = used.inner.take();
        without(py, || drop(comm));
        Ok(())
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyAny>) -> PyResult<()> {
        self.close(py)
    }

    fn __repr__(&self) -> String {
        format!("<ringwork.Comm rank {} of {}>", self.rank, self.size)
    }
}

fn seconds(py: Python<'_>, call: &str, seconds: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(seconds)
        .ok()
        .filter(|limit| !limit.is_zero())
        .ok_or_else(|| argument(py, call, "the timeout must be a number of seconds above 0"))
}

/// A dtype by its name, or by an object that NumPy or torch names: `np.float32`, `np.dtype("f4")`, `torch.float32`.
pub(crate) fn dtype_of(object: &Bound<'_, PyAny>, call: &str) -> PyResult<Dtype> {
    let py = object.py();
    if let Ok(name) = object.cast::<PyString>() {
        return parse_dtype(py, call, &name.to_cow()?);
    }
    let named = object.getattr("name").or_else(|_| object.getattr("__name__"));
    let name = match named {
        Ok(name) => name.to_string(),
        Err(_) => object.to_string(),
    };
    parse_dtype(py, call, name.strip_prefix("torch.").unwrap_or(&name))
}

pub(crate) fn parse_dtype(py: Python<'_>, call: &str, name: &str) -> PyResult<Dtype> {
    name.parse::<Dtype>()
        .map_err(|error| argument(py, call, &error.to_string()))
}
