//! Element types: what a tensor is made of, and how sums of it are accumulated.
//!
//! Every arithmetic rule that must be the same on all platforms is here, once: widening, combining,
//! rounding. Fast implementations elsewhere are tested equal to these, bit for bit.

mod f8;

use crate::ReduceOp;
use f8::{f8e4m3, f8e5m2};
use half::{bf16, f16};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The type of an element, as a value.
///
/// The two low bits of the discriminant are the base-2 logarithm of the size, so that [`bytes`](Dtype::bytes) is a shift;
/// the rest is the [`index`](Dtype::index).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[repr(u8)]
pub enum Dtype {
    /// 32-bit IEEE float.
    F32 = 2,
    /// 16-bit IEEE float.
    F16 = 1 << 2 | 1,
    /// 16-bit float with the exponent of an f32.
    BF16 = 2 << 2 | 1,
    /// 64-bit IEEE float.
    F64 = 3 << 2 | 3,
    /// Signed byte.
    I8 = 4 << 2,
    /// Unsigned byte.
    U8 = 5 << 2,
    /// 32-bit signed integer.
    I32 = 6 << 2 | 2,
    /// 64-bit signed integer.
    I64 = 7 << 2 | 3,
    /// 8-bit float with 4 bits of exponent and 3 of mantissa, as in the OCP specification.
    F8E4M3 = 8 << 2,
    /// 8-bit float with 5 bits of exponent and 2 of mantissa, as in the OCP specification.
    F8E5M2 = 9 << 2,
}

impl Dtype {
    /// Every dtype, in the order they are listed to users.
    pub const ALL: [Dtype; 10] = [
        Dtype::F32,
        Dtype::F16,
        Dtype::BF16,
        Dtype::F64,
        Dtype::I8,
        Dtype::U8,
        Dtype::I32,
        Dtype::I64,
        Dtype::F8E4M3,
        Dtype::F8E5M2,
    ];

    /// Bytes of one element.
    #[must_use]
    #[inline(always)]
    pub const fn bytes(self) -> usize {
        1 << (self as u8 & 3)
    }

    /// Its place in [`Dtype::ALL`].
    #[must_use]
    #[inline(always)]
    pub const fn index(self) -> usize {
        (self as u8 >> 2) as usize
    }

    /// Whether it has fractions.
    #[must_use]
    pub const fn is_float(self) -> bool {
        !matches!(self, Dtype::I8 | Dtype::U8 | Dtype::I32 | Dtype::I64)
    }

