//! Queues between neighbours: tiles sent through slots that are given back by credits.
//!
//! Every member of a domain has the same number of *ports*. A port of one member is joined to a port of
//! another, and carries one queue each way: what I [`send`](crate::Core::send) on mine, its holder gets by
//! [`recv`](crate::Core::recv) on the other, in order. A queue has a few slots in the window of its reader; a
//! writer that finds none free waits until the reader has taken a message out.
//!
//! ```text
//!  rank 0, port 1 (east)                         rank 1, port 0 (west)
//!   sent: 6 ──────── message 5: data, length, full ────────►  slots: 4 [5] 2 3   taken: 4
//!   free: 4 1 2 3 ◄───────────── credit: free ─────────────
//! ```
//!
//! Which port is joined to which is said by the program, in both directions: two members that are neighbours on
//! both sides, as in a ring of two, have two pairs of ports and so four queues that never meet.
//!
//! # Invariants
//! - **QUE-1 (one writer).** A slot and its `full` and `length` are written by the sender; its `free` by the
//!   receiver; `sent` and `taken` by their holder.
//! - **QUE-2 (together).** Data and length of a message are published by one release, that of `full`: whoever
//!   sees the message sees both.
//! - **QUE-3 (no overwriting).** Message `i` is put into slot `i % depth` when `free` of that slot says that
//!   message `i - depth` was taken out.
//! - **QUE-4 (numbers stay).** A send or receive has its number when it is issued. So asynchronous ones may be
//!   finished in any order.

use crate::{
    Compare, Core, ElementType, Erased, Error, ErrorKind, Notify, Rank, Result, Shared, Signal, Signals,
    Site, TileValues,
};
use serde::{Deserialize, Serialize};
use std::fmt;

/// What a signal of a queue is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum QueueSignal {
    /// A message is in its slot: what a receiver waits for.
    Full,
    /// The length of that message.
    Length,
    /// A slot is free again: the credit that a sender waits for.
    Free,
    /// Messages that the holder has sent or taken: nobody else looks at it.
    Count,
}

impl QueueSignal {
    /// All of them.
    pub const ALL: [QueueSignal; 4] = [
        QueueSignal::Full,
        QueueSignal::Length,
        QueueSignal::Free,
        QueueSignal::Count,
    ];
}

/// The queue that a signal belongs to, seen from the member that waits for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct QueueEnd {
    /// What the signal is for.
    pub signal: QueueSignal,
    /// The waiting member's port.
    pub port: u32,
    /// The member at the other end.
    pub peer: Rank,
}

/// What a wait in a queue was for: `needed` is the number of the message.
pub(crate) fn describe(f: &mut fmt::Formatter<'_>, end: QueueEnd, value: i32, needed: i32) -> fmt::Result {
    let QueueEnd { signal, port, peer } = end;
    match signal {
        QueueSignal::Free => write!(
            f,
            "for a free slot in the queue of port {port} to rank {peer}, which stopped reading: it took message {value} \
             out of this slot and not {needed}"
        ),
        _ => write!(
            f,
            "for message {needed} in the queue of port {port} from rank {peer}, which did not send it"
        ),
    }
}

/// The ports of one member. A handle: copy it freely.
#[derive(Clone, Copy, Debug)]
pub struct Queues<T = Erased> {
    slots: Shared<T>,
    cells: Signals,
    ports: u32,
    depth: u32,
}

impl Queues {
    /// Signals that a member needs for `ports` ports of `depth` slots each.
    #[must_use]
    pub const fn cells(ports: u32, depth: u32) -> u32 {
        ports * (2 + 3 * depth)
    }
}

impl<T: ElementType> Queues<T> {
    /// Queues over a buffer that is cut into equal slots, and signals that nothing else touches.
    ///
    /// # Errors
    /// If there are no slots, their number is not a power of two, or there are too few signals.
    #[track_caller]
    pub fn new(slots: Shared<T>, cells: Signals, ports: u32, depth: u32) -> Result<Queues<T>> {
        let wrong = |message: String| Err(Error::failed(message));
        if ports == 0 || !depth.is_power_of_two() || depth > 1 << 16 {
            return wrong(format!(
                "{ports} ports with {depth} slots each; there must be a port, and the slots must be a power of two"
            ));
        }
        if (cells.rank(), cells.ranks()) != (slots.me(), slots.ranks()) {
            return wrong(format!(
                "the slots are held by rank {} of {}, the signals by rank {} of {}; open both on one domain",
                slots.me(),
                slots.ranks(),
                cells.rank(),
                cells.ranks()
            ));
        }
        let needed = u64::from(ports) * (2 + 3 * u64::from(depth));
        if u64::from(cells.count) < needed {
            return wrong(format!(
                "{ports} ports with {depth} slots each need {needed} signals and got {}; declare that many",
                cells.count
            ));
        }
        Ok(Queues {
            slots,
            cells,
            ports,
            depth,
        })
    }

