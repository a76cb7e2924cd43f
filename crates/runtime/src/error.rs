//! What can go wrong in a worker, with the path to where it did.

use crate::backend::Failure;
use crate::timeline::Recent;
use ringwork_check::TaskFault;
use ringwork_isa::{Device, Dtype};
use std::fmt;
use std::time::Duration;

/// The result of an operation on a worker.
pub type Result<T> = std::result::Result<T, Error>;

/// Why an operation of a host program failed: on a worker, of a communicator, or of the instruction set.
///
/// Its `Debug` form is the message and what each chip did last, so that `main` and `unwrap` print what a person reads.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The configuration cannot be launched. Nothing was started.
    #[error("configuration: `{field}`: {problem}")]
    Config {
        /// Which field.
        field: String,
        /// What is wrong with it, and what would be right.
        problem: String,
    },
    /// The platform could not do something: bring up a chip, find memory.
    #[error("{0}")]
    Platform(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// A task failed.
    #[error(transparent)]
    Task(#[from] Box<TaskFailure>),
    /// Host code made a request that the instruction set refuses, such as a range outside its region.
    #[error("{0}")]
    Kernel(#[from] ringwork_isa::Error),
    /// A communicator's operation failed.
    #[cfg(feature = "collectives")]
    #[error("{0}")]
    Communicator(#[from] Box<ringwork_communicator::Error>),
    /// A machine's description has a mistake.
    #[cfg(feature = "sim")]
    #[error("{0}")]
    Machine(#[from] Box<ringwork_sim::yaml::ConfigError>),
    /// The platform checks for races and misused signals, and has found some in a run.
    #[error("{worker}: {}", listed(faults))]
    Faults {
        /// The worker's name.
        worker: String,
        /// What is wrong, each once for a pair of lines.
        faults: Vec<TaskFault>,
    },
    /// A host closure failed.
    #[error("{worker}, host closure `{name}`: {message}")]
    Host {
        /// The worker's name.
        worker: String,
        /// The closure's.
        name: String,
        /// The closure's own message.
        message: String,
    },
    /// A task waited for a signal that never came. The task, and the tasks that need it, did not run or do not count
    /// as done.
    #[error(
        "{worker}, task `{task}` waited {} for {after_ms} ms: {waited_for}; check who should notify it, or raise wait_limit{stopped}",
        if *.deferred { "to be done" } else { "to start" }
    )]
    Overdue {
        /// The worker's name.
        worker: String,
        /// The kernel's or the closure's.
        task: String,
        /// Whether it has run and was waiting for its `until` condition.
        deferred: bool,
        /// For how long.
        after_ms: u64,
        /// Such as `signal "full"[0] of rank 1 in window "tp" >= 3, it is 0`.
        waited_for: String,
        /// Chips that were stopped by a signal, and could not do their part.
        stopped: Stopped,
        /// What each chip did last.
        recent: Recent,
    },
    /// A deadlock: no task runs, none can start, and some are left. Nothing can change the signals that they wait
    /// for.
    #[error("{worker}: nothing runs, nothing is ready, {left} tasks are left: {}", chains.join("; "))]
    Stalled {
        /// The worker's name.
        worker: String,
        /// Tasks left.
        left: u32,
        /// What each task waits for, back to the cause.
        chains: Vec<String>,
        /// What each chip did last.
        recent: Recent,
    },
    /// The request is larger than the whole ring.
    #[error("{worker}: {fill}; nothing under way can release enough: raise NodeBuilder::{raise}{}",
        if fill.in_open_scopes > 0 { ", or end scopes sooner" } else { "" })]
    RingStuck {
        /// The worker's name.
        worker: String,
        /// Which ring, how full, what was needed.
        fill: ringwork_engine::Fill,
        /// What to raise.
        raise: &'static str,
    },
    /// A submission that the engine refused.
    #[error("{worker}: {problem}")]
    Refused {
        /// The worker's name.
        worker: String,
        /// Why.
        #[source]
        problem: ringwork_engine::Error,
    },
    /// Something failed in a worker below.
    #[error("{worker}, {}{cause}{}{stopped}", if cause.names_its_worker() { String::new() } else { format!("{child}: ") }, also(cancelled))]
    Below {
        /// The worker's name.
        worker: String,
        /// The child's.
        child: String,
        /// What happened there.
        #[source]
        cause: Box<Error>,
        /// Tasks of the worker that never ran because they needed the failed one.
        cancelled: Vec<String>,
        /// After a timeout: chips of other children that were stopped by a signal at that moment.
        stopped: Stopped,
        /// The recent entries of the chips of all children whose tasks failed.
        recent: Recent,
    },
    /// The other end of a port is closed for good.
    #[error("{worker}, the port to chip {device}: {why}; open another")]
    PortDead {
        /// The worker's name.
        worker: String,
        /// The chip that it leads to.
        device: Device,
        /// Why.
        why: String,
    },
    /// The kernel at the other end of a port did not answer in time. The port can still be used.
    #[error(
        "{worker}, the port to chip {device}: waited {after_ms} ms for {what}; the kernel was last seen in: {last_seen}; \
         receive what it has sent, or raise wait_limit{stopped}"
    )]
    PortSilent {
        /// The worker's name.
        worker: String,
        /// The chip that it leads to.
        device: Device,
        /// For how long.
        after_ms: u64,
        /// Such as `a response`.
        what: String,
        /// What the chip was last seen doing.
        last_seen: String,
        /// Chips that were stopped by a signal, and could not do their part.
        stopped: Stopped,
    },
    /// A handle whose memory was released.
    #[error("{what} was released; open it again before using it")]
    Released {
        /// What it was.
        what: String,
    },
    /// A chip that this worker does not have.
    #[error("there is no device {device} here; this worker has {have}")]
    NoSuchDevice {
        /// The device asked for.
        device: Device,
        /// The devices that it has.
        have: String,
    },
    /// A chip that has died.
    #[error("device {device} is gone: {cause}; launch a new node to use it again")]
    Gone {
        /// Which.
        device: Device,
        /// How it ended.
        cause: String,
    },
    /// A chip that is not a member of the domain, or does not own the memory, that its task uses.
    #[error("device {device} has no part in {what}; its task cannot use it")]
    NotAMember {
        /// The chip.
        device: Device,
        /// Which domain or tensor.
        what: String,
    },
    /// A name that a domain does not have.
    #[error("domain `{domain}` has no {kind} `{name}`; it has {have}")]
    NoSuchName {
        /// The domain.
        domain: String,
        /// Buffer, barrier or signals.
        kind: &'static str,
        /// The name asked for.
        name: String,
        /// Those there are.
        have: String,
    },
    /// Elements of another type than asked for.
    #[error("{what} holds {holds}, not {asked}")]
    WrongDtype {
        /// Which memory.
        what: String,
        /// What it holds.
        holds: Dtype,
        /// What was asked for.
        asked: Dtype,
    },
    /// The lengths differ, or a range is outside.
    #[error("{what} has {have} elements; {asked} were given or asked for")]
    Length {
        /// Which memory.
        what: String,
        /// Its elements.
        have: usize,
        /// What was asked for.
        asked: usize,
    },
    /// Rows or columns outside a block.
    #[error("{axis} {}..{} are outside the {len} of {what}", .range.start, .range.end)]
    OutsideBlock {
        /// Which memory.
        what: String,
        /// Rows or columns.
        axis: &'static str,
        /// Those asked for.
        range: std::ops::Range<usize>,
        /// How many there are.
        len: usize,
    },
    /// The run was interrupted from outside.
    #[error("interrupted")]
    Interrupted,
    /// The worker is closed.
    #[error("this worker is closed")]
    Closed,
}

