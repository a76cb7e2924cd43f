//! A chip's own graph: an orchestration over the cores of one chip.
//!
//! An orchestration is a plain function that submits kernels to the chip's cores. `#[orchestration]` makes a task of
//! it, as `#[kernel]` does of a kernel, and a host submits that task to a chip like any other. The same source is
//! used in three ways, all on the same [engine](ringwork_engine):
//!
//! 1. *built on the chip, edges inferred* from what its tasks touch: the task as it is;
//! 2. *built on the chip, explicit edges*: [`explicit`] of the task: only [`after`](ChipOrchestrator::after) makes
//!    edges;
//! 3. *captured on the host*: [`Node::capture`](crate::Node::capture) runs the function once and ships what it
//!    submitted; [`Captured::replay`] runs that with other inputs, as often as one likes, without the function.
//!
//! # Invariants
//! - **CHIP-1 (same order).** With each of the three, memory ends as if the tasks had run one by one in the order of
//!   submission; with explicit edges, if the edges are sufficient.
//! - **CHIP-2 (own memory).** Intermediates lie in memory of the chip that no other chip and no host task can reach.
//! - **CHIP-3 (ends).** When a graph's task has ended, no core works on the graph any more.

mod capture;
mod core_threads;
mod driver;
mod orchestration_registry;
mod orchestrator;
mod replay_arguments;
mod stepped_graph;

pub use capture::Captured;
pub(crate) use driver::CORE_NAMES;
pub(crate) use orchestration_registry::is_orchestration;
pub use orchestration_registry::{Build, ORCHESTRATIONS, OrchestrationEntry, explicit, run, step};
pub use orchestrator::ChipOrchestrator;
pub(crate) use stepped_graph::{Built, CoreTask, SteppedGraph};

use crate::task_binding;
use ringwork_engine::{AccessKind, BufferId, Kind, Ring, View};
use ringwork_isa::{Arg, BlockSpan, Error, KernelId, Result, Segment, Tag};
use ringwork_registry::{self as registry, KernelEntry};
use serde::{Deserialize, Serialize};

/// Set in the numbers of segments that stand for an intermediate of a graph.
const INTERMEDIATE: u32 = 1 << 31;
/// Set, too, in those that stand for a parameter of a captured graph.
const PARAMETER: u32 = INTERMEDIATE | 1 << 30;
/// The index in either.
const INDEX: u32 = (1 << 30) - 1;

/// Bytes for intermediates on each chip.
const SCRATCH_BYTES: u64 = 16 << 20;

/// The kinds of cores of a chip.
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

/// The memory that an argument of a task touches.
enum Touched {
    /// These bytes of a buffer.
    Bytes(BufferId, View),
    /// No memory: a value, or signals, which order nothing on one chip (kernels wait for them inside).
    Nothing,
    /// An intermediate whose scope has ended.
    Stale,
}

fn touched(arg: &Arg, intermediate: impl FnOnce(Segment) -> Option<BufferId>) -> Touched {
    let (Arg::Memory(span) | Arg::Window(span) | Arg::Block(BlockSpan { extent: span, .. })) = arg else {
        return Touched::Nothing;
    };
    let number = span.segment.0;
    let buffer = if number & PARAMETER == PARAMETER && number < ringwork_native::SCRATCH.0 {
        Some(BufferId::parameter(number & INDEX))
    } else if number & PARAMETER == INTERMEDIATE {
        intermediate(span.segment)
    } else {
        Some(BufferId::new(number.into()))
    };
    let view = task_binding::view(arg).unwrap_or(View::EMPTY);
    buffer.map_or(Touched::Stale, |buffer| Touched::Bytes(buffer, view))
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

/// Translates what the engine refused, with advice. The rings of a chip have a fixed size.
fn refused(problem: ringwork_engine::Error) -> Error {
    let why = match problem {
        ringwork_engine::Error::RingStuck { fill } => {
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
