//! Regions: typed, bounds-checked handles to memory, here or on another chip.
//!
//! A region never holds an address. It says which segment, which rank, which elements; the core that
//! executes an instruction turns that into memory, and checks it again.
//!
//! The second type parameter is what may be done with it, so that writing to an input does not compile:
//!
//! ```compile_fail
//! # use ringwork_isa::{Core, In, Out, Result};
//! async fn backwards<C: Core>(core: &C, x: In<f32>, y: Out<f32>) -> Result<()> {
//!     core.copy(x, y).await // reads an output into an input
//! }
//! ```
//! ```
//! # use ringwork_isa::{Core, In, Out, Result};
//! async fn forwards<C: Core>(core: &C, x: In<f32>, y: Out<f32>) -> Result<()> {
//!     core.copy(y, x).await
//! }
//! ```

use crate::{Dtype, Element, ElementType, Epoch, Erased, Error, OnAll, OnOthers, Rank, Result, Segment};
use serde::{Deserialize, Serialize};
use std::marker::PhantomData;
use std::ops::Range;

/// A region without its types: what travels between processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Span {
    /// The segment it lies in.
    pub segment: Segment,
    /// Byte offset of the buffer's element 0 on rank 0.
    pub base: u64,
    /// Bytes between the same element of neighbouring ranks; 0 for a chip's private memory.
    pub stride: u64,
    /// The rank that holds the handle.
    pub me: Rank,
    /// The rank whose memory is meant.
    pub rank: Rank,
    /// Ranks that have such a buffer; 1 for a chip's private memory.
    pub ranks: u32,
    /// Type of the elements.
    pub dtype: Dtype,
    /// First element.
    pub start: u64,
    /// Number of elements.
    pub len: u64,
}

impl Span {
    /// The bytes of the segment that this is, or `None` if the handle is nonsense.
    #[must_use]
    #[inline(always)]
    pub fn byte_range(&self) -> Option<Range<u64>> {
        if self.rank.0 >= self.ranks {
            return None;
        }
        let size = self.dtype.bytes() as u64;
        let start = self
            .base
            .checked_add(self.stride.checked_mul(self.rank.0.into())?)?
            .checked_add(self.start.checked_mul(size)?)?;
        Some(start..start.checked_add(self.len.checked_mul(size)?)?)
    }

    /// Bytes of its elements.
    #[must_use]
    #[inline(always)]
    pub fn byte_len(&self) -> usize {
        usize::try_from(self.len)
            .unwrap_or(usize::MAX)
            .saturating_mul(self.dtype.bytes())
    }

    /// Where its bytes begin on rank 0, and how many there are; `None` if the handle is nonsense. For cores, which know how many
    /// ranks there are, and how far apart.
    #[must_use]
    #[inline(always)]
    pub fn on_first(&self) -> Option<(u64, u64)> {
        // Numbers below 2^48 cannot overflow what follows, and no memory is larger.
        if (self.base | self.start | self.len) >> 48 != 0 || self.rank.0 >= self.ranks {
            return None;
        }
        let size = self.dtype.bytes() as u64;
        Some((self.base + self.start * size, self.len * size))
    }
}

/// May be read. See [`In`].
#[derive(Clone, Copy, Debug)]
pub struct Read;
/// May be written. See [`Out`].
#[derive(Clone, Copy, Debug)]
pub struct Write;
/// May be read and written. See [`InOut`].
#[derive(Clone, Copy, Debug)]
pub struct ReadWrite;
/// Lies in a window: may be read and written, here and on every other member. See [`Shared`].
#[derive(Clone, Copy, Debug)]
pub struct Window;

/// What a region may be used for. Sealed.
pub trait Access: Copy + sealed::Sealed + 'static {}
/// An access that includes reading.
#[diagnostic::on_unimplemented(
    message = "this region cannot be read",
    label = "read here",
    note = "an `Out` is only written; make the parameter an `InOut`, or swap the operands: the destination comes first"
)]
pub trait CanRead: Access {}
/// An access that includes writing.
#[diagnostic::on_unimplemented(
    message = "this region cannot be written",
    label = "written here",
    note = "an `In` is only read; make the parameter an `Out` or `InOut`, or swap the operands: the destination comes first"
)]
pub trait CanWrite: Access {}

