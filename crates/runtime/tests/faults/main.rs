//! Real processes really killed, stopped and starved: what `docs/reliability.md` promises.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test that prints what it measured"
)]
extern crate ringwork_native as ringwork;

mod afterwards;
mod ending;
mod running;
mod starting;
#[path = "../support/mod.rs"]
mod support;

use ringwork_collectives::Algorithm;
use ringwork_isa::{Barrier, Compare, Core, Error as KernelError, ErrorKind, In, Result, Signals};
use ringwork_macros::kernel;
use ringwork_runtime::{Cause, Device, DomainSpec, Error, Failure, Node, Orchestrator, Program};
use ringwork_testkit::harness::{self, Test};
use ringwork_testkit::process::{Process, children, cpu_ticks, is_stopped, open_files};
use ringwork_testkit::{Latencies, Rng, long};
use rustix::fs::inotify::{self, WatchFlags};
use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use support::bring_up;
use support::roles::{self, Moment};
use support::storm::{Victims, assert_clean};
use support::team::{Reducers, spec};

fn main() -> ExitCode {
    roles::play().unwrap_or_else(|| harness::main(TESTS))
}

const TESTS: &[Test] = &[
    ("every_survivor_of_300_random_kills_names_the_dead", storm),
    (
        "a_program_that_is_not_a_chip_is_given_up_after_five_seconds",
        starting::says_nothing,
    ),
    (
        "a_kill_at_any_step_of_bring_up_fails_the_launch_and_leaves_nothing",
        starting::kill_at_every_step,
    ),
    (
        "a_chip_that_fails_in_bring_up_speaks_for_itself",
        starting::fails_by_itself,
    ),
    (
        "a_chip_that_stops_in_bring_up_is_named_at_the_limit",
        starting::stopped_in_bring_up,
    ),
    (
        "a_chip_that_dies_when_it_is_ready_fails_a_launch_that_waits_for_others",
        starting::dies_while_others_start,
    ),
    (
        "descriptors_that_run_out_anywhere_in_bring_up_leave_nothing",
        starting::out_of_descriptors,
    ),
    (
        "more_domains_than_a_socket_holds_are_handed_over",
        running::many_domains,
    ),
    ("no_child_survives_its_parent", running::parent_killed),
    (
        "a_stopped_chip_is_named_with_its_line_and_the_signal_that_is_missing",
        running::stopped_in_a_run,
    ),
    ("a_chip_that_loops_is_ended_after_the_limit", running::looping),
    (
        "a_chip_that_takes_no_mail_cannot_hold_up_its_host",
        running::takes_no_mail,
    ),
    (
        "a_kernel_error_leaves_the_domain_usable",
        afterwards::usable_after_an_error,
    ),
    (
        "the_death_of_a_chip_leaves_the_others_usable",
        afterwards::usable_after_a_death,
    ),
    (
        "thousands_of_domains_one_after_the_other_leave_no_descriptor",
        afterwards::many_domains,
    ),
    (
        "a_partner_that_died_after_its_part_is_the_one_that_is_named",
        afterwards::died_after_its_part,
    ),
    (
        "close_ends_once_and_for_all_whenever_it_is_called",
        ending::closing,
    ),
    (
        "closing_frees_memory_that_handles_still_name",
        ending::close_frees,
    ),
    (
        "nothing_is_ever_written_to_dev_shm_or_the_temp_directory",
        ending::watched_directories,
    ),
    (
        "a_window_larger_than_memory_is_refused_before_any_chip_starts",
        ending::too_large,
    ),
    ("idle_chips_use_no_processor_time", ending::idle),
];

/// Says no on one rank; the others meet.
#[kernel]
async fn refuse_on<C: Core>(core: &C, meet: Barrier, bad: u32) -> Result<()> {
    if meet.rank().0 == bad {
        return Err(KernelError::failed("this rank has had enough"));
    }
    meet.arrive_and_wait(core).await
}

/// Never ends and issues no instruction.
#[kernel]
async fn loop_forever<C: Core>(_core: &C) -> Result<()> {
    loop {
        std::hint::spin_loop();
    }
}

/// Waits for what never comes.
#[kernel]
async fn wait_forever<C: Core>(core: &C, row: Signals) -> Result<()> {
    core.wait(row.at(0)?, Compare::Ge, 1).await
}

/// Rank 0 ends well and dies a little later; the others wait for what never comes.
#[kernel]
async fn die_afterwards_or_wait<C: Core>(core: &C, row: Signals) -> Result<()> {
    if row.rank().0 == 0 {
        std::thread::spawn(|| {
            std::thread::sleep(Duration::from_millis(20)); // whether before or after: the same is expected
            std::process::abort()
        });
        return Ok(());
    }
    core.wait(row.at(0)?, Compare::Ge, 1).await
}

/// Does nothing, with something to carry.
#[kernel]
async fn nothing<C: Core>(_core: &C, _x: In<f32>) -> Result<()> {
    Ok(())
}

fn node(chips: u32) -> Node {
    Node::builder().devices(0..chips).launch().unwrap()
}

fn process(node: &Node, device: Device) -> Process {
    Process::open(node.pid(device).unwrap()).unwrap()
}

fn storm(rng: &mut Rng) {
    let (files, mut latencies) = (open_files(), Latencies::default());
    while latencies.count() < 300 {
        let chips = 2 + rng.below(7);
        let mut victims = Victims::launch(chips + rng.below(4));
        while victims.alive() >= chips {
            if let Some(latency) = victims.kill_one(chips, rng) {
                latencies.push(latency);
            }
        }
        drop(victims);
        assert_clean(files);
    }
    println!("kill to knowledge: {latencies}");
}
