//! `Node`: chips, what lives on them, and orchestrations that are Python functions.

mod arrays;
mod domain;
mod errors;
mod machine;
mod memory;
mod orchestrator;
mod running;
mod task;

use crate::comm::dtype_of;
use crate::errors::build;
use arrays::{from_host, shape_of};
use domain::{Domain, DomainSpec};
use errors::raised;
use machine::{Machine, Timeline};
use memory::{Place, Tensor};
use orchestrator::{Orchestrator, failed};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use ringwork_isa::{Device, Dtype};
use ringwork_runtime::{Error, Platform, Program, Simulation};
use running::Turn;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Adds the classes of the node to the module.
pub(crate) fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Node>()?;
    module.add_class::<Domain>()?;
    module.add_class::<DomainSpec>()?;
    module.add_class::<Machine>()?;
    module.add_class::<Timeline>()?;
    module.add_class::<Tensor>()?;
    module.add_class::<memory::Buffer>()?;
    module.add_class::<memory::Signals>()?;
    module.add_class::<memory::Condition>()?;
    module.add_class::<memory::Team>()?;
    module.add_class::<task::Kernel>()?;
    module.add_class::<task::Task>()?;
    module.add_class::<Orchestrator>()?;
    module.add_class::<orchestrator::TaskId>()
}

/// Chips that are up, memory on them, and the way to run things there.
///
/// `Node(devices=range(4))` starts one process per chip on this host. `Node(machine="h100x8")` is the same on a simulated
/// machine: a preset, the path of a description, or a `Machine`; `devices` are then all of its ranks unless said.
///
/// `domains` are `DomainSpec`s that exist from the start, with what is staged in them. `chip` is the program of the chips,
/// for kernels of yours. `timeout` in seconds is the longest that a kernel may wait for a signal. Close it, or use it as a
/// context manager.
#[pyclass(module = "ringwork", frozen, weakref)]
pub(crate) struct Node {
    node: Mutex<Option<Arc<ringwork_runtime::Node>>>,
    clock: ringwork_runtime::Clock,
    domains: Py<PyDict>,
    devices: Vec<u32>,
    machine: Option<Py<Machine>>,
    turn: Turn,
}

impl Node {
    fn lock(&self) -> MutexGuard<'_, Option<Arc<ringwork_runtime::Node>>> {
        self.node.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The open node, in the process that made it (PY-3).
    fn open(&self, py: Python<'_>) -> PyResult<Arc<ringwork_runtime::Node>> {
        self.turn.check_process(py)?;
        self.lock().clone().ok_or_else(|| raised(py, &Error::Closed))
    }

    fn device_of(index: i64) -> PyResult<Device> {
        let device = u32::try_from(index).map(Device);
        device.map_err(|_| PyValueError::new_err(format!("a device is a number from 0, not {index}")))
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let node = self.node.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if self.turn.is_of_another_process() {
            // It is the parent's (PY-3).
            std::mem::forget(node);
            return;
        }
        let mut node = Some(node);
        // Its closures may need the interpreter's lock to end (PY-2).
        Python::try_attach(|py| py.detach(|| drop(node.take())));
    }
}

/// The program that chips run: the one beside this extension unless another is named.
fn program(py: Python<'_>, chip: Option<PathBuf>) -> PyResult<Program> {
    let path = match chip {
        Some(path) => path,
        None => {
            let module = py
                .import("ringwork._core")?
                .getattr("__file__")?
                .extract::<PathBuf>()?;
            module.with_file_name("bin").join("ringwork-chip")
        }
    };
    if !path.is_file() {
        let facts = PyDict::new(py);
        facts.set_item("field", "chip")?;
        let text = format!(
            "there is no program `{}` for the chips of a node; install ringwork from a wheel, or name one: Node(chip=...)",
            path.display()
        );
        facts.set_item("problem", &text)?;
        return Err(build(py, "ConfigError", &text, &facts)?);
    }
    Ok(Program {
        path,
        arguments: Vec::new(),
    })
}

