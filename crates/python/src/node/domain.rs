//! Domains: as they are asked for, and open.

use super::arrays::from_host;
use super::errors::raised;
use super::memory::{Buffer, Signals, Team};
use super::running::Turn;
use crate::comm::dtype_of;
use crate::errors::argument;
use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyMapping};
use ringwork_isa::{Device, Dtype, Rank};
use std::collections::BTreeMap;

/// What a name of a domain stands for.
#[derive(Clone, Copy)]
enum Named {
    Buffer,
    Signals,
    Barrier,
    Team,
}

/// A domain as it is asked for: `DomainSpec("tp", [0, 1], buffers={"slots": ("f32", 512)}, signals={"filled": 2},
/// barriers=["meet"], teams={"team": ("f32", 1024)}, stage={"slots": {0: array}})`.
///
/// The order of the members gives their ranks. `stage` is data for a buffer of one rank, put there before anyone sees it.
#[pyclass(module = "ringwork", frozen)]
pub(crate) struct DomainSpec {
    pub(crate) spec: ringwork_runtime::DomainSpec,
    names: BTreeMap<String, Named>,
    name: String,
}

/// `("f32", 512)`.
fn typed(value: &Bound<'_, PyAny>, call: &str) -> PyResult<(Dtype, usize)> {
    let (dtype, count): (Bound<'_, PyAny>, usize) = value.extract().map_err(|_| {
        argument(
            value.py(),
            call,
            "say the type and the number of elements, such as (\"f32\", 512)",
        )
    })?;
    Ok((dtype_of(&dtype, call)?, count))
}

/// The items of a mapping, if there is one.
fn items<'py>(mapping: Option<&Bound<'py, PyAny>>) -> PyResult<Vec<(String, Bound<'py, PyAny>)>> {
    let Some(mapping) = mapping else {
        return Ok(Vec::new());
    };
    let items: Bound<'py, PyList> = mapping.cast::<PyMapping>()?.items()?;
    items.iter().map(|item| item.extract()).collect()
}

#[pymethods]
impl DomainSpec {
    #[new]
    #[pyo3(signature = (name, members, *, buffers=None, signals=None, barriers=None, teams=None, stage=None, window_bytes=None))]
    #[allow(clippy::too_many_arguments, reason = "what a domain has, by name")]
    fn new(
        name: &str,
        members: Vec<u32>,
        buffers: Option<&Bound<'_, PyAny>>,
        signals: Option<&Bound<'_, PyAny>>,
        barriers: Option<Vec<String>>,
        teams: Option<&Bound<'_, PyAny>>,
        stage: Option<&Bound<'_, PyAny>>,
        window_bytes: Option<u64>,
    ) -> PyResult<DomainSpec> {
        let mut spec = ringwork_runtime::DomainSpec::new(name, members.into_iter().map(Device));
        let (mut names, mut dtypes) = (BTreeMap::new(), BTreeMap::new());
        for (name, value) in items(buffers)? {
            let (dtype, count) = typed(&value, "buffers")?;
            spec = spec.buffer_of(&name, dtype, count);
            dtypes.insert(name.clone(), dtype);
            names.insert(name, Named::Buffer);
        }
        for (name, count) in items(signals)? {
            spec = spec.signals(&name, count.extract()?);
            names.insert(name, Named::Signals);
        }
        for name in barriers.unwrap_or_default() {
            spec = spec.barrier(&name);
            names.insert(name, Named::Barrier);
        }
        for (name, value) in items(teams)? {
            let (dtype, count) = typed(&value, "teams")?;
            spec = spec.team_by(&name, ringwork_runtime::TeamSpec::new(dtype, count));
            names.insert(name, Named::Team);
        }
        for (buffer, by_rank) in items(stage)? {
            let by_rank: Bound<'_, PyList> = by_rank.cast::<PyMapping>()?.items()?;
            for item in by_rank.iter() {
                let (rank, array): (u32, Bound<'_, PyAny>) = item.extract()?;
                // A type or a buffer that is wrong is refused, by name, when the domain is opened.
                let array = from_host(&array, dtypes.get(&buffer).copied(), "stage")?;
                spec = spec.stage_bytes(&buffer, Rank(rank), array.dtype, array.bytes().to_vec());
            }
        }
        if let Some(bytes) = window_bytes {
            spec = spec.window_bytes(bytes);
        }
        Ok(DomainSpec {
            spec,
            names,
            name: name.to_owned(),
        })
    }

    /// Its name.
    #[getter]
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    fn __repr__(&self) -> String {
        let names: Vec<_> = self.names.keys().map(String::as_str).collect();
        format!("<ringwork.DomainSpec {}: {}>", self.name, names.join(", "))
    }
}

/// Chips that communicate, and what each has in its window: `domain["slots"]`, `domain["meet"]`.
#[pyclass(module = "ringwork", frozen)]
pub(crate) struct Domain {
    domain: ringwork_runtime::Domain,
    names: BTreeMap<String, Named>,
    turn: Turn,
}

impl Drop for Domain {
    fn drop(&mut self) {
        self.turn.leave(&self.domain);
    }
}

impl Domain {
    pub(crate) fn new(domain: ringwork_runtime::Domain, spec: &DomainSpec, turn: Turn) -> Domain {
        Domain {
            domain,
            names: spec.names.clone(),
            turn,
        }
    }
}

#[pymethods]
impl Domain {
    /// Its name.
    #[getter]
    fn name(&self) -> &str {
        self.domain.name()
    }

