//! Arrays as operands of a call: by the buffer protocol, or in the window (PY-1).

use crate::errors::argument;
use crate::window::Window;
use pyo3::ffi;
use pyo3::prelude::*;
use ringwork_communicator::{AnyWindow, Operand, RawBuffer};
use ringwork_isa::Dtype;
use std::ffi::CStr;

/// A `Py_buffer` that is released when dropped, on any thread.
pub(crate) struct View(Box<ffi::Py_buffer>);

// SAFETY: a `Py_buffer` has no thread; it is released with the interpreter's lock, which `drop` takes.
unsafe impl Send for View {}

impl Drop for View {
    fn drop(&mut self) {
        // If the interpreter is ending, the array stays locked in its last moments (PY-4).
        Python::try_attach(|_| {
            // SAFETY: it was filled by `PyObject_GetBuffer`, is released once, and the lock is held.
            unsafe { ffi::PyBuffer_Release(&raw mut *self.0) };
        });
    }
}

/// What a call holds of an array.
pub(crate) enum Holder {
    Array(#[allow(dead_code, reason = "held for its drop")] View),
    Window,
}

/// How the elements of an array are used.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Use {
    /// Arithmetic: their type must be one of ours.
    Reduce,
    /// Moved: any fixed-size type will do, as bytes.
    Move,
}

/// An array that a call may use.
pub(crate) struct Borrowed {
    pub(crate) operand: Operand,
    pub(crate) holder: Holder,
    /// Elements of the operand for each of the array's: more than one if it is moved as bytes.
    pub(crate) scale: usize,
    pub(crate) bytes: usize,
    /// Whether they are truth values, which are not added but or-ed.
    pub(crate) is_bool: bool,
}

/// Borrows an array for `call`. `dtype` says what 16-bit elements are if NumPy cannot: `"bf16"`.
pub(crate) fn borrow(
    object: &Bound<'_, PyAny>,
    call: &'static str,
    (usage, writable): (Use, bool),
    dtype: Option<Dtype>,
) -> PyResult<Borrowed> {
    let py = object.py();
    if let Ok(window) = object.cast_exact::<Window>() {
        return Ok(of_window(window.get().window.clone()));
    }
    let mut flags = ffi::PyBUF_C_CONTIGUOUS | ffi::PyBUF_FORMAT;
    if writable {
        flags |= ffi::PyBUF_WRITABLE;
    }
    let mut view = Box::new(ffi::Py_buffer::new());
    // SAFETY: the object is alive, the view is ours and empty, and the lock is held.
    if unsafe { ffi::PyObject_GetBuffer(object.as_ptr(), &raw mut *view, flags) } != 0 {
        return refused(object, call, (usage, writable), dtype, PyErr::fetch(py));
    }
    let view = View(view);
    let (format, item) = (format_of(&view.0), usize::try_from(view.0.itemsize).unwrap_or(0));
    let bytes = usize::try_from(view.0.len).unwrap_or(0);
    let Some((dtype, scale)) = elements(format, item, usage, dtype) else {
        let text = String::from_utf8_lossy(format);
        let problem = if text.contains('O') {
            "the array holds Python objects, which have no bytes to move".to_owned()
        } else {
            format!(
                "cannot compute with elements of format `{text}`; use one of f16, bf16, f32, f64, i8, u8, i32, i64"
            )
        };
        return Err(argument(py, call, &problem));
    };
    // SAFETY: the exporter keeps `bytes` bytes there until the view is released, which the call's holder does after the operand
    // is gone (PY-1, RAW-1); it refused if they may not be written and `writable` was asked for.
    let raw = unsafe { RawBuffer::new(dtype, view.0.buf.cast(), bytes / dtype.bytes(), writable) };
    let is_bool = format == b"?";
    Ok(Borrowed {
        operand: raw.into(),
        holder: Holder::Array(view),
        scale,
        bytes,
        is_bool,
    })
}

fn of_window(window: AnyWindow) -> Borrowed {
    let bytes = window.len().saturating_mul(window.dtype().bytes());
    Borrowed {
        operand: window.into(),
        holder: Holder::Window,
        scale: 1,
        bytes,
        is_bool: false,
    }
}

/// An array of `ml_dtypes.bfloat16`, which NumPy cannot export, as 16-bit words; or why it was refused.
#[cold]
fn refused(
    object: &Bound<'_, PyAny>,
    call: &'static str,
    how: (Use, bool),
    dtype: Option<Dtype>,
    why: PyErr,
) -> PyResult<Borrowed> {
    let py = object.py();
    let name = object.getattr("dtype").and_then(|dtype| dtype.getattr("name"));
    if dtype.is_none() && name.is_ok_and(|name| name.eq("bfloat16").unwrap_or(false)) {
        let words = object.call_method1("view", ("uint16",))?;
        return borrow(&words, call, how, Some(Dtype::BF16));
    }
    let problem = why.value(py).to_string();
    let cure = if problem.contains("contiguous") {
        "; give a copy (np.ascontiguousarray)"
    } else if problem.contains("read-only") || problem.contains("not writable") {
        "; give a copy, or set its flag `writeable`"
    } else {
        ""
    };
    Err(argument(py, call, &format!("{problem}{cure}")))
}

fn format_of(view: &ffi::Py_buffer) -> &[u8] {
    if view.format.is_null() {
        return b"B";
    }
    // SAFETY: the exporter's format is a C string that lives as long as the view.
    let format = unsafe { CStr::from_ptr(view.format) }.to_bytes();
    match format {
        // Little-endian is what this machine is; a type of standard size is told by its item size below.
        [b'@' | b'=' | b'<', rest @ ..] if cfg!(target_endian = "little") => rest,
        other => other,
    }
}

/// The type of elements, and how many of them one item is.
fn elements(format: &[u8], item: usize, usage: Use, asked: Option<Dtype>) -> Option<(Dtype, usize)> {
    let known = match (format, item) {
        (b"f", 4) => Some(Dtype::F32),
        (b"d", 8) => Some(Dtype::F64),
        (b"e", 2) => Some(Dtype::F16),
        (b"b", 1) => Some(Dtype::I8),
        (b"B" | b"?" | b"c", 1) => Some(Dtype::U8),
        (b"i" | b"l", 4) => Some(Dtype::I32),
        (b"l" | b"q", 8) => Some(Dtype::I64),
        _ => None,
    };
    if let Some(asked) = asked {
        return (item == asked.bytes() && (known == Some(asked) || known.is_none())).then_some((asked, 1));
    }
    match known {
        Some(dtype) => Some((dtype, 1)),
        None if usage == Use::Move && item > 0 && !format.contains(&b'O') => Some((Dtype::U8, item)),
        None => None,
    }
}
