//! Data in this process's own memory, between a caller's buffer and messages.

use super::Hosts;
use crate::erased::{AnyInput, AnyOutput};
use crate::error::Result;
use crate::lending::between;
use ringwork_isa::{Core, Dtype, Element, ReduceOp, bf16, f8e4m3, f8e5m2, f16, with_dtype};
use ringwork_mpi::Buffer;

impl Hosts {
    /// A copy of what a call reads.
    pub(crate) fn read(&self, input: AnyInput<'_>) -> Result<Buffer> {
        let mut own = Buffer::zeroed(input.bytes());
        let dtype = input.dtype();
        self.copy(input, output(dtype, own.bytes_mut()))?;
        Ok(own)
    }

    /// Copies the result of a call to where its caller wants it.
    pub(crate) fn write(&self, to: AnyOutput<'_>, bytes: &[u8]) -> Result<()> {
        let dtype = to.dtype();
        self.copy(input(dtype, bytes), to)
    }

    fn copy(&self, from: AnyInput<'_>, to: AnyOutput<'_>) -> Result<()> {
        if from.len() == 0 {
            return Ok(());
        }
        let core = self.here.core();
        Ok(between(core, from, to, |x, y| {
            core.run(async { core.copy(y, x).await })
        })?)
    }
}

/// Own bytes as what a call reads.
pub(crate) fn input(dtype: Dtype, bytes: &[u8]) -> AnyInput<'_> {
    AnyInput::Own(dtype, bytes.into())
}

/// Own bytes as what a call writes.
pub(crate) fn output(dtype: Dtype, bytes: &mut [u8]) -> AnyOutput<'_> {
    AnyOutput::Own(dtype, bytes.into())
}

/// What partial results are kept in, and how they are combined: sums of short floats in f32, so that they are rounded once;
/// an average is a sum until its end.
pub(crate) fn partial(dtype: Dtype, op: ReduceOp) -> (Dtype, ReduceOp) {
    let sums = matches!(op, ReduceOp::Sum | ReduceOp::Prod | ReduceOp::Avg);
    let short = dtype.is_float() && dtype.bytes() < 4;
    let wide = if sums && short { Dtype::F32 } else { dtype };
    let op = if op == ReduceOp::Avg { ReduceOp::Sum } else { op };
    (wide, op)
}

/// Elements as they are in partial results of type `wide`.
pub(crate) fn widened(dtype: Dtype, wide: Dtype, own: Buffer) -> Buffer {
    fn all<T: Element<Wide = f32>>(own: &Buffer) -> Buffer {
        let from: &[T] = bytemuck::cast_slice(own.bytes());
        let mut wide = Buffer::zeroed(from.len() * 4);
        let to: &mut [f32] = bytemuck::cast_slice_mut(wide.bytes_mut());
        for (to, from) in to.iter_mut().zip(from) {
            *to = from.widen();
        }
        wide
    }
    match dtype {
        _ if dtype == wide => own,
        Dtype::F16 => all::<f16>(&own),
        Dtype::BF16 => all::<bf16>(&own),
        Dtype::F8E4M3 => all::<f8e4m3>(&own),
        Dtype::F8E5M2 => all::<f8e5m2>(&own),
        _ => own,
    }
}

