//! Transfers: how an instruction's bytes get their engines, their links and their ports.

use super::guards::Until;
use super::memory::Located;
use super::moves::Moved;
use super::state::{Event, Purpose, Queued, Reply, State};
use crate::net::Sent;
use crate::time::Ps;
use ringwork_isa::Work;
use ringwork_isa::stepped::Payload;

/// How the bytes of another chip begin their way to a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fetch {
    /// The core asks for them: that takes the way there first.
    Asked,
    /// The question was there before.
    Waiting,
}

impl State {
    /// Hands a transfer to a DMA engine or its queue, and says when it is over; `None` if both are full.
    /// `data` is what a store writes; a copy takes it from `src` when it begins.
    pub(crate) fn post(
        &mut self,
        core: u32,
        src: Option<&Located>,
        dst: &Located,
        data: Option<&Payload>,
    ) -> Option<Until> {
        let (now, rank) = (self.now(), self.core(core).rank);
        let engines = &mut self.engines[rank as usize];
        if engines.dma_free_ps.is_empty() || engines.dma_free_ps.iter().any(|free| *free <= now) {
            let moved = data.and_then(|data| self.memory.move_payload(dst, data));
            return Some(self.transfer(core, (src, dst, moved), None));
        }
        if engines.queue.len() >= self.topology.chip.dma.queue as usize {
            engines.refused.push_back(core);
            return None;
        }
        let state = self.core(core);
        let sequence = state.inflight.open();
        let until = Until::Sequence(sequence);
        if let Some(src) = src {
            state.guards.read(src, until);
        }
        state.guards.written(dst, until);
        let moved = data.and_then(|data| self.memory.move_payload(dst, data));
        self.engines[rank as usize].queue.push_back(Queued {
            core,
            sequence,
            src: src.copied(),
            dst: *dst,
            moved,
        });
        Some(until)
    }

    /// Sends a transfer on its way now, and says when it is over. `sequence` if it was queued before.
    #[inline(always)]
    fn transfer(
        &mut self,
        core: u32,
        (src, dst, mut moved): (Option<&Located>, &Located, Option<Moved>),
        sequence: Option<u64>,
    ) -> Until {
        let (now, rank, bytes) = (self.now(), self.core(core).rank, dst.bytes());
        let from = src.map_or(rank, |src| src.rank);
        if from == rank && from != dst.rank && !self.has_ports {
            let start = now.saturating_add(self.topology.chip.dma.start_ps);
            if let Some(src) = src {
                moved = self.memory.move_between(dst, src, (now, start));
            }
            let sent = self.send_between(start, from, dst.rank, bytes);
            return self.follow(core, sent, (src, dst, moved), sequence, (from, start, bytes));
        }
        let mut path = std::mem::take(&mut self.path);
        path.clear();
        let request = if from == rank { 0 } else { self.latency(rank, from) };
        if let Some(src) = src {
            self.port(src, &mut path);
        }
        self.route(from, dst.rank, &mut path);
        if src.is_none_or(|src| src.rank != dst.rank || src.memory != dst.memory) {
            self.port(dst, &mut path);
        }
        // A copy inside one memory reads and writes it: twice the bytes through one port.
        let local = src.is_some_and(|src| src.rank == dst.rank && src.memory == dst.memory);
        let charged = if local { bytes * 2 } else { bytes };
        let start = now
            .saturating_add(request)
            .saturating_add(self.topology.chip.dma.start_ps);
        if let Some(src) = src {
            moved = self.memory.move_between(dst, src, (now, start));
        }
        let sent = if path.is_empty() {
            Sent::Final {
                injected_ps: start,
                arrival_ps: start,
            }
        } else {
            self.network.send(now, start, &path, charged)
        };
        self.path = path;
        self.follow(core, sent, (src, dst, moved), sequence, (from, start, bytes))
    }

