//! Chooses between ordinary and streaming stores for memory that other cores have in their caches.
//!
//! A store to a line that another core holds waits until that core gives it up. Between far cores that takes four
//! times as long as streaming stores past all caches; between near cores it takes half as long, and the reader then
//! finds the data in a cache. Ranks move between cores while they run, so nothing is assumed: now and then copies use
//! the other kind of store, and the faster kind is kept.

use crate::arith;
use crate::trace::tsc_clock;
use ringwork_isa::Span;
use std::cell::Cell;
use std::sync::atomic::{Ordering, fence};

/// Shorter copies use ordinary stores: the fence after streaming stores costs as much as the copy.
const LEAST_BYTES: usize = 4 << 10;
/// Copies of this size leave nothing in the caches for the reader.
const LARGE_BYTES: usize = 1 << 20;
/// Copies of this size always use streaming stores: they do not fit the caches, and they are too rare to learn from.
const HUGE_BYTES: usize = 8 << 20;
/// A caller's buffer of this size is in no cache when it is read again, even if it is copied in small pieces.
const BEYOND_CACHES_BYTES: u64 = 16 << 20;
/// Out of this many copies, the first few use the other kind of store. Only the last of these is timed, because the
/// earlier ones still find the lines where the usual kind has left them. Trials also leave the lines in the wrong
/// caches for the next copies, so they are rare.
const CYCLE: u32 = 2048;
const TRIALS: u32 = 3;
/// Out of this many copies, one is timed. If it took twice as long as before and there was no trial just before, the
/// ranks have moved to other cores, and a trial starts at once.
const SAMPLES: u32 = 16;
const SETTLED: u32 = 4 * SAMPLES;

/// Source and destination of a copy. They are learned separately, because their lines are in different caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Route {
    /// Into private memory.
    Private,
    /// Into private memory that is larger than the caches.
    Memory,
    /// From this rank's memory into its window, where peers will read it.
    Staging,
    /// Into a peer's window.
    Pushing,
    /// From a peer's window into this rank's.
    Pulling,
}

impl Route {
    /// `lent` is the length of the caller's writable slice, if the destination is in it.
    #[inline(always)]
    pub(super) fn of(to: &Span, from: &Span, lent: Option<u64>) -> Route {
        if lent.is_some_and(|bytes| bytes >= BEYOND_CACHES_BYTES) {
            Route::Memory
        } else if to.ranks <= 1 {
            Route::Private
        } else if to.rank != to.me {
            Route::Pushing
        } else if from.rank != from.me {
            Route::Pulling
        } else {
            Route::Staging
        }
    }
}

/// What was learned about each route, for each power of two of bytes from [`LEAST_BYTES`] to [`HUGE_BYTES`].
#[derive(Debug, Default)]
pub(super) struct StorePolicy {
    staging: [Learned; SIZES],
    pushing: [Learned; SIZES],
    pulling: [Learned; SIZES],
}

const SIZES: usize = (HUGE_BYTES / LEAST_BYTES).ilog2() as usize;

/// What was learned about copies of this size, unless they are too small or too large to learn from.
#[inline(always)]
fn of_size(sizes: &[Learned; SIZES], bytes: usize) -> Option<&Learned> {
    sizes.get((bytes / LEAST_BYTES).checked_ilog2()? as usize)
}

/// The recent cost of a copy, in ticks per 64 KiB; 0 if unknown.
#[derive(Debug, Default)]
struct Learned {
    ordinary: Cell<u64>,
    streaming: Cell<u64>,
    copies: Cell<u32>,
}

