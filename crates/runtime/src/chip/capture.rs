//! Captured graphs: what an orchestration submitted, shipped to a chip and replayed there.
//!
//! The shipped form is the list of submissions, in memory of the chip. The chip computes the order when it first
//! meets the list, and keeps the result: a replay infers nothing.

use super::core_threads::Cores;
use super::driver::ChipEngine;
use super::orchestrator::{self, Sink};
use super::replay_arguments::{ReplayArguments, Scratch};
use super::{
    ChipTask, CoreKind, INDEX, PARAMETER, Prepared, Touched, access_kind, orchestration_registry, refused,
    touched,
};
use crate::error::Error;
use crate::node::Node;
use crate::tensor::Tensor;
use ringwork_engine::{Arena, Binding, Bindings, BufferId, Capture, Graph, Outcome, Place, Spec, TaskId};
use ringwork_isa::{Arg, Argument, Device, In, KernelId, Rank, Region, Result, Segment, Span, Tag, Task};
use ringwork_native::NativeCore;
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

/// One step of an orchestration.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Step {
    BeginScope,
    EndScope,
    Allocate { bytes: u64 },
    Submit(Submitted),
}

impl Step {
    /// The bytes that it takes of the arena for intermediates.
    pub(super) fn arena_bytes(&self) -> u64 {
        match self {
            Step::Allocate { bytes } => Arena::bytes_taken(*bytes),
            _ => 0,
        }
    }
}

/// A task that was submitted.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Submitted {
    pub(super) task: ChipTask,
    pub(super) how: How,
}

/// How it was.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct How {
    pub(super) on: CoreKind,
    pub(super) priority: i8,
    /// Tasks before it, counted from 1.
    pub(super) after: Vec<u64>,
    pub(super) tags: Vec<Tag>,
}

impl How {
    /// The spec for the engine. `tasks` are the earlier tasks of the list; `intermediate` looks a buffer up by index.
    pub(super) fn spec(
        &self,
        args: &[Arg],
        tasks: &[TaskId],
        infer: bool,
        intermediate: impl Fn(u32) -> Option<BufferId>,
    ) -> Result<Spec> {
        let mut spec = Spec::new(Place::Any(self.on.kind())).priority(self.priority);
        for before in &self.after {
            let at = usize::try_from(*before).ok().and_then(|at| at.checked_sub(1));
            let before = at.and_then(|at| tasks.get(at)).copied();
            spec.after
                .push(before.ok_or_else(|| garbled("a task after no task".into()))?);
        }
        for (arg, tag) in args.iter().zip(&self.tags) {
            match touched(arg, |Segment(number)| intermediate(number & INDEX)) {
                Touched::Bytes(buffer, view) => {
                    spec.touch(buffer, view, access_kind(*tag, buffer, infer));
                }
                Touched::Nothing => {}
                Touched::Stale => return Err(garbled("an intermediate that is not there".into())),
            }
        }
        Ok(spec)
    }
}

/// The most graphs that a chip keeps ready for replay.
const CACHED_GRAPHS: usize = 64;

/// A graph on a chip, made by [`Node::capture`]. Freed with its last handle.
#[derive(Clone, Debug)]
pub struct Captured {
    kernel: KernelId,
    /// The shape of the arguments: type and length of memory, and the values themselves.
    shape: Vec<Arg>,
    steps: Tensor<u8>,
    tasks: usize,
}