    /// The name a user types: `f32`, `bf16`, ...
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Dtype::F32 => "f32",
            Dtype::F16 => "f16",
            Dtype::BF16 => "bf16",
            Dtype::F64 => "f64",
            Dtype::I8 => "i8",
            Dtype::U8 => "u8",
            Dtype::I32 => "i32",
            Dtype::I64 => "i64",
            Dtype::F8E4M3 => "f8e4m3",
            Dtype::F8E5M2 => "f8e5m2",
        }
    }

    /// The name that NumPy and torch have for it; [`FromStr`] takes it too.
    #[must_use]
    pub const fn array_name(self) -> &'static str {
        match self {
            Dtype::F32 => "float32",
            Dtype::F16 => "float16",
            Dtype::BF16 => "bfloat16",
            Dtype::F64 => "float64",
            Dtype::I8 => "int8",
            Dtype::U8 => "uint8",
            Dtype::I32 => "int32",
            Dtype::I64 => "int64",
            Dtype::F8E4M3 => "float8_e4m3fn",
            Dtype::F8E5M2 => "float8_e5m2",
        }
    }

    /// The number of its kind in [DLPack](https://dmlc.github.io/dlpack/latest/), the format in which tensors are
    /// exchanged between libraries.
    #[must_use]
    pub const fn dlpack_code(self) -> u8 {
        match self {
            Dtype::I8 | Dtype::I32 | Dtype::I64 => 0,
            Dtype::U8 => 1,
            Dtype::F16 | Dtype::F32 | Dtype::F64 => 2,
            Dtype::BF16 => 4,
            Dtype::F8E4M3 => 10,
            Dtype::F8E5M2 => 12,
        }
    }

    /// The largest `n` such that it can hold every integer from 0 to `n`.
    #[must_use]
    pub const fn exact_integers(self) -> i64 {
        match self {
            Dtype::F32 => 1 << 24,
            Dtype::F16 => 1 << 11,
            Dtype::BF16 => 1 << 8,
            Dtype::F64 => 1 << 53,
            Dtype::I8 => i8::MAX as i64,
            Dtype::U8 => u8::MAX as i64,
            Dtype::I32 => i32::MAX as i64,
            Dtype::I64 => i64::MAX,
            Dtype::F8E4M3 => 1 << 4,
            Dtype::F8E5M2 => 1 << 3,
        }
    }

    /// The names of all, for messages: `f32, f16, ...`.
    #[must_use]
    pub fn names() -> String {
        Dtype::ALL.map(Dtype::name).join(", ")
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Dtype {
    type Err = String;
    fn from_str(name: &str) -> Result<Self, String> {
        let known = |dtype: &Dtype| dtype.name() == name || dtype.array_name() == name;
        Dtype::ALL
            .into_iter()
            .find(known)
            .ok_or_else(|| format!("`{name}` is not a dtype; use one of {}", Dtype::names()))
    }
}

/// The element types that Rust does not have itself.
pub mod elements {
    pub use super::f8::{f8e4m3, f8e5m2};
    pub use half::{bf16, f16};
}

/// A type that tensors are made of. Sealed: the set of dtypes is part of the instruction set.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an element type: a float such as f32 or bf16, or an integer such as i32",
    label = "tensors, regions and tiles are not made of this type"
)]
pub trait Element:
    bytemuck::Pod + Default + PartialEq + PartialOrd + fmt::Debug + fmt::Display + Send + Sync + sealed::Sealed
{
    /// This type as a value.
    const DTYPE: Dtype;
    /// What sums and products of this type are kept in: f32 for shorter floats, else the type itself.
    type Wide: Copy + fmt::Debug + Send + Sync;
    /// Into the accumulator; exact.
    fn widen(self) -> Self::Wide;
    /// Out of the accumulator; rounds to nearest, ties to even.
    fn narrow(wide: Self::Wide) -> Self;
    /// One step of a reduction: `op(acc, next)`, in this order.
    ///
    /// Integers wrap. `Max` and `Min` of floats return NaN if either side is NaN. What is only for integers gives NaN. `Avg` adds here, and divides
    /// in [`finish`](Element::finish).
    fn combine(op: ReduceOp, acc: Self::Wide, next: Self::Wide) -> Self::Wide;
    /// The last step of a reduction of `sources` sources, before it is rounded: what `Avg` divides by.
    fn finish(op: ReduceOp, acc: Self::Wide, sources: usize) -> Self::Wide;
    /// The nearest element to an integer; integer types wrap. For test patterns and goldens.
    fn from_i64(value: i64) -> Self;
    /// The value as f64 (exact for all but large i64).
    fn to_f64(self) -> f64;
    /// The nearest element to a number, ties to even; integer types truncate, and saturate. NaN is their 0.
    fn from_f64(value: f64) -> Self;
    /// The value as i64: as [`from_f64`](Element::from_f64) does for floats.
    fn to_i64(self) -> i64;
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! integer {
    ($($t:ty => $dtype:ident),*) => {$(
        impl sealed::Sealed for $t {}
        impl Element for $t {
            const DTYPE: Dtype = Dtype::$dtype;
            type Wide = $t;
            #[inline(always)]
            fn widen(self) -> $t { self }
            #[inline(always)]
            fn narrow(wide: $t) -> $t { wide }
            #[inline(always)]
            fn combine(op: ReduceOp, acc: $t, next: $t) -> $t {
                match op {
                    ReduceOp::Sum | ReduceOp::Avg => acc.wrapping_add(next),
                    ReduceOp::Prod => acc.wrapping_mul(next),
                    ReduceOp::Max => if acc > next { acc } else { next },
                    ReduceOp::Min => if acc < next { acc } else { next },
                    ReduceOp::BitAnd => acc & next,
                    ReduceOp::BitOr => acc | next,
                    ReduceOp::BitXor => acc ^ next,
                }
            }
            #[inline(always)]
            #[allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap, reason = "at most 64 sources")]
            fn finish(op: ReduceOp, acc: $t, sources: usize) -> $t {
                if op == ReduceOp::Avg { acc / (sources as $t).max(1) } else { acc }
            }
            #[allow(clippy::cast_possible_truncation, reason = "wrapping is the contract")]
            fn from_i64(value: i64) -> $t { value as $t }
            fn to_f64(self) -> f64 { self as f64 }
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "truncation is the contract")]
            fn from_f64(value: f64) -> $t { value as $t }
            fn to_i64(self) -> i64 { self.into() }
        }
    )*};
}

