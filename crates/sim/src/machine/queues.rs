//! Messages between neighbours, and transfers that a kernel joins.
//!
//! # The model of a queue
//! - A message crosses its links as any transfer does, and **is then written** into its slot; whoever receives it
//!   **reads** the slot before anything else. Each of the two takes the latency of the slots' memory and the
//!   message at its bandwidth. If tiles are kept in another memory, the message passes that too.
//! - Sending and receiving each cost the queue's `start`. The core does not wait for it when it sends.
//! - Data, length and `full` arrive together. A credit is a message of its own size on the way back.
//! - Slots are read and written side by side: they do not contend for their memory.

use super::state::{Posted, Purpose, Reply, State, Until};
use crate::net::Sent;
use crate::time::Ps;
use ringwork_isa::stepped::Answer;
use ringwork_isa::{Error, Result, Span, Ticket};

impl State {
    /// Puts a message into a neighbour's slot; `false` if the core has to try again.
    pub(crate) fn put(&mut self, core: u32, slot: &Span, bytes: Option<&[u8]>) -> Result<bool> {
        let slot = self.locate(core, slot)?;
        if !self.clear(core, &[], Some(&slot)) {
            return Ok(false);
        }
        let (now, rank) = (self.now(), self.core(core).rank);
        let start = now.saturating_add(self.queue_start());
        let after_ps = self.slot_access_ps(slot.memory, slot.bytes());
        let mut path = std::mem::take(&mut self.path);
        path.clear();
        self.route(rank, slot.rank, &mut path);
        let sent = match path.as_slice() {
            [] => Sent::Final {
                injected_ps: start,
                arrival_ps: start,
            },
            path => self.network.send(now, start, path, slot.bytes()),
        };
        self.path = path;
        let until = match sent {
            Sent::Final { arrival_ps, .. } => {
                let there = arrival_ps.saturating_add(after_ps);
                let state = self.core(core);
                state.floor_ps = state.floor_ps.max(there);
                self.trace.transfer(rank, slot.rank, start, there, slot.bytes());
                Until::At(there)
            }
            Sent::Booked { flow, .. } => {
                let sequence = self.open_sequence(core);
                let purpose = Purpose::Posted {
                    core,
                    sequence,
                    to: slot.rank,
                    start_ps: start,
                    bytes: slot.bytes(),
                    from: rank,
                    after_ps,
                };
                self.set_purpose(flow, purpose);
                Until::Sequence(sequence)
            }
        };
        self.core(core).posted.push(Posted {
            src: None,
            dst: (slot, until),
        });
        if let Some(bytes) = bytes {
            self.memory.store(&slot, bytes);
        }
        self.reply(core, now, Reply::Done);
        Ok(true)
    }

    /// Begins to read a slot of this rank.
    pub(crate) fn take(&mut self, core: u32, slot: &Span) -> Result<bool> {
        let slot = self.locate(core, slot)?;
        let cost = self
            .queue_start()
            .saturating_add(self.slot_access_ps(slot.memory, slot.bytes()));
        let bytes = self.memory.load(&slot);
        let now = self.now();
        let (rank, end) = (self.core(core).rank, now.saturating_add(cost));
        self.trace.transfer(rank, rank, now, end, slot.bytes());
        let ticket = self.ticket(core, Until::At(end));
        let taken = Answer::Taken(ticket, bytes);
        self.reply(core, now, Reply::Other(Box::new(Ok(taken))));
        Ok(true)
    }

    pub(crate) fn copy_async(&mut self, core: u32, dst: &Span, src: &Span) -> Result<bool> {
        let Some(until) = self.begin_copy(core, dst, src)? else {
            return Ok(false);
        };
        let ticket = self.ticket(core, until);
        let now = self.now();
        self.reply(core, now, Reply::Other(Box::new(Ok(Answer::Ticket(ticket)))));
        Ok(true)
    }

    /// Waits for a transfer; `false` if the core has to try again when something has arrived.
    pub(crate) fn join(&mut self, core: u32, ticket: Ticket) -> Result<bool> {
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
            Some(Until::Sequence(s)) => {
                let waiting = s
                    .checked_sub(state.oldest)
                    .and_then(|i| state.inflight.get(usize::try_from(i).ok()?))
                    .is_some_and(|arrived| !arrived);
                (!waiting).then_some(now)
            }
        };
        if let Some(at) = over {
            state.tickets.remove(&ticket.0);
            self.reply(core, at, Reply::Done);
        }
        Ok(over.is_some())
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
