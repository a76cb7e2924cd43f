//! Instructions: what each asks of the machine, and when it is answered.
//!
//! # The model
//! - **Copies and stores are posted**: the core goes on as soon as a DMA engine (or a place in its queue)
//!   has taken them. Memory they still use is guarded: an instruction of the same core that would read what
//!   is still arriving, or overwrite what is still being read, waits. So a kernel sees program order, and
//!   transfers overlap with each other and with compute wherever the program lets them.
//! - **Reading from another chip** costs the way there, then the bytes' way back.
//! - **A notification follows** its core's earlier transfers: it is on the same FIFO links behind those to
//!   the same chip, and is not seen before those to other chips have arrived either. That costs no
//!   acknowledgement.
//! - **Loads, reductions and vector arithmetic** keep the core until they are done.
//! - **Resources are charged when they are granted**: a queued transfer enters its first link when an
//!   engine takes it, not when it was issued.
//! - Data moves at issue. A program without races cannot tell.

use super::memory::Located;
use super::state::{Event, Posted, Purpose, Queued, Reply, State, Until, Waiting};
use crate::net::Sent;
use crate::time::Ps;
use ringwork_isa::stepped::{Answer, Instruction};
use ringwork_isa::{Dtype, Error, ReduceOp, Result, Signal, Site, Span};
use std::panic::Location;

/// Peeks at one instant that cost nothing; more mean that a kernel polls.
const FREE_PEEKS: u32 = 64;
/// What polling costs after that.
const POLL_PS: Ps = 50_000;

impl State {
    /// Takes an instruction; the answer is either there at once, or comes with an event.
    pub(crate) fn issue(&mut self, core: u32, instruction: Instruction, at: &'static Location<'static>) {
        self.core(core).at = Some(at);
        if !self.execute(core, &instruction) {
            self.core(core).stalled = Some(Box::new(instruction));
        }
        self.schedule_wakes();
    }

    /// Tries an instruction again that had to wait for memory or a DMA queue.
    pub(crate) fn retry(&mut self, core: u32) {
        if let Some(instruction) = self.core(core).stalled.take()
            && !self.execute(core, &instruction)
        {
            self.core(core).stalled = Some(instruction);
        }
    }

    /// Does what it can; `false` if the core has to try again.
    fn execute(&mut self, core: u32, instruction: &Instruction) -> bool {
        let done = match instruction {
            Instruction::Copy { dst, src } => self.copy(core, dst, src),
            Instruction::Reduce { dst, sources, op } => self.reduce(core, dst, sources, *op),
            Instruction::Load { src } => self.load(core, src),
            Instruction::Store { dst, bytes } => self.store(core, dst, bytes.as_deref()),
            Instruction::Vector { elements, dtype } => {
                let end = self.vector(core, self.now(), elements.saturating_mul(dtype.bytes() as u64));
                self.reply(core, end, Reply::Done);
                Ok(true)
            }
            Instruction::Notify { signal, how } => self.notify(core, signal, *how),
            Instruction::Wait {
                signal,
                compare,
                operand,
            } => self.wait(core, signal, Some((*compare, *operand))),
            Instruction::Peek { signal } => self.wait(core, signal, None),
        };
        done.unwrap_or_else(|error| {
            self.core(core).answer = Reply::Other(Box::new(Err(error)));
            self.open(core);
            true
        })
    }

    fn site(&mut self, core: u32) -> Site {
        self.core(core).at.map_or_else(Site::caller, Into::into)
    }

    fn locate(&mut self, core: u32, span: &Span) -> Result<Located> {
        let rank = self.core(core).rank;
        if let Some(located) = self.memory.locate(rank, span) {
            return Ok(located);
        }
        let range = span.byte_range().unwrap_or(span.base..span.base);
        let site = self.site(core);
        Err(Error::NotMapped {
            segment: span.segment,
            start: range.start,
            end: range.end,
            site,
        })
    }

