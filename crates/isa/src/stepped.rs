//! The core for platforms that take one step at a time: every instruction becomes a value, handed to an
//! engine that decides when it happens.
//!
//! `sim` and `check` are engines. A kernel running on a [`SteppedCore`] suspends at every instruction
//! until its engine has an answer, so one thread can run thousands of chips in any order it likes.

use crate::{
    Attribution, CanRead, CanWrite, Compare, Copying, Core, Device, Element, Error, ErrorKind, Notify,
    PACKET_WORDS, Rank, ReduceOp, Region, Result, Shared, Signal, Sources, Span, Ticket, Tile, Work, pack,
    packets_for, unpack,
};
use std::future::{Future, poll_fn};
use std::panic::Location;
use std::rc::Rc;
use std::task::Poll;

/// What a core is asked to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Instruction {
    /// [`Core::copy`].
    Copy {
        /// Where to.
        dst: Span,
        /// Where from.
        src: Span,
    },
    /// [`Core::copy_async`]; answered with [`Answer::Ticket`] as soon as it is under way.
    CopyAsync {
        /// Where to.
        dst: Span,
        /// Where from.
        src: Span,
    },
    /// Waiting for a transfer of this core's that was answered with a ticket.
    Join(Ticket),
    /// The part of [`Core::send`] that moves data: a tile into a slot of a neighbour's queue, then its signal.
    Put {
        /// The slot.
        slot: Span,
        /// The tile's bytes; `None` if it is hollow.
        bytes: Option<Vec<u8>>,
        /// What says that it is there.
        full: Signal,
        /// The value that it is set to.
        value: i32,
    },
    /// The part of [`Core::recv`] that moves data: a slot's bytes, answered with [`Answer::Taken`] at once; the
    /// ticket is for the time it takes.
    Take {
        /// The slot.
        slot: Span,
    },
    /// [`Core::reduce`].
    Reduce {
        /// Where to.
        dst: Span,
        /// Where from, in order.
        sources: Vec<Span>,
        /// How.
        op: ReduceOp,
    },
    /// [`Core::load`]; answered with [`Answer::Bytes`].
    Load {
        /// Where from.
        src: Span,
    },
    /// [`Core::store`].
    Store {
        /// Where to.
        dst: Span,
        /// The tile's bytes; `None` if it is hollow.
        bytes: Option<Vec<u8>>,
    },
    /// [`Core::spend`]: arithmetic whose values the core has computed already; only the time is asked for.
    Spend(Work),
    /// [`Core::notify`].
    Notify {
        /// Which signal.
        signal: Signal,
        /// What to do to it.
        how: Notify,
    },
    /// [`Core::wait`]; answered with [`Answer::Value`].
    Wait {
        /// Which signal.
        signal: Signal,
        /// How to compare.
        compare: Compare,
        /// With what.
        operand: i32,
    },
    /// [`Core::peek`]; answered with [`Answer::Value`].
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
    /// The bytes that were read; `None` if this engine keeps no data.
    Bytes(Option<Vec<u8>>),
    /// A signal's value.
    Value(i32),
    /// It is under way.
    Ticket(Ticket),
    /// It is under way, and these are the bytes; `None` if this engine keeps no data.
    Taken(Ticket, Option<Vec<u8>>),
}

/// Decides when instructions happen, and what they find.
pub trait Engine {
    /// Takes an instruction that `core` issues now; the kernel suspends until
    /// [`answer`](Engine::answer) is ready.
    fn issue(&self, core: CoreId, instruction: Instruction, at: &'static Location<'static>);
    /// The answer to the instruction that `core` issued last.
    fn answer(&self, core: CoreId) -> Poll<Result<Answer>>;
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
    fn step(
        &self,
        at: &'static Location<'static>,
        instruction: Instruction,
    ) -> impl Future<Output = Result<Answer>> {
        self.engine.issue(self.id, instruction, at);
        poll_fn(|_| self.engine.answer(self.id))
    }
}