mod sealed {
    pub trait Sealed {}
}
pub(crate) use sealed::Sealed;
macro_rules! access {
    ($($name:ident: $($can:ident)*);*) => {$(
        impl sealed::Sealed for $name {}
        impl Access for $name {}
        $(#[diagnostic::do_not_recommend] impl $can for $name {})*
    )*};
}
access! { Read: CanRead; Write: CanWrite; ReadWrite: CanRead CanWrite; Window: CanRead CanWrite }

/// A handle to `len` elements of type `T`.
pub struct Region<T, A> {
    span: Span,
    types: PhantomData<fn() -> (T, A)>,
}

/// A kernel's input: memory of this chip that it only reads.
pub type In<T = Erased> = Region<T, Read>;
/// A kernel's output: memory of this chip that it only writes.
pub type Out<T = Erased> = Region<T, Write>;
/// Memory of this chip that a kernel reads and writes.
pub type InOut<T = Erased> = Region<T, ReadWrite>;
/// A buffer in a domain's window: mine, and through [`on`](Region::on) everybody's.
pub type Shared<T = Erased> = Region<T, Window>;

impl<T, A> Clone for Region<T, A> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T, A> Copy for Region<T, A> {}

impl<T, A> std::fmt::Debug for Region<T, A> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Span {
            segment,
            rank,
            start,
            len,
            dtype,
            ..
        } = self.span;
        write!(
            f,
            "{dtype}[{start}..{}] on rank {rank} of segment {segment}",
            start.saturating_add(len)
        )
    }
}

impl<T: ElementType, A: Access> Region<T, A> {
    /// The typed handle for a span that came from elsewhere.
    ///
    /// Checks the dtype only: whether the memory exists is checked by the core, at every instruction.
    ///
    /// # Errors
    /// The span's own dtype, if it is not `T`.
    #[inline]
    pub fn from_span(span: Span) -> std::result::Result<Self, Dtype> {
        match T::DTYPE {
            Some(dtype) if span.dtype != dtype => Err(span.dtype),
            _ => Ok(Region {
                span,
                types: PhantomData,
            }),
        }
    }

    /// The handle without its types.
    #[must_use]
    #[inline(always)]
    pub fn span(&self) -> Span {
        // Said again for the compiler, which then knows the size of an element.
        Span {
            dtype: self.dtype(),
            ..self.span
        }
    }

    /// Type of the elements.
    #[must_use]
    #[inline(always)]
    pub fn dtype(&self) -> Dtype {
        match T::DTYPE {
            Some(dtype) => dtype,
            None => self.span.dtype,
        }
    }

    /// Bytes of all its elements.
    #[must_use]
    #[inline(always)]
    pub fn bytes(&self) -> usize {
        self.len().saturating_mul(self.dtype().bytes())
    }

    /// The same memory, its element type known at run time only.
    #[must_use]
    #[inline(always)]
    pub fn erase(self) -> Region<Erased, A> {
        Region {
            span: self.span(),
            types: PhantomData,
        }
    }

    #[inline]
    pub(crate) fn as_span(&self) -> &Span {
        &self.span
    }

    /// Number of elements.
    #[must_use]
    #[inline]
    pub fn len(&self) -> usize {
        usize::try_from(self.span.len).unwrap_or(usize::MAX)
    }

    /// Whether there are no elements.
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.span.len == 0
    }

    /// The elements in `range`.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfBounds`](crate::ErrorKind::OutOfBounds) if they are not all inside.
    #[track_caller]
    #[inline(always)]
    pub fn slice(&self, range: Range<usize>) -> Result<Self> {
        let (start, end) = (range.start as u64, range.end as u64);
        if start > end || end > self.span.len {
            return Err(Error::out_of_bounds(start, end, self.span.len));
        }
        let span = Span {
            start: self.span.start + start,
            len: end - start,
            ..self.span
        };
        Ok(Region {
            span,
            types: PhantomData,
        })
    }

    /// Part `index` of `parts` nearly equal parts: the first `len % parts` are one longer.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfBounds`](crate::ErrorKind::OutOfBounds) if `index` is not below `parts`.
    #[track_caller]
    #[inline]
    pub fn part(&self, parts: usize, index: usize) -> Result<Self> {
        if index >= parts {
            return Err(Error::out_of_bounds(index as u64, index as u64 + 1, parts as u64));
        }
        self.slice(part_range(self.len(), parts, index))
    }

    #[inline(always)]
    fn retyped<B>(self) -> Region<T, B> {
        Region {
            span: self.span,
            types: PhantomData,
        }
    }
}

