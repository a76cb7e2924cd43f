//! The core for platforms that take one step at a time: every instruction becomes a value, handed to an
//! engine that decides when it happens.
//!
//! `sim` and `check` are engines. A kernel running on a [`SteppedCore`] suspends at every instruction
//! until its engine has an answer, so one thread can run thousands of chips in any order it likes.

use crate::{
    Attribution, CanRead, CanWrite, Compare, Copying, Core, Destinations, Device, ElementType, Epoch, Error,
    ErrorKind, Notify, OwnSignal, Packets, Rank, Readable, ReduceOp, Region, Result, Shared, Signal, Sources,
    Span, Ticket, TileValues, Work, Writable, block_operands, others,
};
use std::future::{Future, poll_fn};
use std::ops::Range;
use std::panic::Location;
use std::rc::Rc;
use std::task::Poll;

mod instruction;
mod order;

pub use instruction::{Answer, Instruction, PacketSource, Payload};
use order::{Made, Order};

/// Where an instruction comes from: the kernel's own line.
type At = &'static Location<'static>;

/// Decides when instructions happen, and what they find.
///
/// An instruction that can be answered at once is: the kernel goes on without suspending. Otherwise it
/// suspends, and each time it is polled again asks for its [`answer`](Engine::answer).
///
/// Kernels mostly copy, reduce, notify and wait, millions of times. Each of these has a method of its own, so
/// that an engine for which that matters need not take a value apart that has just been put together; they are
/// [`issue`](Engine::issue) unless it says otherwise.
pub trait Engine {
    /// Takes an instruction that `core` issues now.
    fn issue(&self, core: CoreId, instruction: Instruction, at: At) -> Poll<Result<Answer>>;

    /// The answer to the instruction that `core` issued last, if that was not answered at once.
    fn answer(&self, core: CoreId) -> Poll<Result<Answer>>;

    /// Takes an [`Instruction::Copy`].
    fn copy(&self, core: CoreId, dst: &Span, src: &Span, at: At) -> Poll<Result<()>> {
        let (dst, src) = (*dst, *src);
        done(self.issue(core, Instruction::Copy { dst, src }, at))
    }

    /// Takes an [`Instruction::Reduce`].
    fn reduce(&self, core: CoreId, dst: &Span, sources: &[Span], op: ReduceOp, at: At) -> Poll<Result<()>> {
        let (dst, sources) = (*dst, sources.to_vec());
        done(self.issue(core, Instruction::Reduce { dst, sources, op }, at))
    }

    /// Takes an [`Instruction::Notify`].
    fn notify(&self, core: CoreId, signal: &Signal, how: Notify, at: At) -> Poll<Result<()>> {
        let signal = *signal;
        done(self.issue(core, Instruction::Notify { signal, how }, at))
    }

    /// Takes an [`Instruction::Wait`].
    fn wait(
        &self,
        core: CoreId,
        signal: &Signal,
        (compare, operand): (Compare, i32),
        at: At,
    ) -> Poll<Result<()>> {
        let wait = Instruction::Wait {
            signal: *signal,
            compare,
            operand,
        };
        done(self.issue(core, wait, at))
    }

    /// Takes an [`Instruction::Wait`] that was asked for at the same time as the one before, which is over: see
    /// [`Core::wait_on`]. It is [`wait`](Engine::wait) for an engine without a clock.
    fn wait_beside(&self, core: CoreId, signal: &Signal, wanted: (Compare, i32), at: At) -> Poll<Result<()>> {
        self.wait(core, signal, wanted, at)
    }

    /// The answer to an [`Instruction::Wait`] that was not answered at once.
    fn waited(&self, core: CoreId) -> Poll<Result<()>> {
        done(self.answer(core))
    }
}

fn done(answer: Poll<Result<Answer>>) -> Poll<Result<()>> {
    answer.map(|answer| answer.map(drop))
}

/// An engine's own number for a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CoreId(pub u32);

/// A [`Core`] that hands every instruction to an [`Engine`].
#[derive(Clone)]
pub struct SteppedCore {
    engine: Rc<dyn Engine>,
    id: CoreId,
    device: Device,
    attribution: Rc<Attribution>,
    order: Rc<Order>,
}

