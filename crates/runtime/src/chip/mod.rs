//! A chip's own graph: an orchestration over the cores of one chip.
//!
//! An orchestration is a plain function that submits kernels to the chip's cores. `#[orchestration]` makes a
//! task of it, like `#[kernel]` does of a kernel, and a host submits that task to a chip like any other. The same
//! source serves three ways, all on the same [engine](crate::engine):
//!
//! 1. *built on the chip, edges inferred* from what its tasks touch: the task as it is;
//! 2. *built on the chip, explicit edges*: [`explicit`] of the task; only [`after`](ChipOrchestrator::after) orders;
//! 3. *captured on the host*: [`Node::capture`](crate::Node::capture) runs the function once and ships what it
//!    submitted; [`Captured::replay`] runs that with other inputs, as often as one likes, without the function.
//!
//! # Invariants
//! - **CHIP-1 (same order).** Whichever way, the memory ends as if the tasks had run one by one in the order of
//!   submission; with explicit edges, if the edges say so.
//! - **CHIP-2 (own memory).** Intermediates lie in memory of the chip that no other chip and no host task sees.
//! - **CHIP-3 (ends).** A graph has ended, and no core works on it, when its task has.

mod bound;
mod capture;
mod cores;
mod entry;
mod stepped;

pub use capture::Captured;
pub(crate) use cores::CORE_NAMES;
pub(crate) use entry::is_orchestration;
pub use entry::{Build, ORCHESTRATIONS, OrchestrationEntry, explicit, run, step};
pub(crate) use stepped::{Built, CoreTask, Stepped};

use crate::engine::{AccessKind, Arena, BufferId, Capture, Kind, Outcome, Place, Ring, Spec, TaskId, View};
use crate::extent;
use capture::{How, Step, Submitted};
use cores::Cores;
use entry::EXPLICIT;
use ringwork_isa::{Arg, Element, Error, InOut, KernelId, Region, Result, Segment, Tag, Task};
use ringwork_native::registry::{self, KernelEntry};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Set in the numbers of segments that stand for an intermediate of a graph.
const INTERMEDIATE: u32 = 1 << 31;
/// Set, too, in those that stand for a parameter of a captured graph.
const PARAMETER: u32 = INTERMEDIATE | 1 << 30;
/// The index in either.
const INDEX: u32 = (1 << 30) - 1;

/// Bytes for intermediates on each chip.
const SCRATCH_BYTES: u64 = 16 << 20;

/// What a core of a chip is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum CoreKind {
    /// Matrix products.
    Matrix,
    /// Everything else.
    Vector,
}

impl CoreKind {
    fn kind(self) -> Kind {
        match self {
            CoreKind::Matrix => Kind(0),
            CoreKind::Vector => Kind(1),
        }
    }
}

/// A task of a chip's graph: a kernel and its arguments, which may name parameters and intermediates.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ChipTask {
    kernel: KernelId,
    args: Vec<Arg>,
}

/// A task of a chip's graph on its chip, where its kernel is known.
#[derive(Debug)]
pub(crate) struct Prepared {
    entry: &'static KernelEntry,
    args: Vec<Arg>,
}

impl TryFrom<ChipTask> for Prepared {
    type Error = Error;

    fn try_from(task: ChipTask) -> Result<Prepared> {
        let entry = registry::find(&task.kernel).map_err(|unknown| Error::failed(unknown.to_string()))?;
        Ok(Prepared {
            entry,
            args: task.args,
        })
    }
}

/// Whom an orchestration's tasks go to.
enum Sink<'c> {
    /// The chip's cores.
    Cores(Box<Cores<'c>>),
    /// A list, to be shipped.
    List(Vec<Step>, Box<Capture<()>>),
}

/// Submits tasks to the cores of a chip. See the [module](self).
pub struct ChipOrchestrator<'c> {
    sink: Sink<'c>,
    infer: bool,
    /// Intermediates of open scopes, by the segment that stands for each.
    intermediates: BTreeMap<Segment, BufferId>,
    scopes: Vec<Vec<Segment>>,
    next: u32,
}

impl std::fmt::Debug for ChipOrchestrator<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChipOrchestrator").finish_non_exhaustive()
    }
}

