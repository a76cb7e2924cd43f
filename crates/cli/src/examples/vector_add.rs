//! One chip, one kernel: `y = a + b`.

use super::{Choice, Example, describe_chip_size};
use crate::job::{Check, Job, pattern};
use ringwork::prelude::*;

pub(super) const EXAMPLE: Example = Example {
    name: "vector_add",
    about: "one chip, one kernel: a + b",
    min_devices: 1,
    max_devices: Some(1),
    default_devices: 1,
    choice: Choice::Nothing,
    dtypes: &Dtype::ALL,
    counts_per_chip: |_| 3,
    describe: describe_chip_size,
    run,
};

/// `y[i] = a[i] + b[i]`, a tile at a time.
#[kernel]
pub(super) async fn add<C: Core, T: Element>(core: &C, a: In<T>, b: In<T>, y: Out<T>) -> Result<()> {
    const TILE: usize = 4096;
    for start in (0..y.len()).step_by(TILE) {
        let tile = start..y.len().min(start + TILE);
        let (left, right) = (
            core.load(a.slice(tile.clone())?).await?,
            core.load(b.slice(tile.clone())?).await?,
        );
        core.store(y.slice(tile)?, &core.add(&left, &right).await?)
            .await?;
    }
    Ok(())
}

fn run(job: &Job) -> ringwork::Result<Vec<Check>> {
    with_dtype!(job.dtype, T => typed::<T>(job))
}

fn typed<T: Element>(job: &Job) -> ringwork::Result<Vec<Check>> {
    let node = job.launch(Node::builder())?;
    let chip = node.devices()[0];
    let values = |times: usize| (0..job.count).map(|i| pattern(i * times)).collect::<Vec<T>>();
    let (a, b) = (node.tensor(chip, &values(1))?, node.tensor(chip, &values(2))?);
    let y = node.zeros::<T>(chip, job.count)?;
    job.rounds(
        || node.run(|orch| orch.submit(chip, add::task(&a, &b, &y))),
        || {
            Ok(vec![Check::compare(chip, "", &y.read()?, |i| {
                sum(pattern(i), pattern(i * 2))
            })])
        },
    )
}

/// The golden value: the two added, rounded once.
pub(super) fn sum<T: Element>(a: T, b: T) -> T {
    T::narrow(T::combine(ReduceOp::Sum, a.widen(), b.widen()))
}