/// Faults, one below the other.
fn listed(faults: &[TaskFault]) -> String {
    let texts: Vec<String> = faults.iter().map(ToString::to_string).collect();
    texts.join("\n")
}

/// The tasks that were lost with a failure, as a person reads it.
fn also(cancelled: &[String]) -> String {
    match cancelled {
        [] => String::new(),
        [only] => format!("; cancelled with it: {only}"),
        [first, rest @ ..] => format!("; cancelled with it: {first} and {} more", rest.len()),
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)?;
        match self.recent() {
            Some(recent) => write!(f, "\nwhat each chip did last:\n{recent}"),
            None => Ok(()),
        }
    }
}

#[cfg(feature = "collectives")]
impl From<ringwork_communicator::Error> for Error {
    fn from(error: ringwork_communicator::Error) -> Error {
        Error::Communicator(Box::new(error))
    }
}

#[cfg(feature = "sim")]
impl From<ringwork_sim::yaml::ConfigError> for Error {
    fn from(error: ringwork_sim::yaml::ConfigError) -> Error {
        Error::Machine(Box::new(error))
    }
}

impl Error {
    pub(crate) fn below(worker: &str, child: &str, cause: Error, cancelled: Vec<String>) -> Error {
        Error::Below {
            worker: worker.into(),
            child: child.into(),
            cause: Box::new(cause),
            cancelled,
            stopped: Stopped::default(),
            recent: Recent::default(),
        }
    }

