//! The real program, run as a user runs it.
#![allow(dead_code, reason = "each test file uses its part")]

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

/// Whether the long form of the tests was asked for: `RINGWORK_LONG=1`.
pub(crate) fn long() -> bool {
    std::env::var_os("RINGWORK_LONG").is_some_and(|value| value != "0" && !value.is_empty())
}
