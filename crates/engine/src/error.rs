//! What the engine refuses, and what it reports of runs that went wrong.

use crate::ids::{Arena, BufferId, Executor, Kind, TaskId};
use crate::view::View;
use std::fmt;

/// Something of fixed capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ring {
    /// The tasks that may be known at once.
    Slots,
    /// The bytes for intermediate tensors.
    Memory(Arena),
}

impl Ring {
    /// What to raise when it is too small.
    fn knob(self) -> String {
        match self {
            Ring::Slots => "Config::slots".into(),
            Ring::Memory(arena) => format!("Config::arena_bytes[{}]", arena.0),
        }
    }
}

impl fmt::Display for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ring::Slots => f.write_str("task slots"),
            Ring::Memory(arena) => write!(f, "intermediate memory of {arena}"),
        }
    }
}

/// How full a ring is, and what was asked of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fill {
    /// Which ring.
    pub ring: Ring,
    /// What is taken: slots or bytes.
    pub used: u64,
    /// What of that is released only by ending scopes, not by finishing tasks.
    pub in_open_scopes: u64,
    /// What there is.
    pub capacity: u64,
    /// What was asked for.
    pub needed: u64,
}

impl fmt::Display for Fill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Fill {
            ring,
            used,
            in_open_scopes,
            capacity,
            needed,
        } = self;
        write!(f, "{ring}: {needed} needed, {used} of {capacity} used")?;
        if *in_open_scopes > 0 {
            write!(f, ", {in_open_scopes} of them by open scopes")?;
        }
        Ok(())
    }
}

/// What became of a submission that was not refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome<T, P = ()> {
    /// It is in.
    Accepted(T),
    /// A ring is full: complete something, then try again. Nothing has changed.
    Full {
        /// Which ring, and how full.
        fill: Fill,
        /// What was to be submitted.
        payload: P,
    },
}

impl<T, P> Outcome<T, P> {
    /// What was accepted, or `None` if a ring is full.
    pub fn accepted(self) -> Option<T> {
        match self {
            Outcome::Accepted(value) => Some(value),
            Outcome::Full { .. } => None,
        }
    }
}

