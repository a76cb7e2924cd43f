//! Arithmetic on matrices of one chip: element by element, products, norms.
//!
//! Every operand is a block: rows and columns of a tensor. Tiles of it go through the core one after the other, so a
//! matrix may be larger than what a core holds. Each operation rounds to the elements' type, and has the same bits on
//! every platform; [`gemm()`] adds up in the wider type and rounds once.

use ringwork_isa::{
    Arg, Argument, Block, Core, Element, Error, Float, In, Out, Parameter, ReduceOp, Result, Tag, Tile,
    TileOps, Value, activations,
};
use ringwork_macros::kernel;
use std::fmt;
use std::ops::Range;
use std::str::FromStr;

/// The most elements of a tile of a row-wise kernel, unless a single row has more.
const TILE_ELEMENTS: usize = 1 << 14;

/// The sides of the tiles of a product.
const PRODUCT_SIDE: usize = 128;

/// `0..len` in pieces of at most `side`.
fn pieces(len: usize, side: usize) -> impl Iterator<Item = Range<usize>> {
    (0..len)
        .step_by(side)
        .map(move |start| start..len.min(start + side))
}

/// The rows of a block with so many columns, a tile at a time.
fn row_pieces((rows, columns): (usize, usize)) -> impl Iterator<Item = Range<usize>> {
    pieces(rows, (TILE_ELEMENTS / columns.max(1)).max(1))
}

fn same_shape(x: (usize, usize), y: (usize, usize)) -> Result<()> {
    if x == y {
        return Ok(());
    }
    let text = format!("the input is {} x {} and the output {} x {}", x.0, x.1, y.0, y.1);
    Err(Error::failed(text))
}

/// The part of the second operand that meets these rows of the first: the same rows, or its only row.
async fn second<C: Core, T: Element>(core: &C, b: Block<In<T>>, rows: Range<usize>) -> Result<Tile<T>> {
    if b.shape().0 == 1 {
        return core.load(b).await;
    }
    core.load(b.rows(rows)?).await
}

/// `y = a op b`, element by element. `b` has the shape of `a`, or is one row that meets every row.
///
/// # Errors
/// If the shapes do not fit.
#[kernel]
pub async fn combine<C: Core, T: Element>(
    core: &C,
    a: Block<In<T>>,
    b: Block<In<T>>,
    y: Block<Out<T>>,
    op: ReduceOp,
) -> Result<()> {
    same_shape(a.shape(), y.shape())?;
    for rows in row_pieces(a.shape()) {
        let left = core.load(a.rows(rows.clone())?).await?;
        let right = second(core, b, rows.clone()).await?;
        let tile = match op {
            ReduceOp::Prod => core.mul(&left, &right).await?,
            ReduceOp::Max => core.max(&left, &right).await?,
            ReduceOp::Min => core.min(&left, &right).await?,
            _ => core.add(&left, &right).await?,
        };
        core.store(y.rows(rows)?, &tile).await?;
    }
    Ok(())
}

/// `y = a - b`, element by element. `b` has the shape of `a`, or is one row that meets every row.
///
/// # Errors
/// If the shapes do not fit.
#[kernel]
pub async fn sub<C: Core, T: Float>(
    core: &C,
    a: Block<In<T>>,
    b: Block<In<T>>,
    y: Block<Out<T>>,
) -> Result<()> {
    same_shape(a.shape(), y.shape())?;
    for rows in row_pieces(a.shape()) {
        let left = core.load(a.rows(rows.clone())?).await?;
        let right = second(core, b, rows.clone()).await?;
        core.store(y.rows(rows)?, &core.sub(&left, &right).await?).await?;
    }
    Ok(())
}

/// `y = a / b`, element by element. `b` has the shape of `a`, or is one row that meets every row.
///
/// # Errors
/// If the shapes do not fit.
#[kernel]
pub async fn div<C: Core, T: Float>(
    core: &C,
    a: Block<In<T>>,
    b: Block<In<T>>,
    y: Block<Out<T>>,
) -> Result<()> {
    same_shape(a.shape(), y.shape())?;
    for rows in row_pieces(a.shape()) {
        let left = core.load(a.rows(rows.clone())?).await?;
        let right = second(core, b, rows.clone()).await?;
        core.store(y.rows(rows)?, &core.div(&left, &right).await?).await?;
    }
    Ok(())
}

