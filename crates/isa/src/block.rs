//! Blocks: some rows and columns of a matrix in memory.
//!
//! A block is made from a handle to consecutive elements by saying how they lie, and then which of them are meant. It has
//! rows, columns and a pitch: the elements from one row to the next. `load`, `store` and `copy` take blocks as they take
//! regions:
//!
//! ```
//! # use ringwork_isa::{Core, In, Out, Result, TileOps};
//! /// Adds the left half of a 4 x 6 matrix to its right half.
//! async fn fold<C: Core>(core: &C, x: In<f32>, y: Out<f32>) -> Result<()> {
//!     let x = x.shaped(4, 6)?;
//!     let left = core.load(x.columns(0..3)?).await?; // a tile of 4 x 3
//!     let right = core.load(x.columns(3..6)?).await?;
//!     core.store(y.shaped(4, 3)?, &core.add(&left, &right).await?).await
//! }
//! ```
//!
//! Reductions and packets take regions only. [`Block::row`] gives a row as a region.
//!
//! # Invariants
//! - **BLK-1 (inside).** The extent of a block is a handle to exactly the elements from its first to its last.
//! - **BLK-2 (apart).** Rows do not overlap: the pitch is not below the number of columns.

use crate::{
    Access, CanRead, CanWrite, ElementType, Error, ErrorKind, Region, Result, Span, TileValues, region,
};
use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::panic::Location;

/// Some rows and columns of a matrix. `R` is what it is a part of: an [`In`](crate::In), [`Out`](crate::Out),
/// [`InOut`](crate::InOut) or [`Shared`](crate::Shared) in a kernel, a tensor or a buffer in a host program.
#[derive(Clone, Copy, Debug)]
pub struct Block<R> {
    /// From the first element to the last (BLK-1).
    extent: R,
    rows: usize,
    columns: usize,
    /// Elements from one row to the next.
    pitch: usize,
}

/// A handle to consecutive elements, of which a [`Block`] can be made.
pub trait Consecutive: Sized {
    /// Why a part of it is refused.
    type Error;
    /// Number of elements.
    fn count(&self) -> usize;
    /// The elements in `range`.
    ///
    /// # Errors
    /// If they are not all inside.
    #[track_caller]
    fn part_of(&self, range: Range<usize>) -> std::result::Result<Self, Self::Error>;
    /// The error for `range` of the `len` rows or columns that there are.
    #[track_caller]
    fn outside(&self, axis: &'static str, range: Range<usize>, len: usize) -> Self::Error;
}

impl<R: Consecutive> Block<R> {
    /// All elements of a handle, as a matrix; `None` if that is another number of elements.
    #[must_use]
    pub fn of(extent: R, rows: usize, columns: usize) -> Option<Block<R>> {
        (rows.checked_mul(columns) == Some(extent.count())).then_some(Block {
            extent,
            rows,
            columns,
            pitch: columns,
        })
    }

    /// Number of rows and of columns.
    #[must_use]
    pub fn shape(&self) -> (usize, usize) {
        (self.rows, self.columns)
    }

    /// Number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rows * self.columns
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// These rows of it.
    ///
    /// # Errors
    /// If they are not all inside; in a kernel it is [`ErrorKind::OutOfBounds`].
    #[track_caller]
    pub fn rows(&self, range: Range<usize>) -> std::result::Result<Self, R::Error> {
        if range.start > range.end || range.end > self.rows {
            return Err(self.extent.outside("rows", range, self.rows));
        }
        self.cut(range, 0..self.columns)
    }

    /// These columns of it.
    ///
    /// # Errors
    /// If they are not all inside; in a kernel it is [`ErrorKind::OutOfBounds`].
    #[track_caller]
    pub fn columns(&self, range: Range<usize>) -> std::result::Result<Self, R::Error> {
        if range.start > range.end || range.end > self.columns {
            return Err(self.extent.outside("columns", range, self.columns));
        }
        self.cut(0..self.rows, range)
    }

