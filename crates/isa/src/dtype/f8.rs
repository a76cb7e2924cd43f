//! Floats of eight bits: E4M3 and E5M2 of the [OCP 8-bit floating point specification][ocp].
//!
//! | | [`f8e4m3`] | [`f8e5m2`] |
//! |---|---|---|
//! | sign, exponent, mantissa bits | 1, 4, 3 | 1, 5, 2 |
//! | largest | 448 | 57344 |
//! | smallest normal, subnormal | 2^-6, 2^-9 | 2^-14, 2^-16 |
//! | infinities | none | 2 |
//! | NaNs | 2: all bits but the sign are ones | 6: as IEEE |
//!
//! Every value is an f32 exactly, and sums and products are kept in f32.
//!
//! # Rounding
//! A conversion from f32 rounds to nearest, ties to even, and does **not** saturate: what rounds past the largest value
//! becomes NaN in E4M3, infinity in E5M2. The specification allows this and saturation; this one shows that numbers got too
//! large, and is what torch's conversion of a `float8_e4m3fn` or `float8_e5m2` does. A NaN becomes the one whose bits are all ones,
//! with its sign.
//!
//! ```
//! use ringwork_isa::{Dtype, f8e4m3, f8e5m2};
//! assert_eq!(f8e4m3::from_f32(464.0).to_f32(), 448.0, "half way, to even");
//! assert!(f8e4m3::from_f32(465.0).to_f32().is_nan());
//! assert_eq!(f8e5m2::from_f32(1e6).to_f32(), f32::INFINITY);
//! assert_eq!("f8e4m3".parse(), Ok(Dtype::F8E4M3));
//! ```
//!
//! [ocp]: https://www.opencompute.org/documents/ocp-8-bit-floating-point-specification-ofp8-revision-1-0-2023-12-01-pdf-1

use std::cmp::Ordering;
use std::fmt;

/// The bits of an f32 that are not its sign.
const MAGNITUDE: u32 = 0x7FFF_FFFF;
/// The bits of an f32's infinity.
const INFINITY: u32 = 0x7F80_0000;
/// The bias of an f32's exponent.
const F32_BIAS: u32 = 127;
/// The mantissa bits of an f32.
const F32_MANTISSA: u32 = 23;

macro_rules! f8 {
    ($name:ident, $doc:literal, mantissa: $mantissa:literal, bias: $bias:literal, past_largest: $past_largest:literal) => {
        #[doc = $doc]
        #[allow(non_camel_case_types, reason = "as f32")]
        #[derive(Clone, Copy, Default, bytemuck::Pod, bytemuck::Zeroable)]
        #[repr(transparent)]
        pub struct $name(u8);

        impl $name {
            /// How far its mantissa is from that of an f32.
            const SHIFT: u32 = F32_MANTISSA - $mantissa;
            /// The bits of the f32 that is the smallest normal.
            const NORMAL: u32 = (F32_BIAS - $bias + 1) << F32_MANTISSA;

            /// The element of these bits.
            #[must_use]
            #[inline(always)]
            pub const fn from_bits(bits: u8) -> Self {
                Self(bits)
            }

            /// Its bits.
            #[must_use]
            #[inline(always)]
            pub const fn to_bits(self) -> u8 {
                self.0
            }

            /// Its value; exact. A NaN keeps its sign.
            #[must_use]
            #[inline(always)]
            pub fn to_f32(self) -> f32 {
                let (sign, code) = (u32::from(self.0 & 0x80) << 24, u32::from(self.0 & 0x7F));
                if code >= $past_largest {
                    return f32::from_bits(sign | INFINITY | code << Self::SHIFT);
                }
                // The exponent without its bias is made up for by a power of two, which does for subnormals too.
                let scale = f32::from_bits((2 * F32_BIAS - $bias) << F32_MANTISSA);
                let value = f32::from_bits(code << Self::SHIFT) * scale;
                f32::from_bits(value.to_bits() | sign)
            }

            /// The nearest, ties to even; what is too large does not saturate.
            #[must_use]
            #[inline(always)]
            #[allow(clippy::cast_possible_truncation, reason = "the code has 7 bits")]
            pub fn from_f32(value: f32) -> Self {
                let magnitude = value.to_bits() & MAGNITUDE;
                let sign = (value.to_bits() >> 24 & 0x80) as u8;
                let code = if magnitude > INFINITY {
                    0x7F
                } else if magnitude < Self::NORMAL {
                    // Adding a number whose last bit is the smallest subnormal rounds to it.
                    let unit = f32::from_bits((F32_BIAS - $bias + 1 + Self::SHIFT) << F32_MANTISSA);
                    (f32::from_bits(magnitude) + unit).to_bits() - unit.to_bits()
                } else {
                    let last_kept = magnitude >> Self::SHIFT & 1;
                    let rounded = magnitude + (1 << (Self::SHIFT - 1)) - 1 + last_kept;
                    let code = (rounded >> Self::SHIFT) - ((F32_BIAS - $bias) << $mantissa);
                    code.min($past_largest)
                };
                Self(sign | code as u8)
            }
        }

        impl PartialEq for $name {
            fn eq(&self, other: &Self) -> bool {
                self.to_f32() == other.to_f32()
            }
        }

        impl PartialOrd for $name {
            fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
                self.to_f32().partial_cmp(&other.to_f32())
            }
        }

        impl From<$name> for f64 {
            fn from(value: $name) -> f64 {
                value.to_f32().into()
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.to_f32(), f)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.to_f32(), f)
            }
        }
    };
}

