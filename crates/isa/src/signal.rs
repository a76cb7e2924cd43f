//! Signals: the cells by which chips tell each other that something is ready.

use crate::{Error, QueueEnd, Rank, Result, Segment};
use serde::{Deserialize, Serialize};
use std::fmt;

/// How a signal's value is compared with an operand.
///
/// The four order comparisons use serial-number arithmetic: `a >= b` means that the wrapping difference
/// `a - b` is not negative. For values less than 2^31 apart, which is all that counters ever meet, this is
/// the ordinary order; and a counter that only grows keeps working after it wraps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Compare {
    /// Equal.
    Eq,
    /// Not equal.
    Ne,
    /// Greater.
    Gt,
    /// Greater or equal.
    Ge,
    /// Less.
    Lt,
    /// Less or equal.
    Le,
}

impl Compare {
    /// Whether `value` compares to `operand` in this way.
    ///
    /// ```
    /// use ringwork_isa::Compare;
    /// assert!(Compare::Ge.holds(3, 3));
    /// assert!(Compare::Ge.holds(i32::MIN, i32::MAX)); // one step after the wrap
    /// ```
    #[inline]
    #[must_use]
    pub const fn holds(self, value: i32, operand: i32) -> bool {
        let ahead = value.wrapping_sub(operand);
        match self {
            Compare::Eq => ahead == 0,
            Compare::Ne => ahead != 0,
            Compare::Gt => ahead > 0,
            Compare::Ge => ahead >= 0,
            Compare::Lt => ahead < 0,
            Compare::Le => ahead <= 0,
        }
    }
}

impl fmt::Display for Compare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Compare::Eq => "==",
            Compare::Ne => "!=",
            Compare::Gt => ">",
            Compare::Ge => ">=",
            Compare::Lt => "<",
            Compare::Le => "<=",
        })
    }
}

/// What [`notify`](crate::Core::notify) does to a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Notify {
    /// Store the value. Only for signals with one writer.
    Set(i32),
    /// Add the value, wrapping. Atomic: concurrent adds are never lost.
    Add(i32),
}

/// A row of signal cells, the same number on every member of a domain, seen from one rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signals {
    /// The domain's segment.
    pub segment: Segment,
    /// Byte offset of cell 0 of rank 0.
    pub base: u64,
    /// Bytes between the same cell of two neighbouring ranks.
    pub stride: u64,
    /// Cells per rank.
    pub count: u32,
    /// The rank that holds this handle.
    pub me: Rank,
    /// Ranks in the domain.
    pub ranks: u32,
}

/// Bytes from one signal cell to the next: two cache lines, so that neighbours never share one, nor the
/// pair that the prefetcher fetches.
pub const SIGNAL_STRIDE_BYTES: u64 = 128;

impl Signals {
    /// My cell number `index`; `.on(peer)` is a peer's.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfBounds`](crate::ErrorKind::OutOfBounds) if there is no such cell.
    #[track_caller]
    #[inline]
    pub fn at(&self, index: u32) -> Result<Signal> {
        if index >= self.count {
            return Err(Error::out_of_bounds(
                index.into(),
                u64::from(index) + 1,
                self.count.into(),
            ));
        }
        Ok(Signal {
            row: *self,
            index,
            rank: self.me,
            queue: None,
        })
    }

    /// Cell 0, where it is known that there is one.
    pub(crate) fn first(&self) -> Signal {
        Signal {
            row: *self,
            index: 0,
            rank: self.me,
            queue: None,
        }
    }

    /// My cell number `index`, which nobody but me ever writes.
    ///
    /// # Errors
    /// As [`at`](Signals::at).
    #[track_caller]
    #[inline]
    pub fn own(&self, index: u32) -> Result<OwnSignal> {
        self.at(index).map(OwnSignal)
    }

    /// The rank that holds this handle.
    #[must_use]
    #[inline]
    pub fn rank(&self) -> Rank {
        self.me
    }

    /// Ranks in the domain.
    #[must_use]
    #[inline]
    pub fn ranks(&self) -> u32 {
        self.ranks
    }
}

/// My own signal, written by this rank alone: others read it, and I always know its value.
///
/// [`Core::own_value`](crate::Core::own_value) returns that value without reading the cell that others poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnSignal(Signal);

impl OwnSignal {
    /// The cell: to notify, or to wait for the same one [on](Signal::on) a peer.
    #[must_use]
    #[inline(always)]
    pub fn signal(&self) -> Signal {
        self.0
    }
}

