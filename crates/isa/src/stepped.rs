//! The core for platforms that take one step at a time: every instruction becomes a value, handed to an
//! engine that decides when it happens.
//!
//! `sim` and `check` are engines. A kernel running on a [`SteppedCore`] suspends at every instruction
//! until its engine has an answer, so one thread can run thousands of chips in any order it likes.

use crate::{
    Attribution, CanRead, CanWrite, Compare, Contributions, Copying, Core, Device, Element, Error, ErrorKind,
    LINE_WORDS, Notify, Rank, ReduceOp, Region, Result, Shared, Signal, Sources, Span, Ticket, Tile, Work,
    packet_lines,
};
use std::future::{Future, poll_fn};
use std::panic::Location;
use std::rc::Rc;
use std::task::Poll;

mod instruction;

use instruction::span_bytes;
pub use instruction::{Answer, Instruction, Payload};

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
    ) -> Poll<Result<i32>> {
        let wait = Instruction::Wait {
            signal: *signal,
            compare,
            operand,
        };
        self.issue(core, wait, at).map(|answer| value(at, &answer?))
    }

    /// The answer to an [`Instruction::Wait`] that was not answered at once.
    fn waited(&self, core: CoreId, at: At) -> Poll<Result<i32>> {
        self.answer(core).map(|answer| value(at, &answer?))
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
        }
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
    /// Checks a reduction and hands it to the engine.
    fn begin_reduce<T: Element>(
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
            Error::check_length("a source", source.len, dst.len, at)?;
        }
        match self.engine.reduce(self.id, dst, spans, op, at) {
            Poll::Ready(done) => done.map(Poll::Ready),
            Poll::Pending => Ok(Poll::Pending),
        }
    }
}

/// What packets are made of.
impl SteppedCore {
    /// What is in a span.
    async fn payload(&self, at: At, src: Span) -> Result<Payload> {
        match self.step(at, Instruction::Load { src }).await? {
            Answer::Loaded(payload) => Ok(*payload),
            other => Err(unexpected(at, &other)),
        }
    }

