//! Mutants: the same program with one instruction wrong, to see whether a proof would notice.
//!
//! No source is changed. A mutant is a line of a kernel, an instruction of it, and a [`Mutation`]; it is applied every time
//! that the line is executed, on every rank or on rank 0 alone, between the kernel and the engine. So it is what a wrong line would do.

use crate::run::{Operands, signal_of};
use crate::words::name;
use ringwork_isa::stepped::{Answer, Instruction};
use ringwork_isa::{Compare, Notify, Rank, Signal, Site, Span, Ticket};
use std::fmt;
use std::panic::Location;

/// What is done wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Mutation {
    /// The instruction is left out.
    Drop,
    /// It is exchanged with the next one of its rank.
    Exchange,
    /// A wait is for one less.
    WaitLess,
    /// A wait is for one more.
    WaitMore,
    /// A notify sets or adds one less.
    SetLess,
    /// A notify sets or adds one more.
    SetMore,
    /// The signal is that of the next rank.
    NextSignal,
    /// The data, in a window, are those of the next rank.
    NextData,
    /// The range that is written, or read where nothing is written, begins one element further.
    Further,
    /// The range is one element shorter.
    Shorter,
    /// A packet is put or taken with the next epoch.
    NextEpoch,
    /// A notify sets instead of adding.
    SetForAdd,
    /// The last of several sources is left out.
    FewerSources,
}

impl Mutation {
    /// All of them.
    pub const ALL: [Mutation; 13] = [
        Mutation::Drop,
        Mutation::Exchange,
        Mutation::WaitLess,
        Mutation::WaitMore,
        Mutation::SetLess,
        Mutation::SetMore,
        Mutation::NextSignal,
        Mutation::NextData,
        Mutation::Further,
        Mutation::Shorter,
        Mutation::NextEpoch,
        Mutation::SetForAdd,
        Mutation::FewerSources,
    ];
}

impl fmt::Display for Mutation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Mutation::Drop => "drop",
            Mutation::Exchange => "exchange with next",
            Mutation::WaitLess => "wait for one less",
            Mutation::WaitMore => "wait for one more",
            Mutation::SetLess => "set one less",
            Mutation::SetMore => "set one more",
            Mutation::NextSignal => "signal of next rank",
            Mutation::NextData => "data of next rank",
            Mutation::Further => "range one further",
            Mutation::Shorter => "range one shorter",
            Mutation::NextEpoch => "next packet epoch",
            Mutation::SetForAdd => "set for add",
            Mutation::FewerSources => "one source fewer",
        })
    }
}

/// One wrong instruction of a program.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Mutant {
    /// The file of the line.
    pub file: &'static str,
    /// Line and column.
    pub at: (u32, u32),
    /// The instruction's name.
    pub instruction: &'static str,
    /// What is wrong with it.
    pub mutation: Mutation,
    /// On rank 0 only, not on all.
    pub is_on_first_only: bool,
}

impl Mutant {
    /// The mutants of an instruction.
    pub(crate) fn of(
        instruction: &Instruction,
        at: &'static Location<'static>,
    ) -> impl Iterator<Item = Mutant> {
        let wrong = Mutation::ALL.into_iter().filter(|mutation| match mutation {
            Mutation::Drop => without(instruction).is_some(),
            Mutation::Exchange => is_answered_done(instruction),
            other => other.of(instruction).is_some(),
        });
        let instruction = name(instruction);
        wrong.flat_map(move |mutation| {
            [false, true].map(|is_on_first_only| Mutant {
                file: at.file(),
                at: (at.line(), at.column()),
                instruction,
                mutation,
                is_on_first_only,
            })
        })
    }

    /// Whether it is about this instruction of this line.
    pub(crate) fn is_of(&self, instruction: &Instruction, at: &'static Location<'static>) -> bool {
        self.at == (at.line(), at.column()) && self.file == at.file() && self.instruction == name(instruction)
    }

    /// Whether it changes what a rank does.
    pub(crate) fn is_on(&self, rank: Rank) -> bool {
        rank == Rank(0) || !self.is_on_first_only
    }

