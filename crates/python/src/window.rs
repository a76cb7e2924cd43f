//! Window arrays: memory that peers reduce in place, seen by NumPy and torch without a copy.

use crate::seam::dlpack;
use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use ringwork_communicator::AnyWindow;
use ringwork_isa::Dtype;
use std::ffi::CStr;

/// An array in the communicator's window. Made by `Comm.zeros`; give it to a call as it is, or see its memory with
/// `np.asarray(window)` or `torch.from_dlpack(window)`. The memory stays as long as the window or a view of it does.
#[pyclass(module = "ringwork", frozen, weakref)]
pub(crate) struct Window {
    pub(crate) window: AnyWindow,
    pub(crate) shape: Vec<ffi::Py_ssize_t>,
    /// In bytes.
    pub(crate) strides: Vec<ffi::Py_ssize_t>,
    pub(crate) format: Option<&'static CStr>,
}

impl Window {
    pub(crate) fn new(window: AnyWindow, shape: &[usize]) -> Window {
        let format = format(window.dtype());
        let item = window.dtype().bytes();
        // No dimension is longer than all elements, which are fewer than `isize::MAX`.
        let size = |count: usize| ffi::Py_ssize_t::try_from(count).unwrap_or(ffi::Py_ssize_t::MAX);
        let mut strides: Vec<ffi::Py_ssize_t> = Vec::with_capacity(shape.len());
        let mut stride = item;
        for dimension in shape.iter().rev() {
            strides.push(size(stride));
            stride = stride.saturating_mul(*dimension);
        }
        strides.reverse();
        Window {
            window,
            shape: shape.iter().map(|dimension| size(*dimension)).collect(),
            strides,
            format,
        }
    }
}

fn format(dtype: Dtype) -> Option<&'static CStr> {
    Some(match dtype {
        Dtype::F32 => c"f",
        Dtype::F16 => c"e",
        Dtype::F64 => c"d",
        Dtype::I8 => c"b",
        Dtype::U8 => c"B",
        Dtype::I32 => c"i",
        Dtype::I64 => c"q",
        _ => return None,
    })
}

#[pymethods]
impl Window {
    /// The name of the element type: `"f32"`, `"bf16"`, ...
    #[getter]
    fn dtype(&self) -> &'static str {
        self.window.dtype().name()
    }

    /// The length of each dimension.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.shape)
    }

    /// Bytes of all elements.
    #[getter]
    pub(crate) fn nbytes(&self) -> usize {
        self.window.len().saturating_mul(self.window.dtype().bytes())
    }

    /// The address of the first element, for `ringwork.torch`.
    #[getter]
    fn _address(&self) -> usize {
        self.window.pointer() as usize
    }

    /// The same memory with 16-bit elements seen as `uint16`, for NumPy, which has no bf16.
    fn as_uint16(&self) -> PyResult<Window> {
        if self.window.dtype().bytes() != 2 {
            return Err(PyValueError::new_err(
                "only 16-bit elements can be seen as uint16",
            ));
        }
        Ok(Window {
            window: self.window.clone(),
            shape: self.shape.clone(),
            strides: self.strides.clone(),
            format: Some(c"H"),
        })
    }

    fn __len__(&self) -> PyResult<usize> {
        let first = self.shape.first().copied();
        let first =
            first.ok_or_else(|| PyValueError::new_err("a window without dimensions has no length"))?;
        Ok(usize::try_from(first).unwrap_or(0))
    }

    fn __repr__(&self) -> String {
        format!("<ringwork.Window {:?} {}>", self.shape, self.dtype())
    }

    /// The memory as a DLPack capsule, for `torch.from_dlpack`.
    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<Bound<'py, PyAny>>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let _ = stream;
        if dl_device.is_some_and(|(kind, _)| kind != dlpack::CPU) || copy == Some(true) {
            return Err(PyBufferError::new_err(
                "a window is in the memory of the CPU, and is given without a copy",
            ));
        }
        let item = ffi::Py_ssize_t::try_from(self.window.dtype().bytes()).unwrap_or(1);
        let strides = self.strides.iter().map(|stride| *stride / item);
        let versioned = max_version.is_some_and(|(major, _)| major >= 1);
        dlpack::capsule(py, &self.window, (&self.shape, strides), versioned)
    }

    /// The memory of the CPU.
    fn __dlpack_device__(&self) -> (i32, i32) {
        (dlpack::CPU, 0)
    }
}
