//! Arithmetic on tiles, for every core.
//!
//! Each operation is a method of [`Tile`] and a [`spend`](Core::spend) of the time that it takes. A platform implements
//! only `spend`, and may replace the loop of the matrix product.

use crate::{Compare, Core, Element, Float, ReduceOp, Result, Tile, Work, product};
use std::future::Future;

/// Functions of every element of a tile.
macro_rules! functions {
    ($($(#[$doc:meta])* $name:ident,)*) => {$(
        $(#[$doc])*
        #[track_caller]
        fn $name<T: Float>(&self, x: &Tile<T>) -> impl Future<Output = Result<Tile<T>>> {
            spent(self.spend(Work::on(x)), Ok(x.$name()))
        }
    )*};
}

/// Reductions of every row or column of a tile.
macro_rules! reductions {
    ($($(#[$doc:meta])* $name:ident => $reduce:ident, $op:expr;)*) => {$(
        $(#[$doc])*
        #[track_caller]
        fn $name<T: Element>(&self, x: &Tile<T>) -> impl Future<Output = Result<Tile<T>>> {
            spent(self.spend(Work::on(x)), Ok(x.$reduce($op)))
        }
    )*};
}

/// Arithmetic on tiles. Every [`Core`] has it.
///
/// No operation touches memory. Each rounds once per element, and gives the same bits on every platform. A hollow tile
/// gives a hollow result, which costs as much time.
///
/// Operations that take two tiles keep the shape of the first. The second has the same shape; or it is one row, one
/// column or one element, which then meets every row, column or element.
///
/// # How exact the functions are
/// `sqrt`, `reciprocal`, `abs` and `neg` are correctly rounded for every type. `exp`, `log`, `rsqrt`, `tanh` and `sigmoid`
/// are computed in f64 within four units in the last place, and rounded once to a shorter type. An f32, f16 or bf16 is
/// then the nearest one, unless the exact value is within 2^-50 of the middle between two neighbours.
pub trait TileOps: Core {
    /// Adds two tiles element by element (TADD).
    #[track_caller]
    fn add<T: Element>(&self, a: &Tile<T>, b: &Tile<T>) -> impl Future<Output = Result<Tile<T>>> {
        spent(self.spend(Work::on(a)), a.combine(b, ReduceOp::Sum))
    }

    /// Multiplies two tiles element by element (TMUL).
    #[track_caller]
    fn mul<T: Element>(&self, a: &Tile<T>, b: &Tile<T>) -> impl Future<Output = Result<Tile<T>>> {
        spent(self.spend(Work::on(a)), a.combine(b, ReduceOp::Prod))
    }

    /// The larger of two elements (TMAX); NaN wins.
    #[track_caller]
    fn max<T: Element>(&self, a: &Tile<T>, b: &Tile<T>) -> impl Future<Output = Result<Tile<T>>> {
        spent(self.spend(Work::on(a)), a.combine(b, ReduceOp::Max))
    }

    /// The smaller of two elements (TMIN); NaN wins.
    #[track_caller]
    fn min<T: Element>(&self, a: &Tile<T>, b: &Tile<T>) -> impl Future<Output = Result<Tile<T>>> {
        spent(self.spend(Work::on(a)), a.combine(b, ReduceOp::Min))
    }

    /// Combines tiles of one shape element by element, as [`reduce`](Core::reduce) does regions: in the order
    /// given, accumulated wide, rounded once.
    #[track_caller]
    fn fold<T: Element>(&self, tiles: &[&Tile<T>], op: ReduceOp) -> impl Future<Output = Result<Tile<T>>> {
        let elements = tiles.iter().skip(1).map(|tile| tile.len()).sum();
        spent(self.spend(Work::vector::<T>(elements)), Tile::fold(tiles, op))
    }

    /// Subtracts `b` from `a` element by element (TSUB).
    #[track_caller]
    fn sub<T: Float>(&self, a: &Tile<T>, b: &Tile<T>) -> impl Future<Output = Result<Tile<T>>> {
        spent(self.spend(Work::on(a)), a.subtract(b))
    }

    /// Divides `a` by `b` element by element (TDIV).
    #[track_caller]
    fn div<T: Float>(&self, a: &Tile<T>, b: &Tile<T>) -> impl Future<Output = Result<Tile<T>>> {
        spent(self.spend(Work::on(a)), a.divide(b))
    }

    /// `factor * x + offset` of every element (TMULS, TADDS).
    #[track_caller]
    fn scale<T: Float>(
        &self,
        x: &Tile<T>,
        factor: f64,
        offset: f64,
    ) -> impl Future<Output = Result<Tile<T>>> {
        spent(self.spend(Work::on(x)), Ok(x.scale(factor, offset)))
    }

    functions! {
        /// `e` to the power of every element (TEXP).
        exp,
        /// The natural logarithm of every element (TLOG): NaN of a negative number, minus infinity of zero.
        log,
        /// The square root of every element (TSQRT), correctly rounded; NaN of a negative number.
        sqrt,
        /// `1 / sqrt(x)` of every element (TRSQRT): infinite of zero, NaN of a negative number.
        rsqrt,
        /// The hyperbolic tangent of every element.
        tanh,
        /// `1 / (1 + e^-x)` of every element.
        sigmoid,
        /// `1 / x` of every element (TRECIP), correctly rounded.
        reciprocal,
        /// Every element without its sign (TABS). Exact.
        abs,
        /// Every element with the other sign (TNEG). Exact.
        neg,
    }

    /// Compares two tiles element by element (TCMP): a mask of 1 where the comparison holds, and 0 elsewhere.
    ///
    /// A NaN is unequal to everything, and neither less nor greater. Unlike in [`Core::wait`], integers do not wrap.
    #[track_caller]
    fn compare<T: Element>(
        &self,
        a: &Tile<T>,
        b: &Tile<T>,
        how: Compare,
    ) -> impl Future<Output = Result<Tile<u8>>> {
        spent(self.spend(Work::on(a)), a.compare(b, how))
    }

    /// The element of `a` where the mask is not 0, else the element of `b` (TSEL). The mask and `b` have the shape of `a`,
    /// or are one row, one column or one element.
    #[track_caller]
    fn select<T: Element>(
        &self,
        mask: &Tile<u8>,
        a: &Tile<T>,
        b: &Tile<T>,
    ) -> impl Future<Output = Result<Tile<T>>> {
        spent(self.spend(Work::on(a)), Tile::select(mask, a, b))
    }

    /// Rows as columns (TTRANS).
    #[track_caller]
    fn transpose<T: Element>(&self, x: &Tile<T>) -> impl Future<Output = Result<Tile<T>>> {
        spent(self.spend(Work::on(x)), Ok(x.transpose()))
    }

    /// A tile with the same value everywhere (TEXPANDS).
    #[track_caller]
    fn full<T: Element>(
        &self,
        rows: usize,
        columns: usize,
        value: T,
    ) -> impl Future<Output = Result<Tile<T>>> {
        let tile = Tile::full(rows, columns, value);
        spent(self.spend(Work::on(&tile)), Ok(tile))
    }

    /// A tile of 0, 1, 2 and so on, row by row (TCI). Integer types wrap; floats have the nearest number.
    #[track_caller]
    fn iota<T: Element>(&self, rows: usize, columns: usize) -> impl Future<Output = Result<Tile<T>>> {
        let tile = Tile::iota(rows, columns);
        spent(self.spend(Work::on(&tile)), Ok(tile))
    }

    reductions! {
        /// The sum of each row (TROWSUM), as one column: in the order of the columns, wide, rounded once.
        row_sum => reduce_rows, ReduceOp::Sum;
        /// The largest element of each row (TROWMAX), as one column; NaN wins.
        row_max => reduce_rows, ReduceOp::Max;
        /// The smallest element of each row (TROWMIN), as one column; NaN wins.
        row_min => reduce_rows, ReduceOp::Min;
        /// The sum of each column (TCOLSUM), as one row: in the order of the rows, wide, rounded once.
        col_sum => reduce_columns, ReduceOp::Sum;
        /// The largest element of each column (TCOLMAX), as one row; NaN wins.
        col_max => reduce_columns, ReduceOp::Max;
        /// The smallest element of each column (TCOLMIN), as one row; NaN wins.
        col_min => reduce_columns, ReduceOp::Min;
    }

    /// The same numbers as another type (TCVT). See [`Tile::cast`] for how they are rounded.
    #[track_caller]
    fn cast<T: Element, U: Element>(&self, x: &Tile<T>) -> impl Future<Output = Result<Tile<U>>> {
        let work = if U::DTYPE.bytes() > T::DTYPE.bytes() {
            Work::vector::<U>(x.len())
        } else {
            Work::on(x)
        };
        spent(self.spend(work), Ok(x.cast()))
    }

    /// The matrix product `a b` (TMATMUL): m x k by k x n.
    ///
    /// The result is in the accumulator's type, f32 for the 16-bit floats; [`cast`](TileOps::cast) rounds it.
    /// Each element is summed in the order of k, every product and sum rounded to the accumulator's type and
    /// never fused: the same bits on every platform. Touches no memory.
    #[track_caller]
    fn matmul<T: Float>(&self, a: &Tile<T>, b: &Tile<T>) -> impl Future<Output = Result<Tile<T::Wide>>> {
        self.matmul_add(Tile::zeros(a.rows(), b.columns()), a, b)
    }

    /// Adds the matrix product `a b` to `acc` (TMATMUL_ACC). As [`matmul`](TileOps::matmul), beginning with
    /// `acc`: so a product may be cut along k into as many instructions as its tiles need, and has the same
    /// bits.
    #[track_caller]
    fn matmul_add<T: Float>(
        &self,
        acc: Tile<T::Wide>,
        a: &Tile<T>,
        b: &Tile<T>,
    ) -> impl Future<Output = Result<Tile<T::Wide>>> {
        self.matrix_product(acc, a, b)
    }
}

impl<C: Core> TileOps for C {}

impl Work {
    /// One operation on each element of `tile`.
    fn on<T: Element>(tile: &Tile<T>) -> Work {
        Work::vector::<T>(tile.len())
    }

    fn vector<T: Element>(elements: usize) -> Work {
        Work::Vector {
            elements: elements as u64,
            dtype: T::DTYPE,
        }
    }
}

/// [`Core::matrix_product`] by the portable loop.
#[track_caller]
pub(crate) fn matrix_product<C: Core, T: Float>(
    core: &C,
    acc: Tile<T::Wide>,
    a: &Tile<T>,
    b: &Tile<T>,
) -> impl Future<Output = Result<Tile<T::Wide>>> {
    let work = Work::Matrix {
        m: a.rows() as u64,
        k: a.columns() as u64,
        n: b.columns() as u64,
        dtype: T::DTYPE,
    };
    spent(core.spend(work), Tile::add_product(acc, a, b, product::<T>))
}

/// Returns a result after its cost was spent. The cost is awaited in any case: it is an instruction that was made.
async fn spent<T>(spending: impl Future<Output = Result<()>>, result: Result<T>) -> Result<T> {
    spending.await?;
    result
}
