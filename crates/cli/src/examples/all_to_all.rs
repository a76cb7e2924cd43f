//! All-to-all: every rank sends a different part to every rank.

use super::collective::Collective;
use super::{Choice, Example, describe_algorithm};
use crate::job::{Check, Job, pattern};
use ringwork::kernels;
use ringwork::prelude::*;

pub(super) const EXAMPLE: Example = Example {
    name: "all_to_all",
    about: "a different part from every chip to every chip",
    min_devices: 1,
    max_devices: None,
    default_devices: 4,
    choice: Choice::Of(ringwork::isa::Collective::AllToAll),
    dtypes: &Dtype::ALL,
    counts_per_chip: |ranks| 2 * ranks,
    describe: describe_algorithm,
    run,
};

fn run(job: &Job) -> ringwork::Result<Vec<Check>> {
    with_dtype!(job.dtype, T => typed::<T>(job))
}

fn typed<T: Element>(job: &Job) -> ringwork::Result<Vec<Check>> {
    let (count, ranks) = (job.count, job.devices.len());
    let all_to_all = Collective::<T> {
        input: ranks * count,
        output: ranks * count,
        fill: Box::new(move |source, i| pattern(source * 1000 + i / count * 100 + i % count)),
        golden: Box::new(move |me, i| Some(pattern(i / count * 1000 + me * 100 + i % count))),
    };
    all_to_all.run(job, |with| {
        kernels::all_to_all::task(with.x, with.y, with.team, with.algorithm)
    })
}
