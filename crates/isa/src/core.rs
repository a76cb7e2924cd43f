//! The instruction set: what a kernel can do.

use crate::{
    Attribution, CanRead, CanWrite, Clipped, Compare, Copying, Destinations, Device, Dtype, Element,
    ElementType, Epoch, Float, Notify, OwnSignal, Packets, Pending, Port, Rank, Readable, Receiving,
    ReduceOp, Region, Result, Sending, Shared, Signal, Sources, Ticket, Tile, Writable, tile_ops,
};
use std::future::Future;
use std::ops::Range;

/// What computing costs a core: which of its engines does it, and how much of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Arithmetic on this many elements, one after the other through the vector engine.
    Vector {
        /// How many.
        elements: u64,
        /// Their type.
        dtype: Dtype,
    },
    /// A matrix product, m x k by k x n, in the matrix engine.
    Matrix {
        /// Rows of the left factor.
        m: u64,
        /// Columns of the left factor, rows of the right.
        k: u64,
        /// Columns of the right factor.
        n: u64,
        /// Type of the factors.
        dtype: Dtype,
    },
}

/// What a kernel runs on.
///
/// Each instruction is a future: await it where it is made. On `native` an instruction happens when its future is made, and
/// nothing suspends; on `sim` and `check` it happens when its future is awaited, and other chips may run before it. Both agree
/// if every instruction is awaited before the next one is made. The platforms that step check that: an instruction that is
/// awaited out of order, or never, is an error that names both lines.
///
/// The methods without a body are the instructions: what a platform must do. The others are made of them, and a platform may
/// do them better: `native` waits for many ranks in one loop, a described machine gives queues hardware of their own.
/// Arithmetic on tiles is in [`TileOps`](crate::TileOps).
///
/// # Memory ordering
///
/// Data instructions ([`copy`](Core::copy), [`reduce`](Core::reduce), [`load`](Core::load),
/// [`store`](Core::store)) order nothing between chips. Signals and packets do:
/// everything before a [`notify`](Core::notify) is visible after the [`wait`](Core::wait) that it
/// satisfies, and everything before a [`put_packet`](Core::put_packet) after the [`get_packet`](Core::get_packet) that takes
/// the packet; on every chip that it concerns, not only on the one that was notified. Reads that come before a notify or a put
/// are over by then. Two chips that touch the same element without a signal between them race: the values are
/// then anybody's guess, and nothing worse happens.
///
/// # Errors
///
/// Every instruction checks its operands before it does anything: a refused one has written nothing.
/// Every error names the line of the kernel that issued the instruction.
pub trait Core: Sized {
    /// The chip this core belongs to.
    fn device(&self) -> Device;

    /// Whose lines this core's instructions are. For functions made of several.
    fn attribution(&self) -> &Attribution;

    /// Copies `src` to `dst`; either may be local or remote (TPUT, TGET).
    ///
    /// Orders nothing: follow it with [`notify`](Core::notify) to publish what was put. Both must have
    /// the same length. If they overlap they must be the same place, and then nothing happens. Either may be a
    /// [`Block`](crate::Block); two blocks must have the same shape.
    #[track_caller]
    fn copy<T: ElementType>(
        &self,
        dst: impl Writable<T>,
        src: impl Readable<T>,
    ) -> impl Future<Output = Result<()>>;

    /// Begins a copy, and goes on (TPUT_ASYNC, TGET_ASYNC).
    ///
    /// [`join`](Core::join) waits until it is over; before that, neither region may be touched, and no
    /// [`notify`](Core::notify) publishes it. Where there is an engine for it, it runs beside what the core
    /// does meanwhile; on `native` it has happened when this returns.
    #[track_caller]
    fn copy_async<T: ElementType>(
        &self,
        dst: Region<T, impl CanWrite>,
        src: Region<T, impl CanRead>,
    ) -> impl Future<Output = Result<Copying>> {
        let copy = self.copy(dst, src);
        async move { copy.await.map(|()| Copying(Ticket(0))) }
    }

