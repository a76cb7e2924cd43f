//! Element types that are known at run time.
//!
//! A program's own code is typed: `In<f32>` and `Out<bf16>` cannot be confused. Code that only moves data, as collectives do,
//! does not care. It is written once over [`Erased`] regions, which carry their [`Dtype`] as a value, and is compiled once.
//!
//! `In`, `Out`, `InOut` and `Shared` without a type parameter are erased:
//!
//! ```
//! use ringwork_isa::{Core, In, Out, Result};
//!
//! /// Copies elements of any type.
//! async fn forward<C: Core>(core: &C, x: In, y: Out) -> Result<()> {
//!     core.copy(y, x).await
//! }
//!
//! /// The typed door to it.
//! async fn forward_typed<C: Core>(core: &C, x: In<f32>, y: Out<f32>) -> Result<()> {
//!     forward(core, x.erase(), y.erase()).await
//! }
//! ```
//!
//! Where two erased regions meet in one instruction, their types are compared when it is issued.

use crate::stepped::Payload;
use crate::{Contributions, Counted, Dtype, Element, Error, ReduceOp, Result, Tile, with_dtype};
use std::fmt;
use std::ops::Range;

/// The element type of a region that carries its type as a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Erased;

/// The type parameter of a region: an [`Element`], or [`Erased`].
pub trait ElementType: Copy + 'static {
    /// The type, unless it is known at run time only.
    const DTYPE: Option<Dtype>;
    /// What a core holds of a region of this type.
    type Tile: TileValues;
}

impl<T: Element> ElementType for T {
    const DTYPE: Option<Dtype> = Some(T::DTYPE);
    type Tile = Tile<T>;
}

impl ElementType for Erased {
    const DTYPE: Option<Dtype> = None;
    type Tile = AnyTile;
}

/// A tile as platforms see it: made of bytes, or of what a stepped engine keeps instead of them.
pub trait TileValues: Clone + fmt::Debug + 'static {
    /// Number of elements.
    fn elements(&self) -> usize;
    /// Rows and columns, if it has them.
    fn shape(&self) -> Option<(usize, usize)>;
    /// The same elements in another shape, which has as many.
    #[must_use]
    fn with_shape(self, rows: usize, columns: usize) -> Self;
    /// A row of `len` elements whose bytes `fill` writes.
    fn filled(dtype: Dtype, len: usize, fill: impl FnOnce(&mut [u8])) -> Self;
    /// The bytes of the values, row by row; none if the tile is hollow.
    fn bytes(&self) -> &[u8];
    /// A row of `len` elements that an engine has read.
    fn from_payload(dtype: Dtype, len: usize, payload: Payload) -> Self;
    /// What an engine is given to write.
    fn payload(&self) -> Payload;
}

impl<T: Element> TileValues for Tile<T> {
    fn elements(&self) -> usize {
        self.len()
    }

    fn shape(&self) -> Option<(usize, usize)> {
        Some((self.rows(), self.columns()))
    }

    fn with_shape(self, rows: usize, columns: usize) -> Tile<T> {
        self.reshaped(rows, columns)
    }

    fn filled(_: Dtype, len: usize, fill: impl FnOnce(&mut [u8])) -> Tile<T> {
        let mut values = vec![T::zeroed(); len];
        fill(bytemuck::cast_slice_mut(&mut values));
        Tile::new(values)
    }

    fn bytes(&self) -> &[u8] {
        bytemuck::cast_slice(self.values())
    }

    fn from_payload(_: Dtype, len: usize, payload: Payload) -> Tile<T> {
        match payload {
            Payload::Hollow => Tile::hollow(len),
            Payload::Bytes(bytes) => Tile::new(bytemuck::pod_collect_to_vec(&bytes)),
            Payload::Origin(origin) => Tile::traced(len, origin),
        }
    }

    fn payload(&self) -> Payload {
        match self.origin() {
            Some(origin) => Payload::Origin(origin.clone()),
            None if self.is_hollow() => Payload::Hollow,
            None => Payload::Bytes(self.bytes().to_vec()),
        }
    }
}

/// A tile whose element type is known at run time: one row, for data that is passed on or combined.
#[derive(Clone, Debug, PartialEq)]
pub struct AnyTile {
    dtype: Dtype,
    len: usize,
    payload: Payload,
}

impl TileValues for AnyTile {
    fn elements(&self) -> usize {
        self.len
    }

    fn shape(&self) -> Option<(usize, usize)> {
        None
    }

    fn with_shape(self, _: usize, _: usize) -> AnyTile {
        self
    }

    fn filled(dtype: Dtype, len: usize, fill: impl FnOnce(&mut [u8])) -> AnyTile {
        let mut bytes = vec![0; len * dtype.bytes()];
        fill(&mut bytes);
        AnyTile {
            dtype,
            len,
            payload: Payload::Bytes(bytes),
        }
    }

