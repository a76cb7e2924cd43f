//! The communicator's errors as exceptions with fields; the classes are in `ringwork/errors.py`.

use pyo3::prelude::*;
use pyo3::types::PyDict;
use ringwork_communicator::Error;
use ringwork_isa::ErrorKind;

/// The exception for an error: its text, and its facts as attributes.
pub(crate) fn raised(py: Python<'_>, error: &Error) -> PyErr {
    exception(py, error).unwrap_or_else(|other| other)
}

fn exception(py: Python<'_>, error: &Error) -> PyResult<PyErr> {
    let facts = PyDict::new(py);
    let class = match error {
        Error::NoEnvironment { missing } => {
            facts.set_item("missing", missing)?;
            "NotLaunched"
        }
        Error::BadEnvironment { name, value, problem } => {
            facts.set_item("name", name)?;
            facts.set_item("value", value)?;
            facts.set_item("problem", problem)?;
            "BadEnvironment"
        }
        Error::Arguments { call, problem } => {
            facts.set_item("call", call)?;
            facts.set_item("problem", problem)?;
            "ArgumentError"
        }
        Error::Deadline {
            me,
            call,
            after_ms,
            missing,
        } => {
            facts.set_item("me", me.0)?;
            facts.set_item("call", call)?;
            facts.set_item("after_ms", after_ms)?;
            let missing: Vec<(u32, &str)> = missing.iter().map(|(rank, doing)| (rank.0, &**doing)).collect();
            facts.set_item(
                "missing",
                missing.iter().map(|(rank, _)| *rank).collect::<Vec<_>>(),
            )?;
            facts.set_item("last_calls", missing)?;
            "Deadline"
        }
        Error::Died {
            me,
            rank,
            cause,
            call,
        } => {
            facts.set_item("me", me.0)?;
            facts.set_item("rank", rank.0)?;
            facts.set_item("cause", cause)?;
            facts.set_item("call", call)?;
            "RankDied"
        }
        Error::Left { me, rank, call } => {
            facts.set_item("me", me.0)?;
            facts.set_item("rank", rank.0)?;
            facts.set_item("call", call)?;
            "RankLeft"
        }
        Error::Aborted { me, reason, call } => {
            facts.set_item("me", me.0)?;
            facts.set_item("reason", reason)?;
            facts.set_item("call", call)?;
            "Aborted"
        }
        Error::Collective(error) => match error.kind() {
            // A collective call sees a rank that left as one that called `leave`.
            ErrorKind::Mismatch {
                me,
                mine,
                peer,
                theirs,
            } if theirs.starts_with("leave") => {
                facts.set_item("me", me.0)?;
                facts.set_item("rank", peer.0)?;
                facts.set_item("call", mine)?;
                "RankLeft"
            }
            ErrorKind::Mismatch {
                me,
                mine,
                peer,
                theirs,
            } => {
                facts.set_item("me", me.0)?;
                facts.set_item("rank", peer.0)?;
                facts.set_item("call", mine)?;
                facts.set_item("their_call", theirs)?;
                "Disagreement"
            }
            _ => "CommError",
        },
        _ => "CommError",
    };
    build(py, class, &error.to_string(), &facts)
}

pub(crate) fn build(py: Python<'_>, class: &str, text: &str, facts: &Bound<'_, PyDict>) -> PyResult<PyErr> {
    let class = py.import("ringwork.errors")?.getattr(class)?;
    Ok(PyErr::from_value(class.call((text,), Some(facts))?))
}

/// An argument that does not make sense: a `ValueError`.
pub(crate) fn argument(py: Python<'_>, call: &str, problem: &str) -> PyErr {
    let make = || {
        let facts = PyDict::new(py);
        facts.set_item("call", call)?;
        facts.set_item("problem", problem)?;
        build(py, "ArgumentError", &format!("{call}: {problem}"), &facts)
    };
    make().unwrap_or_else(|other| other)
}

/// A communicator that cannot be used: closed, another process's, or in a call already.
pub(crate) fn unusable(py: Python<'_>, problem: &str) -> PyErr {
    build(py, "CommError", problem, &PyDict::new(py)).unwrap_or_else(|other| other)
}
