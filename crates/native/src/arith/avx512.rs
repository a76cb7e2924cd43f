//! 64-byte vectors of x86-64: AVX-512 F, BW, DQ and VL. Part vectors are masked loads and stores.

use super::vector::{self, Lanes, Register, in_order, lanes, lanes_in_parts};
use super::{Reducer, Target};
use ringwork_isa::{Dtype, ReduceOp, bf16, f8e4m3, f8e5m2, f16, with_dtype};
use std::arch::x86_64::*;
use std::convert::identity;

/// The reducer of elements of `dtype`, if the processor has AVX-512 F, BW, DQ and VL (ARITH-1).
pub(super) fn reducer<D: Target>(dtype: Dtype) -> Reducer<D> {
    with_dtype!(dtype, T => reduce_elements::<T, D>)
}

/// As [`reduce`](super::reduce).
///
/// # Safety
/// As [`reduce`](super::reduce), with the level's instructions (ARITH-1).
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
unsafe fn reduce_elements<E: Lanes<__m512i>, D: Target>(
    op: ReduceOp,
    dst: D,
    sources: &[*const u8],
    count: usize,
) {
    // SAFETY: the caller's promises, unchanged.
    unsafe { vector::reduce::<__m512i, E>(op, dst, sources, count) }
}

/// As [`copy`](super::copy).
///
/// # Safety
/// As [`copy`](super::copy); the processor has AVX-512 F and BW (ARITH-1).
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) unsafe fn copy(dst: *mut u8, src: *const u8, bytes: usize) {
    // SAFETY: the caller's promises, unchanged.
    unsafe { vector::copy::<__m512i>(dst, src, bytes) }
}

/// As [`copy_streaming`](super::copy_streaming).
///
/// # Safety
/// As [`copy`](super::copy); the processor has AVX-512 F and BW (ARITH-1).
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) unsafe fn copy_streaming(dst: *mut u8, src: *const u8, bytes: usize) {
    // SAFETY: the caller's promises, unchanged.
    unsafe { vector::copy_streaming::<__m512i>(dst, src, bytes) }
}

impl Register for __m512i {
    const BYTES: usize = 64;

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: 64 bytes at `from` (ARITH-2), any alignment.
        unsafe { _mm512_loadu_si512(from.cast()) }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: 64 bytes at `to` (ARITH-2), any alignment.
        unsafe { _mm512_storeu_si512(to.cast(), self) }
    }

    #[inline(always)]
    unsafe fn load_part(from: *const u8, bytes: usize) -> Self {
        // SAFETY: `bytes` at `from` (ARITH-2); bytes that are masked out are not accessed.
        unsafe { _mm512_maskz_loadu_epi8(first(bytes), from.cast()) }
    }

    #[inline(always)]
    unsafe fn store_part(self, to: *mut u8, bytes: usize) {
        // SAFETY: `bytes` at `to` (ARITH-2); bytes that are masked out are not accessed.
        unsafe { _mm512_mask_storeu_epi8(to.cast(), first(bytes), self) }
    }

    #[inline(always)]
    unsafe fn stream(self, to: *mut u8) {
        // SAFETY: 64 bytes at `to` (ARITH-2), aligned by the caller, who also fences.
        unsafe { _mm512_stream_si512(to.cast(), self) }
    }

    #[inline(always)]
    unsafe fn fence() {
        // SAFETY: every x86-64 has SSE.
        unsafe { _mm_sfence() }
    }
}

/// A mask of the first `bytes` < 64 bytes.
#[inline(always)]
fn first(bytes: usize) -> __mmask64 {
    (1 << bytes) - 1
}

lanes! { __m512i:
    f32 as __m512: _mm512_castsi512_ps, _mm512_castps_si512; add_f32, mul_f32, max_f32, min_f32;
    f64 as __m512d: _mm512_castsi512_pd, _mm512_castpd_si512; add_f64, mul_f64, max_f64, min_f64;
    i8 as __m512i: identity, identity; _mm512_add_epi8, mul_i8, _mm512_max_epi8, _mm512_min_epi8;
    u8 as __m512i: identity, identity; _mm512_add_epi8, mul_i8, _mm512_max_epu8, _mm512_min_epu8;
    i32 as __m512i: identity, identity; _mm512_add_epi32, _mm512_mullo_epi32, _mm512_max_epi32, _mm512_min_epi32;
    i64 as __m512i: identity, identity; _mm512_add_epi64, _mm512_mullo_epi64, _mm512_max_epi64, _mm512_min_epi64;
}

