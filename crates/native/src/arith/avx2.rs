//! 32-byte vectors of x86-64: AVX2, and F16C for f16. Never FMA, which would round once where we round twice.

use super::vector::{self, Lanes, Register, in_order, lanes, lanes_in_parts};
use super::{Reducer, Target};
use ringwork_isa::{Dtype, ReduceOp, bf16, f8e4m3, f8e5m2, f16, with_dtype};
use std::arch::x86_64::*;
use std::convert::identity;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// The reducer of elements of `dtype`, if the processor has AVX2 and F16C (ARITH-1).
pub(super) fn reducer<D: Target>(dtype: Dtype) -> Reducer<D> {
    with_dtype!(dtype, T => reduce_elements::<T, D>)
}

/// As [`reduce`](super::reduce).
///
/// # Safety
/// As [`reduce`](super::reduce), with the level's instructions (ARITH-1).
#[target_feature(enable = "avx2,f16c")]
unsafe fn reduce_elements<E: Lanes<__m256i>, D: Target>(
    op: ReduceOp,
    dst: D,
    sources: &[*const u8],
    count: usize,
) {
    // SAFETY: the caller's promises, unchanged.
    unsafe { vector::reduce::<__m256i, E>(op, dst, sources, count) }
}

/// As [`copy`](super::copy).
///
/// # Safety
/// As [`copy`](super::copy); the processor has AVX2 (ARITH-1).
#[target_feature(enable = "avx2")]
pub(super) unsafe fn copy(dst: *mut u8, src: *const u8, bytes: usize) {
    // SAFETY: the caller's promises, unchanged.
    unsafe { vector::copy::<__m256i>(dst, src, bytes) }
}

/// As [`copy_streaming`](super::copy_streaming).
///
/// # Safety
/// As [`copy`](super::copy); the processor has AVX2 (ARITH-1).
#[target_feature(enable = "avx2")]
pub(super) unsafe fn copy_streaming(dst: *mut u8, src: *const u8, bytes: usize) {
    // SAFETY: the caller's promises, unchanged.
    unsafe { vector::copy_streaming::<__m256i>(dst, src, bytes) }
}

impl Register for __m256i {
    const BYTES: usize = 32;

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: 32 bytes at `from` (ARITH-2), any alignment.
        unsafe { _mm256_loadu_si256(from.cast()) }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: 32 bytes at `to` (ARITH-2), any alignment.
        unsafe { _mm256_storeu_si256(to.cast(), self) }
    }

    #[inline(always)]
    unsafe fn load_part(from: *const u8, bytes: usize) -> Self {
        // SAFETY: `bytes` at `from` (ARITH-2).
        unsafe { load_part(from, bytes) }
    }

    #[inline(always)]
    unsafe fn store_part(self, to: *mut u8, bytes: usize) {
        // SAFETY: `bytes` at `to` (ARITH-2).
        unsafe { store_part(self, to, bytes) }
    }

    #[inline(always)]
    unsafe fn stream(self, to: *mut u8) {
        // SAFETY: 32 bytes at `to` (ARITH-2), aligned by the caller, who also fences.
        unsafe { _mm256_stream_si256(to.cast(), self) }
    }

    #[inline(always)]
    unsafe fn fence() {
        // SAFETY: every x86-64 has SSE.
        unsafe { _mm_sfence() }
    }
}

/// Words by one masked load, odd lengths by way of the stack, which waits for its stores.
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn load_part(from: *const u8, bytes: usize) -> __m256i {
    if bytes.is_multiple_of(4) {
        // SAFETY: `bytes` at `from` (ARITH-2); words that are masked out are not accessed.
        return unsafe { _mm256_maskload_epi32(from.cast(), first_words(bytes / 4)) };
    }
    let mut local = [0u8; 32];
    // SAFETY: `bytes` < 32 at `from` (ARITH-2), and `local` holds 32.
    unsafe {
        copy_pieces(local.as_mut_ptr(), from, bytes);
        _mm256_loadu_si256(local.as_ptr().cast())
    }
}

/// By way of the stack: loads forward from a larger store, and masked stores are slow on AMD.
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn store_part(lanes: __m256i, to: *mut u8, bytes: usize) {
    let mut local = [0u8; 32];
    // SAFETY: `bytes` < 32 at `to` (ARITH-2), and `local` holds 32.
    unsafe {
        _mm256_storeu_si256(local.as_mut_ptr().cast(), lanes);
        copy_pieces(to, local.as_mut_ptr(), bytes);
    }
}

