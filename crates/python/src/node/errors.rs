//! The node's errors as exceptions with fields; the classes are in `ringwork/errors.py`.

use crate::errors::build;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use ringwork_isa::Site;
use ringwork_runtime::{Cause, Error, Failure, TaskFailure};

/// The exception for an error: its text, and its facts as attributes.
pub(crate) fn raised(py: Python<'_>, error: &Error) -> PyErr {
    exception(py, error).unwrap_or_else(|other| other)
}

fn exception(py: Python<'_>, error: &Error) -> PyResult<PyErr> {
    let facts = PyDict::new(py);
    let class = class(error, &facts)?;
    build(py, class, &error.to_string(), &facts)
}

fn class(error: &Error, facts: &Bound<'_, PyDict>) -> PyResult<&'static str> {
    Ok(match error {
        Error::Config { field, problem } => {
            facts.set_item("field", field)?;
            facts.set_item("problem", problem)?;
            "ConfigError"
        }
        Error::Task(failure) => return of_task(failure, facts),
        Error::Host {
            worker,
            name,
            message,
        } => {
            facts.set_item("worker", worker)?;
            facts.set_item("name", name)?;
            facts.set_item("problem", message)?;
            "HostFailed"
        }
        Error::Overdue {
            worker,
            task,
            after_ms,
            waited_for,
            ..
        } => {
            facts.set_item("worker", worker)?;
            facts.set_item("task", task)?;
            facts.set_item("after_ms", after_ms)?;
            facts.set_item("waited_for", waited_for)?;
            "Overdue"
        }
        Error::Stalled {
            worker, left, chains, ..
        } => {
            facts.set_item("worker", worker)?;
            facts.set_item("left", left)?;
            facts.set_item("chains", chains)?;
            "Stalled"
        }
        Error::Gone { device, cause } => {
            facts.set_item("chip", device.0)?;
            facts.set_item("cause", cause)?;
            facts.set_item("kernel", facts.py().None())?;
            "ChipGone"
        }
        Error::NoSuchName {
            domain, kind, name, ..
        } => {
            facts.set_item("domain", domain)?;
            facts.set_item("kind", kind)?;
            facts.set_item("name", name)?;
            "NoSuchName"
        }
        Error::NotAMember { device, what } => {
            facts.set_item("chip", device.0)?;
            facts.set_item("what", what)?;
            "NotAMember"
        }
        Error::NoSuchDevice { device, have } => {
            facts.set_item("chip", device.0)?;
            facts.set_item("have", have)?;
            "NoSuchDevice"
        }
        Error::Released { what } => {
            facts.set_item("what", what)?;
            "Released"
        }
        Error::Length { what, have, asked } => {
            facts.set_item("what", what)?;
            facts.set_item("have", have)?;
            facts.set_item("asked", asked)?;
            "LengthMismatch"
        }
        Error::WrongDtype { .. } | Error::OutsideBlock { .. } => "LengthMismatch",
        Error::Interrupted => "Interrupted",
        Error::Closed => "NodeClosed",
        _ => "NodeError",
    })
}

fn of_task(failure: &TaskFailure, facts: &Bound<'_, PyDict>) -> PyResult<&'static str> {
    facts.set_item("worker", &failure.worker)?;
    facts.set_item("chip", failure.device.0)?;
    facts.set_item("kernel", &failure.kernel)?;
    facts.set_item("cause", failure.cause.to_string())?;
    facts.set_item("cancelled", &failure.cancelled)?;
    let others = failure.others.iter();
    let others: Vec<_> = others.map(|(chip, cause)| (chip.0, cause.to_string())).collect();
    facts.set_item("others", others)?;
    let missing: Vec<u32> = failure.missing.iter().map(|(chip, _)| chip.0).collect();
    facts.set_item("missing", missing)?;
    if matches!(failure.cause, Cause::Ended { .. }) {
        return Ok("ChipGone");
    }
    let site = site(&failure.cause);
    facts.set_item("file", site.map(|site| site.file.to_string()))?;
    facts.set_item("line", site.map(|site| site.line))?;
    Ok("TaskFailed")
}

/// The line of the kernel where a task failed.
fn site(cause: &Cause) -> Option<&Site> {
    match cause {
        Cause::Kernel(Failure::Panicked { site, .. }) => Some(site),
        Cause::Kernel(Failure::Returned(error)) => error.site(),
        _ => None,
    }
}
