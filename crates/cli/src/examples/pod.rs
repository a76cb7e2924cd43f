//! A pod over two nodes: one domain over the chips of both, and one all-reduce in it.
//!
//! Nodes that share no memory, as those of `-p sim` and `-p check`, each reduce in a domain of their own, and the pod adds the two up.

use super::{Choice, Example, describe_size};
use crate::job::{Check, Job, pattern, sum_of_patterns};
use ringwork::isa::{Algorithm, Collective};
use ringwork::kernels;
use ringwork::prelude::*;

pub(super) const EXAMPLE: Example = Example {
    name: "pod",
    about: "a worker over two nodes: all-reduce over the chips of both",
    min_devices: 2,
    max_devices: None,
    default_devices: 4,
    choice: Choice::OfSome(Collective::AllReduce),
    dtypes: &Dtype::ALL,
    counts_per_chip: |_| 3,
    describe: |job| {
        format!(
            "{} sum of {} over two nodes",
            job.entry.algorithm,
            describe_size(job)
        )
    },
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
    let spec = |members: Vec<Device>| DomainSpec::new("all", members).team_by("team", job.team(job.count));
    let shares_memory = matches!(job.platform, ringwork::runtime::Platform::Native);
    let mut halves: Vec<Half<T>> = Vec::new();
    if shares_memory {
        let all = pod.open_domain(&spec(Vec::new()))?;
        for (node, domain) in pod.children().iter().zip(all.parts()) {
            halves.push(fill(job, node, domain.clone(), 0)?);
        }
    } else {
        let mut first = 0;
        for node in pod.children() {
            let domain = node.open_domain(&spec(node.devices()))?;
            halves.push(fill(job, node, domain, first)?);
            first += node.devices().len();
        }
    }
    let ranks = halves.iter().map(|half| half.x.len()).sum();
    job.rounds(
        || {
            if shares_memory {
                together(job.entry.algorithm, &pod, &halves)
            } else {
                apart(job.entry.algorithm, &pod, &halves)
            }
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

/// Both nodes at once: the chips of one wait for those of the other.
fn together<T: Element>(algorithm: Algorithm, pod: &Pod, halves: &[Half<T>]) -> ringwork::Result<()> {
    pod.run(|orch| {
        orch.group(0..halves.len(), "all-reduce", |child, node| {
            halves[child].reduce(node, algorithm)
        })
    })?;
    Ok(())
}

/// The two nodes at once; then the pod, which needs both; then both again, which need that.
fn apart<T: Element>(algorithm: Algorithm, pod: &Pod, halves: &[Half<T>]) -> ringwork::Result<()> {
    let sums: Vec<_> = halves.iter().map(|_| pod.tensor(Vec::<T>::new())).collect();
    let total = pod.tensor(Vec::<T>::new());
    pod.run(|orch| {
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
}

/// A node's inputs, which differ from rank to rank of both nodes; in its own domain it has the ranks from `first` on.
fn fill<T: Element>(job: &Job, node: &Node, domain: Domain, first: usize) -> ringwork::Result<Half<T>> {
    let (mut x, mut y) = (Vec::new(), Vec::new());
    for chip in domain.members() {
        let rank = first + domain.rank_of(*chip).map_or(0, |rank| rank.0 as usize);
        let values: Vec<T> = (0..job.count).map(|i| pattern(rank * 100 + i)).collect();
        x.push(node.tensor(*chip, &values)?);
        y.push(node.zeros::<T>(*chip, job.count)?);
    }
    Ok(Half { domain, x, y })
}

impl<T: Element> Half<T> {
    fn reduce(&self, node: &Node, algorithm: Algorithm) -> ringwork::Result<()> {
        let Half { domain, x, y } = self;
        let team = domain.team("team")?;
        node.run(|orch| {
            let mut tensors = x.iter().zip(y);
            orch.group(domain.members().iter().copied(), |_| {
                // One for each member, in the same order.
                let (x, y) = tensors.next().unwrap_or((&x[0], &y[0]));
                Ok(kernels::all_reduce::task(x, y, &team, ReduceOp::Sum, algorithm))
            })
        })?;
        Ok(())
    }
}
