//! The flag of a packet: the word that says whose payload is there.
//!
//! A packet's writer stores the payload and then raises the flag; after that it raises a signal, for readers that have gone to
//! sleep. A reader looks at the flag. If the packet has not come, it waits for the signal and looks once more.
//!
//! # Invariants
//! - **FLAG-1 (publication).** A reader that sees a flag sees the payload, and everything that its writer did before.
//! - **FLAG-2 (a sleeper finds it).** The signal is raised after the flag, so a reader that was woken sees the flag, unless
//!   the packet was overwritten or is of another call.

use super::primitive::{AtomicU64, Ordering};

/// The last word of a packet's first line.
#[derive(Debug, Default)]
#[cfg_attr(not(loom), repr(transparent))]
pub struct FlagWord(AtomicU64);

impl FlagWord {
    /// Publishes what was stored before. One writer.
    #[inline(always)]
    pub fn raise(&self, flag: u64) {
        // SYNC: pairs with the load in `seen` (FLAG-1).
        self.0.store(flag, Ordering::Release);
    }

    /// The flag now.
    #[inline(always)]
    pub fn seen(&self) -> u64 {
        // SYNC: pairs with the store in `raise` (FLAG-1).
        self.0.load(Ordering::Acquire)
    }
}