macro_rules! float {
    ($($t:ty => $dtype:ident, $wide:ty, $widen:expr, $narrow:expr, $from:expr, $to:expr, $near:expr);*) => {$(
        impl sealed::Sealed for $t {}
        impl Element for $t {
            const DTYPE: Dtype = Dtype::$dtype;
            type Wide = $wide;
            #[inline(always)]
            fn widen(self) -> $wide { $widen(self) }
            #[inline(always)]
            fn narrow(wide: $wide) -> $t { $narrow(wide) }
            #[inline(always)]
            fn combine(op: ReduceOp, acc: $wide, next: $wide) -> $wide {
                match op {
                    ReduceOp::Sum | ReduceOp::Avg => acc + next,
                    ReduceOp::Prod => acc * next,
                    ReduceOp::Max => if acc > next || acc.is_nan() { acc } else { next },
                    ReduceOp::Min => if acc < next || acc.is_nan() { acc } else { next },
                    // Not defined; what offers it to users refuses it first.
                    ReduceOp::BitAnd | ReduceOp::BitOr | ReduceOp::BitXor => <$wide>::NAN,
                }
            }
            #[inline(always)]
            fn finish(op: ReduceOp, acc: $wide, sources: usize) -> $wide {
                if op == ReduceOp::Avg { acc / sources as $wide } else { acc }
            }
            fn from_i64(value: i64) -> $t { $from(value) }
            #[inline(always)]
            fn to_f64(self) -> f64 { $to(self) }
            #[inline(always)]
            fn from_f64(value: f64) -> $t { $near(value) }
            #[allow(clippy::cast_possible_truncation, reason = "truncation is the contract")]
            fn to_i64(self) -> i64 { self.to_f64() as i64 }
        }
    )*};
}

#[inline(always)]
#[allow(clippy::cast_possible_truncation, reason = "rounding is meant")]
fn nearest_f32(value: f64) -> f32 {
    value as f32
}

// `half` has conversions from f64, but they round twice, and in another way on processors without F16C.
#[inline(always)]
fn nearest_f16(value: f64) -> f16 {
    f16::from_f32(rounded_to_odd(value))
}

#[inline(always)]
fn nearest_bf16(value: f64) -> bf16 {
    bf16::from_f32(rounded_to_odd(value))
}

#[inline(always)]
fn nearest_f8e4m3(value: f64) -> f8e4m3 {
    f8e4m3::from_f32(rounded_to_odd(value))
}

#[inline(always)]
fn nearest_f8e5m2(value: f64) -> f8e5m2 {
    f8e5m2::from_f32(rounded_to_odd(value))
}

/// An f32 that rounds to a shorter float as `value` does: `value` itself, or that neighbour of it whose last bit is one. An
/// inexact f32 is then never in the middle between two of them.
#[inline(always)]
fn rounded_to_odd(value: f64) -> f32 {
    let near = nearest_f32(value);
    let bits = near.to_bits();
    if !near.is_finite() || f64::from(near) == value || bits & 1 == 1 {
        near
    } else if value.abs() > f64::from(near.abs()) {
        f32::from_bits(bits + 1)
    } else {
        f32::from_bits(bits - 1)
    }
}