/// A mask of the first `words` < 8 words.
#[target_feature(enable = "avx2")]
#[inline]
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    reason = "fewer than 8"
)]
fn first_words(words: usize) -> __m256i {
    _mm256_cmpgt_epi32(
        _mm256_set1_epi32(words as i32),
        _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7),
    )
}

/// Copies `bytes` < 32 in pieces of 16, 8, 4, 2 and 1.
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn copy_pieces(dst: *mut u8, src: *const u8, bytes: usize) {
    let mut at = 0;
    // SAFETY: the bits of `bytes`, largest first, are the pieces; they end where the caller's range ends. A
    // byte is always aligned for its atomic.
    unsafe {
        if bytes & 16 != 0 {
            _mm_storeu_si128(dst.cast(), _mm_loadu_si128(src.cast()));
            at += 16;
        }
        if bytes & 8 != 0 {
            _mm_storeu_si64(dst.add(at), _mm_loadu_si64(src.add(at)));
            at += 8;
        }
        if bytes & 4 != 0 {
            _mm_storeu_si32(dst.add(at), _mm_loadu_si32(src.add(at)));
            at += 4;
        }
        if bytes & 2 != 0 {
            _mm_storeu_si16(dst.add(at), _mm_loadu_si16(src.add(at)));
            at += 2;
        }
        if bytes & 1 != 0 {
            let byte = src.add(at).read_volatile();
            AtomicU8::from_ptr(dst.add(at)).store(byte, Relaxed);
        }
    }
}

lanes! { __m256i:
    f32 as __m256: _mm256_castsi256_ps, _mm256_castps_si256; add_f32, mul_f32, max_f32, min_f32;
    f64 as __m256d: _mm256_castsi256_pd, _mm256_castpd_si256; add_f64, mul_f64, max_f64, min_f64;
    i8 as __m256i: identity, identity; _mm256_add_epi8, mul_i8, _mm256_max_epi8, _mm256_min_epi8;
    u8 as __m256i: identity, identity; _mm256_add_epi8, mul_i8, _mm256_max_epu8, _mm256_min_epu8;
    i32 as __m256i: identity, identity; _mm256_add_epi32, _mm256_mullo_epi32, _mm256_max_epi32, _mm256_min_epi32;
    i64 as __m256i: identity, identity; _mm256_add_epi64, mul_i64, max_i64, min_i64;
}

lanes_in_parts! { __m256i, __m256:
    f16 as 2: widen_f16, narrow_f16;
    bf16 as 2: widen_bf16, narrow_bf16;
    f8e4m3 as 4: widen_f8::<20, 7, 0x7F>, narrow_f8::<20, 7, 0x7F>;
    f8e5m2 as 4: widen_f8::<21, 15, 0x7C>, narrow_f8::<21, 15, 0x7C>;
}

// `vex3`, because the assembler swaps operands too where that makes the encoding a byte shorter.
in_order! { "avx2", ymm_reg:
    add_f32 = "{{vex3}} vaddps {result}, {acc}, {next}" of __m256, _mm256_add_ps;
    mul_f32 = "{{vex3}} vmulps {result}, {acc}, {next}" of __m256, _mm256_mul_ps;
    add_f64 = "{{vex3}} vaddpd {result}, {acc}, {next}" of __m256d, _mm256_add_pd;
    mul_f64 = "{{vex3}} vmulpd {result}, {acc}, {next}" of __m256d, _mm256_mul_pd;
}

/// `vmaxps` returns `next` unless `acc > next`, as `combine` does; what is left is a NaN in `acc`.
#[target_feature(enable = "avx2")]
#[inline]
fn max_f32(acc: __m256, next: __m256) -> __m256 {
    _mm256_blendv_ps(
        _mm256_max_ps(acc, next),
        acc,
        _mm256_cmp_ps::<_CMP_UNORD_Q>(acc, acc),
    )
}

#[target_feature(enable = "avx2")]
#[inline]
fn min_f32(acc: __m256, next: __m256) -> __m256 {
    _mm256_blendv_ps(
        _mm256_min_ps(acc, next),
        acc,
        _mm256_cmp_ps::<_CMP_UNORD_Q>(acc, acc),
    )
}