    /// Elements that fit a slot.
    #[must_use]
    pub fn slot_len(&self) -> usize {
        self.slots.len() / (self.ports as usize * self.depth as usize)
    }

    /// The rank that holds this handle.
    #[must_use]
    pub fn rank(&self) -> Rank {
        self.slots.me()
    }

    /// Ports that each member has.
    #[must_use]
    pub fn ports(&self) -> u32 {
        self.ports
    }

    /// Slots of each queue.
    #[must_use]
    pub fn depth(&self) -> u32 {
        self.depth
    }

    /// Members of the domain.
    #[must_use]
    pub fn ranks(&self) -> u32 {
        self.slots.ranks()
    }

    /// My port `index`, joined to port `theirs` of `peer`. `peer` must say the same the other way round.
    ///
    /// # Errors
    /// If there is no such port or rank.
    #[track_caller]
    pub fn port(&self, index: u32, peer: Rank, theirs: u32) -> Result<Port<T>> {
        for port in [index, theirs] {
            if port >= self.ports {
                return Err(ErrorKind::OutOfBounds {
                    what: "elements".into(),
                    start: port.into(),
                    end: u64::from(port) + 1,
                    len: self.ports.into(),
                    site: Site::caller(),
                }
                .into());
            }
        }
        self.slots.on(peer)?;
        Ok(Port {
            queues: *self,
            index,
            peer,
            theirs,
        })
    }
}

/// One port: where I send to and receive from. A handle: copy it freely.
#[derive(Clone, Copy, Debug)]
pub struct Port<T = Erased> {
    queues: Queues<T>,
    index: u32,
    peer: Rank,
    theirs: u32,
}

impl<T: ElementType> Port<T> {
    /// Its number among mine.
    #[must_use]
    pub fn index(&self) -> u32 {
        self.index
    }

    /// The rank at the other end.
    #[must_use]
    pub fn peer(&self) -> Rank {
        self.peer
    }

    /// Elements that fit a message.
    #[must_use]
    pub fn slot_len(&self) -> usize {
        self.queues.slot_len()
    }

    fn check<C: Core>(&self, core: &C, len: usize) -> Result<()> {
        if len <= self.slot_len() {
            return Ok(());
        }
        Err(ErrorKind::OutOfBounds {
            what: "elements".into(),
            start: 0,
            end: len as u64,
            len: self.slot_len() as u64,
            site: core.attribution().site().into(),
        }
        .into())
    }

    /// Which slot a message goes through. Depth is a power of two, so this goes on across the wrap.
    fn slot_index(&self, number: i32) -> u32 {
        number.cast_unsigned() % self.queues.depth
    }

    fn slot(&self, rank: Rank, port: u32, number: i32, len: usize) -> Result<Shared<T>> {
        let slot = port as usize * self.queues.depth as usize + self.slot_index(number) as usize;
        let start = slot * self.slot_len();
        self.queues.slots.on(rank)?.slice(start..start + len)
    }

    /// A cell of `port` on `rank`, as the member that waits for it sees it.
    fn cell(&self, rank: Rank, port: u32, at: u32, signal: QueueSignal) -> Result<Signal> {
        let cell = self
            .queues
            .cells
            .at(port * (2 + 3 * self.queues.depth) + at)?
            .on(rank)?;
        let (port, peer) = if rank == self.queues.rank() {
            (self.index, self.peer)
        } else {
            (self.theirs, self.queues.rank())
        };
        Ok(cell.of_queue(QueueEnd { signal, port, peer }))
    }

    fn slot_cell(&self, rank: Rank, port: u32, number: i32, signal: QueueSignal) -> Result<Signal> {
        let row = match signal {
            QueueSignal::Full => 0,
            QueueSignal::Length => 1,
            _ => 2,
        };
        let at = 2 + row * self.queues.depth + self.slot_index(number);
        self.cell(rank, port, at, signal)
    }

