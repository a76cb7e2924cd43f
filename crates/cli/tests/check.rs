//! `ringwork run NAME -p check`: every example is proved, or says why it is not.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use serde_json::Value;
use support::{refused, ringwork};

/// Runs an example under the checker; its JSON and its exit code.
fn checked(arguments: &str) -> (Value, i32) {
    let run = ringwork(&format!("run {arguments} -p check --json"));
    let json = serde_json::from_str(&run.stdout).unwrap_or_else(|_| panic!("{arguments}: {run:?}"));
    (json, run.code.unwrap())
}

fn assert_proved(arguments: &str) {
    let (json, code) = checked(arguments);
    assert_eq!(code, 0, "{arguments}: {json}");
    assert_eq!(json["verified"], true, "{arguments}: {json}");
    assert_eq!(json["platform"], "check");
    let checked = &json["checked"];
    assert_eq!(checked["proved"], true, "{arguments}: {json}");
    assert!(
        checked["instructions"].as_u64().unwrap() > 0,
        "{arguments}: {json}"
    );
    assert_eq!(checked["faults"].as_array().unwrap().len(), 0);
}

#[test]
fn every_example_but_one_is_proved() {
    for name in [
        "vector_add",
        "multi_chip_dispatch",
        "allreduce",
        "allgather",
        "reduce_scatter",
        "broadcast",
        "reduce",
        "all_to_all",
        "resident_weight",
        "overlapping_domains",
        "two_groups",
        "vector_graph",
        "pod",
        "tp_ffn",
        "moe_dispatch",
    ] {
        for devices in ["0-2", "0-3"] {
            assert_proved(&format!("{name} -d {devices} --rounds 3"));
        }
    }
}

/// Its host looks whether there is room, and does something else if not: what it does depends on timing.
#[test]
fn the_serving_example_has_no_fault_and_says_that_it_is_not_proved() {
    let (json, code) = checked("serving -d 0-2 --rounds 2");
    assert_eq!((code, &json["verified"]), (2, &Value::Bool(true)), "{json}");
    assert_eq!(json["checked"]["proved"], false);
    assert_eq!(json["checked"]["faults"].as_array().unwrap().len(), 0);
    let why = json["checked"]["unproved"][0].as_str().unwrap();
    assert!(why.contains("in window \"port\""), "{why}");
}

#[test]
fn every_algorithm_of_an_example_is_proved() {
    for algo in ["onephase", "twophase", "staged-ring", "ring", "packet"] {
        assert_proved(&format!("allreduce -d 0-4 --algo {algo} --count 1001 --rounds 3"));
    }
}

#[test]
fn what_is_proved_is_said_in_one_line() {
    let run = ringwork("run allreduce -d 0-2 -p check");
    assert_eq!(run.code, Some(0), "{run:?}");
    let last = run.stdout.lines().last().unwrap();
    for part in ["proved (tier 1", "3 chips, 3 tasks, ", " instructions"] {
        assert!(last.contains(part), "{last}");
    }
}

#[test]
fn what_cannot_be_with_it_is_refused() {
    assert!(refused("run allreduce -p check --topology ring-4").contains("-p check has none"));
    assert!(refused("run allreduce -p check --trace a.html").contains("use -p native or -p sim"));
    assert!(refused("run allreduce -p check --races").contains("leave --races out"));
    assert!(refused("run allreduce --races").contains("add -p sim"));
}

#[test]
fn the_simulator_looks_for_races_and_its_times_stay_the_same() {
    let fingerprint = |more: &str| {
        let run = ringwork(&format!("run allreduce -p sim -d 0-3 --rounds 2 --json{more}"));
        assert_eq!(run.code, Some(0), "{run:?}");
        let json: Value = serde_json::from_str(&run.stdout).unwrap();
        (json["simulated"].clone(), json["checked"].clone())
    };
    let (plain, nothing) = fingerprint("");
    let (watched, checked) = fingerprint(" --races");
    assert_eq!(plain, watched);
    assert_eq!(nothing, Value::Null);
    assert_eq!(checked["proved"], true, "{checked}");
}

/// The rows of `ringwork check --json`, and its exit code.
fn proved(arguments: &str) -> (Vec<Value>, i32) {
    let run = ringwork(&format!("check {arguments} --json"));
    let rows = run.stdout.lines().map(|line| serde_json::from_str(line).unwrap());
    (rows.collect(), run.code.unwrap())
}

#[test]
fn an_algorithm_is_proved_for_some_calls_or_for_any_number() {
    let (rows, code) = proved("all_reduce/ring --ranks 2-3 --size whole");
    assert_eq!((rows.len(), code), (2, 0));
    for row in &rows {
        assert_eq!(
            (&row["verdict"], &row["tier"], &row["calls"]),
            (&"proved".into(), &1.into(), &3.into())
        );
        assert_eq!((&row["repeats"], &row["bound"]), (&Value::Null, &Value::Null));
    }
    let (rows, code) = proved("all_reduce/ring --ranks 2-3 --size whole --calls any");
    assert_eq!((rows.len(), code), (2, 0));
    for row in &rows {
        assert_eq!((&row["verdict"], &row["tier"]), (&"proved".into(), &3.into()));
        assert_eq!(row["repeats"]["period"], 2);
    }
    let run = support::ringwork("check all_reduce/ring --calls none");
    assert_eq!(run.code, Some(2), "{run:?}");
    assert!(run.stderr.contains("or `any`"), "{run:?}");
}