#[target_feature(enable = "avx2")]
#[inline]
fn max_f64(acc: __m256d, next: __m256d) -> __m256d {
    _mm256_blendv_pd(
        _mm256_max_pd(acc, next),
        acc,
        _mm256_cmp_pd::<_CMP_UNORD_Q>(acc, acc),
    )
}

#[target_feature(enable = "avx2")]
#[inline]
fn min_f64(acc: __m256d, next: __m256d) -> __m256d {
    _mm256_blendv_pd(
        _mm256_min_pd(acc, next),
        acc,
        _mm256_cmp_pd::<_CMP_UNORD_Q>(acc, acc),
    )
}

/// Low bytes by a 16-bit product; high bytes by one whose second factor stays shifted, so it lands in place.
#[target_feature(enable = "avx2")]
#[inline]
fn mul_i8(acc: __m256i, next: __m256i) -> __m256i {
    let low_bytes = _mm256_set1_epi16(0x00FF);
    let low = _mm256_and_si256(_mm256_mullo_epi16(acc, next), low_bytes);
    let high = _mm256_mullo_epi16(_mm256_srli_epi16::<8>(acc), _mm256_andnot_si256(low_bytes, next));
    _mm256_or_si256(low, high)
}

/// `low * low + ((high * low + low * high) << 32)`.
#[target_feature(enable = "avx2")]
#[inline]
fn mul_i64(acc: __m256i, next: __m256i) -> __m256i {
    let crossed = _mm256_mullo_epi32(acc, _mm256_shuffle_epi32::<0b10_11_00_01>(next));
    let high = _mm256_slli_epi64::<32>(_mm256_add_epi32(crossed, _mm256_srli_epi64::<32>(crossed)));
    _mm256_add_epi64(_mm256_mul_epu32(acc, next), high)
}

#[target_feature(enable = "avx2")]
#[inline]
fn max_i64(acc: __m256i, next: __m256i) -> __m256i {
    _mm256_blendv_epi8(next, acc, _mm256_cmpgt_epi64(acc, next))
}

#[target_feature(enable = "avx2")]
#[inline]
fn min_i64(acc: __m256i, next: __m256i) -> __m256i {
    _mm256_blendv_epi8(next, acc, _mm256_cmpgt_epi64(next, acc))
}

#[target_feature(enable = "avx2,f16c")]
#[inline]
fn widen_f16(lanes: __m256i) -> [__m256; 2] {
    [
        _mm256_cvtph_ps(_mm256_castsi256_si128(lanes)),
        _mm256_cvtph_ps(_mm256_extracti128_si256::<1>(lanes)),
    ]
}

#[target_feature(enable = "avx2,f16c")]
#[inline]
fn narrow_f16(acc: [__m256; 2]) -> __m256i {
    let low = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(acc[0]);
    let high = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(acc[1]);
    _mm256_set_m128i(high, low)
}

/// Even elements in one register, odd ones in the other: a shift and a mask instead of shuffles.
///
/// A signalling NaN is not quieted here as `bf16::to_f32` does: arithmetic and `narrow_bf16` both do.
#[target_feature(enable = "avx2")]
#[inline]
fn widen_bf16(lanes: __m256i) -> [__m256; 2] {
    let odd = _mm256_and_si256(lanes, _mm256_set1_epi32(0xFFFF_0000_u32.cast_signed()));
    [
        _mm256_castsi256_ps(_mm256_slli_epi32::<16>(lanes)),
        _mm256_castsi256_ps(odd),
    ]
}

#[target_feature(enable = "avx2")]
#[inline]
fn narrow_bf16(acc: [__m256; 2]) -> __m256i {
    let even = _mm256_srli_epi32::<16>(round_bf16(acc[0]));
    _mm256_blend_epi16::<0b1010_1010>(even, round_bf16(acc[1]))
}

/// Rounds to nearest even in the upper 16 bits of each lane; the lower ones are left over.
///
/// In integers, because `vcvtneps2bf16` would flush subnormals.
#[target_feature(enable = "avx2")]
#[inline]
fn round_bf16(acc: __m256) -> __m256i {
    let bits = _mm256_castps_si256(acc);
    let last_kept = _mm256_and_si256(_mm256_srli_epi32::<16>(bits), _mm256_set1_epi32(1));
    let rounded = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7FFF)), last_kept);
    let quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x0040_0000));
    _mm256_blendv_epi8(
        rounded,
        quiet,
        _mm256_castps_si256(_mm256_cmp_ps::<_CMP_UNORD_Q>(acc, acc)),
    )
}

