//! All-reduce over all chips: a domain, a window, signals, and a collective as a kernel.

use super::{Example, describe_size};
use crate::job::{Check, Job, pattern, sum_of_patterns};
use ringwork::collectives::Team;
use ringwork::kernels;
use ringwork::prelude::*;

pub(super) const EXAMPLE: Example = Example {
    name: "allreduce",
    about: "a domain, its window, its signals: the sum over all chips, on all chips (--algo)",
    min_devices: 1,
    max_devices: None,
    default_devices: 4,
    takes_algo: true,
    dtypes: &Dtype::ALL,
    counts_per_chip: |_| 2,
    describe: |job| format!("{} sum of {}", job.algorithm, describe_size(job)),
    run,
};

fn run(job: &Job) -> ringwork::Result<Vec<Check>> {
    with_dtype!(job.dtype, T => typed::<T>(job))
}

fn typed<T: Element>(job: &Job) -> ringwork::Result<Vec<Check>> {
    let node = job.launch(Node::builder())?;
    let chips = node.devices();
    let spec = DomainSpec::new("tp", chips.clone())
        .buffer::<T>("scratch", (2 * job.count).clamp(256, 1 << 20))
        .barrier("meet")
        .signals("steps", Team::STEP_CELLS);
    let tp = node.open_domain(&spec)?;
    let (scratch, meet, steps) = (
        tp.buffer::<T>("scratch")?,
        tp.barrier("meet")?,
        tp.signals("steps")?,
    );

    let (mut x, mut y) = (Vec::new(), Vec::new());
    for (rank, chip) in chips.iter().enumerate() {
        let values: Vec<T> = (0..job.count).map(|i| pattern(rank * 100 + i)).collect();
        x.push(node.tensor(*chip, &values)?);
        y.push(node.zeros::<T>(*chip, job.count)?);
    }
    let rank_of = |chip: Device| tp.rank_of(chip).map_or(0, |rank| rank.0 as usize);
    job.rounds(
        || {
            node.run(|orch| {
                orch.group(chips.iter().copied(), |chip| {
                    let (x, y) = (&x[rank_of(chip)], &y[rank_of(chip)]);
                    Ok(kernels::all_reduce::task(
                        x,
                        y,
                        &scratch,
                        &meet,
                        &steps,
                        ReduceOp::Sum,
                        job.algorithm,
                    ))
                })
            })
        },
        || {
            let golden = |i| sum_of_patterns(chips.len(), |rank| rank * 100 + i);
            let check = |(rank, chip): (usize, &Device)| {
                Ok(Check::compare(
                    *chip,
                    format!("rank {rank}"),
                    &y[rank].read()?,
                    golden,
                ))
            };
            chips.iter().enumerate().map(check).collect()
        },
    )
}
