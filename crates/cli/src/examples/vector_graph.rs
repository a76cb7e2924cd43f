//! A chip's own graph of five tasks, `(a+b+1)(a+b+2)+(a+b)`, built three ways from the same source.

use super::vector_add::add;
use super::{Choice, Example, describe_chip_size};
use crate::job::{Check, Job};
use ringwork::prelude::*;
use ringwork::runtime::chip::explicit;

pub(super) const EXAMPLE: Example = Example {
    name: "vector_graph",
    about: "five tasks on a chip's cores: edges inferred, explicit, and captured on the host",
    min_devices: 1,
    max_devices: None,
    default_devices: 2,
    choice: Choice::Nothing,
    dtypes: &Dtype::ALL,
    counts_per_chip: |_| 9,
    describe: describe_chip_size,
    run,
};

const TILE: usize = 4096;

/// `y[i] = x[i] + value`
#[kernel]
async fn add_value<C: Core, T: Element>(core: &C, x: In<T>, y: Out<T>, value: i64) -> Result<()> {
    for start in (0..y.len()).step_by(TILE) {
        let tile = start..y.len().min(start + TILE);
        let values = Tile::new(vec![T::from_i64(value); tile.len()]);
        let sum = core
            .add(&core.load(x.slice(tile.clone())?).await?, &values)
            .await?;
        core.store(y.slice(tile)?, &sum).await?;
    }
    Ok(())
}

/// `y[i] = a[i] * b[i]`
#[kernel]
async fn multiply<C: Core, T: Element>(core: &C, a: In<T>, b: In<T>, y: Out<T>) -> Result<()> {
    for start in (0..y.len()).step_by(TILE) {
        let tile = start..y.len().min(start + TILE);
        let (left, right) = (
            core.load(a.slice(tile.clone())?).await?,
            core.load(b.slice(tile.clone())?).await?,
        );
        core.store(y.slice(tile)?, &core.mul(&left, &right).await?)
            .await?;
    }
    Ok(())
}

/// The graph. The edges it gives are those that would be inferred; so it means the same whichever way.
#[orchestration]
fn formula<T: Element>(orch: &mut ChipOrchestrator<'_>, a: In<T>, b: In<T>, y: Out<T>) -> Result<()> {
    let sum = orch.intermediate::<T>(y.len())?;
    let summed = orch.submit(CoreKind::Vector, add::task(a, b, sum))?;
    orch.scope(|orch| {
        let product = orch.intermediate::<T>(y.len())?;
        let multiplied = orch.scope(|orch| {
            let (one, two) = (orch.intermediate::<T>(y.len())?, orch.intermediate::<T>(y.len())?);
            let first = orch
                .after([summed])
                .submit(CoreKind::Vector, add_value::task(sum, one, 1i64))?;
            let second = orch
                .after([summed])
                .submit(CoreKind::Vector, add_value::task(sum, two, 2i64))?;
            let both = orch.after([first, second]);
            both.submit(CoreKind::Vector, multiply::task(one, two, product))
        })?;
        orch.after([multiplied, summed])
            .submit(CoreKind::Vector, add::task(product, sum, y))?;
        Ok(())
    })
}

fn run(job: &Job) -> ringwork::Result<Vec<Check>> {
    with_dtype!(job.dtype, T => typed::<T>(job))
}

/// 0 or 1, so that the result is exact in every type.
fn bit(value: usize) -> i64 {
    i64::from(value % 2 == 1)
}

fn values<T: Element>(job: &Job, chip: usize, times: usize) -> Vec<T> {
    let value = |i: usize| T::from_i64(bit(chip + i * times));
    (0..job.count).map(value).collect()
}

fn golden<T: Element>(chip: usize, i: usize) -> T {
    let sum = bit(chip + i) + bit(chip + i * 2);
    T::from_i64((sum + 1) * (sum + 2) + sum)
}

fn typed<T: Element>(job: &Job) -> ringwork::Result<Vec<Check>> {
    let node = job.launch(Node::builder())?;
    let chips = node.devices();
    let ways = ["inferred", "explicit", "captured"];
    let mut memory = Vec::new();
    for (at, chip) in chips.iter().enumerate() {
        let a = node.tensor(*chip, &values::<T>(job, at, 1))?;
        let b = node.tensor(*chip, &values::<T>(job, at, 2))?;
        let mut y = Vec::new();
        for _ in ways {
            y.push(node.zeros::<T>(*chip, job.count)?);
        }
        // Captured with other inputs than it is replayed with.
        let graph = node.capture(*chip, &formula::task::<T>(&b, &a, &y[0]))?;
        memory.push((a, b, y, graph));
    }
    job.rounds(
        || {
            for y in memory.iter().flat_map(|(_, _, y, _)| y) {
                y.write(&vec![T::from_i64(0); job.count])?;
            }
            node.run(|orch| {
                for (chip, (a, b, y, graph)) in chips.iter().zip(&memory) {
                    orch.submit(*chip, formula::task::<T>(a, b, &y[0]))?;
                    orch.submit(*chip, explicit(formula::task::<T>(a, b, &y[1])))?;
                    orch.submit(*chip, graph.replay(&formula::task::<T>(a, b, &y[2]))?)?;
                }
                Ok(())
            })
        },
        || {
            let mut checks = Vec::new();
            for (at, (chip, (_, _, y, _))) in chips.iter().zip(&memory).enumerate() {
                for (way, y) in ways.iter().zip(y) {
                    checks.push(Check::compare(*chip, *way, &y.read()?, |i| golden(at, i)));
                }
            }
            Ok(checks)
        },
    )
}
