//! Operands of a reduction: the regions it reads, in order, and those it writes.

use crate::{CanRead, CanWrite, ElementType, Rank, Region, Shared, Span};

/// The same place on every member of a domain, in rank order.
#[derive(Clone, Copy, Debug)]
pub struct OnAll<T> {
    any: Shared<T>,
}

impl<T: ElementType> OnAll<T> {
    pub(crate) fn of(any: Shared<T>) -> OnAll<T> {
        OnAll { any }
    }
}

/// The same place on every other member of a domain, and another in mine, in rank order.
#[derive(Clone, Copy, Debug)]
pub struct OnOthers<T> {
    all: OnAll<T>,
    mine: Span,
}

impl<T: ElementType> OnOthers<T> {
    pub(crate) fn of(all: OnAll<T>, mine: Span) -> OnOthers<T> {
        OnOthers { all, mine }
    }
}

/// Where a reduction reads from, in the order it reads.
#[diagnostic::on_unimplemented(
    message = "a reduction cannot read this",
    note = "its sources are an array, a slice or a `Vec` of regions, or `region.on_all()`; of a block, reduce its rows: `block.row(i)`"
)]
pub trait Sources<T> {
    /// How many sources.
    fn count(&self) -> usize;
    /// Source `index`, below `count`.
    fn source(&self, index: usize) -> Span;
    /// One of the sources, if they are the same place on every member in rank order: a platform may then find all of them at
    /// once.
    #[inline(always)]
    fn on_every_rank(&self) -> Option<Span> {
        None
    }
}

/// The regions that a reduction writes: one, two, or the same place on every member.
#[diagnostic::on_unimplemented(
    message = "a reduction cannot write this",
    note = "its destination is a region, a pair of regions, or `region.on_all()`; of a block, reduce its rows: `block.row(i)`"
)]
pub trait Destinations<T> {
    /// How many there are; at least one.
    fn count(&self) -> usize;
    /// Destination `index`, below `count`.
    fn destination(&self, index: usize) -> Span;
    /// As [`Sources::on_every_rank`].
    #[inline(always)]
    fn on_every_rank(&self) -> Option<Span> {
        None
    }
}

impl<T: ElementType, A: CanWrite> Destinations<T> for Region<T, A> {
    #[inline(always)]
    fn count(&self) -> usize {
        1
    }
    #[inline(always)]
    fn destination(&self, _: usize) -> Span {
        self.span()
    }
}

impl<T: ElementType, A: CanWrite, B: CanWrite> Destinations<T> for (Region<T, A>, Region<T, B>) {
    #[inline(always)]
    fn count(&self) -> usize {
        2
    }
    #[inline(always)]
    fn destination(&self, index: usize) -> Span {
        if index == 0 { self.0.span() } else { self.1.span() }
    }
}

impl<T: ElementType> Destinations<T> for OnAll<T> {
    fn count(&self) -> usize {
        self.any.ranks() as usize
    }
    fn destination(&self, index: usize) -> Span {
        Sources::source(self, index)
    }
    #[inline(always)]
    fn on_every_rank(&self) -> Option<Span> {
        Some(self.any.span())
    }
}

impl<T: ElementType> Sources<T> for OnAll<T> {
    fn count(&self) -> usize {
        self.any.ranks() as usize
    }
    fn source(&self, index: usize) -> Span {
        // Ranks are at most MAX_RANKS, so the index fits.
        Span {
            rank: Rank(u32::try_from(index).unwrap_or(u32::MAX)),
            ..*self.any.as_span()
        }
    }
    #[inline(always)]
    fn on_every_rank(&self) -> Option<Span> {
        Some(self.any.span())
    }
}

impl<T: ElementType> Sources<T> for OnOthers<T> {
    fn count(&self) -> usize {
        Sources::count(&self.all)
    }
    fn source(&self, index: usize) -> Span {
        if index == self.all.any.me().0 as usize {
            return self.mine;
        }
        Sources::source(&self.all, index)
    }
}

impl<T: ElementType, A: CanRead> Sources<T> for &[Region<T, A>] {
    fn count(&self) -> usize {
        self.len()
    }
    fn source(&self, index: usize) -> Span {
        *self[index].as_span()
    }
}

impl<T: ElementType, A: CanRead, const N: usize> Sources<T> for [Region<T, A>; N] {
    fn count(&self) -> usize {
        N
    }
    fn source(&self, index: usize) -> Span {
        *self[index].as_span()
    }
}
