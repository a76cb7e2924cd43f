//! Floating-point elements: what matrix products and functions of tiles are defined on.
//!
//! Functions are written out in ordinary arithmetic, never taken from the system's mathematics library: so
//! that every platform, build and processor gives the same bits.

use crate::Element;
use half::{bf16, f16};

/// An element type with fractions. Sealed, as [`Element`] is.
///
/// What is computed with it is computed in [`Element::Wide`], f32 or f64.
pub trait Float: Element<Wide: Element> {
    /// The nearest accumulator to a number.
    fn wide(value: f64) -> Self::Wide;
    /// `a - b`.
    fn subtract(a: Self::Wide, b: Self::Wide) -> Self::Wide;
    /// `a / b`.
    fn divide(a: Self::Wide, b: Self::Wide) -> Self::Wide;
    /// `e` to the power `a`: correct to the last bit but rarely for f32 and shorter, within two units in the
    /// last place for f64.
    fn exponential(a: Self::Wide) -> Self::Wide;
}

macro_rules! float {
    ($($t:ty: $wide:ty, $narrowed:expr);*) => {$(
        impl Float for $t {
            #[inline(always)]
            fn wide(value: f64) -> $wide { $narrowed(value) }
            #[inline(always)]
            fn subtract(a: $wide, b: $wide) -> $wide { a - b }
            #[inline(always)]
            fn divide(a: $wide, b: $wide) -> $wide { a / b }
            #[inline(always)]
            fn exponential(a: $wide) -> $wide { $narrowed(exponential(f64::from(a))) }
        }
    )*};
}

#[allow(clippy::cast_possible_truncation, reason = "rounding is meant")]
fn to_f32(value: f64) -> f32 {
    value as f32
}

float! {
    f32: f32, to_f32;
    f16: f32, to_f32;
    bf16: f32, to_f32;
    f64: f64, std::convert::identity
}

/// `e` to the power `x`.
///
/// `x = n ln 2 + r` with `r` at most half of `ln 2`, a Taylor series for `r`, and `n` into the exponent.
#[inline(always)]
fn exponential(x: f64) -> f64 {
    /// `ln 2` in two parts, the first with enough zeros at its end that `n` times it is exact.
    const LN_2: (f64, f64) = (6.931_471_803_691_238e-1, 1.908_214_929_270_587_7e-10);
    /// Added and taken away again, it rounds to an integer.
    const ROUND: f64 = 6_755_399_441_055_744.0;
    /// 1/13!, 1/12!, ... 1/2!: what is left out is below a tenth of the last bit.
    const TAYLOR: [f64; 12] = [
        1.0 / 6_227_020_800.0,
        1.0 / 479_001_600.0,
        1.0 / 39_916_800.0,
        1.0 / 3_628_800.0,
        1.0 / 362_880.0,
        1.0 / 40_320.0,
        1.0 / 5_040.0,
        1.0 / 720.0,
        1.0 / 120.0,
        1.0 / 24.0,
        1.0 / 6.0,
        0.5,
    ];
    // Beyond these the result is 0 or infinite. A NaN passes both comparisons as itself.
    let x = if x > 720.0 { 720.0 } else { x };
    let x = if x < -760.0 { -760.0 } else { x };
    let n = (x * std::f64::consts::LOG2_E + ROUND) - ROUND;
    let r = (x - n * LN_2.0) - n * LN_2.1;
    let mut sum = TAYLOR[0];
    for coefficient in &TAYLOR[1..] {
        sum = sum * r + coefficient;
    }
    let sum = 1.0 + (r + r * r * sum);
    // In two steps, since 2^n itself may not be a normal number.
    #[allow(
        clippy::cast_possible_truncation,
        reason = "an integer within 1100 of zero, or NaN"
    )]
    let n = n as i64;
    let half = n >> 1;
    sum * power_of_two(half) * power_of_two(n - half)
}

/// 2 to the power `n`, for `n` within 1022 of zero.
#[inline(always)]
fn power_of_two(n: i64) -> f64 {
    f64::from_bits(((1023 + n) << 52).cast_unsigned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ends_and_special_values() {
        assert_eq!(exponential(0.0), 1.0);
        assert_eq!(exponential(-0.0), 1.0);
        assert_eq!(exponential(f64::INFINITY), f64::INFINITY);
        assert_eq!(exponential(f64::NEG_INFINITY), 0.0);
        assert_eq!(exponential(1e300), f64::INFINITY);
        assert_eq!(exponential(-1e300), 0.0);
        assert!(exponential(f64::NAN).is_nan());
        assert_eq!(f32::exponential(88.8), f32::INFINITY);
        assert_eq!(f32::exponential(-104.0), 0.0);
    }

    proptest! {
        #[test]
        fn near_the_systems(x in -745.0f64..709.7) {
            let (got, wanted) = (exponential(x), x.exp());
            // Two units, and one of the smallest subnormals.
            prop_assert!((got - wanted).abs() <= wanted * 4.5e-16 + 1e-323, "{x}: {got} {wanted}");
        }

        #[test]
        fn f32_is_rounded_once(x in -87.0f32..88.7) {
            let wanted = f64::from(x).exp();
            let got = f64::from(f32::exponential(x));
            // Half a unit in the last place of an f32, and a little for the f64 before it.
            prop_assert!((got - wanted).abs() <= wanted * 0.500_001 * 2f64.powi(-23), "{x}: {got} {wanted}");
        }
    }
}
