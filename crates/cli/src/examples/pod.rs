//! A pod over two nodes: one domain over the chips of both, and one all-reduce in it.

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

/// A node's part: its handle to the domain of all, and on each of its chips an input and an output.
struct Half<T> {
    domain: Domain,
    x: Vec<Tensor<T>>,
    y: Vec<Tensor<T>>,
}

fn typed<T: Element>(job: &Job) -> ringwork::Result<Vec<Check>> {
    let pod = job.launch_pod()?;
    let spec = DomainSpec::new("all", [])
        .buffer::<T>("scratch", 512)
        .barrier("meet")
        .signals("steps", Team::<T>::STEP_CELLS);
    let all = pod.open_domain(&spec)?;
    let mut halves = Vec::new();
    for (node, domain) in pod.children().iter().zip(all.parts()) {
        halves.push(fill::<T>(job, node, domain)?);
    }
    let (ranks, algorithm) = (halves.iter().map(|half| half.x.len()).sum(), job.algorithm);
    job.rounds(
        || {
            // Both nodes together: the chips of one wait for those of the other.
            pod.run(|orch| {
                orch.group(0..halves.len(), "all-reduce", |child, node| {
                    halves[child].reduce(node, algorithm)
                })
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

/// A node's inputs, which differ from rank to rank of the whole domain.
fn fill<T: Element>(job: &Job, node: &Node, domain: &Domain) -> ringwork::Result<Half<T>> {
    let (mut x, mut y) = (Vec::new(), Vec::new());
    for chip in domain.members() {
        let rank = domain.rank_of(*chip).map_or(0, |rank| rank.0 as usize);
        let values: Vec<T> = (0..job.count).map(|i| pattern(rank * 100 + i)).collect();
        x.push(node.tensor(*chip, &values)?);
        y.push(node.zeros::<T>(*chip, job.count)?);
    }
    Ok(Half {
        domain: domain.clone(),
        x,
        y,
    })
}

impl<T: Element> Half<T> {
    fn reduce(&self, node: &Node, algorithm: ringwork::collectives::Algorithm) -> ringwork::Result<()> {
        let Half { domain, x, y } = self;
        let (scratch, meet) = (domain.buffer::<T>("scratch")?, domain.barrier("meet")?);
        let steps = domain.signals("steps")?;
        node.run(|orch| {
            let mut tensors = x.iter().zip(y);
            orch.group(domain.members().iter().copied(), |_| {
                // One for each member, in the same order.
                let (x, y) = tensors.next().unwrap_or((&x[0], &y[0]));
                Ok(kernels::all_reduce::task(
                    x,
                    y,
                    &scratch,
                    &meet,
                    &steps,
                    ReduceOp::Sum,
                    algorithm,
                ))
            })
        })?;
        Ok(())
    }
}
