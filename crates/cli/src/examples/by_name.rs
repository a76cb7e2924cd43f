//! Any collective of the catalogue: what is run unless it has an example of its own.

use super::collective;
use super::{Choice, Example, describe_algorithm};
use crate::job::{Check, Job, pattern, sum_of_patterns_of};
use ringwork::isa::{Collective, Counts};
use ringwork::kernels;
use ringwork::prelude::*;

pub(super) fn example(collective: Collective, name: &'static str, about: &'static str) -> Example {
    Example {
        name,
        about,
        min_devices: 1,
        max_devices: None,
        default_devices: 4,
        choice: Choice::Of(collective),
        dtypes: &Dtype::ALL,
        counts_per_chip: match collective {
            Collective::AllToAll => |ranks| 2 * ranks,
            one if one.has_parts() => |ranks| ranks + 1,
            _ => |_| 2,
        },
        describe: describe_algorithm,
        run: |job| with_dtype!(job.dtype, T => typed::<T>(job)),
    }
}

/// The last rank is the root, if there is one.
fn typed<T: Element>(job: &Job) -> ringwork::Result<Vec<Check>> {
    let (what, ranks) = (job.entry.collective, job.devices.len());
    let size = match what.has_parts() {
        true => ranks * job.count,
        false => job.count,
    };
    let Counts { send, recv } = what.counts(size, ranks);
    let last = u32::try_from(ranks - 1).unwrap_or(u32::MAX);
    let value = |rank: usize, i: usize| rank * 100 + i;
    let golden = move |me: usize, i: usize| {
        let pieces = what.golden(u32::try_from(me).unwrap_or(u32::MAX), last + 1, last, size);
        let piece = pieces.into_iter().find(|piece| piece.output.contains(&i))?;
        let ranks = piece.ranks.start as usize..piece.ranks.end as usize;
        let at = piece.start + i - piece.output.start;
        Some(sum_of_patterns_of(ranks, |rank| value(rank, at)))
    };
    let all = collective::Collective::<T> {
        input: send,
        output: recv,
        fill: Box::new(move |rank, i| pattern(value(rank, i))),
        golden: Box::new(golden),
    };
    all.run(job, |with| {
        let (x, y, team) = (with.x, with.y, with.team);
        kernels::collective::task(x, y, team, what, ReduceOp::Sum, Rank(last), with.algorithm)
    })
}
