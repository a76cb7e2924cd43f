//! Floating-point elements: the types that matrix products and functions of tiles are defined on.

pub(crate) mod elementary;

use crate::Element;
use crate::elements::*;

/// An element type with fractions. Sealed, as [`Element`] is.
///
/// Sums, products, differences and quotients are computed in [`Element::Wide`], f32 or f64. Functions are computed in
/// f64 and rounded once to the type.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a float element such as f32 or bf16",
    label = "a float is needed here"
)]
pub trait Float: Element<Wide: Element> {
    /// The nearest accumulator to a number.
    fn wide(value: f64) -> Self::Wide;
    /// `a - b`.
    fn subtract(a: Self::Wide, b: Self::Wide) -> Self::Wide;
    /// `a / b`.
    fn divide(a: Self::Wide, b: Self::Wide) -> Self::Wide;
}

macro_rules! float {
    ($($t:ty: $wide:ty);*) => {$(
        #[diagnostic::do_not_recommend]
        impl Float for $t {
            #[inline(always)]
            fn wide(value: f64) -> $wide { <$wide>::from_f64(value) }
            #[inline(always)]
            fn subtract(a: $wide, b: $wide) -> $wide { a - b }
            #[inline(always)]
            fn divide(a: $wide, b: $wide) -> $wide { a / b }
        }
    )*};
}

float! {
    f32: f32;
    f16: f32;
    bf16: f32;
    f8e4m3: f32;
    f8e5m2: f32;
    f64: f64
}

/// Runs `$body` with `$T` bound to the element type of a float [`Dtype`](crate::Dtype) value; `None` for other dtypes.
///
/// ```
/// use ringwork_isa::{with_float, Dtype, Element};
/// let bytes = |dtype| with_float!(dtype, T => std::mem::size_of::<T>());
/// assert_eq!((bytes(Dtype::BF16), bytes(Dtype::I8)), (Some(2), None));
/// ```
#[macro_export]
macro_rules! with_float {
    ($dtype:expr, $T:ident => $body:expr) => {
        match $dtype {
            $crate::Dtype::F32 => {
                type $T = f32;
                ::std::option::Option::Some($body)
            }
            $crate::Dtype::F16 => {
                type $T = $crate::f16;
                ::std::option::Option::Some($body)
            }
            $crate::Dtype::BF16 => {
                type $T = $crate::bf16;
                ::std::option::Option::Some($body)
            }
            $crate::Dtype::F64 => {
                type $T = f64;
                ::std::option::Option::Some($body)
            }
            $crate::Dtype::F8E4M3 => {
                type $T = $crate::f8e4m3;
                ::std::option::Option::Some($body)
            }
            $crate::Dtype::F8E5M2 => {
                type $T = $crate::f8e5m2;
                ::std::option::Option::Some($body)
            }
            _ => ::std::option::Option::None,
        }
    };
}
