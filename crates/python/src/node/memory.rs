//! Memory that tasks use: tensors of a chip, buffers of a domain, rows of signals, teams.

use super::arrays::{from_host, shape_given, to_host};
use super::errors::raised;
use super::running::Turn;
use crate::errors::argument;
use pyo3::exceptions::{PyIndexError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PySlice, PyTuple};
use ringwork_isa::{Arg, Argument, Compare, Dtype, Signal, TeamMemory};
use ringwork_runtime::{AnyBuffer, AnyIntermediate, AnyPart, AnyTensor, Rank, SignalRow, TeamHandle};
use std::ops::Range;

/// Where the elements are.
#[derive(Clone)]
pub(crate) enum Place {
    Chip(AnyTensor),
    Part(AnyPart),
    Intermediate(AnyIntermediate),
}

/// The same for each kind of memory.
macro_rules! of_place {
    ($place:expr, $memory:ident => $what:expr) => {
        match $place {
            Place::Chip($memory) => $what,
            Place::Part($memory) => $what,
            Place::Intermediate($memory) => $what,
        }
    };
}

/// Elements in the memory of one chip: made by `Node.tensor` and `Node.zeros`, by `Buffer.on` for one member's part of a
/// buffer, or by `Orchestrator.intermediate`. Slices of the first dimension share the memory.
#[pyclass(module = "ringwork", frozen)]
pub(crate) struct Tensor {
    pub(crate) place: Place,
    turn: Turn,
}

impl Drop for Tensor {
    fn drop(&mut self) {
        self.turn.leave(&self.place);
    }
}

impl Tensor {
    pub(crate) fn new(place: Place, turn: Turn) -> Tensor {
        Tensor { place, turn }
    }

    pub(crate) fn region(&self) -> Arg {
        of_place!(&self.place, memory => memory.region())
    }

    pub(crate) fn block(&self) -> Arg {
        of_place!(&self.place, memory => memory.block())
    }

    fn dims(&self) -> &[usize] {
        of_place!(&self.place, memory => memory.shape())
    }

    fn kind(&self) -> Dtype {
        of_place!(&self.place, memory => memory.dtype())
    }

    fn with(&self, place: Place) -> Tensor {
        Tensor {
            place,
            turn: self.turn.clone(),
        }
    }

    fn row_range(&self, py: Python<'_>, range: Range<usize>) -> PyResult<Tensor> {
        let place = match &self.place {
            Place::Chip(memory) => memory.row_range(range).map(Place::Chip),
            Place::Part(memory) => memory.row_range(range).map(Place::Part),
            Place::Intermediate(memory) => memory.row_range(range).map(Place::Intermediate),
        };
        Ok(self.with(place.map_err(|error| raised(py, &error))?))
    }

    fn no_host_access(py: Python<'_>, call: &str) -> PyErr {
        let problem = "an intermediate is never seen by the host; submit a copy to a tensor";
        argument(py, call, problem)
    }
}

#[pymethods]
impl Tensor {
    /// The chip that it is on; None for a part of a domain's buffer, which has a `rank`.
    #[getter]
    fn device(&self) -> Option<u32> {
        match &self.place {
            Place::Chip(memory) => Some(memory.device().0),
            Place::Part(_) => None,
            Place::Intermediate(memory) => Some(memory.device().0),
        }
    }

    /// The member whose part it is; None if it is not part of a domain's buffer.
    #[getter]
    fn rank(&self) -> Option<u32> {
        match &self.place {
            Place::Part(memory) => Some(memory.rank().0),
            Place::Chip(_) | Place::Intermediate(_) => None,
        }
    }

