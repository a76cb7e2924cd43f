//! All-gather: every rank gets everybody's data, in rank order.

use super::collective::Collective;
use super::{Choice, Example, describe_algorithm};
use crate::job::{Check, Job, pattern};
use ringwork::kernels;
use ringwork::prelude::*;

pub(super) const EXAMPLE: Example = Example {
    name: "allgather",
    about: "everybody's data, on all chips",
    min_devices: 1,
    max_devices: None,
    default_devices: 4,
    choice: Choice::Of(ringwork::isa::Collective::AllGather),
    dtypes: &Dtype::ALL,
    counts_per_chip: |ranks| 1 + ranks,
    describe: describe_algorithm,
    run,
};

fn run(job: &Job) -> ringwork::Result<Vec<Check>> {
    with_dtype!(job.dtype, T => typed::<T>(job))
}

fn typed<T: Element>(job: &Job) -> ringwork::Result<Vec<Check>> {
    let (count, ranks) = (job.count, job.devices.len());
    let all_gather = Collective::<T> {
        input: count,
        output: ranks * count,
        fill: Box::new(|rank, i| pattern(rank * 100 + i)),
        golden: Box::new(move |_, i| Some(pattern(i / count * 100 + i % count))),
    };
    all_gather.run(job, |with| {
        kernels::all_gather::task(with.x, with.y, with.team, with.algorithm)
    })
}
