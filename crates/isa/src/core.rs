//! The instruction set: what a kernel can do.

use crate::{
    Attribution, CanRead, CanWrite, Compare, Copying, Device, Dtype, Element, Error, Float, Notify, Pending,
    Port, Rank, Receiving, ReduceOp, Region, Result, Sending, Shared, Signal, Sources, Ticket, Tile, product,
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

impl Work {
    fn on<T: Element>(tile: &Tile<T>) -> Work {
        Work::Vector {
            elements: tile.len() as u64,
            dtype: T::DTYPE,
        }
    }
}

/// What a kernel runs on.
///
/// Each instruction is a future; await it where it stands. On `native` it has happened when the future is there, and nothing
/// suspends; on `sim` and `check` it happens while it is awaited, a step that others may come before or
/// after. Instructions of one kernel that are awaited where they stand take effect in program order.
///
/// # Memory ordering
///
/// Data instructions ([`copy`](Core::copy), [`reduce`](Core::reduce), [`load`](Core::load),
/// [`store`](Core::store)) order nothing between chips. Only signals do:
/// everything before a [`notify`](Core::notify) is visible after the [`wait`](Core::wait) that it
/// satisfies. Two chips that touch the same element without a signal between them race: the values are
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
    /// the same length. If they overlap they must be the same place, and then nothing happens.
    #[track_caller]
    fn copy<T: Element>(
        &self,
        dst: Region<T, impl CanWrite>,
        src: Region<T, impl CanRead>,
    ) -> impl Future<Output = Result<()>>;

    /// Begins a copy, and goes on (TPUT_ASYNC, TGET_ASYNC).
    ///
    /// [`join`](Core::join) waits until it is over; before that, neither region may be touched, and no
    /// [`notify`](Core::notify) publishes it. Where there is an engine for it, it runs beside what the core
    /// does meanwhile; on `native` it has happened when this returns.
    #[track_caller]
    fn copy_async<T: Element>(
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

    /// Combines many regions into one (TREDUCE).
    ///
    /// Each element of `dst` becomes `((s0 op s1) op s2) ...` over the sources in the order given,
    /// accumulated in [`Element::Wide`], [finished](Element::finish) and rounded once. The result therefore does not depend on the
    /// platform, the size, or how the range was cut into instructions. `dst` may be one of the sources,
    /// but must not partly overlap one. Orders nothing. At least one source is needed.
    #[track_caller]
    fn reduce<T: Element>(
        &self,
        dst: Region<T, impl CanWrite>,
        sources: impl Sources<T>,
        op: ReduceOp,
    ) -> impl Future<Output = Result<()>>;

    /// Combines a region of every rank and writes the result to all of them: as [`reduce`](Core::reduce) over the ranks in
    /// their order, into mine, and a [`copy`](Core::copy) of that to each other. Orders nothing.
    #[track_caller]
    fn reduce_to_all<T: Element>(&self, region: Shared<T>, op: ReduceOp) -> impl Future<Output = Result<()>> {
        let at = self.attribution().site();
        async move {
            let _caller = self.attribution().to(at);
            let (me, ranks) = (region.me(), region.ranks());
            let mine = region.on(me)?;
            self.reduce(mine, region.on_all(), op).await?;
            for step in 1..ranks {
                self.copy(region.on(Rank((me.0 + step) % ranks))?, mine).await?;
            }
            Ok(())
        }
    }

    /// Combines many regions into two places: as [`reduce`](Core::reduce) into `shared`, and a [`copy`](Core::copy) of
    /// that to `dst`. `dst` may be one of the sources, `shared` not. Orders nothing.
    #[track_caller]
    fn reduce_to_both<T: Element>(
        &self,
        dst: Region<T, impl CanWrite>,
        shared: Shared<T>,
        sources: impl Sources<T>,
        op: ReduceOp,
    ) -> impl Future<Output = Result<()>> {
        let at = self.attribution().site();
        async move {
            Error::check_length("the shared place", shared.len() as u64, dst.len() as u64, at)?;
            let _caller = self.attribution().to(at);
            self.reduce(shared, sources, op).await?;
            self.copy(dst, shared).await
        }
    }

    /// Reads a region into a tile (TLOAD). Orders nothing.
    #[track_caller]
    fn load<T: Element>(&self, src: Region<T, impl CanRead>) -> impl Future<Output = Result<Tile<T>>>;

    /// Writes a tile to a region of the same length (TSTORE). Orders nothing.
    #[track_caller]
    fn store<T: Element>(
        &self,
        dst: Region<T, impl CanWrite>,
        tile: &Tile<T>,
    ) -> impl Future<Output = Result<()>>;

    /// Keeps an engine of this core busy for as long as `work` takes, and computes nothing.
    ///
    /// What every instruction on tiles spends; for a kernel that stands for one whose values nobody needs,
    /// an instruction of its own. On platforms with a real clock it is over at once.
    #[track_caller]
    fn spend(&self, work: Work) -> impl Future<Output = Result<()>>;

    /// Adds two tiles element by element (TADD).
    ///
    /// As all arithmetic on tiles it touches no memory, rounds once per element, and gives the same bits on
    /// every platform. `b` has the shape of `a`; or one row, which is added to every row; or one column,
    /// which is added to every column. So for all that take two tiles.
    #[track_caller]
    fn add<T: Element>(&self, a: &Tile<T>, b: &Tile<T>) -> impl Future<Output = Result<Tile<T>>> {
        spent(self.spend(Work::on(a)), a.combine(b, ReduceOp::Sum))
    }

    /// Multiplies two tiles element by element (TMUL).
    #[track_caller]
    fn mul<T: Element>(&self, a: &Tile<T>, b: &Tile<T>) -> impl Future<Output = Result<Tile<T>>> {
        spent(self.spend(Work::on(a)), a.combine(b, ReduceOp::Prod))
    }

    /// The larger of two elements (TMAX); NaN wins.
    #[track_caller]
    fn max<T: Element>(&self, a: &Tile<T>, b: &Tile<T>) -> impl Future<Output = Result<Tile<T>>> {
        spent(self.spend(Work::on(a)), a.combine(b, ReduceOp::Max))
    }

    /// The smaller of two elements (TMIN); NaN wins.
    #[track_caller]
    fn min<T: Element>(&self, a: &Tile<T>, b: &Tile<T>) -> impl Future<Output = Result<Tile<T>>> {
        spent(self.spend(Work::on(a)), a.combine(b, ReduceOp::Min))
    }

    /// Combines tiles of one shape element by element, as [`reduce`](Core::reduce) does regions: in the order
    /// given, accumulated wide, rounded once.
    #[track_caller]
    fn fold<T: Element>(&self, tiles: &[&Tile<T>], op: ReduceOp) -> impl Future<Output = Result<Tile<T>>> {
        let elements = tiles.iter().skip(1).map(|tile| tile.len() as u64).sum();
        let work = Work::Vector {
            elements,
            dtype: T::DTYPE,
        };
        spent(self.spend(work), Tile::fold(tiles, op))
    }

    /// Subtracts `b` from `a` element by element (TSUB).
    #[track_caller]
    fn sub<T: Float>(&self, a: &Tile<T>, b: &Tile<T>) -> impl Future<Output = Result<Tile<T>>> {
        spent(self.spend(Work::on(a)), a.subtract(b))
    }

    /// Divides `a` by `b` element by element (TDIV).
    #[track_caller]
    fn div<T: Float>(&self, a: &Tile<T>, b: &Tile<T>) -> impl Future<Output = Result<Tile<T>>> {
        spent(self.spend(Work::on(a)), a.divide(b))
    }

    /// `factor * x + offset` of every element (TMULS, TADDS).
    #[track_caller]
    fn scale<T: Float>(
        &self,
        x: &Tile<T>,
        factor: f64,
        offset: f64,
    ) -> impl Future<Output = Result<Tile<T>>> {
        spent(self.spend(Work::on(x)), Ok(x.scale(factor, offset)))
    }

    /// `e` to the power of every element (TEXP). See [`Float::exponential`] for how exact it is.
    #[track_caller]
    fn exp<T: Float>(&self, x: &Tile<T>) -> impl Future<Output = Result<Tile<T>>> {
        spent(self.spend(Work::on(x)), Ok(x.exp()))
    }

    /// The largest element of each row (TROWMAX), as one column; NaN wins.
    #[track_caller]
    fn row_max<T: Element>(&self, x: &Tile<T>) -> impl Future<Output = Result<Tile<T>>> {
        spent(self.spend(Work::on(x)), Ok(x.reduce_rows(ReduceOp::Max)))
    }

    /// The sum of each row (TROWSUM), as one column: in the order of the columns, wide, rounded once.
    #[track_caller]
    fn row_sum<T: Element>(&self, x: &Tile<T>) -> impl Future<Output = Result<Tile<T>>> {
        spent(self.spend(Work::on(x)), Ok(x.reduce_rows(ReduceOp::Sum)))
    }

    /// The same numbers as another type (TCVT). See [`Tile::cast`] for how they are rounded.
    #[track_caller]
    fn cast<T: Element, U: Element>(&self, x: &Tile<T>) -> impl Future<Output = Result<Tile<U>>> {
        let larger = if U::DTYPE.bytes() > T::DTYPE.bytes() {
            U::DTYPE
        } else {
            T::DTYPE
        };
        let work = Work::Vector {
            elements: x.len() as u64,
            dtype: larger,
        };
        spent(self.spend(work), Ok(x.cast()))
    }

    /// The matrix product `a b` (TMATMUL): m x k by k x n.
    ///
    /// The result is in the accumulator's type, f32 for the 16-bit floats; [`cast`](Core::cast) rounds it.
    /// Each element is summed in the order of k, every product and sum rounded to the accumulator's type and
    /// never fused: the same bits on every platform. Touches no memory.
    #[track_caller]
    fn matmul<T: Float>(&self, a: &Tile<T>, b: &Tile<T>) -> impl Future<Output = Result<Tile<T::Wide>>> {
        self.matmul_add(Tile::zeros(a.rows(), b.columns()), a, b)
    }

    /// Adds the matrix product `a b` to `acc` (TMATMUL_ACC). As [`matmul`](Core::matmul), beginning with
    /// `acc`: so a product may be cut along k into as many instructions as its tiles need, and has the same
    /// bits.
    #[track_caller]
    fn matmul_add<T: Float>(
        &self,
        acc: Tile<T::Wide>,
        a: &Tile<T>,
        b: &Tile<T>,
    ) -> impl Future<Output = Result<Tile<T::Wide>>> {
        spent(
            self.spend(matrix_work(a, b)),
            Tile::add_product(acc, a, b, product::<T>),
        )
    }

    /// Sends a tile to a neighbour: the next message of the queue behind this port.
    ///
    /// Waits for a free slot, as [`wait`](Core::wait) does; not for the message to arrive. **Release**: whoever
    /// [receives](Core::recv) it sees everything this kernel did before; but for messages in other queues, which
    /// announce themselves. Data and length become visible together. A tile that is longer than a slot is refused.
    #[track_caller]
    fn send<T: Element>(&self, port: Port<T>, tile: &Tile<T>) -> impl Future<Output = Result<()>> {
        let at = self.attribution().site();
        async move {
            let _caller = self.attribution().to(at);
            Sending::begin(self, port, tile).await?.finish(self).await
        }
    }

    /// Receives the next message of the queue behind this port, `len` elements, and gives its slot back.
    ///
    /// Waits for it, as [`wait`](Core::wait) does. **Acquire**: sees everything that its sender did before. A
    /// message of another length is refused.
    #[track_caller]
    fn recv<T: Element>(&self, port: Port<T>, len: usize) -> impl Future<Output = Result<Tile<T>>> {
        let at = self.attribution().site();
        async move {
            let _caller = self.attribution().to(at);
            Receiving::begin(self, port, len).await?.finish(self).await
        }
    }

    /// Begins to [`send`](Core::send), without waiting: if no slot is free, the tile goes out when it is
    /// [joined](Core::join). Its place in the queue is settled now.
    #[track_caller]
    fn send_async<T: Element>(
        &self,
        port: Port<T>,
        tile: &Tile<T>,
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
    fn recv_async<T: Element>(
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

    /// Moves a tile into a slot of a queue and raises `full` when it is there: what [`send`](Core::send) is for.
    #[doc(hidden)]
    #[track_caller]
    fn queue_put<T: Element>(
        &self,
        slot: Shared<T>,
        tile: &Tile<T>,
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
    fn queue_take<T: Element>(&self, slot: Shared<T>) -> impl Future<Output = Result<(Ticket, Tile<T>)>> {
        let tile = self.load(slot);
        async move { Ok((Ticket(0), tile.await?)) }
    }

    /// Waits for a transfer of this core's.
    #[doc(hidden)]
    #[track_caller]
    fn settle(&self, _: Ticket) -> impl Future<Output = Result<()>> {
        std::future::ready(Ok(()))
    }

    /// Writes a region as a packet into a window: a payload that carries its own flag.
    ///
    /// `packet` holds at least the [lines](crate::packet_lines) that the bytes of `src` take; where its first line lies,
    /// nothing but first lines of packets ever lies, and none of this `epoch` yet. **Release** by itself: whoever reads
    /// a packet of this epoch with [`get_packet`](Core::get_packet) or [`reduce_packets`](Core::reduce_packets) sees
    /// its payload. Raise a signal afterwards, for those who have gone to sleep.
    #[track_caller]
    fn put_packet<T: Element>(
        &self,
        packet: Shared<i64>,
        src: Region<T, impl CanRead>,
        epoch: i32,
    ) -> impl Future<Output = Result<()>>;

    /// Says that this rank's next packet of `bytes` bytes will be put here, where nobody looks for one until then: it is there
    /// sooner if the lines are this core's again before it is put. A hint, which changes nothing else.
    #[inline(always)]
    fn foresee_packet(&self, packet: Shared<i64>, bytes: usize) {
        let _ = (packet, bytes);
    }

    /// Waits for a rank's packet of `epoch` and copies its payload to `dst`.
    ///
    /// **Acquire** by itself, for the payload. `raised` is the signal that the writer raises to at least
    /// `epoch` afterwards: what this sleeps on if the packet does not come soon. It ends as
    /// [`wait`](Core::wait) does.
    #[track_caller]
    fn get_packet<T: Element>(
        &self,
        dst: Region<T, impl CanWrite>,
        packet: Shared<i64>,
        raised: Signal,
        epoch: i32,
    ) -> impl Future<Output = Result<()>>;

    /// Waits for everybody's packets of `epoch` and reduces their payload, in rank order, into `dst`.
    ///
    /// As [`reduce`](Core::reduce) over what each rank has put; what I have put is `mine`, which may be
    /// `dst`. `raised` as in [`get_packet`](Core::get_packet), of any rank.
    #[track_caller]
    fn reduce_packets<T: Element>(
        &self,
        dst: Region<T, impl CanWrite>,
        mine: Region<T, impl CanRead>,
        packets: Shared<i64>,
        raised: Signal,
        op: ReduceOp,
        epoch: i32,
    ) -> impl Future<Output = Result<()>>;

    /// Changes a signal, here or on a peer, and wakes whoever waits for it (TNOTIFY).
    ///
    /// **Release**: everything this kernel did before is visible to whoever sees the new value by
    /// [`wait`](Core::wait), [`test`](Core::test) or [`peek`](Core::peek). Orders nothing after it.
    /// `Add` is atomic among any number of writers; `Set` is for signals with a single writer.
    #[track_caller]
    fn notify(&self, signal: Signal, how: Notify) -> impl Future<Output = Result<()>>;

    /// Waits until the signal compares to `operand` as asked, and returns its value (TWAIT).
    ///
    /// **Acquire**: sees everything done before the [`notify`](Core::notify) that satisfied it.
    /// It always ends: satisfied, or because a member of the domain died, the domain was aborted, or the
    /// deadline passed.
    #[track_caller]
    fn wait(&self, signal: Signal, compare: Compare, operand: i32) -> impl Future<Output = Result<i32>>;

    /// Waits until the signal of each of `ranks`, but not mine, compares so: a [`wait`](Core::wait) for each, in whatever
    /// order.
    #[track_caller]
    fn wait_on(
        &self,
        signal: Signal,
        ranks: Range<u32>,
        compare: Compare,
        operand: i32,
    ) -> impl Future<Output = Result<()>> {
        let at = self.attribution().site();
        async move {
            let _caller = self.attribution().to(at);
            for rank in others(signal.holder(), ranks) {
                self.wait(signal.on(rank)?, compare, operand).await?;
            }
            Ok(())
        }
    }

    /// The signal's value now. **Acquire**, like [`wait`](Core::wait).
    #[track_caller]
    fn peek(&self, signal: Signal) -> impl Future<Output = Result<i32>>;

    /// What this rank last made of its own signal, if nobody else ever writes it: the value without a look at where
    /// others look.
    #[track_caller]
    fn recall(&self, signal: Signal) -> impl Future<Output = Result<i32>> {
        self.peek(signal)
    }

    /// Whether the signal compares to `operand` as asked, now (TTEST). **Acquire**, like
    /// [`wait`](Core::wait).
    #[track_caller]
    fn test(&self, signal: Signal, compare: Compare, operand: i32) -> impl Future<Output = Result<bool>> {
        let value = self.peek(signal);
        async move { Ok(compare.holds(value.await?, operand)) }
    }
}

/// These ranks but `me`, from the one after it on and around: so that not everybody begins with the same one.
#[inline(always)]
pub fn others(me: Rank, ranks: Range<u32>) -> impl Iterator<Item = Rank> + Clone {
    let after = ranks.start.max(me.0.saturating_add(1))..ranks.end;
    after.chain(ranks.start..ranks.end.min(me.0)).map(Rank)
}

/// What [`Core::matmul_add`] of these spends.
#[must_use]
pub fn matrix_work<T: Element>(a: &Tile<T>, b: &Tile<T>) -> Work {
    Work::Matrix {
        m: a.rows() as u64,
        k: a.columns() as u64,
        n: b.columns() as u64,
        dtype: T::DTYPE,
    }
}

/// A result, once what it costs was spent; a refused one costs nothing.
async fn spent<T>(spending: impl Future<Output = Result<()>>, result: Result<T>) -> Result<T> {
    let value = result?;
    spending.await?;
    Ok(value)
}
