//! Instructions: what each asks of the machine, and when it is answered.
//!
//! # The model
//! - **Copies and stores are posted**: the core goes on as soon as a DMA engine (or a place in its queue)
//!   has taken them. Memory they still use is guarded: an instruction of the same core that would read what
//!   is still arriving, or overwrite what is still being read, waits. So a kernel sees program order, and
//!   transfers overlap with each other and with compute wherever the program lets them.
//! - **Asynchronous copies** are posted as all copies are; joining one waits until it has arrived.
//! - **Reading from another chip** costs the way there, then the bytes' way back.
//! - **A notification follows** its core's earlier transfers: it is on the same FIFO links behind those to
//!   the same chip, and is not seen before those to other chips have arrived either. That costs no
//!   acknowledgement.
//! - **Loads and reductions** keep the core until they are done.
//! - **Arithmetic** keeps its engine, and the core only if it asks for anything but a load: so the next tile is loaded
//!   while this one is computed with. Kernels on the same rank share its vector and its matrix engine.
//! - **Resources are charged when they are granted**: a queued transfer enters its first link when an
//!   engine takes it, not when it was issued.
//! - **Data moves when its time comes**: see `moves`.

use super::guards::Until;
use super::memory::Located;
use super::state::{Event, Recent, Reply, State, Waiting, Wanted};
use super::transfer::Fetch;
use crate::time::Ps;
use ringwork_isa::stepped::{Answer, Instruction, Payload};
use ringwork_isa::{BlockSpan, Dtype, Error, ErrorKind, ReduceOp, Result, Signal, Site, Span};
use std::panic::Location;
use std::task::Poll;

/// Peeks at one instant that cost nothing; more mean that a kernel polls.
const FREE_PEEKS: u32 = 64;
/// What polling costs after that.
const POLL_PS: Ps = 50_000;

/// How far an instruction has got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// It is answered.
    Done,
    /// It is answered with a signal's value.
    Value(i32),
    /// It is answered with yes or no.
    Tested(bool),
    /// The core has its answer, or will get it with an event.
    Later,
    /// Memory or a DMA queue is in the way: it has to be tried again.
    Again,
}

impl State {
    /// Takes an instruction; the answer is either there at once, or comes with an event.
    pub(crate) fn issue(
        &mut self,
        core: u32,
        instruction: Instruction,
        at: &'static Location<'static>,
    ) -> Poll<Result<Answer>> {
        self.core(core).at = Some(at);
        let progress = self.execute(core, &instruction);
        self.begun(core, progress, || instruction)
    }

    /// Goes on from how far an instruction got when it was issued.
    #[inline(always)]
    pub(crate) fn begun(
        &mut self,
        core: u32,
        progress: Result<Progress>,
        instruction: impl FnOnce() -> Instruction,
    ) -> Poll<Result<Answer>> {
        self.schedule_wakes();
        match progress {
            Ok(Progress::Done) => Poll::Ready(Ok(Answer::Done)),
            Ok(Progress::Value(value)) => Poll::Ready(Ok(Answer::Value(value))),
            Ok(Progress::Tested(yes)) => Poll::Ready(Ok(Answer::Tested(yes))),
            Ok(Progress::Later) => self.answer(core),
            Ok(Progress::Again) => {
                self.core(core).stalled = Some(Box::new(instruction()));
                Poll::Pending
            }
            Err(error) => Poll::Ready(Err(error)),
        }
    }

    /// The answer that a core may see now.
    #[inline]
    pub(crate) fn answer(&mut self, core: u32) -> Poll<Result<Answer>> {
        let state = self.core(core);
        if !state.open {
            return Poll::Pending;
        }
        match std::mem::take(&mut state.answer) {
            Reply::None => Poll::Pending,
            Reply::Done => Poll::Ready(Ok(Answer::Done)),
            Reply::Value(value) => Poll::Ready(Ok(Answer::Value(value))),
            Reply::Tested(yes) => Poll::Ready(Ok(Answer::Tested(yes))),
            Reply::Loaded(moved) => {
                let now = self.now();
                let loaded = moved.map_or(Payload::Hollow, |moved| self.memory.brought(moved, now));
                Poll::Ready(Ok(Answer::Loaded(Box::new(loaded))))
            }
            Reply::Other(other) => Poll::Ready(*other),
        }
    }

