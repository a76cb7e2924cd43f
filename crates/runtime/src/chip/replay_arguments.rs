//! The arguments of a captured graph's tasks, with the memory of this replay in place of parameters and intermediates.
//!
//! They are computed only when a graph is replayed with other memory than last time.

use super::{INDEX, INTERMEDIATE, PARAMETER, Prepared};
use ringwork_engine::{Graph, Placement};
use ringwork_isa::{Arg, Error, Result, Segment, Span};
use ringwork_native::SCRATCH;
use ringwork_registry::KernelEntry;

/// Where a chip's intermediates are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scratch {
    pub(super) segment: Segment,
    /// Their first byte.
    pub(super) base: u64,
}

impl Scratch {
    /// An intermediate that lies at this offset.
    pub(super) fn at(self, span: Span, offset: u64) -> Span {
        Span {
            segment: self.segment,
            base: self.base + offset,
            ..span
        }
    }
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct ReplayArguments {
    /// The parameters and the place of the intermediates for which they were computed.
    parameters: Vec<Arg>,
    blocks: Vec<Placement>,
    /// The arguments of all tasks, in one list.
    args: Vec<Arg>,
    /// By task: its kernel, and where its arguments end.
    tasks: Vec<(&'static KernelEntry, usize)>,
}

impl ReplayArguments {
    /// Binds these parameters, unless they are bound already.
    pub(super) fn bind(
        &mut self,
        graph: &Graph<Prepared>,
        parameters: &[Arg],
        blocks: &[Placement],
        scratch: Scratch,
    ) -> Result<()> {
        let known = self.tasks.len() == graph.len();
        if known && self.parameters == parameters && self.blocks == blocks {
            return Ok(());
        }
        self.args.clear();
        self.tasks.clear();
        for task in graph.payloads() {
            for arg in &task.args {
                let mut arg = *arg;
                if let Some(span) = arg.own_memory_mut() {
                    *span = resolve(*span, graph, parameters, blocks, scratch)?;
                }
                self.args.push(arg);
            }
            self.tasks.push((task.entry, self.args.len()));
        }
        self.parameters = parameters.to_vec();
        self.blocks = blocks.to_vec();
        Ok(())
    }

    /// A task's kernel and arguments.
    pub(super) fn task(&self, node: u32) -> Option<(&'static KernelEntry, &[Arg])> {
        let at = usize::try_from(node).ok()?;
        let (entry, end) = *self.tasks.get(at)?;
        let start = at.checked_sub(1).map_or(0, |before| self.tasks[before].1);
        Some((entry, self.args.get(start..end)?))
    }
}

fn resolve(
    span: Span,
    graph: &Graph<Prepared>,
    parameters: &[Arg],
    blocks: &[Placement],
    scratch: Scratch,
) -> Result<Span> {
    let Segment(number) = span.segment;
    if number & INTERMEDIATE == 0 || number >= SCRATCH.0 {
        return Ok(span);
    }
    let index = number & INDEX;
    if number & PARAMETER == INTERMEDIATE {
        let placed = graph.place_of(index, blocks);
        let placed = placed.ok_or_else(|| Error::failed(format!("intermediate {index} has no place")))?;
        return Ok(scratch.at(span, placed.offset));
    }
    let real = match parameters.get(index as usize) {
        Some(Arg::Memory(real)) => *real,
        _ => return Err(Error::failed(format!("parameter {index} is no memory"))),
    };
    let inside = span
        .start
        .checked_add(span.len)
        .is_some_and(|end| end <= real.len);
    if !inside || real.dtype != span.dtype {
        return Err(Error::failed(format!(
            "parameter {index} is not what was captured"
        )));
    }
    Ok(Span {
        start: real.start + span.start,
        len: span.len,
        ..real
    })
}
