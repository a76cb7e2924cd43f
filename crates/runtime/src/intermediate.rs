//! Intermediate tensors: memory between tasks, from a ring on each chip, freed when its scope is over.
//!
//! A handle has the number of a segment that does not exist; submitting a task translates the number into a place in
//! the chip's ring. So a handle that outlives its scope refers to nothing, and never to memory of another use.

use crate::backend::{Layout, Members, Order, SegmentPlan};
use crate::error::{Error, Result};
use crate::handle_ops;
use crate::node::{Shared, State};
use crate::run_to_completion::Progress;
use crate::task_binding;
use ringwork_engine::{AccessKind, Arena, BufferId, Outcome, Spec};
use ringwork_isa::{Arg, Device, Dtype, Element, Segment, Span, Tag};
use std::marker::PhantomData;
use std::ops::Range;

/// Set in segment numbers that stand for an intermediate.
const INTERMEDIATE: u32 = 1 << 31;

/// Elements in a chip's memory that live until their scope has ended and the tasks that use them are done. Their
/// initial values are unspecified. Pass it where a kernel has an `In`, `Out` or `InOut`. Made by
/// [`Orchestrator::intermediate`](crate::Orchestrator::intermediate).
#[derive(Debug)]
pub struct Intermediate<T> {
    span: Span,
    device: Device,
    element: PhantomData<fn() -> T>,
}

impl<T> Clone for Intermediate<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Intermediate<T> {}

impl<T: Element> Intermediate<T> {
    /// The handle to a span whose elements have the type `T`.
    pub(crate) fn new(span: Span, device: Device) -> Intermediate<T> {
        Intermediate {
            span,
            device,
            element: PhantomData,
        }
    }

    /// The chip it is on.
    #[must_use]
    pub fn device(&self) -> Device {
        self.device
    }

    /// A range of its elements, in the same memory.
    ///
    /// # Errors
    /// If they are not all inside.
    pub fn slice(&self, range: Range<usize>) -> Result<Intermediate<T>> {
        let span = handle_ops::slice(&self.span, range, || self.what())?;
        Ok(Intermediate { span, ..*self })
    }

    fn what(&self) -> String {
        format!("an intermediate on device {}", self.device)
    }
}

handle_ops::counted!(Intermediate);
handle_ops::matrix!(Intermediate);
handle_ops::chip_argument!(Intermediate);

/// Where an intermediate is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placed {
    pub(crate) chip: usize,
    buffer: BufferId,
    /// The ring's segment, and the byte of it where this begins.
    ring: Segment,
    base: u64,
}

/// Allocates in the innermost scope, waiting for room.
pub(crate) fn allocate(node: &Shared, device: Device, dtype: Dtype, count: usize) -> Result<Span> {
    let bytes = (count as u64).saturating_mul(dtype.bytes() as u64);
    let mut progress = Progress::new();
    loop {
        let mut state = node.lock();
        let chip = state.chip(device)?;
        state.check_alive(chip)?;
        if state.run_is_over() {
            drop(state);
            node.wait_for_all()?;
            continue;
        }
        let arena = Arena(u32::try_from(chip).unwrap_or(u32::MAX));
        match state.engine.allocate(arena, bytes) {
            Err(problem) => return Err(state.refused(problem)),
            Ok(Outcome::Accepted(buffer)) => return state.place(chip, buffer, dtype, count),
            Ok(Outcome::Full { .. }) => {}
        }
        drop(state);
        node.advance(&mut progress);
        node.lock().tell(Order::Waited { all: false });
    }
}

