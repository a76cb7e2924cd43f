//! The common operations of handles to memory (tensors, buffers, intermediates): length, slices, and copies between
//! them and the host.

use crate::error::{Error, Result};
use crate::node::Shared;
use ringwork_isa::{Dtype, Element, Rank, Segment, Span};
use std::ops::Range;

/// `count` elements of memory that belongs to one chip alone.
pub(crate) fn private(segment: Segment, base: u64, dtype: Dtype, count: usize) -> Span {
    Span {
        segment,
        base,
        stride: 0,
        me: Rank(0),
        rank: Rank(0),
        ranks: 1,
        dtype,
        start: 0,
        len: count as u64,
    }
}

pub(crate) fn len(span: &Span) -> usize {
    usize::try_from(span.len).unwrap_or(usize::MAX)
}

/// The length of a handle with a `span`.
macro_rules! counted {
    ($handle:ident) => {
        impl<T: ::ringwork_isa::Element> $handle<T> {
            /// Number of elements.
            #[must_use]
            pub fn len(&self) -> usize {
                $crate::handle_ops::len(&self.span)
            }

            /// Whether it has no elements.
            #[must_use]
            pub fn is_empty(&self) -> bool {
                self.span.len == 0
            }
        }
    };
}
pub(crate) use counted;

/// A handle that can be sliced can be used as a matrix; `what` names it in errors.
macro_rules! matrix {
    ($($handle:ident)*) => {$(
        impl<T: ::ringwork_isa::Element> ::ringwork_isa::Consecutive for $handle<T> {
            type Error = $crate::error::Error;
            fn count(&self) -> usize {
                self.len()
            }
            fn part_of(&self, range: ::std::ops::Range<usize>) -> $crate::error::Result<Self> {
                self.slice(range)
            }
            fn outside(
                &self,
                axis: &'static str,
                range: ::std::ops::Range<usize>,
                len: usize,
            ) -> $crate::error::Error {
                let what = self.what();
                $crate::error::Error::OutsideBlock { what, axis, range, len }
            }
        }

        impl<T: ::ringwork_isa::Element> $handle<T> {
            /// Its elements as a matrix, row by row; shares the memory. Pass some of its rows and columns where a kernel
            /// has a `Block`.
            ///
            /// # Errors
            /// If that is another number of elements.
            pub fn shaped(
                &self,
                rows: usize,
                columns: usize,
            ) -> $crate::error::Result<::ringwork_isa::Block<Self>> {
                ::ringwork_isa::Block::of(self.clone(), rows, columns).ok_or_else(|| {
                    $crate::error::Error::Length {
                        what: self.what(),
                        have: self.len(),
                        asked: rows.saturating_mul(columns),
                    }
                })
            }
        }
    )*};
}
pub(crate) use matrix;

/// A handle with a `span` of one chip's memory is an argument for kernels on that chip.
macro_rules! chip_argument {
    ($handle:ident) => {
        $crate::handle_ops::chip_argument! { $handle: In Out InOut }
    };
    ($handle:ident: $($access:ident)*) => {$(
        impl<T: ::ringwork_isa::Element> ::ringwork_isa::Argument<::ringwork_isa::$access<T>> for $handle<T> {
            fn to_arg(&self) -> ::ringwork_isa::Arg {
                ::ringwork_isa::Arg::Memory(self.span)
            }
        }
    )*};
}
pub(crate) use chip_argument;

/// A range of the elements of a span; `what` names the whole in errors.
pub(crate) fn slice(span: &Span, range: Range<usize>, what: impl FnOnce() -> String) -> Result<Span> {
    if range.start > range.end || range.end > len(span) {
        return Err(Error::Length {
            what: what(),
            have: len(span),
            asked: range.end,
        });
    }
    Ok(Span {
        start: span.start + range.start as u64,
        len: range.len() as u64,
        ..*span
    })
}

/// The offset of a span in its rank's data, if the memory that it is a slice of begins at `offset`.
pub(crate) fn byte_offset(span: &Span, offset: u64) -> u64 {
    offset + span.start * span.dtype.bytes() as u64
}

fn check_bytes(span: &Span, bytes: &[u8], what: impl FnOnce() -> String) -> Result<()> {
    let item = span.dtype.bytes();
    if len(span).checked_mul(item) == Some(bytes.len()) {
        return Ok(());
    }
    Err(Error::Length {
        what: what(),
        have: len(span),
        asked: bytes.len() / item,
    })
}

impl Shared {
    /// Copies host data into a rank's part of a span, after the tasks submitted before.
    pub(crate) fn write_span<T: Element>(
        &self,
        span: &Span,
        (rank, offset): (Rank, u64),
        data: &[T],
        what: impl FnOnce() -> String,
    ) -> Result<()> {
        if data.len() != len(span) {
            return Err(Error::Length {
                what: what(),
                have: len(span),
                asked: data.len(),
            });
        }
        self.write_bytes(span, (rank, offset), bytemuck::cast_slice(data), what)
    }

    /// The same, of any type of element.
    pub(crate) fn write_bytes(
        &self,
        span: &Span,
        (rank, offset): (Rank, u64),
        bytes: &[u8],
        what: impl FnOnce() -> String,
    ) -> Result<()> {
        check_bytes(span, bytes, what)?;
        let at = byte_offset(span, offset);
        self.lock_when_idle()?.write(span.segment, rank, at, bytes)
    }

    /// Copies a rank's part of a span to the host, after the tasks submitted before.
    pub(crate) fn read_span<T: Element>(&self, span: &Span, (rank, offset): (Rank, u64)) -> Result<Vec<T>> {
        let mut data = vec![T::zeroed(); len(span)];
        let bytes = bytemuck::cast_slice_mut(&mut data);
        self.read_bytes(span, (rank, offset), bytes, String::new)?;
        Ok(data)
    }

    /// The same, of any type of element.
    pub(crate) fn read_bytes(
        &self,
        span: &Span,
        (rank, offset): (Rank, u64),
        bytes: &mut [u8],
        what: impl FnOnce() -> String,
    ) -> Result<()> {
        check_bytes(span, bytes, what)?;
        let at = byte_offset(span, offset);
        self.lock_when_idle()?.read(span.segment, rank, at, bytes)
    }
}