    /// The name of the element type: `"f32"`, `"bf16"`, ...
    #[getter]
    fn dtype(&self) -> &'static str {
        self.kind().name()
    }

    /// The length of each dimension.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.dims())
    }

    /// Number of elements.
    #[getter]
    fn size(&self) -> usize {
        self.dims().iter().product()
    }

    /// Bytes of all elements.
    #[getter]
    fn nbytes(&self) -> usize {
        of_place!(&self.place, memory => memory.bytes())
    }

    /// A copy as a NumPy array, after the tasks that were submitted. bf16 comes as `ml_dtypes.bfloat16`, or as the bits in
    /// `uint16` if that package is not there.
    fn numpy<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let mut bytes = vec![0; self.nbytes()];
        match &self.place {
            Place::Chip(memory) => self.turn.take(py, || memory.read(&mut bytes))?,
            Place::Part(memory) => self.turn.take(py, || memory.read(&mut bytes))?,
            Place::Intermediate(_) => return Err(Tensor::no_host_access(py, "numpy")),
        }
        to_host(py, self.kind(), self.dims(), &bytes)
    }

    /// Copies an array of as many elements in, after the tasks that were submitted. Its type must be this one's; lists and
    /// numbers are converted.
    fn write(&self, py: Python<'_>, array: &Bound<'_, PyAny>) -> PyResult<()> {
        let array = from_host(array, Some(self.kind()), "write")?;
        let bytes = array.bytes();
        match &self.place {
            Place::Chip(memory) => self.turn.take(py, || memory.write(bytes)),
            Place::Part(memory) => self.turn.take(py, || memory.write(bytes)),
            Place::Intermediate(_) => Err(Tensor::no_host_access(py, "write")),
        }
    }

    /// The same memory in another shape.
    #[pyo3(signature = (*shape))]
    fn reshape(&self, py: Python<'_>, shape: &Bound<'_, PyTuple>) -> PyResult<Tensor> {
        let shape = shape_given(shape)?;
        let place = match &self.place {
            Place::Chip(memory) => memory.reshape(&shape).map(Place::Chip),
            Place::Part(memory) => memory.reshape(&shape).map(Place::Part),
            Place::Intermediate(memory) => memory.reshape(&shape).map(Place::Intermediate),
        };
        Ok(self.with(place.map_err(|error| raised(py, &error))?))
    }

    fn __len__(&self) -> PyResult<usize> {
        let first = self.dims().first().copied();
        first.ok_or_else(|| PyTypeError::new_err("a tensor without dimensions has no length"))
    }

    fn __getitem__(&self, py: Python<'_>, rows: &Bound<'_, PyAny>) -> PyResult<Tensor> {
        let len = self.__len__()?;
        if let Ok(slice) = rows.cast::<PySlice>() {
            let at = slice.indices(isize::try_from(len).unwrap_or(isize::MAX))?;
            if at.step != 1 {
                let problem = "the rows of a slice are consecutive: its step is 1";
                return Err(argument(py, "tensor[...]", problem));
            }
            let start = usize::try_from(at.start).unwrap_or(0);
            return self.row_range(py, start..start.saturating_add(at.slicelength));
        }
        let index: isize = rows.extract().map_err(|_| {
            PyTypeError::new_err("a tensor is indexed by a number or a slice of its first dimension")
        })?;
        let row = if index < 0 {
            index.saturating_add_unsigned(len)
        } else {
            index
        };
        let row = usize::try_from(row).ok().filter(|row| *row < len);
        let row = row.ok_or_else(|| PyIndexError::new_err(format!("there is no row {index} of {len}")))?;
        let one = self.row_range(py, row..row + 1)?;
        let shape = PyTuple::new(py, &self.dims()[1..])?;
        one.reshape(py, &PyTuple::new(py, [shape])?)
    }

    #[pyo3(signature = (dtype=None, copy=None))]
    fn __array__<'py>(
        &self,
        py: Python<'py>,
        dtype: Option<Bound<'py, PyAny>>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let _ = copy;
        let array = self.numpy(py)?;
        dtype.map_or(Ok(array.clone()), |dtype| array.call_method1("astype", (dtype,)))
    }

    fn __repr__(&self) -> String {
        let place = match &self.place {
            Place::Chip(memory) => format!("device {}", memory.device()),
            Place::Part(memory) => format!("rank {}", memory.rank()),
            Place::Intermediate(memory) => format!("an intermediate, device {}", memory.device()),
        };
        format!("<ringwork.Tensor {:?} {} on {place}>", self.dims(), self.kind())
    }
}

/// A buffer in every member's window. For a kernel's own memory it is the member's part; `on(rank)` names one member's.
#[pyclass(module = "ringwork", frozen)]
pub(crate) struct Buffer {
    pub(crate) buffer: AnyBuffer,
    turn: Turn,
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.turn.leave(&self.buffer);
    }
}

impl Buffer {
    pub(crate) fn new(buffer: AnyBuffer, turn: Turn) -> Buffer {
        Buffer { buffer, turn }
    }
}

