//! What an orchestration talks to.

use super::arrays::shape_of;
use super::domain::{Domain, DomainSpec};
use super::errors::raised;
use super::memory::{Buffer, Condition, Place, Tensor};
use super::running::{InClosure, Turn, is_in_closure};
use super::task::Task;
use crate::comm::dtype_of;
use crate::errors::build;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use ringwork_isa::{Arg, Device, Dtype, Tag};
use ringwork_runtime::{Result, Run, TaskId as Id};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, ThreadId};

/// A task that was submitted: others can come after it.
#[pyclass(module = "ringwork", frozen, eq, hash)]
#[derive(PartialEq, Eq, Hash)]
pub(crate) struct TaskId(Id);

#[pymethods]
impl TaskId {
    fn __repr__(&self) -> String {
        format!("<ringwork.TaskId {}>", self.0)
    }
}

/// What host closures raised, by their names; the newest is first looked at.
pub(crate) type Raised = Arc<Mutex<Vec<(String, PyErr)>>>;

/// Submits tasks, which run as soon as what they touch is ready: a task comes after every earlier one that touches the same
/// memory, if one of the two writes it. Given to the function of `Node.run`, and good until that returns.
///
/// Every submission takes conditions by name: `after` (tasks), `priority` (larger goes first), `when` and `until` (from
/// `Signals.compares`), `reads`, `writes` and `updates` (memory besides the kernel's arguments).
#[pyclass(module = "ringwork", frozen)]
pub(crate) struct Orchestrator {
    run: Mutex<Option<Run>>,
    thread: ThreadId,
    turn: Turn,
    pub(crate) raised: Raised,
}

/// The conditions of a submission, read from its keywords.
#[derive(Default)]
struct Conditions {
    after: Vec<Id>,
    priority: i8,
    when: Vec<(ringwork_isa::Signal, ringwork_isa::Compare, i32)>,
    until: Vec<(ringwork_isa::Signal, ringwork_isa::Compare, i32)>,
    touches: Vec<(Arg, Tag)>,
}

fn condition(given: &Bound<'_, PyAny>) -> PyResult<(ringwork_isa::Signal, ringwork_isa::Compare, i32)> {
    let condition = given.cast::<Condition>()?.get();
    Ok((condition.signal, condition.compare, condition.value))
}

fn memory(given: &Bound<'_, PyAny>) -> PyResult<Arg> {
    if let Ok(tensor) = given.cast::<Tensor>() {
        return Ok(tensor.get().region());
    }
    Ok(given.cast::<Buffer>()?.get().buffer.region())
}

/// One of these, or several in a list or a tuple.
fn each<'py, R>(
    given: &Bound<'py, PyAny>,
    read: impl Fn(&Bound<'py, PyAny>) -> PyResult<R>,
) -> PyResult<Vec<R>> {
    if given.is_instance_of::<pyo3::types::PyList>() || given.is_instance_of::<pyo3::types::PyTuple>() {
        return given.try_iter()?.map(|item| read(&item?)).collect();
    }
    Ok(vec![read(given)?])
}

impl Conditions {
    fn read(named: Option<&Bound<'_, PyDict>>) -> PyResult<Conditions> {
        let mut conditions = Conditions::default();
        let Some(named) = named else { return Ok(conditions) };
        for (name, given) in named.iter() {
            let tag = match &*name.cast::<pyo3::types::PyString>()?.to_cow()? {
                "after" => {
                    conditions.after = each(&given, |task| Ok(task.cast::<TaskId>()?.get().0))?;
                    continue;
                }
                "priority" => {
                    conditions.priority = given.extract()?;
                    continue;
                }
                "when" => {
                    conditions.when = each(&given, condition)?;
                    continue;
                }
                "until" => {
                    conditions.until = each(&given, condition)?;
                    continue;
                }
                "reads" => Tag::Input,
                "writes" => Tag::Output,
                "updates" => Tag::InOut,
                other => {
                    let text = format!(
                        "there is no condition `{other}`; use after, priority, when, until, reads, writes, updates"
                    );
                    return Err(PyTypeError::new_err(text));
                }
            };
            let args = each(&given, memory)?;
            conditions.touches.extend(args.into_iter().map(|arg| (arg, tag)));
        }
        Ok(conditions)
    }

    fn on<'r>(&self, run: &'r Run) -> ringwork_runtime::Orchestrator<'r> {
        let mut orch = run
            .orchestrator()
            .after(self.after.iter().copied())
            .priority(self.priority);
        for &(signal, compare, operand) in &self.when {
            orch = orch.when(signal, compare, operand);
        }
        for &(signal, compare, operand) in &self.until {
            orch = orch.until(signal, compare, operand);
        }
        for &(arg, tag) in &self.touches {
            orch = orch.touches(arg, tag);
        }
        orch
    }
}

impl Drop for Orchestrator {
    fn drop(&mut self) {
        if self.turn.is_of_another_process() {
            // The run goes on in the parent (PY-3).
            std::mem::forget(self.finish());
        }
    }
}

impl Orchestrator {
    pub(crate) fn new(run: Run, turn: Turn) -> Orchestrator {
        Orchestrator {
            run: Mutex::new(Some(run)),
            thread: thread::current().id(),
            turn,
            raised: Arc::default(),
        }
    }

