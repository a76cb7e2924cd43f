//! Lending a core memory of this process for the length of one call.
//!
//! Kernels know regions, not slices. A borrowed slice becomes a region with a segment number of its own. The region
//! resolves to the slice until the call that borrowed it returns, and to nothing afterwards.
//!
//! # Invariants
//! - **LENT-1 (scoped).** A pointer is stored here only while its borrow lives: one function puts it in and takes it
//!   out, even if the code that it calls panics.
//! - **LENT-2 (access).** A slice borrowed as `&[T]` is never resolved for writing.
//! - **LENT-3 (not as atomics).** A slice borrowed as `&[T]` is read as ordinary memory, because nothing can write it
//!   meanwhile. Where `arith` reads by atomics, which need a pointer that may write, it is copied into a private
//!   block first; see [`Source`].
//! - **LENT-4 (raw bytes).** Memory of another language comes as [`LentBytes`] and never becomes a slice. Its owner
//!   guarantees that it stays mapped during the call, and may write it meanwhile. The values that are read are then
//!   any mixture of old and new; no address, length or branch depends on them.

use super::NativeCore;
use crate::arith::{self, Isa};
use ringwork_isa::{Dtype, Erased, In, InOut, Out, Rank, Region, Segment, Span};
use std::cell::Cell;
use std::marker::PhantomData;

/// Segment numbers that no real segment has: of slices borrowed for reading, and for writing.
const LENT_IN: Segment = Segment(u32::MAX);
const LENT_OUT: Segment = Segment(u32::MAX - 1);
const _: () = assert!(super::SCRATCH.0 < LENT_OUT.0);

/// A borrowed slice: its address and length in bytes.
type Slot = Cell<Option<(*mut u8, u64)>>;

/// Bytes that a call may read: a slice, or memory that a caller in another language guarantees to be valid.
#[derive(Clone, Copy, Debug)]
pub struct LentBytes<'a> {
    pointer: *const u8,
    len: usize,
    borrowed: PhantomData<&'a [u8]>,
}

/// Bytes that a call may read and write: a slice, or memory that a caller in another language guarantees to be valid.
#[derive(Debug)]
pub struct LentBytesMut<'a> {
    pointer: *mut u8,
    len: usize,
    borrowed: PhantomData<&'a mut [u8]>,
}

impl LentBytes<'_> {
    /// Bytes known by address only. If the length is 0, the address may be anything.
    ///
    /// # Safety
    /// LENT-4: `len` bytes are mapped and may be read as long as this or a copy of it is used.
    #[must_use]
    pub unsafe fn from_raw(pointer: *const u8, len: usize) -> Self {
        let borrowed = PhantomData;
        LentBytes {
            pointer,
            len,
            borrowed,
        }
    }

    /// How many.
    #[must_use]
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the length is 0.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl LentBytesMut<'_> {
    /// Bytes known by address only. If the length is 0, the address may be anything.
    ///
    /// # Safety
    /// LENT-4: `len` bytes are mapped, and may be read and written, as long as this is used; nobody holds a Rust reference
    /// to them.
    #[must_use]
    pub unsafe fn from_raw(pointer: *mut u8, len: usize) -> Self {
        let borrowed = PhantomData;
        LentBytesMut {
            pointer,
            len,
            borrowed,
        }
    }

    /// The same bytes, to be written by one of several calls.
    #[must_use]
    pub fn reborrow(&mut self) -> LentBytesMut<'_> {
        LentBytesMut {
            pointer: self.pointer,
            len: self.len,
            borrowed: PhantomData,
        }
    }

    /// The same bytes, to be read by a call.
    #[must_use]
    pub fn as_input(&self) -> LentBytes<'_> {
        LentBytes {
            pointer: self.pointer,
            len: self.len,
            borrowed: PhantomData,
        }
    }

    /// How many.
    #[must_use]
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the length is 0.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl<'a> From<&'a [u8]> for LentBytes<'a> {
    #[inline(always)]
    fn from(bytes: &'a [u8]) -> LentBytes<'a> {
        LentBytes {
            pointer: bytes.as_ptr(),
            len: bytes.len(),
            borrowed: PhantomData,
        }
    }
}

impl<'a> From<&'a mut [u8]> for LentBytesMut<'a> {
    #[inline(always)]
    fn from(bytes: &'a mut [u8]) -> LentBytesMut<'a> {
        LentBytesMut {
            pointer: bytes.as_mut_ptr(),
            len: bytes.len(),
            borrowed: PhantomData,
        }
    }
}

