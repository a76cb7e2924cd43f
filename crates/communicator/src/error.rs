//! What can go wrong in a communicator, as seen by one rank.

use ringwork_isa::Rank;
use std::fmt;
use std::time::Duration;

/// The result of a communicator's operation.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a communicator's operation failed.
///
/// Its `Debug` form is the message, so that `main` and `unwrap` print what a person reads.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// This process was not started as a rank.
    #[error(
        "this process is no rank: {missing}; start it with `ringwork launch -n 4 -- PROGRAM`, torchrun, mpirun or srun"
    )]
    NoEnvironment {
        /// The variables that are missing.
        missing: String,
    },
    /// An environment variable that makes no sense.
    #[error("the environment variable {name}=`{value}`: {problem}")]
    BadEnvironment {
        /// Which.
        name: String,
        /// Its value.
        value: String,
        /// What is wrong with it.
        problem: String,
    },
    /// Arguments that do not fit together.
    #[error("{call}: {problem}")]
    Arguments {
        /// The operation.
        call: &'static str,
        /// What is wrong, and what would be right.
        problem: String,
    },
    /// Elements that a window buffer does not have.
    #[error(
        "elements {start}..{end} are outside a window buffer of {len}; allocate a larger one, or copy fewer"
    )]
    OutsideBuffer {
        /// The first one asked for.
        start: usize,
        /// One past the last one asked for.
        end: usize,
        /// How many there are.
        len: usize,
    },
    /// Some ranks did not come.
    #[error("rank {me}: {call} got no further in {after_ms} ms; {}", describe(missing))]
    Deadline {
        /// The rank that waited.
        me: Rank,
        /// The call.
        call: String,
        /// How long.
        after_ms: u128,
        /// The ranks that did not arrive, and what each was last doing.
        missing: Vec<(Rank, String)>,
    },
    /// A rank died, in this call or before it.
    #[error("rank {rank} died ({cause}); rank {me} was in {call}; shrink, and go on without it")]
    Died {
        /// The rank that reports it.
        me: Rank,
        /// The dead rank; if several died, the first.
        rank: Rank,
        /// How it ended.
        cause: String,
        /// The call that failed.
        call: String,
    },
    /// The rank at the other end has dropped its communicator.
    #[error("rank {rank} has left: it dropped its communicator; rank {me} was in {call}")]
    Left {
        /// The rank that waited.
        me: Rank,
        /// The rank that left.
        rank: Rank,
        /// The call that failed.
        call: String,
    },
    /// A rank aborted the communicator, or gave up waiting.
    #[error("{reason} (rank {me} was in {call})")]
    Aborted {
        /// The rank that reports it.
        me: Rank,
        /// The rank that aborted, and why.
        reason: String,
        /// The call that failed.
        call: String,
    },
    /// The thread for non-blocking calls could not be started, or has ended.
    #[error("the thread for non-blocking calls: {0}")]
    Worker(#[source] std::io::Error),
    /// MPI, which joins ranks on several hosts.
    #[error("{0}")]
    Mpi(#[from] ringwork_mpi::Error),
    /// The launcher started ranks on other hosts that cannot meet.
    #[error("{launcher} started ranks on several hosts: {problem}")]
    OverHosts {
        /// Who started them.
        launcher: &'static str,
        /// What is wrong, and what to do.
        problem: String,
    },
    /// A collective failed: ranks disagree.
    #[error("{0}")]
    Collective(#[from] ringwork_isa::Error),
    /// The platform failed: no memory, nobody at the rendezvous.
    #[error("{0}")]
    Platform(#[from] ringwork_native::Error),
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn describe(missing: &[(Rank, String)]) -> String {
    let one = |(rank, doing): &(Rank, String)| format!("rank {rank} did not arrive (last call: {doing})");
    missing.iter().map(one).collect::<Vec<_>>().join("; ")
}

impl Error {
    /// The dead rank, if a death caused this error.
    #[must_use]
    pub fn dead_rank(&self) -> Option<Rank> {
        match self {
            Error::Died { rank, .. } => Some(*rank),
            _ => None,
        }
    }

    /// The worker ended without an answer: a bug of ours, or no memory.
    pub(crate) fn lost() -> Error {
        Error::Worker(std::io::Error::other("it ended without an answer"))
    }

    pub(crate) fn arguments(call: &'static str, problem: impl Into<String>) -> Error {
        Error::Arguments {
            call,
            problem: problem.into(),
        }
    }
}

/// A duration as a user writes it: `30`, `2.5` (seconds), `500ms`, `2m`.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn parse_duration(text: &str) -> std::result::Result<Duration, String> {
    let text = text.trim();
    let split = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let scale = match unit.trim() {
        "" | "s" => 1.0,
        "ms" => 1e-3,
        "us" => 1e-6,
        "m" | "min" => 60.0,
        other => return Err(format!("`{other}` is no unit of time; use s, ms, us or m")),
    };
    let seconds = number
        .parse::<f64>()
        .map_err(|_| format!("`{number}` is no number"))?
        * scale;
    Duration::try_from_secs_f64(seconds)
        .ok()
        .filter(|limit| !limit.is_zero())
        .ok_or_else(|| "it must be more than nothing".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::error::Error as _;

    #[test]
    fn the_debug_form_is_the_message_and_the_source_is_the_cause() {
        let cause = ringwork_isa::Error::failed("no such expert");
        let error = Error::Collective(cause.clone());
        assert_eq!(format!("{error:?}"), error.to_string());
        let source = error.source().and_then(|source| source.downcast_ref());
        assert_eq!(source, Some(&cause));
    }

    #[test]
    fn durations_are_read_as_people_write_them() {
        assert_eq!(parse_duration("30"), Ok(Duration::from_secs(30)));
        assert_eq!(parse_duration("2.5 s"), Ok(Duration::from_millis(2500)));
        assert_eq!(parse_duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_duration("2m"), Ok(Duration::from_secs(120)));
        for wrong in ["", "0", "-1", "5 parsecs", "1e400", "."] {
            assert!(parse_duration(wrong).is_err(), "{wrong}");
        }
    }
}
