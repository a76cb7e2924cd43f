//! Where bytes come from: whose inputs each of them is made of, instead of what they are.
//!
//! A platform that proves instead of computing keeps no values. Its memory and its [`Tile`](crate::Tile)s say of
//! every byte which members' inputs were combined into it, how often each, and which byte of the input that was.
//! Copying copies that; reducing adds it up. At the end nothing may be missing, counted twice or in another place.
//!
//! Neighbouring bytes of the same origin are one [`Piece`], so a proof costs as much as there are pieces, not bytes.
//!
//! ```
//! use ringwork_isa::{Contributions, Counted};
//! let input = |member| Contributions::input(member, 0, 16);
//! let sum = Contributions::sum(&[&input(0), &input(1), &input(2)]);
//! assert!(sum.differences(&Contributions::of(Counted::once(0..3), 0, 16)).is_empty());
//! let twice = Contributions::sum(&[&sum, &input(1)]);
//! let wrong = twice.differences(&Contributions::of(Counted::once(0..3), 0, 16));
//! assert_eq!(wrong[0].how.to_string(), "counts the input of rank 1 2 times");
//! ```

use crate::Counted;
use std::fmt;
use std::ops::Range;

/// Bytes of one origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    bytes: u64,
    /// Which byte of the inputs the first of them is; [`MIXED`] if bytes of different places were combined.
    from: u64,
    counted: Counted,
}

const MIXED: u64 = u64::MAX;

impl Piece {
    /// Bytes that were combined from these inputs, from byte `from` of each on.
    #[must_use]
    pub fn new(counted: Counted, from: u64, bytes: u64) -> Piece {
        let placeless = counted == Counted::NOTHING || counted.is_unknown();
        Piece {
            bytes,
            from: if placeless { MIXED } else { from },
            counted,
        }
    }

    /// How many.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Part of it.
    #[must_use]
    pub fn part(&self, range: Range<u64>) -> Piece {
        Piece {
            bytes: range.end - range.start,
            from: self.at(range.start),
            counted: self.counted.clone(),
        }
    }

    /// Keeps the first bytes only.
    pub fn truncate(&mut self, bytes: u64) {
        self.bytes = bytes;
    }

    fn at(&self, offset: u64) -> u64 {
        if self.from == MIXED {
            MIXED
        } else {
            self.from + offset
        }
    }

    /// Whether `next` goes on where this one ends.
    fn continues(&self, next: &Piece) -> bool {
        self.at(self.bytes) == next.from && self.counted == next.counted
    }

    /// What combining it with as many other bytes gives.
    #[must_use]
    pub fn plus(&self, other: &Piece) -> Piece {
        let from = match (&self.counted, &other.counted) {
            (_, nothing) if *nothing == Counted::NOTHING => self.from,
            (nothing, _) if *nothing == Counted::NOTHING => other.from,
            _ if self.from == other.from => self.from,
            _ => MIXED,
        };
        Piece::new(self.counted.plus(&other.counted), from, self.bytes)
    }

    /// What is wrong with it where the other should be.
    fn unlike(&self, wanted: &Piece) -> Option<Difference> {
        if self.counted.is_unknown() {
            return Some(Difference::Untracked);
        }
        let members = wanted.counted.as_once().unwrap_or(0..0);
        match self.counted.unlike(members.clone()) {
            Some((member, 0)) => Some(Difference::Lacks { member }),
            Some((member, _)) if !members.contains(&member) => Some(Difference::Foreign { member }),
            Some((member, times)) => Some(Difference::Repeats { member, times }),
            None if self.from != wanted.from => Some(Difference::Misplaced {
                got: (self.from != MIXED).then_some(self.from),
                wanted: wanted.from,
            }),
            None => None,
        }
    }
}

/// What is wrong with where something comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Difference {
    /// A member's input is missing.
    Lacks {
        /// Whose.
        member: u32,
    },
    /// A member's input is counted too often.
    Repeats {
        /// Whose.
        member: u32,
        /// How often.
        times: u32,
    },
    /// A member's input is there that should not be.
    Foreign {
        /// Whose.
        member: u32,
    },
    /// The right members' inputs, but other bytes of them.
    Misplaced {
        /// The place in the inputs of what is there; `None` if different ones were combined.
        got: Option<u64>,
        /// The place of what should be.
        wanted: u64,
    },
    /// It went through arithmetic that keeps no origins: nothing can be proved.
    Untracked,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Difference::Lacks { member } => write!(f, "lacks the input of rank {member}"),
            Difference::Repeats { member, times } => {
                write!(f, "counts the input of rank {member} {times} times")
            }
            Difference::Foreign { member } => {
                write!(
                    f,
                    "contains the input of rank {member}, which does not belong there"
                )
            }
            Difference::Misplaced {
                got: Some(got),
                wanted,
            } => write!(f, "is place {got} of the inputs where place {wanted} belongs"),
            Difference::Misplaced { got: None, .. } => {
                f.write_str("combines elements of different places of the inputs")
            }
            Difference::Untracked => {
                f.write_str("went through arithmetic that keeps no origins, so nothing can be proved")
            }
        }
    }
}

