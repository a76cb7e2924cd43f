//! What a run prints: a few lines for people, one object for programs.

use crate::job::{Check, Job};
use serde_json::json;
use std::time::Duration;

/// A duration as a person reads it.
pub(crate) fn duration(time: Duration) -> String {
    let ns = time.as_nanos();
    match ns {
        0..10_000 => format!("{ns} ns"),
        10_000..1_000_000 => format!("{:.1} us", ns as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.2} ms", ns as f64 / 1e6),
        _ => format!("{:.2} s", ns as f64 / 1e9),
    }
}

/// Bytes as a person reads them.
pub(crate) fn bytes(count: usize) -> String {
    match count {
        0..1024 => format!("{count} B"),
        1024..1_048_576 => format!("{:.1} KiB", count as f64 / 1024.0),
        _ => format!("{:.1} MiB", count as f64 / 1_048_576.0),
    }
}

fn median(times: &[Duration]) -> Duration {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).copied().unwrap_or_default()
}

/// Whether every check holds, and there is at least one.
pub(crate) fn verified(checks: &[Check]) -> bool {
    !checks.is_empty() && checks.iter().all(|check| check.wrong.is_none())
}

/// The result for people.
pub(crate) fn print_lines(name: &str, shows: &str, job: &Job, checks: &[Check]) {
    let devices = job
        .devices
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(", ");
    let times = job.times.borrow();
    println!(
        "{name}: {shows}, on device{} {devices}",
        if job.devices.len() == 1 { "" } else { "s" }
    );
    let width = checks.iter().map(|check| check.who.len()).max().unwrap_or(0);
    for Check {
        device,
        who,
        values,
        wrong,
    } in checks
    {
        match wrong {
            None => println!("  device {device:<3} {who:<width$}  ok     {values} values as expected"),
            Some(wrong) => println!("  device {device:<3} {who:<width$}  WRONG  {wrong}"),
        }
    }
    let rounds = times.rounds.len();
    let verdict = if verified(checks) {
        "verified on every rank"
    } else {
        "WRONG RESULT"
    };
    let plural = if rounds == 1 { "" } else { "s" };
    println!(
        "{verdict}: {rounds} round{plural}, {} each (median); chips up in {}",
        duration(median(&times.rounds)),
        duration(times.launch)
    );
}

/// The result for programs.
pub(crate) fn print_json(name: &str, job: &Job, checks: &[Check]) {
    let times = job.times.borrow();
    let checks_json: Vec<_> = checks
        .iter()
        .map(
            |Check {
                 device,
                 who,
                 values,
                 wrong,
             }| json!({ "device": device.0, "who": who, "values": values, "wrong": wrong }),
        )
        .collect();
    let micros = |time: Duration| time.as_secs_f64() * 1e6;
    println!(
        "{}",
        json!({
            "example": name,
            "platform": "native",
            "devices": job.devices,
            "count": job.count,
            "dtype": job.dtype.name(),
            "algo": job.algorithm.name(),
            "rounds": times.rounds.len(),
            "verified": verified(checks),
            "checks": checks_json,
            "launch_us": micros(times.launch),
            "round_us": {
                "min": times.rounds.iter().min().copied().map(micros),
                "median": micros(median(&times.rounds)),
                "max": times.rounds.iter().max().copied().map(micros),
            },
        })
    );
}