/// Byte `k` of every word in register `k`. As `to_f32`, whose mantissa is `SHIFT` bits from that of an f32, whose exponent has this
/// bias, and whose codes from `PAST` on are not finite.
#[target_feature(enable = "avx2")]
#[inline]
fn widen_f8<const SHIFT: i32, const BIAS: u32, const PAST: i32>(lanes: __m256i) -> [__m256; 4] {
    let widen = |byte: __m256i| {
        let code = _mm256_and_si256(byte, _mm256_set1_epi32(0x7F));
        let sign = _mm256_slli_epi32::<31>(_mm256_srli_epi32::<7>(byte));
        let shifted = _mm256_slli_epi32::<SHIFT>(code);
        let scale = _mm256_set1_ps(f32::from_bits((254 - BIAS) << 23));
        let finite = _mm256_castps_si256(_mm256_mul_ps(_mm256_castsi256_ps(shifted), scale));
        let other = _mm256_or_si256(shifted, _mm256_set1_epi32(0x7F80_0000));
        let past = _mm256_cmpgt_epi32(code, _mm256_set1_epi32(PAST - 1));
        _mm256_castsi256_ps(_mm256_or_si256(sign, _mm256_blendv_epi8(finite, other, past)))
    };
    [
        widen(lanes),
        widen(_mm256_srli_epi32::<8>(lanes)),
        widen(_mm256_srli_epi32::<16>(lanes)),
        widen(_mm256_srli_epi32::<24>(lanes)),
    ]
}

#[target_feature(enable = "avx2")]
#[inline]
fn narrow_f8<const SHIFT: i32, const BIAS: u32, const PAST: i32>(acc: [__m256; 4]) -> __m256i {
    let [first, second, third, fourth] = acc.map(|acc| round_f8::<SHIFT, BIAS, PAST>(acc));
    let low = _mm256_or_si256(first, _mm256_slli_epi32::<8>(second));
    let high = _mm256_or_si256(_mm256_slli_epi32::<16>(third), _mm256_slli_epi32::<24>(fourth));
    _mm256_or_si256(low, high)
}

/// As `from_f32`: the code in the lowest byte of each lane, the others zero.
#[target_feature(enable = "avx2")]
#[inline]
fn round_f8<const SHIFT: i32, const BIAS: u32, const PAST: i32>(acc: __m256) -> __m256i {
    let bits = _mm256_castps_si256(acc);
    let magnitude = _mm256_and_si256(bits, _mm256_set1_epi32(0x7FFF_FFFF));
    let sign = _mm256_and_si256(_mm256_srli_epi32::<24>(bits), _mm256_set1_epi32(0x80));
    let last_kept = _mm256_and_si256(_mm256_srli_epi32::<SHIFT>(magnitude), _mm256_set1_epi32(1));
    let half = _mm256_set1_epi32((1 << (SHIFT - 1)) - 1);
    let rounded = _mm256_add_epi32(_mm256_add_epi32(magnitude, half), last_kept);
    let bias = _mm256_set1_epi32(((127 - BIAS) << (23 - SHIFT)).cast_signed());
    let normal = _mm256_sub_epi32(_mm256_srli_epi32::<SHIFT>(rounded), bias);
    let normal = _mm256_min_epi32(normal, _mm256_set1_epi32(PAST));
    let unit = _mm256_set1_ps(f32::from_bits((128 - BIAS + SHIFT.cast_unsigned()) << 23));
    let small = _mm256_castps_si256(_mm256_add_ps(_mm256_castsi256_ps(magnitude), unit));
    let small = _mm256_sub_epi32(small, _mm256_castps_si256(unit));
    let least = _mm256_set1_epi32(((128 - BIAS) << 23).cast_signed());
    let code = _mm256_blendv_epi8(normal, small, _mm256_cmpgt_epi32(least, magnitude));
    let nan = _mm256_cmpgt_epi32(magnitude, _mm256_set1_epi32(0x7F80_0000));
    _mm256_or_si256(sign, _mm256_blendv_epi8(code, _mm256_set1_epi32(0x7F), nan))
}
