//! Tiles: a core's own working memory, and all arithmetic on it.
//!
//! The arithmetic is here, once, for all platforms: a core adds only the time that it takes.

mod arithmetic;

use crate::{Contributions, Counted, Element, ErrorKind, Result, Site};
use std::panic::Location;

/// Elements that one core works on: rows and columns. Private to it: nobody else can see or change them.
///
/// A tile is loaded as one row; [`shaped`](Tile::shaped) gives it another shape. A tile may be *hollow*, that is without values: a simulation
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
        Tile::full(rows, columns, T::zeroed())
    }

    /// The same value everywhere.
    #[must_use]
    pub fn full(rows: usize, columns: usize, value: T) -> Tile<T> {
        Tile {
            values: vec![value; rows.saturating_mul(columns)],
            rows,
            columns,
            origin: None,
        }
    }

    /// 0, 1, 2 and so on, row by row. Integer types wrap; floats have the nearest number.
    #[must_use]
    pub fn iota(rows: usize, columns: usize) -> Tile<T> {
        let count = i64::try_from(rows.saturating_mul(columns)).unwrap_or(i64::MAX);
        Tile {
            values: (0..count).map(T::from_i64).collect(),
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
        Ok(self.reshaped(rows, columns))
    }

    /// The same, for a shape that has as many elements.
    pub(crate) fn reshaped(self, rows: usize, columns: usize) -> Tile<T> {
        debug_assert_eq!(rows * columns, self.len());
        Tile {
            rows,
            columns,
            ..self
        }
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
                what: "elements".into(),
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
                what: "elements".into(),
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

    /// A larger tile: this one at its top left, `fill` elsewhere.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfBounds`] if it is smaller.
    #[track_caller]
    pub fn padded(self, rows: usize, columns: usize, fill: T) -> Result<Tile<T>> {
        if (self.rows, self.columns) == (rows, columns) {
            return Ok(self);
        }
        let mut tile = Tile::full(rows, columns, fill);
        for row in 0..self.rows {
            let part = self.slice(row * self.columns..(row + 1) * self.columns)?;
            tile.replace(row * columns, &part)?;
        }
        Ok(tile)
    }

    /// The first rows and columns of it.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfBounds`] if it has fewer.
    #[track_caller]
    pub fn cropped(&self, rows: usize, columns: usize) -> Result<Tile<T>> {
        let mut tile = Tile::zeros(rows, columns);
        for row in 0..rows {
            let start = row * self.columns;
            tile.replace(row * columns, &self.slice(start..start + columns)?)?;
        }
        Ok(tile)
    }

    /// A tile of this shape.
    fn like<U: Element>(&self, values: Vec<U>) -> Tile<U> {
        Tile {
            values,
            rows: self.rows,
            columns: self.columns,
            origin: None,
        }
    }

    /// Refuses a tile of another shape.
    #[track_caller]
    pub(crate) fn check_shape(&self, what: &'static str, rows: usize, columns: usize) -> Result<()> {
        self.check_shape_at(what, (rows, columns), Location::caller())
    }

    /// The same, for the line that answers for it.
    pub(crate) fn check_shape_at(
        &self,
        what: &'static str,
        (rows, columns): (usize, usize),
        at: &'static Location<'static>,
    ) -> Result<()> {
        if (self.rows, self.columns) == (rows, columns) {
            return Ok(());
        }
        Err(ErrorKind::ShapeMismatch {
            what: what.into(),
            got: [self.rows as u64, self.columns as u64],
            wanted: [rows as u64, columns as u64],
            site: at.into(),
        }
        .into())
    }
}

fn byte_count<T>(elements: usize) -> u64 {
    (elements * size_of::<T>()) as u64
}

#[cfg(test)]
mod tests;