    fn refuse_overlap(&mut self, core: u32, dst: &Located, sources: &[Located]) -> Result<()> {
        let bad = sources
            .iter()
            .position(|source| source.overlaps(dst) && source != dst);
        match bad {
            None => Ok(()),
            Some(index) => Err(Error::Overlap {
                source_index: u32::try_from(index).unwrap_or(u32::MAX),
                site: self.site(core),
            }),
        }
    }

    /// Whether this memory is free of the core's own posted transfers. If not, the core will try again.
    fn clear(&mut self, core: u32, reads: &[Located], write: Option<&Located>) -> bool {
        let now = self.now();
        let state = self.core(core);
        if state.posted.is_empty() {
            return true;
        }
        let oldest = state.oldest;
        let inflight = std::mem::take(&mut state.inflight);
        let over = |until: Until| match until {
            Until::At(at) => at <= now,
            // Everything before `oldest` has arrived; later ones say so themselves.
            Until::Sequence(s) => {
                s < oldest
                    || usize::try_from(s - oldest).is_ok_and(|i| inflight.get(i).copied().unwrap_or(true))
            }
        };
        state
            .posted
            .retain(|posted| !over(posted.dst.1) || posted.src.is_some_and(|(_, until)| !over(until)));
        let mut blocked: Option<Until> = None;
        let mut block = |until: Until| {
            blocked = Some(match (blocked, until) {
                (Some(Until::At(a)), Until::At(b)) => Until::At(a.max(b)),
                (_, Until::Sequence(s)) => Until::Sequence(s),
                (Some(known), _) => known,
                (None, until) => until,
            });
        };
        for posted in &state.posted {
            let (dst, until) = posted.dst;
            let touched = reads.iter().any(|r| r.overlaps(&dst)) || write.is_some_and(|w| w.overlaps(&dst));
            if touched && !over(until) {
                block(until);
            }
            if let (Some((src, until)), Some(write)) = (posted.src, write)
                && write.overlaps(&src)
                && !over(until)
            {
                block(until);
            }
        }
        state.inflight = inflight;
        if let Some(Until::At(at)) = blocked {
            self.queue.push(at, Event::Retry(core));
        }
        blocked.is_none()
    }

    fn copy(&mut self, core: u32, dst: &Span, src: &Span) -> Result<bool> {
        let (dst, src) = (self.locate(core, dst)?, self.locate(core, src)?);
        self.refuse_overlap(core, &dst, &[src])?;
        if !self.clear(core, &[src], Some(&dst)) {
            return Ok(false);
        }
        if !self.post(core, Some(src), dst) {
            return Ok(false);
        }
        self.memory.copy(&dst, &src);
        self.reply(core, self.now(), Reply::Done);
        Ok(true)
    }

    fn store(&mut self, core: u32, dst: &Span, bytes: Option<&[u8]>) -> Result<bool> {
        let dst = self.locate(core, dst)?;
        if !self.clear(core, &[], Some(&dst)) || !self.post(core, None, dst) {
            return Ok(false);
        }
        if let Some(bytes) = bytes {
            self.memory.store(&dst, bytes);
        }
        self.reply(core, self.now(), Reply::Done);
        Ok(true)
    }

    /// Hands a transfer to a DMA engine or its queue; `false` if both are full.
    fn post(&mut self, core: u32, src: Option<Located>, dst: Located) -> bool {
        let (now, rank) = (self.now(), self.core(core).rank);
        let dma = self.topology.chip.dma;
        let engines = &mut self.engines[rank as usize];
        if engines.dma_free_ps.is_empty() || engines.dma_free_ps.iter().any(|free| *free <= now) {
            self.transfer(core, src, dst, None);
            return true;
        }
        if engines.queue.len() >= dma.queue as usize {
            engines.refused.push_back(core);
            return false;
        }
        let sequence = self.open_sequence(core);
        let until = Until::Sequence(sequence);
        let posted = Posted {
            src: src.map(|src| (src, until)),
            dst: (dst, until),
        };
        self.core(core).posted.push(posted);
        self.engines[rank as usize].queue.push_back(Queued {
            core,
            sequence,
            src,
            dst,
        });
        true
    }

