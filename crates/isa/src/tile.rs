//! Tiles: a core's own working memory, and all arithmetic on it.
//!
//! The arithmetic is here, once, for all platforms: what a core adds to it is only time.

use crate::{Contributions, Counted, Element, Error, ErrorKind, Float, ReduceOp, Result, Site};

/// Elements that one core works on: rows and columns. Private to it: nobody else can see or change them.
///
/// What is loaded is one row; [`shaped`](Tile::shaped) says otherwise. A tile may be *hollow*: a simulation
/// that computes only time has shapes but no values. One that proves where results come from has [`Contributions`]
/// instead; loading, slicing, replacing and combining element by element keep them, other arithmetic does not.
#[derive(Clone, Debug, PartialEq)]
pub struct Tile<T> {
    /// Row by row; empty if hollow.
    values: Vec<T>,
    rows: usize,
    columns: usize,
    /// Of a hollow tile, where its bytes come from, if that is known.
    origin: Option<Box<Contributions>>,
}

impl<T: Element> Tile<T> {
    /// A tile of one row with these values.
    #[must_use]
    pub fn new(values: Vec<T>) -> Tile<T> {
        Tile {
            rows: 1,
            columns: values.len(),
            values,
            origin: None,
        }
    }

    /// A tile of one row that has a length but no values.
    #[must_use]
    pub fn hollow(len: usize) -> Tile<T> {
        Tile {
            rows: 1,
            columns: len,
            values: Vec::new(),
            origin: None,
        }
    }

    /// A tile of one row that has no values, of which it is known where they come from.
    #[must_use]
    pub fn traced(len: usize, origin: Contributions) -> Tile<T> {
        Tile {
            origin: Some(Box::new(origin)),
            ..Tile::hollow(len)
        }
    }

    /// Where the bytes of a hollow tile come from, if that is known.
    #[must_use]
    pub fn origin(&self) -> Option<&Contributions> {
        self.origin.as_deref()
    }

