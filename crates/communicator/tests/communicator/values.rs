//! Inputs for which rounding and order show, and what every operation must make of them.

use super::spmd::Rng;
use ringwork_isa::{Element, ReduceOp};

/// Element `i` of rank `rank`, for reductions by `op`.
pub(crate) fn value<T: Element>(op: ReduceOp, rank: u32, i: usize) -> T {
    let bits = Rng(u64::from(rank) << 40 ^ i as u64).next_u64();
    if op == ReduceOp::Prod {
        return T::from_i64((bits % 5) as i64 - 2);
    }
    // A fraction, where the type has them: integers truncate.
    T::from_f64(((bits % 20_001) as f64 - 10_000.0) / 64.0)
}

pub(crate) fn values<T: Element>(op: ReduceOp, rank: u32, range: std::ops::Range<usize>) -> Vec<T> {
    range.map(|i| value(op, rank, i)).collect()
}

/// Element `i` reduced over all ranks, in rank order, rounded once.
pub(crate) fn reduced<T: Element>(op: ReduceOp, ranks: u32, i: usize) -> T {
    let first = value::<T>(op, 0, i).widen();
    let wide = (1..ranks).fold(first, |acc, rank| {
        T::combine(op, acc, value::<T>(op, rank, i).widen())
    });
    T::narrow(T::finish(op, wide, ranks as usize))
}

/// The same bits; `what` says where not.
#[track_caller]
pub(crate) fn assert_bits<T: Element>(got: &[T], wanted: impl Fn(usize) -> T, what: &str) {
    for (i, got) in got.iter().enumerate() {
        let wanted = wanted(i);
        assert!(
            bytemuck::bytes_of(got) == bytemuck::bytes_of(&wanted),
            "{what}: element {i} is {got}, not {wanted}"
        );
    }
}
