//! Messages between neighbours, and transfers that a kernel joins.
//!
//! # The model of a queue
//! - A message crosses its links as any transfer does, and **is then written** into its slot; the receiver
//!   **reads** the slot before anything else. Each of the two takes the latency of the slots' memory and the
//!   message at its bandwidth. If tiles are kept in another memory, the message passes that too.
//! - Sending and receiving each cost the queue's `start`. The core does not wait for it when it sends.
//! - Data, length and `full` arrive together; later than what the core copied or stored before, but messages in
//!   different queues do not wait for each other.
//! - A credit is a message of its own size on the way back.
//! - Slots are read and written side by side: they do not contend for their memory.

use super::guards::Until;
use super::issue::Progress;
use super::state::{Event, Notice, Purpose, Reply, State};
use crate::net::Sent;
use crate::time::Ps;
use ringwork_isa::stepped::{Answer, Payload};
use ringwork_isa::{Error, Notify, Result, Signal, Span, Ticket};

impl State {
    /// Puts a message into a neighbour's slot.
    pub(crate) fn put(
        &mut self,
        core: u32,
        slot: &Span,
        data: &Payload,
        (full, value): (&Signal, i32),
    ) -> Result<Progress> {
        let slot = self.locate(core, slot)?;
        let (cell, _) = self.slot(core, full)?;
        let now = self.now();
        let state = self.core(core);
        let rank = state.rank;
        state.puts += 1;
        let notice = Notice {
            core,
            slot: cell,
            how: Notify::Set(value),
            after: state.inflight.next(),
            floor_ps: state.floor_ps.max(now),
            issued_ps: now,
            rank,
        };
        let floor = notice.floor_ps;
        let notice = self.keep(notice);
        let start = now.saturating_add(self.queue_start());
        let after_ps = self.slot_access_ps(slot.memory, slot.bytes());
        let moved = self.memory.move_payload(&slot, data);
        let sent = self.send_between(start, rank, slot.rank, slot.bytes());
        match sent {
            Sent::Final { arrival_ps, .. } => {
                let there = arrival_ps.saturating_add(after_ps);
                self.memory.arrives(moved, now, there);
                self.trace.transfer(rank, slot.rank, start, there, slot.bytes());
                self.queue.push(there.max(floor), Event::Put(core, notice));
            }
            Sent::Booked { flow, .. } => {
                let purpose = Purpose::Put {
                    core,
                    notice,
                    moved,
                    after_ps,
                    start_ps: start,
                    bytes: slot.bytes(),
                    between: (rank, slot.rank),
                };
                self.set_purpose(flow, purpose);
            }
        }
        Ok(Progress::Done)
    }

    /// A message is in its slot: a core that waits for it sees it, after all that its sender did before.
    pub(crate) fn in_slot(&mut self, core: u32, notice: u32) {
        let floor = self.notices[notice as usize].floor_ps;
        if floor > self.now() {
            self.queue.push(floor, Event::Put(core, notice));
            return;
        }
        self.core(core).puts -= 1;
        self.deliver(notice);
        self.drain(core);
    }

    /// Begins to read a slot of this rank.
    pub(crate) fn take(&mut self, core: u32, slot: &Span) -> Result<Progress> {
        let slot = self.locate(core, slot)?;
        let cost = self
            .queue_start()
            .saturating_add(self.slot_access_ps(slot.memory, slot.bytes()));
        let now = self.now();
        self.memory.catch_up(now);
        let loaded = self.memory.load(&slot);
        let (rank, end) = (self.core(core).rank, now.saturating_add(cost));
        self.trace.transfer(rank, rank, now, end, slot.bytes());
        let ticket = self.ticket(core, Until::At(end));
        let taken = Answer::Taken(ticket, Box::new(loaded));
        self.reply(core, now, Reply::Other(Box::new(Ok(taken))));
        Ok(Progress::Later)
    }

    pub(crate) fn copy_async(&mut self, core: u32, dst: &Span, src: &Span) -> Result<Progress> {
        let Some(until) = self.begin_copy(core, dst, src)? else {
            return Ok(Progress::Again);
        };
        let ticket = self.ticket(core, until);
        let now = self.now();
        self.reply(core, now, Reply::Other(Box::new(Ok(Answer::Ticket(ticket)))));
        Ok(Progress::Later)
    }

    /// Waits for a transfer; one of unknown arrival is looked at again when something has arrived.
    pub(crate) fn join(&mut self, core: u32, ticket: Ticket) -> Result<Progress> {
        let now = self.now();
        let state = self.core(core);
        let over = match state.tickets.get(&ticket.0) {
            None => {
                return Err(Error::failed(format!(
                    "there is no transfer {} to join",
                    ticket.0
                )));
            }
            Some(Until::At(at)) => Some((*at).max(now)),
            Some(until @ Until::Sequence(_)) => state.inflight.is_over(*until, now).then_some(now),
        };
        let Some(at) = over else {
            return Ok(Progress::Again);
        };
        state.tickets.remove(&ticket.0);
        self.reply(core, at, Reply::Done);
        Ok(Progress::Later)
    }

    fn ticket(&mut self, core: u32, until: Until) -> Ticket {
        let state = self.core(core);
        let number = state.next_ticket;
        state.next_ticket += 1;
        state.tickets.insert(number, until);
        Ticket(number)
    }

    fn queue_start(&self) -> Ps {
        self.topology.chip.queues.as_ref().map_or(0, |q| q.start_ps)
    }

    /// What it takes to write a slot, or to read one.
    fn slot_access_ps(&self, memory: u32, bytes: u64) -> Ps {
        let chip = &self.topology.chip;
        let memory = memory as usize;
        let of = |index: usize| {
            chip.memories
                .get(index)
                .map_or(0, |m| m.latency_ps.saturating_add(m.bandwidth.time_ps(bytes)))
        };
        let working = chip.queues.as_ref().and_then(|queues| queues.working);
        let passed = working.filter(|working| *working != memory).map_or(0, of);
        of(memory).saturating_add(passed)
    }
}