    /// Whether a core that waits for a signal may go on.
    #[inline(always)]
    pub(crate) fn wait_answer(&mut self, core: u32) -> Poll<Result<()>> {
        let state = self.core(core);
        if let (true, Reply::Done) = (state.open, &state.answer) {
            state.answer = Reply::None;
            return Poll::Ready(Ok(()));
        }
        self.answer(core).map(|answer| answer.map(drop))
    }

    /// Tries an instruction again that had to wait for memory or a DMA queue.
    pub(crate) fn retry(&mut self, core: u32) {
        let Some(instruction) = self.core(core).stalled.take() else {
            return;
        };
        let now = self.now();
        match self.execute(core, &instruction) {
            Ok(Progress::Done) => self.reply(core, now, Reply::Done),
            Ok(Progress::Value(value)) => self.reply(core, now, Reply::Value(value)),
            Ok(Progress::Tested(yes)) => self.reply(core, now, Reply::Tested(yes)),
            Ok(Progress::Later) => {}
            Ok(Progress::Again) => self.core(core).stalled = Some(instruction),
            Err(error) => self.reply(core, now, Reply::Other(Box::new(Err(error)))),
        }
    }

    /// Does what it can.
    fn execute(&mut self, core: u32, instruction: &Instruction) -> Result<Progress> {
        let may_overlap = matches!(
            instruction,
            Instruction::Load { .. } | Instruction::LoadBlock { .. }
        );
        if !may_overlap && self.is_computing(core) {
            let until_ps = self.core(core).computing_until_ps;
            self.queue.push(until_ps, Event::Retry(core));
            return Ok(Progress::Again);
        }
        match instruction {
            Instruction::Copy { dst, src } => self.copy(core, dst, src),
            Instruction::CopyAsync { dst, src } => self.copy_async(core, dst, src),
            Instruction::Join(ticket) => self.join(core, *ticket),
            Instruction::Put {
                slot,
                data,
                full,
                value,
            } => self.put(core, slot, data, (full, *value)),
            Instruction::Take { slot } => self.take(core, slot),
            Instruction::Reduce { dst, sources, op } => self.reduce(core, dst, sources, *op),
            Instruction::Load { src } => {
                let src = self.locate(core, src)?;
                Ok(self.load(core, src))
            }
            Instruction::Store { dst, data } => {
                let dst = self.locate(core, dst)?;
                Ok(self.store(core, dst, data))
            }
            Instruction::CopyBlock { dst, src } => {
                let (dst, src) = (self.locate_block(core, dst)?, self.locate_block(core, src)?);
                let posted = self.begin_copy_located(core, dst, src)?;
                Ok(posted.map_or(Progress::Again, |_| Progress::Done))
            }
            Instruction::LoadBlock { src } => {
                let src = self.locate_block(core, src)?;
                Ok(self.load(core, src))
            }
            Instruction::StoreBlock { dst, data } => {
                let dst = self.locate_block(core, dst)?;
                Ok(self.store(core, dst, data))
            }
            Instruction::Spend(work) => {
                let end_ps = self.compute(core, *work);
                let core = self.core(core);
                core.computing_until_ps = end_ps;
                core.floor_ps = core.floor_ps.max(end_ps);
                Ok(Progress::Done)
            }
            Instruction::Notify { signal, how } => self.notify(core, signal, *how),
            Instruction::Wait {
                signal,
                compare,
                operand,
            } => self.wait(core, signal, Wanted::Until(*compare, *operand)),
            Instruction::Test {
                signal,
                compare,
                operand,
            } => self.wait(core, signal, Wanted::Test(*compare, *operand)),
            Instruction::Peek { signal } | Instruction::OwnValue { signal } => {
                self.wait(core, signal, Wanted::Value)
            }
            Instruction::PutPacket {
                payload,
                src,
                flag,
                epoch,
            } => self.put_packet(core, payload, src, (flag, *epoch)),
            Instruction::TakePackets {
                dst,
                sources,
                op,
                epoch,
            } => self.take_packets(core, dst, sources, (*op, *epoch)),
        }
    }