impl std::fmt::Debug for SteppedCore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SteppedCore({:?} of device {})", self.id, self.device)
    }
}

impl SteppedCore {
    /// Core `id` of an engine, on a device.
    #[must_use]
    pub fn new(engine: Rc<dyn Engine>, id: CoreId, device: Device) -> SteppedCore {
        SteppedCore {
            engine,
            id,
            device,
            attribution: Rc::default(),
            order: Rc::default(),
        }
    }

    /// The same core, with another engine in front of its own: one that looks at the instructions and passes them on.
    #[must_use]
    pub fn through(&self, front: impl FnOnce(Rc<dyn Engine>) -> Rc<dyn Engine>) -> SteppedCore {
        SteppedCore {
            engine: front(self.engine.clone()),
            ..self.clone()
        }
    }

    /// Whether every instruction that was made was awaited: to be asked when a kernel has ended.
    ///
    /// # Errors
    /// If one was not, with its line.
    pub fn check_all_awaited(&self) -> Result<()> {
        self.order.check_all_awaited()
    }

    /// An instruction is made here, for the line that answers for it.
    #[track_caller]
    #[inline]
    fn made(&self) -> Made<'_> {
        self.order.made(self.attribution.site())
    }

    /// Issues an instruction now; what is awaited is only its answer, so that a waiting kernel does not
    /// carry its instruction with it. Call it where it is awaited.
    fn step(&self, at: At, instruction: Instruction) -> impl Future<Output = Result<Answer>> {
        let mut first = self.engine.issue(self.id, instruction, at);
        poll_fn(move |_| match std::mem::replace(&mut first, Poll::Pending) {
            Poll::Pending => self.engine.answer(self.id),
            ready => ready,
        })
    }

    /// The answer to an instruction that could not be answered at once.
    fn answered(&self) -> impl Future<Output = Result<Answer>> {
        suspended(|| self.engine.answer(self.id))
    }
}

/// Suspends once, then asks until there is an answer: an engine that could not answer an instruction when it was issued
/// has none before it lets the core go on.
fn suspended<T>(ask: impl Fn() -> Poll<T>) -> impl Future<Output = T> {
    let mut issued = false;
    poll_fn(move |_| {
        if std::mem::replace(&mut issued, true) {
            ask()
        } else {
            Poll::Pending
        }
    })
}

/// Sources that a reduction mostly has at most: their handles need no allocation.
const FEW: usize = 4;

impl SteppedCore {
    /// Checks a reduction and hands it to the engine. Of several destinations it writes one, the core's own if there is one;
    /// the others are copied from that.
    async fn reduce_into<T: ElementType>(
        &self,
        dsts: impl Destinations<T>,
        sources: impl Sources<T>,
        op: ReduceOp,
        at: At,
    ) -> Result<()> {
        let places = dsts.count();
        let mut own = 0;
        if places > 1 {
            let mine = (0..places).find(|index| {
                let span = dsts.destination(*index);
                span.rank == span.me
            });
            own = mine.unwrap_or(0);
        }
        let dst = dsts.destination(own);
        for index in 0..places {
            let what = if index == 1 {
                "the second destination"
            } else {
                "a destination"
            };
            Error::check_operands(what, &dsts.destination(index), &dsts.destination(0), at)?;
        }
        match self.begin_reduce(&dst, &sources, op, at)? {
            Poll::Ready(()) => {}
            Poll::Pending => self.answered().await.map(drop)?,
        }
        for step in 1..places {
            let other = dsts.destination((own + step) % places);
            match self.engine.copy(self.id, &other, &dst, at) {
                Poll::Ready(done) => done?,
                Poll::Pending => self.answered().await.map(drop)?,
            }
        }
        Ok(())
    }

