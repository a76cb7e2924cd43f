//! What a run says: a few lines for people, one object for programs.

use crate::examples::Example;
use crate::job::{Check, Job, Predicted, Times};
use ringwork::check::Checked;
use ringwork::layout::Bytes;
use ringwork::runtime::{Platform, RecentChip};
use ringwork::sim::ShowPs;
use ringwork::sim::timeline::Load;
use serde_json::{Value, json};
use std::fmt::Write;
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
    Bytes(count as u64).to_string()
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
pub(crate) fn lines(example: &Example, job: &Job, checks: &[Check]) -> String {
    let devices: Vec<_> = job.devices.iter().map(ToString::to_string).collect();
    let plural = if devices.len() == 1 { "" } else { "s" };
    let mut text = format!(
        "{}: {}, on device{plural} {}\n",
        example.name,
        (example.describe)(job),
        devices.join(", ")
    );
    let width = checks.iter().map(|check| check.who.len()).max().unwrap_or(0);
    let device_width = devices.iter().map(String::len).max().unwrap_or(0);
    for Check {
        device,
        who,
        values,
        wrong,
    } in checks
    {
        let who = if width == 0 {
            String::new()
        } else {
            format!("  {who:<width$}")
        };
        let outcome = match wrong {
            None => format!("ok     {values} values as expected"),
            Some(wrong) => format!("WRONG  {wrong}"),
        };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "  device {device:<device_width$}{who}  {outcome}");
    }
    text += &verdict(checks, &job.times.borrow());
    if let Some(free) = without_rate(job) {
        let _ = writeln!(
            text,
            "the machine has no rate for: {free}; what they do takes no time here"
        );
    }
    text
}

/// What of a simulated machine has no rate.
fn without_rate(job: &Job) -> Option<String> {
    match &job.platform {
        Platform::Sim(simulation) => simulation.topology().free_inside_chips(),
        _ => None,
    }
}

/// The last line: the verdict, and how long it took.
fn verdict(checks: &[Check], times: &Times) -> String {
    let Times {
        launch,
        rounds,
        predicted,
        ..
    } = times;
    let ranks = checks.iter().any(|check| check.who.starts_with("rank"));
    let verdict = match (verified(checks), ranks) {
        (true, true) => "verified on every rank",
        (true, false) => "verified on every chip",
        (false, _) => "WRONG RESULT",
    };
    let took = match &**rounds {
        [] => "nothing was run".into(),
        [only] => format!("1 round in {}", duration(*only)),
        [_, ..] => {
            let (least, most) = (rounds.iter().min(), rounds.iter().max());
            let range = [least, most].map(|time| duration(time.copied().unwrap_or_default()));
            format!(
                "{} rounds, {} each (median; {} to {})",
                rounds.len(),
                duration(median(rounds)),
                range[0],
                range[1]
            )
        }
    };
    match predicted {
        None => format!("{verdict}: {took}; chips up in {}\n", duration(*launch)),
        Some(predicted) => format!(
            "{verdict}; simulated in {}\n{}",
            took_to_simulate(rounds),
            prediction(predicted)
        ),
    }
}

fn took_to_simulate(rounds: &[Duration]) -> String {
    duration(rounds.iter().sum())
}

/// What it would take on the machine, and what it would be busy with.
fn prediction(predicted: &Predicted) -> String {
    let Predicted { rounds, end, .. } = predicted;
    let Some(end) = end else { return String::new() };
    let (least, most) = (rounds.iter().min(), rounds.iter().max());
    let show = |ps: Option<&u64>| ShowPs(ps.copied().unwrap_or(0)).to_string();
    let each = match rounds.len() {
        1 => show(most),
        n if least == most => format!("{} for each of {n} rounds", show(most)),
        n => format!("{} to {} for each of {n} rounds", show(least), show(most)),
    };
    let mut text = format!("predicted on {}: {each}\n", end.topology);
    if predicted.nodes() > 1 {
        let nodes = predicted.nodes();
        let _ = writeln!(
            text,
            "{nodes} nodes, each with a machine and a clock of its own: the time is that of the slowest, and what passes \
             between them takes none"
        );
    }
    if let Some(busiest) = end.loads.first() {
        let percent = 100.0 * busiest.busy_ps as f64 / end.now_ps.max(1) as f64;
        let carried = bytes(usize::try_from(busiest.bytes).unwrap_or(usize::MAX));
        let _ = writeln!(
            text,
            "busiest link: {}, {carried}, busy {percent:.1} % of the time",
            busiest.name
        );
    }
    text
}

