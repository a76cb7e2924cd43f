//! The fingerprint of a collective call: what every rank must agree on before it can mean anything.

use crate::{Dtype, ReduceOp, Way};
use std::fmt;

/// What is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Operation {
    /// Everybody's reduction, everywhere.
    AllReduce = 1,
    /// Everybody's data, everywhere.
    AllGather,
    /// Each its part of the reduction.
    ReduceScatter,
    /// The root's data, everywhere.
    Broadcast,
    /// The reduction, on the root.
    Reduce,
    /// Everybody's data, on the root.
    Gather,
    /// Each its part of the root's data.
    Scatter,
    /// A part from everyone to everyone.
    AllToAll,
    /// Nothing but meeting.
    Barrier,
    /// Making new communicators.
    Split,
    /// A part of its own length from everyone to everyone.
    AllToAllV,
    /// Data to one rank, which the root field names. Not a collective call.
    Send,
    /// Data from one rank, which the root field names. Not a collective call.
    Recv,
    /// The rank has dropped its communicator: it makes no calls any more.
    Leave,
}

impl Operation {
    /// Every operation.
    pub const ALL: [Operation; 14] = [
        Operation::AllReduce,
        Operation::AllGather,
        Operation::ReduceScatter,
        Operation::Broadcast,
        Operation::Reduce,
        Operation::Gather,
        Operation::Scatter,
        Operation::AllToAll,
        Operation::Barrier,
        Operation::Split,
        Operation::AllToAllV,
        Operation::Send,
        Operation::Recv,
        Operation::Leave,
    ];

    /// Whether it moves data: the others only meet.
    const fn has_data(self) -> bool {
        !matches!(self, Operation::Barrier | Operation::Split | Operation::Leave)
    }

    /// Whether two ranks make it and not all.
    #[must_use]
    pub const fn is_between_two(self) -> bool {
        matches!(self, Operation::Send | Operation::Recv)
    }

    /// The name a user types.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Operation::AllReduce => "all_reduce",
            Operation::AllGather => "all_gather",
            Operation::ReduceScatter => "reduce_scatter",
            Operation::Broadcast => "broadcast",
            Operation::Reduce => "reduce",
            Operation::Gather => "gather",
            Operation::Scatter => "scatter",
            Operation::AllToAll => "all_to_all",
            Operation::Barrier => "barrier",
            Operation::Split => "split",
            Operation::AllToAllV => "all_to_all_v",
            Operation::Send => "send",
            Operation::Recv => "recv",
            Operation::Leave => "leave",
        }
    }
}

/// A collective call in sixteen bytes: operation, dtype, reduction, way, root, count, and its number.
///
/// ```
/// use ringwork_isa::{Dtype, Fingerprint, Operation, ReduceOp, Way};
/// let call = Fingerprint::new(7, Operation::AllReduce, Dtype::F32, 1024).reducing(ReduceOp::Sum);
/// assert_eq!(Fingerprint::from_words(call.words()), Some(call));
/// assert_eq!(call.to_string(), "all_reduce of 1024 x f32, sum (call 7)");
/// assert_eq!(call.by(Way::Packet).to_string(), "all_reduce of 1024 x f32, sum, packet (call 7)");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fingerprint {
    sequence: u32,
    operation: Operation,
    dtype: Dtype,
    /// The reduction, and how it is done if there is a choice, in half a byte each; as they travel, for every call is put
    /// together so.
    how: u8,
    root: u8,
    count: u64,
}

const NONE: u8 = u8::MAX;
/// As [`NONE`], in half a byte.
const NO_NIBBLE: u8 = 15;
const _: () = assert!(Way::ALL.len() < NO_NIBBLE as usize && ReduceOp::ALL.len() < NO_NIBBLE as usize);

impl Fingerprint {
    /// Call number `sequence` of a communicator.
    #[must_use]
    #[inline]
    pub fn new(sequence: u32, operation: Operation, dtype: Dtype, count: u64) -> Fingerprint {
        Fingerprint {
            sequence,
            operation,
            dtype,
            how: NO_NIBBLE | NO_NIBBLE << 4,
            root: NONE,
            count,
        }
    }

