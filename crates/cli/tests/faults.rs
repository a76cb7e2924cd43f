//! The real program under faults: ranks and chips killed at random moments, and system calls that fail.
//!
//! With RINGWORK_LONG=1 2,000 kills (or as many as RINGWORK_KILLS says), and every system call failing from the first to the 30th time.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test that cannot go on has failed, and this one says what it did"
)]

mod support;

use ringwork_testkit::process::{Process, children_of};
use ringwork_testkit::{Latencies, Rng, long};
use rustix::process::Signal;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use support::Folder;

const PROGRAM: &str = env!("CARGO_BIN_EXE_ringwork");

/// Far longer than any of these programs takes to notice a death, on any machine.
const HANGS_AFTER: Duration = Duration::from_secs(45);

/// A program that runs until one of its processes is killed.
struct Victim {
    arguments: &'static str,
    processes: usize,
    /// Whether its processes are chips, which are named by device; else they are ranks.
    chips: bool,
}

const VICTIMS: [Victim; 8] = [
    chips("run allreduce -d 0-3 --rounds 100000000"),
    // Ports: kernels that the host feeds.
    chips("run serving -d 0-3 --rounds 100000000"),
    // Two nodes under one worker.
    chips("run pod -d 0-3 --rounds 100000000"),
    // Tasks that wait for signals.
    chips("run tp_ffn -d 0-3 --rounds 100000000"),
    chips("run moe_dispatch -d 0-3 --rounds 100000000"),
    // Graphs of the chips' own.
    chips("run vector_graph -d 0-3 --rounds 100000000"),
    ranks("bench all_reduce -g 3 -b 1K -e 1K --target 100s"),
    ranks("launch -n 4 -- PROGRAM bench barrier --target 100s"),
];

const fn chips(arguments: &'static str) -> Victim {
    Victim {
        arguments,
        processes: 4,
        chips: true,
    }
}

const fn ranks(arguments: &'static str) -> Victim {
    Victim {
        arguments,
        processes: 3,
        chips: false,
    }
}

impl Victim {
    fn start(&self) -> Child {
        let arguments = self.arguments.split(' ');
        Command::new(PROGRAM)
            .args(arguments.map(|word| if word == "PROGRAM" { PROGRAM } else { word }))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }

    /// What a child is called in errors, once it is a chip or a rank.
    fn name(&self, pid: u32) -> Option<String> {
        if self.chips {
            let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).ok()?;
            return Some(
                line.split('\0')
                    .next()?
                    .strip_prefix("ringwork-chip-")?
                    .to_owned(),
            );
        }
        let all = std::fs::read(format!("/proc/{pid}/environ")).ok()?;
        let all = String::from_utf8_lossy(&all).into_owned();
        all.split('\0')
            .find_map(|one| one.strip_prefix("RINGWORK_RANK="))
            .map(str::to_owned)
    }

    /// Whether the first line of an error names this process and how it ended.
    fn names(&self, stderr: &str, name: &str) -> bool {
        let (line, rest) = match self.chips {
            true => (
                stderr.lines().find_map(|line| line.strip_prefix("error: ")),
                ["chip ", "device "],
            ),
            false => (
                stderr.lines().find_map(|line| line.strip_prefix("ringwork: ")),
                ["rank ", "rank "],
            ),
        };
        let Some(line) = line else { return false };
        // The first process that is named, so that one further behind does not count.
        let named = rest.iter().filter_map(|word| {
            let at = line.find(word)?;
            let digits = line[at + word.len()..]
                .split(|c: char| !c.is_ascii_digit())
                .next()?;
            Some((at, digits.to_owned()))
        });
        let first = named.filter(|(_, digits)| !digits.is_empty()).min();
        first.is_some_and(|(_, digits)| digits == name) && line.contains("SIGKILL")
    }
}

/// Waits for the end of a program, and returns its output; `None` if it does not end.
fn end_within(mut program: Child, limit: Duration) -> Option<Output> {
    let process = Process::open(program.id())?;
    // What it says fits a pipe, so that it need not be read meanwhile.
    if !process.ended(limit) {
        program.kill().unwrap();
        program.wait().unwrap();
        return None;
    }
    program.wait_with_output().ok()
}

