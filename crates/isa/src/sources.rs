//! Sources: where a reduction reads from, in the order it reads.

use crate::{CanRead, Element, Rank, Region, Shared, Span};

/// The same place on every member of a domain, in rank order.
#[derive(Clone, Copy, Debug)]
pub struct OnAll<T> {
    any: Shared<T>,
}

impl<T: Element> OnAll<T> {
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

impl<T: Element> OnOthers<T> {
    pub(crate) fn of(all: OnAll<T>, mine: Span) -> OnOthers<T> {
        OnOthers { all, mine }
    }
}

/// Where a reduction reads from, in the order it reads.
pub trait Sources<T> {
    /// How many sources.
    fn count(&self) -> usize;
    /// Source `index`, below `count`.
    fn source(&self, index: usize) -> Span;
}

impl<T: Element> Sources<T> for OnAll<T> {
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
}

impl<T: Element> Sources<T> for OnOthers<T> {
    fn count(&self) -> usize {
        self.all.count()
    }
    fn source(&self, index: usize) -> Span {
        if index == self.all.any.me().0 as usize {
            return self.mine;
        }
        self.all.source(index)
    }
}

impl<T: Element, A: CanRead> Sources<T> for &[Region<T, A>] {
    fn count(&self) -> usize {
        self.len()
    }
    fn source(&self, index: usize) -> Span {
        *self[index].as_span()
    }
}

impl<T: Element, A: CanRead, const N: usize> Sources<T> for [Region<T, A>; N] {
    fn count(&self) -> usize {
        N
    }
    fn source(&self, index: usize) -> Span {
        *self[index].as_span()
    }
}