    /// Takes the next number of mine, to send (0) or to receive (1).
    async fn reserve<C: Core>(&self, core: &C, which: u32) -> Result<i32> {
        let count = self
            .cell(self.queues.rank(), self.index, which, QueueSignal::Count)?
            .owned();
        let number = core.own_value(count).await?;
        let next = Notify::Set(number.wrapping_add(1));
        core.notify(count.signal(), next).await?;
        Ok(number)
    }

    /// The signal that frees the slot of a message to be sent, and the value it needs.
    fn free(&self, number: i32) -> Result<(Signal, i32)> {
        let free = self.slot_cell(self.queues.rank(), self.index, number, QueueSignal::Free)?;
        let needed = number
            .wrapping_add(1)
            .wrapping_sub(self.queues.depth.cast_signed());
        Ok((free, needed))
    }

    /// The signal that says that a message is there, and the value it needs.
    fn full(&self, number: i32) -> Result<(Signal, i32)> {
        let full = self.slot_cell(self.queues.rank(), self.index, number, QueueSignal::Full)?;
        Ok((full, number.wrapping_add(1)))
    }

    /// Takes the next number, waits for its slot to be free, and puts the tile.
    pub(crate) async fn send<C: Core>(&self, core: &C, tile: &T::Tile) -> Result<()> {
        self.check(core, tile.elements())?;
        let number = self.reserve(core, 0).await?;
        let (free, needed) = self.free(number)?;
        core.wait(free, Compare::Ge, needed).await?;
        self.put(core, number, tile).await
    }

    async fn put<C: Core>(&self, core: &C, number: i32, tile: &T::Tile) -> Result<()> {
        let slot = self.slot(self.peer, self.theirs, number, tile.elements())?;
        let theirs = |signal| self.slot_cell(self.peer, self.theirs, number, signal);
        let length = i32::try_from(tile.elements()).unwrap_or(i32::MAX);
        // Before `full`, which publishes both (QUE-2); the slot is ours until then (QUE-3).
        core.notify(theirs(QueueSignal::Length)?, Notify::Set(length))
            .await?;
        let full = theirs(QueueSignal::Full)?;
        core.queue_put(slot, tile, full, number.wrapping_add(1)).await
    }

    /// Begins to read a message that is there.
    async fn take<C: Core>(&self, core: &C, number: i32, len: usize) -> Result<(Ticket, T::Tile)> {
        let me = self.queues.rank();
        let length = self.slot_cell(me, self.index, number, QueueSignal::Length)?;
        let wanted = i32::try_from(len).unwrap_or(i32::MAX);
        if !core.test(length, Compare::Eq, wanted).await? {
            let length = core.peek(length).await?;
            return Err(ErrorKind::LengthMismatch {
                what: format!(
                    "the message from rank {} in the queue of port {}",
                    self.peer, self.index
                )
                .into(),
                got: u64::try_from(length).unwrap_or(0),
                wanted: len as u64,
                site: core.attribution().site().into(),
            }
            .into());
        }
        core.queue_take(self.slot(me, self.index, number, len)?).await
    }
}

/// Something an asynchronous instruction has begun, to be finished by [`Core::join`].
pub trait Pending {
    /// What there is when it is finished.
    type Output;
    /// Finishes it.
    fn finish<C: Core>(self, core: &C) -> impl Future<Output = Result<Self::Output>>;
}

/// A core's own number for a transfer under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket(pub u64);

/// A copy under way, by [`Core::copy_async`].
#[derive(Debug)]
#[must_use = "the copy is not over before it is joined"]
pub struct Copying(pub(crate) Ticket);

impl Pending for Copying {
    type Output = ();
    async fn finish<C: Core>(self, core: &C) -> Result<()> {
        core.settle(self.0).await
    }
}

/// A message on its way out, by [`Core::send_async`].
#[derive(Debug)]
#[must_use = "the message may not go out before it is joined"]
pub struct Sending<T: ElementType> {
    port: Port<T>,
    number: i32,
    /// What could not be put yet.
    left: Option<T::Tile>,
}

