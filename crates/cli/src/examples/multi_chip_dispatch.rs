//! A kernel on each of several chips, and a host closure that collects the results.

use super::vector_add::{add, sum};
use super::{Choice, Example, describe_chip_size};
use crate::job::{Check, Job, pattern};
use ringwork::prelude::*;
use std::cell::RefCell;

pub(super) const EXAMPLE: Example = Example {
    name: "multi_chip_dispatch",
    about: "a kernel on each of several chips, a host closure that collects",
    min_devices: 1,
    max_devices: None,
    default_devices: 4,
    choice: Choice::Nothing,
    dtypes: &Dtype::ALL,
    counts_per_chip: |_| 3,
    describe: describe_chip_size,
    run,
};

fn run(job: &Job) -> ringwork::Result<Vec<Check>> {
    with_dtype!(job.dtype, T => typed::<T>(job))
}

fn typed<T: Element>(job: &Job) -> ringwork::Result<Vec<Check>> {
    let node = job.launch(Node::builder())?;
    let chips = node.devices();
    let mut inputs = Vec::new();
    for (rank, chip) in chips.iter().enumerate() {
        let values = |offset: usize| {
            (0..job.count)
                .map(|i| pattern(rank * 100 + i + offset))
                .collect::<Vec<T>>()
        };
        inputs.push((
            node.tensor(*chip, &values(0))?,
            node.tensor(*chip, &values(7))?,
            node.zeros::<T>(*chip, job.count)?,
        ));
    }
    let collected = RefCell::new(Vec::<Vec<T>>::new());
    job.rounds(
        || {
            node.run(|orch| {
                for (chip, (a, b, y)) in chips.iter().zip(&inputs) {
                    orch.submit(*chip, add::task(a, b, y))?;
                }
                let collect = || {
                    inputs
                        .iter()
                        .map(|(_, _, y)| y.read())
                        .collect::<ringwork::Result<Vec<Vec<T>>>>()
                };
                *collected.borrow_mut() = orch.host("collect", collect)?;
                Ok(())
            })
        },
        || {
            let golden = |rank: usize, i: usize| sum(pattern(rank * 100 + i), pattern(rank * 100 + i + 7));
            let collected = collected.borrow();
            let results = chips.iter().zip(&*collected).enumerate();
            Ok(results
                .map(|(rank, (chip, y))| Check::compare(*chip, "", y, |i| golden(rank, i)))
                .collect())
        },
    )
}
