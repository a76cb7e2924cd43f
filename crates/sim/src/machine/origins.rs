//! Memory of a machine that proves: of every byte where it comes from, instead of what it is.
//!
//! Each rank's memory is pieces by where they begin. Memory outside of all pieces was never written. Pieces are not
//! joined when they come to touch: kernels write the same parts over and over, which then find their piece at once.

use super::memory::Located;
use super::pieces::Pieces;
use ringwork_isa::Contributions;

/// The origin of everything, by rank.
#[derive(Debug, Default)]
pub(crate) struct Origins {
    /// By segment: a rank is in few.
    ranks: Vec<Vec<(u32, Pieces)>>,
}

impl Origins {
    pub(crate) fn new(ranks: u32) -> Origins {
        Origins {
            ranks: std::iter::repeat_with(Vec::new).take(ranks as usize).collect(),
        }
    }

    fn pieces(&mut self, at: &Located) -> &mut Pieces {
        let all = &mut self.ranks[at.rank as usize];
        let known = all.iter().position(|(segment, _)| *segment == at.segment);
        let index = known.unwrap_or_else(|| {
            all.push((at.segment, Pieces::default()));
            all.len() - 1
        });
        &mut all[index].1
    }

    pub(crate) fn read(&mut self, at: &Located) -> Contributions {
        let mut all = Contributions::default();
        self.pieces(at).read(at.start..at.end, |piece| all.push(piece));
        all
    }

    /// Writes as many bytes as `what` has, from `at.start` on.
    pub(crate) fn write(&mut self, at: &Located, what: &Contributions) {
        self.pieces(at).write(at.start, what.pieces());
    }

    pub(crate) fn release(&mut self, segment: u32) {
        for all in &mut self.ranks {
            all.retain(|(of, _)| *of != segment);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use ringwork_isa::{Counted, Piece};

    fn at(start: u64, end: u64) -> Located {
        Located {
            segment: 1,
            start,
            end,
            rank: 0,
            memory: 0,
            rows: 1,
            pitch: 0,
        }
    }

    proptest! {
        #[test]
        fn pieces_say_what_bytes_would(writes in prop::collection::vec((0u64..600, 1u64..30, 0u32..5), 0..400)) {
            let mut origins = Origins::new(1);
            let mut bytes: Vec<Option<(u32, u64)>> = vec![None; 640];
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
            prop_assert_eq!(&origins.read(&at(0, 640)), &wanted);
            prop_assert_eq!(origins.read(&at(13, 557)), wanted.slice(13..557));
        }
    }
}
