//! The one loop: blocks of vectors folded over all sources, written against two small traits.
//!
//! [`Register`] says how bytes enter and leave a vector register; [`Lanes`] how an element type is computed
//! in it. A level implements both with the [`lanes`] and [`lanes_in_parts`] tables and instantiates the
//! loops below inside functions that enable its instructions.
//!
//! Everything here is `#[inline(always)]`: intrinsics can only be inlined into a function that enables their
//! instructions, so the loops must have been inlined there first.

use super::Target;
use ringwork_isa::{Element, ReduceOp};
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// Vectors in flight per source: enough to hide the latency of an addition.
const BLOCK: usize = 4;
/// Bytes of a cache line: what a non-temporal store must fill to go out in one piece.
const LINE_BYTES: usize = 64;
/// Bytes of the widest register.
const WIDEST_BYTES: usize = 64;

/// A vector register: the only way to and from shared memory at the vector levels (ARITH-4).
///
/// # Safety
/// All methods need the level's instructions (ARITH-1) and the named bytes to be accessible (ARITH-2).
pub(super) trait Register: Copy {
    /// Bytes it holds.
    const BYTES: usize;

    /// Loads `BYTES`; any alignment.
    unsafe fn load(from: *const u8) -> Self;
    /// Stores `BYTES`; any alignment.
    unsafe fn store(self, to: *mut u8);

    /// Loads the first `bytes`, fewer than `BYTES`, and nothing else; the other lanes are zero.
    #[inline(always)]
    unsafe fn load_part(from: *const u8, bytes: usize) -> Self {
        let mut local = [0u8; WIDEST_BYTES];
        // SAFETY: `bytes` are accessible at `from`, and `local` holds any register.
        unsafe {
            copy_bytes(local.as_mut_ptr(), from, bytes);
            Self::load(local.as_ptr())
        }
    }

    /// Stores the first `bytes`, fewer than `BYTES`, and nothing else.
    #[inline(always)]
    unsafe fn store_part(self, to: *mut u8, bytes: usize) {
        let mut local = [0u8; WIDEST_BYTES];
        // SAFETY: `bytes` are accessible at `to`, and `local` holds any register.
        unsafe {
            self.store(local.as_mut_ptr());
            copy_bytes(to, local.as_mut_ptr(), bytes);
        }
    }

    /// Stores `BYTES` past the caches; `to` is aligned to `BYTES`. Needs a [`fence`](Register::fence) after.
    #[inline(always)]
    unsafe fn stream(self, to: *mut u8) {
        // SAFETY: as promised to this function.
        unsafe { self.store(to) }
    }

    /// Orders earlier [`stream`](Register::stream)s before later stores.
    #[inline(always)]
    unsafe fn fence() {}
}

/// An element type in registers of kind `R`: [`Element`], many at a time.
///
/// # Safety
/// All methods need the level's instructions (ARITH-1).
pub(super) trait Lanes<R: Register>: Element {
    /// The accumulator of one register of elements.
    type Acc: Copy;
    /// [`Element::widen`] of every lane.
    unsafe fn widen_lanes(lanes: R) -> Self::Acc;
    /// [`Element::narrow`] of every lane.
    unsafe fn narrow_lanes(acc: Self::Acc) -> R;
    /// [`Element::combine`] of every lane.
    unsafe fn combine_lanes(op: ReduceOp, acc: Self::Acc, next: Self::Acc) -> Self::Acc;
    /// [`Element::finish`] of every lane.
    unsafe fn finish_lanes(op: ReduceOp, acc: Self::Acc, sources: usize) -> Self::Acc;
}