    fn bytes(&self) -> &[u8] {
        match &self.payload {
            Payload::Bytes(bytes) => bytes,
            Payload::Hollow | Payload::Origin(_) => &[],
        }
    }

    fn from_payload(dtype: Dtype, len: usize, payload: Payload) -> AnyTile {
        AnyTile { dtype, len, payload }
    }

    fn payload(&self) -> Payload {
        self.payload.clone()
    }
}

impl AnyTile {
    /// Type of the elements.
    #[must_use]
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// Number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn byte_range(&self, range: &Range<usize>) -> Range<usize> {
        range.start * self.dtype.bytes()..range.end * self.dtype.bytes()
    }

    /// Some elements of it.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfBounds`](crate::ErrorKind::OutOfBounds) if they are not all inside.
    #[track_caller]
    pub fn slice(&self, range: Range<usize>) -> Result<AnyTile> {
        if range.start > range.end || range.end > self.len {
            return Err(Error::out_of_bounds(
                range.start as u64,
                range.end as u64,
                self.len as u64,
            ));
        }
        Ok(AnyTile {
            len: range.len(),
            payload: self.payload.part(self.byte_range(&range)),
            ..*self
        })
    }

    /// A tile of this type and `len` elements that are nobody's data yet: zeros, if this one has values.
    #[must_use]
    pub fn blank(&self, len: usize) -> AnyTile {
        let bytes = len * self.dtype.bytes();
        let payload = match &self.payload {
            Payload::Bytes(_) => Payload::Bytes(vec![0; bytes]),
            Payload::Hollow => Payload::Hollow,
            Payload::Origin(_) => Payload::Origin(Contributions::of(Counted::NOTHING, 0, bytes as u64)),
        };
        AnyTile {
            len,
            payload,
            ..*self
        }
    }

    /// Replaces the elements from `start` on by those of another tile of the same type.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfBounds`](crate::ErrorKind::OutOfBounds) if they do not fit.
    #[track_caller]
    pub fn replace(&mut self, start: usize, with: &AnyTile) -> Result<()> {
        let end = start.saturating_add(with.len);
        if end > self.len {
            return Err(Error::out_of_bounds(start as u64, end as u64, self.len as u64));
        }
        let range = self.byte_range(&(start..end));
        match (&mut self.payload, &with.payload) {
            (Payload::Bytes(all), Payload::Bytes(new)) => all[range].copy_from_slice(new),
            (Payload::Origin(all), Payload::Origin(new)) => *all = all.replaced(range.start as u64, new),
            (all, _) => *all = Payload::Hollow,
        }
        Ok(())
    }

    /// Combines tiles of one type and length element by element, in the order given, accumulated wide, rounded once.
    ///
    /// # Errors
    /// If there is none, or their types or lengths differ.
    #[track_caller]
    pub fn fold(tiles: &[&AnyTile], op: ReduceOp) -> Result<AnyTile> {
        let Some((first, rest)) = tiles.split_first() else {
            return Err(Error::failed("a reduction needs at least one tile"));
        };
        if let Some(other) = rest
            .iter()
            .find(|tile| (tile.dtype, tile.len) != (first.dtype, first.len))
        {
            return Err(Error::failed(format!(
                "{} x {} and {} x {} cannot be combined; tiles must be of one type and length",
                first.len, first.dtype, other.len, other.dtype
            )));
        }
        let payloads: Vec<&Payload> = tiles.iter().map(|tile| &tile.payload).collect();
        Ok(AnyTile {
            payload: Payload::combine(first.dtype, op, &payloads),
            ..**first
        })
    }
}

/// The bytes of `sources` combined element by element, by the rules of `dtype`.
pub(crate) fn fold_bytes(dtype: Dtype, op: ReduceOp, sources: &[&[u8]]) -> Vec<u8> {
    with_dtype!(dtype, T => fold_as::<T>(op, sources))
}

fn fold_as<T: Element>(op: ReduceOp, sources: &[&[u8]]) -> Vec<u8> {
    let elements = |bytes: &[u8]| -> Vec<T> { bytemuck::pod_collect_to_vec(bytes) };
    let Some((first, rest)) = sources.split_first() else {
        return Vec::new();
    };
    let mut wide: Vec<T::Wide> = elements(first).into_iter().map(T::widen).collect();
    for source in rest {
        for (sum, next) in wide.iter_mut().zip(elements(source)) {
            *sum = T::combine(op, *sum, next.widen());
        }
    }
    let finish = |wide: T::Wide| T::narrow(T::finish(op, wide, sources.len()));
    let values: Vec<T> = wide.into_iter().map(finish).collect();
    bytemuck::cast_slice(&values).to_vec()
}
