//! Two gangs that share a chip: each needs it, each waits inside its kernels, and neither gets in the other's way.

use super::overlapping_domains::{Half, halves};
use super::{Choice, Example, describe_size};
use crate::job::{Check, Job};
use ringwork::isa::Collective;
use ringwork::prelude::*;

pub(super) const EXAMPLE: Example = Example {
    name: "two_groups",
    about: "two gangs sharing a chip, which cannot deadlock",
    min_devices: 2,
    max_devices: None,
    default_devices: 3,
    choice: Choice::OfSome(Collective::AllReduce),
    dtypes: &Dtype::ALL,
    counts_per_chip: |_| 4,
    describe: |job| format!("6 {} sums of {}", job.entry.algorithm, describe_size(job)),
    run,
};

fn run(job: &Job) -> ringwork::Result<Vec<Check>> {
    with_dtype!(job.dtype, T => typed::<T>(job))
}

fn typed<T: Element>(job: &Job) -> ringwork::Result<Vec<Check>> {
    let node = job.launch(Node::builder())?;
    let gangs = halves::<T>(job, &node)?;
    job.rounds(
        || {
            for gang in &gangs {
                for y in &gang.y {
                    y.write(&vec![T::from_i64(0); job.count])?;
                }
            }
            // Nobody waits in between. A group starts when all its chips are free, and has them to itself.
            node.run(|orch| {
                [0, 1, 1, 0, 0, 1]
                    .iter()
                    .try_for_each(|&gang| gangs[gang].reduce(orch, job))
            })
        },
        || {
            let mut checks = Vec::new();
            for gang in &gangs {
                checks.extend(Half::checks(gang)?);
            }
            Ok(checks)
        },
    )
}