    /// The line.
    #[must_use]
    pub fn site(&self) -> Site {
        Site {
            file: self.file.into(),
            line: self.at.0,
        }
    }
}

fn is_answered_done(instruction: &Instruction) -> bool {
    matches!(
        instruction,
        Instruction::Copy { .. }
            | Instruction::Reduce { .. }
            | Instruction::Store { .. }
            | Instruction::CopyBlock { .. }
            | Instruction::StoreBlock { .. }
            | Instruction::Notify { .. }
            | Instruction::Wait { .. }
            | Instruction::Put { .. }
            | Instruction::PutPacket { .. }
            | Instruction::TakePackets { .. }
            | Instruction::Join(_)
    )
}

/// What a kernel is answered if the instruction is left out; `None` if it asks for data.
pub(crate) fn without(instruction: &Instruction) -> Option<Answer> {
    match instruction {
        Instruction::CopyAsync { .. } => Some(Answer::Ticket(Ticket(u64::MAX))),
        other => is_answered_done(other).then_some(Answer::Done),
    }
}

impl Mutation {
    /// The instruction with its operands changed; `None` if there is no such operand.
    pub(crate) fn of(self, instruction: &Instruction) -> Option<Instruction> {
        let mut wrong = instruction.clone();
        match (self, &mut wrong) {
            (Mutation::WaitLess, Instruction::Wait { operand, .. }) => *operand = operand.wrapping_sub(1),
            (Mutation::WaitMore, Instruction::Wait { operand, .. }) => *operand = operand.wrapping_add(1),
            (
                Mutation::SetLess,
                Instruction::Notify {
                    how: Notify::Set(value) | Notify::Add(value),
                    ..
                }
                | Instruction::Put { value, .. },
            ) => *value = value.wrapping_sub(1),
            (
                Mutation::SetMore,
                Instruction::Notify {
                    how: Notify::Set(value) | Notify::Add(value),
                    ..
                }
                | Instruction::Put { value, .. },
            ) => *value = value.wrapping_add(1),
            (Mutation::SetForAdd, Instruction::Notify { how, .. }) => {
                let Notify::Add(value) = *how else { return None };
                *how = Notify::Set(value);
            }
            (
                Mutation::NextSignal,
                Instruction::Notify { signal, .. }
                | Instruction::Wait { signal, .. }
                | Instruction::Put { full: signal, .. }
                | Instruction::PutPacket { flag: signal, .. },
            ) => *signal = signal_of_next(signal)?,
            (
                Mutation::NextEpoch,
                Instruction::PutPacket { epoch, .. } | Instruction::TakePackets { epoch, .. },
            ) => {
                *epoch = epoch.next();
            }
            (Mutation::FewerSources, Instruction::Reduce { sources, .. }) if sources.len() > 1 => {
                sources.pop();
            }
            (Mutation::FewerSources, Instruction::TakePackets { sources, .. }) if sources.len() > 1 => {
                sources.pop();
            }
            (Mutation::NextData, other) => data_of_next(other)?,
            (Mutation::Further, other) => further(other)?,
            (Mutation::Shorter, other) => shorter(other)?,
            _ => return None,
        }
        Some(wrong)
    }
}

fn signal_of_next(signal: &Signal) -> Option<Signal> {
    let next = Rank((signal.rank().0 + 1) % signal.ranks());
    signal.on(next).ok().filter(|other| other != signal)
}

/// The operand that is written, and those that are read.
fn spans(instruction: &mut Instruction) -> (Option<&mut Span>, Vec<&mut Span>) {
    match instruction {
        Instruction::Copy { dst, src } | Instruction::CopyAsync { dst, src } => (Some(dst), vec![src]),
        Instruction::Reduce { dst, sources, .. } => (Some(dst), sources.iter_mut().collect()),
        Instruction::Load { src } | Instruction::Take { slot: src } => (None, vec![src]),
        Instruction::Store { dst, .. } | Instruction::Put { slot: dst, .. } => (Some(dst), Vec::new()),
        Instruction::PutPacket { payload, src, .. } => (Some(payload), vec![src]),
        Instruction::TakePackets { dst, sources, .. } => (
            Some(dst),
            sources.iter_mut().map(|source| &mut source.payload).collect(),
        ),
        _ => (None, Vec::new()),
    }
}