    /// Whether an engine still works for this core.
    #[inline(always)]
    pub(crate) fn is_computing(&mut self, core: u32) -> bool {
        let now = self.now();
        self.core(core).computing_until_ps > now
    }

    pub(crate) fn site(&mut self, core: u32) -> Site {
        self.core(core).at.map_or_else(Site::caller, Into::into)
    }

    #[inline(always)]
    pub(crate) fn locate(&mut self, core: u32, span: &Span) -> Result<Located> {
        let rank = self.core(core).rank;
        match self.memory.locate(rank, span) {
            Some(located) => Ok(located),
            None => Err(self.not_mapped(core, span)),
        }
    }

    fn locate_block(&mut self, core: u32, block: &BlockSpan) -> Result<Located> {
        let rank = self.core(core).rank;
        match self.memory.locate_block(rank, block) {
            Some(located) => Ok(located),
            None => Err(self.not_mapped(core, &block.extent)),
        }
    }

    #[cold]
    #[inline(never)]
    fn not_mapped(&mut self, core: u32, span: &Span) -> Error {
        let range = span.byte_range().unwrap_or(span.base..span.base);
        let site = self.site(core);
        let not_mapped = ErrorKind::NotMapped {
            segment: span.segment,
            start: range.start,
            end: range.end,
            site,
        };
        not_mapped.into()
    }

    #[inline(always)]
    pub(crate) fn refuse_overlap(&mut self, core: u32, dst: &Located, sources: &[Located]) -> Result<()> {
        let bad = sources
            .iter()
            .position(|source| source.overlaps(dst) && source != dst);
        match bad {
            None => Ok(()),
            Some(index) => Err(ErrorKind::Overlap {
                source_index: u32::try_from(index).unwrap_or(u32::MAX),
                site: self.site(core),
            }
            .into()),
        }
    }

    /// Whether this memory is free of the core's own posted transfers. If not, the core will try again.
    #[inline(always)]
    pub(crate) fn clear(&mut self, core: u32, reads: &[Located], write: Option<&Located>) -> bool {
        let now = self.now();
        self.core(core).guards.all_over(now) || self.clear_of_guards(core, reads, write)
    }

    fn clear_of_guards(&mut self, core: u32, reads: &[Located], write: Option<&Located>) -> bool {
        let now = self.now();
        let state = self.core(core);
        let blocked = state.guards.blocking(&state.inflight, now, reads, write);
        if let Some(Until::At(at)) = blocked {
            self.queue.push(at, Event::Retry(core));
        }
        blocked.is_none()
    }

    #[inline(always)]
    pub(crate) fn copy(&mut self, core: u32, dst: &Span, src: &Span) -> Result<Progress> {
        Ok(match self.begin_copy(core, dst, src)? {
            Some(_) => Progress::Done,
            None => Progress::Again,
        })
    }

    /// Posts a copy, and says when it is over; `None` if the core has to try again.
    #[inline(always)]
    pub(crate) fn begin_copy(&mut self, core: u32, dst: &Span, src: &Span) -> Result<Option<Until>> {
        let (dst, src) = (self.locate(core, dst)?, self.locate(core, src)?);
        self.begin_copy_located(core, dst, src)
    }

