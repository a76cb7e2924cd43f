//! Packets: payload and flag travel together, and a reader that waits for one gets both in one hop.
//!
//! # The model
//! - **Putting** a packet is a copy of its payload that ends with the flag: the flag is seen when the payload is there.
//! - **Taking** packets sends a question to the owner of each at once. The core looks at them in order, as the native core
//!   does; when the last flag has come, the payloads start on their way here. So a packet that is already there costs the way to its
//!   owner and the bytes' way back, and one that is not costs the way back only.

use super::issue::Progress;
use super::state::{Event, Reply, State, Taking, Waiting, Wanted};
use super::transfer::Fetch;
use ringwork_isa::stepped::PacketSource;
use ringwork_isa::{Compare, Epoch, Notify, ReduceOp, Result, Signal, Span};

impl State {
    /// Puts a packet.
    pub(crate) fn put_packet(
        &mut self,
        core: u32,
        payload: &Span,
        src: &Span,
        (flag, epoch): (&Signal, Epoch),
    ) -> Result<Progress> {
        self.slot(core, flag)?;
        if self.begin_copy(core, payload, src)?.is_none() {
            return Ok(Progress::Again);
        }
        self.notify_by(core, flag, Notify::Set(epoch.into()), 0)
    }

    /// Begins to take packets.
    pub(crate) fn take_packets(
        &mut self,
        core: u32,
        dst: &Span,
        packets: &[PacketSource],
        (op, epoch): (ReduceOp, Epoch),
    ) -> Result<Progress> {
        let dtype = dst.dtype;
        let dst = self.locate(core, dst)?;
        let (mut sources, mut flags) = (Vec::with_capacity(packets.len()), Vec::new());
        for packet in packets {
            sources.push(self.locate(core, &packet.payload)?);
            if let Some((flag, raised)) = packet.arrives {
                self.slot(core, &flag)?;
                flags.push((flag, raised));
            }
        }
        self.refuse_overlap(core, &dst, &sources)?;
        if !self.clear(core, &sources, Some(&dst)) {
            return Ok(Progress::Again);
        }
        flags.reverse();
        let asked_ps = self.now();
        self.core(core).taking = Some(Box::new(Taking {
            dst,
            sources,
            flags,
            dtype,
            op,
            epoch,
            asked_ps,
        }));
        self.take_next(core);
        Ok(Progress::Later)
    }

    /// Looks at the next flag; when all have come, fetches the payloads.
    pub(crate) fn take_next(&mut self, core: u32) {
        loop {
            let now = self.now();
            let Some(taking) = self.core(core).taking.as_mut() else {
                return;
            };
            let Some((flag, raised)) = taking.flags.pop() else {
                break;
            };
            let (epoch, asked_ps) = (taking.epoch, taking.asked_ps);
            // It was found when the instruction was issued.
            let Ok((slot, owner)) = self.slot(core, &flag) else {
                continue;
            };
            let rank = self.core(core).rank;
            let there = asked_ps.saturating_add(self.latency(rank, owner));
            let waiting = Waiting {
                signal: raised,
                slot,
                wanted: Wanted::Until(Compare::Eq, epoch.into()),
                since_ps: now,
                back_ps: 0,
            };
            if there <= now && self.look(core, &waiting).is_some() {
                continue;
            }
            self.core(core).waiting = Some(waiting);
            if there > now {
                self.queue.push(there, Event::Ask(core));
            } else {
                self.await_change(core, &waiting);
            }
            return;
        }
        if let Some(taking) = self.core(core).taking.take() {
            let Taking {
                dst,
                sources,
                dtype,
                op,
                ..
            } = *taking;
            let now = self.now();
            let moved = self.memory.move_reduced(&dst, &sources, (dtype, op), (now, now));
            self.core(core).reduced = moved;
            let combine = dst.bytes().saturating_mul(sources.len() as u64 - 1);
            self.fetch(core, (&sources, Fetch::Waiting), Some(dst), combine, Reply::Done);
        }
    }
}
