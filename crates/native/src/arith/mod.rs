//! The inner loops of `Core::copy` and `Core::reduce`, on memory other processes may be writing.
//!
//! One generic loop (`vector`) runs at every level of the processor ([`Isa`]); a level is a table of
//! intrinsics per element type, so that there is one algorithm and no hand-written special cases. The
//! meaning of every operator is [`Element::combine`](ringwork_isa::Element::combine) and nothing else: all levels equal
//! it bit for bit, whatever the length, alignment or chunking.
//!
//! For every element, the sources are folded in order in `Element::Wide` (f32 for f16 and bf16), finished (which
//! is where an average divides) and rounded once. Four vectors are folded at a time over all sources, so each source is read once and the
//! destination written once, however many sources there are.
//!
//! ```
//! use ringwork_isa::{Dtype, ReduceOp};
//! use ringwork_native::arith;
//!
//! let (mut a, mut b, mut sum) = ([1f32, 2.0, 3.0], [10f32, 20.0, 30.0], [0f32; 3]);
//! let sources = [a.as_mut_ptr().cast_const().cast(), b.as_mut_ptr().cast_const().cast()];
//! // SAFETY: all three are valid for 3 elements and do not overlap.
//! unsafe { arith::reduce(Dtype::F32, ReduceOp::Sum, sum.as_mut_ptr().cast(), &sources, 3) };
//! assert_eq!(sum, [11.0, 22.0, 33.0]);
//! ```
//!
//! # Invariants
//! - **ARITH-1 (level).** Code of a level runs only on a processor that has it ([`Isa::available`]).
//! - **ARITH-2 (range).** Every access lies inside the `count` elements (or `bytes`) the caller vouched for;
//!   what does not fill a vector is loaded and stored in part, never beyond the end. Nothing outside the
//!   destination is written, not even with the value it had.
//! - **ARITH-3 (data only).** A byte read from shared memory is only ever an operand of arithmetic. It is
//!   never a length, an address, an index, a branch or an enum.
//! - **ARITH-4 (no references).** No `&`, `&mut` or slice points into shared memory; it is reached by raw
//!   pointers, in `plain` by relaxed atomics of the element's size, elsewhere by `core::arch` loads and
//!   stores, or by the processor's string instruction.
//!
//! # A kernel that races
//! The peers of a kernel are other processes, which may write what we read (a kernel with a missing `wait`).
//! It gets wrong numbers, and nothing else breaks:
//! - In `plain` every access is atomic, so there is no data race in Rust's sense. Miri runs this path.
//! - The vector levels use the processor's vector loads and stores. The hardware gives each byte some value
//!   that was stored there. Rust has no name for such a "bytewise atomic" access yet (RFC 3301), so we lean
//!   on what the compiler may do with them: a racing load yields an *undefined value*, not undefined
//!   behaviour, in LLVM, and by ARITH-3 such a value never decides what the program does next; it can only
//!   end up in the destination, whose bytes are as undefined as the race that made them. `vector` and the
//!   `Register` implementations are the only places where these accesses are made.
//! - A pointer into a window that is sealed against shrinking stays mapped, so no access faults.
//!
//! # Memory ordering
//! None: all accesses are relaxed. Whoever signals that data is ready orders it with a release store after
//! [`reduce`] or [`copy`], as for any other write. [`copy_streaming`] fences its non-temporal stores before it
//! returns, so the same holds after it.
//!
//! # NaN
//! `Max` and `Min` keep a NaN as [`Element`](ringwork_isa::Element) does, to the bit. When `Sum` or `Prod` meets several NaNs,
//! Rust leaves open whose payload survives, and compilers use that. The vector levels do not: on x86-64 it is
//! the first in source order (aarch64 prefers a signalling one), whatever the chunking and the level.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(all(target_arch = "aarch64", target_endian = "little"))]
mod neon;
mod plain;
mod product;
#[cfg(target_arch = "x86_64")]
mod rep_movsb;
#[cfg(any(
    target_arch = "x86_64",
    all(target_arch = "aarch64", target_endian = "little")
))]
mod vector;

#[cfg(test)]
mod tests;

pub use product::product;

#[cfg(target_arch = "x86_64")]
use crate::cpu_tuning::{LEAST_STRING_BYTES, copies_by_string};
use ringwork_isa::{Dtype, ReduceOp};
use std::sync::{LazyLock, OnceLock};

/// A level of the processor that the loops are written for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isa {
    /// No vectors: one relaxed atomic access per element. Everywhere, and under Miri.
    Plain,
    /// 32-byte vectors: AVX2 and F16C.
    Avx2,
    /// 64-byte vectors with masks: AVX-512 F, BW, DQ, VL.
    Avx512,
    /// 16-byte vectors of aarch64.
    Neon,
}

impl Isa {
    /// Every level, the most portable first.
    pub const ALL: [Isa; 4] = [Isa::Plain, Isa::Avx2, Isa::Avx512, Isa::Neon];

