//! A chip's graph on a platform that steps: what its cores are to run next, and what became of it.
//!
//! The orchestration runs once, in no time, and what it submitted is taken whole: there is no back-pressure here, and
//! intermediates live until the graph has ended.

use super::bound::Scratch;
use super::capture::{Kept, Step, decode, replay, work_out};
use super::cores::{ChipEngine, with_cores};
use super::{ChipOrchestrator, EXPLICIT, Prepared, Sink, cores, entry, refused};
use crate::engine::{Config, Dispatch, Engine, Graph};
use ringwork_isa::{Arg, Error, KernelId, Result, Segment, Span};
use ringwork_native::registry::{self, KernelEntry};

/// A graph that was built and not begun.
pub(crate) struct Built {
    kept: Kept,
    arguments: Vec<Arg>,
}

/// A graph under way.
pub(crate) struct Stepped {
    engine: ChipEngine,
    kept: Kept,
    failure: Option<Error>,
}

/// A task of a graph for one of the chip's cores.
pub(crate) struct CoreTask {
    pub(crate) dispatch: Dispatch,
    /// The number of the task whose end let it go.
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
        let Some(found) = entry::find(kernel) else {
            return Err(Error::failed(format!(
                "`{kernel}` is no orchestration of this program"
            )));
        };
        let parameters = registry::find(kernel).map_or(0, |entry| entry.params.len());
        let (arguments, way) = args.split_at(parameters.min(args.len()));
        let graph = match way {
            [] => build(found.build, arguments, true),
            [EXPLICIT] => build(found.build, arguments, false),
            [Arg::Memory(steps)] => read(*steps)
                .ok_or_else(|| Error::failed("the captured graph is not there any more"))
                .and_then(|list| work_out(decode(&list)?, true)),
            _ => Err(Error::failed(
                "arguments that say neither of the ways to build a graph",
            )),
        };
        Ok(Built {
            kept: graph?.into(),
            arguments: arguments.to_vec(),
        })
    }

    /// Bytes of all its intermediates.
    pub(crate) fn scratch_bytes(&self) -> u64 {
        let blocks = self.kept.graph.arena_bytes().iter();
        blocks.map(|(_, bytes)| *bytes).sum()
    }

    /// Begins it, with its intermediates at `base` of a segment.
    ///
    /// # Errors
    /// If its tasks need what the chip does not have.
    pub(crate) fn begin(mut self, segment: Segment, base: u64) -> Result<Stepped> {
        let slots = u32::try_from(self.kept.graph.len())
            .unwrap_or(u32::MAX)
            .saturating_add(1);
        let config = Config::new().slots(slots).arena(self.scratch_bytes());
        let mut engine = Engine::new(&with_cores(config)).map_err(refused)?;
        let scratch = Scratch { segment, base };
        replay(&mut engine, &mut self.kept, &self.arguments, scratch)?;
        Ok(Stepped {
            engine,
            kept: self.kept,
            failure: None,
        })
    }
}

/// Runs an orchestration and works out the order of what it submitted.
fn build(build: entry::Build, arguments: &[Arg], infer: bool) -> Result<Graph<Prepared>> {
    let mut orch = ChipOrchestrator::new(Sink::List(Vec::new(), Box::default()), infer);
    build(&mut orch, arguments)?;
    let steps: Vec<Step> = match orch.sink {
        Sink::List(steps, _) => steps,
        Sink::Cores(_) => Vec::new(),
    };
    work_out(steps, infer)
}

impl Stepped {
    /// The next task that a core can start now, if any.
    pub(crate) fn next(&mut self) -> Option<CoreTask> {
        while let Some(dispatch) = self.engine.ready() {
            let node = self.engine.node_of(dispatch.task);
            if let Some((entry, args)) = node.and_then(|node| self.kept.bound.task(node)) {
                return Some(CoreTask {
                    dispatch,
                    after: self.engine.let_go_by(dispatch.task),
                    entry,
                    args: args.to_vec(),
                });
            }
            self.ended(dispatch, Err(Error::failed("a task without a kernel")));
        }
        None
    }

    /// A core is done with a task.
    pub(crate) fn ended(&mut self, dispatch: Dispatch, outcome: Result<()>) {
        let reported = match outcome {
            Ok(()) => self.engine.complete(dispatch.task, dispatch.executor),
            Err(error) => {
                let kernel = self
                    .engine
                    .payload(dispatch.task)
                    .map(|task| task.entry.id().to_string());
                self.failure
                    .get_or_insert_with(|| cores::in_graph(error, kernel.as_deref()));
                self.engine.fail(dispatch.task, dispatch.executor, ())
            }
        };
        debug_assert!(reported.is_ok(), "it was dispatched");
    }

    /// How the graph ended, once nothing of it is left or can go on.
    pub(crate) fn over(&self) -> Option<Result<()>> {
        if self.engine.live() > 0 && !self.engine.is_stalled() {
            return None;
        }
        let stall = self.engine.stall().filter(|_| self.engine.live() > 0);
        let stalled = stall.map(|stall| Error::failed(format!("the chip's graph: {stall}")));
        Some(self.failure.clone().or(stalled).map_or(Ok(()), Err))
    }
}