    /// Finishes what [`copy_async`](Core::copy_async), [`send_async`](Core::send_async) or
    /// [`recv_async`](Core::recv_async) has begun; of a receive, it is the message.
    ///
    /// What was copied may be touched afterwards, and is published by a later [`notify`](Core::notify). An
    /// array of receives is finished together: their slots are read side by side.
    #[track_caller]
    fn join<P: Pending>(&self, pending: P) -> impl Future<Output = Result<P::Output>> {
        let at = self.attribution().site();
        async move {
            let _caller = self.attribution().to(at);
            pending.finish(self).await
        }
    }

    /// Combines many regions into one, or into several (TREDUCE).
    ///
    /// Each element of a destination becomes `((s0 op s1) op s2) ...` over the sources in the order given,
    /// accumulated in [`Element::Wide`], [finished](Element::finish) and rounded once. The result therefore does not depend on the
    /// platform, the size, or how the range was cut into instructions.
    ///
    /// `dsts` is a region, a pair of regions, or the same region [on all](Region::on_all) members. A destination may be one of the
    /// sources, but must not partly overlap one; a pair must not overlap. At least one source is needed. Orders nothing.
    #[track_caller]
    fn reduce<T: ElementType>(
        &self,
        dsts: impl Destinations<T>,
        sources: impl Sources<T>,
        op: ReduceOp,
    ) -> impl Future<Output = Result<()>>;

    /// Reads a region into a tile of one row, or a [`Block`](crate::Block) into a tile of its shape (TLOAD). Orders nothing.
    #[track_caller]
    fn load<T: ElementType>(&self, src: impl Readable<T>) -> impl Future<Output = Result<T::Tile>>;

    /// Writes a tile to a region of the same length, or to a [`Block`](crate::Block) of the same shape (TSTORE). Orders
    /// nothing.
    #[track_caller]
    fn store<T: ElementType>(
        &self,
        dst: impl Writable<T>,
        tile: &T::Tile,
    ) -> impl Future<Output = Result<()>>;

    /// Reads part of a matrix that may reach past its last row and column, into a tile of the shape that was asked for:
    /// what lies outside is `fill`.
    #[track_caller]
    fn load_clipped<T: Element>(
        &self,
        src: Clipped<Region<T, impl CanRead>>,
        fill: T,
    ) -> impl Future<Output = Result<Tile<T>>> {
        let at = self.attribution().site();
        async move {
            let _caller = self.attribution().to(at);
            let (rows, columns) = src.shape();
            self.load(src.inside()).await?.padded(rows, columns, fill)
        }
    }

    /// Writes the part of a tile that lies inside a matrix. The tile has the shape that was asked for.
    #[track_caller]
    fn store_clipped<T: Element>(
        &self,
        dst: Clipped<Region<T, impl CanWrite>>,
        tile: &Tile<T>,
    ) -> impl Future<Output = Result<()>> {
        let at = self.attribution().site();
        async move {
            let _caller = self.attribution().to(at);
            let ((rows, columns), (inside_rows, inside_columns)) = (dst.shape(), dst.inside().shape());
            tile.check_shape_at("the tile", (rows, columns), at)?;
            self.store(dst.inside(), &tile.cropped(inside_rows, inside_columns)?)
                .await
        }
    }

    /// Keeps an engine of this core busy for as long as `work` takes, and computes nothing.
    ///
    /// What every instruction on tiles spends; for a kernel that stands for one whose values nobody needs,
    /// an instruction of its own. On platforms with a real clock it is over at once.
    #[track_caller]
    fn spend(&self, work: Work) -> impl Future<Output = Result<()>>;

    /// Adds the matrix product `a b` to `acc`: the part of [`matmul_add`](crate::TileOps::matmul_add) that a platform may
    /// replace by a faster loop with the same bits.
    #[doc(hidden)]
    #[track_caller]
    fn matrix_product<T: Float>(
        &self,
        acc: Tile<T::Wide>,
        a: &Tile<T>,
        b: &Tile<T>,
    ) -> impl Future<Output = Result<Tile<T::Wide>>> {
        tile_ops::matrix_product(self, acc, a, b)
    }

    /// Sends a tile to a neighbour: the next message of the queue behind this port.
    ///
    /// Waits for a free slot, as [`wait`](Core::wait) does; not for the message to arrive. **Release**: the rank that
    /// [receives](Core::recv) it sees everything this kernel did before, except messages in other queues, which have
    /// signals of their own. Data and length become visible together. A tile that is longer than a slot is refused.
    #[track_caller]
    fn send<T: ElementType>(&self, port: Port<T>, tile: &T::Tile) -> impl Future<Output = Result<()>> {
        let at = self.attribution().site();
        async move {
            let _caller = self.attribution().to(at);
            port.send(self, tile).await
        }
    }

