//! The orchestrator of a chip: submits tasks to its cores.

use super::capture::{How, Step, Submitted};
use super::core_threads::Cores;
use super::{ChipTask, CoreKind, INDEX, INTERMEDIATE, Prepared, Touched, access_kind, refused, touched};
use crate::handle_ops;
use ringwork_engine::{Arena, BufferId, Capture, Outcome, Place, Spec, TaskId};
use ringwork_isa::{Arg, Element, Error, InOut, Region, Result, Segment, Tag, Task};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};

/// Where an orchestration's tasks go.
pub(super) enum Sink<'c> {
    /// To the chip's cores.
    Cores(Box<Cores<'c>>),
    /// Into a list, to be shipped.
    List(Vec<Step>, Box<Capture<()>>),
}

/// A graph while its orchestration runs.
struct Building<'c> {
    sink: Sink<'c>,
    infer: bool,
    /// Intermediates of open scopes, by the segment that stands for each.
    intermediates: BTreeMap<Segment, BufferId>,
    scopes: Vec<Vec<Segment>>,
    next: u32,
}

/// Runs an orchestration into a sink, and returns the sink with what the orchestration returned. With `infer`,
/// edges follow from what the tasks touch.
pub(super) fn build<'c>(
    sink: Sink<'c>,
    infer: bool,
    orchestration: impl FnOnce(&mut ChipOrchestrator<'c>) -> Result<()>,
) -> Result<(Sink<'c>, Result<()>)> {
    let graph = Rc::new(RefCell::new(Building {
        sink,
        infer,
        intermediates: BTreeMap::new(),
        scopes: vec![Vec::new()],
        next: 0,
    }));
    let built = orchestration(&mut ChipOrchestrator {
        graph: Rc::downgrade(&graph),
        after: Vec::new(),
        priority: 0,
    });
    let graph = Rc::into_inner(graph).ok_or_else(over)?;
    Ok((graph.into_inner().sink, built))
}

fn over() -> Error {
    Error::failed("the orchestration of this graph has returned")
}

/// Submits tasks to the cores of a chip. See the [module](super).
///
/// The vocabulary is that of [`Orchestrator`](crate::Orchestrator): `after` and `priority` return an orchestrator
/// whose tasks have that condition too.
#[must_use = "nothing is submitted until `submit` is called"]
pub struct ChipOrchestrator<'c> {
    /// `None` once the orchestration has returned.
    graph: Weak<RefCell<Building<'c>>>,
    after: Vec<TaskId>,
    priority: i8,
}

impl std::fmt::Debug for ChipOrchestrator<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChipOrchestrator").finish_non_exhaustive()
    }
}

impl<'c> ChipOrchestrator<'c> {
    /// Its tasks come after this task, or these, whatever they touch.
    pub fn after(&self, tasks: impl IntoIterator<Item = TaskId>) -> ChipOrchestrator<'c> {
        ChipOrchestrator {
            graph: self.graph.clone(),
            after: self.after.iter().copied().chain(tasks).collect(),
            priority: self.priority,
        }
    }

    /// Its tasks have this priority: larger goes first among tasks that are ready; 0 unless said.
    pub fn priority(&self, priority: i8) -> ChipOrchestrator<'c> {
        ChipOrchestrator {
            priority,
            ..self.after([])
        }
    }

    /// Submits a kernel to a core of this kind.
    ///
    /// # Errors
    /// If an intermediate is used after its scope has ended, or an earlier task has failed.
    pub fn submit(&self, on: CoreKind, task: Task) -> Result<TaskId> {
        let mut spec = Spec::new(Place::Any(on.kind())).priority(self.priority);
        spec.after.extend_from_slice(&self.after);
        let graph = self.graph.upgrade().ok_or_else(over)?;
        graph.borrow_mut().submit(on, spec, task)
    }

    /// Memory for `count` elements that pass between tasks. It lives until the innermost
    /// [`scope`](ChipOrchestrator::scope) (or the orchestration) has ended and the tasks that use it are done. Its
    /// initial values are unspecified.
    ///
    /// # Errors
    /// If it can never fit.
    pub fn intermediate<T: Element>(&self, count: usize) -> Result<InOut<T>> {
        let bytes = (count as u64).saturating_mul(T::DTYPE.bytes() as u64);
        let graph = self.graph.upgrade().ok_or_else(over)?;
        let segment = graph.borrow_mut().allocate(bytes)?;
        let span = handle_ops::private(segment, 0, T::DTYPE, count);
        Region::from_span(span).map_err(|dtype| Error::failed(format!("an intermediate of {dtype}")))
    }

    /// Runs a part of the orchestration with its own intermediates. Scopes nest to
    /// [`MAX_SCOPES`](ringwork_engine::MAX_SCOPES).
    ///
    /// # Errors
    /// What the part returns; or that scopes are nested too deeply.
    pub fn scope<R>(&mut self, part: impl FnOnce(&mut ChipOrchestrator<'c>) -> Result<R>) -> Result<R> {
        let graph = self.graph.upgrade().ok_or_else(over)?;
        graph.borrow_mut().begin_scope()?;
        let outcome = part(self);
        graph.borrow_mut().end_scope()?;
        outcome
    }
}

