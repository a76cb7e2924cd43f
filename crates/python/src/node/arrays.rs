//! Elements between NumPy and the memory of chips: always a copy, as chips are other processes.

use crate::comm::parse_dtype;
use crate::errors::argument;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyString, PyTuple};
use ringwork_isa::Dtype;

/// The elements of an array on the host, row by row.
pub(crate) struct HostArray<'py> {
    pub(crate) dtype: Dtype,
    pub(crate) shape: Vec<usize>,
    bytes: Bound<'py, PyBytes>,
}

impl HostArray<'_> {
    pub(crate) fn bytes(&self) -> &[u8] {
        self.bytes.as_bytes()
    }
}

/// Whole numbers as wide as the elements of a type that NumPy does not have; `None` if it has the type.
fn bits_of(dtype: Dtype) -> Option<&'static str> {
    match dtype {
        Dtype::BF16 => Some("uint16"),
        Dtype::F8E4M3 | Dtype::F8E5M2 => Some("uint8"),
        _ => None,
    }
}

/// NumPy's dtype for elements. Types that NumPy does not have are those of `ml_dtypes`, or their bits if that is not there.
fn numpy_dtype<'py>(py: Python<'py>, dtype: Dtype) -> PyResult<Bound<'py, PyAny>> {
    let name = dtype.array_name();
    let Some(bits) = bits_of(dtype) else {
        return Ok(PyString::new(py, name).into_any());
    };
    match py.import("ml_dtypes") {
        Ok(module) => module.getattr(name),
        Err(_) => Ok(PyString::new(py, bits).into_any()),
    }
}

/// Reads an array, or what NumPy makes one of. `wanted` is the type that it must have: numbers of Python become that.
pub(crate) fn from_host<'py>(
    object: &Bound<'py, PyAny>,
    wanted: Option<Dtype>,
    call: &str,
) -> PyResult<HostArray<'py>> {
    let py = object.py();
    let numpy = py.import("numpy")?;
    let has_type = object.hasattr("dtype")?;
    let array = match wanted {
        Some(dtype) if !has_type => numpy.call_method1("asarray", (object, numpy_dtype(py, dtype)?))?,
        _ => numpy.call_method1("asarray", (object,))?,
    };
    let name = array.getattr("dtype")?.getattr("name")?.to_string();
    let dtype = match (wanted, name.as_str()) {
        (Some(wanted), bits) if bits_of(wanted) == Some(bits) => wanted,
        _ => parse_dtype(py, call, &name)?,
    };
    if let Some(wanted) = wanted
        && wanted != dtype
    {
        let name = wanted.array_name();
        let problem =
            format!("the array is {dtype} and the memory {wanted}; convert it with astype(\"{name}\")");
        return Err(argument(py, call, &problem));
    }
    let order = array.getattr("dtype")?.getattr("byteorder")?.to_string();
    if order == ">" && cfg!(target_endian = "little") {
        return Err(argument(
            py,
            call,
            "the array has the bytes of its elements in another order",
        ));
    }
    let shape = array.getattr("shape")?.extract()?;
    let bytes = array.call_method0("tobytes")?.cast_into::<PyBytes>()?;
    Ok(HostArray { dtype, shape, bytes })
}

/// A new array of these elements.
pub(crate) fn to_host<'py>(
    py: Python<'py>,
    dtype: Dtype,
    shape: &[usize],
    bytes: &[u8],
) -> PyResult<Bound<'py, PyAny>> {
    let numpy = py.import("numpy")?;
    let (dtype, shape) = (numpy_dtype(py, dtype)?, PyTuple::new(py, shape)?);
    if bytes.is_empty() {
        return numpy.call_method1("empty", (shape, dtype));
    }
    let flat = numpy.call_method1("frombuffer", (PyByteArray::new(py, bytes), dtype))?;
    flat.call_method1("reshape", (shape,))
}

/// A shape given as arguments: its lengths, or one sequence of them.
pub(crate) fn shape_given(given: &Bound<'_, PyTuple>) -> PyResult<Vec<usize>> {
    match given.len() {
        1 => shape_of(&given.get_item(0)?),
        _ => given.extract(),
    }
}

/// A shape: a length, or the length of each dimension.
pub(crate) fn shape_of(object: &Bound<'_, PyAny>) -> PyResult<Vec<usize>> {
    match object.extract::<usize>() {
        Ok(len) => Ok(vec![len]),
        Err(_) => object.extract(),
    }
}
