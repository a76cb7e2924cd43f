//! What layers are made of beyond products and sums, out of instructions: each a few tile operations.
//!
//! Every step rounds to the tile's type. Cast a tile of 16-bit floats to f32 before, and back after.

use crate::{Core, Float, Result, Tile};

/// `x / (1 + e^-x)`: x where it is large, 0 where it is very negative.
///
/// # Errors
/// Only if the core refuses an instruction.
pub async fn silu<C: Core, T: Float>(core: &C, x: &Tile<T>) -> Result<Tile<T>> {
    let away = core.exp(&core.scale(x, -1.0, 0.0).await?).await?;
    core.div(x, &core.scale(&away, 1.0, 1.0).await?).await
}

/// `x` times the normal distribution function, by the usual formula with a hyperbolic tangent:
/// `x / (1 + e^-2u)`, `u = sqrt(2/pi) (x + 0.044715 x^3)`.
///
/// # Errors
/// Only if the core refuses an instruction.
pub async fn gelu<C: Core, T: Float>(core: &C, x: &Tile<T>) -> Result<Tile<T>> {
    const TWICE_SQRT_2_OVER_PI: f64 = 1.595_769_121_605_730_8;
    let square = core.mul(x, x).await?;
    let slope = core
        .scale(&square, -TWICE_SQRT_2_OVER_PI * 0.044_715, -TWICE_SQRT_2_OVER_PI)
        .await?;
    let away = core.exp(&core.mul(x, &slope).await?).await?;
    core.div(x, &core.scale(&away, 1.0, 1.0).await?).await
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
