//! The long form of the fault tests: 10,000 kills, and how long it takes until everybody knows.
//!
//! `cargo bench -p ringwork-runtime --bench kill_storm`, or with another number of kills after `--`. It ends
//! with a panic if a survivor says anything but the truth, or if anything is left.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a program for people")]
extern crate ringwork_native as ringwork;

#[path = "../tests/support/mod.rs"]
mod support;

use ringwork_testkit::Latencies;
use ringwork_testkit::Rng;
use ringwork_testkit::process::open_files;
use std::process::ExitCode;
use std::time::Duration;
use support::bring_up;
use support::roles::{self, Moment};
use support::storm::{Victims, assert_clean};

fn main() -> ExitCode {
    roles::play().unwrap_or_else(|| {
        let number = std::env::args().find_map(|argument| argument.parse().ok());
        storm(number.unwrap_or(10_000));
        ExitCode::SUCCESS
    })
}

fn storm(kills: usize) {
    let mut rng = Rng::from_environment();
    println!("RINGWORK_SEED={}", rng.seed());
    println!("\nfrom the kill of a chip in an all-reduce until every survivor and the host know");
    for chips in [2, 4, 8, 16, 32] {
        let latencies = kill_chips(chips, kills / 5, &mut rng);
        println!("{chips:>3} chips {latencies}\n{}", latencies.histogram());
    }
    println!("from the kill of a chip that comes up until the launch has failed and nothing is left");
    let latencies = kill_in_bring_up(kills / 10);
    println!("  3 chips {latencies}\n{}", latencies.histogram());
    println!("from the kill of a host until its last chip is gone");
    for chips in [4, 16] {
        for role in ["run", "bring-up"] {
            let latencies = kill_hosts(role, chips, kills / 50, &mut rng);
            println!(
                "{chips:>3} chips, {role:<8} {latencies}\n{}",
                latencies.histogram()
            );
        }
    }
}

fn kill_chips(chips: usize, kills: usize, rng: &mut Rng) -> Latencies {
    let (files, mut latencies) = (open_files(), Latencies::default());
    // Idle ones take the places of the dead, unless every chip has a core of its own.
    let spare = if chips > 2 { chips } else { 0 };
    while latencies.count() < kills {
        let mut victims = Victims::launch(chips + spare);
        while victims.alive() >= chips && latencies.count() < kills {
            if let Some(latency) = victims.kill_one(chips, rng) {
                latencies.push(latency);
            }
        }
        drop(victims);
        assert_clean(files);
    }
    latencies
}

fn kill_in_bring_up(kills: usize) -> Latencies {
    let (files, steps, mut latencies) = (open_files(), bring_up::steps(), Latencies::default());
    for (device, step) in steps.iter().cycle() {
        if latencies.count() >= kills {
            break;
        }
        // One that was ready before the signal came did not die in bring-up.
        if let Ok((latency, _)) = bring_up::kill_at(*device, step) {
            latencies.push(latency);
        }
        assert_clean(files);
    }
    latencies
}

fn kill_hosts(role: &str, chips: usize, kills: usize, rng: &mut Rng) -> Latencies {
    let mut latencies = Latencies::default();
    for _ in 0..kills {
        let moment = match role {
            "run" => Moment::Lines(1),
            _ => Moment::After(Duration::from_micros(rng.below(20_000) as u64)),
        };
        latencies.push(roles::kill_parent(role, chips, moment).1);
    }
    latencies
}