/// A function of every element, for [`map()`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Function {
    /// `e` to the power of it.
    Exp,
    /// The natural logarithm.
    Log,
    /// The square root.
    Sqrt,
    /// `1 / sqrt(x)`.
    Rsqrt,
    /// The hyperbolic tangent.
    Tanh,
    /// `1 / (1 + e^-x)`.
    Sigmoid,
    /// `1 / x`.
    Reciprocal,
    /// Without its sign.
    Abs,
    /// With the other sign.
    Neg,
    /// The larger of it and 0.
    Relu,
    /// [`activations::silu`].
    Silu,
    /// [`activations::gelu`].
    Gelu,
}

impl Function {
    /// Every function.
    pub const ALL: [Function; 12] = [
        Function::Exp,
        Function::Log,
        Function::Sqrt,
        Function::Rsqrt,
        Function::Tanh,
        Function::Sigmoid,
        Function::Reciprocal,
        Function::Abs,
        Function::Neg,
        Function::Relu,
        Function::Silu,
        Function::Gelu,
    ];

    /// Its name, such as `exp`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Function::Exp => "exp",
            Function::Log => "log",
            Function::Sqrt => "sqrt",
            Function::Rsqrt => "rsqrt",
            Function::Tanh => "tanh",
            Function::Sigmoid => "sigmoid",
            Function::Reciprocal => "reciprocal",
            Function::Abs => "abs",
            Function::Neg => "neg",
            Function::Relu => "relu",
            Function::Silu => "silu",
            Function::Gelu => "gelu",
        }
    }
}

impl fmt::Display for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Function {
    type Err = String;

    fn from_str(name: &str) -> std::result::Result<Function, String> {
        let found = Function::ALL.into_iter().find(|one| one.name() == name);
        found.ok_or_else(|| format!("there is no function `{}`", name.escape_debug()))
    }
}

impl Parameter for Function {
    const TAG: Tag = Tag::Value;
    fn type_name() -> String {
        "Function".into()
    }
    fn from_arg(arg: &Arg) -> std::result::Result<Self, String> {
        let Arg::Value(Value::U64(index)) = arg else {
            return Err(Self::type_name());
        };
        let index = usize::try_from(*index).ok();
        index
            .and_then(|index| Function::ALL.get(index))
            .copied()
            .ok_or_else(Self::type_name)
    }
}

impl Argument<Function> for Function {
    fn to_arg(&self) -> Arg {
        Arg::Value((*self as usize).into())
    }
}

/// `y = function(x)`, element by element.
///
/// # Errors
/// If the shapes differ.
#[kernel]
pub async fn map<C: Core, T: Float>(
    core: &C,
    x: Block<In<T>>,
    y: Block<Out<T>>,
    function: Function,
) -> Result<()> {
    same_shape(x.shape(), y.shape())?;
    for rows in row_pieces(x.shape()) {
        let tile = core.load(x.rows(rows.clone())?).await?;
        let tile = match function {
            Function::Exp => core.exp(&tile).await?,
            Function::Log => core.log(&tile).await?,
            Function::Sqrt => core.sqrt(&tile).await?,
            Function::Rsqrt => core.rsqrt(&tile).await?,
            Function::Tanh => core.tanh(&tile).await?,
            Function::Sigmoid => core.sigmoid(&tile).await?,
            Function::Reciprocal => core.reciprocal(&tile).await?,
            Function::Abs => core.abs(&tile).await?,
            Function::Neg => core.neg(&tile).await?,
            Function::Relu => core.max(&tile, &Tile::zeros(1, 1)).await?,
            Function::Silu => activations::silu(core, &tile).await?,
            Function::Gelu => activations::gelu(core, &tile).await?,
        };
        core.store(y.rows(rows)?, &tile).await?;
    }
    Ok(())
}