    /// One row, as a plain handle.
    ///
    /// # Errors
    /// If there is no such row.
    #[track_caller]
    pub fn row(&self, index: usize) -> std::result::Result<R, R::Error> {
        Ok(self.rows(index..index.saturating_add(1))?.extent)
    }

    /// These rows and columns of it, which may reach past its last row and its last column: for
    /// [`load_clipped`](crate::Core::load_clipped) and [`store_clipped`](crate::Core::store_clipped).
    ///
    /// # Errors
    /// None, unless a range ends before it begins.
    #[track_caller]
    pub fn clipped(
        &self,
        rows: Range<usize>,
        columns: Range<usize>,
    ) -> std::result::Result<Clipped<R>, R::Error> {
        let (shape, within) = ((rows.len(), columns.len()), |range: Range<usize>, len: usize| {
            range.start.min(len)..range.end.min(len)
        });
        let inside = self
            .rows(within(rows, self.rows))?
            .columns(within(columns, self.columns))?;
        Ok(Clipped { inside, shape })
    }

    /// Rows and columns that are inside.
    #[track_caller]
    fn cut(&self, rows: Range<usize>, columns: Range<usize>) -> std::result::Result<Self, R::Error> {
        let elements = if rows.is_empty() || columns.is_empty() {
            0..0
        } else {
            rows.start * self.pitch + columns.start..(rows.end - 1) * self.pitch + columns.end
        };
        Ok(Block {
            extent: self.extent.part_of(elements)?,
            rows: rows.len(),
            columns: columns.len(),
            pitch: self.pitch,
        })
    }

    /// Its shape, around the span of its extent.
    pub(crate) fn around(&self, extent: Span) -> BlockSpan {
        BlockSpan {
            extent,
            rows: self.rows as u64,
            columns: self.columns as u64,
            pitch: self.pitch as u64,
        }
    }

    /// From the first element to the last, with what lies between its rows.
    pub(crate) fn extent(&self) -> &R {
        &self.extent
    }
}

impl<T: ElementType, A: Access> Consecutive for Region<T, A> {
    type Error = Error;
    fn count(&self) -> usize {
        self.len()
    }
    #[track_caller]
    fn part_of(&self, range: Range<usize>) -> Result<Self> {
        self.slice(range)
    }
    #[track_caller]
    fn outside(&self, axis: &'static str, range: Range<usize>, len: usize) -> Error {
        Error::outside(axis, range.start as u64, range.end as u64, len as u64)
    }
}

impl<T: ElementType, A: Access> Region<T, A> {
    /// Its elements as a matrix, row by row.
    ///
    /// # Errors
    /// [`ErrorKind::LengthMismatch`] if that is another number of elements.
    #[track_caller]
    pub fn shaped(&self, rows: usize, columns: usize) -> Result<Block<Self>> {
        let site = Location::caller().into();
        Block::of(*self, rows, columns).ok_or_else(|| {
            let length = ErrorKind::LengthMismatch {
                what: "the region".into(),
                got: self.len() as u64,
                wanted: (rows as u64).saturating_mul(columns as u64),
                site,
            };
            length.into()
        })
    }
}

impl<T: ElementType, A: Access> Block<Region<T, A>> {
    /// The typed handle for a block that came from elsewhere; `None` if its elements are of another type, or its numbers
    /// are not those of a block.
    #[must_use]
    pub fn from_span(block: BlockSpan) -> Option<Self> {
        let size = |number| usize::try_from(number).ok();
        block.is_sound().then_some(())?;
        Some(Block {
            extent: Region::from_span(block.extent).ok()?,
            rows: size(block.rows)?,
            columns: size(block.columns)?,
            pitch: size(block.pitch)?,
        })
    }

