//! Small names: tasks, executors and their kinds, buffers, signals, arenas.

use std::fmt;

/// No index: the end of a list, or nothing there.
pub(crate) const NONE: u32 = u32::MAX;

/// A task that was accepted. It stays valid for ever: once the task is done, it says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TaskId {
    /// Its number among the tasks of this engine, from 1.
    pub(crate) sequence: u64,
    /// Where it is kept.
    pub(crate) slot: u32,
}

impl TaskId {
    /// Its number among the tasks of this engine, in the order of submission, from 1.
    #[must_use]
    pub const fn sequence(self) -> u64 {
        self.sequence
    }
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "task {}", self.sequence)
    }
}

/// The task alone, so that one task and several can be said in the same way.
impl IntoIterator for TaskId {
    type Item = TaskId;
    type IntoIter = std::iter::Once<TaskId>;

    fn into_iter(self) -> Self::IntoIter {
        std::iter::once(self)
    }
}

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($of:ty), $word:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub $of);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($word, " {}"), self.0)
            }
        }
    };
}
number! {
    /// What runs a task: a core, a chip, a node, a host thread. Its place in the configuration.
    Executor(u32), "executor"
}
number! {
    /// A kind of executor, such as matrix core or vector core. The numbers are the driver's own.
    Kind(u16), "kind"
}
number! {
    /// One of the memories that intermediate tensors are allocated in. Its place in the configuration.
    Arena(u32), "arena"
}
number! {
    /// A signal, by whatever number the driver knows it.
    SignalId(u64), "signal"
}

/// Memory that tasks touch.
///
/// Numbers below 2^62 are the driver's to give. Two buffers are different memory: regions of one
/// mapping that may overlap must be views of one buffer.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BufferId(u64);

/// Set in buffers that the engine allocates.
const ALLOCATED: u64 = 1 << 63;
/// Set in buffers that stand for something else while a graph is captured.
const SYMBOLIC: u64 = 1 << 62;

impl BufferId {
    /// A buffer of the driver's.
    ///
    /// # Panics
    /// If `number` is 2^62 or more: those are taken.
    #[must_use]
    pub const fn new(number: u64) -> BufferId {
        assert!(number < SYMBOLIC, "buffer numbers are below 2^62");
        BufferId(number)
    }

    /// Parameter `index` of a graph that is being captured; a replay binds it to a buffer.
    #[must_use]
    pub const fn parameter(index: u32) -> BufferId {
        BufferId(SYMBOLIC | index as u64)
    }

    pub(crate) const fn intermediate(generation: u32, index: u32) -> BufferId {
        BufferId(ALLOCATED | ((generation & 0x3fff_ffff) as u64) << 32 | index as u64)
    }

    /// Intermediate `index` of a graph that is being captured, counted in the order of allocation.
    #[must_use]
    pub const fn captured(index: u32) -> BufferId {
        BufferId(ALLOCATED | SYMBOLIC | index as u64)
    }

    /// Whether the engine allocates it.
    #[must_use]
    pub const fn is_allocated(self) -> bool {
        self.0 & ALLOCATED != 0
    }

    /// What sort of buffer it is.
    pub(crate) const fn sort(self) -> Sort {
        #[allow(clippy::cast_possible_truncation, reason = "the low half is the index")]
        let index = self.0 as u32;
        match (self.0 & ALLOCATED != 0, self.0 & SYMBOLIC != 0) {
            (false, false) => Sort::Plain,
            (false, true) => Sort::Parameter(index),
            (true, false) => Sort::Intermediate(index),
            (true, true) => Sort::Captured(index),
        }
    }

    pub(crate) const fn bits(self) -> u64 {
        self.0
    }
}

/// What sort of buffer a [`BufferId`] names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sort {
    /// The driver's.
    Plain,
    /// Allocated by the engine; its index among the intermediates.
    Intermediate(u32),
    /// A parameter of a graph.
    Parameter(u32),
    /// An intermediate of a graph.
    Captured(u32),
}

impl fmt::Display for BufferId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.sort() {
            Sort::Plain => write!(f, "buffer {}", self.0),
            Sort::Intermediate(index) => write!(f, "intermediate {index}"),
            Sort::Parameter(index) => write!(f, "parameter {index}"),
            Sort::Captured(index) => write!(f, "captured intermediate {index}"),
        }
    }
}

impl fmt::Debug for BufferId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