    /// Sends bytes from one rank to another; memories cost nothing.
    #[inline(always)]
    pub(crate) fn send_between(&mut self, start: Ps, from: u32, to: u32, bytes: u64) -> Sent {
        let now = self.now();
        let (known, link) = self.engines[from as usize].last_link;
        if known == to {
            return self.network.send(now, start, &[link], bytes);
        }
        let mut path = std::mem::take(&mut self.path);
        path.clear();
        self.route(from, to, &mut path);
        let sent = match path.as_slice() {
            [] => Sent::Final {
                injected_ps: start,
                arrival_ps: start,
            },
            path => self.network.send(now, start, path, bytes),
        };
        self.path = path;
        sent
    }

    /// Keeps the books of a transfer that is on its way, and says when it is over.
    #[inline(always)]
    fn follow(
        &mut self,
        core: u32,
        sent: Sent,
        (src, dst, moved): (Option<&Located>, &Located, Option<Moved>),
        queued: Option<u64>,
        (from, start_ps, bytes): (u32, Ps, u64),
    ) -> Until {
        let now = self.now();
        let state = self.core(core);
        let rank = state.rank;
        let (read, until, injected) = match sent {
            Sent::Final {
                injected_ps,
                arrival_ps,
            } => {
                state.floor_ps = state.floor_ps.max(arrival_ps);
                self.memory.arrives(moved, now, arrival_ps);
                self.trace.transfer(from, dst.rank, start_ps, arrival_ps, bytes);
                if let Some(sequence) = queued {
                    // The low bits: no core has 2^32 transfers under way.
                    #[allow(clippy::cast_possible_truncation, reason = "see above")]
                    self.queue.push(arrival_ps, Event::Landed(core, sequence as u32));
                }
                (
                    Until::At(injected_ps),
                    Until::At(arrival_ps.max(now)),
                    injected_ps,
                )
            }
            Sent::Booked { flow, injected_ps } => {
                let sequence = queued.unwrap_or_else(|| state.inflight.open());
                let purpose = Purpose::Posted {
                    core,
                    sequence,
                    to: dst.rank,
                    start_ps,
                    bytes,
                    from,
                    moved,
                };
                self.set_purpose(flow, purpose);
                let until = Until::Sequence(sequence);
                let read = if start_ps <= now {
                    Until::At(injected_ps)
                } else {
                    until
                };
                (read, until, injected_ps)
            }
        };
        // What was queued is guarded since then.
        if queued.is_none() && !matches!(until, Until::At(at) if at <= now) {
            let state = self.core(core);
            if let Some(src) = src {
                state.guards.read(src, read);
            }
            state.guards.written(dst, until);
        }
        let engines = &mut self.engines[rank as usize];
        if let Some(engine) = engines.dma_free_ps.iter_mut().find(|free| **free <= now) {
            *engine = injected;
            self.queue.push(injected, Event::Dma(rank));
        }
        until
    }