    fn open_sequence(&mut self, core: u32) -> u64 {
        let state = self.core(core);
        state.inflight.push_back(false);
        state.oldest + state.inflight.len() as u64 - 1
    }

    /// Sends a transfer on its way now. `sequence` if it was queued before.
    fn transfer(&mut self, core: u32, src: Option<Located>, dst: Located, sequence: Option<u64>) {
        let (now, rank, bytes) = (self.now(), self.core(core).rank, dst.bytes());
        let from = src.map_or(rank, |src| src.rank);
        let mut path = std::mem::take(&mut self.path);
        path.clear();
        let request = if from == rank { 0 } else { self.latency(rank, from) };
        if let Some(src) = &src {
            self.port(src, &mut path);
        }
        self.route(from, dst.rank, &mut path);
        if src.is_none_or(|src| src.rank != dst.rank || src.memory != dst.memory) {
            self.port(&dst, &mut path);
        }
        // A copy inside one memory reads and writes it: twice the bytes through one port.
        let local = src.is_some_and(|src| src.rank == dst.rank && src.memory == dst.memory);
        let charged = if local { bytes * 2 } else { bytes };
        let start = now
            .saturating_add(request)
            .saturating_add(self.topology.chip.dma.start_ps);
        let sent = if path.is_empty() {
            Sent::Final {
                injected_ps: start,
                arrival_ps: start,
            }
        } else {
            self.network.send(now, start, &path, charged)
        };
        self.path = path;
        self.follow(core, sent, (src, dst), sequence, (from, start, bytes));
    }

    /// Keeps the books of a transfer that is on its way.
    fn follow(
        &mut self,
        core: u32,
        sent: Sent,
        (src, dst): (Option<Located>, Located),
        sequence: Option<u64>,
        (from, start_ps, bytes): (u32, Ps, u64),
    ) {
        let now = self.now();
        let injected = match sent {
            Sent::Final {
                injected_ps,
                arrival_ps,
            } => {
                let state = self.core(core);
                state.floor_ps = state.floor_ps.max(arrival_ps);
                if sequence.is_none() && arrival_ps > now {
                    let src = src.map(|src| (src, Until::At(injected_ps)));
                    state.posted.push(Posted {
                        src,
                        dst: (dst, Until::At(arrival_ps)),
                    });
                }
                self.trace.transfer(from, dst.rank, start_ps, arrival_ps, bytes);
                if let Some(sequence) = sequence {
                    // The low bits: no core has 2^32 transfers under way.
                    #[allow(clippy::cast_possible_truncation, reason = "see above")]
                    self.queue.push(arrival_ps, Event::Landed(core, sequence as u32));
                }
                injected_ps
            }
            Sent::Booked { flow, injected_ps } => {
                let known = sequence;
                let sequence = known.unwrap_or_else(|| self.open_sequence(core));
                let purpose = Purpose::Posted {
                    core,
                    sequence,
                    to: dst.rank,
                    start_ps,
                    bytes,
                    from,
                };
                self.set_purpose(flow, purpose);
                if known.is_none() {
                    let exact = start_ps <= now;
                    let src_until = if exact {
                        Until::At(injected_ps)
                    } else {
                        Until::Sequence(sequence)
                    };
                    let posted = Posted {
                        src: src.map(|src| (src, src_until)),
                        dst: (dst, Until::Sequence(sequence)),
                    };
                    self.core(core).posted.push(posted);
                }
                injected_ps
            }
        };
        let rank = self.core(core).rank;
        if let Some(engine) = self.engines[rank as usize]
            .dma_free_ps
            .iter_mut()
            .find(|free| **free <= now)
        {
            *engine = injected;
            let at = *engine;
            self.queue.push(at, Event::Dma(rank));
        }
    }