    /// Whether this processor has the level.
    #[must_use]
    pub fn available(self) -> bool {
        match self {
            Isa::Plain => true,
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => is_x86_feature_detected!("avx2") && is_x86_feature_detected!("f16c"),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => {
                is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vl")
            }
            #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
            Isa::Neon => std::arch::is_aarch64_feature_detected!("neon"),
            _ => false,
        }
    }

    /// The fastest level of this processor; looked up once per process.
    #[must_use]
    pub fn best() -> Isa {
        static BEST: OnceLock<Isa> = OnceLock::new();
        *BEST.get_or_init(|| {
            let fastest_first = [Isa::Avx512, Isa::Avx2, Isa::Neon];
            fastest_first
                .into_iter()
                .find(|isa| isa.available())
                .unwrap_or(Isa::Plain)
        })
    }

    /// [`reduce`] at this level.
    ///
    /// # Safety
    /// As [`reduce`], and the level must be [`available`](Isa::available).
    #[inline(always)]
    pub unsafe fn reduce(
        self,
        dtype: Dtype,
        op: ReduceOp,
        dst: *mut u8,
        sources: &[*const u8],
        count: usize,
    ) {
        // SAFETY: the caller's promises, unchanged.
        unsafe { reduce_with(self.reducer(dtype), op, dst, sources, count) }
    }

    /// [`reduce_to_each`] at this level.
    ///
    /// # Safety
    /// As [`reduce_to_each`], and the level must be [`available`](Isa::available).
    pub unsafe fn reduce_to_each(
        self,
        dtype: Dtype,
        op: ReduceOp,
        places: &[*mut u8],
        sources: &[*const u8],
        count: usize,
    ) {
        // SAFETY: the caller's promises, unchanged.
        unsafe { reduce_with(self.reducer(dtype), op, places, sources, count) }
    }

    /// The reducer of elements of `dtype` at this level.
    fn reducer<D: Target>(self, dtype: Dtype) -> Reducer<D> {
        match self {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => avx2::reducer(dtype),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => avx512::reducer(dtype),
            #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
            Isa::Neon => neon::reducer(dtype),
            _ => plain::reducer(dtype),
        }
    }

    /// [`copy`] with the vectors of this level.
    ///
    /// # Safety
    /// As [`copy`], and the level must be [`available`](Isa::available).
    pub unsafe fn copy(self, dst: *mut u8, src: *const u8, bytes: usize) {
        // SAFETY: the caller vouches for the level (ARITH-1) and the ranges (ARITH-2).
        unsafe {
            match self {
                #[cfg(target_arch = "x86_64")]
                Isa::Avx2 => avx2::copy(dst, src, bytes),
                #[cfg(target_arch = "x86_64")]
                Isa::Avx512 => avx512::copy(dst, src, bytes),
                #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
                Isa::Neon => neon::copy(dst, src, bytes),
                _ => plain::copy(dst, src, bytes),
            }
        }
    }

    /// [`copy_streaming`] at this level. `Plain` and `Neon` have no non-temporal stores and copy ordinarily.
    ///
    /// # Safety
    /// As [`copy`], and the level must be [`available`](Isa::available).
    pub unsafe fn copy_streaming(self, dst: *mut u8, src: *const u8, bytes: usize) {
        // SAFETY: the caller vouches for the level (ARITH-1) and the ranges (ARITH-2).
        unsafe {
            match self {
                #[cfg(target_arch = "x86_64")]
                Isa::Avx2 => avx2::copy_streaming(dst, src, bytes),
                #[cfg(target_arch = "x86_64")]
                Isa::Avx512 => avx512::copy_streaming(dst, src, bytes),
                #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
                Isa::Neon => neon::copy_streaming(dst, src, bytes),
                _ => plain::copy(dst, src, bytes),
            }
        }
    }
}

/// Writes `op` folded over `sources`, in order, to each of the `count` elements at `dst`.
///
/// One source is a copy through the accumulator (which quiets a signalling 16-bit NaN).
///
/// # Safety
/// - `dst` is valid for writes and every source for reads of `count` elements of `dtype`, from any process,
///   for the whole call, and all are aligned to the element.
/// - At the level [`Plain`](Isa::Plain) no source comes from a `&`: an atomic load needs a pointer that may
///   write, by Rust's aliasing rules. ([`NativeCore`](crate::NativeCore) copies what was lent as `&` first.)
/// - `dst` is exactly one of the sources, or overlaps none.
/// - If another thread *of this process* writes the sources or touches `dst` meanwhile, it does so as this
///   module does (see "A kernel that races").
///
/// # Panics
/// If `sources` is empty.
pub unsafe fn reduce(dtype: Dtype, op: ReduceOp, dst: *mut u8, sources: &[*const u8], count: usize) {
    // SAFETY: the caller's promises are the same; `best` is available (ARITH-1).
    unsafe { Isa::best().reduce(dtype, op, dst, sources, count) }
}

