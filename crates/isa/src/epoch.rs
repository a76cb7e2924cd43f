//! Epochs: the number of a round of a barrier or of a packet place.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The number of a round. It only grows, wraps, and is compared by serial-number order, as signals are.
///
/// A kernel can go on to the [`next`](Epoch::next) one, tell odd from even, and notify or wait for it. It cannot do
/// arithmetic with it: no kernel treats one epoch differently from another of the same parity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Epoch(i32);

impl Epoch {
    /// The epoch that a signal's value stands for.
    #[must_use]
    #[inline(always)]
    pub const fn of(value: i32) -> Epoch {
        Epoch(value)
    }

    /// The round after this one.
    #[must_use]
    #[inline(always)]
    pub const fn next(self) -> Epoch {
        Epoch(self.0.wrapping_add(1))
    }

    /// Whether it is odd: which half of a double buffer it uses.
    #[must_use]
    #[inline(always)]
    pub const fn is_odd(self) -> bool {
        self.0 & 1 != 0
    }

    /// Its place among `places` that are used in turn; they must be a power of two, so that the order goes on across the wrap.
    #[must_use]
    #[inline(always)]
    pub const fn place(self, places: u32) -> u32 {
        self.0.cast_unsigned() & (places - 1)
    }
}

impl From<Epoch> for i32 {
    #[inline(always)]
    fn from(epoch: Epoch) -> i32 {
        epoch.0
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
