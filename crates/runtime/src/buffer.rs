//! What tasks refer to in a domain: a buffer on every member, one member's part of it, rows of signals.

use crate::domain::Domain;
use crate::error::{Error, Result};
use crate::handle_ops;
use crate::task_binding::WHOEVER;
#[cfg(feature = "collectives")]
use ringwork_isa::TeamMemory;
use ringwork_isa::{Arg, Argument, Barrier, Element, In, InOut, Out, Rank, Signal, Signals, Span};
use std::marker::PhantomData;
use std::ops::Range;

/// A buffer of a domain, on every member: pass it where a kernel has a `Shared`, or an `In`, `Out` or
/// `InOut` for the member's own part of it.
#[derive(Clone, Debug)]
pub struct Buffer<T> {
    domain: Domain,
    /// Bytes from the start of the window's data to element 0.
    offset: u64,
    span: Span,
    element: PhantomData<T>,
}

handle_ops::counted!(Buffer);
handle_ops::matrix!(Buffer);

impl<T: Element> Buffer<T> {
    pub(crate) fn new(domain: Domain, offset: u64, span: Span) -> Buffer<T> {
        Buffer {
            domain,
            offset,
            span,
            element: PhantomData,
        }
    }

    /// One member's part, for a task on any member: pass it where a kernel has an `In`, `Out` or `InOut`.
    ///
    /// # Errors
    /// If there is no such rank.
    pub fn on(&self, rank: Rank) -> Result<Part<T>> {
        if rank.0 >= self.span.ranks {
            return Err(Error::Length {
                what: format!("domain `{}`", self.domain.name()),
                have: self.span.ranks as usize,
                asked: rank.0 as usize + 1,
            });
        }
        let span = Span {
            me: WHOEVER,
            rank,
            ..self.span
        };
        Ok(Part {
            span,
            buffer: self.clone(),
        })
    }

    /// A range of its elements, on every member.
    ///
    /// # Errors
    /// If they are not all inside.
    pub fn slice(&self, range: Range<usize>) -> Result<Buffer<T>> {
        let span = handle_ops::slice(&self.span, range, || self.what())?;
        Ok(Buffer { span, ..self.clone() })
    }

    fn what(&self) -> String {
        format!("a buffer of domain `{}`", self.domain.name())
    }

    /// Copies host data into one rank's part, after the tasks submitted before.
    ///
    /// # Errors
    /// If the lengths differ, there is no such rank, or the domain was released.
    pub fn write(&self, rank: Rank, data: &[T]) -> Result<()> {
        let node = self.domain.node();
        node.write_span(&self.span, (rank, self.offset), data, || self.what())
    }

    /// Copies one rank's part to the host, after the tasks submitted before.
    ///
    /// # Errors
    /// If there is no such rank, or the domain was released.
    pub fn read(&self, rank: Rank) -> Result<Vec<T>> {
        self.domain.node().read_span(&self.span, (rank, self.offset))
    }
}

/// For the host's end of a port, while tasks are running.
impl<T: Element> Buffer<T> {
    /// Writes elements of rank 0's part from `at` on, now.
    pub(crate) fn poke_at(&self, at: usize, data: &[T]) -> Result<()> {
        let part = self.slice(at..at.saturating_add(data.len()))?;
        let bytes = bytemuck::cast_slice(data);
        let mut node = self.domain.node().lock();
        node.write(
            self.span.segment,
            Rank(0),
            handle_ops::byte_offset(&part.span, self.offset),
            bytes,
        )
    }

    /// Reads elements of rank 0's part from `at` on, now.
    pub(crate) fn peek_at(&self, at: usize, data: &mut [T]) -> Result<()> {
        let part = self.slice(at..at.saturating_add(data.len()))?;
        let bytes = bytemuck::cast_slice_mut(data);
        let mut node = self.domain.node().lock();
        node.read(
            self.span.segment,
            Rank(0),
            handle_ops::byte_offset(&part.span, self.offset),
            bytes,
        )
    }
}

impl<T: Element> Argument<ringwork_isa::Shared<T>> for Buffer<T> {
    fn to_arg(&self) -> Arg {
        Arg::Window(self.span)
    }
}

/// One member's part of a [`Buffer`].
#[derive(Clone, Debug)]
pub struct Part<T> {
    span: Span,
    // Keeps the domain open, and can read and write it.
    buffer: Buffer<T>,
}

impl<T: Element> Part<T> {
    /// Whose it is.
    #[must_use]
    pub fn rank(&self) -> Rank {
        self.span.rank
    }

    /// As [`Buffer::write`].
    ///
    /// # Errors
    /// As there.
    pub fn write(&self, data: &[T]) -> Result<()> {
        self.buffer.write(self.span.rank, data)
    }

    /// As [`Buffer::read`].
    ///
    /// # Errors
    /// As there.
    pub fn read(&self) -> Result<Vec<T>> {
        self.buffer.read(self.span.rank)
    }
}

macro_rules! own_memory {
    ($($handle:ident as $access:ident;)*) => {$(
        impl<T: Element> Argument<$access<T>> for $handle<T> {
            fn to_arg(&self) -> Arg {
                Arg::Memory(self.span)
            }
        }
    )*};
}
own_memory! {
    Buffer as In;
    Buffer as Out;
    Buffer as InOut;
    Part as In;
    Part as Out;
    Part as InOut;
}

/// A row of signals, or a barrier, of a domain: pass it where a kernel has `Signals` or a `Barrier`.
#[derive(Clone, Debug)]
pub struct SignalRow {
    row: Signals,
    // Keeps the domain open.
    _domain: Domain,
}

impl SignalRow {
    pub(crate) fn new(domain: Domain, row: Signals) -> SignalRow {
        SignalRow { row, _domain: domain }
    }

    /// One cell of one member: what a task may [wait](crate::Orchestrator::when) for.
    ///
    /// # Errors
    /// If there is no such rank or cell.
    pub fn cell(&self, rank: Rank, index: u32) -> Result<Signal> {
        let cell = self.row.at(index).and_then(|cell| cell.on(rank));
        cell.map_err(|error| Error::config("signal", error.to_string()))
    }
}

/// The memory of a [team](crate::DomainSpec::team): pass it where a kernel has a `TeamMemory`, as the kernels of the
/// collectives do.
#[cfg(feature = "collectives")]
#[derive(Clone, Debug)]
pub struct TeamHandle {
    memory: TeamMemory,
    // Keeps the domain open.
    _domain: Domain,
}

#[cfg(feature = "collectives")]
impl TeamHandle {
    pub(crate) fn new(domain: Domain, memory: TeamMemory) -> TeamHandle {
        TeamHandle {
            memory,
            _domain: domain,
        }
    }
}

#[cfg(feature = "collectives")]
impl Argument<TeamMemory> for TeamHandle {
    fn to_arg(&self) -> Arg {
        Arg::Team(self.memory)
    }
}

impl Argument<Signals> for SignalRow {
    fn to_arg(&self) -> Arg {
        Arg::Signals(self.row)
    }
}
impl Argument<Barrier> for SignalRow {
    fn to_arg(&self) -> Arg {
        Arg::Barrier(Barrier::new(self.row))
    }
}
