//! All-reduce: every rank gets the sum over all of them.

use super::collective::Collective;
use super::{Choice, Example, describe_algorithm};
use crate::job::{Check, Job, pattern, sum_of_patterns};
use ringwork::kernels;
use ringwork::prelude::*;

pub(super) const EXAMPLE: Example = Example {
    name: "allreduce",
    about: "the sum over all chips, on all chips",
    min_devices: 1,
    max_devices: None,
    default_devices: 4,
    choice: Choice::Of(ringwork::isa::Collective::AllReduce),
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
    let all_reduce = Collective::<T> {
        input: count,
        output: count,
        fill: Box::new(|rank, i| pattern(rank * 100 + i)),
        golden: Box::new(move |_, i| Some(sum_of_patterns(ranks, |rank| rank * 100 + i))),
    };
    all_reduce.run(job, |with| {
        kernels::all_reduce::task(with.x, with.y, with.team, ReduceOp::Sum, with.algorithm)
    })
}
