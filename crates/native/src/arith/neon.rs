//! 16-byte vectors of little-endian aarch64.

use super::vector::{self, Lanes, Register, in_order, lanes, lanes_in_parts};
use super::{Reducer, Target};
use ringwork_isa::{Dtype, ReduceOp, bf16, f8e4m3, f8e5m2, f16, with_dtype};
use std::arch::aarch64::*;
use std::convert::identity;

/// The reducer of elements of `dtype`, if the processor has NEON (ARITH-1).
pub(super) fn reducer<D: Target>(dtype: Dtype) -> Reducer<D> {
    with_dtype!(dtype, T => reduce_elements::<T, D>)
}

/// As [`reduce`](super::reduce).
///
/// # Safety
/// As [`reduce`](super::reduce), with the level's instructions (ARITH-1).
#[target_feature(enable = "neon")]
unsafe fn reduce_elements<E: Lanes<uint8x16_t>, D: Target>(
    op: ReduceOp,
    dst: D,
    sources: &[*const u8],
    count: usize,
) {
    // SAFETY: the caller's promises, unchanged.
    unsafe { vector::reduce::<uint8x16_t, E>(op, dst, sources, count) }
}

/// As [`copy`](super::copy).
///
/// # Safety
/// As [`copy`](super::copy); the processor has NEON (ARITH-1).
#[target_feature(enable = "neon")]
pub(super) unsafe fn copy(dst: *mut u8, src: *const u8, bytes: usize) {
    // SAFETY: the caller's promises, unchanged.
    unsafe { vector::copy::<uint8x16_t>(dst, src, bytes) }
}

/// As [`copy_streaming`](super::copy_streaming); `stnp` has no intrinsic, so with ordinary stores.
///
/// # Safety
/// As [`copy`](super::copy); the processor has NEON (ARITH-1).
#[target_feature(enable = "neon")]
pub(super) unsafe fn copy_streaming(dst: *mut u8, src: *const u8, bytes: usize) {
    // SAFETY: the caller's promises, unchanged.
    unsafe { vector::copy_streaming::<uint8x16_t>(dst, src, bytes) }
}

impl Register for uint8x16_t {
    const BYTES: usize = 16;

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: 16 bytes at `from` (ARITH-2), any alignment.
        unsafe { vld1q_u8(from) }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: 16 bytes at `to` (ARITH-2), any alignment.
        unsafe { vst1q_u8(to, self) }
    }
}

lanes! { uint8x16_t:
    f32 as float32x4_t: vreinterpretq_f32_u8, vreinterpretq_u8_f32; add_f32, mul_f32, max_f32, min_f32;
    f64 as float64x2_t: vreinterpretq_f64_u8, vreinterpretq_u8_f64; add_f64, mul_f64, max_f64, min_f64;
    i8 as int8x16_t: vreinterpretq_s8_u8, vreinterpretq_u8_s8; vaddq_s8, vmulq_s8, vmaxq_s8, vminq_s8;
    u8 as uint8x16_t: identity, identity; vaddq_u8, vmulq_u8, vmaxq_u8, vminq_u8;
    i32 as int32x4_t: vreinterpretq_s32_u8, vreinterpretq_u8_s32; vaddq_s32, vmulq_s32, vmaxq_s32, vminq_s32;
    i64 as int64x2_t: vreinterpretq_s64_u8, vreinterpretq_u8_s64; vaddq_s64, mul_i64, max_i64, min_i64;
}

lanes_in_parts! { uint8x16_t, float32x4_t:
    f16 as 2: widen_f16, narrow_f16;
    bf16 as 2: widen_bf16, narrow_bf16;
    f8e4m3 as 4: widen_f8::<20, 7, 0x7F>, narrow_f8::<20, 7, 0x7F>;
    f8e5m2 as 4: widen_f8::<21, 15, 0x7C>, narrow_f8::<21, 15, 0x7C>;
}

in_order! { "neon", vreg:
    add_f32 = "fadd {result:v}.4s, {acc:v}.4s, {next:v}.4s" of float32x4_t, vaddq_f32;
    mul_f32 = "fmul {result:v}.4s, {acc:v}.4s, {next:v}.4s" of float32x4_t, vmulq_f32;
    add_f64 = "fadd {result:v}.2d, {acc:v}.2d, {next:v}.2d" of float64x2_t, vaddq_f64;
    mul_f64 = "fmul {result:v}.2d, {acc:v}.2d, {next:v}.2d" of float64x2_t, vmulq_f64;
}