lanes_in_parts! { __m512i, __m512:
    f16 as 2: widen_f16, narrow_f16;
    bf16 as 2: widen_bf16, narrow_bf16;
    f8e4m3 as 4: widen_f8::<20, 7, 0x7F>, narrow_f8::<20, 7, 0x7F>;
    f8e5m2 as 4: widen_f8::<21, 15, 0x7C>, narrow_f8::<21, 15, 0x7C>;
}

in_order! { "avx512f", zmm_reg:
    add_f32 = "vaddps {result}, {acc}, {next}" of __m512, _mm512_add_ps;
    mul_f32 = "vmulps {result}, {acc}, {next}" of __m512, _mm512_mul_ps;
    add_f64 = "vaddpd {result}, {acc}, {next}" of __m512d, _mm512_add_pd;
    mul_f64 = "vmulpd {result}, {acc}, {next}" of __m512d, _mm512_mul_pd;
}

/// `vmaxps` returns `next` unless `acc > next`, as `combine` does; what is left is a NaN in `acc`.
#[target_feature(enable = "avx512f")]
#[inline]
fn max_f32(acc: __m512, next: __m512) -> __m512 {
    _mm512_mask_blend_ps(
        _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(acc, acc),
        _mm512_max_ps(acc, next),
        acc,
    )
}

#[target_feature(enable = "avx512f")]
#[inline]
fn min_f32(acc: __m512, next: __m512) -> __m512 {
    _mm512_mask_blend_ps(
        _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(acc, acc),
        _mm512_min_ps(acc, next),
        acc,
    )
}

#[target_feature(enable = "avx512f")]
#[inline]
fn max_f64(acc: __m512d, next: __m512d) -> __m512d {
    _mm512_mask_blend_pd(
        _mm512_cmp_pd_mask::<_CMP_UNORD_Q>(acc, acc),
        _mm512_max_pd(acc, next),
        acc,
    )
}

#[target_feature(enable = "avx512f")]
#[inline]
fn min_f64(acc: __m512d, next: __m512d) -> __m512d {
    _mm512_mask_blend_pd(
        _mm512_cmp_pd_mask::<_CMP_UNORD_Q>(acc, acc),
        _mm512_min_pd(acc, next),
        acc,
    )
}

/// Low bytes by a 16-bit product; high bytes by one whose second factor stays shifted, so it lands in place.
#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn mul_i8(acc: __m512i, next: __m512i) -> __m512i {
    let low_bytes = _mm512_set1_epi16(0x00FF);
    let low = _mm512_and_si512(_mm512_mullo_epi16(acc, next), low_bytes);
    let high = _mm512_mullo_epi16(_mm512_srli_epi16::<8>(acc), _mm512_andnot_si512(low_bytes, next));
    _mm512_or_si512(low, high)
}

#[target_feature(enable = "avx512f")]
#[inline]
fn widen_f16(lanes: __m512i) -> [__m512; 2] {
    [
        _mm512_cvtph_ps(_mm512_castsi512_si256(lanes)),
        _mm512_cvtph_ps(_mm512_extracti64x4_epi64::<1>(lanes)),
    ]
}

#[target_feature(enable = "avx512f")]
#[inline]
fn narrow_f16(acc: [__m512; 2]) -> __m512i {
    let low = _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(acc[0]);
    let high = _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(acc[1]);
    _mm512_inserti64x4::<1>(_mm512_castsi256_si512(low), high)
}

/// Even elements in one register, odd ones in the other: a shift and a mask instead of shuffles.
///
/// A signalling NaN is not quieted here as `bf16::to_f32` does: arithmetic and `narrow_bf16` both do.
#[target_feature(enable = "avx512f")]
#[inline]
fn widen_bf16(lanes: __m512i) -> [__m512; 2] {
    let odd = _mm512_and_si512(lanes, _mm512_set1_epi32(0xFFFF_0000_u32.cast_signed()));
    [
        _mm512_castsi512_ps(_mm512_slli_epi32::<16>(lanes)),
        _mm512_castsi512_ps(odd),
    ]
}

#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn narrow_bf16(acc: [__m512; 2]) -> __m512i {
    let even = _mm512_srli_epi32::<16>(round_bf16(acc[0]));
    _mm512_mask_blend_epi16(0xAAAA_AAAA, even, round_bf16(acc[1]))
}

