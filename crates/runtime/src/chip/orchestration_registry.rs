//! Orchestrations of the program, found at link time, and how a chip runs one.

use super::capture;
use super::core_threads::Cores;
use super::orchestrator::{self, ChipOrchestrator, Sink};
use ringwork_isa::stepped::SteppedCore;
use ringwork_isa::{Arg, Error, KernelId, Result, Task, Value};
use ringwork_native::NativeCore;
use ringwork_registry::SteppedKernel;

/// All orchestrations. Filled by `#[orchestration]`.
#[linkme::distributed_slice]
pub static ORCHESTRATIONS: [OrchestrationEntry];

/// One orchestration of the program.
#[derive(Debug)]
pub struct OrchestrationEntry {
    /// `crate::module::name`.
    pub name: &'static str,
    /// Hash of its parameter list.
    pub signature: u64,
    /// Runs it.
    pub build: Build,
}

/// An orchestration that decodes its arguments itself.
pub type Build = fn(&mut ChipOrchestrator<'_>, &[Arg]) -> Result<()>;

/// The orchestration with this identity.
pub(super) fn find(id: &KernelId) -> Option<&'static OrchestrationEntry> {
    let same = |entry: &&OrchestrationEntry| entry.name == id.name && entry.signature == id.signature;
    ORCHESTRATIONS.iter().find(same)
}

/// Whether this identity is an orchestration's.
pub(crate) fn is_orchestration(id: &KernelId) -> bool {
    find(id).is_some()
}

/// Malformed orchestration task: expected no extra argument, `explicit`, or a captured graph.
pub(super) const MALFORMED: &str =
    "malformed orchestration task: after its parameters it may have nothing, `explicit`, or a captured graph";

/// The extra argument of a graph with explicit edges.
pub(super) const EXPLICIT: Arg = Arg::Value(Value::Bool(true));

/// The task of an orchestration, built on the chip with explicit edges only: nothing is inferred from what its
/// tasks touch.
#[must_use]
pub fn explicit(mut task: Task) -> Task {
    task.args.truncate(task.params.len());
    task.args.push(EXPLICIT);
    task
}

/// Runs the task of an orchestration on a chip: the first `parameters` of `args` are its own arguments, and the next
/// one says how to build the graph. Used by `#[orchestration]`.
///
/// # Errors
/// The orchestration's own, or that of a task it submitted.
pub fn run(core: &NativeCore, args: &[Arg], parameters: usize, build: Build) -> Result<()> {
    let (arguments, way) = args.split_at(parameters.min(args.len()));
    match way {
        [] => run_built(core, arguments, true, build),
        [EXPLICIT] => run_built(core, arguments, false, build),
        [Arg::Memory(graph)] => capture::run(core, *graph, arguments),
        _ => Err(Error::failed(MALFORMED)),
    }
}

fn run_built(core: &NativeCore, arguments: &[Arg], infer: bool, build: Build) -> Result<()> {
    let cores = Sink::Cores(Box::new(Cores::new(core)?));
    let (sink, built) = orchestrator::build(cores, infer, |orch| build(orch, arguments))?;
    // A failed task explains why an orchestration returned an error, so the task is reported first.
    match sink {
        Sink::Cores(cores) => cores.finish().and(built),
        Sink::List(..) => built,
    }
}

/// Refuses an orchestration where a task has only one core. Used by `#[orchestration]`; a simulated node runs a graph on
/// its chips' cores instead.
#[must_use]
pub fn step(_core: SteppedCore, _args: Vec<Arg>) -> SteppedKernel {
    Box::pin(async {
        Err(Error::failed(
            "a chip's own graph needs the chip's cores, and this platform has single ones; submit its tasks from the node",
        ))
    })
}