    /// Whether a wait timed out.
    pub(crate) fn is_timeout(&self) -> bool {
        match self {
            Error::Overdue { .. } | Error::PortSilent { .. } => true,
            Error::Task(failure) => failure.cause.is_timeout(),
            Error::Below { cause, .. } => cause.is_timeout(),
            _ => false,
        }
    }

    /// Whether the run was interrupted, here or in a worker below.
    #[must_use]
    pub fn is_interrupted(&self) -> bool {
        match self {
            Error::Interrupted => true,
            Error::Below { cause, .. } => cause.is_interrupted(),
            _ => false,
        }
    }

    /// Whether this error only says that another task failed.
    pub(crate) fn is_echo(&self) -> bool {
        match self {
            Error::Task(failure) => failure.cause.is_echo(),
            Error::Below { cause, .. } => cause.is_echo(),
            _ => false,
        }
    }

    /// Whether this error of an orchestration caused the failure `ended` of its tasks.
    pub(crate) fn explains(&self, ended: &Error) -> bool {
        match (self, ended) {
            (Error::PortDead { .. }, _) => false,
            (Error::PortSilent { device, .. }, Error::Task(failure)) => {
                let stuck = matches!(failure.cause, Cause::Stuck { .. });
                ended.is_echo() || stuck && failure.device == *device
            }
            _ => ended.is_echo(),
        }
    }

    /// Whether its message begins with the name of the worker where it happened.
    fn names_its_worker(&self) -> bool {
        matches!(
            self,
            Error::Task(_)
                | Error::Faults { .. }
                | Error::Host { .. }
                | Error::Overdue { .. }
                | Error::Stalled { .. }
                | Error::RingStuck { .. }
                | Error::Refused { .. }
                | Error::PortDead { .. }
                | Error::PortSilent { .. }
                | Error::Below { .. }
        )
    }

    /// The recent entries of each chip before the error, if they were recorded: for a report that is longer than one
    /// line.
    #[must_use]
    pub fn recent(&self) -> Option<&Recent> {
        let recent = match self {
            Error::Task(failure) => &failure.recent,
            Error::Overdue { recent, .. } | Error::Stalled { recent, .. } => recent,
            Error::Below { cause, recent, .. } if recent.is_empty() => return cause.recent(),
            Error::Below { recent, .. } => recent,
            _ => return None,
        };
        (!recent.is_empty()).then_some(recent)
    }

    pub(crate) fn config(field: impl Into<String>, problem: impl Into<String>) -> Error {
        Error::Config {
            field: field.into(),
            problem: problem.into(),
        }
    }
}

/// Chips whose processes were stopped by a signal when a wait timed out, and the process ids. Written as the end of
/// an error; empty if there are none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stopped {
    /// The chips; those of a worker below with its name, such as `left, chip 1`.
    pub chips: Box<[(String, u32)]>,
}

impl Stopped {
    /// The same, seen from the worker above.
    pub(crate) fn below(self, child: &str) -> impl Iterator<Item = (String, u32)> + use<'_> {
        let named = move |(chip, pid)| (format!("{child}, {chip}"), pid);
        self.chips.into_iter().map(named)
    }
}

impl fmt::Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (chip, pid) in &self.chips {
            write!(f, "; {chip} is stopped, `kill -CONT {pid}` continues it")?;
        }
        Ok(())
    }
}

/// A failed task: where, how, and which other tasks were affected.
#[derive(Debug)]
pub struct TaskFailure {
    /// The worker that ran it.
    pub worker: String,
    /// The chip it ran on.
    pub device: Device,
    /// The kernel's name.
    pub kernel: String,
    /// How it failed.
    pub cause: Cause,
    /// After a timeout: the partners that it waited for, and what each was last seen doing.
    pub missing: Vec<(Device, String)>,
    /// After a timeout: the chips of the worker that were stopped by a signal at that moment.
    pub stopped: Stopped,
    /// The other tasks of the run that failed because of it, or beside it.
    pub others: Vec<(Device, Cause)>,
    /// The tasks that never ran because they needed what failed, in the order of submission.
    pub cancelled: Vec<String>,
    /// What each chip of the worker did last.
    pub recent: Recent,
}

/// How a task failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cause {
    /// The kernel returned an error, panicked, or is unknown; the chip is alive.
    Kernel(Failure),
    /// The chip's process ended during the task.
    Ended {
        /// How.
        how: String,
        /// What it was last seen doing.
        last_seen: String,
    },
    /// It made no progress and was ended.
    Stuck {
        /// For how long.
        after_ms: u64,
        /// What it was last seen doing.
        last_seen: String,
    },
    /// It had not started.
    NotBegun {
        /// Why.
        why: String,
    },
}