#[pymethods]
impl Node {
    #[new]
    #[pyo3(signature = (devices=None, *, machine=None, domains=None, chip=None, name="node", timeout=60.0, record=true, task_slots=4096, intermediate_bytes=16 << 20))]
    #[allow(clippy::too_many_arguments, reason = "what a node has, by name")]
    fn new(
        py: Python<'_>,
        devices: Option<&Bound<'_, PyAny>>,
        machine: Option<&Bound<'_, PyAny>>,
        domains: Option<Vec<Py<DomainSpec>>>,
        chip: Option<PathBuf>,
        name: &str,
        timeout: f64,
        record: bool,
        task_slots: u32,
        intermediate_bytes: u64,
    ) -> PyResult<Node> {
        let machine = machine.map(Machine::of).transpose()?;
        let devices: Vec<u32> = match (devices, &machine) {
            (Some(devices), _) => match devices.extract::<u32>() {
                Ok(count) => (0..count).collect(),
                Err(_) => devices
                    .try_iter()?
                    .map(|device| device?.extract())
                    .collect::<PyResult<_>>()?,
            },
            (None, Some(machine)) => (0..machine.get().topology.ranks()).collect(),
            (None, None) => {
                let text = "a node has devices, such as Node(devices=range(4)), or a machine";
                return Err(PyValueError::new_err(text));
            }
        };
        let limit = Duration::try_from_secs_f64(timeout)
            .map_err(|_| PyValueError::new_err("the timeout must be a number of seconds above 0"))?;
        let turn = Turn::new();
        let looking = turn.clone();
        let mut builder = ringwork_runtime::Node::builder()
            .devices(devices.iter().copied())
            .name(name)
            .wait_limit(limit)
            .record(record)
            .task_slots(task_slots)
            .intermediate_bytes(intermediate_bytes)
            .on_wait(move || looking.look());
        builder = match &machine {
            Some(machine) => {
                let simulation = Simulation::new(machine.get().topology.clone()).trace(record);
                builder.platform(Platform::Sim(simulation))
            }
            None => builder.program(program(py, chip)?),
        };
        let domains = domains.unwrap_or_default();
        for spec in &domains {
            builder = builder.domain(spec.get().spec.clone());
        }
        // Chips come up in milliseconds. Not without the interpreter's lock, as a builder stays on its thread.
        let node = builder.launch().map_err(|error| raised(py, &error))?;
        let opened = PyDict::new(py);
        for spec in &domains {
            let spec = spec.get();
            let domain = node.domain(spec.name()).map_err(|error| raised(py, &error))?;
            opened.set_item(spec.name(), Py::new(py, Domain::new(domain, spec, turn.clone()))?)?;
        }
        Ok(Node {
            clock: node.clock(),
            node: Mutex::new(Some(Arc::new(node))),
            domains: opened.unbind(),
            devices,
            machine: machine.map(Bound::unbind),
            turn,
        })
    }

    /// The chips, in order.
    #[getter]
    fn devices(&self) -> Vec<u32> {
        self.devices.clone()
    }

    /// The machine that is simulated; None if the chips are processes of this host.
    #[getter]
    fn machine(&self, py: Python<'_>) -> Option<Py<Machine>> {
        self.machine.as_ref().map(|machine| machine.clone_ref(py))
    }

    /// The domains that were there from the start, by name.
    #[getter]
    fn domains(&self, py: Python<'_>) -> Py<PyDict> {
        self.domains.clone_ref(py)
    }

    /// Whether it was closed.
    #[getter]
    fn closed(&self) -> bool {
        self.lock().is_none()
    }