/// What packets are made of.
impl SteppedCore {
    /// The bytes of a span; `None` if this engine keeps no data.
    async fn bytes(&self, at: &'static Location<'static>, src: Span) -> Result<Option<Vec<u8>>> {
        match self.step(at, Instruction::Load { src }).await? {
            Answer::Bytes(bytes) => Ok(bytes),
            other => Err(unexpected(at, &other)),
        }
    }

    /// The payload that a rank has put for `like`, once its signal says so.
    async fn packet_payload(
        &self,
        at: &'static Location<'static>,
        like: Span,
        packets: Shared<i64>,
        raised: Signal,
        epoch: i32,
    ) -> Result<Option<Vec<u8>>> {
        let lines = packet_lines(packets, like)?;
        let wait = Instruction::Wait {
            signal: raised,
            compare: Compare::Ge,
            operand: epoch,
        };
        value(at, &self.step(at, wait).await?)?;
        let bytes = usize::try_from(like.len)
            .unwrap_or(usize::MAX)
            .saturating_mul(like.dtype.bytes());
        Ok(self
            .bytes(at, lines.span())
            .await?
            .map(|lines| unpack(&lines, bytes)))
    }
}

fn value(at: &'static Location<'static>, answer: &Answer) -> Result<i32> {
    match answer {
        Answer::Value(value) => Ok(*value),
        other => Err(unexpected(at, other)),
    }
}

fn unexpected(at: &'static Location<'static>, answer: &Answer) -> Error {
    ErrorKind::Failed {
        message: format!("the engine answered {answer:?}, which fits no instruction here"),
        site: at.into(),
    }
    .into()
}

/// As many packets as the data of `like` takes.
fn packet_lines(packets: Shared<i64>, like: Span) -> Result<Shared<i64>> {
    let bytes = usize::try_from(like.len)
        .unwrap_or(usize::MAX)
        .saturating_mul(like.dtype.bytes());
    packets.slice(0..packets_for(bytes).saturating_mul(PACKET_WORDS))
}

