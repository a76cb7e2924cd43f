//! What a host does with a machine's memory from outside, in no time: segments, bytes, signals, origins.

use super::state::State;
use super::{Machine, SegmentSpec, SimError};
use ringwork_isa::{Contributions, Counted, Segment, Signals};

impl Machine {
    /// Defines a segment, zeroed.
    ///
    /// # Errors
    /// If it exists, a member does not, or a memory is full.
    pub fn define(&self, spec: SegmentSpec) -> std::result::Result<(), SimError> {
        let ranks = self.ranks();
        if let Some(rank) = spec.members.iter().find(|rank| **rank >= ranks) {
            return Err(SimError::NoSuchRank { rank: *rank, ranks });
        }
        let state = &mut *self.inner.state.borrow_mut();
        state.memory.define(spec, &state.topology.chip.memories)
    }

    /// Gives a row of signals a name, for the timeline.
    pub fn name_signals(&self, row: &Signals, name: &str) {
        let mut state = self.inner.state.borrow_mut();
        state.trace.name(row, name);
    }

    /// Takes a segment away. Kernels that still use it get [`ringwork_isa::ErrorKind::NotMapped`].
    pub fn release(&self, segment: Segment) {
        let mut state = self.inner.state.borrow_mut();
        state.memory.release(segment);
        state.signals.release(segment.0);
    }

    /// Writes bytes of a segment from outside, in no time. Does nothing if only time is computed.
    ///
    /// # Errors
    /// [`SimError::NotMapped`] if they are not there.
    pub fn write(&self, segment: Segment, offset: u64, bytes: &[u8]) -> std::result::Result<(), SimError> {
        let mut state = self.inner.state.borrow_mut();
        if state.memory.is_hollow() {
            return Ok(());
        }
        state.catch_up();
        state
            .memory
            .host(segment, offset, bytes.len())?
            .copy_from_slice(bytes);
        let State { memory, signals, .. } = &mut *state;
        signals.refresh(segment.0, offset..offset + bytes.len() as u64, |at| {
            memory.word(segment.0, at)
        });
        Ok(())
    }

    /// Sets the signal at this offset of a segment from outside, in no time, and wakes the cores that this satisfies. Does
    /// nothing if only time is computed.
    ///
    /// # Errors
    /// [`SimError::NotMapped`] if it is not there.
    pub fn notify(&self, segment: Segment, offset: u64, value: i32) -> std::result::Result<(), SimError> {
        let mut state = self.inner.state.borrow_mut();
        if state.memory.is_hollow() {
            return Ok(());
        }
        state.memory.host(segment, offset, 4)?;
        state.set_from_outside(segment.0, offset, value);
        Ok(())
    }

    /// Watches the signals at these offsets of segments, and no others: [`take_news`](Machine::take_news) then says
    /// when one was changed, so that a host can stop at that very moment of virtual time. Those that are not there
    /// are left out.
    pub fn watch(&self, signals: &[(Segment, u64)]) {
        let State {
            memory, signals: all, ..
        } = &mut *self.inner.state.borrow_mut();
        let slot = |&(segment, offset): &(Segment, u64)| {
            let value = memory.word(segment.0, offset)?;
            Some(all.slot(segment.0, offset, || value))
        };
        let slots = signals.iter().filter_map(slot).collect();
        all.watch(slots);
    }

    /// Whether a watched signal was changed since this was last asked.
    #[must_use]
    pub fn take_news(&self) -> bool {
        self.inner.state.borrow_mut().signals.take_news()
    }

    /// Reads bytes of a segment from outside, in no time; zeros if only time is computed.
    ///
    /// # Errors
    /// [`SimError::NotMapped`] if they are not there.
    pub fn read(&self, segment: Segment, offset: u64, len: usize) -> std::result::Result<Vec<u8>, SimError> {
        let mut state = self.inner.state.borrow_mut();
        if state.memory.is_hollow() {
            return Ok(vec![0; len]);
        }
        state.catch_up();
        state
            .memory
            .host(segment, offset, len)
            .map(|bytes| bytes.to_vec())
    }

    /// Says from outside where bytes of a segment come from, all of one member's window. Does nothing unless this
    /// machine [proves](crate::Options::prove).
    ///
    /// # Errors
    /// [`SimError::NotMapped`] if they are not there.
    pub fn set_origin(
        &self,
        segment: Segment,
        offset: u64,
        origin: &Contributions,
    ) -> std::result::Result<(), SimError> {
        let mut state = self.inner.state.borrow_mut();
        state.catch_up();
        if let Some((origins, at)) = state.memory.host_origins(segment, offset, origin.bytes())? {
            origins.write(&at, origin);
        }
        Ok(())
    }

    /// Where bytes of a segment come from, all of one member's window; nobody's input unless this machine
    /// [proves](crate::Options::prove).
    ///
    /// # Errors
    /// [`SimError::NotMapped`] if they are not there.
    pub fn origin(
        &self,
        segment: Segment,
        offset: u64,
        bytes: u64,
    ) -> std::result::Result<Contributions, SimError> {
        let mut state = self.inner.state.borrow_mut();
        state.catch_up();
        let found = state.memory.host_origins(segment, offset, bytes)?;
        Ok(found.map_or_else(
            || Contributions::of(Counted::NOTHING, 0, bytes),
            |(origins, at)| origins.read(&at),
        ))
    }
}
