//! Proofs through the real program: every collective, every algorithm, many ranks, and what is refused.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use serde_json::Value;
use support::ringwork;

/// The rows of a run that must succeed.
fn rows(arguments: &str) -> Vec<Value> {
    let run = ringwork(&format!("{arguments} --prove --json"));
    assert_eq!(run.code, Some(0), "ringwork {arguments}: {run:?}");
    let whole: Value = serde_json::from_str(&run.stdout).unwrap();
    let rows = whole["rows"].as_array().unwrap().clone();
    assert!(!rows.is_empty(), "{whole}");
    for row in &rows {
        assert_eq!(row["proved"], true, "{row}");
    }
    rows
}

#[test]
fn every_collective_and_every_algorithm_is_proved_on_every_kind_of_network() {
    for topology in ["ring-5", "torus-4x4", "h100x8", "v100x8"] {
        let rows = rows(&format!("sim all --topology {topology} -b 960 -e 15360 -f 16"));
        for op in [
            "all_reduce",
            "all_gather",
            "reduce_scatter",
            "broadcast",
            "reduce",
            "all_to_all",
            "gather",
            "scatter",
            "scan",
            "exclusive_scan",
        ] {
            assert!(rows.iter().any(|row| row["op"] == op), "{topology}: no {op}");
        }
    }
}

#[test]
fn hundreds_of_ranks_are_proved_and_the_time_is_that_of_the_data() {
    let command = "sim all_reduce --topology torus-8x8x4 --algo torus -b 8K -e 8K";
    let proved = &rows(command)[0];
    let run = ringwork(&format!("{command} --json"));
    let whole: Value = serde_json::from_str(&run.stdout).unwrap();
    let data = &whole["rows"][0];
    assert_eq!(
        (&proved["time_ps"], &proved["events"]),
        (&data["time_ps"], &data["events"])
    );
    assert_eq!(data["proved"], false);
}

#[test]
fn people_read_what_was_shown_and_a_proof_has_no_other_mode() {
    let run = ringwork("sim all_reduce --topology ring-4 --algo ring -b 1K -e 1K --prove");
    assert_eq!(run.code, Some(0), "{run:?}");
    let shown = "#   proved: every input counted exactly once on every rank";
    assert!(run.stdout.lines().any(|line| line == shown), "{run:?}");
    let run = ringwork("sim broadcast --topology ring-4 -b 1K -e 1K --prove");
    assert!(run.stdout.contains("every element comes exactly once"), "{run:?}");
    let run = ringwork("sim all_reduce --topology ring-4 --prove --timing-only");
    assert_eq!(run.code, Some(2), "{run:?}");
}
