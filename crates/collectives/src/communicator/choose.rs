//! Choosing an algorithm: by operation, size and how the ranks sit on the cores.

use crate::Algorithm;
use crate::window::Spread;

/// What a choice depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Situation {
    pub(super) bytes: usize,
    pub(super) ranks: u32,
    /// The data is in the window already.
    pub(super) in_window: bool,
}

/// How an all-reduce is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// Through scratch or packets.
    Staged(Algorithm),
    /// Where the data is.
    InWindow(Spread),
}

/// Up to here payload and flag travel together.
const PACKET_BYTES: usize = 2 << 10;
/// Up to here everybody reduces everything: one meeting is cheaper than less reading.
const ONE_PHASE_BYTES: usize = 8 << 10;
/// From here pushing beats pulling when the data is in the window.
const PUSH_BYTES: usize = 1 << 20;

/// The way that is fastest here, as far as is known.
pub(super) fn all_reduce(situation: Situation) -> Way {
    let Situation {
        bytes,
        ranks,
        in_window,
    } = situation;
    // Everybody reads everything in these: with more ranks the reading is what costs.
    let share = bytes.saturating_mul(ranks as usize) / 2;
    if share <= PACKET_BYTES {
        return Way::Staged(Algorithm::Packet);
    }
    if in_window && bytes >= 4 << 10 {
        return Way::InWindow(if bytes >= PUSH_BYTES {
            Spread::Push
        } else {
            Spread::Pull
        });
    }
    Way::Staged(if share <= ONE_PHASE_BYTES {
        Algorithm::OnePhase
    } else {
        Algorithm::TwoPhase
    })
}
