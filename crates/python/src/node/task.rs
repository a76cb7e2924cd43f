//! Kernels by name, and tasks: a kernel with its arguments.

use super::memory::{Buffer, Signals, Team, Tensor};
use crate::errors::argument;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyString, PyTuple};
use ringwork_isa::{Algorithm, Arg, KernelId, Param, ReduceOp, Tag, Value};
use ringwork_kernels::dense::Function;
use ringwork_registry::KERNELS;

/// A kernel, which makes tasks when it is called with its arguments: `kernels.gemm(a, b, c)`.
///
/// `kernel.matrices(a, b, c)` gives tensors to a kernel whose parameters are blocks; the built-in ones know.
#[pyclass(module = "ringwork", frozen)]
pub(crate) struct Kernel {
    id: KernelId,
    params: &'static [Param],
    /// Whether its own memory are blocks.
    blocks: bool,
}

impl Kernel {
    fn task(
        &self,
        args: &Bound<'_, PyTuple>,
        named: Option<&Bound<'_, PyDict>>,
        blocks: bool,
    ) -> PyResult<Task> {
        let py = args.py();
        let named_count = named.map_or(0, |named| named.len());
        if args.len() + named_count != self.params.len() {
            return Err(PyTypeError::new_err(format!(
                "{} takes {} arguments and was given {}",
                self.__repr__(),
                self.params.len(),
                args.len() + named_count
            )));
        }
        let (mut values, mut held) = (Vec::new(), Vec::new());
        for (index, param) in self.params.iter().enumerate() {
            let given = match args.get_item(index) {
                Ok(given) => Some(given),
                Err(_) => named
                    .map(|named| named.get_item(param.name))
                    .transpose()?
                    .flatten(),
            };
            let Some(given) = given else {
                let text = format!("{} needs an argument `{}`", self.__repr__(), param.name);
                return Err(PyTypeError::new_err(text));
            };
            let arg = to_arg(&given, param.tag, blocks).map_err(|wanted| {
                let kind = given.get_type();
                let text = format!("{}: `{}` is {wanted}, not {kind}", self.id, param.name);
                argument(py, "task", &text)
            })?;
            values.push(arg);
            held.push(given.unbind());
        }
        Ok(Task {
            task: ringwork_isa::Task {
                kernel: self.id.clone(),
                params: self.params,
                args: values,
            },
            _held: held,
        })
    }
}

