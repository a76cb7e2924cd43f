//! Instructions as values: what a core is asked to do, what it is answered, and what is read and written.

use crate::erased::fold_bytes;
use crate::{BlockSpan, Compare, Contributions, Dtype, Epoch, Notify, ReduceOp, Signal, Span, Ticket, Work};
use std::ops::Range;

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
    /// Combines payloads of one length element by element, by the rules of `dtype`. A single one stays as it is.
    #[must_use]
    pub fn combine(dtype: Dtype, op: ReduceOp, all: &[&Payload]) -> Payload {
        if let [one] = all {
            return (*one).clone();
        }
        let (mut bytes, mut origins) = (Vec::new(), Vec::new());
        for payload in all {
            match payload {
                Payload::Bytes(values) => bytes.push(values.as_slice()),
                Payload::Origin(origin) => origins.push(origin),
                Payload::Hollow => {}
            }
        }
        if bytes.len() == all.len() {
            Payload::Bytes(fold_bytes(dtype, op, &bytes))
        } else if origins.len() == all.len() {
            Payload::Origin(Contributions::sum(&origins))
        } else {
            Payload::Hollow
        }
    }

    /// Some of its bytes.
    ///
    /// # Panics
    /// If there are bytes, but not these.
    #[must_use]
    pub fn part(&self, bytes: Range<usize>) -> Payload {
        match self {
            Payload::Hollow => Payload::Hollow,
            Payload::Bytes(all) => Payload::Bytes(all[bytes].to_vec()),
            Payload::Origin(origin) => Payload::Origin(origin.slice(bytes.start as u64..bytes.end as u64)),
        }
    }
}

/// One source of [`Instruction::TakePackets`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PacketSource {
    /// Where its elements lie.
    pub payload: Span,
    /// The flag and the signal to sleep on; none if it is the reader's own part, which is there already.
    pub arrives: Option<(Signal, Signal)>,
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
    /// [`Core::copy`](crate::Core::copy) of which one operand is a block at least. Both have the same shape.
    CopyBlock {
        /// Where to.
        dst: BlockSpan,
        /// Where from.
        src: BlockSpan,
    },
    /// [`Core::load`](crate::Core::load) of a block; answered with [`Answer::Loaded`], row by row.
    LoadBlock {
        /// Where from.
        src: BlockSpan,
    },
    /// [`Core::store`](crate::Core::store) to a block.
    StoreBlock {
        /// Where to.
        dst: BlockSpan,
        /// What is in the tile, row by row.
        data: Payload,
    },
    /// [`Core::spend`](crate::Core::spend): arithmetic whose values the core has computed already; only the time is asked for.
    Spend(Work),
    /// [`Core::put_packet`](crate::Core::put_packet): data and flag become visible together.
    PutPacket {
        /// Where the payload goes.
        payload: Span,
        /// Where it comes from.
        src: Span,
        /// The flag of the packet, which becomes `epoch`.
        flag: Signal,
        /// The packet's epoch.
        epoch: Epoch,
    },
    /// [`Core::get_packet`](crate::Core::get_packet) and [`Core::reduce_packets`](crate::Core::reduce_packets): waits until the flag
    /// of each source is `epoch`, and combines the payloads in order. One source is copied.
    TakePackets {
        /// Where to.
        dst: Span,
        /// The packets, and perhaps the reader's own part among them, in order.
        sources: Vec<PacketSource>,
        /// How they are combined.
        op: ReduceOp,
        /// The epoch that the packets must have.
        epoch: Epoch,
    },
    /// [`Core::notify`](crate::Core::notify).
    Notify {
        /// Which signal.
        signal: Signal,
        /// What to do to it.
        how: Notify,
    },
    /// [`Core::wait`](crate::Core::wait).
    Wait {
        /// Which signal.
        signal: Signal,
        /// How to compare.
        compare: Compare,
        /// With what.
        operand: i32,
    },
    /// [`Core::test`](crate::Core::test); answered with [`Answer::Tested`].
    Test {
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
    /// [`Core::own_value`](crate::Core::own_value): a signal of the core's own rank that only this rank writes; answered with
    /// [`Answer::Value`].
    OwnValue {
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
    /// Whether a signal compares as asked.
    Tested(bool),
    /// It is under way.
    Ticket(Ticket),
    /// It is under way, and this is what was read.
    Taken(Ticket, Box<Payload>),
}