/// The result for programs.
pub(crate) fn json(example: &Example, job: &Job, checks: &[Check]) -> Value {
    let times = job.times.borrow();
    let check =
        |Check {
             device,
             who,
             values,
             wrong,
         }: &Check| { json!({ "device": device.0, "who": who, "values": values, "wrong": wrong }) };
    let micros = |time: Duration| time.as_nanos() as f64 / 1e3;
    let mut whole = json!({
        "example": example.name,
        "platform": platform(job),
        "devices": job.devices,
        "count": job.count,
        "dtype": job.dtype.name(),
        "algo": example.choice.collective().map(|_| job.entry.algorithm.name()),
        "rounds": times.rounds.len(),
        "verified": verified(checks),
        "checks": checks.iter().map(check).collect::<Vec<_>>(),
        "launch_us": micros(times.launch),
        "round_us": {
            "min": times.rounds.iter().min().copied().map(micros),
            "median": micros(median(&times.rounds)),
            "max": times.rounds.iter().max().copied().map(micros),
        },
    });
    if let Some(checked) = job.checked() {
        whole["checked"] = json_of(&checked);
    }
    if let Some(simulated) = times.predicted.as_ref().and_then(simulated) {
        whole["simulated"] = simulated;
        whole["simulated"]["without_rate"] = json!(without_rate(job));
    }
    whole
}

fn platform(job: &Job) -> &'static str {
    match job.platform {
        Platform::Sim(_) => "sim",
        Platform::Check(_) => "check",
        _ => "native",
    }
}

fn simulated(Predicted { rounds, end, .. }: &Predicted) -> Option<Value> {
    let end = end.as_ref()?;
    let link = |load: &Load| json!({ "name": load.name, "bytes": load.bytes, "busy_ps": load.busy_ps });
    Some(json!({
        "topology": end.topology,
        "round_ps": rounds,
        "total_ps": end.now_ps,
        "events": end.events,
        "fingerprint": format!("{:016x}", end.fingerprint),
        "links": end.loads.iter().map(link).collect::<Vec<_>>(),
    }))
}

fn json_of(checked: &Checked) -> Value {
    let texts = |all: &[String]| json!(all);
    json!({
        "proved": checked.is_proved(),
        "chips": checked.chips,
        "tasks": checked.tasks,
        "instructions": checked.instructions,
        "faults": texts(&checked.faults.iter().map(ToString::to_string).collect::<Vec<_>>()),
        "unproved": texts(&checked.unproved.iter().map(ToString::to_string).collect::<Vec<_>>()),
    })
}

/// What the checker says, after a run that verified its results. Nothing if nothing was checked.
pub(crate) fn checked_lines(job: &Job) -> String {
    let Some(checked) = job.checked() else {
        return String::new();
    };
    let nodes = job.times.borrow().clocks.len();
    match (&job.platform, nodes) {
        (Platform::Check(_), 2..) => {
            format!(
                "{checked}\nthat is of each of {nodes} nodes alone: what passes between them is not checked\n"
            )
        }
        (Platform::Check(_), _) => format!("{checked}\n"),
        // Of the simulator only what it found is of interest.
        _ => String::new(),
    }
}