impl Node {
    /// Runs an orchestration once on the host, and ships the tasks that it submitted to a chip. Memory among its
    /// arguments is a parameter that each [`replay`](Captured::replay) binds; values are part of the graph.
    ///
    /// # Errors
    /// If the task is not an orchestration's, has arguments that belong to a domain, or the orchestration
    /// itself fails; or if the chip or memory for it is not there.
    pub fn capture(&self, device: Device, task: &Task) -> crate::Result<Captured> {
        let field = || format!("capture of `{}`", task.kernel);
        let Some(entry) = orchestration_registry::find(&task.kernel) else {
            return Err(Error::config(field(), "it is no orchestration of this program"));
        };
        let shape: Vec<Arg> = (0..)
            .zip(&task.args[..task.params.len().min(task.args.len())])
            .map(|(index, arg)| symbolic(index, arg))
            .collect::<Option<_>>()
            .ok_or_else(|| {
                Error::config(field(), "a captured graph takes a chip's memory and values only")
            })?;
        let refused = |error: ringwork_isa::Error| Error::config(field(), error.to_string());
        let list = Sink::List(Vec::new(), Box::default());
        let (list, built) =
            orchestrator::build(list, true, |orch| (entry.build)(orch, &shape)).map_err(refused)?;
        built.map_err(refused)?;
        let Sink::List(steps, capture) = list else {
            return Err(Error::config(field(), "it was not captured"));
        };
        let graph = capture.finish();
        let bytes = postcard::to_stdvec(&steps).map_err(|error| Error::config(field(), error.to_string()))?;
        Ok(Captured {
            kernel: task.kernel.clone(),
            shape,
            steps: self.tensor(device, &bytes)?,
            tasks: graph.len(),
        })
    }
}

impl Captured {
    /// How many tasks it has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.tasks
    }

    /// Whether it has no tasks.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tasks == 0
    }

    /// The chip it is on.
    #[must_use]
    pub fn device(&self) -> Device {
        self.steps.device()
    }

    /// A task that replays the graph with this task's memory as its parameters, for its chip.
    ///
    /// # Errors
    /// If it is another orchestration's task, or its arguments have other lengths, types or values.
    pub fn replay(&self, task: &Task) -> crate::Result<Task> {
        let field = || format!("replay of `{}`", self.kernel);
        if task.kernel != self.kernel {
            let why = format!("the task is `{}`'s", task.kernel);
            return Err(Error::config(field(), why));
        }
        let given = (0..).zip(&task.args).map(|(index, arg)| symbolic(index, arg));
        for (index, (given, captured)) in given.zip(&self.shape).enumerate() {
            if given.as_ref() != Some(captured) {
                let name = task.params.get(index).map_or("", |param| param.name);
                let why = format!("`{name}` is not as it was captured; capture the graph again for it");
                return Err(Error::config(field(), why));
            }
        }
        let mut args = task.args[..self.shape.len().min(task.args.len())].to_vec();
        args.push(Argument::<In<u8>>::to_arg(&self.steps));
        Ok(Task { args, ..task.clone() })
    }
}

/// The parameter of a graph for an argument, which keeps only its shape. `None` if it cannot be one.
fn symbolic(index: u32, arg: &Arg) -> Option<Arg> {
    match arg {
        Arg::Memory(span) if span.stride == 0 => Some(Arg::Memory(Span {
            segment: Segment(PARAMETER | index & INDEX),
            base: 0,
            stride: 0,
            me: Rank(0),
            rank: Rank(0),
            ranks: 1,
            dtype: span.dtype,
            start: 0,
            len: span.len,
        })),
        Arg::Value(value) => Some(Arg::Value(*value)),
        _ => None,
    }
}

/// A graph on its chip, with the last arguments of its tasks.
pub(super) struct CachedGraph {
    pub(super) graph: Arc<Graph<Prepared>>,
    pub(super) bound: ReplayArguments,
}

impl From<Graph<Prepared>> for CachedGraph {
    fn from(graph: Graph<Prepared>) -> CachedGraph {
        CachedGraph {
            graph: Arc::new(graph),
            bound: ReplayArguments::default(),
        }
    }
}

thread_local! {
    // Thread-local, because a chip serves its host on one thread. Segment numbers identify graphs, because a host never
    // uses one twice.
    static GRAPHS: RefCell<BTreeMap<Segment, CachedGraph>> = const { RefCell::new(BTreeMap::new()) };
}

