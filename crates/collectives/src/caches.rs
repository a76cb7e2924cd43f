//! Sizes of caches that algorithms were tuned for: how much a rank stages at once, and how far what it stages rotates.
//!
//! They change the time of a call and nothing else. Measured on Zen 4, with 32 KiB of first-level and 1 MiB of second-level
//! cache; `README.md` of the crate has the measurements of the table of choices, `native/src/core/README.md` those of copies.

/// The most bytes that a rank stages at once for each other rank: half of a second-level cache, where two ranks still
/// find them when they read. More ranks have no such limit, because more chunks mean more meetings.
pub(crate) const MOST_STAGED_BYTES: usize = 512 << 10;

/// Staged data rotates through this many bytes of each half. Lines that have left the peer's second-level cache since
/// it read them are written in half the time; with more bytes they would leave this rank's own cache too.
pub(crate) const MOVED_WITHIN_BYTES: usize = 1 << 20;

/// Staged data does not rotate through fewer places.
pub(crate) const LEAST_PLACES: usize = 4;

/// Smaller data is not rotated: it stays in the nearest cache.
pub(crate) const WORTH_MOVING_BYTES: usize = 4 << 10;

/// The packets in a ring of `ranks`, which is how far a root may be ahead. The packets of two ranks stay in their
/// first-level caches. With more ranks, which may share cores, a meeting costs more than that: it needs a turn of
/// every rank.
#[must_use]
#[inline]
pub const fn ring_packets(ranks: usize) -> usize {
    if ranks <= 2 { 8 } else { 64 }
}
const _: () = assert!(
    ring_packets(2).is_power_of_two() && ring_packets(3).is_power_of_two(),
    "numbers wrap, and places go on in their order"
);