/// One signal cell on one rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signal {
    row: Signals,
    index: u32,
    rank: Rank,
    /// The queue it belongs to, if it does: for diagnoses, and for what it costs.
    queue: Option<QueueEnd>,
}

impl Signal {
    /// The same signal on another rank.
    ///
    /// # Errors
    /// [`ErrorKind::NoSuchRank`](crate::ErrorKind::NoSuchRank) if the domain is smaller.
    #[track_caller]
    #[inline(always)]
    pub fn on(self, peer: Rank) -> Result<Signal> {
        if peer.0 >= self.row.ranks {
            return Err(Error::no_such_rank(peer, self.row.ranks));
        }
        Ok(Signal { rank: peer, ..self })
    }

    /// The same signal, known to be written by its holder alone.
    pub(crate) fn owned(self) -> OwnSignal {
        OwnSignal(self)
    }

    /// The same signal on a rank that is known to exist.
    pub(crate) fn moved(self, rank: Rank) -> Signal {
        Signal { rank, ..self }
    }

    /// The same signal, known to belong to a queue.
    pub(crate) fn of_queue(self, end: QueueEnd) -> Signal {
        Signal {
            queue: Some(end),
            ..self
        }
    }

    /// The queue it belongs to, seen from the member that waits for it.
    #[must_use]
    pub fn queue(&self) -> Option<QueueEnd> {
        self.queue
    }

    /// Whose signal this is.
    #[must_use]
    #[inline]
    pub fn rank(&self) -> Rank {
        self.rank
    }

    /// Ranks in the domain.
    #[inline]
    #[must_use]
    pub fn ranks(&self) -> u32 {
        self.row.ranks
    }

    /// The rank that holds the handle.
    #[must_use]
    #[inline]
    pub fn holder(&self) -> Rank {
        self.row.me
    }

    /// Its number among the cells of its row.
    #[must_use]
    #[inline]
    pub fn index(&self) -> u32 {
        self.index
    }

    /// The segment it is in.
    #[must_use]
    #[inline]
    pub fn segment(&self) -> Segment {
        self.row.segment
    }

    /// How many bytes the windows of two ranks are apart.
    #[must_use]
    #[inline]
    pub fn stride(&self) -> u64 {
        self.row.stride
    }

    /// The byte offset in the segment of the same signal of rank 0; `None` if the handle is nonsense. For cores, which know how many
    /// ranks there are, and how far apart.
    #[must_use]
    #[inline(always)]
    pub fn offset_on_first(&self) -> Option<u64> {
        self.row
            .base
            .checked_add(u64::from(self.index) * SIGNAL_STRIDE_BYTES)
    }

    /// Its byte offset in the segment; `None` if the handle is nonsense.
    #[must_use]
    #[inline]
    pub fn offset(&self) -> Option<u64> {
        let on_rank = self.row.stride.checked_mul(self.rank.0.into())?;
        let in_row = u64::from(self.index) * SIGNAL_STRIDE_BYTES;
        self.row.base.checked_add(on_rank)?.checked_add(in_row)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn order_is_ordinary_for_values_less_than_half_the_range_apart(a: i32, d in -1_000_000_000i32..1_000_000_000) {
            let Some(b) = a.checked_add(d) else { return Ok(()) };
            prop_assert_eq!(Compare::Ge.holds(b, a), b >= a);
            prop_assert_eq!(Compare::Gt.holds(b, a), b > a);
            prop_assert_eq!(Compare::Le.holds(b, a), b <= a);
            prop_assert_eq!(Compare::Lt.holds(b, a), b < a);
            prop_assert_eq!(Compare::Eq.holds(b, a), b == a);
            prop_assert_eq!(Compare::Ne.holds(b, a), b != a);
        }

        #[test]
        fn a_counter_that_grows_satisfies_its_waiter_across_the_wrap(start: i32, ahead in 0i32..1000) {
            prop_assert!(Compare::Ge.holds(start.wrapping_add(ahead), start));
        }
    }

    #[test]
    fn a_signal_past_the_row_or_the_domain_is_refused() {
        let row = Signals {
            segment: Segment(1),
            base: 0,
            stride: 4096,
            count: 2,
            me: Rank(0),
            ranks: 2,
        };
        assert!(row.at(2).is_err());
        assert!(row.at(1).unwrap().on(Rank(2)).is_err());
        assert_eq!(row.at(1).unwrap().on(Rank(1)).unwrap().offset(), Some(4096 + 128));
    }
}