fn check_lengths(what: &'static str, got: u64, wanted: u64, at: &'static Location<'static>) -> Result<()> {
    if got == wanted {
        return Ok(());
    }
    Err(ErrorKind::LengthMismatch {
        what: what.into(),
        got,
        wanted,
        site: at.into(),
    }
    .into())
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
            check_lengths("the source", src.span().len, dst.span().len, at)?;
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
            check_lengths("the tile", tile.len() as u64, slot.span().len, at)?;
            let bytes = (!tile.is_hollow()).then(|| bytemuck::cast_slice(tile.values()).to_vec());
            let put = Instruction::Put {
                slot: slot.span(),
                bytes,
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
                Answer::Taken(ticket, Some(bytes)) => {
                    Ok((ticket, Tile::new(bytemuck::pod_collect_to_vec(&bytes))))
                }
                Answer::Taken(ticket, None) => Ok((ticket, Tile::hollow(slot.len()))),
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
            check_lengths("the source", src.span().len, dst.span().len, at)?;
            self.step(
                at,
                Instruction::Copy {
                    dst: dst.span(),
                    src: src.span(),
                },
            )
            .await
            .map(drop)
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
            let sources: Vec<Span> = (0..sources.count()).map(|i| sources.source(i)).collect();
            if sources.is_empty() {
                return Err(ErrorKind::Failed {
                    message: "a reduction needs at least one source".into(),
                    site: at.into(),
                }
                .into());
            }
            for source in &sources {
                check_lengths("a source", source.len, dst.span().len, at)?;
            }
            self.step(
                at,
                Instruction::Reduce {
                    dst: dst.span(),
                    sources,
                    op,
                },
            )
            .await
            .map(drop)
        }
    }

    #[track_caller]
    fn load<T: Element>(&self, src: Region<T, impl CanRead>) -> impl Future<Output = Result<Tile<T>>> {
        let at = self.attribution.site();
        async move {
            let bytes = self.bytes(at, src.span()).await?;
            Ok(bytes.map_or_else(
                || Tile::hollow(src.len()),
                |bytes| Tile::new(bytemuck::pod_collect_to_vec(&bytes)),
            ))
        }
    }

    #[track_caller]
    fn store<T: Element>(
        &self,
        dst: Region<T, impl CanWrite>,
        tile: &Tile<T>,
    ) -> impl Future<Output = Result<()>> {
        let at = self.attribution.site();
        async move {
            check_lengths("the tile", tile.len() as u64, dst.span().len, at)?;
            let bytes = (!tile.is_hollow()).then(|| bytemuck::cast_slice(tile.values()).to_vec());
            self.step(
                at,
                Instruction::Store {
                    dst: dst.span(),
                    bytes,
                },
            )
            .await
            .map(drop)
        }
    }

    #[track_caller]
    fn spend(&self, work: Work) -> impl Future<Output = Result<()>> {
        let at = self.attribution.site();
        async move { self.step(at, Instruction::Spend(work)).await.map(drop) }
    }

    #[track_caller]
    fn put_packets<T: Element>(
        &self,
        packets: Shared<i64>,
        src: Region<T, impl CanRead>,
        epoch: i32,
    ) -> impl Future<Output = Result<()>> {
        let at = self.attribution.site();
        async move {
            let payload = self.bytes(at, src.span()).await?;
            let lines = packet_lines(packets, src.span())?;
            let bytes = payload.map(|payload| pack(&payload, epoch));
            self.step(
                at,
                Instruction::Store {
                    dst: lines.span(),
                    bytes,
                },
            )
            .await
            .map(drop)
        }
    }

    #[track_caller]
    fn get_packets<T: Element>(
        &self,
        dst: Region<T, impl CanWrite>,
        packets: Shared<i64>,
        raised: Signal,
        epoch: i32,
    ) -> impl Future<Output = Result<()>> {
        let at = self.attribution.site();
        async move {
            let bytes = self
                .packet_payload(at, dst.span(), packets, raised, epoch)
                .await?;
            self.step(
                at,
                Instruction::Store {
                    dst: dst.span(),
                    bytes,
                },
            )
            .await
            .map(drop)
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
            check_lengths("my part", mine.span().len, dst.span().len, at)?;
            let mut sum: Option<Vec<T::Wide>> = None;
            let mut hollow = false;
            for rank in (0..packets.ranks()).map(Rank) {
                let bytes = if rank == packets.me() {
                    self.bytes(at, mine.span()).await?
                } else {
                    self.packet_payload(at, dst.span(), packets.on(rank)?, raised.on(rank)?, epoch)
                        .await?
                };
                hollow |= bytes.is_none();
                let next = bytemuck::pod_collect_to_vec::<u8, T>(&bytes.unwrap_or_default());
                sum = Some(match sum {
                    None => next.into_iter().map(Element::widen).collect(),
                    Some(sum) => sum
                        .into_iter()
                        .zip(next)
                        .map(|(a, b)| T::combine(op, a, b.widen()))
                        .collect(),
                });
            }
            let sources = packets.ranks() as usize;
            let finish = |wide| T::narrow(T::finish(op, wide, sources));
            let values: Vec<T> = sum.unwrap_or_default().into_iter().map(finish).collect();
            let bytes = (!hollow).then(|| bytemuck::cast_slice(&values).to_vec());
            self.step(
                at,
                Instruction::Store {
                    dst: dst.span(),
                    bytes,
                },
            )
            .await
            .map(drop)
        }
    }

    #[track_caller]
    fn notify(&self, signal: Signal, how: Notify) -> impl Future<Output = Result<()>> {
        let at = self.attribution.site();
        async move { self.step(at, Instruction::Notify { signal, how }).await.map(drop) }
    }

    #[track_caller]
    fn wait(&self, signal: Signal, compare: Compare, operand: i32) -> impl Future<Output = Result<i32>> {
        let at = self.attribution.site();
        async move {
            let wait = Instruction::Wait {
                signal,
                compare,
                operand,
            };
            value(at, &self.step(at, wait).await?)
        }
    }

    #[track_caller]
    fn peek(&self, signal: Signal) -> impl Future<Output = Result<i32>> {
        let at = self.attribution.site();
        async move { value(at, &self.step(at, Instruction::Peek { signal }).await?) }
    }
}
