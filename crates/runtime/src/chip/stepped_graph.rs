//! A chip's graph on a platform that steps its cores, such as the simulator and the checker.
//!
//! The orchestration runs once, in no virtual time, and leaves a list of its steps. An engine like that of a real
//! chip, with the same slots and memory, receives the list. When the engine is full, the remaining steps wait until
//! tasks have ended, as the orchestration itself would. A captured graph is passed as a whole, as on a real chip.

use super::capture::{CachedGraph, Step, Submitted, decode, replay, work_out};
use super::driver::{ChipEngine, Driver};
use super::orchestration_registry::EXPLICIT;
use super::orchestrator::{self, Sink};
use super::replay_arguments::Scratch;
use super::{INDEX, INTERMEDIATE, PARAMETER, Prepared, SCRATCH_BYTES, orchestration_registry, refused};
use ringwork_engine::{Arena, BufferId, Dispatch, Outcome, Spec, TaskId};
use ringwork_isa::{Arg, Error, KernelId, Result, Segment, Span};
use ringwork_registry::{self as registry, KernelEntry};
use std::collections::VecDeque;

/// A graph that was built and has not begun.
pub(crate) struct Built {
    source: Source,
    arguments: Vec<Arg>,
}

/// Where the tasks come from.
enum Source {
    /// A captured graph, passed to the engine as a whole.
    Captured(CachedGraph),
    /// The steps of an orchestration that did not fit the engine yet.
    Listed(List),
}

/// See [`Source::Listed`].
struct List {
    steps: VecDeque<Step>,
    infer: bool,
    /// The step for which the engine has no room yet.
    refused: Option<(Spec, Prepared)>,
    /// Why the orchestration could not go on, if the engine refused a step for good.
    error: Option<Error>,
    /// Tasks and intermediates so far, by number.
    tasks: Vec<TaskId>,
    intermediates: Vec<BufferId>,
    /// Whether a step had to wait for room.
    has_waited: bool,
}

/// A running graph.
pub(crate) struct SteppedGraph {
    driver: Driver,
    source: Source,
    scratch: Scratch,
}

/// A task of a graph for one of the chip's cores.
pub(crate) struct CoreTask {
    pub(crate) dispatch: Dispatch,
    /// The number of the task whose end made it ready.
    pub(crate) after: Option<u64>,
    pub(crate) entry: &'static KernelEntry,
    pub(crate) args: Vec<Arg>,
}

impl Built {
    /// The graph of an orchestration's task. `read` reads the chip's memory.
    ///
    /// # Errors
    /// The orchestration's own, or that what was captured is garbled.
    pub(crate) fn of(
        kernel: &KernelId,
        args: &[Arg],
        read: impl FnOnce(Span) -> Option<Vec<u8>>,
    ) -> Result<Built> {
        let Some(found) = orchestration_registry::find(kernel) else {
            return Err(Error::failed(format!(
                "`{kernel}` is no orchestration of this program"
            )));
        };
        let parameters = registry::find(kernel).map_or(0, |entry| entry.params.len());
        let (arguments, way) = args.split_at(parameters.min(args.len()));
        let source = match way {
            [] => Source::Listed(List::of(found.build, arguments, true)?),
            [EXPLICIT] => Source::Listed(List::of(found.build, arguments, false)?),
            [Arg::Memory(steps)] => {
                let gone = || Error::failed("the captured graph is not there any more");
                let list = read(*steps).ok_or_else(gone)?;
                Source::Captured(work_out(decode(&list)?, true)?.into())
            }
            _ => return Err(Error::failed(orchestration_registry::MALFORMED)),
        };
        Ok(Built {
            source,
            arguments: arguments.to_vec(),
        })
    }

    /// Bytes for its intermediates: all that a chip has for them, or less if less is needed.
    pub(crate) fn scratch_bytes(&self) -> u64 {
        let all: u64 = match &self.source {
            Source::Captured(kept) => kept.graph.arena_bytes().iter().map(|(_, bytes)| *bytes).sum(),
            Source::Listed(list) => list.steps.iter().map(Step::arena_bytes).sum(),
        };
        all.min(SCRATCH_BYTES)
    }

    /// Begins it, with its intermediates at `base` of a segment.
    ///
    /// # Errors
    /// If its tasks need what the chip does not have.
    pub(crate) fn begin(mut self, segment: Segment, base: u64) -> Result<SteppedGraph> {
        let tasks = match &self.source {
            Source::Captured(kept) => kept.graph.len(),
            Source::Listed(list) => list.steps.len(),
        };
        // No more slots than there can be tasks, because a simulation has many chips.
        let slots = u32::try_from(tasks).unwrap_or(u32::MAX).saturating_add(1);
        let mut driver = Driver::new(Some(slots))?;
        let scratch = Scratch { segment, base };
        if let Source::Captured(kept) = &mut self.source {
            replay(&mut driver.engine, kept, &self.arguments, scratch)?;
        }
        Ok(SteppedGraph {
            driver,
            source: self.source,
            scratch,
        })
    }
}