    /// What each chip reported when it was ready: a list of dicts with its `device`, and for each of its `domains` by name
    /// its `rank`, the number of `ranks`, `window_bytes`, and `buffers` by name as (offset, dtype, elements).
    #[getter]
    fn contexts<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let node = self.open(py)?;
        let contexts = PyList::empty(py);
        for context in node.contexts() {
            let domains = PyDict::new(py);
            for domain in &context.domains {
                let (facts, buffers) = (PyDict::new(py), PyDict::new(py));
                for (name, place) in &domain.buffers {
                    buffers.set_item(name, (place.offset, place.dtype.name(), place.count))?;
                }
                facts.set_item("rank", domain.rank.0)?;
                facts.set_item("ranks", domain.ranks)?;
                facts.set_item("window_bytes", domain.window_bytes)?;
                facts.set_item("buffers", buffers)?;
                domains.set_item(&domain.name, facts)?;
            }
            let facts = PyDict::new(py);
            facts.set_item("device", context.device.0)?;
            facts.set_item("domains", domains)?;
            contexts.append(facts)?;
        }
        Ok(contexts)
    }

    /// The process of a chip.
    fn pid(&self, py: Python<'_>, device: i64) -> PyResult<u32> {
        let (node, device) = (self.open(py)?, Node::device_of(device)?);
        py.detach(|| node.pid(device)).map_err(|error| raised(py, &error))
    }

    /// Memory on a chip with the elements of an array.
    #[pyo3(signature = (device, array, dtype=None))]
    fn tensor(
        &self,
        py: Python<'_>,
        device: i64,
        array: &Bound<'_, PyAny>,
        dtype: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Tensor> {
        let dtype = dtype.map(|dtype| dtype_of(dtype, "tensor")).transpose()?;
        let (node, device, array) = (
            self.open(py)?,
            Node::device_of(device)?,
            from_host(array, dtype, "tensor")?,
        );
        let bytes = array.bytes();
        let memory = self.turn.take(py, || {
            let memory = node.any_zeros(device, array.dtype, &array.shape)?;
            memory.write(bytes)?;
            Ok(memory)
        })?;
        Ok(Tensor::new(Place::Chip(memory), self.turn.clone()))
    }

    /// Zeroed memory on a chip.
    #[pyo3(signature = (device, shape, dtype=None))]
    fn zeros(
        &self,
        py: Python<'_>,
        device: i64,
        shape: &Bound<'_, PyAny>,
        dtype: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Tensor> {
        let dtype = dtype.map_or(Ok(Dtype::F32), |dtype| dtype_of(dtype, "zeros"))?;
        let (node, device, shape) = (self.open(py)?, Node::device_of(device)?, shape_of(shape)?);
        let memory = py.detach(|| node.any_zeros(device, dtype, &shape));
        let memory = memory.map_err(|error| raised(py, &error))?;
        Ok(Tensor::new(Place::Chip(memory), self.turn.clone()))
    }

    /// Opens a domain now: `node.domain("tp", buffers={"slots": ("f32", 512)}, barriers=["meet"])`. The keywords are those of
    /// `DomainSpec`, which may also be given itself; the members are all chips unless said.
    #[pyo3(signature = (spec, members=None, **named))]
    fn domain(
        &self,
        py: Python<'_>,
        spec: &Bound<'_, PyAny>,
        members: Option<Vec<u32>>,
        named: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Domain> {
        let node = self.open(py)?;
        let spec: Bound<'_, DomainSpec> = match spec.cast::<DomainSpec>() {
            Ok(spec) => spec.clone(),
            Err(_) => {
                let members = members.unwrap_or_else(|| self.devices.clone());
                let class = py.get_type::<DomainSpec>();
                class.call((spec, members), named)?.cast_into()?
            }
        };
        let spec = spec.get();
        let domain = py
            .detach(|| node.open_domain(&spec.spec))
            .map_err(|error| raised(py, &error))?;
        Ok(Domain::new(domain, spec, self.turn.clone()))
    }

    /// Runs an orchestration: a function that submits tasks to the `Orchestrator` it is given. Returns what it returns, when
    /// every task is done.
    ///
    /// An exception of the function comes out as it is, after the tasks that it had submitted have ended. A task that fails
    /// comes out as a `TaskFailed` or a `ChipGone`. The node can run again in either case, except on chips that are gone.
    fn run<'py>(&self, py: Python<'py>, orchestration: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let node = self.open(py)?;
        let turn = self.turn.begin(py)?;
        if turn.is_nested() {
            let problem = "a run cannot begin inside of another one of the same node; submit to the one that is under way";
            return Err(build(py, "NodeError", problem, &PyDict::new(py))?);
        }
        let run = py
            .detach(|| node.begin_run())
            .map_err(|error| raised(py, &error))?;
        let orchestrator = Bound::new(py, Orchestrator::new(run, self.turn.clone()))?;
        let returned = orchestration.call1((&orchestrator,));
        let Some(run) = orchestrator.get().finish() else {
            return returned;
        };
        let outcome = match &returned {
            Ok(_) => Ok(()),
            Err(error) => Err(Error::Host {
                worker: node.name(),
                name: "the orchestration".into(),
                message: error.to_string(),
            }),
        };
        let ended = py.detach(|| run.end(outcome));
        let value = returned?;
        match ended {
            Ok(()) => Ok(value),
            Err(error) if error.is_interrupted() => self.turn.outcome(py, Err(error)),
            Err(error) => Err(failed(py, &error, &orchestrator.get().raised)),
        }
    }

    /// Where virtual time is, in seconds; None if time is real.
    #[getter]
    fn time(&self, py: Python<'_>) -> Option<f64> {
        #[allow(clippy::cast_precision_loss, reason = "`simulated` has it to the picosecond")]
        py.detach(|| self.clock.simulated())
            .map(|simulated| simulated.now_ps as f64 * 1e-12)
    }

    /// What a simulated node knows of its time, as a dict: `machine`, `now_ps`, `events`, `fingerprint` (equal runs have
    /// equal ones), and `loads` as (link, bytes, busy_ps), busiest first. None if time is real.
    #[getter]
    fn simulated<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        let Some(simulated) = py.detach(|| self.clock.simulated()) else {
            return Ok(None);
        };
        let facts = PyDict::new(py);
        facts.set_item("machine", simulated.topology)?;
        facts.set_item("now_ps", simulated.now_ps)?;
        facts.set_item("events", simulated.events)?;
        facts.set_item("fingerprint", simulated.fingerprint)?;
        let loads = simulated
            .loads
            .into_iter()
            .map(|load| (load.name, load.bytes, load.busy_ps));
        facts.set_item("loads", loads.collect::<Vec<_>>())?;
        Ok(Some(facts))
    }

    /// What ran where and when so far; None if nothing is recorded.
    #[getter]
    fn timeline(&self, py: Python<'_>) -> Option<Timeline> {
        py.detach(|| self.clock.timeline()).map(Timeline::new)
    }

    /// Ends everything: tasks, domains, chips, memory. Closing again does nothing.
    fn close(&self, py: Python<'_>) {
        if self.turn.is_of_another_process() {
            return;
        }
        let node = self.lock().take();
        // Others may hold it for the length of a call; its end interrupts them.
        py.detach(|| {
            if let Some(node) = &node {
                node.close();
            }
            drop(node);
        });
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyAny>) {
        self.close(py);
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        let on = match &self.machine {
            Some(machine) => format!(" on {}", machine.get().topology.name),
            None => String::new(),
        };
        let _ = py;
        format!("<ringwork.Node of {} chips{on}>", self.devices.len())
    }
}