    fn begin_reduce<T>(
        &self,
        dst: &Span,
        sources: &impl Sources<T>,
        op: ReduceOp,
        at: At,
    ) -> Result<Poll<()>> {
        let count = sources.count();
        if count == 0 {
            return Err(ErrorKind::Failed {
                message: "a reduction needs at least one source".into(),
                site: at.into(),
            }
            .into());
        }
        let (mut few, many);
        let spans = if count <= FEW {
            few = [*dst; FEW];
            for (i, place) in few[..count].iter_mut().enumerate() {
                *place = sources.source(i);
            }
            &few[..count]
        } else {
            many = (0..count).map(|i| sources.source(i)).collect::<Vec<Span>>();
            &many[..]
        };
        for source in spans {
            Error::check_operands("a source", source, dst, at)?;
        }
        match self.engine.reduce(self.id, dst, spans, op, at) {
            Poll::Ready(done) => done.map(Poll::Ready),
            Poll::Pending => Ok(Poll::Pending),
        }
    }
}

fn value(at: At, answer: &Answer) -> Result<i32> {
    match answer {
        Answer::Value(value) => Ok(*value),
        other => Err(unexpected(at, other)),
    }
}

fn unexpected(at: At, answer: &Answer) -> Error {
    ErrorKind::Failed {
        message: format!("the engine answered {answer:?}, which fits no instruction here"),
        site: at.into(),
    }
    .into()
}

impl Core for SteppedCore {
    fn device(&self) -> Device {
        self.device
    }

    fn attribution(&self) -> &Attribution {
        &self.attribution
    }

    #[track_caller]
    fn copy_async<T: ElementType>(
        &self,
        dst: Region<T, impl CanWrite>,
        src: Region<T, impl CanRead>,
    ) -> impl Future<Output = Result<Copying>> {
        let made = self.made();
        async move {
            let at = made.await_now()?;
            let (dst, src) = (dst.span(), src.span());
            Error::check_operands("the source", &src, &dst, at)?;
            match self.step(at, Instruction::CopyAsync { dst, src }).await? {
                Answer::Ticket(ticket) => Ok(Copying(ticket)),
                other => Err(unexpected(at, &other)),
            }
        }
    }

    #[track_caller]
    fn queue_put<T: ElementType>(
        &self,
        slot: Shared<T>,
        tile: &T::Tile,
        full: Signal,
        value: i32,
    ) -> impl Future<Output = Result<()>> {
        let made = self.made();
        async move {
            let at = made.await_now()?;
            Error::check_length("the tile", tile.elements() as u64, slot.span().len, at)?;
            let put = Instruction::Put {
                slot: slot.span(),
                data: tile.payload(),
                full,
                value,
            };
            self.step(at, put).await.map(drop)
        }
    }

    #[track_caller]
    fn queue_take<T: ElementType>(&self, slot: Shared<T>) -> impl Future<Output = Result<(Ticket, T::Tile)>> {
        let made = self.made();
        async move {
            let at = made.await_now()?;
            match self.step(at, Instruction::Take { slot: slot.span() }).await? {
                Answer::Taken(ticket, payload) => {
                    Ok((ticket, T::Tile::from_payload(slot.dtype(), slot.len(), *payload)))
                }
                other => Err(unexpected(at, &other)),
            }
        }
    }

    #[track_caller]
    fn settle(&self, ticket: Ticket) -> impl Future<Output = Result<()>> {
        let made = self.made();
        async move {
            self.step(made.await_now()?, Instruction::Join(ticket))
                .await
                .map(drop)
        }
    }

    #[track_caller]
    fn copy<T: ElementType>(
        &self,
        dst: impl Writable<T>,
        src: impl Readable<T>,
    ) -> impl Future<Output = Result<()>> {
        let made = self.made();
        async move {
            let at = made.await_now()?;
            if dst.block().is_some() || src.block().is_some() {
                let (dst, src) = block_operands(&dst, &src, at)?;
                let copy = Instruction::CopyBlock { dst, src };
                return self.step(at, copy).await.map(drop);
            }
            Error::check_operands("the source", src.as_span(), dst.as_span(), at)?;
            match self.engine.copy(self.id, dst.as_span(), src.as_span(), at) {
                Poll::Ready(done) => done,
                Poll::Pending => self.answered().await.map(drop),
            }
        }
    }