/// Writes `op` folded over `sources`, in order, to each of the `count` elements at every one of `places`.
///
/// What would be a [`reduce`] into one of them and a [`copy`] to each other, in one pass: what was loaded from a place is
/// still in the nearest cache when it is written.
///
/// # Safety
/// - As [`reduce`], for every place.
/// - No two places overlap.
///
/// # Panics
/// If `sources` is empty.
pub unsafe fn reduce_to_each(
    dtype: Dtype,
    op: ReduceOp,
    places: &[*mut u8],
    sources: &[*const u8],
    count: usize,
) {
    // SAFETY: the caller's promises are the same; `best` is available (ARITH-1).
    unsafe { Isa::best().reduce_to_each(dtype, op, places, sources, count) }
}

/// [`reduce`] of one element type, resolved in advance, so that dispatch happens before a wait instead of after it.
///
/// # Safety
/// To be called as [`reduce`], with the element type that it was looked up for.
pub type Reducer<D = *mut u8> = unsafe fn(ReduceOp, D, &[*const u8], usize);

/// The reducer of elements of `dtype` on this processor.
#[must_use]
#[inline]
pub fn reducer(dtype: Dtype) -> Reducer {
    const _: () = {
        let mut at = 0;
        while at < Dtype::ALL.len() {
            assert!(Dtype::ALL[at].index() == at, "each is found by its number");
            at += 1;
        }
    };
    static REDUCERS: LazyLock<[Reducer; Dtype::ALL.len()]> =
        LazyLock::new(|| Dtype::ALL.map(|dtype| Isa::best().reducer(dtype)));
    REDUCERS[dtype.index()]
}

/// # Safety
/// As [`reduce`], with the reducer of its element type and of a level that is [`available`](Isa::available).
#[inline(always)]
unsafe fn reduce_with<D>(reducer: Reducer<D>, op: ReduceOp, dst: D, sources: &[*const u8], count: usize) {
    assert!(
        !sources.is_empty(),
        "a reduction of no sources has no value; pass at least one"
    );
    // SAFETY: the caller vouches for the level (ARITH-1) and the ranges (ARITH-2).
    unsafe { reducer(op, dst, sources, count) }
}

/// The destination of a result.
trait Target: Copy {
    /// The number of destinations.
    fn count(self) -> usize;
    /// One of them.
    fn place(self, index: usize) -> *mut u8;
}

impl Target for *mut u8 {
    #[inline(always)]
    fn count(self) -> usize {
        1
    }

    #[inline(always)]
    fn place(self, _: usize) -> *mut u8 {
        self
    }
}

impl Target for &[*mut u8] {
    #[inline(always)]
    fn count(self) -> usize {
        self.len()
    }

    #[inline(always)]
    fn place(self, index: usize) -> *mut u8 {
        self[index]
    }
}

/// Copies `bytes` from `src` to `dst` with ordinary stores: the destination ends up in this core's cache.
///
/// # Safety
/// - `dst` is valid for writes and `src` for reads of `bytes`, from any process, for the whole call.
/// - They are the same or do not overlap.
/// - `src` comes from a `&` at no other level than in [`reduce`], and other threads are as there.
pub unsafe fn copy(dst: *mut u8, src: *const u8, bytes: usize) {
    // SAFETY: the caller's promises are the same; `best` is available (ARITH-1).
    unsafe {
        #[cfg(target_arch = "x86_64")]
        if bytes >= LEAST_STRING_BYTES && copies_by_string() {
            return rep_movsb::copy(dst, src, bytes);
        }
        Isa::best().copy(dst, src, bytes)
    }
}

/// Copies `bytes` from `src` to `dst` past the caches, and fences.
///
/// For a destination whose lines another core holds, or that does not fit a cache. Slower than [`copy`] into
/// one's own cache, and the fence costs some 100 ns.
///
/// Copying in plus the peer's reading, measured on Zen 4 in microseconds (`cargo bench --bench arith -- handover`):
///
/// | bytes | near: `copy` | streaming | far: `copy` | streaming |
/// |---|---|---|---|---|
/// | 4 KiB | 0.2 | 0.6 | 1.2 | 0.8 |
/// | 16 KiB | 1.1 | 1.9 | 4.5 | 1.9 |
/// | 64 KiB | 8.6 | 6.1 | 33 | 6.5 |
/// | 256 KiB | 35 | 25 | 131 | 24 |
/// | 1 MiB | 96 | 76 | 490 | 78 |
///
/// That is for a buffer which the peer holds from the time before; into one that has left its caches, ordinary stores
/// are faster near at every size. [`NativeCore`](crate::NativeCore) finds out while it runs which of the two pays.
///
/// # Safety
/// As [`copy`].
pub unsafe fn copy_streaming(dst: *mut u8, src: *const u8, bytes: usize) {
    // SAFETY: the caller's promises are the same; `best` is available (ARITH-1).
    unsafe { Isa::best().copy_streaming(dst, src, bytes) }
}

/// Calls `with` with a pointer to values that [`copy`] and [`reduce`] may read at every level.
///
/// At [`Isa::Plain`] they read by atomic loads, which need memory that may be written: there it is a copy.
pub(crate) fn readable<T: Copy, R>(values: &[T], with: impl FnOnce(*const u8) -> R) -> R {
    if Isa::best() == Isa::Plain {
        let mut copy = values.to_vec();
        with(copy.as_mut_ptr().cast_const().cast())
    } else {
        with(values.as_ptr().cast())
    }
}