/// Implements [`Lanes`] for types that are their own accumulator:
/// `element as accumulator: enter, leave; sum, prod, max, min`.
macro_rules! lanes {
    ($register:ty: $($element:ty as $acc:ty: $enter:path, $leave:path; $sum:path, $prod:path, $max:path, $min:path);* $(;)?) => {$(
        impl $crate::arith::vector::Lanes<$register> for $element {
            type Acc = $acc;
            #[inline(always)]
            #[allow(unused_unsafe, reason = "`identity` is safe")]
            unsafe fn widen_lanes(lanes: $register) -> $acc {
                // SAFETY: the caller has the level's instructions (ARITH-1); registers only.
                unsafe { $enter(lanes) }
            }
            #[inline(always)]
            #[allow(unused_unsafe, reason = "`identity` is safe")]
            unsafe fn narrow_lanes(acc: $acc) -> $register {
                // SAFETY: as above.
                unsafe { $leave(acc) }
            }
            #[inline(always)]
            unsafe fn combine_lanes(op: ringwork_isa::ReduceOp, acc: $acc, next: $acc) -> $acc {
                // SAFETY: as above.
                unsafe {
                    match op {
                        ringwork_isa::ReduceOp::Sum | ringwork_isa::ReduceOp::Avg => $sum(acc, next),
                        ringwork_isa::ReduceOp::Prod => $prod(acc, next),
                        ringwork_isa::ReduceOp::Max => $max(acc, next),
                        ringwork_isa::ReduceOp::Min => $min(acc, next),
                        ringwork_isa::ReduceOp::BitAnd
                        | ringwork_isa::ReduceOp::BitOr
                        | ringwork_isa::ReduceOp::BitXor => $enter($crate::arith::vector::combine_each::<
                            $register,
                            $element,
                        >(op, $leave(acc), $leave(next))),
                    }
                }
            }
            #[inline(always)]
            #[allow(unused_unsafe, reason = "`identity` is safe")]
            unsafe fn finish_lanes(op: ringwork_isa::ReduceOp, acc: $acc, sources: usize) -> $acc {
                if op != ringwork_isa::ReduceOp::Avg {
                    return acc;
                }
                // SAFETY: as above.
                unsafe { $enter($crate::arith::vector::finish_each::<$register, $element>(op, $leave(acc), sources)) }
            }
        }
    )*};
}
pub(super) use lanes;

/// Implements [`Lanes`] for short floats, accumulated in several registers of f32: `element as registers: widen, narrow`.
macro_rules! lanes_in_parts {
    ($register:ty, $acc:ty: $($element:ty as $parts:literal: $widen:path, $narrow:path);* $(;)?) => {$(
        impl $crate::arith::vector::Lanes<$register> for $element {
            type Acc = [$acc; $parts];
            #[inline(always)]
            unsafe fn widen_lanes(lanes: $register) -> [$acc; $parts] {
                // SAFETY: the caller has the level's instructions (ARITH-1); registers only.
                unsafe { $widen(lanes) }
            }
            #[inline(always)]
            unsafe fn narrow_lanes(acc: [$acc; $parts]) -> $register {
                // SAFETY: as above.
                unsafe { $narrow(acc) }
            }
            #[inline(always)]
            unsafe fn combine_lanes(
                op: ringwork_isa::ReduceOp,
                mut acc: [$acc; $parts],
                next: [$acc; $parts],
            ) -> [$acc; $parts] {
                for (acc, next) in acc.iter_mut().zip(next) {
                    // SAFETY: as above.
                    *acc = unsafe { <f32 as $crate::arith::vector::Lanes<$register>>::combine_lanes(op, *acc, next) };
                }
                acc
            }
            #[inline(always)]
            unsafe fn finish_lanes(op: ringwork_isa::ReduceOp, acc: [$acc; $parts], sources: usize) -> [$acc; $parts] {
                // SAFETY: as above.
                acc.map(|acc| unsafe { <f32 as $crate::arith::vector::Lanes<$register>>::finish_lanes(op, acc, sources) })
            }
        }
    )*};
}
pub(super) use lanes_in_parts;

/// Defines functions of one instruction each, with the operands in the order given.
///
/// `a + b` has no order for the compiler: it swaps operands as it likes, differently in each loop. Of two NaNs
/// processors return the first, so results would depend on the loop that an element fell into: on chunking.
macro_rules! in_order {
    ($features:literal, $class:ident: $($name:ident = $template:literal of $vector:ty, $intrinsic:path);* $(;)?) => {$(
        #[target_feature(enable = $features)]
        #[inline]
        fn $name(acc: $vector, next: $vector) -> $vector {
            if cfg!(miri) {
                return $intrinsic(acc, next); // Miri runs no assembly
            }
            let result;
            // SAFETY: one instruction of the level that this function enables, on registers only.
            unsafe {
                std::arch::asm!(
                    $template,
                    result = lateout($class) result,
                    acc = in($class) acc,
                    next = in($class) next,
                    options(pure, nomem, nostack, preserves_flags)
                );
            }
            result
        }
    )*};
}
pub(super) use in_order;