    #[track_caller]
    fn reduce<T: ElementType>(
        &self,
        dsts: impl Destinations<T>,
        sources: impl Sources<T>,
        op: ReduceOp,
    ) -> impl Future<Output = Result<()>> {
        let made = self.made();
        async move {
            let at = made.await_now()?;
            self.reduce_into(dsts, sources, op, at).await
        }
    }

    #[track_caller]
    fn load<T: ElementType>(&self, src: impl Readable<T>) -> impl Future<Output = Result<T::Tile>> {
        let made = self.made();
        async move {
            let at = made.await_now()?;
            let (Span { dtype, len, .. }, block) = (src.span(), src.block());
            let elements = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
            let load = match block {
                None => Instruction::Load { src: src.span() },
                Some(src) => Instruction::LoadBlock { src },
            };
            match (self.step(at, load).await?, block) {
                (Answer::Loaded(payload), None) => Ok(T::Tile::from_payload(dtype, elements(len), *payload)),
                (Answer::Loaded(payload), Some(block)) => {
                    let (rows, columns) = (elements(block.rows), elements(block.columns));
                    let tile = T::Tile::from_payload(dtype, rows.saturating_mul(columns), *payload);
                    Ok(tile.with_shape(rows, columns))
                }
                (other, _) => Err(unexpected(at, &other)),
            }
        }
    }

    #[track_caller]
    fn store<T: ElementType>(
        &self,
        dst: impl Writable<T>,
        tile: &T::Tile,
    ) -> impl Future<Output = Result<()>> {
        let made = self.made();
        async move {
            let at = made.await_now()?;
            let store = match dst.block() {
                None => {
                    let dst = dst.span();
                    Error::check_length("the tile", tile.elements() as u64, dst.len, at)?;
                    let data = tile.payload();
                    Instruction::Store { dst, data }
                }
                Some(dst) => {
                    dst.check_tile(tile, at)?;
                    let data = tile.payload();
                    Instruction::StoreBlock { dst, data }
                }
            };
            self.step(at, store).await.map(drop)
        }
    }

    #[track_caller]
    fn spend(&self, work: Work) -> impl Future<Output = Result<()>> {
        let made = self.made();
        async move {
            self.step(made.await_now()?, Instruction::Spend(work))
                .await
                .map(drop)
        }
    }

    #[track_caller]
    fn put_packet<T: ElementType>(
        &self,
        packets: &Packets,
        src: Region<T, impl CanRead>,
        epoch: Epoch,
    ) -> impl Future<Output = Result<()>> {
        let (made, src, packets) = (self.made(), src.span(), *packets);
        async move {
            let at = made.await_now()?;
            if src.len == 0 {
                return Ok(());
            }
            check_payload(&packets, &src, at)?;
            let put = Instruction::PutPacket {
                payload: packets.payload(epoch, &src),
                src,
                flag: packets.flag(epoch),
                epoch,
            };
            self.step(at, put).await.map(drop)
        }
    }

    #[track_caller]
    fn get_packet<T: ElementType>(
        &self,
        dst: Region<T, impl CanWrite>,
        packets: &Packets,
        epoch: Epoch,
    ) -> impl Future<Output = Result<()>> {
        let (made, dst, packets) = (self.made(), dst.span(), *packets);
        async move {
            let at = made.await_now()?;
            if dst.len == 0 {
                return Ok(());
            }
            check_payload(&packets, &dst, at)?;
            let take = Instruction::TakePackets {
                dst,
                sources: vec![packet_source(&packets, &dst, epoch)],
                op: ReduceOp::Sum,
                epoch,
            };
            self.step(at, take).await.map(drop)
        }
    }