    /// Where its bytes come from, whatever it is: values are nobody's input.
    fn contributions(&self) -> std::borrow::Cow<'_, Contributions> {
        use std::borrow::Cow;
        let bytes = byte_count::<T>(self.len());
        match self.origin() {
            Some(origin) => Cow::Borrowed(origin),
            None if self.is_hollow() => Cow::Owned(Contributions::of(Counted::UNKNOWN, 0, bytes)),
            None => Cow::Owned(Contributions::of(Counted::NOTHING, 0, bytes)),
        }
    }

    /// The origin of what hollow tiles are combined into; `None` if nothing is known of any.
    fn combined(tiles: &[&Tile<T>]) -> Option<Box<Contributions>> {
        if tiles.iter().all(|tile| tile.origin.is_none()) {
            return None;
        }
        let all: Vec<_> = tiles.iter().map(|tile| tile.contributions()).collect();
        let all: Vec<&Contributions> = all.iter().map(std::convert::AsRef::as_ref).collect();
        Some(Box::new(Contributions::sum(&all)))
    }

    /// Zeros.
    #[must_use]
    pub fn zeros(rows: usize, columns: usize) -> Tile<T> {
        Tile {
            values: vec![T::zeroed(); rows.saturating_mul(columns)],
            rows,
            columns,
            origin: None,
        }
    }

    /// The same elements, row by row, in another shape.
    ///
    /// ```
    /// # use ringwork_isa::Tile;
    /// let tile = Tile::new(vec![1, 2, 3, 4, 5, 6]).shaped(2, 3)?;
    /// assert_eq!((tile.rows(), tile.columns()), (2, 3));
    /// # Ok::<(), ringwork_isa::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::LengthMismatch`] if that is another number of elements.
    #[track_caller]
    pub fn shaped(self, rows: usize, columns: usize) -> Result<Tile<T>> {
        if rows.checked_mul(columns) != Some(self.len()) {
            return Err(ErrorKind::LengthMismatch {
                what: "the tile".into(),
                got: self.len() as u64,
                wanted: (rows as u64).saturating_mul(columns as u64),
                site: Site::caller(),
            }
            .into());
        }
        Ok(Tile {
            rows,
            columns,
            ..self
        })
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

    /// Number of rows.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Elements of each row.
    #[must_use]
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Whether the values are missing.
    #[must_use]
    pub fn is_hollow(&self) -> bool {
        self.values.len() != self.len()
    }

    /// The values, row by row; none if the tile is hollow.
    #[must_use]
    pub fn values(&self) -> &[T] {
        &self.values
    }

    /// The values, row by row, to be changed; none if the tile is hollow.
    #[must_use]
    pub fn values_mut(&mut self) -> &mut [T] {
        &mut self.values
    }

    /// Some elements of it, as one row.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfBounds`] if they are not all inside.
    #[track_caller]
    pub fn slice(&self, range: std::ops::Range<usize>) -> Result<Tile<T>> {
        if range.start > range.end || range.end > self.len() {
            return Err(ErrorKind::OutOfBounds {
                start: range.start as u64,
                end: range.end as u64,
                len: self.len() as u64,
                site: Site::caller(),
            }
            .into());
        }
        Ok(if self.is_hollow() {
            let bytes = byte_count::<T>(range.start)..byte_count::<T>(range.end);
            let origin = self.origin.as_ref().map(|origin| origin.slice(bytes));
            Tile {
                origin: origin.map(Box::new),
                ..Tile::hollow(range.len())
            }
        } else {
            Tile::new(self.values[range].to_vec())
        })
    }

    /// Puts another tile's elements in the place of its own from `start` on.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfBounds`] if they do not fit.
    #[track_caller]
    pub fn replace(&mut self, start: usize, with: &Tile<T>) -> Result<()> {
        let end = start.saturating_add(with.len());
        if end > self.len() {
            return Err(ErrorKind::OutOfBounds {
                start: start as u64,
                end: end as u64,
                len: self.len() as u64,
                site: Site::caller(),
            }
            .into());
        }
        if with.is_empty() {
            return Ok(());
        }
        if self.is_hollow() || with.is_hollow() {
            if self.origin.is_some() || with.origin.is_some() {
                let known = self.origin.take();
                let mut mine = known.unwrap_or_else(|| Box::new(self.contributions().into_owned()));
                mine.replace(byte_count::<T>(start), &with.contributions());
                self.origin = Some(mine);
            }
            self.values = Vec::new();
        } else {
            self.values[start..end].copy_from_slice(&with.values);
        }
        Ok(())
    }

    /// Combines any number of tiles of one shape element by element: in order, accumulated wide, rounded once.
    ///
    /// # Errors
    /// [`ErrorKind::ShapeMismatch`] if one has another shape than the first; or if there are none.
    #[track_caller]
    pub fn fold(tiles: &[&Tile<T>], op: ReduceOp) -> Result<Tile<T>> {
        let Some((first, rest)) = tiles.split_first() else {
            return Err(Error::failed("a reduction needs at least one source"));
        };
        if let Some(other) = rest
            .iter()
            .find(|t| (t.rows, t.columns) != (first.rows, first.columns))
        {
            return Err(first.mismatch("a tile", other.rows, other.columns));
        }
        if tiles.iter().any(|tile| tile.is_hollow()) {
            return Ok(Tile {
                origin: Tile::combined(tiles),
                ..first.like(Vec::new())
            });
        }
        let fold = |i: usize| {
            let wide = rest.iter().fold(first.values[i].widen(), |acc, next| {
                T::combine(op, acc, next.values[i].widen())
            });
            T::narrow(T::finish(op, wide, tiles.len()))
        };
        Ok(first.like((0..first.len()).map(fold).collect()))
    }

    /// Combines two tiles element by element, rounding each result once.
    ///
    /// `other` has the same shape; or one row, which then meets every row; or one column, which meets every
    /// column.
    ///
    /// # Errors
    /// [`ErrorKind::ShapeMismatch`] otherwise.
    #[track_caller]
    pub fn combine(&self, other: &Tile<T>, op: ReduceOp) -> Result<Tile<T>> {
        let combined = self.zip(other, |a, b| T::finish(op, T::combine(op, a, b), 2))?;
        let same = (other.rows, other.columns) == (self.rows, self.columns);
        let origin = (combined.is_hollow() && same).then(|| Tile::combined(&[self, other]));
        Ok(Tile {
            origin: origin.flatten(),
            ..combined
        })
    }

    #[track_caller]
    fn zip(&self, other: &Tile<T>, with: impl Fn(T::Wide, T::Wide) -> T::Wide) -> Result<Tile<T>> {
        let same = (other.rows, other.columns) == (self.rows, self.columns);
        let (one_row, one_column) = (
            other.rows == 1 && other.columns == self.columns,
            other.columns == 1 && other.rows == self.rows,
        );
        if !(same || one_row || one_column) {
            return Err(self.mismatch("the second tile", other.rows, other.columns));
        }
        if self.is_hollow() || other.is_hollow() {
            return Ok(self.like(Vec::new()));
        }
        let each = |(a, b): (&T, &T)| T::narrow(with(a.widen(), b.widen()));
        let values = if same {
            self.values.iter().zip(&other.values).map(each).collect()
        } else if one_row {
            let rows = self.values.chunks_exact(self.columns.max(1));
            rows.flat_map(|row| row.iter().zip(&other.values).map(each))
                .collect()
        } else {
            let rows = self.values.chunks_exact(self.columns.max(1)).zip(&other.values);
            rows.flat_map(|(row, b)| row.iter().map(move |a| each((a, b))))
                .collect()
        };
        Ok(self.like(values))
    }

    /// Reduces each row to one element, in the order of its columns, accumulated wide and rounded once. An
    /// empty row gives zero.
    #[must_use]
    pub fn reduce_rows(&self, op: ReduceOp) -> Tile<T> {
        let fold = |row: &[T]| {
            let mut wide = row.iter().map(|value| value.widen());
            let first = wide.next()?;
            let folded = wide.fold(first, |acc, next| T::combine(op, acc, next));
            Some(T::narrow(T::finish(op, folded, row.len())))
        };
        let values = match self.columns {
            _ if self.is_hollow() => Vec::new(),
            0 => vec![T::zeroed(); self.rows],
            columns => self.values.chunks_exact(columns).filter_map(fold).collect(),
        };
        Tile {
            values,
            rows: self.rows,
            columns: 1,
            origin: None,
        }
    }

    /// The same numbers as another type: rounded to the nearest float, ties to even; to an integer truncated
    /// and saturated, from one integer to another wrapped. An i64 that no f64 can hold is rounded to one first.
    #[must_use]
    pub fn cast<U: Element>(&self) -> Tile<U> {
        let to_integer = |dtype: crate::Dtype| !dtype.is_float();
        let values = if to_integer(T::DTYPE) && to_integer(U::DTYPE) {
            self.values.iter().map(|v| U::from_i64(v.to_i64())).collect()
        } else {
            self.values.iter().map(|v| U::from_f64(v.to_f64())).collect()
        };
        Tile {
            values,
            rows: self.rows,
            columns: self.columns,
            origin: None,
        }
    }

    /// A tile of this shape.
    fn like(&self, values: Vec<T>) -> Tile<T> {
        Tile {
            values,
            rows: self.rows,
            columns: self.columns,
            origin: None,
        }
    }

    #[track_caller]
    fn mismatch(&self, what: &'static str, rows: usize, columns: usize) -> Error {
        ErrorKind::ShapeMismatch {
            what: what.into(),
            got: [rows as u64, columns as u64],
            wanted: [self.rows as u64, self.columns as u64],
            site: Site::caller(),
        }
        .into()
    }
}

