//! Elementary functions of f64, with the same bits on every platform, build and processor.
//!
//! They are written in additions, multiplications, divisions and square roots, which IEEE 754 rounds in one way only.
//! The system's mathematics library is not used: its last bits differ from one version to the next.
//!
//! [`exp`], [`log`], [`tanh`], [`sigmoid`] and [`rsqrt`] are within four units in the last place of an f64. A shorter
//! float rounds that once, so its last bit is wrong only if the exact value is within 2^-50 of the middle between two
//! neighbours. [`reciprocal`] and the square root of the standard library are correctly rounded for every type.

/// `ln 2` in two parts. The first has enough zeros at its end that an integer up to 2^11 times it is exact.
const LN_2: (f64, f64) = (6.931_471_803_691_238e-1, 1.908_214_929_270_587_7e-10);

/// `e` to the power `x`.
#[inline(always)]
pub(crate) fn exp(x: f64) -> f64 {
    // Beyond these the result is 0 or infinite. A NaN passes both comparisons as itself.
    let x = if x > 720.0 { 720.0 } else { x };
    let x = if x < -760.0 { -760.0 } else { x };
    let (part, n) = exp_parts(x);
    // In two steps, since 2^n itself may not be a normal number.
    let half = n >> 1;
    (1.0 + part) * power_of_two(half) * power_of_two(n - half)
}

/// `(p, n)` with `(1 + p) 2^n = e^x`.
///
/// `x = n ln 2 + r` with `r` at most half of `ln 2`, and a Taylor series for `p = e^r - 1`.
#[inline(always)]
fn exp_parts(x: f64) -> (f64, i64) {
    /// Added and taken away again, it rounds to an integer.
    const ROUND: f64 = 6_755_399_441_055_744.0;
    /// 1/13!, 1/12!, ... 1/2!: the rest of the series is below a tenth of the last bit.
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
    let n = (x * std::f64::consts::LOG2_E + ROUND) - ROUND;
    let r = (x - n * LN_2.0) - n * LN_2.1;
    let mut sum = TAYLOR[0];
    for coefficient in &TAYLOR[1..] {
        sum = sum * r + coefficient;
    }
    #[allow(
        clippy::cast_possible_truncation,
        reason = "an integer within 1100 of zero, or NaN"
    )]
    let n = n as i64;
    (r + r * r * sum, n)
}

/// 2 to the power `n`, for `n` within 1022 of zero.
#[inline(always)]
fn power_of_two(n: i64) -> f64 {
    f64::from_bits(((1023 + n) << 52).cast_unsigned())
}

/// The natural logarithm: NaN of a negative number, minus infinity of zero.
///
/// `x = m 2^k` with `m` within a factor of `sqrt 2` of one; with `f = m - 1` and `s = f / (2 + f)` it is
/// `k ln 2 + f - s (f - r)`, where `r = 2/3 s^2 + 2/5 s^4 + ...`.
#[inline(always)]
pub(crate) fn log(x: f64) -> f64 {
    /// 2/21, 2/19, ... 2/3: the rest of the series is below a hundredth of the last bit.
    const SERIES: [f64; 10] = [
        2.0 / 21.0,
        2.0 / 19.0,
        2.0 / 17.0,
        2.0 / 15.0,
        2.0 / 13.0,
        2.0 / 11.0,
        2.0 / 9.0,
        2.0 / 7.0,
        2.0 / 5.0,
        2.0 / 3.0,
    ];
    if x == 0.0 {
        return f64::NEG_INFINITY;
    }
    if x.is_nan() || x < 0.0 {
        return f64::NAN;
    }
    if x == f64::INFINITY {
        return x;
    }
    // Subnormal numbers have no exponent to read, so they are made larger first.
    let (x, more) = if x < f64::MIN_POSITIVE {
        (x * power_of_two(54), -54)
    } else {
        (x, 0)
    };
    let bits = x.to_bits().cast_signed();
    let k = (bits - std::f64::consts::FRAC_1_SQRT_2.to_bits().cast_signed()) >> 52;
    let f = f64::from_bits((bits - (k << 52)).cast_unsigned()) - 1.0;
    let s = f / (2.0 + f);
    let square = s * s;
    let mut sum = 0.0;
    for coefficient in &SERIES {
        sum = (sum + coefficient) * square;
    }
    let half = 0.5 * f * f;
    let k = (k + more) as f64;
    // The largest term is added last, so the others lose no bits.
    k * LN_2.0 + (f - (half - (s * (half + sum) + k * LN_2.1)))
}

/// The hyperbolic tangent, as `t / (t + 2)` with `t = e^2|x| - 1`.
#[inline(always)]
pub(crate) fn tanh(x: f64) -> f64 {
    let size = x.abs();
    // The nearest f64 to the tangent of 20 is 1.
    let size = if size > 20.0 { 20.0 } else { size };
    let (part, n) = exp_parts(2.0 * size);
    let power = power_of_two(n);
    let t = part * power + (power - 1.0);
    (t / (t + 2.0)).copysign(x)
}

