//! DLPack: how memory is handed to torch and others without a copy.
//!
//! The manager of a tensor is Rust's alone: it holds the window, and no Python object. So its deleter needs no
//! interpreter, and may be called at any time, also while Python ends (PY-4).

use pyo3::ffi;
use pyo3::prelude::*;
use ringwork_communicator::AnyWindow;
use std::ffi::{CStr, c_void};

/// `kDLCPU`.
pub(crate) const CPU: i32 = 1;

const PLAIN: &CStr = c"dltensor";
const VERSIONED: &CStr = c"dltensor_versioned";

#[repr(C)]
struct Tensor {
    data: *mut c_void,
    device: [i32; 2],
    dimensions: i32,
    code: u8,
    bits: u8,
    lanes: u16,
    shape: *mut i64,
    strides: *mut i64,
    byte_offset: u64,
}

/// `DLManagedTensor`.
#[repr(C)]
struct Managed {
    tensor: Tensor,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Managed)>,
}

/// `DLManagedTensorVersioned`, version 1.0.
#[repr(C)]
struct ManagedVersioned {
    version: [u32; 2],
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut ManagedVersioned)>,
    flags: u64,
    tensor: Tensor,
}

const _: () =
    assert!(size_of::<Tensor>() == 48 && size_of::<Managed>() == 64 && size_of::<ManagedVersioned>() == 80);

/// What a tensor lies in and points to.
struct Held {
    #[allow(dead_code, reason = "held for its drop")]
    window: AnyWindow,
    shape: Vec<i64>,
    strides: Vec<i64>,
}

fn tensor(held: &mut Held, window: &AnyWindow) -> Tensor {
    let dtype = window.dtype();
    let (code, bits) = (
        dtype.dlpack_code(),
        u8::try_from(dtype.bytes() * 8).unwrap_or(u8::MAX),
    );
    Tensor {
        data: window.pointer().cast(),
        device: [CPU, 0],
        dimensions: i32::try_from(held.shape.len()).unwrap_or(0),
        code,
        bits,
        lanes: 1,
        shape: held.shape.as_mut_ptr(),
        strides: held.strides.as_mut_ptr(),
        byte_offset: 0,
    }
}

unsafe extern "C" fn delete(managed: *mut Managed) {
    // SAFETY: made by `capsule` below, and deleted once, as DLPack asks of whoever has it.
    unsafe {
        let managed = Box::from_raw(managed);
        drop(Box::from_raw(managed.context.cast::<Held>()));
    }
}

unsafe extern "C" fn delete_versioned(managed: *mut ManagedVersioned) {
    // SAFETY: made by `capsule` below, and deleted once, as DLPack asks of whoever has it.
    unsafe {
        let managed = Box::from_raw(managed);
        drop(Box::from_raw(managed.context.cast::<Held>()));
    }
}

/// Deletes a tensor that nobody took out of its capsule.
unsafe extern "C" fn destroy(capsule: *mut ffi::PyObject) {
    // SAFETY: the interpreter destroys a capsule of ours; one that was taken has another name.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, PLAIN.as_ptr()) != 0 {
            delete(ffi::PyCapsule_GetPointer(capsule, PLAIN.as_ptr()).cast());
        } else if ffi::PyCapsule_IsValid(capsule, VERSIONED.as_ptr()) != 0 {
            delete_versioned(ffi::PyCapsule_GetPointer(capsule, VERSIONED.as_ptr()).cast());
        }
    }
}

/// A capsule with the window's memory; `strides` in elements.
pub(crate) fn capsule<'py>(
    py: Python<'py>,
    window: &AnyWindow,
    (shape, strides): (&[ffi::Py_ssize_t], impl Iterator<Item = ffi::Py_ssize_t>),
    versioned: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let mut held = Box::new(Held {
        window: window.clone(),
        shape: shape.iter().map(|size| *size as i64).collect(),
        strides: strides.map(|stride| stride as i64).collect(),
    });
    let tensor = tensor(&mut held, window);
    let context = Box::into_raw(held).cast::<c_void>();
    let (pointer, name) = if versioned {
        let managed = ManagedVersioned {
            version: [1, 0],
            context,
            deleter: Some(delete_versioned),
            flags: 0,
            tensor,
        };
        (Box::into_raw(Box::new(managed)).cast::<c_void>(), VERSIONED)
    } else {
        let managed = Managed {
            tensor,
            context,
            deleter: Some(delete),
        };
        (Box::into_raw(Box::new(managed)).cast::<c_void>(), PLAIN)
    };
    // SAFETY: the lock is held; the pointer is not null, and the name lives for ever. If there is no memory for the capsule the
    // tensor is leaked.
    unsafe {
        let capsule = ffi::PyCapsule_New(pointer, name.as_ptr(), Some(destroy));
        Bound::from_owned_ptr_or_err(py, capsule)
    }
}
