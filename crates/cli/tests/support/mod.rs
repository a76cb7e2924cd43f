//! The real program, run as a user runs it.
#![allow(dead_code, unused_imports, reason = "each test file uses its part")]

pub(crate) use ringwork_testkit::{Folder, long};
use serde_json::Value;
use std::process::Command;

/// What a run of `ringwork` left behind.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Runs `ringwork` with arguments separated by spaces.
pub(crate) fn ringwork(arguments: &str) -> Run {
    run(Command::new(env!("CARGO_BIN_EXE_ringwork")).args(arguments.split_whitespace()))
}

/// Runs a command to its end.
pub(crate) fn run(command: &mut Command) -> Run {
    let output = command.output().unwrap();
    Run {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// Runs an example with `--json`, and returns what it said if that is a success that it verified.
pub(crate) fn verified(arguments: &str) -> Value {
    let run = ringwork(&format!("run {arguments} --json"));
    assert_eq!(run.code, Some(0), "ringwork run {arguments}: {run:?}");
    let json: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(json["verified"], true, "ringwork run {arguments}: {json}");
    for check in json["checks"].as_array().unwrap() {
        assert_eq!(check["wrong"], Value::Null, "ringwork run {arguments}: {check}");
    }
    json
}

/// Runs a command that must succeed, and returns what it printed.
pub(crate) fn ok(arguments: &str) -> String {
    let run = ringwork(arguments);
    assert_eq!(run.code, Some(0), "ringwork {arguments}: {run:?}");
    run.stdout
}

/// What a command that must succeed printed as JSON.
pub(crate) fn json(arguments: &str) -> Value {
    serde_json::from_str(&ok(arguments)).unwrap()
}

/// Runs a command that must be refused before anything starts, and returns its one line.
pub(crate) fn refused(arguments: &str) -> String {
    let run = ringwork(arguments);
    assert_eq!(run.code, Some(2), "ringwork {arguments}: {run:?}");
    assert_eq!(run.stderr.lines().count(), 1, "{run:?}");
    run.stderr
}