/// `1 / (1 + e^-x)`. The exponent is never positive, so nothing overflows.
#[inline(always)]
pub(crate) fn sigmoid(x: f64) -> f64 {
    let power = exp(-x.abs());
    let above = if x < 0.0 { power } else { 1.0 };
    above / (1.0 + power)
}

/// `1 / sqrt(x)`: infinite of zero, with its sign; NaN of a negative number.
#[inline(always)]
pub(crate) fn rsqrt(x: f64) -> f64 {
    1.0 / x.sqrt()
}

/// `1 / x`.
#[inline(always)]
pub(crate) fn reciprocal(x: f64) -> f64 {
    1.0 / x
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Element, bf16, f16};
    use proptest::prelude::*;

    #[test]
    fn ends_and_special_values() {
        const INF: f64 = f64::INFINITY;
        assert_eq!((exp(0.0), exp(-0.0)), (1.0, 1.0));
        assert_eq!(
            (exp(INF), exp(-INF), exp(1e300), exp(-1e300)),
            (INF, 0.0, INF, 0.0)
        );
        assert_eq!(f32::from_f64(exp(88.8)), f32::INFINITY);
        assert_eq!(f32::from_f64(exp(-104.0)), 0.0);
        assert_eq!((log(0.0), log(-0.0), log(1.0), log(INF)), (-INF, -INF, 0.0, INF));
        assert!(log(-1.0).is_nan() && log(-INF).is_nan());
        assert_eq!((tanh(INF), tanh(-INF), tanh(30.0)), (1.0, -1.0, 1.0));
        assert_eq!(tanh(-0.0).to_bits(), (-0.0f64).to_bits());
        assert_eq!((sigmoid(INF), sigmoid(-INF), sigmoid(0.0)), (1.0, 0.0, 0.5));
        assert_eq!((rsqrt(0.0), rsqrt(-0.0), rsqrt(INF)), (INF, -INF, 0.0));
        assert!(rsqrt(-1.0).is_nan());
        for function in [exp, log, tanh, sigmoid, rsqrt, reciprocal] {
            assert!(function(f64::NAN).is_nan());
        }
    }

    /// Within four units of an f64, or one of the smallest subnormals.
    fn near(got: f64, wanted: f64) -> bool {
        (got - wanted).abs() <= wanted.abs() * 4.0 * f64::EPSILON + 1e-323
    }

    proptest! {
        #[test]
        fn exp_is_near_the_systems(x in -745.0f64..709.7) {
            prop_assert!(near(exp(x), x.exp()), "{x}: {} {}", exp(x), x.exp());
        }

        #[test]
        fn log_is_near_the_systems(x in prop_oneof![0.0f64..3.0, 0.0..1e300, 0.0..1e-308, 0.999..1.001]) {
            prop_assert!(near(log(x), x.ln()), "{x}: {} {}", log(x), x.ln());
        }

        #[test]
        fn tanh_and_sigmoid_are_near_the_systems(x in prop_oneof![-30.0f64..30.0, -1.0..1.0, -1e-9..1e-9, -740.0..-1.0]) {
            prop_assert!(near(tanh(x), x.tanh()), "{x}: {} {}", tanh(x), x.tanh());
            let wanted = if x < 0.0 { x.exp() / (1.0 + x.exp()) } else { 1.0 / (1.0 + (-x).exp()) };
            prop_assert!(near(sigmoid(x), wanted), "{x}: {} {wanted}", sigmoid(x));
        }

        #[test]
        fn f32_is_rounded_once(x in -87.0f32..88.7) {
            let wanted = f64::from(x).exp();
            let got = f64::from(f32::from_f64(exp(f64::from(x))));
            // Half a unit in the last place of an f32, and a little for the f64 before it.
            prop_assert!((got - wanted).abs() <= wanted * 0.500_001 * 2f64.powi(-23), "{x}: {got} {wanted}");
        }

        /// The neighbours of the result are not nearer, and an f64 in the middle goes to the even one.
        #[test]
        fn sixteen_bits_are_rounded_once(x in prop_oneof![-70000.0f64..70000.0, -1e-4..1e-4, -1e-7..1e-7], tie in any::<bool>()) {
            let f16s = |bits: i32| f64::from(f16::from_bits(u16::try_from(bits).unwrap()));
            let bf16s = |bits: i32| f64::from(bf16::from_bits(u16::try_from(bits).unwrap()));
            for (of, largest, bits) in [
                (&f16s as &dyn Fn(i32) -> f64, 0x7bff, f16::from_f64(x.abs()).to_bits()),
                (&bf16s, 0x7f7f, bf16::from_f64(x.abs()).to_bits()),
            ] {
                let below = i32::from(bits).min(largest - 1);
                // Just beside the middle, nearer to it than an f32 can tell.
                let middle = (of(below) + of(below + 1)) / 2.0;
                let value = if tie { middle } else { middle * (1.0 + 2f64.powi(-40)) };
                let wanted = if tie { below + (below & 1) } else { below + 1 };
                let got = if largest == 0x7bff {
                    <f16 as Element>::from_f64(value).to_bits()
                } else {
                    <bf16 as Element>::from_f64(value).to_bits()
                };
                prop_assert_eq!(i32::from(got), wanted, "{}", value);
            }
        }
    }
}
