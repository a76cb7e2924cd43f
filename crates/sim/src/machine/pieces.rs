//! Pieces of one rank's memory in order of where they begin, millions of them: found near where the last ones were, and
//! put between others without moving more than a few.
//!
//! # Invariants
//! - **PCS-1 (apart).** Pieces do not overlap.
//! - **PCS-2 (in leaves).** No leaf is empty; pieces of a leaf, and leaves, are in order.

use ringwork_isa::{Counted, Piece};
use std::ops::Range;

/// Pieces of a leaf at most: what has to be moved to put one between others.
const LEAF: usize = 64;

#[derive(Clone, Debug)]
struct Placed {
    start: u64,
    piece: Piece,
}

impl Placed {
    fn end(&self) -> u64 {
        self.start + self.piece.bytes()
    }
}

#[derive(Clone, Debug)]
struct Leaf {
    /// Where its first piece begins.
    start: u64,
    all: Vec<Placed>,
}

/// Where a piece is: its leaf, and its number there.
type Place = (usize, usize);

/// The pieces of one rank's part of a segment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pieces {
    leaves: Vec<Leaf>,
    /// Where the last ones were found: kernels go through a buffer and its scratch side by side.
    recent: [Place; 2],
}

impl Pieces {
    /// The last piece that begins at `at` or before.
    fn find(&mut self, at: u64) -> Option<Place> {
        let covers = |(leaf, _): &Place| {
            self.leaves.get(*leaf).is_some_and(|leaf| leaf.start <= at)
                && self.leaves.get(leaf + 1).is_none_or(|next| at < next.start)
        };
        let (leaf, near) = match self.recent {
            [first, _] if covers(&first) => first,
            [first, second] if covers(&second) => {
                self.recent = [second, first];
                second
            }
            [first, _] => {
                let after = self.leaves.partition_point(|leaf| leaf.start <= at);
                self.recent[1] = first;
                (after.checked_sub(1)?, LEAF / 2)
            }
        };
        let all = &self.leaves[leaf].all;
        let mut index = near.min(all.len() - 1);
        while all[index].start > at {
            index -= 1;
        }
        while all.get(index + 1).is_some_and(|next| next.start <= at) {
            index += 1;
        }
        self.recent[0] = (leaf, index);
        Some((leaf, index))
    }

    /// Every piece or part of one in a range, and what is between them.
    pub(crate) fn read(&mut self, range: Range<u64>, mut each: impl FnMut(Piece)) {
        let (leaf, index) = self.find(range.start).unwrap_or((0, 0));
        let first = self
            .leaves
            .get(leaf)
            .into_iter()
            .flat_map(|leaf| &leaf.all[index..]);
        let more = self.leaves.iter().skip(leaf + 1).flat_map(|leaf| &leaf.all);
        let mut next = range.start;
        for placed in first.chain(more).take_while(|placed| placed.start < range.end) {
            let (start, end) = (range.start.max(placed.start), range.end.min(placed.end()));
            if start < end {
                each(Piece::new(Counted::NOTHING, 0, start - next));
                each(placed.piece.part(start - placed.start..end - placed.start));
                next = end;
            }
        }
        each(Piece::new(Counted::NOTHING, 0, range.end - next));
    }

    /// Writes pieces one after the other from `start` on.
    pub(crate) fn write(&mut self, start: u64, pieces: &[Piece]) {
        if let [piece] = pieces
            && let Some((leaf, index)) = self.find(start)
            && let place = &mut self.leaves[leaf].all[index]
            && place.start == start
            && place.piece.bytes() == piece.bytes()
        {
            place.piece.clone_from(piece);
            return;
        }
        let bytes: u64 = pieces.iter().map(Piece::bytes).sum();
        self.clear(start..start + bytes);
        let mut start = start;
        for piece in pieces {
            let piece = piece.clone();
            let bytes = piece.bytes();
            self.insert(Placed { start, piece });
            start += bytes;
        }
    }

    /// Makes room: cuts what reaches in from before and out behind, and takes away the rest.
    fn clear(&mut self, range: Range<u64>) {
        let mut behind = None;
        while !range.is_empty()
            && let Some((leaf, index)) = self.find(range.end - 1)
        {
            let last = &mut self.leaves[leaf].all[index];
            let (start, end) = (last.start, last.end());
            if end <= range.start {
                break;
            }
            if end > range.end {
                let piece = last.piece.part(range.end - start..end - start);
                let start = range.end;
                behind = Some(Placed { start, piece });
            }
            if start < range.start {
                last.piece.truncate(range.start - start);
                break;
            }
            self.remove((leaf, index));
        }
        if let Some(behind) = behind {
            self.insert(behind);
        }
    }

    fn remove(&mut self, (leaf, index): Place) {
        let all = &mut self.leaves[leaf].all;
        all.remove(index);
        match all.first().map(|first| first.start) {
            None => drop(self.leaves.remove(leaf)),
            Some(start) => self.leaves[leaf].start = start,
        }
    }

    /// Puts a piece where there is none.
    fn insert(&mut self, placed: Placed) {
        // Behind the last that begins before it; a full leaf's end is the next one's beginning.
        let (leaf, index) = match self.find(placed.start) {
            None => (0, 0),
            Some((leaf, index)) if index + 1 == LEAF => (leaf + 1, 0),
            Some((leaf, index)) => (leaf, index + 1),
        };
        let start = placed.start;
        match self.leaves.get_mut(leaf) {
            Some(into) if into.all.len() < LEAF => into.all.insert(index, placed),
            Some(full) if index > 0 => {
                let all = full.all.split_off(index);
                full.all.push(placed);
                let start = all[0].start;
                self.leaves.insert(leaf + 1, Leaf { start, all });
            }
            _ => {
                let all = vec![placed];
                self.leaves.insert(leaf, Leaf { start, all });
            }
        }
        if index == 0 {
            self.leaves[leaf].start = start;
        }
    }
}
