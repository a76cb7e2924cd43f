//! Arrivals: what happens when bytes, notifications and questions get where they were going.

use super::issue::Progress;
use super::signals::{Waiter, changed};
use super::state::{Event, Notice, Purpose, Reply, State, Waiting};
use crate::net::{Flow, Sent, Step};
use ringwork_isa::{Error, Notify, QueueSignal, Result, Signal};

impl State {
    /// A message on its way was woken.
    pub(crate) fn flow(&mut self, flow: Flow) {
        let now = self.now();
        if self.network.wake(now, flow) != Step::Arrived {
            return;
        }
        match self.purposes[flow.index as usize].take() {
            None => {}
            // Of a task that is gone: what it sent still arrives.
            Some(Purpose::Posted { core, moved, .. } | Purpose::Put { core, moved, .. })
                if self.cores[core as usize].is_none() =>
            {
                self.memory.arrives(moved, now, now);
            }
            Some(Purpose::Fetch { core, .. }) if self.cores[core as usize].is_none() => {}
            Some(Purpose::Posted {
                core,
                sequence,
                to,
                start_ps,
                bytes,
                from,
                moved,
            }) => {
                self.memory.arrives(moved, now, now);
                self.trace.transfer(from, to, start_ps, now, bytes);
                self.arrived(core, sequence);
            }
            Some(Purpose::Put {
                core,
                notice,
                moved,
                after_ps,
                start_ps,
                bytes,
                between: (from, to),
            }) => {
                self.memory.arrives(moved, now, now + after_ps);
                self.trace.transfer(from, to, start_ps, now + after_ps, bytes);
                self.queue.push(now + after_ps, Event::Put(core, notice));
            }
            Some(Purpose::Fetch {
                core,
                start_ps,
                bytes,
                between,
            }) => {
                let row = self.core(core).row;
                self.trace.operand(row, between, (start_ps, now), bytes);
                self.core(core).fetches -= 1;
                if self.core(core).fetches == 0 {
                    self.fetched(core);
                }
            }
            Some(Purpose::Notify(notice)) => {
                let floor = self.notices[notice as usize].floor_ps;
                if floor > now {
                    self.queue.push(floor, Event::Signal(notice));
                } else {
                    self.deliver(notice);
                }
            }
        }
    }

    /// A transfer that was queued has arrived; only the low bits of its number are known.
    pub(crate) fn landed(&mut self, core: u32, low: u32) {
        let oldest = self.core(core).inflight.oldest();
        #[allow(clippy::cast_possible_truncation, reason = "the low bits are meant")]
        let ahead = low.wrapping_sub(oldest as u32);
        self.arrived(core, oldest + u64::from(ahead));
    }

    /// A posted transfer has arrived: events that had to follow it may happen.
    pub(crate) fn arrived(&mut self, core: u32, sequence: u64) {
        let state = self.core(core);
        state.inflight.arrive(sequence);
        let oldest = state.inflight.oldest();
        let mut index = 0;
        while index < self.core(core).parked.len() {
            if self.core(core).parked[index].after <= oldest {
                let notice = self.core(core).parked.remove(index);
                self.apply(notice);
            } else {
                index += 1;
            }
        }
        if self.core(core).stalled.is_some() {
            self.retry(core);
        }
        self.drain(core);
    }

    /// Sends a notification.
    #[inline(always)]
    pub(crate) fn notify(&mut self, core: u32, signal: &Signal, how: Notify) -> Result<Progress> {
        let bytes = self.notice_bytes(signal);
        self.notify_by(core, signal, how, bytes)
    }

    /// Sends a notification that is so many bytes on the wire.
    #[inline(always)]
    pub(crate) fn notify_by(
        &mut self,
        core: u32,
        signal: &Signal,
        how: Notify,
        bytes: u64,
    ) -> Result<Progress> {
        let (slot, owner) = self.slot(core, signal)?;
        if cfg!(debug_assertions) {
            let value = self.value_seen_by(core, slot);
            Error::check_growth(signal, value, how, self.site(core))?;
        }
        let now = self.now();
        if let Some(QueueSignal::Length) = signal.queue().map(|end| end.signal) {
            let rank = self.core(core).rank;
            // Part of the message, whose data has moved already; nobody looks before `full` says so.
            let cell = self.signals.change(slot, how, (rank, now));
            let (segment, offset, value) = (cell.segment, cell.offset, cell.value);
            self.memory.set_word(segment, offset, value);
            return Ok(Progress::Done);
        }
        let state = self.core(core);
        let (rank, oldest) = (state.rank, state.inflight.oldest());
        let notice = Notice {
            core,
            slot,
            how,
            after: state.inflight.next(),
            floor_ps: state.floor_ps.max(now),
            issued_ps: now,
            rank,
        };
        let sent = self.send_between(now, rank, owner, bytes);
        let visible = match sent {
            Sent::Booked { flow, .. } => {
                self.core(core).unseen.push((slot, how));
                let index = self.keep(notice);
                self.set_purpose(flow, Purpose::Notify(index));
                return Ok(Progress::Done);
            }
            Sent::Final { arrival_ps, .. } => arrival_ps.max(notice.floor_ps),
        };
        // Changes of one signal by one core stay in their order, also when they become visible together.
        let state = self.core(core);
        let behind = state.unseen.iter().any(|unseen| unseen.0 == slot);
        let early = notice.after > oldest;
        if visible > now || early || behind {
            state.unseen.push((slot, how));
        }
        if visible > now || behind {
            let index = self.keep(notice);
            self.queue.push(visible, Event::Signal(index));
        } else if early {
            state.parked.push(notice);
        } else {
            self.apply(notice);
        }
        Ok(Progress::Done)
    }

