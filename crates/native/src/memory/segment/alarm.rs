//! The alarm of a domain: one word in the header that ends every wait there (SEG-4).

use super::{Attached, REASON_BYTES, REASON_LEN, at, truncated};
use ringwork_isa::{MAX_RANKS, Rank};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Why a domain must not be waited in any longer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alarm {
    /// The member that died; `None` if the domain was aborted.
    pub dead: Option<Rank>,
    /// How it died, or why it was aborted.
    pub reason: String,
}

const QUIET: u64 = 0;
pub(super) const CLAIMED: u64 = 1;
pub(super) const RAISED: u64 = 2;
/// How long a claim may stay a claim: a copy of a page, on a busy machine.
const CLAIM_LIMIT: Duration = Duration::from_millis(20);

impl Attached {
    /// Ends every wait in this domain, now and later, with `alarm`. The first alarm stays.
    pub fn raise(&self, alarm: &Alarm) {
        let word = self.header_word(at::ALARM);
        match word.compare_exchange(QUIET, CLAIMED, Ordering::SeqCst, Ordering::SeqCst) {
            Ok(_) => {}
            // The process that claimed it publishes at once, or has died half-way: then this one finishes.
            Err(CLAIMED) if !self.alarmed_within(CLAIM_LIMIT) => {}
            // Raised, or overwritten, which ends waits as well. Whoever did it may have died before it could rouse
            // the sleepers: let them find out.
            Err(_) => return self.rouse(),
        }
        let dead = alarm.dead.map_or(u64::MAX, |rank| rank.0.into());
        self.header_word(at::ALARM_RANK).store(dead, Ordering::Relaxed);
        let reason = truncated(&alarm.reason, REASON_LEN);
        self.header_word(at::REASON_LEN)
            .store(reason.len() as u64, Ordering::Relaxed);
        let _ = self.memory.write(at::REASON, reason.as_bytes());
        // SYNC: publishes the reason; pairs with the load in `alarm` (SEG-4).
        word.store(RAISED, Ordering::SeqCst);
        self.rouse();
    }

    fn alarmed_within(&self, limit: Duration) -> bool {
        let start = Instant::now();
        while !self.alarmed() && start.elapsed() < limit {
            std::thread::yield_now();
        }
        self.alarmed()
    }

    /// Whether waits must end: one load, for the inside of wait loops.
    #[inline]
    #[must_use]
    pub fn alarmed(&self) -> bool {
        // SYNC: pairs with the store in `raise` (SEG-4).
        // An impossible word is an alarm too: a wait in memory that was overwritten may never end.
        self.header_word(at::ALARM).load(Ordering::SeqCst) >= RAISED
    }

    /// The alarm, if one was raised. Its fields are validated, not trusted.
    #[must_use]
    pub fn alarm(&self) -> Option<Alarm> {
        let word = self.header_word(at::ALARM).load(Ordering::SeqCst);
        if word < RAISED {
            return None;
        }
        if word != RAISED {
            let what = format!("the header of segment {}", self.layout.segment);
            let corrupt = ringwork_isa::Error::corrupt(what, "alarm", word, "0, 1 or 2");
            return Some(Alarm {
                dead: None,
                reason: corrupt.to_string(),
            });
        }
        let dead = u32::try_from(self.header_word(at::ALARM_RANK).load(Ordering::Relaxed)).ok();
        let len = self
            .header_word(at::REASON_LEN)
            .load(Ordering::Relaxed)
            .min(REASON_BYTES);
        let mut reason = vec![0; usize::try_from(len).unwrap_or(0)];
        let _ = self.memory.read(at::REASON, &mut reason);
        let reason = String::from_utf8_lossy(&reason).into_owned();
        Some(Alarm {
            dead: dead.map(Rank).filter(|rank| rank.0 < self.layout.ranks),
            reason,
        })
    }

    /// Marks `rank` as done here: the end of its process raises no alarm any more.
    pub fn leave(&self, rank: Rank) {
        self.header_word(at::LEFT)
            .fetch_or(left_bit(rank), Ordering::SeqCst);
        self.rouse();
    }

    /// Whether `rank` has said that it is done here.
    #[must_use]
    pub fn has_left(&self, rank: Rank) -> bool {
        self.header_word(at::LEFT).load(Ordering::SeqCst) & left_bit(rank) != 0
    }

    /// How often it was reset: what tells counts of signals from those before.
    #[must_use]
    #[inline(always)]
    pub fn generation(&self) -> u64 {
        self.header_word(at::GENERATION).load(Ordering::Relaxed)
    }

    /// Back to a fresh domain: signals at zero, no alarm; data stays. Only while no task uses it.
    pub fn reset(&self) {
        for cell in self.cells() {
            cell.reset();
        }
        self.header_word(at::GENERATION).fetch_add(1, Ordering::SeqCst);
        self.header_word(at::ALARM).store(QUIET, Ordering::SeqCst);
        self.header_word(at::LEFT).store(0, Ordering::SeqCst);
    }
}

const _: () = assert!(MAX_RANKS <= u64::BITS, "a bit for every rank");

fn left_bit(rank: Rank) -> u64 {
    1u64.checked_shl(rank.0).unwrap_or(0)
}
