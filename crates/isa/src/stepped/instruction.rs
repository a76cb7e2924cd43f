//! Instructions as values: what a core is asked to do, what it is answered, and what is read and written.

use crate::{
    Compare, Contributions, Counted, Element, Notify, ReduceOp, Signal, Span, Ticket, Tile, Work, pack,
    unpack,
};

/// What is in a tile or in memory, as far as an engine keeps it.
#[derive(Clone, Debug, PartialEq, Default)]
pub enum Payload {
    /// Nothing is known: only time counts.
    #[default]
    Hollow,
    /// Bytes.
    Bytes(Vec<u8>),
    /// Where the bytes come from instead of what they are.
    Origin(Contributions),
}

impl Payload {
    pub(super) fn of<T: Element>(tile: &Tile<T>) -> Payload {
        match tile.origin() {
            Some(origin) => Payload::Origin(origin.clone()),
            None if tile.is_hollow() => Payload::Hollow,
            None => Payload::Bytes(bytemuck::cast_slice(tile.values()).to_vec()),
        }
    }

    pub(super) fn into_tile<T: Element>(self, len: usize) -> Tile<T> {
        match self {
            Payload::Hollow => Tile::hollow(len),
            Payload::Bytes(bytes) => Tile::new(bytemuck::pod_collect_to_vec(&bytes)),
            Payload::Origin(origin) => Tile::traced(len, origin),
        }
    }

    /// As it lies in packets of `bytes` in all. Origins lie there unpacked: nobody looks between the two.
    pub(super) fn packed(self, epoch: i32, bytes: u64) -> Payload {
        match self {
            Payload::Hollow => Payload::Hollow,
            Payload::Bytes(payload) => Payload::Bytes(pack(&payload, epoch)),
            Payload::Origin(origin) => {
                let rest = Contributions::of(Counted::NOTHING, 0, bytes.saturating_sub(origin.bytes()));
                Payload::Origin(origin.replaced(origin.bytes(), &rest))
            }
        }
    }

    /// What was packed: this many bytes.
    pub(super) fn unpacked(self, bytes: usize) -> Payload {
        match self {
            Payload::Hollow => Payload::Hollow,
            Payload::Bytes(lines) => Payload::Bytes(unpack(&lines, bytes)),
            Payload::Origin(origin) => Payload::Origin(origin.slice(0..bytes as u64)),
        }
    }
}

/// What is in a span, in bytes.
pub(super) fn span_bytes(span: Span) -> usize {
    usize::try_from(span.len)
        .unwrap_or(usize::MAX)
        .saturating_mul(span.dtype.bytes())
}

/// What a core is asked to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Instruction {
    /// [`Core::copy`](crate::Core::copy).
    Copy {
        /// Where to.
        dst: Span,
        /// Where from.
        src: Span,
    },
    /// [`Core::copy_async`](crate::Core::copy_async); answered with [`Answer::Ticket`] as soon as it is under way.
    CopyAsync {
        /// Where to.
        dst: Span,
        /// Where from.
        src: Span,
    },
    /// Waiting for a transfer of this core's that was answered with a ticket.
    Join(Ticket),
    /// The part of [`Core::send`](crate::Core::send) that moves data: a tile into a slot of a neighbour's queue, then its signal.
    Put {
        /// The slot.
        slot: Span,
        /// What is in the tile.
        data: Payload,
        /// What says that it is there.
        full: Signal,
        /// The value that it is set to.
        value: i32,
    },
    /// The part of [`Core::recv`](crate::Core::recv) that moves data: a slot's bytes, answered with [`Answer::Taken`] at once; the
    /// ticket is for the time it takes.
    Take {
        /// The slot.
        slot: Span,
    },
    /// [`Core::reduce`](crate::Core::reduce).
    Reduce {
        /// Where to.
        dst: Span,
        /// Where from, in order.
        sources: Vec<Span>,
        /// How.
        op: ReduceOp,
    },
    /// [`Core::load`](crate::Core::load); answered with [`Answer::Loaded`].
    Load {
        /// Where from.
        src: Span,
    },
    /// [`Core::store`](crate::Core::store).
    Store {
        /// Where to.
        dst: Span,
        /// What is in the tile.
        data: Payload,
    },
    /// [`Core::spend`](crate::Core::spend): arithmetic whose values the core has computed already; only the time is asked for.
    Spend(Work),
    /// [`Core::notify`](crate::Core::notify).
    Notify {
        /// Which signal.
        signal: Signal,
        /// What to do to it.
        how: Notify,
    },
    /// [`Core::wait`](crate::Core::wait); answered with [`Answer::Value`].
    Wait {
        /// Which signal.
        signal: Signal,
        /// How to compare.
        compare: Compare,
        /// With what.
        operand: i32,
    },
    /// [`Core::peek`](crate::Core::peek); answered with [`Answer::Value`].
    Peek {
        /// Which signal.
        signal: Signal,
    },
}

/// What an engine answers.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// It has happened.
    Done,
    /// What was read.
    Loaded(Box<Payload>),
    /// A signal's value.
    Value(i32),
    /// It is under way.
    Ticket(Ticket),
    /// It is under way, and this is what was read.
    Taken(Ticket, Box<Payload>),
}