    /// Its members, in the order of their ranks.
    #[getter]
    fn members(&self) -> Vec<u32> {
        self.domain.members().iter().map(|device| device.0).collect()
    }

    /// The rank of each member.
    #[getter]
    fn ranks<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let ranks = PyDict::new(py);
        for (rank, device) in self.domain.members().iter().enumerate() {
            ranks.set_item(device.0, rank)?;
        }
        Ok(ranks)
    }

    /// The rank of a chip; `KeyError` if it is not a member.
    fn rank_of(&self, device: u32) -> PyResult<u32> {
        let rank = self.domain.rank_of(Device(device)).map(|rank| rank.0);
        rank.ok_or_else(|| {
            let (name, members) = (self.domain.name(), self.members());
            PyKeyError::new_err(format!(
                "device {device} is not a member of domain `{name}`, which has {members:?}"
            ))
        })
    }

    /// The names of its buffers, signals, barriers and teams.
    fn keys(&self) -> Vec<String> {
        self.names.keys().cloned().collect()
    }

    fn __getitem__(&self, py: Python<'_>, name: &str) -> PyResult<Py<PyAny>> {
        let turn = || self.turn.clone();
        let found = match self.names.get(name) {
            Some(Named::Team) => {
                let team = self.domain.team(name).map_err(|error| raised(py, &error))?;
                return Ok(Py::new(py, Team::new(team, turn()))?.into_any());
            }
            Some(Named::Signals | Named::Barrier) => {
                let is_barrier = matches!(self.names.get(name), Some(Named::Barrier));
                let row = self.domain.signals(name).map_err(|error| raised(py, &error))?;
                return Ok(Py::new(py, Signals::new(row, is_barrier, turn()))?.into_any());
            }
            Some(Named::Buffer) | None => self.domain.any_buffer(name),
        };
        let buffer = found.map_err(|error| raised(py, &error))?;
        Ok(Py::new(py, Buffer::new(buffer, turn()))?.into_any())
    }

    fn __contains__(&self, name: &str) -> bool {
        self.names.contains_key(name)
    }

    /// No more uses: tasks that are submitted with it from now on are refused. The memory is freed when those before are
    /// done.
    fn release(&self, py: Python<'_>) -> PyResult<()> {
        self.turn.check_process(py)?;
        py.detach(|| self.domain.release());
        Ok(())
    }

    fn __repr__(&self) -> String {
        format!("<ringwork.Domain {} of {:?}>", self.domain.name(), self.members())
    }
}
