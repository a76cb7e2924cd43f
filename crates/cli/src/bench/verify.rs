//! Inputs whose exact result is known in every dtype, for every reduction.

use crate::job::small;
use ringwork::isa::{Collective, Element, ReduceOp};

/// One checked call: who reduces what, with which salt, at which root.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pattern {
    pub(crate) collective: Collective,
    pub(crate) op: ReduceOp,
    pub(crate) ranks: usize,
    pub(crate) root: usize,
    pub(crate) salt: usize,
}

impl Pattern {
    /// Element `i` of `rank`'s input, as an integer that `T` holds exactly, as it does every partial result.
    fn integer<T: Element>(&self, rank: usize, i: usize) -> i64 {
        let turns = i
            .wrapping_mul(7)
            .wrapping_add(rank * 13)
            .wrapping_add(self.salt * 5);
        match (self.collective.reduces(), self.op.name()) {
            (true, "prod") if (i + self.salt) % self.ranks == rank => 2 + (i % 2) as i64,
            (true, "prod") => 1 - 2 * (turns % 2) as i64,
            // The mean of all is 1 in every type.
            (true, "avg") if self.ranks > 1 && rank == 0 => 2,
            (true, "avg") if self.ranks > 1 && rank == self.ranks - 1 => 0,
            (true, "avg") => 1,
            // Of more than 64 ranks each has less to say, so that all together stay exact.
            _ => small::<T>(turns) / self.ranks.div_ceil(64) as i64,
        }
    }

    /// Element `i` of `rank`'s input.
    pub(crate) fn input<T: Element>(&self, rank: usize, i: usize) -> T {
        T::from_i64(self.integer::<T>(rank, i))
    }

    /// Element `i` of the inputs of these ranks, reduced.
    fn reduced<T: Element>(&self, ranks: std::ops::Range<u32>, i: usize) -> T {
        let all = ranks.map(|rank| self.integer::<T>(rank as usize, i));
        T::from_i64(match self.op.name() {
            "prod" => all.fold(1, i64::wrapping_mul),
            "max" => all.max().unwrap_or(0),
            "min" => all.min().unwrap_or(0),
            "avg" => 1,
            "band" => all.fold(-1, |acc, next| acc & next),
            "bor" => all.fold(0, |acc, next| acc | next),
            "bxor" => all.fold(0, |acc, next| acc ^ next),
            _ => all.sum(),
        })
    }

    /// The result of rank `me`, of `len` elements; `None` where nothing is promised.
    pub(crate) fn results<T: Element>(&self, me: usize, len: usize) -> Vec<Option<T>> {
        let ranks = u32::try_from(self.ranks).unwrap_or(u32::MAX);
        let me = u32::try_from(me).unwrap_or(u32::MAX);
        // The size that gives a result of `len`.
        let elements = match self.collective.counts(self.ranks, self.ranks).recv {
            1 => len * self.ranks,
            _ => len,
        };
        let mut all = vec![None; len];
        for piece in self
            .collective
            .golden(me, ranks, u32::try_from(self.root).unwrap_or(0), elements)
        {
            for (i, value) in all[piece.output].iter_mut().enumerate() {
                *value = Some(match piece.ranks.len() {
                    1 => self.input(piece.ranks.start as usize, piece.start + i),
                    _ => self.reduced(piece.ranks.clone(), piece.start + i),
                });
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringwork::isa::{Dtype, with_dtype};

    #[test]
    fn every_partial_result_is_exact_in_every_type() {
        for dtype in Dtype::ALL {
            with_dtype!(dtype, T => {
                for op in ReduceOp::ALL.into_iter().filter(|op| op.name() != "avg" && op.is_for(dtype)) {
                    for ranks in [1usize, 2, 3, 16, 64] {
                        let pattern = Pattern { collective: Collective::AllReduce, op, ranks, root: 0, salt: 3 };
                        for i in 0..200 {
                            let first = pattern.input::<T>(0, i).widen();
                            let folded = (1..ranks).fold(first, |acc, rank| {
                                T::combine(op, acc, pattern.input::<T>(rank, i).widen())
                            });
                            assert_eq!(T::narrow(folded), pattern.reduced::<T>(0..u32::try_from(ranks).unwrap(), i), "{dtype} {op} {ranks} {i}");
                        }
                    }
                }
            });
        }
    }
}