    /// The handle without its types.
    #[must_use]
    pub fn span(&self) -> BlockSpan {
        self.around(self.extent.span())
    }
}

/// Part of a matrix that may reach past its last row and its last column. Made by [`Block::clipped`].
#[derive(Clone, Copy, Debug)]
pub struct Clipped<R> {
    inside: Block<R>,
    shape: (usize, usize),
}

impl<R: Copy> Clipped<R> {
    /// The part that there is.
    #[must_use]
    pub fn inside(&self) -> Block<R> {
        self.inside
    }

    /// Rows and columns that were asked for.
    #[must_use]
    pub fn shape(&self) -> (usize, usize) {
        self.shape
    }
}

/// A block without its types: what travels between processes, and what an instruction on a block names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct BlockSpan {
    /// From its first element to its last, with what lies between its rows.
    pub extent: Span,
    /// Number of rows.
    pub rows: u64,
    /// Elements of each row.
    pub columns: u64,
    /// Elements from one row to the next.
    pub pitch: u64,
}

impl BlockSpan {
    /// Whether its numbers fit each other (BLK-1, BLK-2). Those of a [`Block`] do.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        if self.rows == 0 || self.columns == 0 {
            return self.extent.len == 0;
        }
        let before_last = (self.rows - 1).checked_mul(self.pitch);
        let apart = self.rows == 1 || self.pitch >= self.columns;
        apart && before_last.and_then(|elements| elements.checked_add(self.columns)) == Some(self.extent.len)
    }

    /// The elements of each row, in order.
    pub fn row_spans(&self) -> impl Iterator<Item = Span> {
        let block = *self;
        (0..block.rows).map(move |row| Span {
            start: block.extent.start + row * block.pitch,
            len: block.columns,
            ..block.extent
        })
    }

    /// Its elements as if they were consecutive.
    fn flat(&self) -> Span {
        Span {
            len: self.rows.saturating_mul(self.columns),
            ..self.extent
        }
    }

    /// Its bytes, in a memory where its first element is at `start`.
    #[must_use]
    pub fn byte_rows_at(&self, start: u64) -> ByteRows {
        let size = self.extent.dtype.bytes() as u64;
        let bytes = |elements: u64| elements.saturating_mul(size);
        ByteRows::new(start, self.rows, bytes(self.columns), bytes(self.pitch))
    }

    /// The bytes of its segment that it is, or `None` if the handle is nonsense.
    #[must_use]
    pub fn byte_rows(&self) -> Option<ByteRows> {
        let range = self.extent.byte_range().filter(|_| self.is_sound())?;
        Some(self.byte_rows_at(range.start))
    }

    /// Refuses a tile of another shape.
    ///
    /// # Errors
    /// [`ErrorKind::LengthMismatch`] or [`ErrorKind::ShapeMismatch`].
    pub fn check_tile(&self, tile: &impl TileValues, at: &'static Location<'static>) -> Result<()> {
        Error::check_length("the tile", tile.elements() as u64, self.flat().len, at)?;
        match tile.shape() {
            Some((rows, columns)) => self.check_shape("the tile", [rows as u64, columns as u64], at),
            None => Ok(()),
        }
    }

    fn check_shape(&self, what: &'static str, got: [u64; 2], at: &'static Location<'static>) -> Result<()> {
        let wanted = [self.rows, self.columns];
        if got == wanted {
            return Ok(());
        }
        let (what, site) = (what.into(), at.into());
        Err(ErrorKind::ShapeMismatch {
            what,
            got,
            wanted,
            site,
        }
        .into())
    }
}

