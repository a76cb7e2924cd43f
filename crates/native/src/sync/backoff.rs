//! Backoff: a waiter spins, then yields its core, before it sleeps.

use std::time::Duration;
#[cfg(not(loom))]
use std::time::Instant;

/// Polls between two readings of the clock. One reading costs as much as a message between two cores.
#[cfg(not(loom))]
const SPINS_PER_CLOCK: u32 = 32;

/// The longest time to spend on yielding. If the core was away for longer, other programs have used it, and the
/// scheduler gives it back sooner to a process that sleeps.
#[cfg(not(loom))]
const LONGEST_YIELDING: Duration = Duration::from_millis(1);

/// How long to poll before sleeping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// Spin for this long: poll without pause. Right when every rank has a core of its own.
    pub spin: Duration,
    /// Then yield the core this many times, looking in between.
    pub yields: u32,
}

impl Patience {
    /// For `runners` processes that share `cores` cores.
    ///
    /// Waking a sleeper on another core costs tens of microseconds, so with a core for every process it pays to spin
    /// that long. With fewer cores the process that is waited for may need this very core: yield at once.
    #[must_use]
    pub fn for_sharing(runners: usize, cores: usize) -> Patience {
        if runners <= cores {
            Patience {
                spin: Duration::from_micros(20),
                yields: 4,
            }
        } else {
            Patience {
                spin: Duration::ZERO,
                yields: 32,
            }
        }
    }

    /// Polls until `look` returns something or the patience has ended.
    #[cfg(not(loom))]
    pub(super) fn spin_and_yield<R>(self, look: impl Fn() -> Option<R>) -> Option<R> {
        if !self.spin.is_zero() {
            let start = Instant::now();
            while start.elapsed() < self.spin {
                for _ in 0..SPINS_PER_CLOCK {
                    if let Some(found) = look() {
                        return Some(found);
                    }
                    std::hint::spin_loop();
                }
            }
        }
        let mut yielding = None;
        for turn in 0..self.yields {
            if let Some(found) = look() {
                return Some(found);
            }
            // Usually one yield is enough, so the clock is read only from the second on.
            if turn > 0 && yielding.get_or_insert_with(Instant::now).elapsed() > LONGEST_YIELDING {
                break;
            }
            std::thread::yield_now();
        }
        None
    }

    /// A model has no clock and no scheduler: a waiter sleeps at once.
    #[cfg(loom)]
    pub(super) fn spin_and_yield<R>(self, _: impl Fn() -> Option<R>) -> Option<R> {
        None
    }
}