/// The range of part `index` when `len` elements are dealt to `parts`: sizes differ by at most one.
///
/// ```
/// use ringwork_isa::part_range;
/// assert_eq!((0..3).map(|i| part_range(7, 3, i)).collect::<Vec<_>>(), [0..3, 3..5, 5..7]);
/// ```
#[must_use]
#[inline]
pub fn part_range(len: usize, parts: usize, index: usize) -> Range<usize> {
    let (each, rest) = (len / parts, len % parts);
    let start = index * each + index.min(rest);
    start..start + each + usize::from(index < rest)
}

impl<T: ElementType> Region<T, Window> {
    /// The same place on another member of the domain: the remote pointer.
    ///
    /// # Errors
    /// [`ErrorKind::NoSuchRank`](crate::ErrorKind::NoSuchRank) if the domain is smaller.
    #[track_caller]
    #[inline(always)]
    pub fn on(&self, peer: Rank) -> Result<Self> {
        if peer.0 >= self.span.ranks {
            return Err(Error::no_such_rank(peer, self.span.ranks));
        }
        Ok(Region {
            span: Span {
                rank: peer,
                ..self.span
            },
            types: PhantomData,
        })
    }

    /// The same place on every member, in rank order: what exact reductions read.
    #[must_use]
    #[inline]
    pub fn on_all(&self) -> OnAll<T> {
        OnAll::of(*self)
    }

    /// The same place on every other member, and `mine` in my place, in rank order: for a reduction of what only the others
    /// have put here.
    #[must_use]
    #[inline]
    pub fn on_others(&self, mine: Region<T, impl CanRead>) -> OnOthers<T> {
        OnOthers::of(self.on_all(), mine.span)
    }

    /// One of two equal halves, by the parity of an epoch. See [`Barrier`](crate::Barrier).
    #[must_use]
    #[inline]
    pub fn half(&self, epoch: Epoch) -> Self {
        let half = self.span.len / 2;
        let start = self.span.start + if epoch.is_odd() { half } else { 0 };
        Region {
            span: Span {
                start,
                len: half,
                ..self.span
            },
            types: PhantomData,
        }
    }

    /// As many elements, `elements` further on. The caller knows that they lie inside the same buffer.
    #[inline(always)]
    pub(crate) fn shifted(&self, elements: u64) -> Self {
        Region {
            span: Span {
                start: self.span.start + elements,
                ..self.span
            },
            types: PhantomData,
        }
    }

    /// The rank that holds this handle.
    #[must_use]
    #[inline]
    pub fn me(&self) -> Rank {
        self.span.me
    }

    /// The rank whose memory this is.
    #[must_use]
    #[inline]
    pub fn rank(&self) -> Rank {
        self.span.rank
    }

    /// Members of the domain.
    #[must_use]
    #[inline]
    pub fn ranks(&self) -> u32 {
        self.span.ranks
    }
}

impl<T: ElementType> From<InOut<T>> for In<T> {
    fn from(region: InOut<T>) -> In<T> {
        region.retyped()
    }
}
impl<T: ElementType> From<InOut<T>> for Out<T> {
    fn from(region: InOut<T>) -> Out<T> {
        region.retyped()
    }
}
impl<T: ElementType> From<Shared<T>> for In<T> {
    fn from(region: Shared<T>) -> In<T> {
        region.retyped()
    }
}
impl<T: ElementType> From<Shared<T>> for Out<T> {
    fn from(region: Shared<T>) -> Out<T> {
        region.retyped()
    }
}
impl<T: ElementType> From<Shared<T>> for InOut<T> {
    fn from(region: Shared<T>) -> InOut<T> {
        region.retyped()
    }
}