    /// An engine of this rank may be free: the next in the queue gets it.
    pub(crate) fn dma_free(&mut self, rank: u32) {
        let now = self.now();
        let engines = &mut self.engines[rank as usize];
        if !engines.dma_free_ps.iter().any(|free| *free <= now) {
            return;
        }
        if let Some(next) = engines.queue.pop_front() {
            self.transfer(next.core, next.src, next.dst, Some(next.sequence));
        }
        if let Some(core) = self.engines[rank as usize].refused.pop_front() {
            self.retry(core);
        }
    }

    pub(crate) fn set_purpose(&mut self, flow: u32, purpose: Purpose) {
        let index = flow as usize;
        if self.purposes.len() <= index {
            self.purposes.resize(index + 1, None);
        }
        self.purposes[index] = Some(purpose);
    }

    fn load(&mut self, core: u32, src: &Span) -> Result<bool> {
        let src = self.locate(core, src)?;
        if !self.clear(core, &[src], None) {
            return Ok(false);
        }
        let bytes = self.memory.load(&src);
        self.fetch(
            core,
            &[src],
            None,
            0,
            Reply::Other(Box::new(Ok(Answer::Bytes(bytes)))),
        );
        Ok(true)
    }

    fn reduce(
        &mut self,
        core: u32,
        dst: &Span,
        sources: &[Span],
        op: ringwork_isa::ReduceOp,
    ) -> Result<bool> {
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

    fn reduce_located(
        &mut self,
        core: u32,
        dst: Located,
        located: &[Located],
        dtype: Dtype,
        op: ReduceOp,
    ) -> Result<bool> {
        self.refuse_overlap(core, &dst, located)?;
        if !self.clear(core, located, Some(&dst)) {
            return Ok(false);
        }
        self.memory.reduce(&dst, located, dtype, op);
        let combine = dst.bytes().saturating_mul(located.len() as u64 - 1);
        self.fetch(core, located, Some(dst), combine, Reply::Done);
        Ok(true)
    }

    /// Brings sources to a core and takes the result away; the vector engine combines this many bytes.
    fn fetch(
        &mut self,
        core: u32,
        sources: &[Located],
        dst: Option<Located>,
        combine_bytes: u64,
        answer: Reply,
    ) {
        let now = self.now();
        let state = self.core(core);
        state.fetches = 0;
        state.fetched_ps = now;
        state.combine_bytes = combine_bytes;
        state.answer = answer;
        state.open = false;
        for source in sources {
            self.bring(core, source, true);
        }
        if let Some(dst) = dst {
            self.bring(core, &dst, false);
        }
        if self.core(core).fetches == 0 {
            self.fetched(core);
        }
    }

    /// Sends one operand of a core's instruction to it, or from it.
    fn bring(&mut self, core: u32, operand: &Located, to_core: bool) {
        let (now, rank) = (self.now(), self.core(core).rank);
        if operand.rank == rank && !self.port_costs(operand) {
            return;
        }
        let mut path = std::mem::take(&mut self.path);
        path.clear();
        let mut request = 0;
        if to_core {
            request = self.latency(rank, operand.rank);
            self.port(operand, &mut path);
            self.route(operand.rank, rank, &mut path);
        } else {
            self.route(rank, operand.rank, &mut path);
            self.port(operand, &mut path);
        }
        if !path.is_empty() {
            match self
                .network
                .send(now, now.saturating_add(request), &path, operand.bytes())
            {
                Sent::Final { arrival_ps, .. } => {
                    let state = self.core(core);
                    state.fetched_ps = state.fetched_ps.max(arrival_ps);
                }
                Sent::Booked { flow, .. } => {
                    self.core(core).fetches += 1;
                    self.set_purpose(flow, Purpose::Fetch { core });
                }
            }
        }
        self.path = path;
    }

    /// Everything a core fetches is there: it goes on when the vector engine is done.
    pub(crate) fn fetched(&mut self, core: u32) {
        let now = self.now();
        let state = self.core(core);
        let (ready, bytes) = (state.fetched_ps.max(now), state.combine_bytes);
        let end = if bytes > 0 {
            self.vector(core, ready, bytes)
        } else {
            ready
        };
        self.open_at(core, end);
    }

    /// Keeps the vector engine for this many bytes, and says until when.
    fn vector(&mut self, core: u32, from: Ps, bytes: u64) -> Ps {
        let rank = self.core(core).rank;
        let engines = &mut self.engines[rank as usize];
        let start = engines.vector_free_ps.max(from);
        let end = start.saturating_add(engines.vector.time_ps(bytes));
        engines.vector_free_ps = end;
        self.trace.compute(rank, start, end, bytes);
        end
    }

    /// The slot of a signal and the rank that owns it.
    pub(crate) fn slot(&mut self, core: u32, signal: &Signal) -> Result<(u32, u32)> {
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
            return Err(Error::NotMapped {
                segment,
                start,
                end: start.saturating_add(4),
                site,
            });
        };
        let memory = &self.memory;
        let slot = self
            .signals
            .slot(segment.0, offset, || memory.word(segment.0, offset).unwrap_or(0));
        Ok((slot, owner))
    }