impl List {
    /// A step of an orchestration.
    fn of(build: orchestration_registry::Build, arguments: &[Arg], infer: bool) -> Result<List> {
        let list = Sink::List(Vec::new(), Box::default());
        let (list, built) = orchestrator::build(list, infer, |orch| build(orch, arguments))?;
        built?;
        let steps = match list {
            Sink::List(steps, _) => steps,
            Sink::Cores(_) => Vec::new(),
        };
        Ok(List {
            steps: steps.into(),
            infer,
            refused: None,
            error: None,
            tasks: Vec::new(),
            intermediates: Vec::new(),
            has_waited: false,
        })
    }

    fn is_empty(&self) -> bool {
        self.steps.is_empty() && self.refused.is_none()
    }

    /// Passes steps to the engine as far as it has room.
    fn give(&mut self, engine: &mut ChipEngine, scratch: Scratch) -> Result<()> {
        loop {
            if let Some((spec, payload)) = self.refused.take() {
                match engine.submit(&spec, payload).map_err(refused)? {
                    Outcome::Accepted(task) => self.tasks.push(task),
                    Outcome::Full { payload, .. } => {
                        self.refused = Some((spec, payload));
                        self.has_waited = true;
                        return Ok(());
                    }
                }
            }
            match self.steps.pop_front() {
                None => return Ok(()),
                Some(Step::BeginScope) => engine.begin_scope().map_err(refused)?,
                Some(Step::EndScope) => engine.end_scope().map_err(refused)?,
                Some(Step::Allocate { bytes }) => match engine.allocate(Arena(0), bytes).map_err(refused)? {
                    Outcome::Accepted(buffer) => self.intermediates.push(buffer),
                    Outcome::Full { .. } => {
                        self.steps.push_front(Step::Allocate { bytes });
                        self.has_waited = true;
                        return Ok(());
                    }
                },
                Some(Step::Submit(submitted)) => {
                    self.refused = Some(self.prepare(submitted, engine, scratch)?);
                }
            }
        }
    }

    /// A task in the form for the engine, with the places of its intermediates filled in.
    fn prepare(
        &self,
        Submitted { mut task, how }: Submitted,
        engine: &ChipEngine,
        scratch: Scratch,
    ) -> Result<(Spec, Prepared)> {
        let intermediate = |index: u32| self.intermediates.get(index as usize).copied();
        let spec = how.spec(&task.args, &self.tasks, self.infer, intermediate)?;
        for arg in &mut task.args {
            if let Some(span) = arg.own_memory_mut()
                && span.segment.0 & PARAMETER == INTERMEDIATE
                && let Some(buffer) = intermediate(span.segment.0 & INDEX)
                && let Some(placement) = engine.placement(buffer)
            {
                *span = scratch.at(*span, placement.offset);
            }
        }
        Ok((spec, task.try_into()?))
    }
}

impl SteppedGraph {
    /// The next task that a core can start now, if any.
    pub(crate) fn next(&mut self) -> Option<CoreTask> {
        self.give();
        while let Some(dispatch) = self.driver.engine.ready() {
            let replayed = match &self.source {
                Source::Captured(kept) => Some(&kept.bound),
                Source::Listed(_) => None,
            };
            match self.driver.task(dispatch, replayed) {
                Ok((entry, args)) => {
                    return Some(CoreTask {
                        dispatch,
                        after: self.driver.engine.released_by(dispatch.task),
                        entry,
                        args: args.to_vec(),
                    });
                }
                Err(error) => self.ended(dispatch, Err(error)),
            }
        }
        None
    }

    /// Passes steps to the engine as far as it has room. After a failed task the orchestration stops.
    fn give(&mut self) {
        if let Source::Listed(list) = &mut self.source {
            let failed = self.driver.engine.failure().is_some();
            if !failed && list.error.is_none() {
                list.error = list.give(&mut self.driver.engine, self.scratch).err();
            }
            if failed || list.error.is_some() {
                list.steps.clear();
                list.refused = None;
            }
        }
    }

    /// The tasks that come after one, by their numbers.
    pub(crate) fn followers(&self, dispatch: Dispatch) -> Vec<u64> {
        let followers = self.driver.engine.successors(dispatch.task);
        followers.map(TaskId::sequence).collect()
    }

    /// Whether the orchestration has waited for room: its later tasks come after all tasks that had ended by then.
    pub(crate) fn has_waited(&self) -> bool {
        matches!(&self.source, Source::Listed(list) if list.has_waited)
    }

    /// Processes the outcome of a task on a core.
    pub(crate) fn ended(&mut self, dispatch: Dispatch, outcome: Result<()>) {
        self.driver.report(dispatch, outcome);
    }

    /// The outcome of the graph, once no task is left or none can run.
    pub(crate) fn over(&self) -> Option<Result<()>> {
        let list = match &self.source {
            Source::Listed(list) => Some(list),
            Source::Captured(_) => None,
        };
        let left = self.driver.engine.live() > 0 || list.is_some_and(|list| !list.is_empty());
        if left && !self.driver.engine.is_stalled() {
            return None;
        }
        let refused = list.and_then(|list| list.error.clone());
        let stopped = refused.or_else(|| self.driver.stalled());
        Some(self.driver.check().and(stopped.map_or(Ok(()), Err)))
    }
}