fn data_of_next(instruction: &mut Instruction) -> Option<()> {
    let (written, read) = spans(instruction);
    let in_window = written.into_iter().chain(read).find(|span| span.ranks > 1)?;
    in_window.rank = Rank((in_window.rank.0 + 1) % in_window.ranks);
    Some(())
}

fn further(instruction: &mut Instruction) -> Option<()> {
    let (written, read) = spans(instruction);
    let span = written.into_iter().chain(read).next()?;
    span.start += 1;
    (span.len > 0).then_some(())
}

fn shorter(instruction: &mut Instruction) -> Option<()> {
    match instruction {
        // The kernel gets a tile of the length that it asked for.
        Instruction::Load { .. } | Instruction::Take { .. } | Instruction::Store { .. } => return None,
        Instruction::Put { slot, data, .. } => {
            slot.len = slot.len.checked_sub(1)?;
            *data = data.part(0..slot.byte_len());
            return Some(());
        }
        _ => {}
    }
    let (written, read) = spans(instruction);
    for span in [written?].into_iter().chain(read) {
        span.len = span.len.checked_sub(1)?;
    }
    Some(())
}

/// Whether exchanging two instructions of one rank can only do what the program could do before.
pub(crate) fn may_be_exchanged(first: &Instruction, second: &Instruction) -> bool {
    let is_data = |one: &Instruction| {
        matches!(
            one,
            Instruction::Copy { .. }
                | Instruction::Reduce { .. }
                | Instruction::Load { .. }
                | Instruction::Store { .. }
                | Instruction::CopyBlock { .. }
                | Instruction::LoadBlock { .. }
                | Instruction::StoreBlock { .. }
                | Instruction::Spend(_)
        )
    };
    let is_wait = |one: &Instruction| match one {
        Instruction::Wait { compare, .. } => matches!(compare, Compare::Ge | Compare::Gt),
        Instruction::OwnValue { .. } => true,
        _ => false,
    };
    match (first, second) {
        _ if is_data(first) && is_data(second) => !conflict(first, second),
        // An access that comes later than a wait or a join is ordered after more.
        (_, Instruction::Join(_)) => is_data(first),
        (_, Instruction::TakePackets { .. } | Instruction::CopyAsync { .. }) => {
            is_data(first) && !conflict(first, second)
        }
        _ if is_data(first) => is_wait(second),
        // A notify that comes later releases more.
        (Instruction::Notify { .. }, _) if is_data(second) => true,
        (Instruction::Notify { signal, .. }, Instruction::Notify { signal: other, .. }) => signal != other,
        (Instruction::Notify { signal, .. }, Instruction::OwnValue { signal: other }) => signal != other,
        _ => is_wait(first) && is_wait(second),
    }
}

/// Whether exchanging two instructions can only make ranks wait longer: the first publishes something, and does so later.
/// Then more is ordered than before, so that nothing is wrong with the program if no rank waits for ever.
pub(crate) fn only_delays(first: &Instruction, second: &Instruction) -> bool {
    let publishes = matches!(
        first,
        Instruction::Notify { .. } | Instruction::Put { .. } | Instruction::PutPacket { .. }
    );
    let is_other = match (signal_of(first), signal_of(second)) {
        (Some(a), Some(b)) => a != b,
        _ => true,
    };
    publishes && is_other && !matches!(second, Instruction::CopyAsync { .. }) && !conflict(first, second)
}

fn conflict(first: &Instruction, second: &Instruction) -> bool {
    let (a, b) = (Operands::of(first), Operands::of(second));
    let overlap = |one: &Span, other: &Span| match (one.byte_range(), other.byte_range()) {
        (Some(x), Some(y)) => one.segment == other.segment && x.start < y.end && y.start < x.end,
        _ => true,
    };
    let any = |all: &[Span], others: &[Span]| {
        all.iter()
            .any(|one| others.iter().any(|other| overlap(one, other)))
    };
    any(&a.writes, &b.writes) || any(&a.writes, &b.reads) || any(&a.reads, &b.writes)
}