    #[track_caller]
    fn reduce_packets<T: ElementType>(
        &self,
        dst: Region<T, impl CanWrite>,
        mine: Region<T, impl CanRead>,
        packets: &Packets,
        op: ReduceOp,
        epoch: Epoch,
    ) -> impl Future<Output = Result<()>> {
        let (made, dst, mine, packets) = (self.made(), dst.span(), mine.span(), *packets);
        async move {
            let at = made.await_now()?;
            Error::check_operands("my part", &mine, &dst, at)?;
            if dst.len == 0 {
                return Ok(());
            }
            check_payload(&packets, &dst, at)?;
            let own = PacketSource {
                payload: mine,
                arrives: None,
            };
            let source = |rank| match rank == packets.me() {
                true => Ok(own),
                false => Ok(packet_source(&packets.on(rank)?, &dst, epoch)),
            };
            let sources = (0..packets.ranks())
                .map(Rank)
                .map(source)
                .collect::<Result<_>>()?;
            let take = Instruction::TakePackets {
                dst,
                sources,
                op,
                epoch,
            };
            self.step(at, take).await.map(drop)
        }
    }

    #[track_caller]
    fn notify(&self, signal: Signal, how: Notify) -> impl Future<Output = Result<()>> {
        let made = self.made();
        async move {
            let at = made.await_now()?;
            match self.engine.notify(self.id, &signal, how, at) {
                Poll::Ready(done) => done,
                Poll::Pending => self.answered().await.map(drop),
            }
        }
    }

    #[track_caller]
    fn wait(
        &self,
        signal: Signal,
        compare: Compare,
        operand: impl Into<i32>,
    ) -> impl Future<Output = Result<()>> {
        let (made, operand) = (self.made(), operand.into());
        async move {
            let at = made.await_now()?;
            match self.engine.wait(self.id, &signal, (compare, operand), at) {
                Poll::Ready(done) => done,
                Poll::Pending => suspended(|| self.engine.waited(self.id)).await,
            }
        }
    }

    #[track_caller]
    fn wait_on(
        &self,
        signal: Signal,
        ranks: Range<u32>,
        compare: Compare,
        operand: impl Into<i32>,
    ) -> impl Future<Output = Result<()>> {
        let (made, wanted) = (self.made(), (compare, operand.into()));
        async move {
            let at = made.await_now()?;
            for (index, rank) in others(signal.holder(), ranks).enumerate() {
                let signal = signal.on(rank)?;
                let waited = match index {
                    0 => self.engine.wait(self.id, &signal, wanted, at),
                    _ => self.engine.wait_beside(self.id, &signal, wanted, at),
                };
                match waited {
                    Poll::Ready(done) => done?,
                    Poll::Pending => suspended(|| self.engine.waited(self.id)).await?,
                }
            }
            Ok(())
        }
    }

    #[track_caller]
    fn test(
        &self,
        signal: Signal,
        compare: Compare,
        operand: impl Into<i32>,
    ) -> impl Future<Output = Result<bool>> {
        let (made, operand) = (self.made(), operand.into());
        async move {
            let at = made.await_now()?;
            let test = Instruction::Test {
                signal,
                compare,
                operand,
            };
            match self.step(at, test).await? {
                Answer::Tested(yes) => Ok(yes),
                other => Err(unexpected(at, &other)),
            }
        }
    }

    #[track_caller]
    fn peek(&self, signal: Signal) -> impl Future<Output = Result<i32>> {
        let made = self.made();
        async move {
            let at = made.await_now()?;
            value(at, &self.step(at, Instruction::Peek { signal }).await?)
        }
    }

    #[track_caller]
    fn own_value(&self, signal: OwnSignal) -> impl Future<Output = Result<i32>> {
        let (made, signal) = (self.made(), signal.signal());
        async move {
            let at = made.await_now()?;
            value(at, &self.step(at, Instruction::OwnValue { signal }).await?)
        }
    }
}

/// A peer's packet for as many elements as `like` has.
fn packet_source(packets: &Packets, like: &Span, epoch: Epoch) -> PacketSource {
    PacketSource {
        payload: packets.payload(epoch, like),
        arrives: Some((packets.flag(epoch), packets.raised())),
    }
}

/// What `like` has must fit a packet.
fn check_payload(packets: &Packets, like: &Span, at: At) -> Result<()> {
    if like.byte_len() <= packets.payload_bytes() {
        return Ok(());
    }
    Err(ErrorKind::OutOfBounds {
        what: "elements".into(),
        start: 0,
        end: like.len,
        len: (packets.payload_bytes() / like.dtype.bytes()) as u64,
        site: at.into(),
    }
    .into())
}