impl<T: Float> Tile<T> {
    /// `self - other`, element by element; shapes and rounding as for [`combine`](Tile::combine).
    ///
    /// # Errors
    /// [`ErrorKind::ShapeMismatch`].
    #[track_caller]
    pub fn subtract(&self, other: &Tile<T>) -> Result<Tile<T>> {
        self.zip(other, T::subtract)
    }

    /// `self / other`, element by element; shapes and rounding as for [`combine`](Tile::combine).
    ///
    /// # Errors
    /// [`ErrorKind::ShapeMismatch`].
    #[track_caller]
    pub fn divide(&self, other: &Tile<T>) -> Result<Tile<T>> {
        self.zip(other, T::divide)
    }

    /// `factor * x + offset` of every element: both operations wide, rounded once to `T`.
    #[must_use]
    pub fn scale(&self, factor: f64, offset: f64) -> Tile<T> {
        let (factor, offset) = (T::wide(factor), T::wide(offset));
        let scaled = |v: &T| {
            let product = T::combine(ReduceOp::Prod, v.widen(), factor);
            T::narrow(T::combine(ReduceOp::Sum, product, offset))
        };
        self.like(self.values.iter().map(scaled).collect())
    }

    /// `e` to the power of every element. The same bits everywhere: see [`Float::exponential`].
    #[must_use]
    pub fn exp(&self) -> Tile<T> {
        let exp = |v: &T| T::narrow(T::exponential(v.widen()));
        self.like(self.values.iter().map(exp).collect())
    }

    /// Adds the matrix product `a b` to `acc`, with `product` as the loop: [`product`](fn@crate::product) or the
    /// same compiled for a certain processor.
    ///
    /// # Errors
    /// [`ErrorKind::ShapeMismatch`] unless `a` is m x k, `b` k x n and `acc` m x n.
    #[track_caller]
    pub fn add_product(
        acc: Tile<T::Wide>,
        a: &Tile<T>,
        b: &Tile<T>,
        product: impl FnOnce(&mut [T::Wide], &[T], &[T], [usize; 3]),
    ) -> Result<Tile<T::Wide>> {
        if b.rows != a.columns {
            return Err(ErrorKind::ShapeMismatch {
                what: "the right factor".into(),
                got: [b.rows as u64, b.columns as u64],
                wanted: [a.columns as u64, b.columns as u64],
                site: Site::caller(),
            }
            .into());
        }
        if (acc.rows, acc.columns) != (a.rows, b.columns) {
            return Err(ErrorKind::ShapeMismatch {
                what: "the accumulator".into(),
                got: [acc.rows as u64, acc.columns as u64],
                wanted: [a.rows as u64, b.columns as u64],
                site: Site::caller(),
            }
            .into());
        }
        let mut acc = acc;
        if acc.is_hollow() || a.is_hollow() || b.is_hollow() {
            acc.values = Vec::new();
            acc.origin = None;
        } else {
            product(
                &mut acc.values,
                &a.values,
                &b.values,
                [a.rows, a.columns, b.columns],
            );
        }
        Ok(acc)
    }
}

fn byte_count<T>(elements: usize) -> u64 {
    (elements * size_of::<T>()) as u64
}

#[cfg(test)]
mod tests;
