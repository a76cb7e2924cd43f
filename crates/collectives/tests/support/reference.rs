//! What every collective must produce, computed the plain way, and inputs that make mistakes show.

use super::calls::{Call, Op};
use ringwork_isa::{Element, ReduceOp, part_range};
use ringwork_testkit::Rng;

/// An input for which rounding and order show.
pub fn messy<T: Element>(rng: &mut Rng, op: ReduceOp) -> T {
    let bits = rng.next_u64();
    let value = match op {
        // No zeros and little overflow, so that no NaN appears.
        ReduceOp::Prod => [0.5, 0.75, 1.0, 1.25, 1.5, -1.0, -0.8, 1.1][(bits % 8) as usize],
        _ => (bits % 20_001) as f64 / 100.0 - 100.0,
    };
    match T::DTYPE.is_float() {
        true => T::from_f64(value),
        false => T::from_i64(bits as i64),
    }
}

/// An input whose reductions are exact in any order, for algorithms that do not promise one.
pub fn tame<T: Element>(rng: &mut Rng, op: ReduceOp, rank: usize) -> T {
    let bits = rng.next_u64();
    match op {
        ReduceOp::Prod if rank % 8 == 3 => T::from_i64([1, 2, -1][(bits % 3) as usize]),
        ReduceOp::Prod => T::from_i64(1),
        // Few enough for the sum of eight ranks to be exact in every type.
        ReduceOp::Sum | ReduceOp::Avg => {
            T::from_i64((bits >> 1) as i64 % (T::DTYPE.exact_integers() / 8).clamp(2, 4))
        }
        _ => T::from_i64((bits % 120) as i64 - 60),
    }
}

/// Element `i` of all inputs, reduced in rank order in the accumulator, rounded once.
pub fn fold<T: Element>(inputs: &[Vec<T>], op: ReduceOp, i: usize) -> T {
    let mut wide = inputs[0][i].widen();
    for input in &inputs[1..] {
        wide = T::combine(op, wide, input[i].widen());
    }
    T::narrow(T::finish(op, wide, inputs.len()))
}

/// Each rank's output; `None` where it must not be touched.
pub fn expected<T: Element>(call: &Call, inputs: &[Vec<T>]) -> Vec<Option<Vec<T>>> {
    let (ranks, n) = (inputs.len(), call.count);
    let folded = |range: std::ops::Range<usize>| range.map(|i| fold(inputs, call.reduce, i)).collect();
    let before = |end: usize| (0..n).map(|i| fold(&inputs[..end], call.reduce, i)).collect();
    let concat = || inputs.concat();
    let one = |rank: usize| match call.op {
        Op::AllReduce(_) | Op::WindowAllReduce(_) => Some(folded(0..n)),
        Op::ReduceScatter | Op::WindowReduceScatter | Op::PacketReduceScatter => {
            Some(folded(part_range(n, ranks, rank)))
        }
        Op::Reduce => (rank == call.root).then(|| folded(0..n)),
        Op::AllGather | Op::WindowAllGather | Op::PacketAllGather | Op::PulledAllGather => Some(concat()),
        Op::Gather => (rank == call.root).then(concat),
        Op::Broadcast | Op::WindowBroadcast | Op::PacketBroadcast => Some(inputs[call.root].clone()),
        Op::Scatter => Some(inputs[call.root][rank * n..(rank + 1) * n].to_vec()),
        Op::AllToAll | Op::PacketAllToAll | Op::PulledAllToAll => {
            let part = part_range(n, ranks, rank);
            Some(
                inputs
                    .iter()
                    .flat_map(|input| input[part.clone()].to_vec())
                    .collect(),
            )
        }
        Op::Scan => Some(before(rank + 1)),
        Op::ExclusiveScan => (rank > 0).then(|| before(rank)),
        Op::Barrier => None,
    };
    (0..ranks).map(one).collect()
}