/// A run that did not come to a result, for programs.
pub(crate) fn json_error(example: &Example, job: &Job, error: &ringwork::Error) -> Value {
    let mut whole = json!({ "example": example.name, "platform": platform(job), "verified": false, "error": error.to_string() });
    if let Some(checked) = job.checked() {
        whole["checked"] = json_of(&checked);
    }
    if let Some(recent) = error.recent() {
        let chip =
            |chip: &RecentChip| json!({ "path": chip.path, "device": chip.device.0, "did": chip.lines });
        whole["recent"] = recent.chips.iter().map(chip).collect();
    }
    whole
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::examples;
    use indicatif::ProgressBar;
    use ringwork::collectives::catalogue;
    use ringwork::isa::{Algorithm, Collective};
    use ringwork::prelude::*;
    use std::cell::RefCell;

    fn check(device: u32, who: &str, values: &[f32]) -> Check {
        Check::compare(Device(device), who, values, |i| i as f32)
    }

    fn job(devices: &[u32], rounds_us: &[u64]) -> Job {
        let rounds: Vec<_> = rounds_us.iter().copied().map(Duration::from_micros).collect();
        Job {
            devices: devices.to_vec(),
            count: 3,
            dtype: Dtype::F32,
            entry: catalogue::find(Collective::AllReduce, Algorithm::Ring).unwrap(),
            grid: None,
            rounds: 1,
            bar: ProgressBar::hidden(),
            platform: Platform::Native,
            times: RefCell::new(Times {
                launch: Duration::from_millis(4),
                rounds,
                ..Times::default()
            }),
        }
    }

    fn example(name: &str) -> &'static Example {
        examples::ALL.iter().find(|example| example.name == name).unwrap()
    }

    #[test]
    fn verified_means_that_there_are_checks_and_all_of_them_hold() {
        let (right, wrong) = (|| check(0, "", &[0.0, 1.0]), || check(1, "", &[0.0, 2.0]));
        assert!(!verified(&[]), "nothing checked is nothing verified");
        assert!(verified(&[right()]) && verified(&[right(), right()]));
        assert!(!verified(&[wrong()]) && !verified(&[right(), wrong()]));
    }

    #[test]
    fn the_first_wrong_element_is_named_and_the_verdict_is_plain() {
        let checks = [
            check(0, "rank 0", &[0.0, 1.0, 2.0]),
            check(11, "rank 1", &[0.0, 1.0, 7.0]),
        ];
        let text = lines(example("allreduce"), &job(&[0, 11], &[20, 10, 30]), &checks);
        assert_eq!(
            text,
            "allreduce: 3 x f32 (12 B) per rank, ring, on devices 0, 11\n  \
               device 0   rank 0  ok     3 values as expected\n  \
               device 11  rank 1  WRONG  element 2 is 7, should be 2\n\
             WRONG RESULT: 3 rounds, 20.0 us each (median; 10.0 us to 30.0 us); chips up in 4.00 ms\n"
        );
        assert_eq!(
            json(example("allreduce"), &job(&[0, 11], &[5]), &checks)["verified"],
            false
        );
    }

    #[test]
    fn one_chip_and_one_round_are_not_many() {
        let text = lines(
            example("vector_add"),
            &job(&[0], &[20]),
            &[check(0, "", &[0.0, 1.0, 2.0])],
        );
        assert_eq!(
            text,
            "vector_add: 3 x f32 (12 B) per chip, on device 0\n  \
               device 0  ok     3 values as expected\n\
             verified on every chip: 1 round in 20.0 us; chips up in 4.00 ms\n"
        );
    }

    #[test]
    fn json_says_the_algorithm_only_where_there_is_a_choice() {
        let checks = [check(0, "", &[0.0])];
        let choice = |name| json(example(name), &job(&[0], &[5]), &checks)["algo"].clone();
        assert_eq!(choice("allreduce"), "ring");
        assert_eq!(choice("vector_add"), Value::Null);
    }

    #[test]
    fn units_change_where_a_person_would_change_them() {
        let of_ns = |ns| duration(Duration::from_nanos(ns));
        assert_eq!(
            [9_999, 10_000, 1_000_000, 2_500_000_000].map(of_ns),
            ["9999 ns", "10.0 us", "1.00 ms", "2.50 s"]
        );
        assert_eq!(
            [1023, 1024, 3 << 20, 5 << 30].map(bytes),
            ["1023 B", "1.0 KiB", "3.0 MiB", "5.0 GiB"]
        );
    }
}
