//! Ctrl-C at any moment: exit code 130, and nothing is left.
#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    clippy::print_stdout,
    reason = "prints what it measured"
)]

use ringwork_testkit::Rng;
use ringwork_testkit::harness::{self, Test};
use ringwork_testkit::process::{adopting_orphans, children_of, cpu_ticks, reap_all};
use rustix::process::{Pid, Signal, kill_process_group};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

const TESTS: &[Test] = &[
    ("ctrl_c_in_a_run_ends_in_order", in_a_run),
    ("ctrl_c_in_bring_up_ends_in_order", in_bring_up),
    ("a_second_ctrl_c_ends_at_once", twice),
];

fn main() -> ExitCode {
    harness::main(TESTS)
}

/// `ringwork` in a process group of its own, as a shell starts it.
fn start(arguments: &[&str]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_ringwork"))
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .unwrap()
}

/// What a terminal does on Ctrl-C: everybody in the foreground group gets it.
fn ctrl_c(program: &Child) {
    kill_process_group(Pid::from_child(program), Signal::INT).unwrap();
}

/// Waits until the program has so many chips.
fn wait_for_chips(program: &Child, count: usize) -> Vec<u32> {
    loop {
        let chips = children_of(program.id());
        if chips.len() >= count {
            return chips;
        }
        std::thread::yield_now();
    }
}

/// Waits for the program's end, which must be 130, and for whatever it has left behind.
fn expect_130(mut program: Child, since: Instant, what: &str) {
    let code = program.wait().unwrap().code();
    let time = since.elapsed();
    let orphans = reap_all();
    println!(
        "Ctrl-C {what}: ended after {time:?}; {orphans} orphans gone after {:?}",
        since.elapsed()
    );
    assert_eq!(code, Some(130));
}

fn in_a_run(rng: &mut Rng) {
    // A domain; two nodes under a pod; chips' own graphs; tasks that wait for signals; kernels that are being fed.
    for example in ["allreduce", "pod", "vector_graph", "tp_ffn", "serving"] {
        adopting_orphans(|| {
            let program = start(&["run", example, "-d", "0-3", "--rounds", "100000000"]);
            let chips = wait_for_chips(&program, 4);
            // They have come up when they have worked: bring-up takes a few ticks, if that.
            while chips
                .iter()
                .any(|chip| cpu_ticks(*chip) < 5 + rng.below(5) as u64)
            {
                std::thread::yield_now();
            }
            let now = Instant::now();
            ctrl_c(&program);
            expect_130(program, now, &format!("in a run of {example}"));
        });
    }
}

fn in_bring_up(rng: &mut Rng) {
    for _ in 0..6 {
        adopting_orphans(|| {
            let program = start(&["run", "allreduce", "-d", "0-31", "--rounds", "100000000"]);
            wait_for_chips(&program, 1 + rng.below(24));
            let now = Instant::now();
            ctrl_c(&program);
            expect_130(program, now, "in bring-up");
        });
    }
}

fn twice(_: &mut Rng) {
    adopting_orphans(|| {
        let program = start(&["run", "allreduce", "-d", "0-3", "--rounds", "100000000"]);
        wait_for_chips(&program, 4);
        let now = Instant::now();
        ctrl_c(&program);
        std::thread::sleep(Duration::from_micros(200)); // the impatience of the second one
        ctrl_c(&program);
        expect_130(program, now, "twice");
    });
}