    /// An engine of this rank may be free: the next in the queue gets it.
    pub(crate) fn dma_free(&mut self, rank: u32) {
        let now = self.now();
        let engines = &mut self.engines[rank as usize];
        if !engines.dma_free_ps.iter().any(|free| *free <= now) {
            return;
        }
        if let Some(next) = engines.queue.pop_front() {
            let what = (next.src.as_ref(), &next.dst, next.moved);
            self.transfer(next.core, what, Some(next.sequence));
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

    /// Brings sources to a core and takes the result away; the vector engine combines this many bytes.
    #[inline(always)]
    pub(crate) fn fetch(
        &mut self,
        core: u32,
        (sources, asked): (&[Located], Fetch),
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
        let (rank, free) = (state.rank, !self.has_ports);
        for source in sources {
            if source.rank != rank || !free {
                self.bring(core, source, Some(asked));
            }
        }
        if let Some(dst) = dst.filter(|dst| dst.rank != rank || !free) {
            self.bring(core, &dst, None);
        }
        if self.core(core).fetches == 0 {
            self.fetched(core);
        }
    }

    /// Sends one operand of a core's instruction to it; or, if `to_core` is `None`, from it.
    fn bring(&mut self, core: u32, operand: &Located, to_core: Option<Fetch>) {
        let now = self.now();
        let (rank, row) = (self.core(core).rank, self.core(core).row);
        if operand.rank == rank && !self.port_costs(operand) {
            return;
        }
        let mut path = std::mem::take(&mut self.path);
        path.clear();
        let mut request = 0;
        if let Some(fetch) = to_core {
            if let Fetch::Asked = fetch {
                request = self.latency(rank, operand.rank);
            }
            self.port(operand, &mut path);
            self.route(operand.rank, rank, &mut path);
        } else {
            self.route(rank, operand.rank, &mut path);
            self.port(operand, &mut path);
        }
        if !path.is_empty() {
            let bytes = operand.bytes();
            let between = match to_core {
                Some(_) => (operand.rank, rank),
                None => (rank, operand.rank),
            };
            match self.network.send(now, now.saturating_add(request), &path, bytes) {
                Sent::Final { arrival_ps, .. } => {
                    self.trace.operand(row, between, (now, arrival_ps), bytes);
                    let state = self.core(core);
                    state.fetched_ps = state.fetched_ps.max(arrival_ps);
                }
                Sent::Booked { flow, .. } => {
                    self.core(core).fetches += 1;
                    let purpose = Purpose::Fetch {
                        core,
                        start_ps: now,
                        bytes,
                        between,
                    };
                    self.set_purpose(flow, purpose);
                }
            }
        }
        self.path = path;
    }

    /// Everything a core fetches is there: it goes on when the vector engine is done.
    #[inline(always)]
    pub(crate) fn fetched(&mut self, core: u32) {
        let now = self.now();
        let state = self.core(core);
        let (ready, bytes) = (state.fetched_ps.max(now), state.combine_bytes);
        let end = if bytes > 0 {
            self.vector(core, ready, bytes)
        } else {
            ready
        };
        let reduced = self.core(core).reduced.take();
        self.memory.arrives(reduced, now, end);
        self.open_at(core, end);
    }

    /// Keeps the vector engine for this many bytes, and says until when.
    #[inline(always)]
    pub(crate) fn vector(&mut self, core: u32, from: Ps, bytes: u64) -> Ps {
        let (rank, row) = (self.core(core).rank, self.core(core).row);
        let engines = &mut self.engines[rank as usize];
        let start = engines.vector_free_ps.max(from);
        let end = start.saturating_add(engines.vector.time_ps(bytes));
        engines.vector_free_ps = end;
        self.trace.compute(row, start, end, bytes, "vector");
        end
    }

    /// Keeps an engine for a core's work from now on, and says until when.
    pub(crate) fn compute(&mut self, core: u32, work: Work) -> Ps {
        let now = self.now();
        match work {
            Work::Vector { elements, dtype } => {
                self.vector(core, now, elements.saturating_mul(dtype.bytes() as u64))
            }
            Work::Matrix { m, k, n, .. } => self.matrix(core, [m, k, n]),
        }
    }

    /// Keeps the matrix engine for a product. What its operands take to load was charged to the loads.
    fn matrix(&mut self, core: u32, [m, k, n]: [u64; 3]) -> Ps {
        let (now, rank, row) = (self.now(), self.core(core).rank, self.core(core).row);
        let operations = m.saturating_mul(k).saturating_mul(n).saturating_mul(2);
        let chip = &self.topology.chip;
        let engines = &mut self.engines[rank as usize];
        let peak_ps = chip.matrix.scaled(engines.speed).time_ps(operations);
        let array_ps = chip.array.map_or(0, |(array, clock)| {
            clock.scaled(engines.speed).time_ps(array.cycles(m, n, k))
        });
        let start = engines.matrix_free_ps.max(now);
        let end = start.saturating_add(peak_ps.max(array_ps));
        engines.matrix_free_ps = end;
        self.trace.compute(row, start, end, 0, "matmul");
        end
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
    #[inline(always)]
    fn port(&self, at: &Located, path: &mut Vec<u32>) {
        if self.port_costs(at) {
            let per_rank = u32::try_from(self.ports.len()).unwrap_or(0);
            path.push(self.first_port + at.rank * per_rank + at.memory);
        }
    }
}
