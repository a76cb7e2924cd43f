//! Output that cannot be written: one line that says why, and an exit code of its own.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use std::fs::{File, OpenOptions};
use std::process::{Command, Stdio};
use support::Run;

fn full_disk() -> File {
    OpenOptions::new().write(true).open("/dev/full").unwrap()
}

fn ringwork(arguments: &str, output: impl Into<Stdio>) -> Run {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringwork"));
    command.args(arguments.split_whitespace()).stdout(output);
    run_as(command.stderr(Stdio::piped()))
}

fn run_as(command: &mut Command) -> Run {
    let output = command.spawn().unwrap().wait_with_output().unwrap();
    Run {
        code: output.status.code(),
        stdout: String::new(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

const COMMANDS: &[&str] = &[
    "run vector_add",
    "run vector_add --json",
    "examples",
    "examples --json",
    "doctor",
    "topo list",
    "topo show ring-4",
    "sim all_reduce -t ring-4 -e 1K",
    "sim all_reduce -t ring-4 -e 1K --json",
    "--help",
    "--version",
];

#[test]
fn a_full_disk_is_one_line_and_exit_code_74_in_every_command() {
    for arguments in COMMANDS {
        let run = ringwork(arguments, full_disk());
        assert_eq!(run.code, Some(74), "{arguments}: {run:?}");
        assert_eq!(run.stderr.lines().count(), 1, "{arguments}: {run:?}");
        assert!(run.stderr.contains("No space left"), "{arguments}: {run:?}");
    }
}

#[test]
fn a_pipe_that_nobody_reads_ends_every_command_quietly() {
    for arguments in COMMANDS {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let run = ringwork(arguments, writer);
        assert_eq!((run.code, run.stderr.as_str()), (Some(141), ""), "{arguments}");
    }
}

#[test]
fn a_full_disk_behind_a_launcher_is_an_error() {
    let run = ringwork("launch -n 2 --tag-output -- echo hi", full_disk());
    assert_eq!(run.code, Some(74), "{run:?}");
    assert!(run.stderr.contains("No space left"), "{run:?}");
}

#[test]
fn a_full_standard_error_is_no_panic() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringwork"));
    let arguments = ["launch", "-n", "2", "--", "false"];
    let code = command
        .args(arguments)
        .stderr(full_disk())
        .status()
        .unwrap()
        .code();
    assert_eq!(code, Some(1));
}

#[test]
fn a_benchmark_whose_reader_has_seen_enough_ends_quietly() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let run = ringwork("bench all_reduce -g 2 -e 1K", writer);
    assert_eq!((run.code, run.stderr.as_str()), (Some(141), ""));
}

#[test]
fn a_benchmark_that_cannot_write_its_file_says_that_first() {
    let run = ringwork(
        "bench barrier -g 2 --target 1ms -w 1 --json=/dev/full",
        Stdio::null(),
    );
    assert_eq!(run.code, Some(1), "{run:?}");
    let first = run.stderr.lines().next().unwrap_or_default();
    assert!(first.starts_with("error: writing /dev/full: "), "{run:?}");
    assert!(!run.stderr.contains("barrier"), "{run:?}");
}

/// A file may not grow beyond a limit: the call fails and is named, the process is not killed by SIGXFSZ.
#[test]
fn a_limit_on_file_sizes_is_named() {
    let limited = |arguments: &str, output: Stdio| {
        let script = format!("ulimit -f 0; exec {} {arguments}", env!("CARGO_BIN_EXE_ringwork"));
        let mut command = Command::new("sh");
        run_as(
            command
                .args(["-c", &script])
                .stdout(output)
                .stderr(Stdio::piped()),
        )
    };
    for arguments in ["run vector_add", "bench all_reduce -g 2 -e 1K"] {
        let run = limited(arguments, Stdio::null());
        assert_eq!(run.code, Some(1), "{arguments}: {run:?}");
        assert!(run.stderr.contains("File too large"), "{arguments}: {run:?}");
    }
    let folder = support::Folder::new("file-limit");
    let file = File::create(folder.path("out")).unwrap();
    let run = limited("examples", file.into());
    assert_eq!(run.code, Some(74), "{run:?}");
    assert!(run.stderr.contains("File too large"), "{run:?}");
}

#[test]
fn a_stray_variable_that_makes_chips_is_explained() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringwork"));
    command.arg("--version").env("RINGWORK_CHIP", "1");
    let run = support::run(&mut command);
    assert_eq!(run.code, Some(70), "{run:?}");
    assert!(run.stderr.contains("unset the variable"), "{run:?}");
}

/// A pipe that takes nothing more, and whose reader does not read.
fn full_pipe() -> (std::io::PipeReader, std::io::PipeWriter) {
    use std::io::Write;
    let (reader, mut writer) = std::io::pipe().unwrap();
    rustix::io::ioctl_fionbio(&writer, true).unwrap();
    while writer.write(&[0; 4096]).is_ok() {}
    while writer.write(&[0]).is_ok() {}
    rustix::io::ioctl_fionbio(&writer, false).unwrap();
    (reader, writer)
}

#[test]
fn the_first_ctrl_c_ends_a_program_whose_output_is_blocked() {
    use rustix::process::{Pid, Signal, kill_process};
    use std::time::{Duration, Instant};
    for arguments in [
        "run vector_add",
        "run vector_add --json",
        "sim all_reduce -t ring-4 -e 1K",
        "examples",
    ] {
        let (_reader, writer) = full_pipe();
        let mut command = Command::new(env!("CARGO_BIN_EXE_ringwork"));
        command.args(arguments.split(' ')).stdout(writer);
        let child = command.stderr(Stdio::piped()).spawn().unwrap();
        let process = ringwork_testkit::process::Process::open(child.id()).unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        // 1 is `write` on every architecture that this runs on but arm, where it is 64; the descriptor is 1.
        let blocked = |what: &str| what.starts_with("1 0x1 ") || what.starts_with("64 0x1 ");
        let syscall = format!("/proc/{}/syscall", child.id());
        while !std::fs::read_to_string(&syscall).is_ok_and(|what| blocked(&what)) {
            assert!(Instant::now() < deadline, "{arguments}: it does not write");
            std::thread::yield_now();
        }
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        assert!(process.ended(Duration::from_secs(20)), "{arguments}: it goes on");
        let status = child.wait_with_output().unwrap().status;
        // A command that has no handler is killed by the signal.
        use std::os::unix::process::ExitStatusExt;
        assert!(
            status.code() == Some(130) || status.signal() == Some(2),
            "{arguments}: {status}"
        );
    }
}