/// The elements of a result that is complete in `wide`, from `ranks` ranks.
pub(crate) fn narrowed(dtype: Dtype, wide: Dtype, own: Buffer, op: ReduceOp, ranks: usize) -> Buffer {
    fn all<T: Element<Wide = f32>>(own: &Buffer, op: ReduceOp, ranks: usize) -> Buffer {
        let from: &[f32] = bytemuck::cast_slice(own.bytes());
        let mut narrow = Buffer::zeroed(size_of_val(from) / 4 * size_of::<T>());
        let to: &mut [T] = bytemuck::cast_slice_mut(narrow.bytes_mut());
        for (to, from) in to.iter_mut().zip(from) {
            *to = T::narrow(T::finish(op, *from, ranks));
        }
        narrow
    }
    match dtype {
        _ if dtype == wide && op != ReduceOp::Avg => own,
        _ if dtype == wide => with_dtype!(dtype, T => {
            let mut own = own;
            let all: &mut [T] = bytemuck::cast_slice_mut(own.bytes_mut());
            for value in all {
                *value = T::narrow(T::finish(op, value.widen(), ranks));
            }
            own
        }),
        Dtype::F16 => all::<f16>(&own, op, ranks),
        Dtype::BF16 => all::<bf16>(&own, op, ranks),
        Dtype::F8E4M3 => all::<f8e4m3>(&own, op, ranks),
        Dtype::F8E5M2 => all::<f8e5m2>(&own, op, ranks),
        _ => own,
    }
}

/// `sum[i]` becomes `op(sum[i], next[i])`.
pub(crate) fn combine(dtype: Dtype, op: ReduceOp, sum: &mut [u8], next: &[u8]) {
    fn all<T: Element>(op: ReduceOp, sum: &mut [T], next: &[T]) {
        for (sum, next) in sum.iter_mut().zip(next) {
            *sum = T::narrow(T::combine(op, sum.widen(), next.widen()));
        }
    }
    with_dtype!(dtype, T => {
        let (sum, next): (&mut [T], &[T]) = (bytemuck::cast_slice_mut(sum), bytemuck::cast_slice(next));
        match op {
            // A constant operator, so that the loop has no choice in it.
            ReduceOp::Sum => all(ReduceOp::Sum, sum, next),
            op => all(op, sum, next),
        }
    });
}

/// The reduction of the `ranks` parts of `all`, in their order, rounded once.
pub(crate) fn folded(dtype: Dtype, op: ReduceOp, all: &[u8], ranks: usize) -> Buffer {
    let mut folded = Buffer::zeroed(all.len() / ranks.max(1));
    with_dtype!(dtype, T => {
        let (from, to): (&[T], &mut [T]) = (bytemuck::cast_slice(all), bytemuck::cast_slice_mut(folded.bytes_mut()));
        let len = to.len();
        for (i, to) in to.iter_mut().enumerate() {
            let mut sum = from[i].widen();
            for rank in 1..ranks {
                sum = T::combine(op, sum, from[rank * len + i].widen());
            }
            *to = T::narrow(T::finish(op, sum, ranks));
        }
    });
    folded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_floats_are_added_in_f32_and_rounded_once() {
        let (wide, op) = partial(Dtype::BF16, ReduceOp::Avg);
        assert_eq!((wide, op), (Dtype::F32, ReduceOp::Sum));
        let value = |v: f32| Buffer::of(bytemuck::cast_slice(&[bf16::from_f32(v)]));
        let mut sum = widened(Dtype::BF16, wide, value(256.0));
        for _ in 0..3 {
            // Each alone is lost in a sum of bf16.
            let one = widened(Dtype::BF16, wide, value(1.0));
            combine(wide, op, sum.bytes_mut(), one.bytes());
        }
        let sum = narrowed(Dtype::BF16, wide, sum, ReduceOp::Sum, 4);
        assert_eq!(
            bytemuck::cast_slice::<u8, bf16>(sum.bytes()),
            [bf16::from_f32(260.0)]
        );
        assert_eq!(partial(Dtype::BF16, ReduceOp::Max), (Dtype::BF16, ReduceOp::Max));
    }

    #[test]
    fn a_fold_takes_the_ranks_in_order() {
        let all: Vec<f32> = vec![1e8, 1.0, -1e8, 1.0, 1.0, 2.0];
        let folded = folded(Dtype::F32, ReduceOp::Sum, bytemuck::cast_slice(&all), 3);
        assert_eq!(
            bytemuck::cast_slice::<u8, f32>(folded.bytes()),
            [1e8 - 1e8 + 1.0, 4.0]
        );
    }
}