impl<'c> ChipOrchestrator<'c> {
    fn new(sink: Sink<'c>, infer: bool) -> ChipOrchestrator<'c> {
        ChipOrchestrator {
            sink,
            infer,
            intermediates: BTreeMap::new(),
            scopes: vec![Vec::new()],
            next: 0,
        }
    }

    /// Submits a kernel to a core of this kind.
    ///
    /// # Errors
    /// If an intermediate is used after its scope has ended, or a task before has failed.
    pub fn submit(&mut self, on: CoreKind, task: Task) -> Result<TaskId> {
        self.after([]).submit(on, task)
    }

    /// Begins a submission that comes after these tasks, whatever they touch.
    pub fn after(&mut self, tasks: impl IntoIterator<Item = TaskId>) -> ChipSubmission<'_, 'c> {
        ChipSubmission {
            after: tasks.into_iter().collect(),
            priority: 0,
            orch: self,
        }
    }

    /// Begins a submission of this priority: larger goes first among tasks that are ready; 0 unless said.
    pub fn priority(&mut self, priority: i8) -> ChipSubmission<'_, 'c> {
        ChipSubmission {
            priority,
            ..self.after([])
        }
    }

    /// Memory for `count` elements that pass between tasks. It lives until the innermost
    /// [`scope`](ChipOrchestrator::scope) (or the orchestration) has ended and the tasks that use it are done; it
    /// holds anything until a task has written it.
    ///
    /// # Errors
    /// If it can never fit.
    pub fn intermediate<T: Element>(&mut self, count: usize) -> Result<InOut<T>> {
        let bytes = (count as u64).saturating_mul(T::DTYPE.bytes() as u64);
        let buffer = loop {
            let made = match &mut self.sink {
                Sink::Cores(cores) => cores.engine().allocate(Arena(0), bytes),
                Sink::List(steps, capture) => {
                    steps.push(Step::Allocate { bytes });
                    capture.allocate(Arena(0), bytes)
                }
            };
            match made.map_err(refused)? {
                Outcome::Accepted(buffer) => break buffer,
                Outcome::Full { .. } => self.make_room()?,
            }
        };
        let segment = Segment(INTERMEDIATE | self.next & INDEX);
        self.next += 1;
        self.intermediates.insert(segment, buffer);
        if let Some(scope) = self.scopes.last_mut() {
            scope.push(segment);
        }
        let span = extent::private::<T>(segment, 0, count);
        Region::from_span(span).map_err(|dtype| Error::failed(format!("an intermediate of {dtype}")))
    }

    /// Runs a part of the orchestration whose intermediates are its own. Scopes nest to
    /// [`MAX_SCOPES`](crate::engine::MAX_SCOPES).
    ///
    /// # Errors
    /// What the part returns; or that scopes are nested too deeply.
    pub fn scope<R>(&mut self, part: impl FnOnce(&mut ChipOrchestrator<'c>) -> Result<R>) -> Result<R> {
        match &mut self.sink {
            Sink::Cores(cores) => cores.engine().begin_scope(),
            Sink::List(steps, capture) => {
                steps.push(Step::BeginScope);
                capture.begin_scope()
            }
        }
        .map_err(refused)?;
        self.scopes.push(Vec::new());
        let outcome = part(self);
        for segment in self.scopes.pop().unwrap_or_default() {
            self.intermediates.remove(&segment);
        }
        match &mut self.sink {
            Sink::Cores(cores) => cores.engine().end_scope(),
            Sink::List(steps, capture) => {
                steps.push(Step::EndScope);
                capture.end_scope()
            }
        }
        .map_err(refused)?;
        outcome
    }

    fn make_room(&mut self) -> Result<()> {
        match &mut self.sink {
            Sink::Cores(cores) => cores.advance(),
            Sink::List(..) => Err(Error::failed("a list that is full")),
        }
    }

    /// What a task touches, and its arguments as a core sees them, or as they are shipped.
    fn bind(&self, task: &Task, spec: &mut Spec) -> Result<Vec<Arg>> {
        let mut args = Vec::with_capacity(task.args.len());
        for (index, arg) in task.args.iter().enumerate() {
            let tag = task.params.get(index).map_or(Tag::Input, |param| param.tag);
            let stale = || {
                Error::failed(format!(
                    "argument {index} of `{}` is an intermediate whose scope has ended",
                    task.kernel
                ))
            };
            let Some((buffer, view)) =
                place_of(arg, |segment| self.intermediates.get(&segment).copied()).ok_or_else(stale)?
            else {
                args.push(*arg);
                continue;
            };
            spec.touch(buffer, view, access_kind(tag, buffer, self.infer));
            args.push(match (&self.sink, arg) {
                (Sink::Cores(cores), Arg::Memory(span)) => Arg::Memory(cores.in_scratch(*span, buffer)),
                _ => *arg,
            });
        }
        Ok(args)
    }
}

/// The buffer and the bytes that an argument is: `Some(None)` if it is no memory, `None` if it is stale.
#[expect(
    clippy::option_option,
    reason = "no memory, stale and found are three answers"
)]
fn place_of(
    arg: &Arg,
    intermediate: impl FnOnce(Segment) -> Option<BufferId>,
) -> Option<Option<(BufferId, View)>> {
    let (Arg::Memory(span) | Arg::Window(span)) = arg else {
        // Signals order nothing on one chip: whoever waits for them waits inside a kernel.
        return Some(None);
    };
    let number = span.segment.0;
    let buffer = if number & PARAMETER == PARAMETER && number < ringwork_native::SCRATCH.0 {
        BufferId::parameter(number & INDEX)
    } else if number & PARAMETER == INTERMEDIATE {
        intermediate(span.segment)?
    } else {
        BufferId::new(number.into())
    };
    let range = span.byte_range().unwrap_or(0..0);
    Some(Some((buffer, View::range(range))))
}