    /// The same call with a reduction.
    #[must_use]
    #[inline]
    pub fn reducing(self, op: ReduceOp) -> Fingerprint {
        let how = self.how & !NO_NIBBLE | op as u8;
        Fingerprint { how, ..self }
    }

    /// The same call, done this way.
    #[must_use]
    #[inline]
    pub fn by(self, way: Way) -> Fingerprint {
        let how = self.how & NO_NIBBLE | (way as u8) << 4;
        Fingerprint { how, ..self }
    }

    /// The same call with a root.
    #[must_use]
    #[inline]
    pub fn rooted(self, root: u32) -> Fingerprint {
        Fingerprint {
            root: u8::try_from(root).unwrap_or(NONE),
            ..self
        }
    }

    /// What is called.
    #[must_use]
    #[inline]
    pub fn operation(&self) -> Operation {
        self.operation
    }

    /// Its number.
    #[must_use]
    #[inline]
    pub fn sequence(&self) -> u32 {
        self.sequence
    }

    /// Whether it is about data and there is none.
    #[must_use]
    #[inline]
    pub fn moves_nothing(&self) -> bool {
        self.count == 0 && self.operation.has_data()
    }

    /// As it lies in shared memory.
    #[must_use]
    #[inline]
    pub fn words(&self) -> [u64; 2] {
        let bytes = [self.operation as u8, self.dtype as u8, self.how, self.root];
        [
            u64::from(self.sequence) << 32 | u64::from(u32::from_le_bytes(bytes)),
            self.count,
        ]
    }

    /// From what lies in shared memory; `None` if it is no call.
    #[must_use]
    pub fn from_words([head, count]: [u64; 2]) -> Option<Fingerprint> {
        let sequence = u32::try_from(head >> 32).ok()?;
        let [operation, dtype, how, root, ..] = head.to_le_bytes();
        let operation = Operation::ALL
            .into_iter()
            .find(|known| *known as u8 == operation)?;
        let dtype = Dtype::ALL.into_iter().find(|known| *known as u8 == dtype)?;
        let known = |nibble: u8, named: bool| nibble == NO_NIBBLE || named;
        if !known(how & NO_NIBBLE, op(how).is_some()) || !known(how >> 4, way(how).is_some()) {
            return None;
        }
        Some(Fingerprint {
            sequence,
            operation,
            dtype,
            how,
            root,
            count,
        })
    }
}

/// The reduction in the lower half of a byte, if it is one.
fn op(how: u8) -> Option<ReduceOp> {
    let mut all = ReduceOp::ALL.into_iter();
    all.find(|known| *known as u8 == how & NO_NIBBLE)
}

/// The way in the upper half of a byte, if it is one.
fn way(how: u8) -> Option<Way> {
    Way::ALL.into_iter().find(|known| *known as u8 == how >> 4)
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.operation.name())?;
        if self.operation == Operation::Leave {
            write!(f, ": it dropped its communicator")?;
        }
        if self.operation.has_data() {
            write!(f, " of {} x {}", self.count, self.dtype)?;
        }
        if let Some(op) = op(self.how) {
            write!(f, ", {op}")?;
        }
        if let Some(way) = way(self.how) {
            write!(f, ", {way}")?;
        }
        match (self.operation, (self.root != NONE).then_some(self.root)) {
            (Operation::Send, Some(peer)) => write!(f, " to rank {peer}")?,
            (Operation::Recv, Some(peer)) => write!(f, " from rank {peer}")?,
            (_, Some(root)) => write!(f, ", root {root}")?,
            (_, None) => {}
        }
        let when = if self.operation.is_between_two() {
            "before call"
        } else {
            "call"
        };
        write!(f, " ({when} {})", self.sequence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_two_words_are_a_call_or_nothing_and_calls_survive_the_trip(head: u64, count: u64) {
            if let Some(call) = Fingerprint::from_words([head, count]) {
                prop_assert_eq!(Fingerprint::from_words(call.words()), Some(call));
            }
        }
    }
}