    pub(crate) fn keep(&mut self, notice: Notice) -> u32 {
        if let Some(index) = self.free_notices.pop() {
            self.notices[index as usize] = notice;
            return index;
        }
        self.notices.push(notice);
        u32::try_from(self.notices.len() - 1).unwrap_or(u32::MAX)
    }

    /// A notification is there; it is seen now, or when what it follows has arrived.
    pub(crate) fn deliver(&mut self, index: u32) {
        let notice = self.notices[index as usize];
        self.free_notices.push(index);
        match self.cores[notice.core as usize].as_mut() {
            Some(core) if notice.after > core.inflight.oldest() => core.parked.push(notice),
            _ => self.apply(notice),
        }
    }

    /// What a notification is on the wire. A message's metadata travels with its data.
    fn notice_bytes(&self, signal: &Signal) -> u64 {
        let chip = &self.topology.chip;
        match (signal.queue().map(|end| end.signal), &chip.queues) {
            (None, _) | (Some(QueueSignal::Free), None) => chip.signal_bytes,
            (Some(QueueSignal::Free), Some(queues)) => queues.credit_bytes,
            (Some(_), _) => 0,
        }
    }

    /// Changes a signal and wakes the cores that this satisfies.
    #[inline(always)]
    fn apply(&mut self, notice: Notice) {
        if let Some(core) = self.cores[notice.core as usize].as_mut()
            && let Some(at) = core.unseen.iter().position(|(slot, _)| *slot == notice.slot)
        {
            core.unseen.remove(at);
        }
        self.change(notice.slot, notice.how, (notice.rank, notice.issued_ps));
    }

    /// A signal was set from outside the machine.
    pub(crate) fn set_from_outside(&mut self, segment: u32, offset: u64, value: i32) {
        let memory = &self.memory;
        let slot = self
            .signals
            .slot(segment, offset, || memory.word(segment, offset).unwrap_or(0));
        self.change(slot, Notify::Set(value), (u32::MAX, 0));
    }

    fn change(&mut self, slot: u32, how: Notify, cause: (u32, u64)) {
        let now = self.now();
        let cell = self.signals.change(slot, how, cause);
        cell.changed_ps = now;
        let (segment, offset, value) = (cell.segment, cell.offset, cell.value);
        let mut waiters = std::mem::take(&mut cell.waiters);
        waiters.satisfy(value, |core| self.satisfied(core, Reply::Done, cause));
        self.signals.cells[slot as usize].waiters = waiters;
        if !self.memory.is_hollow() {
            self.memory.set_word(segment, offset, value);
        }
    }

    /// A core that asked something of a signal goes on with this answer.
    #[inline(always)]
    fn satisfied(&mut self, core: u32, reply: Reply, cause: (u32, u64)) {
        let now = self.now();
        let state = self.cores[core as usize].as_mut().expect("a core that waits");
        let Some(waiting) = &state.waiting else {
            return;
        };
        let end = now + waiting.back_ps;
        self.trace.waited(state.row, end, cause, waiting);
        state.waiting = None;
        if state.taking.is_some() {
            self.take_next(core);
        } else {
            self.reply(core, end, reply);
        }
    }

    /// A question has reached the signal's owner.
    pub(crate) fn asked(&mut self, core: u32) {
        self.inquire(core);
    }

    /// Looks at the signal a core waits for, and lets it go on if that says so.
    pub(crate) fn inquire(&mut self, core: u32) {
        let Some(waiting) = self.core(core).waiting else {
            return;
        };
        match self.look(core, &waiting) {
            Some(reply) => {
                let cause = self.signals.cells[waiting.slot as usize].cause;
                self.satisfied(core, reply, cause);
            }
            None => self.await_change(core, &waiting),
        }
    }

    /// The answer that a signal gives now, if it gives one.
    #[inline(always)]
    pub(crate) fn look(&mut self, core: u32, waiting: &Waiting) -> Option<Reply> {
        // A kernel sees its own notifications in program order, whatever they still wait for. (One that
        // waits for its own gets there too, later.)
        let value = match waiting.wanted.condition() {
            None => self.value_seen_by(core, waiting.slot),
            Some(_) => self.signals.cells[waiting.slot as usize].value,
        };
        waiting.wanted.reply(value)
    }

    /// A signal's value after all that this core has done to it, also what is still on its way.
    #[inline(always)]
    fn value_seen_by(&mut self, core: u32, slot: u32) -> i32 {
        let value = self.signals.cells[slot as usize].value;
        let mine = self.core(core).unseen.iter().filter(|(of, _)| *of == slot);
        mine.fold(value, |value, (_, how)| changed(value, *how))
    }

    /// Lets a core wait until the signal changes, unless its domain was given up.
    #[inline(always)]
    pub(crate) fn await_change(&mut self, core: u32, waiting: &Waiting) {
        let Some((compare, operand)) = waiting.wanted.condition() else {
            return;
        };
        if !self.alarms.is_empty() && self.tell(core) {
            return;
        }
        self.signals.cells[waiting.slot as usize].waiters.push(Waiter {
            core,
            compare,
            operand,
        });
    }
}