float! {
    f32 => F32, f32, |x| x, |x| x, |v: i64| v as f32, f64::from, nearest_f32;
    f64 => F64, f64, |x| x, |x| x, |v: i64| v as f64, |x| x, |x| x;
    f16 => F16, f32, f16::to_f32, f16::from_f32, |v: i64| nearest_f16(v as f64), f64::from, nearest_f16;
    bf16 => BF16, f32, bf16::to_f32, bf16::from_f32, |v: i64| nearest_bf16(v as f64), f64::from, nearest_bf16;
    f8e4m3 => F8E4M3, f32, f8e4m3::to_f32, f8e4m3::from_f32, |v: i64| nearest_f8e4m3(v as f64), f64::from, nearest_f8e4m3;
    f8e5m2 => F8E5M2, f32, f8e5m2::to_f32, f8e5m2::from_f32, |v: i64| nearest_f8e5m2(v as f64), f64::from, nearest_f8e5m2
}

integer! { i8 => I8, u8 => U8, i32 => I32, i64 => I64 }

/// Runs `$body` with `$T` bound to the element type of a [`Dtype`] value.
///
/// ```
/// use ringwork_isa::{with_dtype, Dtype, Element};
/// let bytes = with_dtype!(Dtype::BF16, T => std::mem::size_of::<T>());
/// assert_eq!(bytes, Dtype::BF16.bytes());
/// ```
#[macro_export]
macro_rules! with_dtype {
    ($dtype:expr, $T:ident => $body:expr) => {
        match $dtype {
            $crate::Dtype::F32 => {
                type $T = f32;
                $body
            }
            $crate::Dtype::F16 => {
                type $T = $crate::f16;
                $body
            }
            $crate::Dtype::BF16 => {
                type $T = $crate::bf16;
                $body
            }
            $crate::Dtype::F64 => {
                type $T = f64;
                $body
            }
            $crate::Dtype::I8 => {
                type $T = i8;
                $body
            }
            $crate::Dtype::U8 => {
                type $T = u8;
                $body
            }
            $crate::Dtype::I32 => {
                type $T = i32;
                $body
            }
            $crate::Dtype::I64 => {
                type $T = i64;
                $body
            }
            $crate::Dtype::F8E4M3 => {
                type $T = $crate::f8e4m3;
                $body
            }
            $crate::Dtype::F8E5M2 => {
                type $T = $crate::f8e5m2;
                $body
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parse_back_and_sizes_agree_with_rust() {
        for (index, dtype) in Dtype::ALL.into_iter().enumerate() {
            assert_eq!(dtype.index(), index);
            assert_eq!(dtype.name().parse(), Ok(dtype));
            assert_eq!(dtype.array_name().parse(), Ok(dtype));
            with_dtype!(dtype, T => {
                assert_eq!(T::DTYPE, dtype);
                assert_eq!(std::mem::size_of::<T>(), dtype.bytes());
                let exact = |value: i64| T::from_i64(value).to_i64() == value;
                let most = dtype.exact_integers();
                assert!(exact(most) && exact(most - 1), "{dtype}");
                assert!(most == i64::MAX || !exact(most + 1), "{dtype}");
            });
        }
        assert!("f31".parse::<Dtype>().unwrap_err().contains("f31"));
    }

    #[test]
    fn nan_survives_max_and_min_from_either_side() {
        for op in [ReduceOp::Max, ReduceOp::Min] {
            assert!(f32::combine(op, f32::NAN, 1.0).is_nan());
            assert!(f32::combine(op, 1.0, f32::NAN).is_nan());
        }
    }

    #[test]
    fn averages_divide_before_they_round_and_integers_truncate() {
        let avg = |wide: f32| f16::narrow(f16::finish(ReduceOp::Avg, wide, 2));
        assert_eq!(
            avg(2049.0),
            f16::from_f32(1024.5),
            "the sum alone would have lost the half"
        );
        assert_eq!(i32::finish(ReduceOp::Avg, -7, 2), -3);
        assert_eq!(u8::finish(ReduceOp::Avg, 7, 64), 0);
        assert_eq!(i64::finish(ReduceOp::Sum, 7, 2), 7);
    }

    #[test]
    fn sixteen_bit_sums_are_kept_in_f32() {
        let wide = f16::combine(ReduceOp::Sum, f16::from_f32(2048.0).widen(), f16::ONE.widen());
        assert_eq!(wide, 2049.0);
    }
}
