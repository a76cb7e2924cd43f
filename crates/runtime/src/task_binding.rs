//! Binding: a task with its ranks and addresses filled in, and the memory that its arguments say it touches.
//!
//! # Rules
//! - **BIND-1 (own memory).** `In`, `Out` and `InOut`, and blocks of these, touch the bytes that they name;
//!   overlapping accesses are ordered if one of them writes.
//! - **BIND-2 (shared memory).** A `Shared`, `Signals`, `Barrier` or team counts as a read and write of its chip's
//!   own part. Tasks of one chip, and groups that have a chip in common, keep the order of submission. Between tasks
//!   of different chips nothing is inferred: kernels order that with signals.
//! - **BIND-3 (held).** The memory of a task is freed only after the task has ended.

use crate::error::{Error, Result};
use crate::node::State;
use ringwork_engine::{AccessKind, BufferId, SignalId, Spec, View};
use ringwork_isa::{
    Arg, Barrier, BlockSpan, KernelId, Rank, SIGNAL_STRIDE_BYTES, Segment, Signal, Signals, Span, Tag, Task,
    TeamMemory,
};
use std::fmt;

/// The placeholder for my own rank in a handle to one member's part, until it is known which chip runs the task.
pub(crate) const WHOEVER: Rank = Rank(u32::MAX);

/// A task of the graph.
#[derive(Debug)]
pub(crate) struct BoundTask {
    pub(crate) parts: Parts,
    /// Segments that the task keeps alive (BIND-3).
    pub(crate) segments: Vec<Segment>,
    /// Signals that it waits for.
    pub(crate) signals: Vec<Signal>,
    /// The number of them that must hold before it starts; the others must hold before it counts as done.
    pub(crate) to_start: usize,
}

impl BoundTask {
    /// The cells of the signals that it needs to start.
    pub(crate) fn cells_to_start(&self) -> impl Iterator<Item = u64> {
        let to_start = self.signals.iter().take(self.to_start);
        to_start.map(|signal| signal_id(signal).0)
    }
}

/// What is to be done.
#[derive(Debug)]
pub(crate) enum Parts {
    /// A kernel on each of these chips.
    Chips(Vec<(usize, Task)>),
    /// A kernel on any chip; its ranks are filled in when it is known which.
    Anywhere(Task),
    /// A closure on the host, by name.
    Host(String),
}

impl BoundTask {
    pub(crate) fn kernel(&self) -> Option<&KernelId> {
        match &self.parts {
            Parts::Chips(parts) => parts.first().map(|(_, task)| &task.kernel),
            Parts::Anywhere(task) => Some(&task.kernel),
            Parts::Host(_) => None,
        }
    }
}

impl fmt::Display for BoundTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.parts, self.kernel()) {
            (Parts::Host(name), _) => f.write_str(name),
            (_, Some(kernel)) => kernel.fmt(f),
            (_, None) => f.write_str("nothing"),
        }
    }
}

/// The engine's buffer of a segment. Views are byte ranges of the whole segment, all ranks.
fn buffer_of(segment: Segment) -> BufferId {
    BufferId::new(segment.0.into())
}

/// The number that a signal has in the engine.
pub(crate) fn signal_id(signal: &Signal) -> SignalId {
    let cell = signal.offset().unwrap_or(0) / SIGNAL_STRIDE_BYTES;
    SignalId(u64::from(signal.segment().0) << 32 | cell & u64::from(u32::MAX))
}

/// The engine's access for a kernel's parameter type.
fn access_kind(tag: Tag) -> Option<AccessKind> {
    match tag {
        Tag::Input => Some(AccessKind::Input),
        Tag::Output => Some(AccessKind::OutputExisting),
        Tag::InOut | Tag::Shared => Some(AccessKind::InOut),
        Tag::Value => None,
    }
}