/// Not `fmax`, which would order the zeros and quiet NaNs: `acc` if it is greater or not a number.
#[target_feature(enable = "neon")]
#[inline]
fn max_f32(acc: float32x4_t, next: float32x4_t) -> float32x4_t {
    let greater = vbslq_f32(vcgtq_f32(acc, next), acc, next);
    vbslq_f32(vceqq_f32(acc, acc), greater, acc)
}

#[target_feature(enable = "neon")]
#[inline]
fn min_f32(acc: float32x4_t, next: float32x4_t) -> float32x4_t {
    let less = vbslq_f32(vcltq_f32(acc, next), acc, next);
    vbslq_f32(vceqq_f32(acc, acc), less, acc)
}

#[target_feature(enable = "neon")]
#[inline]
fn max_f64(acc: float64x2_t, next: float64x2_t) -> float64x2_t {
    let greater = vbslq_f64(vcgtq_f64(acc, next), acc, next);
    vbslq_f64(vceqq_f64(acc, acc), greater, acc)
}

#[target_feature(enable = "neon")]
#[inline]
fn min_f64(acc: float64x2_t, next: float64x2_t) -> float64x2_t {
    let less = vbslq_f64(vcltq_f64(acc, next), acc, next);
    vbslq_f64(vceqq_f64(acc, acc), less, acc)
}

/// NEON has no 64-bit product: two scalar ones.
#[target_feature(enable = "neon")]
#[inline]
fn mul_i64(acc: int64x2_t, next: int64x2_t) -> int64x2_t {
    let low = vgetq_lane_s64::<0>(acc).wrapping_mul(vgetq_lane_s64::<0>(next));
    let high = vgetq_lane_s64::<1>(acc).wrapping_mul(vgetq_lane_s64::<1>(next));
    vsetq_lane_s64::<1>(high, vdupq_n_s64(low))
}

#[target_feature(enable = "neon")]
#[inline]
fn max_i64(acc: int64x2_t, next: int64x2_t) -> int64x2_t {
    vbslq_s64(vcgtq_s64(acc, next), acc, next)
}

#[target_feature(enable = "neon")]
#[inline]
fn min_i64(acc: int64x2_t, next: int64x2_t) -> int64x2_t {
    vbslq_s64(vcltq_s64(acc, next), acc, next)
}

#[target_feature(enable = "neon")]
#[inline]
fn widen_f16(lanes: uint8x16_t) -> [float32x4_t; 2] {
    let lanes = vreinterpretq_f16_u8(lanes);
    [vcvt_f32_f16(vget_low_f16(lanes)), vcvt_high_f32_f16(lanes)]
}

#[target_feature(enable = "neon")]
#[inline]
fn narrow_f16(acc: [float32x4_t; 2]) -> uint8x16_t {
    vreinterpretq_u8_f16(vcvt_high_f16_f32(vcvt_f16_f32(acc[0]), acc[1]))
}

/// Even elements in one register, odd ones in the other: a shift and a mask instead of shuffles.
///
/// A signalling NaN is not quieted here as `bf16::to_f32` does: arithmetic and `narrow_bf16` both do.
#[target_feature(enable = "neon")]
#[inline]
fn widen_bf16(lanes: uint8x16_t) -> [float32x4_t; 2] {
    let lanes = vreinterpretq_u32_u8(lanes);
    let odd = vandq_u32(lanes, vdupq_n_u32(0xFFFF_0000));
    [
        vreinterpretq_f32_u32(vshlq_n_u32::<16>(lanes)),
        vreinterpretq_f32_u32(odd),
    ]
}

#[target_feature(enable = "neon")]
#[inline]
fn narrow_bf16(acc: [float32x4_t; 2]) -> uint8x16_t {
    let even = vshrq_n_u32::<16>(round_bf16(acc[0]));
    vreinterpretq_u8_u32(vbslq_u32(vdupq_n_u32(0xFFFF_0000), round_bf16(acc[1]), even))
}

