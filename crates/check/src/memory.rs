//! Memory of a checked program: bytes, or where they come from.

use ringwork_isa::stepped::Payload;
use ringwork_isa::{Contributions, Counted, Piece, Segment};
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

/// What memory keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Contents {
    /// Bytes: kernels may look at them.
    #[default]
    Bytes,
    /// Whose inputs each byte is made of. Stale and doubled inputs are then named; but tiles are hollow, so a kernel
    /// whose instructions depend on values needs [`Contents::Bytes`].
    Origins,
}

#[derive(Clone, Debug)]
enum Data {
    Bytes(Vec<u8>),
    /// By first byte, without gaps.
    Origins(BTreeMap<u64, Piece>),
}

#[derive(Clone, Debug)]
struct Stored {
    bytes: u64,
    /// The only rank that may touch it; `None` for windows.
    owner: Option<u32>,
    data: Rc<Data>,
}

/// All segments. Cheap to clone: a segment is copied when it is written.
#[derive(Clone, Debug, Default)]
pub(crate) struct Memory(BTreeMap<Segment, Stored>);

impl Memory {
    pub(crate) fn define(&mut self, segment: Segment, owner: Option<u32>, bytes: u64, contents: Contents) {
        let data = match contents {
            Contents::Bytes => Data::Bytes(vec![0; usize::try_from(bytes).unwrap_or(0)]),
            Contents::Origins => Data::Origins(BTreeMap::from([(0, Piece::new(Counted::NOTHING, 0, bytes))])),
        };
        let data = Rc::new(data);
        self.0.insert(segment, Stored { bytes, owner, data });
    }

    pub(crate) fn release(&mut self, segment: Segment) {
        self.0.remove(&segment);
    }

    /// What it holds, about.
    pub(crate) fn bytes(&self) -> u64 {
        let held = |stored: &Stored| match &*stored.data {
            Data::Bytes(bytes) => bytes.len(),
            Data::Origins(pieces) => pieces.len() * 2 * size_of::<Piece>(),
        };
        self.0.values().map(held).sum::<usize>() as u64
    }

    /// Whether `rank` may touch these bytes.
    pub(crate) fn is_mapped(&self, rank: u32, segment: Segment, bytes: &Range<u64>) -> bool {
        self.0
            .get(&segment)
            .is_some_and(|stored| bytes.end <= stored.bytes && stored.owner.is_none_or(|owner| owner == rank))
    }

    pub(crate) fn read(&self, segment: Segment, bytes: &Range<u64>) -> Payload {
        let Some(stored) = self.0.get(&segment) else {
            return Payload::Hollow;
        };
        match &*stored.data {
            Data::Bytes(all) => Payload::Bytes(all.get(to_usize(bytes)).unwrap_or_default().to_vec()),
            Data::Origins(pieces) => {
                let mut all = Contributions::default();
                let first = pieces.range(..=bytes.start).next_back().map_or(0, |(at, _)| *at);
                for (at, piece) in pieces.range(first..bytes.end) {
                    let (start, end) = (bytes.start.max(*at), bytes.end.min(at + piece.bytes()));
                    if start < end {
                        all.push(piece.part(start - at..end - at));
                    }
                }
                Payload::Origin(all)
            }
        }
    }

    pub(crate) fn write(&mut self, segment: Segment, bytes: &Range<u64>, data: &Payload) {
        if bytes.is_empty() {
            return;
        }
        let Some(stored) = self.0.get_mut(&segment) else {
            return;
        };
        match Rc::make_mut(&mut stored.data) {
            Data::Bytes(all) => {
                if let (Payload::Bytes(new), Some(place)) = (data, all.get_mut(to_usize(bytes)))
                    && new.len() == place.len()
                {
                    place.copy_from_slice(new);
                }
            }
            Data::Origins(pieces) => {
                let len = bytes.end - bytes.start;
                let made = match data {
                    Payload::Origin(origin) => origin.clone(),
                    // A value that a kernel made is nobody's input.
                    Payload::Bytes(_) => Contributions::of(Counted::NOTHING, 0, len),
                    Payload::Hollow => Contributions::of(Counted::UNKNOWN, 0, len),
                };
                cut(pieces, bytes.start);
                cut(pieces, bytes.end);
                let old: Vec<u64> = pieces.range(bytes.clone()).map(|(at, _)| *at).collect();
                for at in old {
                    pieces.remove(&at);
                }
                let mut at = bytes.start;
                for piece in made.pieces() {
                    pieces.insert(at, piece.clone());
                    at += piece.bytes();
                }
            }
        }
    }
}

fn to_usize(bytes: &Range<u64>) -> Range<usize> {
    let to = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
    to(bytes.start)..to(bytes.end)
}

/// Makes `at` a boundary.
fn cut(pieces: &mut BTreeMap<u64, Piece>, at: u64) {
    if let Some((start, piece)) = pieces.range_mut(..at).next_back()
        && start + piece.bytes() > at
    {
        let right = piece.part(at - start..piece.bytes());
        piece.truncate(at - start);
        pieces.insert(at, right);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_are_read_back_piece_by_piece() {
        let mut memory = Memory::default();
        let segment = Segment(1);
        memory.define(segment, None, 64, Contents::Origins);
        let input = |member| Payload::Origin(Contributions::input(member, 0, 16));
        memory.write(segment, &(0..16), &input(0));
        memory.write(segment, &(8..24), &input(1));
        let Payload::Origin(found) = memory.read(segment, &(4..12)) else {
            panic!("origins were asked for");
        };
        let mut wanted = Contributions::input(0, 4, 4);
        wanted.replace(4, &Contributions::input(1, 0, 4));
        assert_eq!(found, wanted);
    }

    #[test]
    fn private_memory_is_mapped_for_its_owner_only() {
        let mut memory = Memory::default();
        memory.define(Segment(2), Some(1), 8, Contents::Bytes);
        assert!(memory.is_mapped(1, Segment(2), &(0..8)));
        assert!(!memory.is_mapped(0, Segment(2), &(0..8)) && !memory.is_mapped(1, Segment(2), &(0..9)));
    }
}
