//! A pod over two nodes: each sums over its own chips, the pod adds the two, and every chip gets the total.

use super::{Example, describe_size};
use crate::job::{Check, Job, pattern, sum_of_patterns};
use ringwork::collectives::{Team, kernels};
use ringwork::prelude::*;

pub(super) const EXAMPLE: Example = Example {
    name: "pod",
    about: "a worker over two nodes: all-reduce over the chips of both",
    min_devices: 2,
    max_devices: None,
    default_devices: 4,
    takes_algo: true,
    dtypes: &Dtype::ALL,
    counts_per_chip: |_| 3,
    describe: |job| format!("{} sum of {} over two nodes", job.algorithm, describe_size(job)),
    run,
};

fn run(job: &Job) -> ringwork::Result<Vec<Check>> {
    with_dtype!(job.dtype, T => typed::<T>(job))
}

/// A node's part: its domain, and on each chip an input and an output.
struct Half<T> {
    domain: Domain,
    x: Vec<Tensor<T>>,
    y: Vec<Tensor<T>>,
}

fn typed<T: Element>(job: &Job) -> ringwork::Result<Vec<Check>> {
    let pod = job.launch_pod()?;
    let mut halves = Vec::new();
    let mut first = 0;
    for node in pod.children() {
        halves.push(open::<T>(job, node, first)?);
        first += node.devices().len();
    }
    let (ranks, algorithm) = (first, job.algorithm);
    job.rounds(
        || {
            let sums: Vec<_> = halves.iter().map(|_| pod.tensor(Vec::<T>::new())).collect();
            let total = pod.tensor(Vec::<T>::new());
            pod.run(|orch| {
                // The two nodes at once; then the pod, which needs both; then both again, which need that.
                for (child, (half, sum)) in halves.iter().zip(&sums).enumerate() {
                    orch.writes(sum).submit(child, "sum", move |node| {
                        half.reduce(node, algorithm)?;
                        sum.write(half.y[0].read()?);
                        Ok(())
                    })?;
                }
                let add = orch.reads(&sums[0]).reads(&sums[1]).writes(&total);
                add.host_task("add", || {
                    let (left, right) = (sums[0].read(), sums[1].read());
                    let both = left.into_iter().zip(right);
                    total.write(both.map(|(a, b)| super::vector_add::sum(a, b)).collect());
                    Ok::<(), String>(())
                })?;
                for (child, half) in halves.iter().enumerate() {
                    let total = &total;
                    orch.reads(total).submit(child, "hand out", move |_| {
                        half.y.iter().try_for_each(|y| y.write(&total.read()))
                    })?;
                }
                Ok(())
            })
        },
        || {
            let mut checks = Vec::new();
            for (half, node) in halves.iter().zip(pod.children()) {
                for (chip, y) in half.domain.members().iter().zip(&half.y) {
                    let golden = |i| sum_of_patterns(ranks, |rank| rank * 100 + i);
                    let who = format!("in \"{}\"", node.name());
                    checks.push(Check::compare(*chip, who, &y.read()?, golden));
                }
            }
            Ok(checks)
        },
    )
}

/// A node's domain of all its chips, with the inputs of the ranks from `first` on.
fn open<T: Element>(job: &Job, node: &Node, first: usize) -> ringwork::Result<Half<T>> {
    let spec = DomainSpec::new("all", node.devices())
        .buffer::<T>("scratch", 512)
        .barrier("meet")
        .signals("steps", Team::<T>::STEP_CELLS);
    let domain = node.open_domain(&spec)?;
    let (mut x, mut y) = (Vec::new(), Vec::new());
    for (rank, chip) in (first..).zip(domain.members()) {
        let values: Vec<T> = (0..job.count).map(|i| pattern(rank * 100 + i)).collect();
        x.push(node.tensor(*chip, &values)?);
        y.push(node.zeros::<T>(*chip, job.count)?);
    }
    Ok(Half { domain, x, y })
}

impl<T: Element> Half<T> {
    fn reduce(&self, node: &Node, algorithm: ringwork::collectives::Algorithm) -> ringwork::Result<()> {
        let Half { domain, x, y } = self;
        let (scratch, meet) = (domain.buffer::<T>("scratch")?, domain.barrier("meet")?);
        let steps = domain.signals("steps")?;
        node.run(|orch| {
            orch.group(domain.members().iter().copied(), |chip| {
                let rank = domain.rank_of(chip).map_or(0, |rank| rank.0 as usize);
                let (x, y, op) = (&x[rank], &y[rank], ReduceOp::Sum);
                Ok(kernels::all_reduce::task(
                    x, y, &scratch, &meet, &steps, op, algorithm,
                ))
            })
        })?;
        Ok(())
    }
}