impl State {
    /// Fills in the ranks that a chip has in the domains of a task's arguments, and adds what the task
    /// touches there to `spec` and what it keeps to `segments`.
    pub(crate) fn bind(
        &self,
        chip: usize,
        task: &Task,
        spec: &mut Spec,
        segments: &mut Vec<Segment>,
    ) -> Result<Task> {
        let mut args = Vec::with_capacity(task.args.len());
        for (index, arg) in task.args.iter().enumerate() {
            let tag = task.params.get(index).map_or(Tag::Input, |param| param.tag);
            args.push(self.bind_arg(chip, *arg, tag, spec, segments)?);
        }
        Ok(Task {
            kernel: task.kernel.clone(),
            params: task.params,
            args,
        })
    }

    fn bind_arg(
        &self,
        chip: usize,
        arg: Arg,
        tag: Tag,
        spec: &mut Spec,
        segments: &mut Vec<Segment>,
    ) -> Result<Arg> {
        let Some(segment) = arg.segment() else {
            return Ok(arg);
        };
        if let Some(bound) = self.bind_intermediate(chip, &arg, tag, spec)? {
            return Ok(bound);
        }
        let arg = on_rank(arg, self.rank_in(chip, segment)?);
        touch(spec, &arg, tag);
        keep(segments, segment);
        Ok(arg)
    }

    /// The rank of a chip in a segment that it has a part in.
    fn rank_in(&self, chip: usize, segment: Segment) -> Result<Rank> {
        self.usable(segment)?;
        let known = &self.segments[&segment];
        known.members.rank_of(chip).ok_or_else(|| Error::NotAMember {
            device: self.devices[chip],
            what: known.what.clone(),
        })
    }

    /// A task that may run on any chip, translated for `chip`. It was checked when it was submitted.
    pub(crate) fn bind_late(&self, chip: usize, task: &Task) -> Task {
        let rank = |segment| {
            let known = self.segments.get(&segment);
            let rank = known.and_then(|known| known.members.rank_of(chip));
            rank.unwrap_or(Rank(0))
        };
        let bound = |arg: &Arg| arg.segment().map_or(*arg, |segment| on_rank(*arg, rank(segment)));
        Task {
            args: task.args.iter().map(bound).collect(),
            ..task.clone()
        }
    }

    /// Adds the memory that a task on any chip touches; returns the chips that have all of it.
    pub(crate) fn bind_anywhere(
        &self,
        task: &Task,
        spec: &mut Spec,
        segments: &mut Vec<Segment>,
    ) -> Result<Vec<usize>> {
        let mut chips: Vec<usize> = (0..self.devices.len())
            .filter(|chip| self.backend.end(*chip).is_none())
            .collect();
        for (arg, param) in task.args.iter().zip(task.params) {
            let Some(segment) = arg.segment() else { continue };
            if let Some(placed) = self.intermediate(segment)? {
                chips.retain(|chip| *chip == placed.chip);
                self.bind_intermediate(placed.chip, arg, param.tag, spec)?;
                continue;
            }
            self.usable(segment)?;
            let known = &self.segments[&segment];
            let named = arg
                .own_memory()
                .is_some_and(|span| span.stride == 0 || span.me == WHOEVER);
            if !named {
                let why = format!(
                    "parameter `{}` is a per-chip view of {}; pass `.on(rank)`, or submit to one chip",
                    param.name, known.what
                );
                return Err(Error::config("anywhere", why));
            }
            chips.retain(|chip| known.members.chips.contains(chip));
            touch(spec, arg, param.tag);
            keep(segments, segment);
        }
        if chips.is_empty() {
            let why = format!("no chip has all the memory that `{}` uses", task.kernel);
            return Err(Error::config("anywhere", why));
        }
        Ok(chips)
    }

