//! Where the memory is that a graph's tasks name: parameters, intermediates, and what a core is to run.

use super::cores::ChipEngine;
use super::{INDEX, INTERMEDIATE, PARAMETER};
use crate::engine::{Arena, BufferId, Dispatch, Location};
use ringwork_isa::{Arg, Error, Result, Segment, Span};
use ringwork_native::registry::KernelEntry;
use ringwork_native::{SCRATCH, registry};

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

/// A kernel with its arguments, every parameter and intermediate where it is.
pub(super) fn job(
    engine: &ChipEngine,
    dispatch: Dispatch,
    scratch: Scratch,
    parameters: &[Arg],
) -> Result<(&'static KernelEntry, Vec<Arg>)> {
    let Some(task) = engine.payload(dispatch.task) else {
        return Err(Error::failed("a task without a kernel"));
    };
    let entry = registry::find(&task.kernel).map_err(|unknown| Error::failed(unknown.to_string()))?;
    let resolve = |arg: &Arg| match arg {
        Arg::Memory(span) => resolve(engine, dispatch, scratch, parameters, *span).map(Arg::Memory),
        other => Ok(*other),
    };
    Ok((entry, task.args.iter().map(resolve).collect::<Result<_>>()?))
}

fn resolve(
    engine: &ChipEngine,
    dispatch: Dispatch,
    scratch: Scratch,
    parameters: &[Arg],
    span: Span,
) -> Result<Span> {
    let Segment(number) = span.segment;
    if number & INTERMEDIATE == 0 || number >= SCRATCH.0 {
        return Ok(span);
    }
    let index = number & INDEX;
    if number & PARAMETER == PARAMETER {
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
        return Ok(Span {
            start: real.start + span.start,
            len: span.len,
            ..real
        });
    }
    match engine.locate(dispatch.task, BufferId::captured(index)) {
        Some(Location::Arena(placement)) if placement.arena == Arena(0) => {
            Ok(scratch.at(span, placement.offset))
        }
        _ => Err(Error::failed(format!("intermediate {index} has no place"))),
    }
}