f8! { f8e4m3, "A float of 8 bits with more precision: 4 bits of exponent, 3 of mantissa, no infinities.",
mantissa: 3, bias: 7, past_largest: 0x7F }
f8! { f8e5m2, "A float of 8 bits with more range: 5 bits of exponent, 2 of mantissa; the upper half of an f16.",
mantissa: 2, bias: 15, past_largest: 0x7C }

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What the specification says of a code: sign, exponent, mantissa, by the textbook.
    fn value(code: u8, mantissa_bits: u32, bias: i32) -> f64 {
        let mantissa = f64::from(code & ((1 << mantissa_bits) - 1)) / f64::from(1 << mantissa_bits);
        let exponent = i32::from((code & 0x7F) >> mantissa_bits);
        let magnitude = match exponent {
            0 => mantissa * 2f64.powi(1 - bias),
            _ => (1.0 + mantissa) * 2f64.powi(exponent - bias),
        };
        if code & 0x80 == 0 { magnitude } else { -magnitude }
    }

    fn e4m3(code: u8) -> f64 {
        match code & 0x7F {
            0x7F => f64::NAN,
            _ => value(code, 3, 7),
        }
    }

    fn e5m2(code: u8) -> f64 {
        match code & 0x7F {
            0x7C => f64::INFINITY.copysign(value(code, 2, 15)),
            0x7D.. => f64::NAN,
            _ => value(code, 2, 15),
        }
    }

    /// The nearest of all codes up to `largest` and the one after it, as if exponents went on; ties to the even one.
    fn nearest(number: f32, mantissa_bits: u32, bias: i32, largest: u8) -> u8 {
        let sign = if number.is_sign_negative() { 0x80 } else { 0 };
        if number.is_nan() {
            return sign | 0x7F;
        }
        let distance = |code: &u8| (value(*code, mantissa_bits, bias) - f64::from(number.abs())).abs();
        let better = |a: u8, b: u8| match distance(&a).total_cmp(&distance(&b)) {
            Ordering::Less => a,
            Ordering::Greater => b,
            Ordering::Equal if a.is_multiple_of(2) => a,
            Ordering::Equal => b,
        };
        let past = largest + 1;
        // What is larger than every code is past the largest.
        if f64::from(number.abs()) >= value(past, mantissa_bits, bias) {
            return sign | past;
        }
        sign | (0..=past).reduce(better).unwrap()
    }

    fn check(number: f32) {
        let (a, b) = (f8e4m3::from_f32(number), f8e5m2::from_f32(number));
        assert_eq!(a.to_bits(), nearest(number, 3, 7, 0x7E), "e4m3 of {number:e}");
        assert_eq!(b.to_bits(), nearest(number, 2, 15, 0x7B), "e5m2 of {number:e}");
    }

    #[test]
    fn all_codes_have_the_values_of_the_specification_and_convert_back() {
        for code in 0..=u8::MAX {
            let (a, b) = (f8e4m3::from_bits(code), f8e5m2::from_bits(code));
            for (got, wanted, back) in [
                (a.to_f32(), e4m3(code), f8e4m3::from_f32(a.to_f32()).to_bits()),
                (b.to_f32(), e5m2(code), f8e5m2::from_f32(b.to_f32()).to_bits()),
            ] {
                assert_eq!(got.is_sign_negative(), code >= 0x80, "{code:#x}");
                if wanted.is_nan() {
                    assert!(got.is_nan(), "{code:#x}");
                    assert_eq!(back, code | 0x7F);
                } else {
                    assert_eq!(f64::from(got), wanted, "{code:#x}");
                    assert_eq!(back, code);
                }
            }
        }
        assert_eq!(f8e4m3::from_bits(0x7E).to_f32(), 448.0);
        assert_eq!(f8e5m2::from_bits(0x7B).to_f32(), 57344.0);
        assert_eq!(f8e4m3::from_bits(1).to_f32(), 2f32.powi(-9));
        assert_eq!(f8e5m2::from_bits(1).to_f32(), 2f32.powi(-16));
    }

    #[test]
    fn numbers_half_way_between_two_codes_and_beside_it_round_to_the_nearest() {
        for code in 0..=0x7E {
            for (one, next) in [
                (value(code, 3, 7), value(code + 1, 3, 7)),
                (value(code, 2, 15), value(code + 1, 2, 15)),
            ] {
                #[allow(clippy::cast_possible_truncation, reason = "exact: five bits")]
                let middle = ((one + next) / 2.0) as f32;
                for number in [middle.next_down(), middle, middle.next_up()] {
                    check(number);
                    check(-number);
                }
            }
        }
    }

    #[test]
    fn what_is_no_number_or_too_large_becomes_what_the_format_has_for_it() {
        for number in [
            f32::INFINITY,
            f32::MAX,
            480.0,
            1e5,
            f32::NAN,
            -f32::NAN,
            0.0,
            f32::MIN_POSITIVE,
            1e-45,
        ] {
            check(number);
            check(-number);
        }
        assert!(f8e4m3::from_f32(f32::INFINITY).to_f32().is_nan());
        assert_eq!(f8e5m2::from_f32(-f32::MAX).to_f32(), f32::NEG_INFINITY);
    }

    proptest! {
        #[test]
        fn any_f32_rounds_as_the_search_through_all_codes_does(bits in prop::collection::vec(any::<u32>(), 64)) {
            bits.into_iter().map(f32::from_bits).for_each(check);
        }

        #[test]
        fn numbers_in_range_round_as_the_search_does(numbers in prop::collection::vec(-600f32..600.0, 64), power in -20i32..8) {
            numbers.into_iter().for_each(|number| check(number * 2f32.powi(power)));
        }
    }
}