/// Folds `sources` into `dst`.
///
/// # Safety
/// As [`reduce`](super::reduce) for the element type `E`, with the instructions of `R` (ARITH-1).
#[inline(always)]
pub(super) unsafe fn reduce<R: Register, E: Lanes<R>>(
    op: ReduceOp,
    dst: impl Target,
    sources: &[*const u8],
    count: usize,
) {
    let bytes = count * size_of::<E>();
    // SAFETY: the caller's promises, unchanged. Each arm is its own copy of the loop, with `op` a constant.
    unsafe {
        match op {
            ReduceOp::Sum => fold::<R, E>(ReduceOp::Sum, dst, sources, bytes),
            ReduceOp::Prod => fold::<R, E>(ReduceOp::Prod, dst, sources, bytes),
            ReduceOp::Max => fold::<R, E>(ReduceOp::Max, dst, sources, bytes),
            ReduceOp::Min => fold::<R, E>(ReduceOp::Min, dst, sources, bytes),
            ReduceOp::Avg => fold::<R, E>(ReduceOp::Avg, dst, sources, bytes),
            ReduceOp::BitAnd => fold::<R, E>(ReduceOp::BitAnd, dst, sources, bytes),
            ReduceOp::BitOr => fold::<R, E>(ReduceOp::BitOr, dst, sources, bytes),
            ReduceOp::BitXor => fold::<R, E>(ReduceOp::BitXor, dst, sources, bytes),
        }
    }
}

/// [`reduce`] for one operator.
#[inline(always)]
unsafe fn fold<R: Register, E: Lanes<R>>(
    op: ReduceOp,
    dst: impl Target,
    sources: &[*const u8],
    bytes: usize,
) {
    let (&first, rest) = sources.split_first().expect("checked by the caller");
    let mut at = 0;
    // SAFETY: `at` plus what is loaded and stored never exceeds `bytes` (ARITH-2). Each block is stored only
    // after every source of it was loaded, so `dst` may be a source.
    unsafe {
        while bytes - at >= BLOCK * R::BYTES {
            fold_block::<R, E, BLOCK>(op, dst, first, rest, at);
            at += BLOCK * R::BYTES;
        }
        while bytes - at >= R::BYTES {
            fold_block::<R, E, 1>(op, dst, first, rest, at);
            at += R::BYTES;
        }
        let left = bytes - at;
        if left > 0 {
            let mut acc = E::widen_lanes(R::load_part(first.add(at), left));
            for source in rest {
                acc = E::combine_lanes(op, acc, E::widen_lanes(R::load_part(source.add(at), left)));
            }
            let result = E::narrow_lanes(E::finish_lanes(op, acc, sources.len()));
            for index in 0..dst.count() {
                result.store_part(dst.place(index).add(at), left);
            }
        }
    }
}

/// Folds `N` vectors at offset `at`: all loads, then the stores.
#[inline(always)]
unsafe fn fold_block<R: Register, E: Lanes<R>, const N: usize>(
    op: ReduceOp,
    dst: impl Target,
    first: *const u8,
    rest: &[*const u8],
    at: usize,
) {
    // SAFETY: the caller vouches for `N` registers at `at` in every pointer (ARITH-2).
    unsafe {
        let mut acc = [E::widen_lanes(R::load(first.add(at))); N];
        for (k, acc) in acc.iter_mut().enumerate().skip(1) {
            *acc = E::widen_lanes(R::load(first.add(at + k * R::BYTES)));
        }
        for source in rest {
            for (k, acc) in acc.iter_mut().enumerate() {
                let next = E::widen_lanes(R::load(source.add(at + k * R::BYTES)));
                *acc = E::combine_lanes(op, *acc, next);
            }
        }
        for (k, acc) in acc.into_iter().enumerate() {
            let result = E::narrow_lanes(E::finish_lanes(op, acc, rest.len() + 1));
            for index in 0..dst.count() {
                result.store(dst.place(index).add(at + k * R::BYTES));
            }
        }
    }
}

/// [`Element::combine`] of every lane, written one by one: the compiler makes one vector instruction of it where there is one,
/// as for bits.
///
/// # Safety
/// The instructions of `R` (ARITH-1); for an element that is its own accumulator.
#[inline(always)]
pub(super) unsafe fn combine_each<R: Register, E: Element>(op: ReduceOp, acc: R, next: R) -> R {
    let mut local = [[0u64; WIDEST_BYTES / 8]; 2];
    let [first, second] = local.each_mut().map(|half| half.as_mut_ptr());
    // SAFETY: each half of `local` holds any register, is aligned to any element, and is private.
    unsafe {
        acc.store(first.cast());
        next.store(second.cast());
        for at in 0..R::BYTES / size_of::<E>() {
            let (acc, next) = (first.cast::<E>().add(at), second.cast::<E>().add(at));
            acc.write(E::narrow(E::combine(op, acc.read().widen(), next.read().widen())));
        }
        R::load(first.cast())
    }
}