/// The slices that are borrowed now.
#[derive(Debug, Default)]
pub(super) struct Lent {
    input: Slot,
    output: Slot,
}

impl Lent {
    /// The memory of a [borrowed](is_lent) region, if it is still borrowed and allows this access.
    #[inline(always)]
    pub(super) fn resolve(&self, span: &Span, writing: bool) -> Option<*mut u8> {
        let slot = match span.segment {
            LENT_IN if writing => return None,
            LENT_IN => &self.input,
            _ => &self.output,
        };
        let (base, lent) = slot.get()?;
        let (start, bytes) = span.on_first()?;
        // A caller's bytes may be aligned for less than their elements need.
        if start + bytes > lent || (base as u64 + start) & (span.dtype.bytes() as u64 - 1) != 0 {
            return None;
        }
        // SAFETY: inside the lent slice, which is alive while it is in the slot (LENT-1).
        Some(unsafe { base.add(usize::try_from(start).ok()?) })
    }

    /// The length in bytes of the whole slice borrowed for writing, if this span is part of it.
    #[inline(always)]
    pub(super) fn output_bytes(&self, span: &Span) -> Option<u64> {
        let (_, bytes) = self.output.get().filter(|_| span.segment == LENT_OUT)?;
        Some(bytes)
    }
}

/// Whether a span belongs to a borrowed slice and not to a segment.
#[inline(always)]
pub(super) fn is_lent(span: &Span) -> bool {
    span.segment.0 >= LENT_OUT.0
}

// SAFETY: a pointer is in a slot only during a `lend` (LENT-1), which borrows the core that the slot is part of;
// a core that is borrowed does not move, so no pointer ever moves to another thread with it.
unsafe impl Send for Lent {}

/// Whether a span was borrowed as `&[T]` and `arith` must not read it in place (LENT-3).
#[inline(always)]
pub(super) fn must_be_copied(span: &Span) -> bool {
    span.segment == LENT_IN && Isa::best() == Isa::Plain
}

/// Copies from a resolved source, borrowed or not.
///
/// # Safety
/// As [`arith::copy`], but that `from` may come from a `&` if it is to be copied first.
#[inline(always)]
pub(super) unsafe fn copy(to: *mut u8, copied: bool, from: *const u8, bytes: usize) {
    // SAFETY: the caller's promises.
    unsafe {
        if copied {
            copy_by_blocks(to, from, bytes);
        } else {
            arith::copy(to, from, bytes);
        }
    }
}

/// Copies through private memory.
///
/// # Safety
/// As [`arith::copy`], but that `from` may come from a `&`.
#[cold]
pub(super) unsafe fn copy_by_blocks(to: *mut u8, from: *const u8, bytes: usize) {
    let mut block = [0u64; 512];
    for at in (0..bytes).step_by(size_of_val(&block)) {
        let len = (bytes - at).min(size_of_val(&block));
        let private = block.as_mut_ptr().cast::<u8>();
        // SAFETY: `at + len` is inside what the caller vouches for, and `len` inside the private block.
        unsafe {
            std::ptr::copy_nonoverlapping(from.add(at), private, len);
            arith::copy(to.add(at), private, len);
        }
    }
}

/// A resolved source of a reduction, where `arith` may read it.
pub(super) struct Source(Vec<u64>);

impl Source {
    /// The pointer to read instead of `from`, and the owner that keeps it alive.
    ///
    /// # Safety
    /// `from` is valid for reading `bytes` bytes.
    pub(super) unsafe fn of(src: &Span, from: *const u8, bytes: usize) -> (*const u8, Option<Source>) {
        // SAFETY: the caller's promise.
        unsafe { Source::copied_if(must_be_copied(src), from, bytes) }
    }

    /// As [`of`](Source::of), if the caller knows whether a copy is necessary.
    ///
    /// # Safety
    /// As [`of`](Source::of).
    #[inline(always)]
    pub(super) unsafe fn copied_if(must: bool, from: *const u8, bytes: usize) -> (*const u8, Option<Source>) {
        if !must {
            return (from, None);
        }
        let mut copy = Source(vec![0; bytes.div_ceil(8)]);
        let private = copy.0.as_mut_ptr().cast::<u8>();
        // SAFETY: the caller vouches for `from`; the copy is as long.
        unsafe { std::ptr::copy_nonoverlapping(from, private, bytes) };
        (private, Some(copy))
    }
}