impl StorePolicy {
    /// Copies with the kind of store that was faster lately.
    ///
    /// # Safety
    /// As [`arith::copy`].
    #[inline]
    pub(super) unsafe fn copy(&self, route: Route, to: *mut u8, from: *const u8, bytes: usize) {
        let sizes = match route {
            Route::Staging => &self.staging,
            Route::Pushing => &self.pushing,
            Route::Pulling => &self.pulling,
            // SAFETY: the caller's promises, unchanged.
            Route::Private => return unsafe { arith::copy(to, from, bytes) },
            // SAFETY: the caller's promises, unchanged.
            Route::Memory => return unsafe { one_way(bytes >= LEAST_BYTES, to, from, bytes) },
        };
        // SAFETY: the caller's promises, unchanged.
        unsafe {
            match of_size(sizes, bytes) {
                Some(learned) => learned.copy(to, from, bytes),
                None => one_way(bytes >= HUGE_BYTES, to, from, bytes),
            }
        }
    }

    /// Whether staged data should use streaming stores, according to earlier copies.
    #[inline]
    pub(super) fn stages_past_the_caches(&self, bytes: usize) -> bool {
        of_size(&self.staging, bytes).map_or(bytes >= HUGE_BYTES, |learned| learned.streams(bytes))
    }
}

impl Learned {
    /// Whether streaming is much faster, which means that the reader's core is far. Between near cores streaming is
    /// up to twice as fast for the writer alone, and slower for writer and reader together, except for data that no
    /// cache holds.
    fn streams(&self, bytes: usize) -> bool {
        let (ordinary, streaming) = (self.ordinary.get(), self.streaming.get());
        let halves = if bytes < LARGE_BYTES { 6 } else { 3 };
        streaming > 0 && streaming.saturating_mul(halves) / 2 < ordinary
    }

    /// # Safety
    /// As [`arith::copy`].
    unsafe fn copy(&self, to: *mut u8, from: *const u8, bytes: usize) {
        let turn = self.copies.get();
        self.copies.set((turn + 1) % CYCLE);
        let streams = self.streams(bytes) != (turn < TRIALS);
        // SAFETY: the caller's promises, unchanged.
        unsafe {
            if turn == TRIALS - 1 || turn % SAMPLES == SAMPLES - 1 {
                self.timed(streams, to, from, bytes);
            } else {
                one_way(streams, to, from, bytes);
            }
        }
    }

    /// # Safety
    /// As [`arith::copy`].
    unsafe fn timed(&self, streams: bool, to: *mut u8, from: *const u8, bytes: usize) {
        let start = tsc_clock::now();
        // SAFETY: the caller's promises, unchanged.
        unsafe { one_way(streams, to, from, bytes) };
        // The fence includes the time until the store buffer is empty.
        fence(Ordering::SeqCst);
        let took = tsc_clock::now().saturating_sub(start);
        let rate = (took.saturating_mul(64 << 10) / (bytes as u64).max(1)).max(1);
        let known = if streams { &self.streaming } else { &self.ordinary };
        let before = known.get();
        if before > 0 && rate > 2 * before && self.copies.get() > SETTLED {
            self.copies.set(0);
        }
        // Limits one sample to 8 times the average: a preempted sample must not spoil the average, and a migration
        // still shows after a few samples.
        let rate = rate.min(if before == 0 {
            rate
        } else {
            before.saturating_mul(8)
        });
        known.set(if before == 0 { rate } else { (before + rate) / 2 });
    }
}

