//! Runs tests one after the other, in this process and nothing beside it.
//!
//! These tests count this process's children and descriptors, so they cannot share it with others. Each
//! must leave as many as it found. One that hangs is ended, with the seed that made it hang.

use crate::Rng;
use crate::process::{children, open_files};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// A test: a sentence and what proves it.
pub type Test = (&'static str, fn(&mut Rng));

/// Far longer than any test takes, on any machine.
const HANGS_AFTER: Duration = Duration::from_secs(240);

#[allow(
    clippy::print_stdout,
    reason = "as the test harness of the standard library does"
)]
/// Runs the tests whose names match the command line, as `cargo test` and `cargo nextest` give it.
pub fn main(tests: &[Test]) -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let has = |flag: &str| arguments.iter().any(|argument| argument == flag);
    let filter = arguments
        .iter()
        .find(|argument| !argument.starts_with('-') && *argument != "terse");
    let wanted = |name: &str| match filter {
        _ if has("--ignored") => false,
        Some(filter) if has("--exact") => name == filter,
        Some(filter) => name.contains(filter.as_str()),
        None => true,
    };
    let mut failed = 0;
    for (name, test) in tests.iter().filter(|(name, _)| wanted(name)) {
        if has("--list") {
            println!("{name}: test");
        } else if !run(name, *test) {
            failed += 1;
        }
    }
    if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

#[allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "as the test harness of the standard library does"
)]
fn run(name: &'static str, test: fn(&mut Rng)) -> bool {
    let mut rng = Rng::from_environment();
    let (seed, start) = (rng.seed(), Instant::now());
    let (done, ended) = mpsc::channel::<()>();
    let guard = std::thread::spawn(move || {
        if ended.recv_timeout(HANGS_AFTER) == Err(mpsc::RecvTimeoutError::Timeout) {
            eprintln!(
                "test {name} hangs; RINGWORK_SEED={seed}; children: {:?}",
                children()
            );
            std::process::abort();
        }
    });
    let files = open_files();
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        test(&mut rng);
        assert_eq!(children(), [0; 0], "children were left");
        assert_eq!(open_files(), files, "descriptors were left");
    }));
    drop(done);
    guard.join().expect("the guard does not panic");
    let verdict = if outcome.is_ok() { "ok" } else { "FAILED" };
    println!(
        "test {name} ... {verdict} ({:.2} s)",
        start.elapsed().as_secs_f64()
    );
    if outcome.is_err() {
        println!("  again with RINGWORK_SEED={seed} and the test's name");
    }
    outcome.is_ok()
}
