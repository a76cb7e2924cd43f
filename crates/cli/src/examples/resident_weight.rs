//! Chip memory that outlives a run: a weight is loaded once and used by every run after.

use super::{Choice, Example, describe_chip_size};
use crate::job::{Check, Job, pattern};
use ringwork::prelude::*;

pub(super) const EXAMPLE: Example = Example {
    name: "resident_weight",
    about: "chip memory reused over runs: a weight loaded once",
    min_devices: 1,
    max_devices: None,
    default_devices: 1,
    choice: Choice::Nothing,
    dtypes: &Dtype::ALL,
    counts_per_chip: |_| 4,
    describe: describe_chip_size,
    run,
};

/// `y[i] = weight[i] * x[i]`.
#[kernel]
async fn scale<C: Core, T: Element>(core: &C, weight: In<T>, x: In<T>, y: Out<T>) -> Result<()> {
    let (weight, x) = (core.load(weight).await?, core.load(x).await?);
    core.store(y, &core.mul(&weight, &x).await?).await
}

fn run(job: &Job) -> ringwork::Result<Vec<Check>> {
    with_dtype!(job.dtype, T => typed::<T>(job))
}

fn typed<T: Element>(job: &Job) -> ringwork::Result<Vec<Check>> {
    let node = job.launch(Node::builder())?;
    let mut chips = Vec::new();
    for chip in node.devices() {
        let values = |times: usize| {
            (0..job.count)
                .map(|i| pattern(i % 16 * times))
                .collect::<Vec<T>>()
        };
        let weight = node.tensor(chip, &values(3))?; // stays on the chip
        let outputs = [
            node.zeros::<T>(chip, job.count)?,
            node.zeros::<T>(chip, job.count)?,
        ];
        chips.push((chip, weight, node.tensor(chip, &values(1))?, outputs));
    }
    job.rounds(
        || {
            for run in 0..2 {
                node.run(|orch| {
                    for (chip, weight, x, y) in &chips {
                        orch.submit(*chip, scale::task(weight, x, &y[run]))?;
                    }
                    Ok(())
                })?;
            }
            Ok(())
        },
        || {
            let mut checks = Vec::new();
            for (chip, _, _, [first, second]) in &chips {
                let first = first.read()?;
                let product = |i: usize| {
                    let (weight, x) = (pattern::<T>(i % 16 * 3), pattern::<T>(i % 16));
                    T::narrow(T::combine(ReduceOp::Prod, weight.widen(), x.widen()))
                };
                checks.push(Check::compare(*chip, "first run", &first, product));
                checks.push(Check::compare(*chip, "second run", &second.read()?, |i| first[i]));
            }
            Ok(checks)
        },
    )
}
