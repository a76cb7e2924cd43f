//! The examples that `ringwork run` runs. Each is a small file to copy from, and verifies itself.

mod all_to_all;
mod allgather;
mod allreduce;
mod broadcast;
mod collective;
mod multi_chip_dispatch;
mod overlapping_domains;
mod reduce;
mod reduce_scatter;
mod resident_weight;
mod vector_add;

use crate::job::{Check, Job};
use crate::report::bytes;

/// An example.
pub(crate) struct Example {
    pub(crate) name: &'static str,
    /// What it shows, in one line.
    pub(crate) about: &'static str,
    pub(crate) min_devices: usize,
    pub(crate) default_devices: u32,
    /// What this run of it does, in a few words.
    pub(crate) describe: fn(&Job) -> String,
    pub(crate) run: fn(&Job) -> ringwork::Result<Vec<Check>>,
}

/// All of them, in the order to read them.
pub(crate) const ALL: &[Example] = &[
    vector_add::EXAMPLE,
    multi_chip_dispatch::EXAMPLE,
    allreduce::EXAMPLE,
    allgather::EXAMPLE,
    reduce_scatter::EXAMPLE,
    broadcast::EXAMPLE,
    reduce::EXAMPLE,
    all_to_all::EXAMPLE,
    resident_weight::EXAMPLE,
    overlapping_domains::EXAMPLE,
];

/// The list for people.
pub(crate) fn print_list() {
    let width = ALL.iter().map(|example| example.name.len()).max().unwrap_or(0);
    for Example { name, about, .. } in ALL {
        println!("{name:<width$}  {about}");
    }
    println!("\nRun one with: ringwork run NAME -d 0-3");
}

/// Elements and bytes per rank, as most examples describe themselves.
fn describe_size(job: &Job) -> String {
    format!(
        "{} x {} ({}) per rank",
        job.count,
        job.dtype,
        bytes(job.count * job.dtype.bytes())
    )
}
