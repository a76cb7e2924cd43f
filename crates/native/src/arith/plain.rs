//! The loops without vectors: one relaxed atomic access per element, so that a race is not a data race.

use super::{Reducer, Target};
use ringwork_isa::elements::*;
use ringwork_isa::{Dtype, Element, ReduceOp, with_dtype};
use std::convert::identity;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicI8, AtomicI32, AtomicI64, AtomicU8, AtomicU16, AtomicU32, AtomicU64};

/// An element that can be read from and written to shared memory by an atomic of its size.
trait Cell: Element {
    /// Reads one element.
    ///
    /// # Safety
    /// `from` is valid for reads and aligned (ARITH-2).
    unsafe fn read(from: *const Self) -> Self;
    /// Writes this element.
    ///
    /// # Safety
    /// `to` is valid for writes and aligned (ARITH-2).
    unsafe fn write(self, to: *mut Self);
}

macro_rules! cell {
    ($($t:ty: $atomic:ty, $from:path, $to:path);*) => {$(
        impl Cell for $t {
            #[inline(always)]
            unsafe fn read(from: *const $t) -> $t {
                // SAFETY: valid and aligned by the caller; an atomic of the same size, only ever loaded.
                $from(unsafe { <$atomic>::from_ptr(from.cast_mut().cast()) }.load(Relaxed))
            }
            #[inline(always)]
            unsafe fn write(self, to: *mut $t) {
                // SAFETY: valid and aligned by the caller; an atomic of the same size.
                unsafe { <$atomic>::from_ptr(to.cast()) }.store($to(self), Relaxed);
            }
        }
    )*};
}

cell! {
    f32: AtomicU32, f32::from_bits, f32::to_bits;
    f64: AtomicU64, f64::from_bits, f64::to_bits;
    f16: AtomicU16, f16::from_bits, f16::to_bits;
    bf16: AtomicU16, bf16::from_bits, bf16::to_bits;
    f8e4m3: AtomicU8, f8e4m3::from_bits, f8e4m3::to_bits;
    f8e5m2: AtomicU8, f8e5m2::from_bits, f8e5m2::to_bits;
    i8: AtomicI8, identity, identity;
    u8: AtomicU8, identity, identity;
    i32: AtomicI32, identity, identity;
    i64: AtomicI64, identity, identity
}

/// The reducer of elements of `dtype`.
pub(super) fn reducer<D: Target>(dtype: Dtype) -> Reducer<D> {
    with_dtype!(dtype, T => reduce_elements::<T, D>)
}

/// As [`reduce`](super::reduce).
///
/// # Safety
/// As [`reduce`](super::reduce).
unsafe fn reduce_elements<E: Cell, D: Target>(op: ReduceOp, dst: D, sources: &[*const u8], count: usize) {
    let (&first, rest) = sources.split_first().expect("checked by the caller");
    for i in 0..count {
        // SAFETY: element `i` of `count` in every pointer (ARITH-2).
        unsafe {
            let mut acc = E::read(first.cast::<E>().add(i)).widen();
            for source in rest {
                acc = E::combine(op, acc, E::read(source.cast::<E>().add(i)).widen());
            }
            let result = E::narrow(E::finish(op, acc, sources.len()));
            for index in 0..dst.count() {
                result.write(dst.place(index).cast::<E>().add(i));
            }
        }
    }
}

/// As [`copy`](super::copy), in the largest units that both ends and the length are multiples of.
///
/// # Safety
/// As [`copy`](super::copy).
pub(super) unsafe fn copy(dst: *mut u8, src: *const u8, bytes: usize) {
    let multiple = dst.addr() | src.addr() | bytes;
    // SAFETY: the caller's ranges, in units that divide the length and align both ends.
    unsafe {
        match multiple.trailing_zeros() {
            3.. => copy_elements::<i64>(dst.cast(), src.cast(), bytes / 8),
            2 => copy_elements::<i32>(dst.cast(), src.cast(), bytes / 4),
            1 => copy_elements::<f16>(dst.cast(), src.cast(), bytes / 2),
            0 => copy_elements::<u8>(dst, src, bytes),
        }
    }
}

/// [`copy`] in units of `E`.
///
/// # Safety
/// As [`copy`], and both are aligned to `E`.
unsafe fn copy_elements<E: Cell>(dst: *mut E, src: *const E, count: usize) {
    for i in 0..count {
        // SAFETY: element `i` of `count` in both (ARITH-2).
        unsafe { E::read(src.add(i)).write(dst.add(i)) };
    }
}