/// The operands of a copy of which one is a block at least: two of the same shape. A region has the shape of the other.
///
/// # Errors
/// If their types, lengths or shapes differ.
pub fn block_operands<T>(
    dst: &impl Place<T>,
    src: &impl Place<T>,
    at: &'static Location<'static>,
) -> Result<(BlockSpan, BlockSpan)> {
    let as_row = |place: &Span| BlockSpan {
        extent: *place,
        rows: 1,
        columns: place.len,
        pitch: place.len,
    };
    let mut to = dst.block().unwrap_or_else(|| as_row(dst.as_span()));
    let mut from = src.block().unwrap_or_else(|| as_row(src.as_span()));
    Error::check_operands("the source", &from.flat(), &to.flat(), at)?;
    let reshape = |row: &mut BlockSpan, like: &BlockSpan| {
        (row.rows, row.columns, row.pitch) = (like.rows, like.columns, like.columns);
    };
    match (dst.block(), src.block()) {
        (Some(_), Some(_)) => to.check_shape("the source", [from.rows, from.columns], at)?,
        (Some(_), None) => reshape(&mut from, &to),
        (None, _) => reshape(&mut to, &from),
    }
    Ok((to, from))
}

/// Bytes in rows of equal length, equally far apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteRows {
    /// The first byte.
    pub start: u64,
    /// Number of rows. Rows without a gap between them are one.
    pub rows: u64,
    /// Bytes of each row.
    pub row_bytes: u64,
    /// Bytes from one row to the next.
    pub pitch: u64,
}

impl ByteRows {
    /// The rows of a block, which do not overlap.
    #[must_use]
    pub fn new(start: u64, rows: u64, row_bytes: u64, pitch: u64) -> ByteRows {
        if rows <= 1 || row_bytes == 0 || pitch == row_bytes {
            let row_bytes = rows * row_bytes;
            return ByteRows {
                start,
                rows: 1,
                row_bytes,
                pitch: row_bytes,
            };
        }
        ByteRows {
            start,
            rows,
            row_bytes,
            pitch,
        }
    }

    /// One past the last byte.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.start + (self.rows - 1) * self.pitch + self.row_bytes
    }

    /// Whether a byte is in both.
    #[must_use]
    pub fn overlaps(&self, other: &ByteRows) -> bool {
        let (mut mine, mut theirs) = (self.start, other.start);
        while mine < self.end() && theirs < other.end() {
            if mine + self.row_bytes <= theirs {
                mine += self.pitch.max(1);
            } else if theirs + other.row_bytes <= mine {
                theirs += other.pitch.max(1);
            } else {
                return true;
            }
        }
        false
    }
}

/// Memory that `load`, `store` and `copy` can name: a [`Region`] or a [`Block`] of one.
pub trait Place<T>: Copy + region::Sealed {
    /// The elements from the first to the last.
    fn as_span(&self) -> &Span;
    /// The same, by value.
    fn span(&self) -> Span;
    /// Which of these are meant, if not all.
    fn block(&self) -> Option<BlockSpan>;
}

/// A [`Region`] or a [`Block`] that may be read.
pub trait Readable<T>: Place<T> {}
/// A [`Region`] or a [`Block`] that may be written.
pub trait Writable<T>: Place<T> {}

impl<T: ElementType, A: Access> region::Sealed for Region<T, A> {}
impl<T: ElementType, A: Access> Place<T> for Region<T, A> {
    #[inline(always)]
    fn as_span(&self) -> &Span {
        Region::as_span(self)
    }
    #[inline(always)]
    fn span(&self) -> Span {
        Region::span(self)
    }
    #[inline(always)]
    fn block(&self) -> Option<BlockSpan> {
        None
    }
}
impl<T: ElementType, A: CanRead> Readable<T> for Region<T, A> {}
impl<T: ElementType, A: CanWrite> Writable<T> for Region<T, A> {}

impl<T: ElementType, A: Access> region::Sealed for Block<Region<T, A>> {}
impl<T: ElementType, A: Access> Place<T> for Block<Region<T, A>> {
    fn as_span(&self) -> &Span {
        self.extent.as_span()
    }
    fn span(&self) -> Span {
        self.extent.span()
    }
    fn block(&self) -> Option<BlockSpan> {
        Some(Block::span(self))
    }
}
impl<T: ElementType, A: CanRead> Readable<T> for Block<Region<T, A>> {}
impl<T: ElementType, A: CanWrite> Writable<T> for Block<Region<T, A>> {}

#[cfg(test)]
mod tests;
