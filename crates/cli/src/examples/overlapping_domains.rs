//! Overlapping domains: the middle chip is a member of two, with a different rank in each.

use super::{Choice, Example, describe_size};
use crate::job::{Check, Job, pattern, sum_of_patterns};
use ringwork::isa::Collective;
use ringwork::kernels;
use ringwork::prelude::*;

pub(super) const EXAMPLE: Example = Example {
    name: "overlapping_domains",
    about: "one chip in two domains, with a different rank in each",
    min_devices: 2,
    max_devices: None,
    default_devices: 3,
    choice: Choice::OfSome(Collective::AllReduce),
    dtypes: &Dtype::ALL,
    counts_per_chip: |_| 2,
    describe: |job| format!("{} sum of {}", job.entry.algorithm, describe_size(job)),
    run,
};

fn run(job: &Job) -> ringwork::Result<Vec<Check>> {
    with_dtype!(job.dtype, T => typed::<T>(job))
}

/// A domain, and on each of its members an input and an output.
pub(super) struct Half<T> {
    pub(super) domain: Domain,
    pub(super) x: Vec<Tensor<T>>,
    pub(super) y: Vec<Tensor<T>>,
}

fn typed<T: Element>(job: &Job) -> ringwork::Result<Vec<Check>> {
    let node = job.launch(Node::builder())?;
    let halves = halves::<T>(job, &node)?;
    job.rounds(
        || node.run(|orch| halves.iter().try_for_each(|half| half.reduce(orch, job))),
        || {
            Ok(halves
                .iter()
                .map(Half::checks)
                .collect::<ringwork::Result<Vec<_>>>()?
                .into_iter()
                .flatten()
                .collect())
        },
    )
}

/// The chips in two domains that share one.
pub(super) fn halves<T: Element>(job: &Job, node: &Node) -> ringwork::Result<[Half<T>; 2]> {
    let chips = node.devices();
    // Two chips: [0, 1] and [1, 0]. More: they share the one in the middle, last here and first there.
    let middle = chips.len() / 2;
    let left: Vec<Device> = chips[..=middle].to_vec();
    let right: Vec<Device> = if chips.len() == 2 {
        vec![chips[1], chips[0]]
    } else {
        chips[middle..].to_vec()
    };
    Ok([
        open::<T>(job, node, "left", left)?,
        open::<T>(job, node, "right", right)?,
    ])
}

impl<T: Element> Half<T> {
    /// Submits the sum over this half's inputs.
    pub(super) fn reduce(&self, orch: &mut Orchestrator<'_>, job: &Job) -> ringwork::Result<()> {
        let Half { domain, x, y } = self;
        let team = domain.team("team")?;
        orch.group(domain.members().iter().copied(), |chip| {
            let rank = domain.rank_of(chip).map_or(0, |rank| rank.0 as usize);
            let (x, y) = (&x[rank], &y[rank]);
            let (op, algorithm) = (ReduceOp::Sum, job.entry.algorithm);
            Ok(kernels::all_reduce::task(x, y, &team, op, algorithm))
        })?;
        Ok(())
    }

    pub(super) fn checks(&self) -> ringwork::Result<Vec<Check>> {
        let (domain, ranks) = (&self.domain, self.domain.members().len());
        let mut checks = Vec::new();
        for (rank, (chip, y)) in domain.members().iter().zip(&self.y).enumerate() {
            let golden = |i| sum_of_patterns(ranks, |rank| rank * 100 + i);
            let who = format!("rank {rank} of \"{}\"", domain.name());
            checks.push(Check::compare(*chip, who, &y.read()?, golden));
        }
        Ok(checks)
    }
}

fn open<T: Element>(job: &Job, node: &Node, name: &str, members: Vec<Device>) -> ringwork::Result<Half<T>> {
    let spec = DomainSpec::new(name, members.clone()).team_by("team", job.team(job.count));
    let domain = node.open_domain(&spec)?;
    let (mut x, mut y) = (Vec::new(), Vec::new());
    for (rank, chip) in members.iter().enumerate() {
        let values: Vec<T> = (0..job.count).map(|i| pattern(rank * 100 + i)).collect();
        x.push(node.tensor(*chip, &values)?);
        y.push(node.zeros::<T>(*chip, job.count)?);
    }
    Ok(Half { domain, x, y })
}