/// A typed region where an erased one is needed.
macro_rules! erased_from {
    ($($from:ident => $($to:ident)*);*) => {$($(
        impl<T: Element> From<Region<T, $from>> for Region<Erased, $to> {
            #[inline(always)]
            fn from(region: Region<T, $from>) -> Region<Erased, $to> {
                region.erase().retyped()
            }
        }
    )*)*};
}
erased_from! { Read => Read; Write => Write; ReadWrite => Read Write ReadWrite; Window => Read Write ReadWrite Window }

impl<A: Access> Region<Erased, A> {
    /// The handle for a span that came from elsewhere. Whether the memory exists is checked by the core, at every instruction.
    #[must_use]
    #[inline(always)]
    pub fn of_span(span: Span) -> Self {
        Region {
            span,
            types: PhantomData,
        }
    }

    /// The same bytes as elements of another type; a rest of less than one is left out.
    #[must_use]
    #[inline(always)]
    pub fn viewed_as(self, dtype: Dtype) -> Self {
        let (span, size) = (self.span, self.span.dtype.bytes() as u64);
        Region::of_span(Span {
            base: span.base + span.start * size,
            dtype,
            start: 0,
            len: span.len * size / dtype.bytes() as u64,
            ..span
        })
    }

    /// The same memory as elements of type `T`.
    ///
    /// # Errors
    /// [`ErrorKind::Failed`](crate::ErrorKind::Failed) if they are of another type.
    #[track_caller]
    pub fn typed<T: Element>(self) -> Result<Region<T, A>> {
        Region::from_span(self.span)
            .map_err(|dtype| Error::failed(format!("a region of {dtype} is used as {}", T::DTYPE)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;
    use proptest::prelude::*;

    fn shared(len: u64) -> Shared<f32> {
        let span = Span {
            segment: Segment(1),
            base: 4096,
            stride: 65536,
            me: Rank(1),
            rank: Rank(1),
            ranks: 4,
            dtype: Dtype::F32,
            start: 0,
            len,
        };
        Region::from_span(span).unwrap()
    }

    #[test]
    fn on_moves_to_the_same_place_of_a_peer_and_no_further_than_the_domain() {
        let there = shared(16).slice(2..5).unwrap().on(Rank(3)).unwrap();
        assert_eq!(
            there.span().byte_range(),
            Some(4096 + 3 * 65536 + 8..4096 + 3 * 65536 + 20)
        );
        assert!(matches!(
            shared(16).on(Rank(4)).unwrap_err().kind(),
            ErrorKind::NoSuchRank {
                rank: Rank(4),
                ranks: 4,
                ..
            }
        ));
    }

    #[test]
    fn a_slice_past_the_end_or_backwards_is_refused() {
        assert!(shared(16).slice(0..17).is_err());
        #[allow(clippy::reversed_empty_ranges, reason = "that is the test")]
        let backwards = 3..2;
        assert!(shared(16).slice(backwards).is_err());
        assert!(shared(16).slice(16..16).unwrap().is_empty());
    }

    #[test]
    fn a_wrong_dtype_is_named() {
        assert_eq!(In::<i32>::from_span(shared(1).span()).unwrap_err(), Dtype::F32);
    }

    proptest! {
        #[test]
        fn parts_cover_everything_once_and_differ_by_at_most_one(len in 0usize..10_000, parts in 1usize..70) {
            let ranges: Vec<_> = (0..parts).map(|i| part_range(len, parts, i)).collect();
            prop_assert_eq!(ranges[0].start, 0);
            prop_assert_eq!(ranges[parts - 1].end, len);
            for pair in ranges.windows(2) {
                prop_assert_eq!(pair[0].end, pair[1].start);
                prop_assert!(pair[0].len() - pair[1].len() <= 1);
            }
        }

        #[test]
        fn nonsense_spans_have_no_byte_range_instead_of_overflowing(base: u64, stride: u64, rank: u32, start: u64, len: u64) {
            let span = Span { base, stride, rank: Rank(rank), ranks: u32::MAX, start, len, ..shared(1).span() };
            if let Some(range) = span.byte_range() {
                prop_assert!(range.start <= range.end);
            }
        }
    }
}
