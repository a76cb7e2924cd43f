//! Broadcast: every rank gets the root's data. The last rank is the root.

use super::collective::Collective;
use super::{Choice, Example, describe_algorithm};
use crate::job::{Check, Job, pattern};
use ringwork::kernels;
use ringwork::prelude::*;

pub(super) const EXAMPLE: Example = Example {
    name: "broadcast",
    about: "the root's data, on all chips",
    min_devices: 1,
    max_devices: None,
    default_devices: 4,
    choice: Choice::Of(ringwork::isa::Collective::Broadcast),
    dtypes: &Dtype::ALL,
    counts_per_chip: |_| 2,
    describe: describe_algorithm,
    run,
};

fn run(job: &Job) -> ringwork::Result<Vec<Check>> {
    with_dtype!(job.dtype, T => typed::<T>(job))
}

fn typed<T: Element>(job: &Job) -> ringwork::Result<Vec<Check>> {
    let (count, root) = (job.count, job.devices.len() - 1);
    let broadcast = Collective::<T> {
        input: count,
        output: count,
        fill: Box::new(|rank, i| pattern(rank * 100 + i)),
        golden: Box::new(move |_, i| Some(pattern(root * 100 + i))),
    };
    let root = Rank(u32::try_from(root).unwrap_or(0));
    broadcast.run(job, |with| {
        kernels::broadcast::task(with.x, with.y, with.team, root, with.algorithm)
    })
}