    #[inline(always)]
    fn begin_copy_located(&mut self, core: u32, dst: Located, src: Located) -> Result<Option<Until>> {
        self.refuse_overlap(core, &dst, &[src])?;
        if !self.clear(core, &[src], Some(&dst)) {
            return Ok(None);
        }
        Ok(self.post(core, Some(&src), &dst, None))
    }

    fn store(&mut self, core: u32, dst: Located, data: &Payload) -> Progress {
        if !self.clear(core, &[], Some(&dst)) || self.post(core, None, &dst, Some(data)).is_none() {
            return Progress::Again;
        }
        Progress::Done
    }

    fn load(&mut self, core: u32, src: Located) -> Progress {
        if !self.clear(core, &[src], None) {
            return Progress::Again;
        }
        let now = self.now();
        let asked_ps = self.asked_at(core, &[src]);
        let moved = self.memory.move_to_core(&src, (now, asked_ps));
        self.fetch(core, (&[src], Fetch::Asked), None, 0, Reply::Loaded(moved));
        Progress::Later
    }

    #[inline(always)]
    pub(crate) fn reduce(
        &mut self,
        core: u32,
        dst: &Span,
        sources: &[Span],
        op: ReduceOp,
    ) -> Result<Progress> {
        let dtype = dst.dtype;
        let dst = self.locate(core, dst)?;
        let mut located = std::mem::take(&mut self.operands);
        located.clear();
        for source in sources {
            located.push(self.locate(core, source)?);
        }
        let done = self.reduce_located(core, dst, &located, dtype, op);
        self.operands = located;
        done
    }

    #[inline(always)]
    fn reduce_located(
        &mut self,
        core: u32,
        dst: Located,
        located: &[Located],
        dtype: Dtype,
        op: ReduceOp,
    ) -> Result<Progress> {
        self.refuse_overlap(core, &dst, located)?;
        if !self.clear(core, located, Some(&dst)) {
            return Ok(Progress::Again);
        }
        let now = self.now();
        if self.memory.keeps_data() {
            let asked_ps = self.asked_at(core, located);
            let moved = self
                .memory
                .move_reduced(&dst, located, (dtype, op), (now, asked_ps));
            self.core(core).reduced = moved;
        }
        let combine = dst.bytes().saturating_mul(located.len() as u64 - 1);
        self.fetch(core, (located, Fetch::Asked), Some(dst), combine, Reply::Done);
        Ok(Progress::Later)
    }

    /// When the requests for these places have all got there.
    fn asked_at(&mut self, core: u32, places: &[Located]) -> Ps {
        let (now, rank) = (self.now(), self.core(core).rank);
        let requests = places.iter().map(|place| self.latency(rank, place.rank));
        now.saturating_add(requests.max().unwrap_or(0))
    }

    /// The slot of a signal and the rank that owns it.
    #[inline(always)]
    pub(crate) fn slot(&mut self, core: u32, signal: &Signal) -> Result<(u32, u32)> {
        let (segment, generation) = (signal.segment().0, self.signals.generation());
        let index = usize::from(signal.rank() == signal.holder());
        let recent = self.core(core).recent[index];
        if recent.generation == generation
            && recent.segment == segment
            && signal.offset() == Some(recent.offset)
        {
            return Ok((recent.slot, recent.owner));
        }
        let (slot, owner) = self.find_slot(core, signal)?;
        self.core(core).recent[index] = Recent {
            segment,
            generation,
            offset: signal.offset().unwrap_or(u64::MAX),
            slot,
            owner,
        };
        Ok((slot, owner))
    }

    fn find_slot(&mut self, core: u32, signal: &Signal) -> Result<(u32, u32)> {
        let segment = signal.segment();
        let found = self
            .memory
            .get(segment.0)
            .zip(signal.offset())
            .and_then(|(stored, offset)| {
                let owner = *stored.members.get(signal.rank().0 as usize)?;
                (offset.checked_add(4)? <= stored.bytes).then_some((offset, owner))
            });
        let Some((offset, owner)) = found else {
            let start = signal.offset().unwrap_or(u64::MAX);
            let site = self.site(core);
            return Err(ErrorKind::NotMapped {
                segment,
                start,
                end: start.saturating_add(4),
                site,
            }
            .into());
        };
        let memory = &self.memory;
        let slot = self
            .signals
            .slot(segment.0, offset, || memory.word(segment.0, offset).unwrap_or(0));
        Ok((slot, owner))
    }

