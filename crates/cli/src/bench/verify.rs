//! Inputs whose exact result is known in every dtype, for every reduction.

use super::collective::Collective;
use crate::job::small;
use ringwork::isa::{Element, ReduceOp};

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

    fn reduced<T: Element>(&self, i: usize) -> T {
        let all = (0..self.ranks).map(|rank| self.integer::<T>(rank, i));
        T::from_i64(match self.op.name() {
            "prod" => all.fold(1, i64::wrapping_mul),
            "max" => all.max().unwrap_or(0),
            "min" => all.min().unwrap_or(0),
            "avg" => 1,
            _ => all.sum(),
        })
    }

    /// Element `i` of `me`'s result, of `len`; `None` if nothing is promised there.
    pub(crate) fn result<T: Element>(&self, me: usize, i: usize, len: usize) -> Option<T> {
        Some(match self.collective {
            Collective::AllReduce => self.reduced(i),
            Collective::Reduce if me == self.root => self.reduced(i),
            Collective::Reduce => self.input(me, i),
            Collective::ReduceScatter => self.reduced(me * len + i),
            Collective::Broadcast => self.input(self.root, i),
            Collective::AllGather => self.gathered(i, len),
            Collective::Gather if me == self.root => self.gathered(i, len),
            Collective::Gather | Collective::Barrier => return None,
            Collective::Scatter => self.input(self.root, me * len + i),
            Collective::AllToAll => {
                let per = len / self.ranks;
                self.input(i / per, me * per + i % per)
            }
        })
    }

    fn gathered<T: Element>(&self, i: usize, len: usize) -> T {
        let per = len / self.ranks;
        self.input(i / per, i % per)
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
                for op in ReduceOp::ALL.into_iter().filter(|op| op.name() != "avg") {
                    for ranks in [1, 2, 3, 16, 64] {
                        let pattern = Pattern { collective: Collective::AllReduce, op, ranks, root: 0, salt: 3 };
                        for i in 0..200 {
                            let first = pattern.input::<T>(0, i).widen();
                            let folded = (1..ranks).fold(first, |acc, rank| {
                                T::combine(op, acc, pattern.input::<T>(rank, i).widen())
                            });
                            assert_eq!(T::narrow(folded), pattern.reduced::<T>(i), "{dtype} {op} {ranks} {i}");
                        }
                    }
                }
            });
        }
    }
}