#[pymethods]
impl Buffer {
    /// The name of the element type.
    #[getter]
    fn dtype(&self) -> &'static str {
        self.buffer.dtype().name()
    }

    /// The length of each dimension of one member's part.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.buffer.shape())
    }

    /// One member's part.
    fn on(&self, py: Python<'_>, rank: u32) -> PyResult<Tensor> {
        let part = self.buffer.on(Rank(rank)).map_err(|error| raised(py, &error))?;
        Ok(Tensor::new(Place::Part(part), self.turn.clone()))
    }

    /// The same memory in another shape.
    #[pyo3(signature = (*shape))]
    fn reshape(&self, py: Python<'_>, shape: &Bound<'_, PyTuple>) -> PyResult<Buffer> {
        let shape = shape_given(shape)?;
        let buffer = self.buffer.reshape(&shape).map_err(|error| raised(py, &error))?;
        Ok(Buffer::new(buffer, self.turn.clone()))
    }

    fn __repr__(&self) -> String {
        let (shape, dtype) = (self.buffer.shape(), self.buffer.dtype());
        format!("<ringwork.Buffer {shape:?} {dtype} on every member>")
    }
}

/// A row of signals, or a barrier, in every member's window.
#[pyclass(module = "ringwork", frozen)]
pub(crate) struct Signals {
    row: SignalRow,
    is_barrier: bool,
    turn: Turn,
}

impl Drop for Signals {
    fn drop(&mut self) {
        self.turn.leave(&self.row);
    }
}

impl Signals {
    pub(crate) fn new(row: SignalRow, is_barrier: bool, turn: Turn) -> Signals {
        Signals {
            row,
            is_barrier,
            turn,
        }
    }

    pub(crate) fn arg(&self) -> Arg {
        if self.is_barrier {
            return Argument::<ringwork_isa::Barrier>::to_arg(&self.row);
        }
        Argument::<ringwork_isa::Signals>::to_arg(&self.row)
    }
}

#[pymethods]
impl Signals {
    /// A condition for a task: that this cell of this member compares so with a number. `compare` is one of
    /// `== != > >= < <=`.
    #[pyo3(signature = (compare, value, *, rank=0, index=0))]
    fn compares(
        &self,
        py: Python<'_>,
        compare: &str,
        value: i32,
        rank: u32,
        index: u32,
    ) -> PyResult<Condition> {
        let compare = match compare {
            "==" => Compare::Eq,
            "!=" => Compare::Ne,
            ">" => Compare::Gt,
            ">=" => Compare::Ge,
            "<" => Compare::Lt,
            "<=" => Compare::Le,
            other => {
                let problem = format!("`{other}` is not one of == != > >= < <=");
                return Err(argument(py, "compares", &problem));
            }
        };
        let signal = self.row.cell(Rank(rank), index);
        let signal = signal.map_err(|error| raised(py, &error))?;
        Ok(Condition {
            signal,
            compare,
            value,
            row: self.row.clone(),
            turn: self.turn.clone(),
        })
    }

    fn __repr__(&self) -> String {
        let what = if self.is_barrier { "barrier" } else { "row" };
        format!("<ringwork.Signals: a {what} on every member>")
    }
}

/// What a task may wait for, made by `Signals.compares`.
#[pyclass(module = "ringwork", frozen)]
pub(crate) struct Condition {
    pub(crate) signal: Signal,
    pub(crate) compare: Compare,
    pub(crate) value: i32,
    /// Keeps the domain open.
    row: SignalRow,
    turn: Turn,
}

impl Drop for Condition {
    fn drop(&mut self) {
        self.turn.leave(&self.row);
    }
}

/// The memory of a domain's members for collective calls.
#[pyclass(module = "ringwork", frozen)]
pub(crate) struct Team {
    team: TeamHandle,
    turn: Turn,
}

impl Drop for Team {
    fn drop(&mut self) {
        self.turn.leave(&self.team);
    }
}

impl Team {
    pub(crate) fn new(team: TeamHandle, turn: Turn) -> Team {
        Team { team, turn }
    }

    pub(crate) fn memory(&self) -> Arg {
        Argument::<TeamMemory>::to_arg(&self.team)
    }
}

#[pymethods]
impl Team {
    fn __repr__(&self) -> &'static str {
        "<ringwork.Team on every member>"
    }
}
