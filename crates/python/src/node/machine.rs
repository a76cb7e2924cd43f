//! Machines that are described, and timelines of what ran: as text, as files, and in notebooks.

use crate::errors::build;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use ringwork_sim::{Topology, preset_yaml};
use std::path::{Path, PathBuf};

/// A described machine: `Machine("h100x8")` for a preset, `Machine("machine.yaml")` for a file.
#[pyclass(module = "ringwork", frozen)]
pub(crate) struct Machine {
    pub(crate) topology: Topology,
    text: String,
}

impl Machine {
    /// A machine, or what names one.
    pub(crate) fn of<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, Machine>> {
        if let Ok(machine) = object.cast::<Machine>() {
            return Ok(machine.clone());
        }
        Bound::new(object.py(), Machine::new(object.py(), object.extract()?)?)
    }
}

#[pymethods]
impl Machine {
    #[new]
    fn new(py: Python<'_>, name: PathBuf) -> PyResult<Machine> {
        let file = name.to_string_lossy();
        let refused = |problem: String| {
            let facts = PyDict::new(py);
            facts
                .set_item("field", "machine")
                .and_then(|()| facts.set_item("problem", &problem))?;
            build(py, "ConfigError", &problem, &facts)
        };
        let text = match preset_yaml(&file) {
            Some(text) => Ok(text),
            None if file.contains(['/', '.']) => {
                ringwork_native::read_config_file(&name).map_err(|error| format!("{file}: {error}"))
            }
            None => Topology::preset(&file)
                .map(|_| String::new())
                .map_err(|error| error.to_string()),
        };
        let made = text.and_then(|text| {
            let topology = Topology::from_yaml(&file, &text).map_err(|error| error.to_string())?;
            Ok(Machine { topology, text })
        });
        match made {
            Ok(machine) => Ok(machine),
            Err(problem) => Err(refused(problem)?),
        }
    }

    /// A machine from the text of a description.
    #[staticmethod]
    #[pyo3(signature = (text, name="machine"))]
    fn from_yaml(text: String, name: &str) -> PyResult<Machine> {
        let topology =
            Topology::from_yaml(name, &text).map_err(|error| PyValueError::new_err(error.to_string()))?;
        Ok(Machine { topology, text })
    }

    /// Its name.
    #[getter]
    fn name(&self) -> &str {
        &self.topology.name
    }

    /// How many ranks it has: the devices that a node may have.
    #[getter]
    fn ranks(&self) -> u32 {
        self.topology.ranks()
    }

    /// How many chips it has.
    #[getter]
    fn chips(&self) -> u32 {
        self.topology.chips()
    }

    /// Its description, as YAML.
    #[getter]
    fn yaml(&self) -> &str {
        &self.text
    }

    /// It in words and numbers, a dozen lines.
    fn describe(&self) -> String {
        self.topology.describe()
    }

    /// It as an SVG picture.
    fn svg(&self) -> String {
        self.topology.svg()
    }

    fn _repr_html_(&self) -> String {
        self.topology.svg()
    }

    fn __repr__(&self) -> String {
        format!(
            "<ringwork.Machine {} of {} ranks>",
            self.topology.name,
            self.topology.ranks()
        )
    }
}

/// What ran where and when.
#[pyclass(module = "ringwork", frozen)]
pub(crate) struct Timeline {
    timeline: ringwork_timeline::Timeline,
}

impl Timeline {
    pub(crate) fn new(timeline: ringwork_timeline::Timeline) -> Timeline {
        Timeline { timeline }
    }
}

#[pymethods]
impl Timeline {
    /// The names of the rows: one per chip.
    #[getter]
    fn rows(&self) -> Vec<String> {
        self.timeline.rows.clone()
    }

    /// When the last slice ends, in seconds.
    #[getter]
    fn end(&self) -> f64 {
        #[allow(
            clippy::cast_precision_loss,
            reason = "for people; `slices` has it to the picosecond"
        )]
        let end = self.timeline.end_ps() as f64;
        end * 1e-12
    }

    /// What happened, as tuples: (row, label, start_ps, end_ps, bytes).
    #[getter]
    fn slices(&self) -> Vec<(u32, String, u64, u64, u64)> {
        let slices = self.timeline.slices.iter();
        slices
            .map(|slice| {
                (
                    slice.row,
                    slice.label.to_string(),
                    slice.start_ps,
                    slice.end_ps,
                    slice.bytes,
                )
            })
            .collect()
    }

    /// As Chrome's trace format, for <https://ui.perfetto.dev>.
    fn json(&self) -> String {
        self.timeline.chrome_json()
    }

    /// As one page with everything in it.
    fn html(&self) -> String {
        self.timeline.html()
    }

    /// Writes it to a file: a page if the name ends in `.html`, else JSON.
    fn save(&self, path: PathBuf) -> PyResult<()> {
        let is_page = path.extension().is_some_and(|extension| extension == "html");
        let text = if is_page { self.html() } else { self.json() };
        Ok(std::fs::write(Path::new(&path), text)?)
    }

    fn __len__(&self) -> usize {
        self.timeline.slices.len()
    }

    fn _repr_html_(&self) -> String {
        // A page within the page: its script and its style stay its own.
        let page = ringwork_timeline::escape(&self.timeline.html());
        format!("<iframe srcdoc=\"{page}\" style=\"width: 100%; height: 480px; border: 0\"></iframe>")
    }

    fn __repr__(&self) -> String {
        let (slices, rows) = (self.timeline.slices.len(), self.timeline.rows.len());
        format!("<ringwork.Timeline of {slices} slices in {rows} rows>")
    }
}
