//! The buffer protocol of a window: NumPy sees its memory without a copy.

use crate::window::Window;
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::c_int;

#[pymethods]
impl Window {
    /// Exports the memory.
    ///
    /// # Safety
    /// Called by the interpreter, with a view to be filled.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let this = slf.get();
        let Some(format) = this.format else {
            return Err(PyBufferError::new_err(
                "NumPy has no bf16: use torch.from_dlpack(window), or np.asarray(window.as_uint16())",
            ));
        };
        let fortran_only = flags & ffi::PyBUF_F_CONTIGUOUS == ffi::PyBUF_F_CONTIGUOUS
            && flags & ffi::PyBUF_C_CONTIGUOUS != ffi::PyBUF_C_CONTIGUOUS
            && flags & ffi::PyBUF_ANY_CONTIGUOUS != ffi::PyBUF_ANY_CONTIGUOUS;
        if fortran_only && this.shape.len() > 1 {
            return Err(PyBufferError::new_err("a window is C-contiguous"));
        }
        let asked = |flag| flags & flag == flag;
        // SAFETY: the interpreter's view, which it gave to be filled. The memory, shape, strides and format live as long as
        // `slf`, which the view owns a reference to.
        unsafe {
            (*view).buf = this.window.pointer().cast();
            (*view).len = ffi::Py_ssize_t::try_from(this.nbytes()).unwrap_or(0);
            (*view).itemsize = ffi::Py_ssize_t::try_from(this.window.dtype().bytes()).unwrap_or(1);
            (*view).readonly = 0;
            (*view).ndim = c_int::try_from(this.shape.len()).unwrap_or(0);
            (*view).format = if asked(ffi::PyBUF_FORMAT) {
                format.as_ptr().cast_mut()
            } else {
                std::ptr::null_mut()
            };
            (*view).shape = if asked(ffi::PyBUF_ND) {
                this.shape.as_ptr().cast_mut()
            } else {
                std::ptr::null_mut()
            };
            (*view).strides = if asked(ffi::PyBUF_STRIDES) {
                this.strides.as_ptr().cast_mut()
            } else {
                std::ptr::null_mut()
            };
            (*view).suboffsets = std::ptr::null_mut();
            (*view).internal = std::ptr::null_mut();
            (*view).obj = slf.into_any().into_ptr();
        }
        Ok(())
    }
}