/// Runs the graph that lies in a chip's memory, with these arguments for its parameters.
pub(super) fn run(core: &NativeCore, steps: Span, arguments: &[Arg]) -> Result<()> {
    let kept = GRAPHS.with_borrow_mut(|graphs| graphs.remove(&steps.segment));
    let mut kept = match kept {
        Some(kept) => kept,
        None => read(core, steps)?.into(),
    };
    let outcome = run_kept(core, &mut kept, arguments);
    GRAPHS.with_borrow_mut(|graphs| {
        if graphs.len() >= CACHED_GRAPHS {
            graphs.pop_first();
        }
        graphs.insert(steps.segment, kept);
    });
    outcome
}

fn run_kept(core: &NativeCore, kept: &mut CachedGraph, arguments: &[Arg]) -> Result<()> {
    let mut cores = Cores::new(core)?;
    let scratch = cores.scratch;
    replay(cores.engine(), kept, arguments, scratch)?;
    cores.bound = Some(&kept.bound);
    cores.finish()
}

/// Reads the list of submissions and computes the order.
fn read(core: &NativeCore, steps: Span) -> Result<Graph<Prepared>> {
    use ringwork_isa::Core;
    let bytes: In<u8> = Region::from_span(steps).map_err(|dtype| garbled(format!("it holds {dtype}")))?;
    let mut list = Vec::new();
    core.run(async {
        list = core.load(bytes).await?.values().to_vec();
        Ok(())
    })?;
    work_out(decode(&list)?, true)
}

fn garbled(why: String) -> ringwork_isa::Error {
    ringwork_isa::Error::failed(format!("the captured graph is garbled: {why}"))
}

/// The list of submissions as it was shipped.
pub(super) fn decode(list: &[u8]) -> Result<Vec<Step>> {
    postcard::from_bytes(list).map_err(|error| garbled(error.to_string()))
}

/// Computes the order of submissions: from the memory they touch, or from explicit edges only.
pub(super) fn work_out(steps: Vec<Step>, infer: bool) -> Result<Graph<Prepared>> {
    let mut capture = Capture::new();
    let mut tasks: Vec<TaskId> = Vec::new();
    for step in steps {
        match step {
            // A replayed graph has the memory of all its intermediates from begin to end.
            Step::BeginScope | Step::EndScope => {}
            Step::Allocate { bytes } => drop(capture.allocate(Arena(0), bytes).map_err(refused)?),
            Step::Submit(Submitted { task, how }) => {
                let intermediate = |index| Some(BufferId::captured(index));
                let spec = how.spec(&task.args, &tasks, infer, intermediate)?;
                if let Outcome::Accepted(task) = capture.submit(&spec, task.try_into()?).map_err(refused)? {
                    tasks.push(task);
                }
            }
        }
    }
    Ok(capture.finish())
}

/// Submits a graph to a chip's engine with these arguments; returns where its tasks' memory is.
pub(super) fn replay(
    engine: &mut ChipEngine,
    CachedGraph { graph, bound }: &mut CachedGraph,
    arguments: &[Arg],
    scratch: Scratch,
) -> Result<()> {
    let mut bindings = Bindings::default();
    for index in 0..graph.parameter_bytes().len() {
        bindings.parameters.push(match arguments.get(index) {
            Some(Arg::Memory(span)) => Binding {
                buffer: BufferId::new(span.segment.0.into()),
                offset: span.byte_range().map_or(0, |range| range.start),
            },
            // Not used: any buffer that no other task touches is right.
            _ => BufferId::new((1 << 40) + index as u64).into(),
        });
    }
    let replay = match engine.replay(graph, &bindings).map_err(refused)? {
        Outcome::Accepted(replay) => replay,
        Outcome::Full { fill, .. } => {
            let why = format!("the captured graph does not fit this chip: {fill}");
            return Err(ringwork_isa::Error::failed(why));
        }
    };
    bound.bind(graph, arguments, engine.blocks(replay), scratch)
}
