//! Arithmetic on tiles: the values of every operation, without its time.
//!
//! A hollow operand gives a hollow result of the same shape.

use super::Tile;
use crate::float::elementary;
use crate::{Compare, Element, Error, Float, ReduceOp, Result};
use std::borrow::Cow;
use std::iter::repeat_n;

/// Methods that apply a function of f64 to every element and round its result once.
macro_rules! functions {
    ($($(#[$doc:meta])* $name:ident => $function:expr,)*) => {$(
        $(#[$doc])*
        #[must_use]
        pub fn $name(&self) -> Tile<T> {
            let each = |value: &T| T::from_f64($function(value.to_f64()));
            self.like(self.values.iter().map(each).collect())
        }
    )*};
}

impl<T: Element> Tile<T> {
    /// Combines any number of tiles of one shape element by element: in order, accumulated wide, rounded once.
    ///
    /// # Errors
    /// [`ShapeMismatch`](crate::ErrorKind::ShapeMismatch) if one has another shape than the first; or if there are none.
    #[track_caller]
    pub fn fold(tiles: &[&Tile<T>], op: ReduceOp) -> Result<Tile<T>> {
        let Some((first, rest)) = tiles.split_first() else {
            return Err(Error::failed("a reduction needs at least one source"));
        };
        for other in rest {
            other.check_shape("a tile", first.rows, first.columns)?;
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
    /// column; or one element, which meets every element.
    ///
    /// # Errors
    /// [`ShapeMismatch`](crate::ErrorKind::ShapeMismatch) otherwise.
    #[track_caller]
    pub fn combine(&self, other: &Tile<T>, op: ReduceOp) -> Result<Tile<T>> {
        let combined = self.zip(other, |a: T, b: T| {
            T::narrow(T::finish(op, T::combine(op, a.widen(), b.widen()), 2))
        })?;
        let same = (other.rows, other.columns) == (self.rows, self.columns);
        let origin = (combined.is_hollow() && same).then(|| Tile::combined(&[self, other]));
        Ok(Tile {
            origin: origin.flatten(),
            ..combined
        })
    }

    /// Compares with another tile element by element: 1 where the comparison holds, else 0. Shapes as for
    /// [`combine`](Tile::combine). A NaN is unequal to everything, and neither less nor greater.
    ///
    /// # Errors
    /// [`ShapeMismatch`](crate::ErrorKind::ShapeMismatch).
    #[track_caller]
    pub fn compare(&self, other: &Tile<T>, how: Compare) -> Result<Tile<u8>> {
        let holds: fn(&T, &T) -> bool = match how {
            Compare::Eq => T::eq,
            Compare::Ne => T::ne,
            Compare::Gt => T::gt,
            Compare::Ge => T::ge,
            Compare::Lt => T::lt,
            Compare::Le => T::le,
        };
        self.zip(other, |a, b| u8::from(holds(&a, &b)))
    }

    /// The element of `a` where the mask is not 0, else the element of `b`. The mask and `b` have the shape of `a`, or are
    /// one row, one column or one element.
    ///
    /// # Errors
    /// [`ShapeMismatch`](crate::ErrorKind::ShapeMismatch) otherwise.
    #[track_caller]
    pub fn select(mask: &Tile<u8>, a: &Tile<T>, b: &Tile<T>) -> Result<Tile<T>> {
        let (masks, others) = (a.spread("the mask", mask)?, a.spread("the second tile", b)?);
        let pairs = a.values.iter().zip(others.iter());
        let choose = |(mask, (a, b)): (&u8, (&T, &T))| if *mask == 0 { *b } else { *a };
        Ok(a.like(masks.iter().zip(pairs).map(choose).collect()))
    }

    /// Applies `with` to each element and its partner in `other`, which is spread to this tile's shape.
    #[track_caller]
    fn zip<U: Element>(&self, other: &Tile<T>, with: impl Fn(T, T) -> U) -> Result<Tile<U>> {
        let others = self.spread("the second tile", other)?;
        // A hollow tile has no values, so there are no pairs and the result is hollow.
        let pairs = self.values.iter().zip(others.iter());
        Ok(self.like(pairs.map(|(a, b)| with(*a, *b)).collect()))
    }

    /// The values of `other`, repeated until they have this tile's shape; none if `other` is hollow.
    #[track_caller]
    fn spread<'a, U: Element>(&self, what: &'static str, other: &'a Tile<U>) -> Result<Cow<'a, [U]>> {
        let (rows, columns) = (self.rows, self.columns);
        let each = |times: usize| {
            let repeated = other.values.iter().flat_map(move |value| repeat_n(*value, times));
            Ok(Cow::Owned(repeated.collect()))
        };
        match (other.rows, other.columns) {
            shape if shape == (rows, columns) => Ok(Cow::Borrowed(&other.values)),
            (1, 1) => each(self.len()),
            (_, 1) if other.rows == rows => each(columns),
            (1, _) if other.columns == columns => Ok(Cow::Owned(other.values.repeat(rows))),
            _ => other.check_shape(what, rows, columns).map(|()| Cow::default()),
        }
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

    /// Reduces each column to one element, in the order of its rows, accumulated wide and rounded once. An empty column
    /// gives zero.
    #[must_use]
    pub fn reduce_columns(&self, op: ReduceOp) -> Tile<T> {
        let mut rows = self.values.chunks_exact(self.columns.max(1));
        let first = rows.next().map(|row| row.iter().map(|value| value.widen()));
        let mut sums: Vec<T::Wide> = first.into_iter().flatten().collect();
        for row in rows {
            for (sum, value) in sums.iter_mut().zip(row) {
                *sum = T::combine(op, *sum, value.widen());
            }
        }
        let narrow = |sum| T::narrow(T::finish(op, sum, self.rows));
        let values = if self.rows == 0 {
            vec![T::zeroed(); self.columns]
        } else {
            sums.into_iter().map(narrow).collect()
        };
        Tile {
            values,
            rows: 1,
            columns: self.columns,
            origin: None,
        }
    }

    /// Rows as columns. One row or one column keeps its [origin](Tile::origin).
    #[must_use]
    pub fn transpose(&self) -> Tile<T> {
        let (rows, columns) = (self.columns, self.rows);
        let is_line = rows == 1 || columns == 1;
        let column = |c: usize| self.values.iter().skip(c).step_by(self.columns.max(1)).copied();
        let values = if is_line {
            self.values.clone()
        } else {
            (0..self.columns).flat_map(column).collect()
        };
        Tile {
            values,
            rows,
            columns,
            origin: self.origin.clone().filter(|_| is_line),
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
        self.like(values)
    }
}

impl<T: Float> Tile<T> {
    /// `self - other`, element by element; shapes and rounding as for [`combine`](Tile::combine).
    ///
    /// # Errors
    /// [`ShapeMismatch`](crate::ErrorKind::ShapeMismatch).
    #[track_caller]
    pub fn subtract(&self, other: &Tile<T>) -> Result<Tile<T>> {
        self.zip(other, |a, b| T::narrow(T::subtract(a.widen(), b.widen())))
    }

    /// `self / other`, element by element; shapes and rounding as for [`combine`](Tile::combine).
    ///
    /// # Errors
    /// [`ShapeMismatch`](crate::ErrorKind::ShapeMismatch).
    #[track_caller]
    pub fn divide(&self, other: &Tile<T>) -> Result<Tile<T>> {
        self.zip(other, |a, b| T::narrow(T::divide(a.widen(), b.widen())))
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

    functions! {
        /// `e` to the power of every element.
        exp => elementary::exp,
        /// The natural logarithm of every element: NaN of a negative number, minus infinity of zero.
        log => elementary::log,
        /// The square root of every element, correctly rounded; NaN of a negative number.
        sqrt => f64::sqrt,
        /// `1 / sqrt(x)` of every element: infinite of zero, NaN of a negative number.
        rsqrt => elementary::rsqrt,
        /// The hyperbolic tangent of every element.
        tanh => elementary::tanh,
        /// `1 / (1 + e^-x)` of every element.
        sigmoid => elementary::sigmoid,
        /// `1 / x` of every element, correctly rounded.
        reciprocal => elementary::reciprocal,
        /// Every element without its sign. Exact.
        abs => f64::abs,
        /// Every element with the other sign. Exact.
        neg => std::ops::Neg::neg,
    }

    /// Adds the matrix product `a b` to `acc`, with `product` as the loop: [`product`](fn@crate::product) or the
    /// same compiled for a certain processor.
    ///
    /// # Errors
    /// [`ShapeMismatch`](crate::ErrorKind::ShapeMismatch) unless `a` is m x k, `b` k x n and `acc` m x n.
    #[track_caller]
    pub fn add_product(
        acc: Tile<T::Wide>,
        a: &Tile<T>,
        b: &Tile<T>,
        product: impl FnOnce(&mut [T::Wide], &[T], &[T], [usize; 3]),
    ) -> Result<Tile<T::Wide>> {
        b.check_shape("the right factor", a.columns, b.columns)?;
        acc.check_shape("the accumulator", a.rows, b.columns)?;
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