    /// Receives the next message of the queue behind this port, `len` elements, and gives its slot back.
    ///
    /// Waits for it, as [`wait`](Core::wait) does. **Acquire**: sees everything that its sender did before. A
    /// message of another length is refused.
    #[track_caller]
    fn recv<T: ElementType>(&self, port: Port<T>, len: usize) -> impl Future<Output = Result<T::Tile>> {
        let at = self.attribution().site();
        async move {
            let _caller = self.attribution().to(at);
            Receiving::later(self, port, len).await?.finish(self).await
        }
    }

    /// Begins to [`send`](Core::send), without waiting: if no slot is free, the tile goes out when it is
    /// [joined](Core::join). Its place in the queue is settled now.
    #[track_caller]
    fn send_async<T: ElementType>(
        &self,
        port: Port<T>,
        tile: &T::Tile,
    ) -> impl Future<Output = Result<Sending<T>>> {
        let at = self.attribution().site();
        async move {
            let _caller = self.attribution().to(at);
            Sending::begin(self, port, tile).await
        }
    }

    /// Begins to [`recv`](Core::recv), without waiting: if the message is there, reading it begins now, else
    /// when it is [joined](Core::join). Which message it is, is settled now.
    #[track_caller]
    fn recv_async<T: ElementType>(
        &self,
        port: Port<T>,
        len: usize,
    ) -> impl Future<Output = Result<Receiving<T>>> {
        let at = self.attribution().site();
        async move {
            let _caller = self.attribution().to(at);
            Receiving::begin(self, port, len).await
        }
    }

    /// Receives the next message of several queues, `len` elements each: waits for all of them, then reads their slots side
    /// by side.
    ///
    /// As [`recv_async`](Core::recv_async) of each and a [`join`](Core::join); but whether a message is there already is not
    /// looked at, so a kernel does the same instructions however its peers are timed, and one execution is enough to check it.
    #[track_caller]
    fn recv_all<T: ElementType, const N: usize>(
        &self,
        ports: [Port<T>; N],
        len: usize,
    ) -> impl Future<Output = Result<[T::Tile; N]>> {
        let at = self.attribution().site();
        async move {
            let _caller = self.attribution().to(at);
            Receiving::all(self, ports, len).await
        }
    }

    /// Moves a tile into a slot of a queue and raises `full` when it is there: what [`send`](Core::send) is for.
    #[doc(hidden)]
    #[track_caller]
    fn queue_put<T: ElementType>(
        &self,
        slot: Shared<T>,
        tile: &T::Tile,
        full: Signal,
        value: i32,
    ) -> impl Future<Output = Result<()>> {
        let at = self.attribution().site();
        async move {
            let _caller = self.attribution().to(at);
            self.store(slot, tile).await?;
            self.notify(full, Notify::Set(value)).await
        }
    }

    /// Begins to move a slot of a queue into a tile: the part of [`recv`](Core::recv) that takes time.
    #[doc(hidden)]
    #[track_caller]
    fn queue_take<T: ElementType>(&self, slot: Shared<T>) -> impl Future<Output = Result<(Ticket, T::Tile)>> {
        let tile = self.load(slot);
        async move { Ok((Ticket(0), tile.await?)) }
    }

    /// Waits for a transfer of this core's.
    #[doc(hidden)]
    #[track_caller]
    fn settle(&self, _: Ticket) -> impl Future<Output = Result<()>> {
        std::future::ready(Ok(()))
    }

    /// Writes a region as a packet of `epoch` into my window: a payload that carries its own flag.
    ///
    /// **Release**, in full: a rank that takes this packet with [`get_packet`](Core::get_packet) or
    /// [`reduce_packets`](Core::reduce_packets) sees its payload and everything this kernel did before. Raise the
    /// [signal](Packets::raised) of these packets afterwards, for readers that have gone to sleep.
    #[track_caller]
    fn put_packet<T: ElementType>(
        &self,
        packets: &Packets,
        src: Region<T, impl CanRead>,
        epoch: Epoch,
    ) -> impl Future<Output = Result<()>>;

