//! Reduce: the root alone gets the sum. The last rank is the root.

use super::collective::Collective;
use super::{Choice, Example, describe_algorithm};
use crate::job::{Check, Job, pattern, sum_of_patterns};
use ringwork::kernels;
use ringwork::prelude::*;

pub(super) const EXAMPLE: Example = Example {
    name: "reduce",
    about: "the sum over all chips, on the root alone",
    min_devices: 1,
    max_devices: None,
    default_devices: 4,
    choice: Choice::Of(ringwork::isa::Collective::Reduce),
    dtypes: &Dtype::ALL,
    counts_per_chip: |_| 2,
    describe: describe_algorithm,
    run,
};

fn run(job: &Job) -> ringwork::Result<Vec<Check>> {
    with_dtype!(job.dtype, T => typed::<T>(job))
}

fn typed<T: Element>(job: &Job) -> ringwork::Result<Vec<Check>> {
    let (count, ranks) = (job.count, job.devices.len());
    let root = ranks - 1;
    let reduce = Collective::<T> {
        input: count,
        output: count,
        fill: Box::new(|rank, i| pattern(rank * 100 + i)),
        golden: Box::new(move |me, i| (me == root).then(|| sum_of_patterns(ranks, |rank| rank * 100 + i))),
    };
    let root = Rank(u32::try_from(root).unwrap_or(0));
    reduce.run(job, |with| {
        kernels::reduce::task(with.x, with.y, with.team, ReduceOp::Sum, root, with.algorithm)
    })
}
