//! The inner loops of `copy` and `reduce`.
use ringwork_isa::{Dtype, Element, ReduceOp, with_dtype};

pub(crate) unsafe fn copy(dst: *mut u8, src: *const u8, bytes: usize) {
    // SAFETY: the caller's promise.
    unsafe { std::ptr::copy(src, dst, bytes) }
}

pub(crate) unsafe fn reduce(dtype: Dtype, op: ReduceOp, dst: *mut u8, sources: &[*const u8], count: usize) {
    with_dtype!(dtype, T => {
        for i in 0..count {
            // SAFETY: the caller's promise.
            let read = |s: &*const u8| unsafe { s.cast::<T>().add(i).read() }.widen();
            let mut acc = read(&sources[0]);
            for s in &sources[1..] { acc = T::combine(op, acc, read(s)); }
            // SAFETY: the caller's promise.
            unsafe { dst.cast::<T>().add(i).write(T::narrow(acc)) }
        }
    });
}
