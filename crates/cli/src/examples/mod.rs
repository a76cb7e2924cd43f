//! The examples that `ringwork run` runs. Each is a small file to copy from, and verifies itself.

mod allreduce;
mod by_name;
mod collective;
mod dense;
mod moe_dispatch;
mod multi_chip_dispatch;
mod overlapping_domains;
mod pod;
mod resident_weight;
mod serving;
mod tp_ffn;
mod two_groups;
mod vector_add;
mod vector_graph;

use crate::job::{Check, Job};
use crate::output::say;
use crate::report::bytes;
use ringwork::collectives::catalogue::{self, CATALOGUE, Entry, Needs};
use ringwork::isa::{Algorithm, Collective};
use ringwork::prelude::Dtype;
use serde_json::json;
use std::sync::LazyLock;

/// An example.
pub(crate) struct Example {
    pub(crate) name: &'static str,
    /// What it shows, in one line.
    pub(crate) about: &'static str,
    pub(crate) min_devices: usize,
    /// More than these are not started.
    pub(crate) max_devices: Option<usize>,
    pub(crate) default_devices: u32,
    pub(crate) choice: Choice,
    /// Element types it has.
    pub(crate) dtypes: &'static [Dtype],
    /// How often `--count` elements each chip holds, for a number of ranks.
    pub(crate) counts_per_chip: fn(usize) -> usize,
    /// What this run of it does, in a few words.
    pub(crate) describe: fn(&Job) -> String,
    pub(crate) run: fn(&Job) -> ringwork::Result<Vec<Check>>,
}

/// What `--algo` chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// Nothing: there is no collective in it.
    Nothing,
    /// How all chips do this collective.
    Of(Collective),
    /// How some of the chips do this collective, on data in their own memory.
    OfSome(Collective),
}

impl Choice {
    /// The collective for which there is a choice of algorithms.
    pub(crate) fn collective(self) -> Option<Collective> {
        match self {
            Choice::Nothing => None,
            Choice::Of(collective) | Choice::OfSome(collective) => Some(collective),
        }
    }

    /// Whether an algorithm of the collective can be chosen. Algorithms on windows or for grids want all chips, with
    /// their data in the window.
    pub(crate) fn has(self, entry: &Entry) -> bool {
        match self {
            Choice::Nothing => false,
            Choice::Of(_) => true,
            Choice::OfSome(_) => entry.needs != Needs::Window && !entry.needs_grid(),
        }
    }

    /// The names of what can be chosen.
    fn names(self) -> Vec<&'static str> {
        let entries = self.collective().into_iter().flat_map(catalogue::of);
        entries
            .filter(|entry| self.has(entry))
            .map(|entry| entry.algorithm.name())
            .collect()
    }

    /// What is meant by a name; without one, what is usual.
    pub(crate) fn entry(self, name: Option<&str>) -> Result<&'static Entry, String> {
        let Some(collective) = self.collective() else {
            return match name {
                None => Ok(&CATALOGUE[0]),
                Some(_) => Err("there is no collective in it; leave --algo out".into()),
            };
        };
        let usual = match collective {
            Collective::AllReduce => Algorithm::TwoPhase,
            _ => Algorithm::Staged,
        };
        let entry = catalogue::named(collective, name.unwrap_or(usual.name()))?;
        match self.has(entry) {
            true => Ok(entry),
            false => Err(format!(
                "its collective cannot be done by `{}`; use one of {}",
                entry.algorithm,
                self.names().join(", ")
            )),
        }
    }
}

/// All of them, in the order to read them; then the collectives that nothing is said about here.
pub(crate) static ALL: LazyLock<Vec<Example>> = LazyLock::new(|| {
    let mut all = vec![
        vector_add::EXAMPLE,
        multi_chip_dispatch::EXAMPLE,
        allreduce::EXAMPLE,
        by_name::example(
            Collective::AllGather,
            "allgather",
            "everybody's data, on all chips",
        ),
        by_name::example(
            Collective::ReduceScatter,
            "reduce_scatter",
            "each chip its part of the sum over all chips",
        ),
        by_name::example(
            Collective::Broadcast,
            "broadcast",
            "the root's data, on all chips",
        ),
        by_name::example(
            Collective::Reduce,
            "reduce",
            "the sum over all chips, on the root alone",
        ),
        by_name::example(
            Collective::AllToAll,
            "all_to_all",
            "a different part from every chip to every chip",
        ),
        resident_weight::EXAMPLE,
        overlapping_domains::EXAMPLE,
        two_groups::EXAMPLE,
        vector_graph::EXAMPLE,
        pod::EXAMPLE,
        tp_ffn::EXAMPLE,
        moe_dispatch::EXAMPLE,
        serving::EXAMPLE,
    ];
    let named: Vec<_> = all.iter().map(|example| example.choice).collect();
    let others = Collective::ALL
        .into_iter()
        .filter(|one| *one != Collective::Barrier && !named.contains(&Choice::Of(*one)));
    let about = "the collective of this name, every element verified";
    all.extend(others.map(|one| by_name::example(one, one.name(), about)));
    all
});

/// The list, for people or for programs.
pub(crate) fn print_list(as_json: bool) {
    if as_json {
        let list: Vec<_> = ALL
            .iter()
            .map(|Example { name, about, default_devices, choice, .. }| {
                json!({ "name": name, "about": about, "default_devices": default_devices, "algorithms": choice.names() })
            })
            .collect();
        say!("{}", json!({ "examples": list }));
        return;
    }
    let width = ALL.iter().map(|example| example.name.len()).max().unwrap_or(0);
    for Example { name, about, .. } in ALL.iter() {
        say!("{name:<width$}  {about}");
    }
    say!("\nRun one with: ringwork run NAME -d 0-3");
}

/// Elements and bytes per rank, as most examples describe themselves.
fn describe_size(job: &Job) -> String {
    format!("{} per rank", size(job))
}

/// The same, and the algorithm.
fn describe_algorithm(job: &Job) -> String {
    format!("{}, {}", describe_size(job), job.entry.algorithm)
}

/// The same for examples without ranks.
fn describe_chip_size(job: &Job) -> String {
    format!("{} per chip", size(job))
}

fn size(job: &Job) -> String {
    let bytes = bytes(job.count * job.dtype.bytes());
    format!("{} x {} ({bytes})", job.count, job.dtype)
}
