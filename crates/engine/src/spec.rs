//! What is submitted: the memory a task touches, what it waits for, and where it may run.

use crate::ids::{Arena, BufferId, Executor, Kind, SignalId, TaskId};
use crate::view::View;
use ringwork_isa::Compare;
use std::fmt;

/// What a task does with a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AccessKind {
    /// Reads it.
    Input,
    /// Writes an intermediate tensor that the engine allocated.
    Output,
    /// Writes memory that exists already; what was there does not matter.
    OutputExisting,
    /// Reads and writes it.
    InOut,
    /// Touches it in a way that orders nothing. An intermediate still lives until the task is done.
    NoDependency,
}

impl AccessKind {
    /// Whether it needs what earlier tasks wrote.
    #[must_use]
    pub const fn reads(self) -> bool {
        matches!(self, AccessKind::Input | AccessKind::InOut)
    }

    /// Whether later tasks may need what it writes.
    #[must_use]
    pub const fn writes(self) -> bool {
        matches!(
            self,
            AccessKind::Output | AccessKind::OutputExisting | AccessKind::InOut
        )
    }
}

/// One piece of memory that a task touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Which memory.
    pub buffer: BufferId,
    /// Which bytes of it.
    pub view: View,
    /// What is done with them.
    pub kind: AccessKind,
}

/// Accesses of one task in the order they must be entered in an access index: reads, in-outs, then writes, so
/// that a write does not hide from a read of the same task whose data it needs.
pub(crate) fn reads_first(accesses: &[Access]) -> impl Iterator<Item = Access> + '_ {
    let pass = |kind: AccessKind| u8::from(kind.writes()) + u8::from(kind.writes() && !kind.reads());
    (0..3).flat_map(move |now| {
        accesses
            .iter()
            .copied()
            .filter(move |access| pass(access.kind) == now)
    })
}

/// A comparison that must come to hold.
///
/// It is a latch: once a value was reported for which it holds, it stays satisfied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Condition {
    /// The signal.
    pub signal: SignalId,
    /// How its value is compared.
    pub compare: Compare,
    /// What it is compared with.
    pub operand: i32,
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.signal, self.compare, self.operand)
    }
}

/// Where a task may run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// On this executor.
    On(Executor),
    /// On any executor of this kind.
    Any(Kind),
    /// On all of these at once, or not at all.
    Group(Vec<Executor>),
}

/// A task to submit, without its payload. Reusable: [`clear`](Spec::clear) keeps its allocations.
///
/// ```
/// use ringwork_engine::{BufferId, Executor, Kind, Place, Spec, View};
/// let (a, b) = (BufferId::new(1), BufferId::new(2));
/// let spec = Spec::new(Place::Any(Kind(0))).input(a, View::range(0..64)).output_existing(b, View::range(0..64));
/// assert_eq!(spec.accesses.len(), 2);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// Where it may run.
    pub place: Place,
    /// Larger goes first among tasks that are ready.
    pub priority: i8,
    /// The memory it touches.
    pub accesses: Vec<Access>,
    /// Tasks that must be done before it, whatever they touch.
    pub after: Vec<TaskId>,
    /// What must hold before it is dispatched.
    pub when: Vec<Condition>,
    /// What must hold, after it has run, before it counts as done.
    pub until: Vec<Condition>,
}

impl Spec {
    /// A task that touches nothing and waits for nothing.
    #[must_use]
    pub const fn new(place: Place) -> Spec {
        Spec {
            place,
            priority: 0,
            accesses: Vec::new(),
            after: Vec::new(),
            when: Vec::new(),
            until: Vec::new(),
        }
    }

    /// Forgets everything but the place.
    pub fn clear(&mut self) {
        self.priority = 0;
        self.accesses.clear();
        self.after.clear();
        self.when.clear();
        self.until.clear();
    }

    /// Adds an access.
    pub fn touch(&mut self, buffer: BufferId, view: View, kind: AccessKind) {
        self.accesses.push(Access { buffer, view, kind });
    }

    /// It reads this.
    #[must_use]
    pub fn input(mut self, buffer: BufferId, view: View) -> Spec {
        self.touch(buffer, view, AccessKind::Input);
        self
    }

    /// It writes this, which the engine allocated.
    #[must_use]
    pub fn output(mut self, buffer: BufferId, view: View) -> Spec {
        self.touch(buffer, view, AccessKind::Output);
        self
    }

    /// It writes this, whatever was there.
    #[must_use]
    pub fn output_existing(mut self, buffer: BufferId, view: View) -> Spec {
        self.touch(buffer, view, AccessKind::OutputExisting);
        self
    }

    /// It reads and writes this.
    #[must_use]
    pub fn in_out(mut self, buffer: BufferId, view: View) -> Spec {
        self.touch(buffer, view, AccessKind::InOut);
        self
    }

    /// It comes after `task`.
    #[must_use]
    pub fn after(mut self, task: TaskId) -> Spec {
        self.after.push(task);
        self
    }

    /// It is dispatched only once `signal` compares so.
    #[must_use]
    pub fn when(mut self, signal: SignalId, compare: Compare, operand: i32) -> Spec {
        self.when.push(Condition {
            signal,
            compare,
            operand,
        });
        self
    }

    /// It is done only once it has run and `signal` compares so.
    #[must_use]
    pub fn until(mut self, signal: SignalId, compare: Compare, operand: i32) -> Spec {
        self.until.push(Condition {
            signal,
            compare,
            operand,
        });
        self
    }

    /// Larger goes first among tasks that are ready. Strict: a stream of important tasks starves others.
    #[must_use]
    pub fn priority(mut self, priority: i8) -> Spec {
        self.priority = priority;
        self
    }
}

/// How large an engine is, and which executors it has. Nothing grows past this.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Tasks that may be known at once, at least 1 and below 2^30.
    pub slots: u32,
    /// Bytes of each arena for intermediate tensors.
    pub arena_bytes: Vec<u64>,
    /// The executors: the kind of each, and how many tasks it may be given at once.
    pub executors: Vec<(Kind, u32)>,
}

impl Config {
    /// 4,096 slots, no arena, no executor.
    #[must_use]
    pub const fn new() -> Config {
        Config {
            slots: 4096,
            arena_bytes: Vec::new(),
            executors: Vec::new(),
        }
    }

    /// Room for this many tasks at once.
    #[must_use]
    pub fn slots(mut self, slots: u32) -> Config {
        self.slots = slots;
        self
    }

    /// One more arena.
    #[must_use]
    pub fn arena(mut self, bytes: u64) -> Config {
        self.arena_bytes.push(bytes);
        self
    }

    /// `count` more executors of `kind`, each given one task at a time.
    #[must_use]
    pub fn executors(self, kind: Kind, count: u32) -> Config {
        self.executors_of_depth(kind, count, 1)
    }

    /// `count` more executors of `kind`, each given up to `depth` tasks at a time.
    #[must_use]
    pub fn executors_of_depth(mut self, kind: Kind, count: u32, depth: u32) -> Config {
        self.executors.extend((0..count).map(|_| (kind, depth)));
        self
    }
}

impl Default for Config {
    fn default() -> Config {
        Config::new()
    }
}

/// Where an intermediate tensor lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// In which memory.
    pub arena: Arena,
    /// Its first byte there.
    pub offset: u64,
    /// Its bytes.
    pub bytes: u64,
}
