//! Tiles: a core's own working memory.

use crate::{Element, ErrorKind, ReduceOp, Result, Site};

/// Elements that one core works on. Private to it: nobody else can see or change them.
///
/// A tile may be *hollow*: a simulation that computes only time has lengths but no values.
#[derive(Clone, Debug, PartialEq)]
pub struct Tile<T> {
    values: Vec<T>,
    len: usize,
}

impl<T: Element> Tile<T> {
    /// A tile with these values.
    #[must_use]
    pub fn new(values: Vec<T>) -> Tile<T> {
        Tile {
            len: values.len(),
            values,
        }
    }

    /// A tile that has a length but no values.
    #[must_use]
    pub fn hollow(len: usize) -> Tile<T> {
        Tile {
            values: Vec::new(),
            len,
        }
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

    /// Whether the values are missing.
    #[must_use]
    pub fn is_hollow(&self) -> bool {
        self.values.len() != self.len
    }

    /// The values; none if the tile is hollow.
    #[must_use]
    pub fn values(&self) -> &[T] {
        &self.values
    }

    /// Combines two tiles of equal length element by element, rounding each result once.
    ///
    /// # Errors
    /// [`Error::LengthMismatch`] if they are not equally long.
    #[track_caller]
    pub fn combine(&self, other: &Tile<T>, op: ReduceOp) -> Result<Tile<T>> {
        if self.len != other.len {
            return Err(ErrorKind::LengthMismatch {
                what: "the second tile".into(),
                got: other.len as u64,
                wanted: self.len as u64,
                site: Site::caller(),
            }
            .into());
        }
        if self.is_hollow() || other.is_hollow() {
            return Ok(Tile::hollow(self.len));
        }
        let both = self.values.iter().zip(&other.values);
        Ok(Tile::new(
            both.map(|(a, b)| T::narrow(T::finish(op, T::combine(op, a.widen(), b.widen()), 2)))
                .collect(),
        ))
    }
}