fn access_kind(tag: Tag, buffer: BufferId, infer: bool) -> AccessKind {
    match tag {
        _ if !infer => AccessKind::NoDependency,
        Tag::Input => AccessKind::Input,
        Tag::Output if buffer.is_allocated() => AccessKind::Output,
        Tag::Output => AccessKind::OutputExisting,
        Tag::InOut | Tag::Shared | Tag::Value => AccessKind::InOut,
    }
}

/// What the engine refused, and what to do about it: the rings of a chip are as large as they are.
fn refused(problem: crate::engine::Error) -> Error {
    let why = match problem {
        crate::engine::Error::RingStuck { fill } => {
            let cure = match fill.ring {
                Ring::Slots => "make it several graphs",
                Ring::Memory(_) => {
                    "use smaller intermediates, several graphs, or, where it is built on the chip, inner scopes"
                }
            };
            format!("{fill}; {cure}")
        }
        other => other.to_string(),
    };
    Error::failed(format!("the chip's graph: {why}"))
}

/// Conditions of a task of a chip's graph, to be ended by [`submit`](ChipSubmission::submit).
#[derive(Debug)]
#[must_use = "nothing is submitted until it says what"]
pub struct ChipSubmission<'o, 'c> {
    orch: &'o mut ChipOrchestrator<'c>,
    after: Vec<TaskId>,
    priority: i8,
}

impl ChipSubmission<'_, '_> {
    /// It comes after these, too.
    pub fn after(mut self, tasks: impl IntoIterator<Item = TaskId>) -> Self {
        self.after.extend(tasks);
        self
    }

    /// See [`ChipOrchestrator::priority`].
    pub fn priority(mut self, priority: i8) -> Self {
        self.priority = priority;
        self
    }

    /// See [`ChipOrchestrator::submit`].
    ///
    /// # Errors
    /// As there.
    pub fn submit(self, on: CoreKind, task: Task) -> Result<TaskId> {
        let ChipSubmission {
            orch,
            after,
            priority,
        } = self;
        let mut spec = Spec::new(Place::Any(on.kind())).priority(priority);
        spec.after = after;
        let args = orch.bind(&task, &mut spec)?;
        let shipped = ChipTask {
            kernel: task.kernel.clone(),
            args,
        };
        if let Sink::List(steps, capture) = &mut orch.sink {
            let submitted = capture.submit(&spec, ()).map_err(refused)?;
            let after = spec.after.iter().map(|task| task.sequence());
            steps.push(Step::Submit(Submitted {
                task: shipped,
                how: How {
                    on,
                    priority,
                    after: after.collect(),
                    tags: task.params.iter().map(|param| param.tag).collect(),
                },
            }));
            let task = submitted.accepted();
            return task.ok_or_else(|| Error::failed("a list that is full"));
        }
        let mut payload = Prepared::try_from(shipped)?;
        while let Sink::Cores(cores) = &mut orch.sink {
            cores.check()?;
            let submitted = cores.engine().submit(&spec, payload);
            match submitted.map_err(refused)? {
                Outcome::Accepted(task) => return Ok(task),
                Outcome::Full { payload: back, .. } => payload = back,
            }
            cores.advance()?;
        }
        Err(Error::failed("nobody takes the task"))
    }
}
