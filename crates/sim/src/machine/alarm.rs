//! Aborted domains: every wait in one ends with the reason.
//!
//! # Invariants
//! - **ALM-1 (ends).** After [`Machine::abort`] no kernel waits for a signal of that segment, and none begins
//!   to, until [`Machine::calm`]. Signals that already satisfy a wait are still seen.

use super::Machine;
use super::state::{Core, Reply, State};
use ringwork_isa::{ErrorKind, Segment, Waited};

impl Machine {
    /// Ends every wait for a signal of this segment, now and from now on, with [`ErrorKind::Aborted`]. The first
    /// reason stays.
    pub fn abort(&self, segment: Segment, reason: &str) {
        self.inner.state.borrow_mut().abort(segment.0, reason);
    }

    /// Lets kernels wait for signals of this segment again. The signals stay what they are.
    pub fn calm(&self, segment: Segment) {
        self.inner.state.borrow_mut().alarms.remove(&segment.0);
    }
}

impl State {
    fn abort(&mut self, segment: u32, reason: &str) {
        self.alarms.entry(segment).or_insert_with(|| reason.to_owned());
        let mut told = Vec::new();
        for cell in self
            .signals
            .cells
            .iter_mut()
            .filter(|cell| cell.segment == segment)
        {
            told.extend(cell.waiters.take());
        }
        for core in told {
            self.tell(core);
        }
    }

    /// Answers a core that waits in a domain that was given up; `false` if it does not.
    pub(crate) fn tell(&mut self, core: u32) -> bool {
        let Some(waiting) = self.core(core).waiting else {
            return false;
        };
        let Some(reason) = self.alarms.get(&waiting.signal.segment().0).cloned() else {
            return false;
        };
        let Some(waited) = self.cores[core as usize]
            .as_deref()
            .and_then(|core| self.waited(core))
        else {
            return false;
        };
        self.core(core).waiting = None;
        self.core(core).taking = None;
        let at = self.now() + waiting.back_ps;
        let error = ErrorKind::Aborted { reason, waited }.into();
        self.reply(core, at, Reply::Other(Box::new(Err(error))));
        true
    }

    /// What a core waits for, in words; `None` if it waits for no signal.
    pub(crate) fn waited(&self, core: &Core) -> Option<Waited> {
        let waiting = core.waiting.as_ref()?;
        let value = self.signals.cells[waiting.slot as usize].value;
        Some(Waited::new(
            &waiting.signal,
            value,
            waiting.wanted.condition()?,
            core.at?,
        ))
    }
}