#[test]
fn every_kill_is_told_with_the_right_name_and_never_a_success() {
    let mut rng = Rng::from_environment();
    println!("RINGWORK_SEED={}", rng.seed());
    let asked = std::env::var("RINGWORK_KILLS").map(|kills| kills.parse().unwrap());
    let kills = asked.unwrap_or(if long() { 2_000 } else { 2 * VICTIMS.len() });
    for (index, victim) in VICTIMS.iter().enumerate() {
        let (mut latencies, mut missed) = (Latencies::default(), 0);
        while latencies.count() < kills / VICTIMS.len() {
            match kill_one(victim, &mut rng) {
                Some(latency) => latencies.push(latency),
                None => missed += 1,
            }
            assert!(missed < 100 + kills, "{}: it is never hit", victim.arguments);
        }
        println!("{index} {}: {latencies}", victim.arguments);
    }
}

/// Kills one process at a random moment, also before all have come up; returns how long the program took to end. `None`
/// if the kill came too late: the process had ended by itself, as those do that only measure how long a launch takes.
fn kill_one(victim: &Victim, rng: &mut Rng) -> Option<Duration> {
    let program = victim.start();
    let pid = program.id();
    let (wanted, moment) = (
        1 + rng.below(victim.processes),
        Duration::from_micros(rng.below(400_000) as u64),
    );
    let deadline = Instant::now() + HANGS_AFTER;
    while children_of(pid).len() < wanted {
        assert!(
            Instant::now() < deadline,
            "{}: it does not start",
            victim.arguments
        );
        std::thread::yield_now();
    }
    std::thread::sleep(moment); // the random moment
    let children = children_of(pid);
    let hit = children.get(rng.below(children.len().max(1))).and_then(|child| {
        let process = Process::open(*child)?;
        Some((victim.name(*child)?, process))
    });
    let Some((name, process)) = hit else {
        stop(program);
        return None;
    };
    let begun = Instant::now();
    process.signal(Signal::KILL);
    let brief = Process::open(pid)?.ended(Duration::from_secs(5));
    let went_on = !brief && children_of(pid).len() >= victim.processes;
    if went_on {
        stop(program);
        return None;
    }
    let output = end_within(program, HANGS_AFTER);
    let output = output.unwrap_or_else(|| panic!("{}: it hangs after the death of {name}", victim.arguments));
    let took = begun.elapsed();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    let code = if victim.chips { 1 } else { 128 + 9 };
    assert_eq!(
        output.status.code(),
        Some(code),
        "{} killed {name}: {stderr}",
        victim.arguments
    );
    assert!(
        victim.names(&stderr, &name),
        "{} killed {name}: {stderr}",
        victim.arguments
    );
    assert!(!stderr.contains("panicked"), "{stderr}");
    Some(took)
}

/// Ends a program that is not needed any more.
fn stop(mut program: Child) {
    program.kill().unwrap();
    program.wait().unwrap();
}

/// System calls that these programs make, and how they are made to fail. Not those that the loader makes before `main`.
const CALLS: [(&str, &str); 24] = [
    ("memfd_create", "EMFILE"),
    ("fallocate", "ENOSPC"),
    ("fcntl", "EINVAL"),
    ("eventfd2", "EMFILE"),
    ("socketpair", "EMFILE"),
    ("socket", "EMFILE"),
    ("bind", "EACCES"),
    ("listen", "EOPNOTSUPP"),
    ("connect", "EACCES"),
    ("accept4", "EMFILE"),
    ("sendmsg", "ENOBUFS"),
    ("recvmsg", "ENOMEM"),
    ("poll", "ENOMEM"),
    ("pidfd_open", "ENOSYS"),
    ("pidfd_send_signal", "EPERM"),
    ("clone3", "EAGAIN"),
    ("execve", "ENOMEM"),
    ("prctl", "ENOSYS"),
    ("sched_setaffinity", "EPERM"),
    ("epoll_create1", "EMFILE"),
    ("epoll_ctl", "ENOMEM"),
    ("waitid", "EINVAL"),
    ("getsockopt", "ENOPROTOOPT"),
    ("write", "ENOSPC"),
];

