//! A byte ring: offsets for intermediate tensors, in a memory that somebody else owns.
//!
//! Allocation goes round: it takes the first hole that is large enough after the last one taken, and starts
//! over at the end. What is released in order is reused in order, like a ring; what is released early can be
//! reused early, so that a tensor of an outer scope does not hold up those behind it.
//!
//! # Invariants
//! - **ARENA-1 (disjoint).** Live blocks do not overlap and lie inside the arena.
//! - **ARENA-2 (joined).** No two holes touch, so what is free in one piece is found in one piece.

use crate::ids::Arena;
use std::collections::BTreeMap;

/// Blocks begin at multiples of this: a cache line pair, enough for any element and any vector.
pub(crate) const ALIGN_BYTES: u64 = 128;

impl Arena {
    /// What an intermediate of `bytes` takes of an arena: whole blocks of 128 bytes, and at least one, so that
    /// each has a place of its own.
    #[must_use]
    pub fn bytes_taken(bytes: u64) -> u64 {
        bytes
            .max(1)
            .checked_next_multiple_of(ALIGN_BYTES)
            .unwrap_or(u64::MAX)
    }
}

/// See the [module](self).
#[derive(Clone, Debug)]
pub(crate) struct ByteRing {
    capacity: u64,
    used: u64,
    /// Where to look next.
    cursor: u64,
    /// Free bytes by offset.
    holes: BTreeMap<u64, u64>,
}

impl ByteRing {
    pub(crate) fn new(capacity: u64) -> ByteRing {
        let capacity = capacity - capacity % ALIGN_BYTES;
        let mut holes = BTreeMap::new();
        if capacity > 0 {
            holes.insert(0, capacity);
        }
        ByteRing {
            capacity,
            used: 0,
            cursor: 0,
            holes,
        }
    }

    pub(crate) fn capacity(&self) -> u64 {
        self.capacity
    }

    pub(crate) fn used(&self) -> u64 {
        self.used
    }

    /// Takes `bytes` (as [`Arena::bytes_taken`] gives them), or `None` if no hole is large enough.
    pub(crate) fn allocate(&mut self, bytes: u64) -> Option<u64> {
        let fits = |&(_, &hole): &(&u64, &u64)| hole >= bytes;
        let ahead = self.holes.range(self.cursor..).find(fits);
        let (&offset, &hole) = ahead.or_else(|| self.holes.range(..self.cursor).find(fits))?;
        self.holes.remove(&offset);
        if hole > bytes {
            self.holes.insert(offset + bytes, hole - bytes);
        }
        self.used += bytes;
        self.cursor = offset + bytes;
        Some(offset)
    }

    /// Gives back what `take` gave.
    pub(crate) fn release(&mut self, offset: u64, bytes: u64) {
        let (mut start, mut end) = (offset, offset + bytes);
        if let Some((&before, &hole)) = self.holes.range(..offset).next_back() {
            debug_assert!(before + hole <= offset, "a block is given back once");
            if before + hole == offset {
                self.holes.remove(&before);
                start = before;
            }
        }
        if let Some(hole) = self.holes.remove(&end) {
            end += hole;
        }
        self.holes.insert(start, end - start);
        // A cursor inside the joined hole would hide it from the first search.
        if start < self.cursor && self.cursor < end {
            self.cursor = start;
        }
        self.used -= bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_released_in_order_are_reused_in_order() {
        let mut ring = ByteRing::new(1024);
        let taken: Vec<_> = (0..4).map(|_| ring.allocate(256).unwrap()).collect();
        assert_eq!(taken, [0, 256, 512, 768]);
        assert_eq!(ring.allocate(128), None);
        ring.release(0, 256);
        ring.release(256, 256);
        assert_eq!(ring.allocate(384), Some(0));
        assert_eq!(ring.used(), 256 + 256 + 384);
    }

    #[test]
    fn a_block_that_stays_does_not_hold_up_those_behind_it() {
        let mut ring = ByteRing::new(1024);
        let _outer = ring.allocate(128).unwrap();
        for _ in 0..1000 {
            let inner = ring.allocate(512).unwrap();
            ring.release(inner, 512);
        }
        assert_eq!(ring.used(), 128);
    }

    #[test]
    fn holes_join_whatever_the_order_of_release() {
        let mut ring = ByteRing::new(1024);
        let blocks: Vec<_> = (0..8).map(|_| ring.allocate(128).unwrap()).collect();
        for index in [1, 3, 5, 7, 0, 2, 6, 4] {
            ring.release(blocks[index], 128);
        }
        assert_eq!(ring.allocate(1024), Some(0));
    }
}