/// Rounds to nearest even in the upper 16 bits of each lane; the lower ones are left over.
#[target_feature(enable = "neon")]
#[inline]
fn round_bf16(acc: float32x4_t) -> uint32x4_t {
    let bits = vreinterpretq_u32_f32(acc);
    let last_kept = vandq_u32(vshrq_n_u32::<16>(bits), vdupq_n_u32(1));
    let rounded = vaddq_u32(vaddq_u32(bits, vdupq_n_u32(0x7FFF)), last_kept);
    let quiet = vorrq_u32(bits, vdupq_n_u32(0x0040_0000));
    vbslq_u32(vceqq_f32(acc, acc), rounded, quiet)
}

/// Byte `k` of every word in register `k`. As `to_f32`, whose mantissa is `SHIFT` bits from that of an f32, whose exponent has this
/// bias, and whose codes from `PAST` on are not finite.
#[target_feature(enable = "neon")]
#[inline]
fn widen_f8<const SHIFT: i32, const BIAS: u32, const PAST: u32>(lanes: uint8x16_t) -> [float32x4_t; 4] {
    let widen = |byte: uint32x4_t| {
        let code = vandq_u32(byte, vdupq_n_u32(0x7F));
        let sign = vshlq_n_u32::<31>(vshrq_n_u32::<7>(byte));
        let shifted = vshlq_n_u32::<SHIFT>(code);
        let scale = vdupq_n_f32(f32::from_bits((254 - BIAS) << 23));
        let finite = vreinterpretq_u32_f32(vmulq_f32(vreinterpretq_f32_u32(shifted), scale));
        let other = vorrq_u32(shifted, vdupq_n_u32(0x7F80_0000));
        let past = vcgeq_u32(code, vdupq_n_u32(PAST));
        vreinterpretq_f32_u32(vorrq_u32(sign, vbslq_u32(past, other, finite)))
    };
    let lanes = vreinterpretq_u32_u8(lanes);
    [
        widen(lanes),
        widen(vshrq_n_u32::<8>(lanes)),
        widen(vshrq_n_u32::<16>(lanes)),
        widen(vshrq_n_u32::<24>(lanes)),
    ]
}

#[target_feature(enable = "neon")]
#[inline]
fn narrow_f8<const SHIFT: i32, const BIAS: u32, const PAST: u32>(acc: [float32x4_t; 4]) -> uint8x16_t {
    let [first, second, third, fourth] = acc.map(|acc| round_f8::<SHIFT, BIAS, PAST>(acc));
    let low = vorrq_u32(first, vshlq_n_u32::<8>(second));
    let high = vorrq_u32(vshlq_n_u32::<16>(third), vshlq_n_u32::<24>(fourth));
    vreinterpretq_u8_u32(vorrq_u32(low, high))
}

/// As `from_f32`: the code in the lowest byte of each lane, the others zero.
#[target_feature(enable = "neon")]
#[inline]
fn round_f8<const SHIFT: i32, const BIAS: u32, const PAST: u32>(acc: float32x4_t) -> uint32x4_t {
    let bits = vreinterpretq_u32_f32(acc);
    let magnitude = vandq_u32(bits, vdupq_n_u32(0x7FFF_FFFF));
    let sign = vandq_u32(vshrq_n_u32::<24>(bits), vdupq_n_u32(0x80));
    let last_kept = vandq_u32(vshrq_n_u32::<SHIFT>(magnitude), vdupq_n_u32(1));
    let half = vdupq_n_u32((1 << (SHIFT - 1)) - 1);
    let rounded = vaddq_u32(vaddq_u32(magnitude, half), last_kept);
    let bias = vdupq_n_u32((127 - BIAS) << (23 - SHIFT));
    let normal = vminq_u32(vsubq_u32(vshrq_n_u32::<SHIFT>(rounded), bias), vdupq_n_u32(PAST));
    let unit = vdupq_n_f32(f32::from_bits((128 - BIAS + SHIFT.cast_unsigned()) << 23));
    let small = vreinterpretq_u32_f32(vaddq_f32(vreinterpretq_f32_u32(magnitude), unit));
    let small = vsubq_u32(small, vreinterpretq_u32_f32(unit));
    let code = vbslq_u32(
        vcltq_u32(magnitude, vdupq_n_u32((128 - BIAS) << 23)),
        small,
        normal,
    );
    let nan = vcgtq_u32(magnitude, vdupq_n_u32(0x7F80_0000));
    vorrq_u32(sign, vbslq_u32(nan, vdupq_n_u32(0x7F), code))
}