/// Rounds to nearest even in the upper 16 bits of each lane; the lower ones are left over.
///
/// In integers, because `vcvtneps2bf16` would flush subnormals.
#[target_feature(enable = "avx512f")]
#[inline]
fn round_bf16(acc: __m512) -> __m512i {
    let bits = _mm512_castps_si512(acc);
    let last_kept = _mm512_and_si512(_mm512_srli_epi32::<16>(bits), _mm512_set1_epi32(1));
    let rounded = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7FFF)), last_kept);
    let nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(acc, acc);
    _mm512_mask_or_epi32(rounded, nan, bits, _mm512_set1_epi32(0x0040_0000))
}

/// Byte `k` of every word in register `k`. As `to_f32`, whose mantissa is `SHIFT` bits from that of an f32, whose exponent has this
/// bias, and whose codes from `PAST` on are not finite.
#[target_feature(enable = "avx512f")]
#[inline]
fn widen_f8<const SHIFT: u32, const BIAS: u32, const PAST: i32>(lanes: __m512i) -> [__m512; 4] {
    let widen = |byte: __m512i| {
        let code = _mm512_and_si512(byte, _mm512_set1_epi32(0x7F));
        let sign = _mm512_slli_epi32::<31>(_mm512_srli_epi32::<7>(byte));
        let shifted = _mm512_slli_epi32::<SHIFT>(code);
        let scale = _mm512_set1_ps(f32::from_bits((254 - BIAS) << 23));
        let finite = _mm512_castps_si512(_mm512_mul_ps(_mm512_castsi512_ps(shifted), scale));
        let past = _mm512_cmpgt_epi32_mask(code, _mm512_set1_epi32(PAST - 1));
        let magnitude = _mm512_mask_or_epi32(finite, past, shifted, _mm512_set1_epi32(0x7F80_0000));
        _mm512_castsi512_ps(_mm512_or_si512(sign, magnitude))
    };
    [
        widen(lanes),
        widen(_mm512_srli_epi32::<8>(lanes)),
        widen(_mm512_srli_epi32::<16>(lanes)),
        widen(_mm512_srli_epi32::<24>(lanes)),
    ]
}

#[target_feature(enable = "avx512f")]
#[inline]
fn narrow_f8<const SHIFT: u32, const BIAS: u32, const PAST: i32>(acc: [__m512; 4]) -> __m512i {
    let [first, second, third, fourth] = acc.map(|acc| round_f8::<SHIFT, BIAS, PAST>(acc));
    let low = _mm512_or_si512(first, _mm512_slli_epi32::<8>(second));
    let high = _mm512_or_si512(_mm512_slli_epi32::<16>(third), _mm512_slli_epi32::<24>(fourth));
    _mm512_or_si512(low, high)
}

/// As `from_f32`: the code in the lowest byte of each lane, the others zero.
#[target_feature(enable = "avx512f")]
#[inline]
fn round_f8<const SHIFT: u32, const BIAS: u32, const PAST: i32>(acc: __m512) -> __m512i {
    let bits = _mm512_castps_si512(acc);
    let magnitude = _mm512_and_si512(bits, _mm512_set1_epi32(0x7FFF_FFFF));
    let sign = _mm512_and_si512(_mm512_srli_epi32::<24>(bits), _mm512_set1_epi32(0x80));
    let last_kept = _mm512_and_si512(_mm512_srli_epi32::<SHIFT>(magnitude), _mm512_set1_epi32(1));
    let half = _mm512_set1_epi32((1 << (SHIFT - 1)) - 1);
    let rounded = _mm512_add_epi32(_mm512_add_epi32(magnitude, half), last_kept);
    let bias = _mm512_set1_epi32(((127 - BIAS) << (23 - SHIFT)).cast_signed());
    let normal = _mm512_sub_epi32(_mm512_srli_epi32::<SHIFT>(rounded), bias);
    let normal = _mm512_min_epi32(normal, _mm512_set1_epi32(PAST));
    let unit = _mm512_set1_ps(f32::from_bits((128 - BIAS + SHIFT) << 23));
    let small = _mm512_castps_si512(_mm512_add_ps(_mm512_castsi512_ps(magnitude), unit));
    let small = _mm512_sub_epi32(small, _mm512_castps_si512(unit));
    let least = _mm512_set1_epi32(((128 - BIAS) << 23).cast_signed());
    let code = _mm512_mask_blend_epi32(_mm512_cmpgt_epi32_mask(least, magnitude), normal, small);
    let nan = _mm512_cmpgt_epi32_mask(magnitude, _mm512_set1_epi32(0x7F80_0000));
    _mm512_or_si512(sign, _mm512_mask_blend_epi32(nan, code, _mm512_set1_epi32(0x7F)))
}