/// `y = factor * x + offset`, element by element.
///
/// # Errors
/// If the shapes differ.
#[kernel]
pub async fn scale<C: Core, T: Float>(
    core: &C,
    x: Block<In<T>>,
    y: Block<Out<T>>,
    factor: f64,
    offset: f64,
) -> Result<()> {
    same_shape(x.shape(), y.shape())?;
    for rows in row_pieces(x.shape()) {
        let tile = core.load(x.rows(rows.clone())?).await?;
        let tile = core.scale(&tile, factor, offset).await?;
        core.store(y.rows(rows)?, &tile).await?;
    }
    Ok(())
}

/// `y = x`.
///
/// # Errors
/// If the shapes differ.
#[kernel]
pub async fn copy<C: Core, T: Element>(core: &C, x: Block<In<T>>, y: Block<Out<T>>) -> Result<()> {
    same_shape(x.shape(), y.shape())?;
    core.copy(y, x).await
}

/// The matrix product `c = a b`; either operand may lie in memory transposed.
///
/// # Errors
/// If the shapes do not fit.
#[kernel]
pub async fn gemm<C: Core, T: Float>(
    core: &C,
    a: Block<In<T>>,
    b: Block<In<T>>,
    c: Block<Out<T>>,
    transpose_a: bool,
    transpose_b: bool,
) -> Result<()> {
    let turned = |turn: bool, (rows, columns)| if turn { (columns, rows) } else { (rows, columns) };
    let ((m, k), (depth, n)) = (turned(transpose_a, a.shape()), turned(transpose_b, b.shape()));
    if depth != k || c.shape() != (m, n) {
        let (rows, columns) = c.shape();
        let text = format!("{m} x {k} times {depth} x {n} is not {rows} x {columns}");
        return Err(Error::failed(text));
    }
    for rows in pieces(m, PRODUCT_SIDE) {
        for columns in pieces(n, PRODUCT_SIDE) {
            let mut sum = Tile::zeros(rows.len(), columns.len());
            for depth in pieces(k, PRODUCT_SIDE) {
                let left = part(core, a, transpose_a, (rows.clone(), depth.clone())).await?;
                let right = part(core, b, transpose_b, (depth, columns.clone())).await?;
                sum = core.matmul_add(sum, &left, &right).await?;
            }
            let tile = core.cast::<T::Wide, T>(&sum).await?;
            core.store(c.rows(rows.clone())?.columns(columns)?, &tile).await?;
        }
    }
    Ok(())
}

/// Rows and columns of an operand.
async fn part<C: Core, T: Float>(
    core: &C,
    x: Block<In<T>>,
    transposed: bool,
    (rows, columns): (Range<usize>, Range<usize>),
) -> Result<Tile<T>> {
    if transposed {
        let tile = core.load(x.rows(columns)?.columns(rows)?).await?;
        return core.transpose(&tile).await;
    }
    core.load(x.rows(rows)?.columns(columns)?).await
}

/// Each row of `y` is the [softmax](activations::softmax) of the same row of `x`.
///
/// # Errors
/// If the shapes differ.
#[kernel]
pub async fn softmax<C: Core, T: Float>(core: &C, x: Block<In<T>>, y: Block<Out<T>>) -> Result<()> {
    same_shape(x.shape(), y.shape())?;
    for rows in row_pieces(x.shape()) {
        let tile = core.load(x.rows(rows.clone())?).await?;
        core.store(y.rows(rows)?, &activations::softmax(core, &tile).await?)
            .await?;
    }
    Ok(())
}

/// Each row of `y` is the [RMS norm](activations::rms_norm()) of the same row of `x`; the weight is one row.
///
/// # Errors
/// If the shapes do not fit.
#[kernel]
pub async fn rms_norm<C: Core, T: Float>(
    core: &C,
    x: Block<In<T>>,
    weight: Block<In<T>>,
    y: Block<Out<T>>,
    epsilon: f64,
) -> Result<()> {
    same_shape(x.shape(), y.shape())?;
    let weight = core.load(weight).await?;
    for rows in row_pieces(x.shape()) {
        let tile = core.load(x.rows(rows.clone())?).await?;
        let tile = activations::rms_norm(core, &tile, &weight, epsilon).await?;
        core.store(y.rows(rows)?, &tile).await?;
    }
    Ok(())
}
