//! Activations and norms of layers, each made of a few operations on tiles.
//!
//! Every step rounds to the tile's type. Cast a tile of 16-bit floats to f32 before, and back after.
//!
//! ```
//! use ringwork_isa::activations::{rms_norm, silu};
//! use ringwork_isa::{Core, In, InOut, Result, TileOps};
//!
//! /// x = silu(rms_norm(x)), row by row.
//! async fn layer<C: Core>(core: &C, x: InOut<f32>, weight: In<f32>) -> Result<()> {
//!     let weight = core.load(weight).await?;
//!     let rows = x.len() / weight.len();
//!     let tile = core.load(x).await?.shaped(rows, weight.len())?;
//!     let tile = rms_norm(core, &tile, &weight, 1e-6).await?;
//!     core.store(x, &silu(core, &tile).await?).await
//! }
//! ```

use crate::{Core, Float, Result, Tile, TileOps};
use std::future::Future;

/// `x / (1 + e^-x)`: x where it is large, 0 where it is very negative.
///
/// # Errors
/// Only if the core refuses an instruction.
pub async fn silu<C: Core, T: Float>(core: &C, x: &Tile<T>) -> Result<Tile<T>> {
    core.mul(x, &core.sigmoid(x).await?).await
}

/// `x` times the normal distribution function, by the usual formula with a hyperbolic tangent:
/// `x sigmoid(2u)`, `u = sqrt(2/pi) (x + 0.044715 x^3)`.
///
/// # Errors
/// Only if the core refuses an instruction.
pub async fn gelu<C: Core, T: Float>(core: &C, x: &Tile<T>) -> Result<Tile<T>> {
    const TWICE_SQRT_2_OVER_PI: f64 = 1.595_769_121_605_730_8;
    let square = core.mul(x, x).await?;
    let slope = core.scale(&square, TWICE_SQRT_2_OVER_PI * 0.044_715, TWICE_SQRT_2_OVER_PI);
    let twice_u = core.mul(x, &slope.await?).await?;
    core.mul(x, &core.sigmoid(&twice_u).await?).await
}

/// Each row's elements as parts of one: `e^(x - max)`, divided by their sum.
///
/// # Errors
/// Only if the core refuses an instruction.
pub async fn softmax<C: Core, T: Float>(core: &C, x: &Tile<T>) -> Result<Tile<T>> {
    let largest = core.row_max(x).await?;
    let powers = core.exp(&core.sub(x, &largest).await?).await?;
    let sums = core.row_sum(&powers).await?;
    core.div(&powers, &sums).await
}

/// The logarithm of [`softmax`]: `x - max - log(sum of e^(x - max))` in each row.
///
/// # Errors
/// Only if the core refuses an instruction.
pub async fn log_softmax<C: Core, T: Float>(core: &C, x: &Tile<T>) -> Result<Tile<T>> {
    let largest = core.row_max(x).await?;
    let shifted = core.sub(x, &largest).await?;
    let sums = core.row_sum(&core.exp(&shifted).await?).await?;
    core.sub(&shifted, &core.log(&sums).await?).await
}

/// Each row divided by the root of its mean square: `x / sqrt(mean(x^2) + epsilon) * weight`. `weight` is one row.
///
/// # Errors
/// [`ShapeMismatch`](crate::ErrorKind::ShapeMismatch) if the weight does not fit.
#[track_caller]
pub fn rms_norm<C: Core, T: Float>(
    core: &C,
    x: &Tile<T>,
    weight: &Tile<T>,
    epsilon: f64,
) -> impl Future<Output = Result<Tile<T>>> {
    // Checked here, so that the error names the caller's line.
    let checked = weight.check_shape("the weight", 1, x.columns());
    async move {
        checked?;
        let squares = core.row_sum(&core.mul(x, x).await?).await?;
        let mean = core.scale(&squares, 1.0 / x.columns() as f64, epsilon).await?;
        let scaled = core.mul(x, &core.rsqrt(&mean).await?).await?;
        core.mul(&scaled, weight).await
    }
}

/// Each row with a mean of 0 and a variance of 1: `(x - mean) / sqrt(variance + epsilon) * weight + bias`. `weight` and
/// `bias` are one row each.
///
/// # Errors
/// [`ShapeMismatch`](crate::ErrorKind::ShapeMismatch) if the weight or the bias does not fit.
#[track_caller]
pub fn layer_norm<C: Core, T: Float>(
    core: &C,
    x: &Tile<T>,
    weight: &Tile<T>,
    bias: &Tile<T>,
    epsilon: f64,
) -> impl Future<Output = Result<Tile<T>>> {
    let weight_fits = weight.check_shape("the weight", 1, x.columns());
    let bias_fits = bias.check_shape("the bias", 1, x.columns());
    async move {
        weight_fits.and(bias_fits)?;
        let sum = core.row_sum(x).await?;
        let mean = core.scale(&sum, 1.0 / x.columns() as f64, 0.0).await?;
        let centred = core.sub(x, &mean).await?;
        let normal = rms_norm(core, &centred, weight, epsilon).await?;
        core.add(&normal, bias).await
    }
}
