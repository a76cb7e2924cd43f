//! The fingerprint of a collective call: what every rank must agree on before it can mean anything.

use crate::{Algorithm, Collective, Dtype, ReduceOp};
use std::fmt;

/// What is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// A collective.
    Collective(Collective),
    /// A part of its own length from everyone to everyone.
    AllToAllV,
    /// Making new communicators.
    Split,
    /// Data to one rank, which the root field names. Not a collective call.
    Send,
    /// Data from one rank, which the root field names. Not a collective call.
    Recv,
    /// The rank has dropped its communicator: it makes no calls any more.
    Leave,
}

/// The operations that are not collectives, with their names.
const OTHERS: [(Operation, &str); 5] = [
    (Operation::AllToAllV, "all_to_all_v"),
    (Operation::Split, "split"),
    (Operation::Send, "send"),
    (Operation::Recv, "recv"),
    (Operation::Leave, "leave"),
];

impl From<Collective> for Operation {
    #[inline(always)]
    fn from(collective: Collective) -> Operation {
        Operation::Collective(collective)
    }
}

impl Operation {
    /// Whether it moves data: the others only meet.
    #[inline]
    fn has_data(self) -> bool {
        !matches!(
            self,
            Operation::Collective(Collective::Barrier) | Operation::Split | Operation::Leave
        )
    }

    /// Whether two ranks make it and not all.
    #[must_use]
    pub const fn is_between_two(self) -> bool {
        matches!(self, Operation::Send | Operation::Recv)
    }

    /// The name a user types.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Operation::Collective(collective) => collective.name(),
            other => OTHERS
                .iter()
                .find(|(known, _)| *known == other)
                .map_or("", |(_, name)| name),
        }
    }

    #[inline(always)]
    fn number(self) -> u8 {
        match self {
            Operation::Collective(collective) => collective as u8,
            Operation::AllToAllV => 0x80,
            Operation::Split => 0x81,
            Operation::Send => 0x82,
            Operation::Recv => 0x83,
            Operation::Leave => 0x84,
        }
    }

    fn numbered(number: u8) -> Option<Operation> {
        let collective = Collective::ALL.into_iter().find(|one| *one as u8 == number);
        let other = || OTHERS.iter().find(|(known, _)| known.number() == number);
        collective
            .map(Operation::Collective)
            .or_else(|| other().map(|found| found.0))
    }
}

/// A collective call in sixteen bytes: operation, dtype, reduction, algorithm, root, count, and its number.
///
/// ```
/// use ringwork_isa::{Algorithm, Collective, Dtype, Fingerprint, ReduceOp};
/// let call = Fingerprint::new(7, Collective::AllReduce, Dtype::F32, 1024).reducing(ReduceOp::Sum);
/// assert_eq!(Fingerprint::from_words(call.words()), Some(call));
/// assert_eq!(call.to_string(), "all_reduce of 1024 x f32, sum (call 7)");
/// assert_eq!(call.by(Algorithm::Packet).to_string(), "all_reduce of 1024 x f32, sum, packet (call 7)");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fingerprint {
    sequence: u32,
    operation: Operation,
    /// The element type and the reduction, in half a byte each, as they lie in shared memory.
    what: u8,
    /// The algorithm, if there is a choice.
    algorithm: u8,
    root: u8,
    count: u64,
}

const NONE: u8 = u8::MAX;
/// As [`NONE`], in half a byte.
const NO_NIBBLE: u8 = 15;
const _: () = assert!(Dtype::ALL.len() <= NO_NIBBLE as usize && ReduceOp::ALL.len() < NO_NIBBLE as usize);

/// The number of a type without its size, which the low bits of a [`Dtype`] hold.
#[inline(always)]
fn nibble(dtype: Dtype) -> u8 {
    dtype as u8 >> 2
}

impl Fingerprint {
    /// Call number `sequence` of a communicator.
    #[must_use]
    #[inline]
    pub fn new(sequence: u32, operation: impl Into<Operation>, dtype: Dtype, count: u64) -> Fingerprint {
        Fingerprint {
            sequence,
            operation: operation.into(),
            what: nibble(dtype) | NO_NIBBLE << 4,
            algorithm: NONE,
            root: NONE,
            count,
        }
    }

    /// The same call with a reduction.
    #[must_use]
    #[inline]
    pub fn reducing(self, op: ReduceOp) -> Fingerprint {
        let what = self.what & NO_NIBBLE | (op as u8) << 4;
        Fingerprint { what, ..self }
    }

    /// The same call, done by this algorithm.
    #[must_use]
    #[inline]
    pub fn by(self, algorithm: Algorithm) -> Fingerprint {
        Fingerprint {
            algorithm: algorithm as u8,
            ..self
        }
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
        let bytes = [self.operation.number(), self.what, self.algorithm, self.root];
        [
            u64::from(self.sequence) << 32 | u64::from(u32::from_le_bytes(bytes)),
            self.count,
        ]
    }

    /// From what lies in shared memory; `None` if it is not a call.
    #[must_use]
    pub fn from_words([head, count]: [u64; 2]) -> Option<Fingerprint> {
        let sequence = u32::try_from(head >> 32).ok()?;
        let [operation, what, algorithm, root, ..] = head.to_le_bytes();
        let call = Fingerprint {
            sequence,
            operation: Operation::numbered(operation)?,
            what,
            algorithm,
            root,
            count,
        };
        let reduction = what >> 4 == NO_NIBBLE || call.op().is_some();
        let algorithm = algorithm == NONE || call.algorithm().is_some();
        (call.dtype().is_some() && reduction && algorithm).then_some(call)
    }

    fn dtype(&self) -> Option<Dtype> {
        let mut all = Dtype::ALL.into_iter();
        all.find(|known| nibble(*known) == self.what & NO_NIBBLE)
    }

    fn op(&self) -> Option<ReduceOp> {
        let mut all = ReduceOp::ALL.into_iter();
        all.find(|known| *known as u8 == self.what >> 4)
    }

    fn algorithm(&self) -> Option<Algorithm> {
        let mut all = Algorithm::ALL.into_iter();
        all.find(|known| *known as u8 == self.algorithm)
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.operation.name())?;
        if self.operation == Operation::Leave {
            write!(f, ": it dropped its communicator")?;
        }
        if let Some(dtype) = self.dtype().filter(|_| self.operation.has_data()) {
            write!(f, " of {} x {dtype}", self.count)?;
        }
        if let Some(op) = self.op() {
            write!(f, ", {op}")?;
        }
        if let Some(algorithm) = self.algorithm() {
            write!(f, ", {algorithm}")?;
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

    #[test]
    fn every_type_and_reduction_survives_the_trip() {
        for dtype in Dtype::ALL {
            for op in ReduceOp::ALL {
                let call = Fingerprint::new(1, Collective::Reduce, dtype, 3).reducing(op);
                assert_eq!(Fingerprint::from_words(call.words()), Some(call));
                assert_eq!(call.to_string(), format!("reduce of 3 x {dtype}, {op} (call 1)"));
            }
        }
    }

    proptest! {
        #[test]
        fn any_two_words_are_a_call_or_nothing_and_calls_survive_the_trip(head: u64, count: u64) {
            if let Some(call) = Fingerprint::from_words([head, count]) {
                prop_assert_eq!(Fingerprint::from_words(call.words()), Some(call));
            }
        }
    }
}