    /// The time a question takes from one rank to another.
    #[inline]
    pub(crate) fn latency(&mut self, from: u32, to: u32) -> Ps {
        if from == to {
            return 0;
        }
        let mut path = std::mem::take(&mut self.asked_path);
        path.clear();
        self.route(from, to, &mut path);
        let latency = self.network.latency_ps(&path);
        self.asked_path = path;
        latency
    }

    /// Appends the way between two ranks. A rank mostly speaks to the one it spoke to last.
    #[inline]
    pub(crate) fn route(&mut self, from: u32, to: u32, path: &mut Vec<u32>) {
        if from == to {
            return;
        }
        let (known, link) = self.engines[from as usize].last_link;
        if known == to {
            path.push(link);
            return;
        }
        let (src, dst) = (self.engines[from as usize].place, self.engines[to as usize].place);
        let before = path.len();
        // A machine in pieces is refused when it is read.
        let _ = self.network.route(src, dst, path);
        if let [link] = path[before..] {
            self.engines[from as usize].last_link = (to, link);
        }
    }

    #[inline]
    fn port_costs(&self, at: &Located) -> bool {
        self.ports.get(at.memory as usize).copied().unwrap_or(false)
    }

    /// Appends the port of a memory, if it costs anything.
    #[inline]
    fn port(&self, at: &Located, path: &mut Vec<u32>) {
        if self.port_costs(at) {
            let per_rank = u32::try_from(self.ports.len()).unwrap_or(0);
            path.push(self.first_port + at.rank * per_rank + at.memory);
        }
    }

    fn wait(
        &mut self,
        core: u32,
        signal: &Signal,
        wanted: Option<(ringwork_isa::Compare, i32)>,
    ) -> Result<bool> {
        let (slot, owner) = self.slot(core, signal)?;
        let (now, rank) = (self.now(), self.core(core).rank);
        let mut there = self.latency(rank, owner);
        let back_ps = self.latency(owner, rank);
        if wanted.is_none() && owner == rank {
            let (at, count) = self.core(core).peeks;
            let count = if at == now { count + 1 } else { 1 };
            self.core(core).peeks = (now, count);
            if count > FREE_PEEKS {
                there = POLL_PS;
            }
        }
        self.core(core).waiting = Some(Waiting {
            signal: *signal,
            slot,
            wanted,
            since_ps: now,
            back_ps,
        });
        if there == 0 {
            self.inquire(core);
        } else {
            self.queue.push(now + there, Event::Ask(core));
        }
        Ok(true)
    }
}