impl State {
    fn place(&mut self, chip: usize, buffer: BufferId, dtype: Dtype, count: usize) -> Result<Span> {
        let layout = self.ring_of(chip)?;
        let offset = self
            .engine
            .placement(buffer)
            .map_or(0, |placement| placement.offset);
        let segment = loop {
            self.next_intermediate = (self.next_intermediate + 1) % INTERMEDIATE;
            let segment = Segment(INTERMEDIATE | self.next_intermediate);
            if !self.intermediates.contains_key(&segment) {
                break segment;
            }
        };
        let placed = Placed {
            chip,
            buffer,
            ring: layout.segment,
            base: layout.data_offset() + offset,
        };
        self.intermediates.insert(segment, placed);
        let bytes = (count as u64).saturating_mul(dtype.bytes() as u64);
        self.tell(Order::HandedOut {
            segment: placed.ring,
            bytes: placed.base..placed.base.saturating_add(bytes),
        });
        if let Some(scope) = self.scopes.last_mut() {
            scope.push(segment);
        }
        Ok(handle_ops::private(segment, 0, dtype, count))
    }

    /// The ring of a chip, made when it is first needed.
    fn ring_of(&mut self, chip: usize) -> Result<Layout> {
        if let Some(layout) = self.rings[chip] {
            return Ok(layout);
        }
        let layout = Layout::private(self.fresh_segment(), self.intermediate_bytes)
            .map_err(ringwork_native::Error::from)?;
        let plan = SegmentPlan {
            layout,
            what: format!("the intermediates of device {}", self.devices[chip]),
            members: Members::all([chip]),
            signals: Vec::new(),
        };
        self.backend.create(&plan)?;
        self.rings[chip] = Some(layout);
        Ok(layout)
    }

    /// Where a segment's intermediate is, if it stands for one.
    pub(crate) fn intermediate(&self, segment: Segment) -> Result<Option<Placed>> {
        if segment.0 & INTERMEDIATE == 0 {
            return Ok(None);
        }
        self.check_open()?;
        let what = || "an intermediate whose scope has ended".into();
        let found = self.intermediates.get(&segment).copied();
        found.map(Some).ok_or_else(|| Error::Released { what: what() })
    }

    /// Translates an argument that is an intermediate for its chip, and adds the memory that it touches to `spec`.
    pub(crate) fn bind_intermediate(
        &self,
        chip: usize,
        arg: &Arg,
        tag: Tag,
        spec: &mut Spec,
    ) -> Result<Option<Arg>> {
        let Some(span) = arg.own_memory() else {
            return Ok(None);
        };
        let Some(placed) = self.intermediate(span.segment)? else {
            return Ok(None);
        };
        if placed.chip != chip {
            return Err(Error::NotAMember {
                device: self.devices[chip],
                what: format!("an intermediate on device {}", self.devices[placed.chip]),
            });
        }
        let kind = match tag {
            Tag::Input => AccessKind::Input,
            Tag::Output => AccessKind::Output,
            _ => AccessKind::InOut,
        };
        if let Some(view) = task_binding::view(arg) {
            spec.touch(placed.buffer, view, kind);
        }
        let mut bound = *arg;
        if let Some(span) = bound.own_memory_mut() {
            (span.segment, span.base) = (placed.ring, placed.base);
        }
        Ok(Some(bound))
    }

    pub(crate) fn begin_scope(&mut self) -> Result<usize> {
        self.engine
            .begin_scope()
            .map_err(|problem| self.refused(problem))?;
        self.scopes.push(Vec::new());
        Ok(self.scopes.len())
    }

    /// Ends the scope that [`begin_scope`](Self::begin_scope) made the `depth`th, if no failure has already.
    pub(crate) fn end_scope(&mut self, depth: usize) {
        if self.scopes.len() != depth {
            return;
        }
        for segment in self.scopes.pop().unwrap_or_default() {
            self.intermediates.remove(&segment);
        }
        // The engine's scopes are as deep as ours.
        let _ = self.engine.end_scope();
    }

    /// Drops all intermediates; the next run begins without any.
    pub(crate) fn forget_intermediates(&mut self) {
        self.intermediates.clear();
        self.scopes.clear();
        self.scopes.push(Vec::new());
    }
}