    /// The payload that a rank has put for `like`, once its signal says so.
    async fn packet_payload(
        &self,
        at: At,
        like: Span,
        packets: Shared<i64>,
        raised: Signal,
        epoch: i32,
    ) -> Result<Payload> {
        let lines = lines_for(packets, like)?;
        let wait = Instruction::Wait {
            signal: raised,
            compare: Compare::Ge,
            operand: epoch,
        };
        value(at, &self.step(at, wait).await?)?;
        let lines = self.payload(at, lines.span()).await?;
        Ok(lines.unpacked(span_bytes(like)))
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

/// As many packets as the data of `like` takes.
fn lines_for(packets: Shared<i64>, like: Span) -> Result<Shared<i64>> {
    packets.slice(0..packet_lines(span_bytes(like)).saturating_mul(LINE_WORDS))
}

impl Core for SteppedCore {
    fn device(&self) -> Device {
        self.device
    }

    fn attribution(&self) -> &Attribution {
        &self.attribution
    }

    #[track_caller]
    fn copy_async<T: Element>(
        &self,
        dst: Region<T, impl CanWrite>,
        src: Region<T, impl CanRead>,
    ) -> impl Future<Output = Result<Copying>> {
        let at = self.attribution.site();
        async move {
            Error::check_length("the source", src.span().len, dst.span().len, at)?;
            let (dst, src) = (dst.span(), src.span());
            match self.step(at, Instruction::CopyAsync { dst, src }).await? {
                Answer::Ticket(ticket) => Ok(Copying(ticket)),
                other => Err(unexpected(at, &other)),
            }
        }
    }

    #[track_caller]
    fn queue_put<T: Element>(
        &self,
        slot: Shared<T>,
        tile: &Tile<T>,
        full: Signal,
        value: i32,
    ) -> impl Future<Output = Result<()>> {
        let at = self.attribution.site();
        async move {
            Error::check_length("the tile", tile.len() as u64, slot.span().len, at)?;
            let put = Instruction::Put {
                slot: slot.span(),
                data: Payload::of(tile),
                full,
                value,
            };
            self.step(at, put).await.map(drop)
        }
    }

    #[track_caller]
    fn queue_take<T: Element>(&self, slot: Shared<T>) -> impl Future<Output = Result<(Ticket, Tile<T>)>> {
        let at = self.attribution.site();
        async move {
            match self.step(at, Instruction::Take { slot: slot.span() }).await? {
                Answer::Taken(ticket, payload) => Ok((ticket, payload.into_tile(slot.len()))),
                other => Err(unexpected(at, &other)),
            }
        }
    }

    #[track_caller]
    fn settle(&self, ticket: Ticket) -> impl Future<Output = Result<()>> {
        let at = self.attribution.site();
        async move { self.step(at, Instruction::Join(ticket)).await.map(drop) }
    }

    #[track_caller]
    fn copy<T: Element>(
        &self,
        dst: Region<T, impl CanWrite>,
        src: Region<T, impl CanRead>,
    ) -> impl Future<Output = Result<()>> {
        let at = self.attribution.site();
        async move {
            Error::check_length("the source", src.span().len, dst.span().len, at)?;
            match self.engine.copy(self.id, dst.as_span(), src.as_span(), at) {
                Poll::Ready(done) => done,
                Poll::Pending => self.answered().await.map(drop),
            }
        }
    }

    #[track_caller]
    fn reduce<T: Element>(
        &self,
        dst: Region<T, impl CanWrite>,
        sources: impl Sources<T>,
        op: ReduceOp,
    ) -> impl Future<Output = Result<()>> {
        let at = self.attribution.site();
        async move {
            match self.begin_reduce(dst.as_span(), &sources, op, at)? {
                Poll::Ready(()) => Ok(()),
                Poll::Pending => self.answered().await.map(drop),
            }
        }
    }

    #[track_caller]
    fn load<T: Element>(&self, src: Region<T, impl CanRead>) -> impl Future<Output = Result<Tile<T>>> {
        let at = self.attribution.site();
        async move { Ok(self.payload(at, src.span()).await?.into_tile(src.len())) }
    }

    #[track_caller]
    fn store<T: Element>(
        &self,
        dst: Region<T, impl CanWrite>,
        tile: &Tile<T>,
    ) -> impl Future<Output = Result<()>> {
        let at = self.attribution.site();
        async move {
            Error::check_length("the tile", tile.len() as u64, dst.span().len, at)?;
            let (dst, data) = (dst.span(), Payload::of(tile));
            self.step(at, Instruction::Store { dst, data }).await.map(drop)
        }
    }

    #[track_caller]
    fn spend(&self, work: Work) -> impl Future<Output = Result<()>> {
        let at = self.attribution.site();
        async move { self.step(at, Instruction::Spend(work)).await.map(drop) }
    }

    #[track_caller]
    fn put_packet<T: Element>(
        &self,
        packets: Shared<i64>,
        src: Region<T, impl CanRead>,
        epoch: i32,
    ) -> impl Future<Output = Result<()>> {
        let at = self.attribution.site();
        async move {
            let payload = self.payload(at, src.span()).await?;
            let dst = lines_for(packets, src.span())?.span();
            let data = payload.packed(epoch, span_bytes(dst) as u64);
            self.step(at, Instruction::Store { dst, data }).await.map(drop)
        }
    }

    #[track_caller]
    fn get_packet<T: Element>(
        &self,
        dst: Region<T, impl CanWrite>,
        packets: Shared<i64>,
        raised: Signal,
        epoch: i32,
    ) -> impl Future<Output = Result<()>> {
        let at = self.attribution.site();
        async move {
            let dst = dst.span();
            let data = self.packet_payload(at, dst, packets, raised, epoch).await?;
            self.step(at, Instruction::Store { dst, data }).await.map(drop)
        }
    }

    #[track_caller]
    fn reduce_packets<T: Element>(
        &self,
        dst: Region<T, impl CanWrite>,
        mine: Region<T, impl CanRead>,
        packets: Shared<i64>,
        raised: Signal,
        op: ReduceOp,
        epoch: i32,
    ) -> impl Future<Output = Result<()>> {
        let at = self.attribution.site();
        async move {
            Error::check_length("my part", mine.span().len, dst.span().len, at)?;
            let mut sum: Option<Vec<T::Wide>> = None;
            let mut origin: Option<Contributions> = None;
            let mut hollow = false;
            for rank in (0..packets.ranks()).map(Rank) {
                let payload = if rank == packets.me() {
                    self.payload(at, mine.span()).await?
                } else {
                    self.packet_payload(at, dst.span(), packets.on(rank)?, raised.on(rank)?, epoch)
                        .await?
                };
                match payload {
                    Payload::Hollow => hollow = true,
                    Payload::Origin(next) => {
                        origin = Some(origin.map_or(next.clone(), |sum| sum.plus(&next)));
                    }
                    Payload::Bytes(bytes) => {
                        let next = bytemuck::pod_collect_to_vec::<u8, T>(&bytes).into_iter();
                        sum = Some(match sum {
                            None => next.map(Element::widen).collect(),
                            Some(sum) => sum
                                .into_iter()
                                .zip(next)
                                .map(|(a, b)| T::combine(op, a, b.widen()))
                                .collect(),
                        });
                    }
                }
            }
            let sources = packets.ranks() as usize;
            let finish = |wide| T::narrow(T::finish(op, wide, sources));
            let data = match (origin, sum) {
                _ if hollow => Payload::Hollow,
                (Some(origin), _) => Payload::Origin(origin),
                (None, sum) => {
                    let values: Vec<T> = sum.unwrap_or_default().into_iter().map(finish).collect();
                    Payload::Bytes(bytemuck::cast_slice(&values).to_vec())
                }
            };
            let dst = dst.span();
            self.step(at, Instruction::Store { dst, data }).await.map(drop)
        }
    }

    #[track_caller]
    fn notify(&self, signal: Signal, how: Notify) -> impl Future<Output = Result<()>> {
        let at = self.attribution.site();
        async move {
            match self.engine.notify(self.id, &signal, how, at) {
                Poll::Ready(done) => done,
                Poll::Pending => self.answered().await.map(drop),
            }
        }
    }

    #[track_caller]
    fn wait(&self, signal: Signal, compare: Compare, operand: i32) -> impl Future<Output = Result<i32>> {
        let at = self.attribution.site();
        async move {
            match self.engine.wait(self.id, &signal, (compare, operand), at) {
                Poll::Ready(value) => value,
                Poll::Pending => suspended(|| self.engine.waited(self.id, at)).await,
            }
        }
    }

    #[track_caller]
    fn peek(&self, signal: Signal) -> impl Future<Output = Result<i32>> {
        let at = self.attribution.site();
        async move { value(at, &self.step(at, Instruction::Peek { signal }).await?) }
    }
}