/// Bytes whose origin is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// Which.
    pub bytes: Range<u64>,
    /// What is wrong with them.
    pub how: Difference,
}

/// The origin of some bytes, piece by piece.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Contributions(Vec<Piece>);

impl Contributions {
    /// Bytes that were combined from these inputs, from byte `from` of each on.
    #[must_use]
    pub fn of(counted: Counted, from: u64, bytes: u64) -> Contributions {
        let mut all = Contributions::default();
        all.push(Piece::new(counted, from, bytes));
        all
    }

    /// Bytes of a member's input, from byte `from` of it on.
    #[must_use]
    pub fn input(member: u32, from: u64, bytes: u64) -> Contributions {
        Contributions::of(Counted::once(member..member.saturating_add(1)), from, bytes)
    }

    /// The pieces, in order.
    #[must_use]
    pub fn pieces(&self) -> &[Piece] {
        &self.0
    }

    /// How many bytes they are.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.0.iter().map(|piece| piece.bytes).sum()
    }

    /// Forgets all pieces.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Adds a piece at the end.
    pub fn push(&mut self, piece: Piece) {
        match self.0.last_mut() {
            _ if piece.bytes == 0 => {}
            Some(last) if last.continues(&piece) => last.bytes += piece.bytes,
            _ => self.0.push(piece),
        }
    }

    /// Some of the bytes. What is not there is left out.
    #[must_use]
    pub fn slice(&self, range: Range<u64>) -> Contributions {
        let (mut all, mut at) = (Contributions::default(), 0);
        for piece in &self.0 {
            if at >= range.end {
                break;
            }
            let (start, end) = (range.start.max(at), range.end.min(at + piece.bytes));
            if start < end {
                all.push(piece.part(start - at..end - at));
            }
            at += piece.bytes;
        }
        all
    }

    /// The same with other bytes from `start` on.
    #[must_use]
    pub fn replaced(&self, start: u64, with: &Contributions) -> Contributions {
        let mut all = self.clone();
        all.replace(start, with);
        all
    }

    /// Replaces `with.bytes()` bytes from `start` on. `start` may be the end; then it appends.
    pub fn replace(&mut self, start: u64, with: &Contributions) {
        let end = start + with.bytes();
        let (first, first_at) = self.piece_at(start);
        let (last, last_at) = self.piece_at(end);
        // With the neighbours, for what is new may go on where one of them ends, or the other way round.
        let range = first.saturating_sub(1)..(last + 2).min(self.0.len());
        let mut new = Contributions::default();
        for piece in &self.0[range.start..first] {
            new.push(piece.clone());
        }
        if let Some(cut) = self.0.get(first) {
            new.push(cut.part(0..start - first_at));
        }
        for piece in &with.0 {
            new.push(piece.clone());
        }
        if let Some(cut) = self.0.get(last) {
            new.push(cut.part(end - last_at..cut.bytes));
        }
        for piece in self.0.get(last + 1..range.end).unwrap_or(&[]) {
            new.push(piece.clone());
        }
        self.0.splice(range, new.0);
    }

    /// The number of the piece that a byte is in, and the first byte of that; behind the last if there is none.
    fn piece_at(&self, byte: u64) -> (usize, u64) {
        let mut at = 0;
        for (index, piece) in self.0.iter().enumerate() {
            if byte < at + piece.bytes {
                return (index, at);
            }
            at += piece.bytes;
        }
        (self.0.len(), at)
    }

    /// What combining equally many bytes of each gives.
    #[must_use]
    pub fn sum(all: &[&Contributions]) -> Contributions {
        let Some((first, rest)) = all.split_first() else {
            return Contributions::default();
        };
        let mut sum = (*first).clone();
        for next in rest {
            sum = sum.plus(next);
        }
        sum
    }

    /// What combining these with equally many other bytes gives.
    #[must_use]
    pub fn plus(&self, other: &Contributions) -> Contributions {
        let mut all = Contributions::default();
        self.beside(other, |_, mine, theirs| all.push(mine.plus(theirs)));
        all
    }

    /// What is wrong with these bytes where the others should be; of each stretch the first fault that is found.
    /// A byte should be made of one member's input, or of those of members that follow each other, once each.
    #[must_use]
    pub fn differences(&self, wanted: &Contributions) -> Vec<Wrong> {
        let mut all: Vec<Wrong> = Vec::new();
        self.beside(wanted, |bytes, mine, theirs| {
            let Some(how) = mine.unlike(theirs) else { return };
            match all.last_mut() {
                Some(last) if last.bytes.end == bytes.start && last.how == how => last.bytes.end = bytes.end,
                _ => all.push(Wrong { bytes, how }),
            }
        });
        all
    }

    /// Goes through two of them side by side, in stretches that are one piece in both.
    fn beside(&self, other: &Contributions, mut each: impl FnMut(Range<u64>, &Piece, &Piece)) {
        let (mut i, mut j, mut at) = (0, 0, 0);
        let (mut used, mut theirs_used) = (0, 0);
        while let (Some(mine), Some(theirs)) = (self.0.get(i), other.0.get(j)) {
            let bytes = (mine.bytes - used).min(theirs.bytes - theirs_used);
            each(
                at..at + bytes,
                &mine.part(used..used + bytes),
                &theirs.part(theirs_used..theirs_used + bytes),
            );
            at += bytes;
            used += bytes;
            theirs_used += bytes;
            if used == mine.bytes {
                (i, used) = (i + 1, 0);
            }
            if theirs_used == theirs.bytes {
                (j, theirs_used) = (j + 1, 0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_cut_joined_and_added_where_they_meet() {
        let (a, b) = (Contributions::input(0, 0, 12), Contributions::input(1, 0, 12));
        let mixed = a.replaced(4, &Contributions::sum(&[&a.slice(4..8), &b.slice(4..8)]));
        assert_eq!(mixed.pieces().len(), 3);
        assert_eq!(mixed.bytes(), 12);
        let whole = mixed.replaced(4, &a.slice(4..8));
        assert_eq!(whole, a);
        let sum = Contributions::sum(&[&mixed, &b]);
        let times: Vec<_> = sum.pieces().iter().map(|piece| piece.counted.times(1)).collect();
        assert_eq!(times, [Some(1), Some(2), Some(1)]);
    }

    #[test]
    fn what_replaces_something_joins_what_it_goes_on_from() {
        let of = |members: &[u32]| {
            let mut all = Contributions::default();
            for (from, member) in (0..).zip(members) {
                all.push(Piece::new(Counted::once(*member..member + 1), from, 1));
            }
            all
        };
        for start in 0..=9 {
            for len in 0..=9 - start {
                for (mine, theirs) in [([1, 1, 2, 2, 1, 1, 3, 3, 3], 1), ([1; 9], 1), ([4; 9], 5)] {
                    let mut wanted = mine;
                    wanted[start..start + len].fill(theirs);
                    let input = Contributions::input(theirs, start as u64, len as u64);
                    assert_eq!(of(&mine).replaced(start as u64, &input), of(&wanted));
                }
            }
        }
        let (a, b) = (Contributions::input(0, 0, 4), Contributions::input(0, 4, 4));
        assert_eq!(a.replaced(4, &b), Contributions::input(0, 0, 8));
        assert_eq!(Contributions::default().replaced(0, &a), a);
    }

    #[test]
    fn every_fault_is_told_with_its_bytes() {
        let wanted = Contributions::of(Counted::once(0..3), 0, 12);
        let of = |members: &[u32], from: u64| {
            let inputs: Vec<_> = members
                .iter()
                .map(|m| Contributions::input(*m, from, 4))
                .collect();
            Contributions::sum(&inputs.iter().collect::<Vec<_>>())
        };
        let fault = |part: Contributions| {
            let right = wanted.slice(0..12);
            right.replaced(4, &part).differences(&wanted)
        };
        assert!(fault(of(&[2, 0, 1], 4)).is_empty());
        let bytes = 4..8;
        for (part, how) in [
            (of(&[0, 2], 4), Difference::Lacks { member: 1 }),
            (of(&[0, 1, 2, 2], 4), Difference::Repeats { member: 2, times: 2 }),
            (of(&[0, 1, 2, 5], 4), Difference::Foreign { member: 5 }),
            (
                of(&[0, 1, 2], 8),
                Difference::Misplaced {
                    got: Some(8),
                    wanted: 4,
                },
            ),
            (
                of(&[0, 1], 4).plus(&of(&[2], 0)),
                Difference::Misplaced { got: None, wanted: 4 },
            ),
            (
                Contributions::of(Counted::NOTHING, 0, 4),
                Difference::Lacks { member: 0 },
            ),
            (
                Contributions::of(Counted::UNKNOWN, 0, 4).plus(&of(&[1], 4)),
                Difference::Untracked,
            ),
        ] {
            let bytes = bytes.clone();
            assert_eq!(fault(part), [Wrong { bytes, how }]);
        }
    }
}