    /// Adds the memory that a host closure declares: of a domain's buffer every member's part, unless it names one.
    pub(crate) fn bind_on_host(
        &self,
        arg: Arg,
        tag: Tag,
        spec: &mut Spec,
        segments: &mut Vec<Segment>,
    ) -> Result<()> {
        let Some(segment) = arg.segment() else {
            return Ok(());
        };
        if let Some(placed) = self.intermediate(segment)? {
            return self.bind_intermediate(placed.chip, &arg, tag, spec).map(drop);
        }
        self.usable(segment)?;
        keep(segments, segment);
        match arg {
            Arg::Memory(span) | Arg::Window(span) if span.me != WHOEVER && span.stride != 0 => {
                for rank in (0..span.ranks).map(Rank) {
                    touch(spec, &Arg::Memory(Span { rank, ..span }), tag);
                }
            }
            Arg::Block(block) if block.extent.me != WHOEVER && block.extent.stride != 0 => {
                for rank in (0..block.extent.ranks).map(Rank) {
                    let extent = Span { rank, ..block.extent };
                    touch(spec, &Arg::Block(BlockSpan { extent, ..block }), tag);
                }
            }
            _ => touch(spec, &arg, tag),
        }
        Ok(())
    }

    /// Adds the memory that a chip's task declares in addition to its arguments.
    pub(crate) fn bind_extra(
        &self,
        chip: usize,
        arg: Arg,
        tag: Tag,
        spec: &mut Spec,
        segments: &mut Vec<Segment>,
    ) -> Result<()> {
        self.bind_arg(chip, arg, tag, spec, segments).map(drop)
    }

    /// Adds the segment of a condition's signal to those that the task keeps alive.
    pub(crate) fn bind_signal(&self, signal: &Signal, segments: &mut Vec<Segment>) -> Result<()> {
        self.usable(signal.segment())?;
        keep(segments, signal.segment());
        Ok(())
    }
}

fn keep(segments: &mut Vec<Segment>, segment: Segment) {
    if !segments.contains(&segment) {
        segments.push(segment);
    }
}

/// Adds the bytes of a bound argument to the spec (BIND-1, BIND-2).
fn touch(spec: &mut Spec, arg: &Arg, tag: Tag) {
    if let (Some(segment), Some(view), Some(kind)) = (arg.segment(), view(arg), access_kind(tag)) {
        spec.touch(buffer_of(segment), view, kind);
    }
}

/// The bytes of its segment that an argument covers, if it is memory: of a block only its rows.
pub(crate) fn view(arg: &Arg) -> Option<View> {
    match arg {
        Arg::Memory(span) | Arg::Window(span) => span.byte_range().map(View::range),
        Arg::Block(block) => {
            let rows = block.byte_rows()?;
            View::strided(rows.start, rows.rows, rows.row_bytes, rows.pitch).ok()
        }
        Arg::Signals(row) => cells(row).map(View::range),
        Arg::Barrier(barrier) => cells(&barrier.signals()).map(View::range),
        // A team's memory is only ever used through the team, so the range of its cells stands for all of it.
        Arg::Team(team) => cells(&team.cells).map(View::range),
        Arg::Value(_) => None,
    }
}

/// The bytes of a chip's own cells.
fn cells(row: &Signals) -> Option<std::ops::Range<u64>> {
    let start = row.base.checked_add(row.stride.checked_mul(row.me.0.into())?)?;
    Some(start..start.checked_add(u64::from(row.count) * SIGNAL_STRIDE_BYTES)?)
}

/// An argument as the chip with this rank sees it.
fn on_rank(arg: Arg, me: Rank) -> Arg {
    let span = |span: Span| match span {
        Span { stride: 0, .. } => span,
        Span { me: WHOEVER, .. } => Span { me, ..span },
        _ => Span { me, rank: me, ..span },
    };
    let signals = |row: Signals| Signals { me, ..row };
    match arg {
        Arg::Memory(region) => Arg::Memory(span(region)),
        Arg::Window(region) => Arg::Window(span(region)),
        Arg::Block(block) => Arg::Block(BlockSpan {
            extent: span(block.extent),
            ..block
        }),
        Arg::Signals(row) => Arg::Signals(signals(row)),
        Arg::Barrier(barrier) => Arg::Barrier(Barrier::new(signals(barrier.signals()))),
        Arg::Team(team) => Arg::Team(TeamMemory {
            cells: signals(team.cells),
            data: span(team.data),
            ..team
        }),
        Arg::Value(value) => Arg::Value(value),
    }
}
