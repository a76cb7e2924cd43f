//! The litmus table of `docs/memory-model.md`: every row is checked, and its verdict must be the one in the table.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod support;

use support::{prove, word};

const PAGE: &str = include_str!("../../../docs/memory-model.md");

/// Name, program and verdict of every row.
fn rows() -> Vec<(&'static str, String, &'static str)> {
    let table = PAGE.split("## Litmus tests").nth(1).unwrap();
    let rows = table.lines().filter(|line| line.starts_with("| ")).skip(1);
    rows.map(|line| {
        // A pipe inside a cell is written `\|`.
        let line = line.trim_matches('|');
        let cells: Vec<&str> = line.split(" | ").map(str::trim).collect();
        let [name, program, verdict, _] = cells[..] else {
            panic!("four columns: {line}");
        };
        let program = program.trim_matches('`').replace("\\|", "|");
        (name, program, verdict.trim_matches('*'))
    })
    .collect()
}

#[test]
fn every_litmus_test_has_the_verdict_of_the_table() {
    let rows = rows();
    assert!(rows.len() >= 24, "{} rows", rows.len());
    let mut wrong = Vec::new();
    for (name, program, wanted) in rows {
        let verdict = prove(&program, 1);
        if word(&verdict) != wanted {
            wrong.push(format!("{name} should be {wanted}: {verdict}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
