//! Which process this is: a communicator must not be used, or dropped, by a child that `fork` made (PY-3).

use pyo3::PyResult;
use pyo3::exceptions::PyOSError;
use std::ffi::c_int;
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

/// How often this process, or one it was copied from, was made by `fork`.
static GENERATION: AtomicU32 = AtomicU32::new(0);

type Handler = Option<unsafe extern "C" fn()>;

unsafe extern "C" {
    fn pthread_atfork(prepare: Handler, parent: Handler, child: Handler) -> c_int;
}

unsafe extern "C" fn in_child() {
    // An atomic is all that may be touched here: other threads of the parent may have held any lock.
    GENERATION.fetch_add(1, Ordering::Relaxed);
}

/// Counts forks from now on.
pub(crate) fn watch() -> PyResult<()> {
    static ONCE: Once = Once::new();
    let mut failed = 0;
    ONCE.call_once(|| {
        // SAFETY: the handler does nothing but add to an atomic; an extension module is never unloaded.
        failed = unsafe { pthread_atfork(None, None, Some(in_child)) };
    });
    if failed != 0 {
        return Err(PyOSError::new_err("ringwork cannot watch for os.fork: no memory"));
    }
    Ok(())
}

/// A number that another process made by `fork` from this one does not have.
#[inline]
pub(crate) fn generation() -> u32 {
    GENERATION.load(Ordering::Relaxed)
}