    /// Waits for a peer's packet of `epoch` and copies its payload to `dst`. `packets` are the peer's: those
    /// [on](Packets::on) it.
    ///
    /// **Acquire**, in full: sees everything that its writer did before it put the packet. It ends as
    /// [`wait`](Core::wait) does.
    #[track_caller]
    fn get_packet<T: ElementType>(
        &self,
        dst: Region<T, impl CanWrite>,
        packets: &Packets,
        epoch: Epoch,
    ) -> impl Future<Output = Result<()>>;

    /// Waits for the packet of `epoch` of every other rank and reduces the payloads, in rank order, into `dst`.
    ///
    /// As [`reduce`](Core::reduce) over what each rank has put; what I have put is `mine`, which may be
    /// `dst`. `packets` are my own. **Acquire**, as [`get_packet`](Core::get_packet), from each.
    #[track_caller]
    fn reduce_packets<T: ElementType>(
        &self,
        dst: Region<T, impl CanWrite>,
        mine: Region<T, impl CanRead>,
        packets: &Packets,
        op: ReduceOp,
        epoch: Epoch,
    ) -> impl Future<Output = Result<()>>;

    /// Changes a signal, here or on a peer, and wakes its waiters (TNOTIFY).
    ///
    /// **Release**: everything this kernel did before is visible to a rank that sees the new value by
    /// [`wait`](Core::wait), [`test`](Core::test) or [`peek`](Core::peek). Orders nothing after it.
    /// `Add` is atomic among any number of writers; `Set` is for signals with a single writer.
    #[track_caller]
    fn notify(&self, signal: Signal, how: Notify) -> impl Future<Output = Result<()>>;

    /// Waits until the signal compares to `operand` as asked (TWAIT).
    ///
    /// **Acquire**: sees everything done before the [`notify`](Core::notify) that satisfied it.
    /// It always ends: satisfied, or because a member of the domain died, the domain was aborted, or the
    /// deadline passed.
    #[track_caller]
    fn wait(
        &self,
        signal: Signal,
        compare: Compare,
        operand: impl Into<i32>,
    ) -> impl Future<Output = Result<()>>;

    /// Waits until the signal of each of `ranks` but mine compares so: a [`wait`](Core::wait) for each, in any order.
    ///
    /// How it waits for many is the platform's choice. `native` looks at one after the other, in memory that is shared. On a
    /// described machine, where each look is a round trip, all questions are under way at the same time.
    #[track_caller]
    fn wait_on(
        &self,
        signal: Signal,
        ranks: Range<u32>,
        compare: Compare,
        operand: impl Into<i32>,
    ) -> impl Future<Output = Result<()>> {
        let operand = operand.into();
        let at = self.attribution().site();
        async move {
            let _caller = self.attribution().to(at);
            for rank in others(signal.holder(), ranks) {
                self.wait(signal.on(rank)?, compare, operand).await?;
            }
            Ok(())
        }
    }

    /// Whether the signal compares to `operand` as asked, now (TTEST). **Acquire** if it does, like
    /// [`wait`](Core::wait).
    #[track_caller]
    fn test(
        &self,
        signal: Signal,
        compare: Compare,
        operand: impl Into<i32>,
    ) -> impl Future<Output = Result<bool>>;

    /// The signal's value now. **Acquire**, like [`wait`](Core::wait).
    ///
    /// For reports and for values that cannot be compared with anything known; to decide something use
    /// [`test`](Core::test), which has two outcomes instead of as many as the signal has values.
    #[track_caller]
    fn peek(&self, signal: Signal) -> impl Future<Output = Result<i32>>;

    /// The value that I last gave my own signal, without reading the cell that others poll.
    #[track_caller]
    fn own_value(&self, signal: OwnSignal) -> impl Future<Output = Result<i32>>;
}

/// These ranks but `me`, from the one after it on and around: so that not everybody begins with the same one.
#[inline(always)]
pub fn others(me: Rank, ranks: Range<u32>) -> impl Iterator<Item = Rank> + Clone {
    let after = ranks.start.max(me.0.saturating_add(1))..ranks.end;
    after.chain(ranks.start..ranks.end.min(me.0)).map(Rank)
}