/// [`Element::finish`] of every lane, one by one: no level divides integers.
///
/// # Safety
/// The instructions of `R` (ARITH-1); for an element that is its own accumulator.
#[inline(always)]
pub(super) unsafe fn finish_each<R: Register, E: Element>(op: ReduceOp, lanes: R, sources: usize) -> R {
    let mut local = [0u64; WIDEST_BYTES / 8];
    let first = local.as_mut_ptr();
    // SAFETY: `local` holds any register, is aligned to any element, and is private.
    unsafe {
        lanes.store(first.cast());
        for at in 0..R::BYTES / size_of::<E>() {
            let element = first.cast::<E>().add(at);
            element.write(E::narrow(E::finish(op, element.read().widen(), sources)));
        }
        R::load(first.cast())
    }
}

/// Copies with ordinary stores.
///
/// # Safety
/// As [`copy`](super::copy), with the instructions of `R` (ARITH-1).
#[inline(always)]
pub(super) unsafe fn copy<R: Register>(dst: *mut u8, src: *const u8, bytes: usize) {
    let mut at = 0;
    // SAFETY: `at` plus what is loaded and stored never exceeds `bytes` (ARITH-2).
    unsafe {
        if bytes >= BLOCK * R::BYTES {
            // A store across two lines takes twice as long, and memory from `malloc` starts in the middle of a line.
            // Only the first register may cross a line; the following ones are aligned. A load across two lines costs
            // next to nothing.
            R::load(src).store(dst);
            at = R::BYTES - dst.addr() % R::BYTES;
        }
        while bytes - at >= BLOCK * R::BYTES {
            let mut lanes = [R::load(src.add(at)); BLOCK];
            for (k, lanes) in lanes.iter_mut().enumerate().skip(1) {
                *lanes = R::load(src.add(at + k * R::BYTES));
            }
            for (k, lanes) in lanes.into_iter().enumerate() {
                lanes.store(dst.add(at + k * R::BYTES));
            }
            at += BLOCK * R::BYTES;
        }
        while bytes - at >= R::BYTES {
            R::load(src.add(at)).store(dst.add(at));
            at += R::BYTES;
        }
        let left = bytes - at;
        if left > 0 {
            R::load_part(src.add(at), left).store_part(dst.add(at), left);
        }
    }
}

/// Copies whole lines of `dst` with non-temporal stores, the ragged ends with ordinary ones, and fences.
///
/// # Safety
/// As [`copy`](super::copy), with the instructions of `R` (ARITH-1).
#[inline(always)]
pub(super) unsafe fn copy_streaming<R: Register>(dst: *mut u8, src: *const u8, bytes: usize) {
    let head = (dst.addr().wrapping_neg() % LINE_BYTES).min(bytes);
    let mut at = head;
    // SAFETY: `at` plus what is loaded and stored never exceeds `bytes` (ARITH-2), and from `head` on,
    // `dst + at` is aligned to a line, hence to a register.
    unsafe {
        copy::<R>(dst, src, head);
        while bytes - at >= LINE_BYTES {
            for k in 0..LINE_BYTES / R::BYTES {
                let offset = at + k * R::BYTES;
                R::load(src.add(offset)).stream(dst.add(offset));
            }
            at += LINE_BYTES;
        }
        copy::<R>(dst.add(at), src.add(at), bytes - at);
        R::fence();
    }
}

/// Copies a few bytes one by one. What is read may race as any vector load may; what is written is atomic.
///
/// # Safety
/// Both are accessible for `bytes` (ARITH-2).
#[inline(always)]
unsafe fn copy_bytes(dst: *mut u8, src: *const u8, bytes: usize) {
    for at in 0..bytes {
        // SAFETY: inside both ranges; a byte is always aligned; no reference is made to what is read (ARITH-4).
        unsafe {
            let byte = src.add(at).read_volatile();
            AtomicU8::from_ptr(dst.add(at)).store(byte, Relaxed);
        }
    }
}