const PROGRAMS: [&str; 2] = [
    "run allreduce -d 0-1",
    "launch -n 2 -- PROGRAM bench barrier --target 1ms -w 1",
];

#[test]
#[ignore = "needs strace; `.ci/run long` runs it where there is one"]
fn a_system_call_that_fails_is_an_error_and_neither_a_hang_nor_a_panic() {
    let mut rng = Rng::from_environment();
    println!("RINGWORK_SEED={}", rng.seed());
    let (mut tolerated, mut told) = (0, 0);
    for program in PROGRAMS {
        for (call, error) in CALLS {
            // In the normal form one of the first times, at random.
            let times = if long() {
                1..=30
            } else {
                let n = 1 + rng.below(4);
                n..=n
            };
            for time in times {
                match inject(program, call, error, time) {
                    0 => tolerated += 1,
                    _ => told += 1,
                }
            }
        }
    }
    println!("{tolerated} did not matter, {told} were told");
    assert!(told > 0, "nothing was hit");
}

/// What stands in the error, of calls that a sandbox or an old kernel refuses.
const REFUSED: [(&str, &str, &str, &str); 4] = [
    ("launch -n 2 -- true", "pidfd_open", "ENOSYS", "pidfd_open: "),
    (
        "launch -n 2 -- true",
        "prctl",
        "EPERM",
        "prctl(PR_SET_PDEATHSIG): ",
    ),
    (
        "launch -n 2 --pin core -- true",
        "sched_setaffinity",
        "EPERM",
        "(--pin core): ",
    ),
    ("doctor", "prctl", "EPERM", "MISSING  prctl"),
];

#[test]
#[ignore = "needs strace; `.ci/run long` runs it where there is one"]
fn a_call_that_the_system_refuses_is_named() {
    for (program, call, error, expected) in REFUSED {
        let inject = format!("inject={call}:error={error}");
        let trace = format!("trace={call}");
        let output = Command::new("strace")
            .args([
                "-f",
                "-qq",
                "-o",
                "/dev/null",
                "-e",
                &trace,
                "-e",
                &inject,
                PROGRAM,
            ])
            .args(program.split(' '))
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said).into_owned();
        assert_eq!(output.status.code(), Some(1), "{program}: {said}");
        assert!(said.contains(expected), "{program}: {said}");
    }
}

/// Runs a program whose processes each get an error from a system call the n-th time; returns its exit code.
fn inject(program: &str, call: &str, error: &str, time: usize) -> i32 {
    let folder = Folder::new("inject");
    let what = format!("{program}: {call} fails with {error} the {time}. time");
    let child = Command::new("strace")
        .args([
            "-f",
            "-qq",
            "-o",
            &folder.path("trace"),
            "-e",
            &format!("trace={call}"),
            "-e",
        ])
        .arg(format!("inject={call}:error={error}:when={time}"))
        .arg(PROGRAM)
        .args(
            program
                .split(' ')
                .map(|word| if word == "PROGRAM" { PROGRAM } else { word }),
        )
        .env("RINGWORK_TIMEOUT", "5")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let limit = 2 * HANGS_AFTER;
    let output = end_within(child, limit).unwrap_or_else(|| panic!("{what}: it hangs"));
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    let code = output.status.code();
    let code = code.unwrap_or_else(|| panic!("{what}: {:?}: {stderr}", output.status));
    assert!(!stderr.contains("panicked"), "{what}: {stderr}");
    assert!(
        code != 101 && code < 128 + 32,
        "{what}: exit code {code}: {stderr}"
    );
    // What could not be written to standard error cannot be told there.
    let silent = stderr.trim().is_empty() && call != "write";
    assert!(code == 0 || !silent, "{what}: exit code {code} and not a word");
    code
}
