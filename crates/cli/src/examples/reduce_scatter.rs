//! Reduce-scatter: every rank gets its part of the sum.

use super::collective::Collective;
use super::{Choice, Example, describe_algorithm};
use crate::job::{Check, Job, pattern, sum_of_patterns};
use ringwork::kernels;
use ringwork::prelude::*;

pub(super) const EXAMPLE: Example = Example {
    name: "reduce_scatter",
    about: "each chip its part of the sum over all chips",
    min_devices: 1,
    max_devices: None,
    default_devices: 4,
    choice: Choice::Of(ringwork::isa::Collective::ReduceScatter),
    dtypes: &Dtype::ALL,
    counts_per_chip: |ranks| ranks + 1,
    describe: describe_algorithm,
    run,
};

fn run(job: &Job) -> ringwork::Result<Vec<Check>> {
    with_dtype!(job.dtype, T => typed::<T>(job))
}

fn typed<T: Element>(job: &Job) -> ringwork::Result<Vec<Check>> {
    let (count, ranks) = (job.count, job.devices.len());
    let reduce_scatter = Collective::<T> {
        input: ranks * count,
        output: count,
        fill: Box::new(|rank, i| pattern(i + 100 * rank)),
        golden: Box::new(move |me, j| Some(sum_of_patterns(ranks, |rank| me * count + j + 100 * rank))),
    };
    reduce_scatter.run(job, |with| {
        kernels::reduce_scatter::task(with.x, with.y, with.team, ReduceOp::Sum, with.algorithm)
    })
}
