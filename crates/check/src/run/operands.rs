//! What an instruction touches: the ranges that it reads and writes, and its signal.

use super::{Run, range};
use ringwork_isa::stepped::Instruction;
use ringwork_isa::{BlockSpan, ErrorKind, Result, Segment, Signal, Span};
use std::ops::Range;
use std::panic::Location;

impl Run {
    /// What every core checks before it does anything.
    pub(super) fn check(
        &self,
        rank: u32,
        instruction: &Instruction,
        at: &'static Location<'static>,
    ) -> Result<()> {
        let not_mapped = |segment: Segment, bytes: Range<u64>| {
            let (start, end, site) = (bytes.start, bytes.end, at.into());
            Err(ErrorKind::NotMapped {
                segment,
                start,
                end,
                site,
            }
            .into())
        };
        let Operands { writes, reads } = Operands::of(instruction);
        let is_block = matches!(
            instruction,
            Instruction::CopyBlock { .. } | Instruction::LoadBlock { .. } | Instruction::StoreBlock { .. }
        );
        let extents = extents(instruction);
        let rows = writes.iter().chain(&reads).filter(|_| !is_block);
        for span in rows.chain(extents.iter().flatten()) {
            let bytes = range(span);
            if !self.memory.is_mapped(rank, span.segment, &bytes) {
                return not_mapped(span.segment, bytes);
            }
        }
        if let Some(signal) = signal_of(instruction) {
            let offset = signal.offset().unwrap_or(u64::MAX - 4);
            let bytes = offset..offset + 4;
            if signal.rank().0 >= signal.ranks() || !self.memory.is_mapped(rank, signal.segment(), &bytes) {
                return not_mapped(signal.segment(), bytes);
            }
        }
        let is_same = writes == reads;
        for (index, source) in reads.iter().enumerate().filter(|_| !is_same) {
            let from = range(source);
            let overlaps = |dst: &Span| {
                let to = range(dst);
                // A source that is the destination is allowed, a row of a block that is one of another block's is not.
                let is_allowed = to == from && !is_block;
                dst.segment == source.segment && !is_allowed && to.start < from.end && from.start < to.end
            };
            if writes.iter().any(overlaps) {
                let source_index = match instruction {
                    Instruction::CopyBlock { .. } => 0,
                    _ => u32::try_from(index).unwrap_or(u32::MAX),
                };
                let site = at.into();
                return Err(ErrorKind::Overlap { source_index, site }.into());
            }
        }
        Ok(())
    }
}

/// The ranges of an instruction, a block row by row.
#[derive(Debug, Default)]
pub(crate) struct Operands {
    pub(crate) writes: Vec<Span>,
    pub(crate) reads: Vec<Span>,
}

impl Operands {
    pub(crate) fn of(instruction: &Instruction) -> Operands {
        let (writes, reads) = match instruction {
            Instruction::Copy { dst, src } | Instruction::CopyAsync { dst, src } => (vec![*dst], vec![*src]),
            Instruction::Reduce { dst, sources, .. } => (vec![*dst], sources.clone()),
            Instruction::Load { src } | Instruction::Take { slot: src } => (Vec::new(), vec![*src]),
            Instruction::Store { dst, .. } | Instruction::Put { slot: dst, .. } => (vec![*dst], Vec::new()),
            Instruction::CopyBlock { dst, src } => (rows(dst), rows(src)),
            Instruction::LoadBlock { src } => (Vec::new(), rows(src)),
            Instruction::StoreBlock { dst, .. } => (rows(dst), Vec::new()),
            Instruction::PutPacket { payload, src, .. } => (vec![*payload], vec![*src]),
            Instruction::TakePackets { dst, sources, .. } => {
                (vec![*dst], sources.iter().map(|source| source.payload).collect())
            }
            Instruction::Join(_)
            | Instruction::Spend(_)
            | Instruction::Notify { .. }
            | Instruction::Wait { .. }
            | Instruction::Test { .. }
            | Instruction::Peek { .. }
            | Instruction::OwnValue { .. } => (Vec::new(), Vec::new()),
        };
        Operands { writes, reads }
    }
}

/// The blocks of an instruction, each from its first element to its last.
fn extents(instruction: &Instruction) -> [Option<Span>; 2] {
    match instruction {
        Instruction::CopyBlock { dst, src } => [Some(dst.extent), Some(src.extent)],
        Instruction::LoadBlock { src: block } | Instruction::StoreBlock { dst: block, .. } => {
            [Some(block.extent), None]
        }
        _ => [None, None],
    }
}

/// The rows of a block. One whose numbers do not fit each other is its whole extent, which is then checked as such.
pub(super) fn rows(block: &BlockSpan) -> Vec<Span> {
    if block.is_sound() {
        block.row_spans().filter(|row| row.len > 0).collect()
    } else {
        vec![block.extent]
    }
}

/// The signal that an instruction is about.
pub(crate) fn signal_of(instruction: &Instruction) -> Option<&Signal> {
    match instruction {
        Instruction::Notify { signal, .. }
        | Instruction::Wait { signal, .. }
        | Instruction::Test { signal, .. }
        | Instruction::Peek { signal }
        | Instruction::OwnValue { signal }
        | Instruction::Put { full: signal, .. } => Some(signal),
        _ => None,
    }
}