/// What travels for an object; or what is wanted in its place.
pub(crate) fn to_arg(object: &Bound<'_, PyAny>, tag: Tag, blocks: bool) -> Result<Arg, &'static str> {
    match tag {
        Tag::Value => to_value(object).map(Arg::Value),
        Tag::Shared => {
            if let Ok(buffer) = object.cast::<Buffer>() {
                return Ok(buffer.get().buffer.window());
            }
            if let Ok(team) = object.cast::<Team>() {
                return Ok(team.get().memory());
            }
            let row = object.cast::<Signals>();
            row.map(|row| row.get().arg())
                .map_err(|_| "a buffer, a barrier, signals or a team of a domain")
        }
        Tag::Input | Tag::Output | Tag::InOut => {
            if let Ok(tensor) = object.cast::<Tensor>() {
                let tensor = tensor.get();
                return Ok(if blocks { tensor.block() } else { tensor.region() });
            }
            let buffer = object
                .cast::<Buffer>()
                .map_err(|_| "a tensor, or a buffer of a domain")?;
            let buffer = &buffer.get().buffer;
            Ok(if blocks { buffer.block() } else { buffer.region() })
        }
    }
}

fn to_value(object: &Bound<'_, PyAny>) -> Result<Value, &'static str> {
    const WANTED: &str = "a number, a truth value, or the name of a reduction, an algorithm or a function";
    if object.is_instance_of::<PyBool>() {
        return object.extract().map(Value::Bool).map_err(|_| WANTED);
    }
    if object.is_instance_of::<PyFloat>() {
        return object.extract().map(Value::F64).map_err(|_| WANTED);
    }
    if object.is_instance_of::<PyInt>() {
        // A rank has no sign; a parameter that has one takes a number without.
        let unsigned = object.extract().map(Value::U64);
        return unsigned
            .or_else(|_| object.extract().map(Value::I64))
            .map_err(|_| WANTED);
    }
    let name = object.cast::<PyString>().map_err(|_| WANTED)?;
    let name = name.to_cow().map_err(|_| WANTED)?;
    if let Ok(op) = name.parse::<ReduceOp>() {
        return Ok(Value::Op(op));
    }
    if let Ok(algorithm) = name.parse::<Algorithm>() {
        return Ok(Value::U64(algorithm as u64));
    }
    name.parse::<Function>()
        .map(|function| Value::U64(function as u64))
        .map_err(|_| WANTED)
}

fn parse_tag(py: Python<'_>, name: &str) -> PyResult<Tag> {
    Ok(match name {
        "Input" => Tag::Input,
        "Output" => Tag::Output,
        "InOut" => Tag::InOut,
        "Shared" => Tag::Shared,
        "Value" => Tag::Value,
        other => return Err(argument(py, "kernel", &format!("there is no tag `{other}`"))),
    })
}

#[pymethods]
impl Kernel {
    /// A built-in kernel by its name, such as `"all_reduce"`.
    #[staticmethod]
    fn named(py: Python<'_>, name: &str) -> PyResult<Kernel> {
        let found = KERNELS
            .iter()
            .find(|entry| entry.name.rsplit("::").next() == Some(name));
        let entry =
            found.ok_or_else(|| argument(py, "kernel", &format!("there is no built-in kernel `{name}`")))?;
        Ok(Kernel {
            id: entry.id(),
            params: entry.params,
            blocks: entry.name.contains("::dense::"),
        })
    }

    /// A kernel of another chip program, as its `--kernels` says it.
    #[staticmethod]
    fn _foreign(
        py: Python<'_>,
        name: String,
        signature: u64,
        params: Vec<(String, String)>,
    ) -> PyResult<Kernel> {
        let mut known = Vec::with_capacity(params.len());
        for (name, tag) in params {
            let tag = parse_tag(py, &tag)?;
            // A program has few kernels, which are asked for once: their names stay, as those of built-in ones do.
            let name = Box::leak(name.into_boxed_str());
            known.push(Param { name, tag });
        }
        Ok(Kernel {
            id: KernelId {
                name: name.into(),
                signature,
            },
            params: Box::leak(known.into_boxed_slice()),
            blocks: false,
        })
    }

    /// Its full name, such as `"ringwork_kernels::all_reduce"`.
    #[getter]
    fn name(&self) -> &str {
        &self.id.name
    }

    /// The names of its parameters.
    #[getter]
    fn parameters(&self) -> Vec<&'static str> {
        self.params.iter().map(|param| param.name).collect()
    }

    #[pyo3(signature = (*args, **named))]
    fn __call__(&self, args: &Bound<'_, PyTuple>, named: Option<&Bound<'_, PyDict>>) -> PyResult<Task> {
        self.task(args, named, self.blocks)
    }

    /// A task whose tensors are given as blocks of rows and columns, for a kernel of yours that takes `Block<In<T>>`.
    #[pyo3(signature = (*args, **named))]
    fn matrices(&self, args: &Bound<'_, PyTuple>, named: Option<&Bound<'_, PyDict>>) -> PyResult<Task> {
        self.task(args, named, true)
    }

    fn __repr__(&self) -> String {
        format!("{}({})", self.id, self.parameters().join(", "))
    }
}

/// A kernel with its arguments, to be submitted. Made by calling a `Kernel`.
#[pyclass(module = "ringwork", frozen)]
pub(crate) struct Task {
    pub(crate) task: ringwork_isa::Task,
    /// Its arguments live until it is submitted.
    _held: Vec<Py<PyAny>>,
}

#[pymethods]
impl Task {
    /// The name of its kernel.
    #[getter]
    fn kernel(&self) -> String {
        self.task.kernel.to_string()
    }

    fn __repr__(&self) -> String {
        format!("<ringwork.Task {}>", self.task.kernel)
    }
}