/// Empties a slot when dropped (LENT-1).
struct Returned<'a>(&'a Slot);

impl Drop for Returned<'_> {
    fn drop(&mut self) {
        self.0.set(None);
    }
}

fn region<A: ringwork_isa::Access>(segment: Segment, dtype: Dtype, bytes: usize) -> Region<Erased, A> {
    let (me, rank) = (Rank(0), Rank(0));
    Region::of_span(Span {
        segment,
        base: 0,
        stride: 0,
        me,
        rank,
        ranks: 1,
        dtype,
        start: 0,
        len: (bytes / dtype.bytes()) as u64,
    })
}

impl NativeCore {
    /// Calls `with` with regions for two slices of elements of type `dtype`.
    ///
    /// The regions resolve on this core until this function returns. One call at a time: a slice borrowed inside
    /// `with` replaces the earlier one. Bytes that are not aligned for their elements are refused by the instruction
    /// that uses them; trailing bytes of less than an element are left out.
    #[inline(always)]
    pub fn lend<'a, R>(
        &self,
        dtype: Dtype,
        input: impl Into<LentBytes<'a>>,
        output: impl Into<LentBytesMut<'a>>,
        with: impl FnOnce(In, Out) -> R,
    ) -> R {
        let (input, output) = (input.into(), output.into());
        let Lent {
            input: slot,
            output: room,
        } = &self.lent;
        let (reading, writing) = (Returned(slot), Returned(room));
        // LENT-2: never written through, see `resolve`.
        reading.0.set(Some((input.pointer.cast_mut(), input.len as u64)));
        writing.0.set(Some((output.pointer, output.len as u64)));
        with(
            region(LENT_IN, dtype, input.len),
            region(LENT_OUT, dtype, output.len),
        )
    }

    /// Calls `with` with a region for a slice of elements of type `dtype`, for reading and writing. As
    /// [`lend`](NativeCore::lend).
    ///
    /// As [`lend`](NativeCore::lend).
    #[inline(always)]
    pub fn lend_mut<'a, R>(
        &self,
        dtype: Dtype,
        data: impl Into<LentBytesMut<'a>>,
        with: impl FnOnce(InOut) -> R,
    ) -> R {
        let data = data.into();
        let writing = Returned(&self.lent.output);
        writing.0.set(Some((data.pointer, data.len as u64)));
        with(region(LENT_OUT, dtype, data.len))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::core;
    use bytemuck::{cast_slice, cast_slice_mut};
    use ringwork_isa::{Core, Dtype, In, Out};

    #[test]
    fn lent_slices_are_regions_until_the_call_returns() {
        let core = core();
        let (x, mut y) = ([1i32, 2, 3], [0i32; 3]);
        let mut kept = None;
        core.lend(
            Dtype::I32,
            cast_slice::<_, u8>(&x),
            cast_slice_mut::<_, u8>(&mut y),
            |x, y| {
                kept = Some((x, y));
                core.run(core.copy(y, x))
            },
        )
        .unwrap();
        assert_eq!(y, [1, 2, 3]);
        let (x, y) = kept.unwrap();
        assert!(
            core.run(core.copy(y, x))
                .unwrap_err()
                .to_string()
                .contains("not mapped")
        );
    }

    #[test]
    fn what_was_lent_for_reading_is_not_written_and_nothing_past_the_end_is_touched() {
        let core = core();
        let (x, mut y) = ([1i32, 2, 3], [0i32; 3]);
        core.lend(
            Dtype::I32,
            cast_slice::<_, u8>(&x),
            cast_slice_mut::<_, u8>(&mut y),
            |x, y| {
                let forged = Out::of_span(x.span());
                assert!(core.run(core.copy(forged, x)).is_err());
                let mut long = y.span();
                long.len = 4;
                let long = Out::of_span(long);
                let mut far = x.span();
                far.len = 4;
                let far = In::of_span(far);
                assert!(core.run(core.copy(long, far)).is_err());
            },
        );
        assert_eq!(y, [0; 3]);
    }

    #[test]
    fn bytes_that_are_not_aligned_for_their_elements_are_refused() {
        let core = core();
        let mut words = [0u64; 4];
        let bytes: &mut [u8] = cast_slice_mut(&mut words);
        core.lend_mut(Dtype::F32, &mut bytes[1..9], |data| {
            let (x, y): (In, Out) = (data.into(), data.into());
            assert!(core.run(core.copy(y, x)).is_err());
        });
    }
}