/// # Safety
/// As [`arith::copy`].
#[inline]
unsafe fn one_way(streams: bool, to: *mut u8, from: *const u8, bytes: usize) {
    // SAFETY: the caller's promises, unchanged.
    unsafe {
        if streams {
            arith::copy_streaming(to, from, bytes);
        } else {
            arith::copy(to, from, bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringwork_isa::{Dtype, Rank, Segment};

    #[test]
    fn what_is_copied_does_not_depend_on_what_was_learned() {
        let store_policy = StorePolicy::default();
        let mut from: Vec<u8> = (0..9_000).map(|i| (i * 7 % 251) as u8).collect();
        for (round, bytes) in [0, 1, 4095, 4096, 4097, 8999]
            .into_iter()
            .cycle()
            .take(12)
            .enumerate()
        {
            let mut to = vec![0u8; bytes + 1];
            let slow = if round % 12 < 6 { 1 } else { 1 << 40 };
            for learned in &store_policy.staging {
                learned.ordinary.set(slow);
                learned.streaming.set(1 << 20);
            }
            // SAFETY: both are private and long enough.
            unsafe { store_policy.copy(Route::Staging, to.as_mut_ptr(), from.as_mut_ptr(), bytes) };
            assert_eq!((&to[..bytes], to[bytes]), (&from[..bytes], 0), "round {round}");
        }
    }

    #[test]
    fn every_size_has_its_own_but_the_smallest_and_the_largest_which_have_none() {
        let store_policy = StorePolicy::default();
        let place = |bytes| {
            let found = of_size(&store_policy.staging, bytes)?;
            store_policy
                .staging
                .iter()
                .position(|learned| std::ptr::eq(learned, found))
        };
        let places = [0, LEAST_BYTES - 1, HUGE_BYTES, usize::MAX].map(place);
        assert_eq!(places, [None; 4]);
        let places = [LEAST_BYTES, 2 * LEAST_BYTES - 1, 2 * LEAST_BYTES, HUGE_BYTES - 1];
        assert_eq!(places.map(place), [Some(0), Some(0), Some(1), Some(SIZES - 1)]);
    }

    #[test]
    fn what_a_caller_has_lent_goes_past_the_caches_if_none_holds_it() {
        let own = Span {
            segment: Segment(1),
            base: 0,
            stride: 0,
            me: Rank(0),
            rank: Rank(0),
            ranks: 1,
            dtype: Dtype::U8,
            start: 0,
            len: 1,
        };
        for (lent, route) in [
            (None, Route::Private),
            (Some(BEYOND_CACHES_BYTES - 1), Route::Private),
            (Some(BEYOND_CACHES_BYTES), Route::Memory),
        ] {
            assert_eq!(Route::of(&own, &own, lent), route, "{lent:?}");
        }
        let (mut to, mut from) = (vec![0u8; LEAST_BYTES + 1], vec![7u8; LEAST_BYTES + 1]);
        for bytes in [1, LEAST_BYTES - 1, LEAST_BYTES + 1] {
            to.fill(0);
            // SAFETY: both are private and long enough.
            unsafe {
                StorePolicy::default().copy(Route::Memory, to.as_mut_ptr(), from.as_mut_ptr(), bytes);
            }
            assert!(to[..bytes] == from[..bytes] && to[bytes..].iter().all(|byte| *byte == 0));
        }
    }

    #[test]
    fn what_is_clearly_faster_is_kept_and_tried_again() {
        let learned = Learned::default();
        assert!(!learned.streams(LEAST_BYTES), "nothing is known");
        learned.ordinary.set(100);
        learned.streaming.set(40);
        assert!(!learned.streams(LEAST_BYTES), "not clearly");
        assert!(learned.streams(LARGE_BYTES), "clearly, if no cache holds it");
        learned.streaming.set(30);
        assert!(learned.streams(LEAST_BYTES));
        let (mut to, mut from) = (vec![0u8; LEAST_BYTES], vec![1u8; LEAST_BYTES]);
        let mut copy_as = |turn: u32| {
            learned.copies.set(turn);
            // SAFETY: both are private and as long.
            unsafe { learned.copy(to.as_mut_ptr(), from.as_mut_ptr(), LEAST_BYTES) };
        };
        copy_as(TRIALS - 1);
        assert_ne!(learned.ordinary.get(), 100, "the other way was tried");
        learned.ordinary.set(u64::MAX / 4);
        copy_as(SAMPLES - 1);
        assert_ne!(learned.streaming.get(), 30, "the usual way was timed");
        let known = learned.streaming.get();
        copy_as(SAMPLES);
        assert_eq!(learned.streaming.get(), known, "most are not");
    }
}