/// Why the engine refused. A refused call has changed nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The configuration makes no sense.
    #[error("this engine cannot be built: {what}")]
    BadConfig {
        /// What is wrong with it.
        what: &'static str,
    },
    /// A ring can never hold what was asked for, whatever completes.
    #[error("{fill}; nothing in flight can release enough: raise {}{}", fill.ring.knob(), fill.cure())]
    RingStuck {
        /// Which ring, how full, what was needed.
        fill: Fill,
    },
    /// The run has failed already; it takes no more work.
    #[error("the run has failed{}; end it before submitting more", task.map(|t| format!(" at {t}")).unwrap_or_default())]
    RunFailed {
        /// The first task that failed, if it was a task.
        task: Option<TaskId>,
    },
    /// A view that reaches past the end of the address space.
    #[error("{rows} rows of {row_bytes} bytes from {start}, {pitch} apart, do not end below 2^64")]
    ViewTooLarge {
        /// First byte.
        start: u64,
        /// Rows.
        rows: u64,
        /// Bytes per row.
        row_bytes: u64,
        /// Bytes from row to row.
        pitch: u64,
    },
    /// A view that reaches past the end of an intermediate.
    #[error("{view} are outside {buffer} of {bytes} bytes")]
    OutOfBounds {
        /// The buffer.
        buffer: BufferId,
        /// The view.
        view: View,
        /// The buffer's size.
        bytes: u64,
    },
    /// An intermediate whose scope has ended, or that was never allocated here.
    #[error("{buffer} is not alive; use intermediates only inside the scope that allocated them")]
    NoSuchBuffer {
        /// The buffer.
        buffer: BufferId,
    },
    /// An `Output` into memory that the engine did not allocate.
    #[error("{buffer} was not allocated by the engine; write it as output into existing memory")]
    NotAllocated {
        /// The buffer.
        buffer: BufferId,
    },
    /// A parameter of a graph where a real buffer is needed, or the other way round.
    #[error("{buffer} cannot be used {}", if *.capturing { "while a graph is captured: use parameters and captured intermediates" } else { "outside the capture of a graph" })]
    WrongSort {
        /// The buffer.
        buffer: BufferId,
        /// Whether a graph was being captured.
        capturing: bool,
    },
    /// An arena that was not configured.
    #[error("there is no {arena}; add it to Config::arena_bytes")]
    NoSuchArena {
        /// The arena.
        arena: Arena,
    },
    /// An executor that was not configured, or that was lost.
    #[error("{executor} {}", if *.lost { "was lost; nothing can run there" } else { "does not exist; add it to Config::executors" })]
    NoSuchExecutor {
        /// The executor.
        executor: Executor,
        /// Whether it once existed.
        lost: bool,
    },
    /// A kind that no executor has.
    #[error("no executor of {kind} is left")]
    NoSuchKind {
        /// The kind.
        kind: Kind,
    },
    /// A group that cannot start together.
    #[error("a group needs at least one executor and each at most once; {what}")]
    BadGroup {
        /// What is wrong.
        what: String,
    },
    /// A task that this engine never had.
    #[error("{task} was never submitted here")]
    UnknownTask {
        /// The task.
        task: TaskId,
    },
    /// A task in the wrong state for what was asked.
    #[error("{task} is {is}; {wanted}")]
    WrongState {
        /// The task.
        task: TaskId,
        /// What it is.
        is: Status,
        /// What it should be.
        wanted: &'static str,
    },
    /// A report from an executor about a task it was not given.
    #[error("{executor} does not run {task}")]
    NotRunning {
        /// The task.
        task: TaskId,
        /// The executor.
        executor: Executor,
    },
    /// Scopes nested too deeply.
    #[error("scopes nest to {max}; end one first")]
    TooDeep {
        /// The most that may be open.
        max: usize,
    },
    /// A scope ended that was not begun.
    #[error("no scope is open")]
    NoScope,
    /// The end of a run that still has tasks.
    #[error("{live} tasks are left, {running} of them running; complete or cancel them first")]
    NotDone {
        /// Tasks left.
        live: u32,
        /// Running now.
        running: u32,
    },
    /// The wrong number of buffers for a graph's parameters.
    #[error("the graph has {wanted} parameters, {got} were bound")]
    WrongBindings {
        /// Bound.
        got: usize,
        /// Parameters.
        wanted: usize,
    },
    /// Two parameters bound to memory that they share, where one is written.
    #[error(
        "{a} and {b} are bound to overlapping memory and one is written; bind disjoint buffers, or capture again"
    )]
    Aliased {
        /// One parameter or fixed buffer.
        a: BufferId,
        /// The other.
        b: BufferId,
    },
}

impl Fill {
    fn cure(&self) -> &'static str {
        if self.in_open_scopes > 0 {
            ", or end scopes sooner"
        } else {
            ""
        }
    }
}

/// Where a task is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Status {
    /// Something must happen first.
    Waiting,
    /// It could be dispatched now.
    Ready,
    /// It was dispatched.
    Running,
    /// It has run; a signal must come before it counts as done.
    Deferred,
    /// It will not run: something it needs failed.
    Cancelled,
    /// It is done, or failed, or was cancelled, and is forgotten.
    Finished,
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Status::Waiting => "waiting",
            Status::Ready => "ready",
            Status::Running => "running",
            Status::Deferred => "waiting for a signal to be done",
            Status::Cancelled => "cancelled",
            Status::Finished => "finished",
        })
    }
}

/// The first thing that went wrong in a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure<E> {
    /// The task that failed; `None` if the run was cancelled as a whole.
    pub task: Option<TaskId>,
    /// Where it ran, if it did.
    pub executor: Option<Executor>,
    /// In the driver's words.
    pub error: E,
}

impl<E: fmt::Display> fmt::Display for Failure<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(task) = self.task {
            write!(f, "{task}")?;
            if let Some(executor) = self.executor {
                write!(f, " on {executor}")?;
            }
            f.write_str(": ")?;
        }
        write!(f, "{}", self.error)
    }
}

/// A task that will never run, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cancelled<P> {
    /// The task.
    pub task: TaskId,
    /// What it waited for that failed or was cancelled; `None` if it was cancelled by itself.
    pub because: Option<TaskId>,
    /// What was submitted; `None` for a task of a captured graph.
    pub payload: Option<P>,
}

/// What a run came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunReport<P, E> {
    /// Tasks that ran to their end.
    pub completed: u64,
    /// Tasks that failed.
    pub failed: u64,
    /// The first failure, if there was one.
    pub failure: Option<Failure<E>>,
    /// Tasks that never ran because of it, in the order they were cancelled.
    pub cancelled: Vec<Cancelled<P>>,
}