impl Cause {
    /// Whether a wait of the kernel timed out.
    pub(crate) fn is_timeout(&self) -> bool {
        let deadline =
            |error: &ringwork_isa::Error| matches!(error.kind(), ringwork_isa::ErrorKind::Deadline { .. });
        matches!(self, Cause::Kernel(Failure::Returned(error)) if deadline(error))
    }

    /// Whether this failure only reports that another chip failed.
    pub(crate) fn is_echo(&self) -> bool {
        use ringwork_isa::ErrorKind::{Aborted, PeerDied};
        match self {
            Cause::Kernel(Failure::Returned(error)) => {
                matches!(error.kind(), PeerDied { .. } | Aborted { .. })
            }
            Cause::Kernel(Failure::NotBegun { .. }) | Cause::NotBegun { .. } => true,
            _ => false,
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cause::Kernel(failure) => failure.fmt(f),
            Cause::Ended { how, last_seen } => write!(f, "{how}; it was last seen in: {last_seen}"),
            Cause::Stuck { after_ms, last_seen } => {
                write!(
                    f,
                    "no progress for {after_ms} ms, so it was ended; it was last seen in: {last_seen}"
                )
            }
            Cause::NotBegun { why } => write!(f, "not begun: {why}"),
        }
    }
}

impl fmt::Display for TaskFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}, chip {}, kernel `{}`: {}",
            self.worker, self.device, self.kernel, self.cause
        )?;
        for (device, doing) in &self.missing {
            write!(f, "; chip {device} had not finished (last seen in: {doing})")?;
        }
        write!(f, "{}{}", also(&self.cancelled), self.stopped)
    }
}

impl TaskFailure {
    /// If partners had to be killed, they are the root cause: all other waits were for them.
    pub(crate) fn blame_the_stuck(&mut self) {
        let TaskFailure { missing, others, .. } = self;
        let stuck = |device: Device| {
            let mut causes = others.iter().filter(|(other, _)| *other == device);
            causes.any(|(_, cause)| matches!(cause, Cause::Stuck { .. }))
        };
        if missing.iter().any(|(device, _)| stuck(*device)) {
            missing.retain(|(device, _)| stuck(*device));
        }
    }
}

impl std::error::Error for TaskFailure {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.cause {
            Cause::Kernel(Failure::Returned(error)) => Some(error),
            Cause::Kernel(failure) => Some(failure),
            _ => None,
        }
    }
}

/// Whole milliseconds, for errors.
pub(crate) fn millis(elapsed: Duration) -> u64 {
    u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timeline::RecentChip;
    use std::error::Error as _;

    fn failure() -> (Error, ringwork_isa::Error) {
        let said = ringwork_isa::Error::failed("no such expert");
        let recent = RecentChip {
            path: String::new(),
            device: Device(1),
            lines: vec!["task route, 3 us, ended 12 us before".into()],
        };
        let failure = TaskFailure {
            worker: "node".into(),
            device: Device(1),
            kernel: "route".into(),
            cause: Cause::Kernel(Failure::Returned(said.clone())),
            missing: Vec::new(),
            stopped: Stopped::default(),
            others: Vec::new(),
            cancelled: Vec::new(),
            recent: Recent {
                chips: [recent].into(),
            },
        };
        (Error::Task(Box::new(failure)), said)
    }

    #[test]
    fn the_debug_form_is_the_message_and_what_the_chips_did() {
        let (error, _) = failure();
        let text = format!("{error:?}");
        assert!(text.starts_with(&error.to_string()), "{text}");
        assert!(
            text.ends_with("did last:\nchip 1\n  task route, 3 us, ended 12 us before"),
            "{text}"
        );
        assert_eq!(format!("{:?}", Error::Closed), "this worker is closed");
    }

    #[test]
    fn the_source_of_a_failed_task_is_what_its_kernel_returned_at_any_depth() {
        let (error, said) = failure();
        let outer = Error::below("pod", "left", error, Vec::new());
        let mut source = outer.source();
        while let Some(error) = source {
            if error.downcast_ref() == Some(&said) {
                return;
            }
            source = error.source();
        }
        panic!("`{said}` is nowhere among the sources of `{outer}`");
    }

    #[cfg(feature = "collectives")]
    #[test]
    fn a_communicators_error_becomes_a_host_programs_with_the_same_words() {
        let other = || ringwork_communicator::Error::from(ringwork_isa::Error::failed("ranks differ"));
        let error = Error::from(other());
        assert!(error.to_string().ends_with("ranks differ"));
        assert!(
            error
                .source()
                .is_some_and(|source| source.to_string() == error.to_string())
        );
    }
}