impl Building<'_> {
    fn submit(&mut self, on: CoreKind, mut spec: Spec, task: Task) -> Result<TaskId> {
        let args = self.bind(&task, &mut spec)?;
        let kernel = task.kernel;
        let shipped = ChipTask { kernel, args };
        match &mut self.sink {
            Sink::List(steps, capture) => {
                let submitted = capture.submit(&spec, ()).map_err(refused)?;
                steps.push(Step::Submit(Submitted {
                    task: shipped,
                    how: How {
                        on,
                        priority: spec.priority,
                        after: spec.after.iter().map(|task| task.sequence()).collect(),
                        tags: task.params.iter().map(|param| param.tag).collect(),
                    },
                }));
                submitted
                    .accepted()
                    .ok_or_else(|| Error::failed("a list that is full"))
            }
            Sink::Cores(cores) => {
                let mut payload = Prepared::try_from(shipped)?;
                loop {
                    cores.check()?;
                    match cores.engine().submit(&spec, payload).map_err(refused)? {
                        Outcome::Accepted(task) => return Ok(task),
                        Outcome::Full { payload: back, .. } => payload = back,
                    }
                    cores.advance()?;
                }
            }
        }
    }

    /// An intermediate of the innermost scope: the segment that stands for it.
    fn allocate(&mut self, bytes: u64) -> Result<Segment> {
        let buffer = loop {
            let made = match &mut self.sink {
                Sink::Cores(cores) => cores.engine().allocate(Arena(0), bytes),
                Sink::List(steps, capture) => {
                    steps.push(Step::Allocate { bytes });
                    capture.allocate(Arena(0), bytes)
                }
            };
            match (made.map_err(refused)?, &mut self.sink) {
                (Outcome::Accepted(buffer), _) => break buffer,
                (Outcome::Full { .. }, Sink::Cores(cores)) => cores.advance()?,
                (Outcome::Full { .. }, Sink::List(..)) => return Err(Error::failed("a list that is full")),
            }
        };
        let segment = Segment(INTERMEDIATE | self.next & INDEX);
        self.next += 1;
        self.intermediates.insert(segment, buffer);
        if let Some(scope) = self.scopes.last_mut() {
            scope.push(segment);
        }
        Ok(segment)
    }

    fn begin_scope(&mut self) -> Result<()> {
        match &mut self.sink {
            Sink::Cores(cores) => cores.engine().begin_scope(),
            Sink::List(steps, capture) => {
                steps.push(Step::BeginScope);
                capture.begin_scope()
            }
        }
        .map_err(refused)?;
        self.scopes.push(Vec::new());
        Ok(())
    }

    fn end_scope(&mut self) -> Result<()> {
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
        .map_err(refused)
    }

    /// Adds the memory that a task touches to `spec`; returns its arguments as a core sees them, or in the shipped
    /// form.
    fn bind(&self, task: &Task, spec: &mut Spec) -> Result<Vec<Arg>> {
        let mut args = Vec::with_capacity(task.args.len());
        for (index, arg) in task.args.iter().enumerate() {
            let tag = task.params.get(index).map_or(Tag::Input, |param| param.tag);
            let mut bound = *arg;
            match touched(arg, |segment| self.intermediates.get(&segment).copied()) {
                Touched::Nothing => {}
                Touched::Stale => {
                    let kernel = &task.kernel;
                    let what =
                        format!("argument {index} of `{kernel}` is an intermediate whose scope has ended");
                    return Err(Error::failed(what));
                }
                Touched::Bytes(buffer, view) => {
                    spec.touch(buffer, view, access_kind(tag, buffer, self.infer));
                    if let (Sink::Cores(cores), Some(span)) = (&self.sink, bound.own_memory_mut()) {
                        *span = cores.in_scratch(*span, buffer);
                    }
                }
            }
            args.push(bound);
        }
        Ok(args)
    }
}