    /// Whether a core that has asked for a signal may go on.
    #[inline(always)]
    pub(crate) fn waits(&mut self, core: u32, progress: Result<Progress>) -> Poll<Result<()>> {
        match progress {
            Ok(Progress::Done) => Poll::Ready(Ok(())),
            Ok(_) => self.wait_answer(core),
            Err(error) => Poll::Ready(Err(error)),
        }
    }

    /// Waits for a signal whose question left together with that of the wait before.
    pub(crate) fn wait_beside(&mut self, core: u32, signal: &Signal, wanted: Wanted) -> Result<Progress> {
        let (slot, owner) = self.slot(core, signal)?;
        let (now, rank, asked_ps) = (self.now(), self.core(core).rank, self.core(core).asked_ps);
        if owner == rank {
            return self.wait(core, signal, wanted);
        }
        let (there, back_ps) = (self.latency(rank, owner), self.latency(owner, rank));
        let waiting = Waiting {
            signal: *signal,
            slot,
            wanted,
            since_ps: now,
            back_ps,
        };
        let arrival_ps = asked_ps.saturating_add(there);
        if arrival_ps > now {
            self.core(core).waiting = Some(waiting);
            self.queue.push(arrival_ps, Event::Ask(core));
            return Ok(Progress::Later);
        }
        // The question is there already.
        if self.look(core, &waiting).is_none() {
            self.core(core).waiting = Some(waiting);
            self.await_change(core, &waiting);
            return Ok(Progress::Later);
        }
        let cell = &self.signals.cells[slot as usize];
        let (cause, answered_ps) = (cell.cause, arrival_ps.max(cell.changed_ps));
        let end = answered_ps.saturating_add(back_ps);
        if end <= now {
            return Ok(Progress::Done);
        }
        let row = self.core(core).row;
        self.trace.waited(row, end, cause, &waiting);
        self.reply(core, end, Reply::Done);
        Ok(Progress::Later)
    }

    #[inline(always)]
    pub(crate) fn wait(&mut self, core: u32, signal: &Signal, wanted: Wanted) -> Result<Progress> {
        let (slot, owner) = self.slot(core, signal)?;
        let (now, rank) = (self.now(), self.core(core).rank);
        self.core(core).asked_ps = now;
        let (mut there, mut back_ps) = (0, 0);
        if owner != rank {
            (there, back_ps) = (self.latency(rank, owner), self.latency(owner, rank));
        } else if wanted.condition().is_none() {
            let (at, count) = self.core(core).peeks;
            let count = if at == now { count + 1 } else { 1 };
            self.core(core).peeks = (now, count);
            if count > FREE_PEEKS {
                there = POLL_PS;
            }
        }
        let waiting = Waiting {
            signal: *signal,
            slot,
            wanted,
            since_ps: now,
            back_ps,
        };
        if there > 0 || back_ps > 0 {
            self.core(core).waiting = Some(waiting);
            self.queue.push(now + there, Event::Ask(core));
            return Ok(Progress::Later);
        }
        // Here, at once: nothing was waited for, and nothing is traced.
        match self.look(core, &waiting) {
            Some(Reply::Value(value)) => return Ok(Progress::Value(value)),
            Some(Reply::Tested(yes)) => return Ok(Progress::Tested(yes)),
            Some(_) => return Ok(Progress::Done),
            None => {}
        }
        self.core(core).waiting = Some(waiting);
        self.await_change(core, &waiting);
        Ok(Progress::Later)
    }
}