impl<T: ElementType> Sending<T> {
    /// Gives the message its number, and puts it if there is room.
    pub(crate) async fn begin<C: Core>(core: &C, port: Port<T>, tile: &T::Tile) -> Result<Sending<T>> {
        port.check(core, tile.elements())?;
        let number = port.reserve(core, 0).await?;
        let (free, needed) = port.free(number)?;
        let left = if core.test(free, Compare::Ge, needed).await? {
            port.put(core, number, tile).await?;
            None
        } else {
            Some(tile.clone())
        };
        Ok(Sending { port, number, left })
    }
}

impl<T: ElementType> Pending for Sending<T> {
    type Output = ();
    async fn finish<C: Core>(self, core: &C) -> Result<()> {
        if let Some(tile) = &self.left {
            let (free, needed) = self.port.free(self.number)?;
            core.wait(free, Compare::Ge, needed).await?;
            self.port.put(core, self.number, tile).await?;
        }
        Ok(())
    }
}

/// A message on its way in, by [`Core::recv_async`].
#[derive(Debug)]
#[must_use = "the message is not here before it is joined"]
pub struct Receiving<T: ElementType> {
    port: Port<T>,
    number: i32,
    len: usize,
    /// The read of its slot, if it was there.
    begun: Option<(Ticket, T::Tile)>,
}

impl<T: ElementType> Receiving<T> {
    /// Gives the message its number.
    pub(crate) async fn later<C: Core>(core: &C, port: Port<T>, len: usize) -> Result<Receiving<T>> {
        port.check(core, len)?;
        Ok(Receiving {
            port,
            number: port.reserve(core, 1).await?,
            len,
            begun: None,
        })
    }

    /// Gives the message its number, and begins to read it if it is there.
    pub(crate) async fn begin<C: Core>(core: &C, port: Port<T>, len: usize) -> Result<Receiving<T>> {
        let mut receiving = Receiving::later(core, port, len).await?;
        let (full, needed) = port.full(receiving.number)?;
        if core.test(full, Compare::Ge, needed).await? {
            receiving.begun = Some(port.take(core, receiving.number, len).await?);
        }
        Ok(receiving)
    }

    /// Receives the next message of each port.
    pub(crate) async fn all<C: Core, const N: usize>(
        core: &C,
        ports: [Port<T>; N],
        len: usize,
    ) -> Result<[T::Tile; N]> {
        let mut all = Vec::with_capacity(N);
        for port in ports {
            all.push(Receiving::later(core, port, len).await?);
        }
        match <[Receiving<T>; N]>::try_from(all) {
            Ok(all) => all.finish(core).await,
            Err(_) => Err(Error::failed("as many messages as were asked for")),
        }
    }

    /// Waits until it is there, and begins to read it.
    async fn arrive<C: Core>(&mut self, core: &C) -> Result<()> {
        if self.begun.is_none() {
            let (full, needed) = self.port.full(self.number)?;
            core.wait(full, Compare::Ge, needed).await?;
            self.begun = Some(self.port.take(core, self.number, self.len).await?);
        }
        Ok(())
    }
}

impl<T: ElementType> Pending for Receiving<T> {
    type Output = T::Tile;
    async fn finish<C: Core>(mut self, core: &C) -> Result<T::Tile> {
        self.arrive(core).await?;
        let Receiving {
            port, number, begun, ..
        } = self;
        let Some((ticket, tile)) = begun else {
            return Err(Error::failed("a message that has arrived was never read"));
        };
        core.settle(ticket).await?;
        let free = port.slot_cell(port.peer, port.theirs, number, QueueSignal::Free)?;
        core.notify(free, Notify::Set(number.wrapping_add(1))).await?;
        Ok(tile)
    }
}

/// Several messages at once: all are waited for, then their slots are read side by side.
impl<T: ElementType, const N: usize> Pending for [Receiving<T>; N] {
    type Output = [T::Tile; N];
    async fn finish<C: Core>(mut self, core: &C) -> Result<[T::Tile; N]> {
        for one in &self {
            if one.begun.is_none() {
                let (full, needed) = one.port.full(one.number)?;
                core.wait(full, Compare::Ge, needed).await?;
            }
        }
        for one in &mut self {
            one.arrive(core).await?;
        }
        let mut tiles = Vec::with_capacity(N);
        for one in self {
            tiles.push(one.finish(core).await?);
        }
        tiles
            .try_into()
            .map_err(|_| Error::failed("as many messages as were asked for"))
    }
}
