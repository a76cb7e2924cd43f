//! The Python package of ringwork: a seam between an interpreter, the communicator and the node.
//!
//! Everything here is behind the feature `extension`, which maturin turns on: the workspace builds without a Python.
//!
//! # Invariants
//! - **PY-1 (memory is held).** A call has the `Py_buffer` of every array it touches, or an owner that its caller named,
//!   until it is done; a pending call has it itself, and not its handle. An array never becomes a Rust slice.
//! - **PY-2 (the lock).** While a thread has given the interpreter's lock back, nothing of Python is touched on it. Nobody
//!   waits for another thread, or for a communicator, while holding the interpreter's lock; waiting for the lock while
//!   holding a communicator is allowed.
//! - **PY-3 (one process).** A communicator belongs to the process that joined. A child made by `fork` gets an error from
//!   every call, and never drops what its parent uses.
//! - **PY-4 (the end).** When the interpreter is ending, memory is leaked rather than handed back to it.
//!
//! All unsafe code is in the module `seam`.
#![cfg(feature = "extension")]
#![deny(unsafe_code)]

mod comm;
mod errors;
mod node;
mod pending;
mod seam;
mod window;

use pyo3::prelude::*;
use seam::forks;

/// The compiled part of `ringwork`.
#[pymodule(gil_used = true)]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    forks::watch()?;
    module.add_class::<comm::Comm>()?;
    module.add_class::<pending::Pending>()?;
    module.add_class::<window::Window>()?;
    node::add_to(module)?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))
}