    /// Takes the run out, to end it.
    pub(crate) fn finish(&self) -> Option<Run> {
        self.run.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Does something with the run, without the interpreter's lock.
    fn with<R: Send>(&self, py: Python<'_>, work: impl FnOnce(&Run) -> Result<R> + Send) -> PyResult<R> {
        self.turn.check_process(py)?;
        let wrong =
            |problem: &str| build(py, "NodeError", problem, &PyDict::new(py)).unwrap_or_else(|other| other);
        if is_in_closure() || thread::current().id() != self.thread {
            return Err(wrong(
                "only the orchestration itself submits: not a host closure, not another thread",
            ));
        }
        // Nobody else has it for longer than a moment, as only this thread comes here.
        let run = self.run.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(run) = &*run else {
            return Err(wrong(
                "the run of this orchestrator is over; submit inside of Node.run",
            ));
        };
        let outcome = py.detach(|| work(run));
        self.turn.outcome(py, outcome)
    }
}

#[pymethods]
impl Orchestrator {
    /// Submits a task to a chip.
    #[pyo3(signature = (device, task, **conditions))]
    fn submit(
        &self,
        py: Python<'_>,
        device: u32,
        task: &Task,
        conditions: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<TaskId> {
        let conditions = Conditions::read(conditions)?;
        let task = task.task.clone();
        self.with(py, |run| conditions.on(run).submit(Device(device), task))
            .map(TaskId)
    }

    /// Submits a task to whichever chip is free first, among those that have all the memory it uses.
    #[pyo3(signature = (task, **conditions))]
    fn anywhere(
        &self,
        py: Python<'_>,
        task: &Task,
        conditions: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<TaskId> {
        let conditions = Conditions::read(conditions)?;
        let task = task.task.clone();
        self.with(py, |run| conditions.on(run).anywhere(task)).map(TaskId)
    }

    /// Submits a task to several chips that start together: `orch.group(node.devices, lambda d: kernel(x[d], y[d]))`.
    /// Nothing was sent if any of it is refused.
    #[pyo3(signature = (devices, task, **conditions))]
    fn group(
        &self,
        py: Python<'_>,
        devices: &Bound<'_, PyAny>,
        task: &Bound<'_, PyAny>,
        conditions: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<TaskId> {
        let conditions = Conditions::read(conditions)?;
        let mut members = Vec::new();
        for device in devices.try_iter()? {
            let device: u32 = device?.extract()?;
            let task = task.call1((device,))?;
            members.push((Device(device), task.cast::<Task>()?.get().task.clone()));
        }
        let devices: Vec<Device> = members.iter().map(|(device, _)| *device).collect();
        let mut tasks = members.into_iter().map(|(_, task)| task);
        self.with(py, |run| {
            conditions.on(run).group(devices, |_| {
                let missing = || ringwork_runtime::Error::Closed;
                tasks.next().ok_or_else(missing)
            })
        })
        .map(TaskId)
    }

    /// Submits a Python function that runs on the host when its turn has come: after what it `reads` or `writes` is ready,
    /// and the tasks that it comes `after`. It takes no arguments, and may use `tensor.numpy()` and `tensor.write()` there.
    /// The orchestration goes on meanwhile; what the function raises fails the run, as `HostFailed` from that exception.
    #[pyo3(signature = (function, *, name=None, **conditions))]
    fn host(
        &self,
        py: Python<'_>,
        function: Bound<'_, PyAny>,
        name: Option<String>,
        conditions: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<TaskId> {
        let conditions = Conditions::read(conditions)?;
        let name = match name {
            Some(name) => name,
            None => match function.getattr("__name__") {
                Ok(name) => name.to_string(),
                Err(_) => "a host closure".into(),
            },
        };
        let (function, raised, closure_name) = (function.unbind(), self.raised.clone(), name.clone());
        let closure = move || {
            let called = Python::try_attach(|py| {
                let _inside = InClosure::begin();
                function.call0(py).map(drop).map_err(|error| {
                    let text = error.to_string();
                    let mut raised = raised.lock().unwrap_or_else(PoisonError::into_inner);
                    raised.push((closure_name, error));
                    text
                })
            });
            called.unwrap_or_else(|| Err("the interpreter is ending".into()))
        };
        self.with(py, |run| conditions.on(run).host_task(&name, closure))
            .map(TaskId)
    }

    /// Waits until everything submitted before is done.
    fn wait(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, |run| run.orchestrator().wait())
    }

    /// Memory on a chip for what passes between tasks of this run; it holds anything until a task has written it.
    #[pyo3(signature = (device, shape, dtype=None))]
    fn intermediate(
        &self,
        py: Python<'_>,
        device: u32,
        shape: &Bound<'_, PyAny>,
        dtype: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Tensor> {
        let dtype = dtype.map_or(Ok(Dtype::F32), |dtype| dtype_of(dtype, "intermediate"))?;
        let shape = shape_of(shape)?;
        let memory = self.with(py, |run| {
            run.orchestrator().any_intermediate(Device(device), dtype, &shape)
        })?;
        Ok(Tensor::new(Place::Intermediate(memory), self.turn.clone()))
    }

    /// Opens a domain for as long as it is used.
    fn domain(&self, py: Python<'_>, spec: &DomainSpec) -> PyResult<Domain> {
        let domain = self.with(py, |run| run.orchestrator().domain(&spec.spec))?;
        Ok(Domain::new(domain, spec, self.turn.clone()))
    }

    fn __repr__(&self) -> &'static str {
        "<ringwork.Orchestrator>"
    }
}

/// The exception for an error of a run; that of a host closure comes from what the closure raised.
pub(crate) fn failed(py: Python<'_>, error: &ringwork_runtime::Error, closures: &Raised) -> PyErr {
    let exception = raised(py, error);
    if let ringwork_runtime::Error::Host { name, .. } = error {
        let mut closures = closures.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = closures.iter().position(|(closure, _)| closure == name) {
            let (_, cause) = closures.remove(at);
            exception.set_cause(py, Some(cause));
        }
    }
    exception
}
