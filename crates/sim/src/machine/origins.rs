//! Memory of a machine that proves: of every byte where it comes from, instead of what it is.
//!
//! Each rank's memory is pieces by where they begin. Memory that is no piece was never written to. Pieces are not
//! joined when they come to touch: kernels write the same parts over and over, which then find their piece at once.
//!
//! # Invariants
//! - **ORG-1 (apart).** Pieces of a rank's memory do not overlap.

use super::memory::Located;
use ringwork_isa::{Contributions, Counted, Piece};
use std::collections::BTreeMap;

/// The origin of everything, by rank.
#[derive(Debug, Default)]
pub(crate) struct Origins {
    /// By segment and first byte.
    ranks: Vec<BTreeMap<(u32, u64), Piece>>,
    /// What is being moved; kept for its room.
    moved: Contributions,
}

impl Origins {
    pub(crate) fn new(ranks: u32) -> Origins {
        Origins {
            ranks: std::iter::repeat_with(BTreeMap::new)
                .take(ranks as usize)
                .collect(),
            moved: Contributions::default(),
        }
    }

    pub(crate) fn read(&self, at: &Located) -> Contributions {
        let mut all = Contributions::default();
        self.read_into(at, &mut all);
        all
    }

    fn read_into(&self, at: &Located, out: &mut Contributions) {
        out.clear();
        let pieces = &self.ranks[at.rank as usize];
        let mut next = at.start;
        let before = pieces.range(..(at.segment, at.start)).next_back();
        let before = before
            .filter(|((segment, first), piece)| *segment == at.segment && first + piece.bytes() > at.start);
        let inside = pieces.range((at.segment, at.start)..(at.segment, at.end));
        for ((_, first), piece) in before.into_iter().chain(inside) {
            out.push(Piece::new(Counted::NOTHING, 0, first.saturating_sub(next)));
            let (start, end) = (at.start.max(*first), at.end.min(first + piece.bytes()));
            out.push(piece.part(start - first..end - first));
            next = end;
        }
        out.push(Piece::new(Counted::NOTHING, 0, at.end - next));
    }

    /// Writes as many bytes as `what` has, from `at.start` on.
    pub(crate) fn write(&mut self, at: &Located, what: &Contributions) {
        let pieces = &mut self.ranks[at.rank as usize];
        if let [piece] = what.pieces()
            && let Some(place) = pieces.get_mut(&(at.segment, at.start))
            && place.bytes() == piece.bytes()
        {
            *place = piece.clone();
            return;
        }
        self.clear(at);
        let pieces = &mut self.ranks[at.rank as usize];
        let mut first = at.start;
        for piece in what.pieces() {
            pieces.insert((at.segment, first), piece.clone());
            first += piece.bytes();
        }
    }

    /// Makes room: cuts what reaches in from before and out behind, and takes away the rest.
    fn clear(&mut self, at: &Located) {
        let pieces = &mut self.ranks[at.rank as usize];
        let mut behind = None;
        if let Some(((segment, first), piece)) = pieces.range_mut(..(at.segment, at.start)).next_back()
            && *segment == at.segment
            && first + piece.bytes() > at.start
        {
            let end = first + piece.bytes();
            if end > at.end {
                behind = Some(piece.part(at.end - first..end - first));
            }
            piece.truncate(at.start - first);
        }
        while let Some(((_, first), piece)) = pieces
            .range((at.segment, at.start)..(at.segment, at.end))
            .next_back()
        {
            let (first, end) = (*first, first + piece.bytes());
            if end > at.end {
                behind = Some(piece.part(at.end - first..end - first));
            }
            pieces.remove(&(at.segment, first));
        }
        if let Some(behind) = behind {
            pieces.insert((at.segment, at.end), behind);
        }
    }

    pub(crate) fn copy(&mut self, dst: &Located, src: &Located) {
        let mut moved = std::mem::take(&mut self.moved);
        self.read_into(src, &mut moved);
        self.write(dst, &moved);
        self.moved = moved;
    }

    pub(crate) fn reduce(&mut self, dst: &Located, sources: &[Located]) {
        let Some((first, rest)) = sources.split_first() else {
            return;
        };
        let mut sum = self.read(first);
        let mut next = std::mem::take(&mut self.moved);
        for source in rest {
            self.read_into(source, &mut next);
            sum = sum.plus(&next);
        }
        self.moved = next;
        self.write(dst, &sum);
    }

    pub(crate) fn release(&mut self, segment: u32) {
        for pieces in &mut self.ranks {
            pieces.retain(|(of, _), _| *of != segment);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(start: u64, end: u64) -> Located {
        Located {
            segment: 1,
            start,
            end,
            rank: 0,
            memory: 0,
        }
    }

    proptest! {
        #[test]
        fn pieces_say_what_bytes_would(writes in prop::collection::vec((0u64..60, 1u64..30, 0u32..5), 0..40)) {
            let mut origins = Origins::new(1);
            let mut bytes: Vec<Option<(u32, u64)>> = vec![None; 100];
            for (start, len, member) in writes {
                origins.write(&at(start, start + len), &Contributions::input(member, start, len));
                for i in start..start + len {
                    bytes[usize::try_from(i).unwrap()] = Some((member, i));
                }
            }
            let mut wanted = Contributions::default();
            for byte in bytes {
                wanted.push(match byte {
                    None => Piece::new(Counted::NOTHING, 0, 1),
                    Some((member, from)) => Piece::new(Counted::once(member..member + 1), from, 1),
                });
            }
            prop_assert_eq!(&origins.read(&at(0, 100)), &wanted);
            prop_assert_eq!(origins.read(&at(13, 57)), wanted.slice(13..57));
        }
    }
}
