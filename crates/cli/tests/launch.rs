//! `ringwork launch` through the real program. The launched program is this test binary: `rank_program`, below.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use ringwork::communicator::Communicator;
use ringwork::isa::ReduceOp;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const WHAT: &str = "LAUNCH_TEST_DOES";

/// What every rank does when it is launched.
#[test]
#[ignore = "is not a test: the others launch it"]
fn rank_program() {
    let what = std::env::var(WHAT).unwrap();
    println!(); // after what the test harness began to say
    let number = |name| std::env::var(name).unwrap().parse::<i32>().unwrap();
    let (rank, size) = (number("RINGWORK_RANK"), number("RINGWORK_SIZE"));
    match what.as_str() {
        "all_reduce" => {
            let comm = Communicator::from_env().unwrap();
            let mut data = [rank + 1];
            comm.all_reduce(&mut data, ReduceOp::Sum).unwrap();
            println!("sum {} of {size}", data[0]);
            comm.barrier().unwrap();
        }
        "says" => {
            println!("out {rank}");
            eprintln!("err {rank}");
        }
        "rank_1_exits_early" => {
            let comm = Communicator::from_env().unwrap();
            comm.barrier().unwrap();
            if rank == 1 {
                std::process::exit(3);
            }
            // Does not return: the peer is dead.
            std::process::exit(i32::from(comm.barrier().is_err()) * 44);
        }
        "rank_1_is_killed" => {
            if rank == 1 {
                std::process::abort();
            }
            stay();
        }
        "rank_1_is_killed_the_others_shrink" => {
            let mut comm = Communicator::from_env().unwrap();
            comm.barrier().unwrap();
            if rank == 1 {
                std::process::abort();
            }
            assert!(comm.barrier().is_err());
            comm = comm.shrink().unwrap();
            let mut data = [1];
            comm.all_reduce(&mut data, ReduceOp::Sum).unwrap();
            println!("survivors {}", data[0]);
            comm.barrier().unwrap();
        }
        "trains_while_rank_2_dies" => {
            let mut comm = Communicator::from_env().unwrap();
            let (mut weight, mut step) = (0.0f32, 0);
            while step < 20 {
                if rank == 2 && step == 7 {
                    std::process::abort();
                }
                // The gradient of (weight - 3)^2 / 2, the same on every rank.
                let mut gradient = [weight - 3.0];
                if comm.all_reduce(&mut gradient, ReduceOp::Avg).is_err() {
                    comm = comm.shrink().unwrap();
                    // Ranks may have failed in different steps: all go on from where rank 0 is.
                    let (mut from_step, mut from_weight) = ([step], [weight]);
                    comm.broadcast(&mut from_step, 0).unwrap();
                    comm.broadcast(&mut from_weight, 0).unwrap();
                    (step, weight) = (from_step[0], from_weight[0]);
                    continue;
                }
                weight -= 0.5 * gradient[0];
                step += 1;
            }
            println!("trained to {weight:.2} on {}", comm.size());
            comm.barrier().unwrap();
        }
        "rank_2_is_stopped" => {
            if rank == 2 {
                let own = std::process::id().to_string();
                Command::new("kill").args(["-STOP", &own]).status().unwrap();
            }
            std::process::exit(if Communicator::from_env().is_err() { 5 } else { 0 });
        }
        "rank_2_is_killed_at_the_rendezvous" => {
            if rank == 2 {
                std::process::abort();
            }
            std::process::exit(i32::from(Communicator::from_env().is_err()));
        }
        "rank_1_comes_late" => {
            let longer_than_a_notice_takes = Duration::from_millis(4500);
            if rank == 1 {
                std::thread::sleep(longer_than_a_notice_takes); // what is tested
            }
            let comm = Communicator::from_env().unwrap();
            if rank == 1 {
                std::thread::sleep(longer_than_a_notice_takes);
            }
            comm.barrier().unwrap();
            comm.barrier().unwrap();
        }
        "sleeps" => {
            println!("pid {}", std::process::id());
            stay();
        }
        "reads" => {
            let mut input = String::new();
            std::io::stdin().read_to_string(&mut input).unwrap();
            println!("read {rank} <{input}>");
        }
        "fails_alone" => std::process::exit(7),
        other => panic!("{other}"),
    }
    std::process::exit(0);
}

/// Does not end by itself, so that whoever waits for its end waits for somebody to end it.
fn stay() -> ! {
    loop {
        std::thread::park();
    }
}

fn launch(flags: &[&str], does: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringwork"));
    command.arg("launch").args(flags).arg("--");
    command.arg(std::env::current_exe().unwrap());
    command.args([
        "rank_program",
        "--exact",
        "--ignored",
        "--nocapture",
        "--test-threads=1",
    ]);
    command.env(WHAT, does).env("RINGWORK_TIMEOUT", "20");
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn lines_with<'a>(text: &'a str, what: &str) -> Vec<&'a str> {
    // A rank is a test, whose harness begins a line that the rank may then end.
    let begin = |line: &'a str| {
        line.find(what).map(|at| {
            if line.starts_with("test ") {
                &line[at..]
            } else {
                line
            }
        })
    };
    let mut lines: Vec<_> = text.lines().filter_map(begin).collect();
    lines.sort_unstable();
    lines
}

/// Whether a process with this number still runs: not gone, not a zombie.
fn runs(pid: &str) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else {
        return false;
    };
    stat.rsplit(") ")
        .next()
        .is_some_and(|rest| !rest.starts_with('Z'))
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Two sleeping ranks and their process numbers.
fn two_sleepers(flags: &[&str]) -> (Child, Vec<String>) {
    let mut child = launch(&[&["-n", "2"], flags].concat(), "sleeps")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
    let pids = lines
        .map_while(Result::ok)
        .filter_map(|line| Some(line.split_once("pid ")?.1.to_owned()));
    let pids: Vec<_> = pids.take(2).collect();
    assert!(pids.iter().all(|pid| runs(pid)), "{pids:?}");
    (child, pids)
}

fn signal(child: &Child, signal: &str) {
    let status = Command::new("kill")
        .args([signal, &child.id().to_string()])
        .status();
    assert!(status.unwrap().success());
}

#[test]
fn ranks_meet_and_reduce() {
    for (size, sum) in [("1", 1), ("2", 3), ("5", 15)] {
        for pin in ["auto", "none", "core"] {
            let Output {
                status,
                stdout,
                stderr,
            } = launch(&["-n", size, "--pin", pin, "--tag-output"], "all_reduce")
                .output()
                .unwrap();
            assert!(status.success(), "{}", text(&stderr));
            let stdout = text(&stdout);
            let said = lines_with(&stdout, &format!("sum {sum} of {size}"));
            assert_eq!(said.len().to_string(), size, "{stdout}");
        }
    }
}

#[test]
fn output_is_tagged_by_rank_and_streams_stay_apart() {
    let Output {
        status,
        stdout,
        stderr,
    } = launch(&["-n", "3", "--tag-output"], "says").output().unwrap();
    assert!(status.success());
    let (stdout, stderr) = (text(&stdout), text(&stderr));
    assert_eq!(
        lines_with(&stdout, "out "),
        ["[0] out 0", "[1] out 1", "[2] out 2"],
        "{stdout}"
    );
    assert_eq!(
        lines_with(&stderr, "err "),
        ["[0] err 0", "[1] err 1", "[2] err 2"]
    );
    assert!(lines_with(&stdout, "err ").is_empty());
}

#[test]
fn without_tags_output_is_passed_on_as_it_is() {
    let stdout = text(&launch(&["-n", "2"], "says").output().unwrap().stdout);
    assert_eq!(lines_with(&stdout, "out "), ["out 0", "out 1"]);
}

#[test]
fn input_goes_to_rank_0_alone() {
    let mut child = launch(&["-n", "2"], "reads")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"hello").unwrap();
    let stdout = text(&child.wait_with_output().unwrap().stdout);
    assert_eq!(lines_with(&stdout, "read "), ["read 0 <hello>", "read 1 <>"]);
}

#[test]
fn the_first_failure_ends_all_and_is_the_exit_code() {
    // The survivor exits with 44 the moment it notices: never what is reported.
    for _ in 0..5 {
        let Output { status, stderr, .. } = launch(&["-n", "2"], "rank_1_exits_early").output().unwrap();
        assert_eq!(status.code(), Some(3), "{}", text(&stderr));
        assert!(
            text(&stderr).contains("rank 1 failed: it exited with code 3"),
            "{}",
            text(&stderr)
        );
    }
}

#[test]
fn a_rank_that_is_killed_counts_as_128_and_its_signal() {
    let Output { status, stderr, .. } = launch(&["-n", "3"], "rank_1_is_killed").output().unwrap();
    assert_eq!(status.code(), Some(128 + 6));
    assert!(text(&stderr).contains("rank 1 failed: it was killed by SIGABRT; ending the other 2"));
}

#[test]
fn a_rank_killed_at_the_rendezvous_is_named_not_those_that_missed_it() {
    for _ in 0..5 {
        let run = launch(&["-n", "4"], "rank_2_is_killed_at_the_rendezvous").output();
        let Output { status, stderr, .. } = run.unwrap();
        let stderr = text(&stderr);
        assert_eq!(status.code(), Some(128 + 6), "{stderr}");
        assert!(
            stderr.contains("rank 2 failed: it was killed by SIGABRT"),
            "{stderr}"
        );
    }
}

#[test]
fn a_stopped_rank_is_named_beside_the_first_that_gave_up_on_it() {
    let output = launch(&["-n", "3"], "rank_2_is_stopped")
        .env("RINGWORK_TIMEOUT", "1")
        .output();
    let Output { status, stderr, .. } = output.unwrap();
    let stderr = text(&stderr);
    assert_eq!(status.code(), Some(5), "{stderr}");
    assert!(stderr.contains("; rank 2 is stopped by a signal"), "{stderr}");
}

#[test]
fn with_keep_going_survivors_of_a_death_shrink_and_finish() {
    let run = launch(&["-n", "4", "--keep-going"], "rank_1_is_killed_the_others_shrink").output();
    let Output {
        status,
        stdout,
        stderr,
    } = run.unwrap();
    let (stdout, stderr) = (text(&stdout), text(&stderr));
    assert_eq!(status.code(), Some(0), "{stderr}");
    assert!(
        stderr.contains("rank 1 failed: it was killed by SIGABRT; the others go on"),
        "{stderr}"
    );
    assert_eq!(lines_with(&stdout, "survivors 3").len(), 3, "{stdout}");
}

#[test]
fn a_job_trains_through_the_death_of_a_rank() {
    let run = launch(&["-n", "4", "--keep-going"], "trains_while_rank_2_dies").output();
    let Output {
        status,
        stdout,
        stderr,
    } = run.unwrap();
    let (stdout, stderr) = (text(&stdout), text(&stderr));
    assert_eq!(status.code(), Some(0), "{stderr}");
    assert!(
        stderr.contains("rank 2 failed: it was killed by SIGABRT; the others go on"),
        "{stderr}"
    );
    assert_eq!(lines_with(&stdout, "trained to 3.00 on 3").len(), 3, "{stdout}");
}

#[test]
fn a_rank_that_waits_for_long_is_told_of_by_the_launcher() {
    let output = launch(&["-n", "2"], "rank_1_comes_late").output().unwrap();
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    assert!(
        stderr.contains("ringwork: rank 0 has waited 3 s for rank 1 to join the job"),
        "{stderr}"
    );
    let notice = stderr
        .lines()
        .find(|line| line.starts_with("ringwork: rank 0 has waited 3 s: rank 0 waited at "));
    assert!(notice.is_some_and(|line| line.contains("of rank 1")), "{stderr}");
}

#[test]
fn with_keep_going_an_exit_with_an_error_and_the_death_of_all_are_failures() {
    let run = launch(&["-n", "2", "--keep-going"], "fails_alone")
        .output()
        .unwrap();
    assert_eq!(run.status.code(), Some(7));
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringwork"));
    let all = [
        "launch",
        "-n",
        "2",
        "--keep-going",
        "--",
        "sh",
        "-c",
        "kill -9 $$",
    ];
    assert_eq!(command.args(all).output().unwrap().status.code(), Some(128 + 9));
}

#[test]
fn a_program_that_never_joins_is_no_error() {
    let launched = |program: &str, arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ringwork"));
        command
            .args(["launch", "-n", "3", "--", program])
            .args(arguments)
            .output()
            .unwrap()
    };
    assert!(launched("true", &[]).status.success());
    assert_eq!(launched("false", &[]).status.code(), Some(1));
    assert_eq!(
        launched("sh", &["-c", "exit $((10 + RINGWORK_RANK * 0))"])
            .status
            .code(),
        Some(10)
    );
    let size = launched("sh", &["-c", "echo $RINGWORK_SIZE"]);
    assert_eq!(text(&size.stdout), "3\n3\n3\n");
}

#[test]
fn a_program_that_does_not_exist_or_cannot_run_is_named() {
    let launched = |program: &str| {
        let output = Command::new(env!("CARGO_BIN_EXE_ringwork"))
            .args(["launch", "-n", "2", program])
            .output();
        let Output { status, stderr, .. } = output.unwrap();
        (status.code(), text(&stderr))
    };
    let (code, said) = launched("./no/such");
    assert!(
        code == Some(127) && said.contains("there is no program `./no/such`"),
        "{said}"
    );
    let (code, said) = launched("no-such-program");
    assert!(
        code == Some(127) && said.contains("`./no-such-program`"),
        "{said}"
    );
    let (code, said) = launched("/etc/passwd");
    assert!(code == Some(126) && said.contains("chmod +x"), "{said}");
}

#[test]
fn ctrl_c_ends_every_rank_and_exits_with_130() {
    let (child, pids) = two_sleepers(&[]);
    signal(&child, "-INT");
    let Output { status, stderr, .. } = child.wait_with_output().unwrap();
    assert_eq!(status.code(), Some(130), "{}", text(&stderr));
    assert!(text(&stderr).contains("interrupted"));
    assert!(!pids.iter().any(|pid| runs(pid)), "reaped before it returned");
}

#[test]
fn no_rank_outlives_a_launcher_that_is_killed() {
    for flags in [&[][..], &["--tag-output"]] {
        let (mut child, pids) = two_sleepers(flags);
        child.kill().unwrap();
        child.wait().unwrap();
        eventually("ranks die with their launcher", || {
            !pids.iter().any(|pid| runs(pid))
        });
    }
}

#[test]
fn a_timeout_ends_the_job_with_124() {
    let Output { status, stderr, .. } = launch(&["-n", "2", "--timeout", "300ms"], "sleeps")
        .output()
        .unwrap();
    assert_eq!(status.code(), Some(124));
    assert!(text(&stderr).contains("--timeout"));
}

#[test]
fn one_that_ignores_being_asked_is_killed_after_the_grace() {
    // Rank 0 fails when rank 1 says that it ignores being asked; rank 1 does not end by itself.
    let pipe = std::env::temp_dir().join(format!("ringwork-grace-{}", std::process::id()));
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let script = "if [ $RINGWORK_RANK = 0 ]; then read ready < \"$PIPE\"; exit 5; fi; \
                  trap '' TERM; echo pid $$; echo ready > \"$PIPE\"; exec tail -f /dev/null";
    let output = Command::new(env!("CARGO_BIN_EXE_ringwork"))
        .args(["launch", "-n", "2", "--grace", "200ms", "--", "sh", "-c", script])
        .env("PIPE", &pipe)
        .output();
    std::fs::remove_file(&pipe).unwrap();
    let output = output.unwrap();
    assert_eq!(output.status.code(), Some(5));
    let stdout = text(&output.stdout);
    let pid = stdout.split_once("pid ").unwrap().1.trim();
    assert!(!runs(pid), "{stdout}");
}

#[test]
fn what_a_rank_started_ends_with_it() {
    let script = "sleep 61 & echo pid $!; [ $RINGWORK_RANK = 0 ] || wait; exit 9";
    let output = Command::new(env!("CARGO_BIN_EXE_ringwork"))
        .args(["launch", "-n", "2", "--tag-output", "--", "sh", "-c", script])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(9));
    let stdout = text(&output.stdout);
    for line in lines_with(&stdout, "pid ") {
        let pid = line.split_once("pid ").unwrap().1;
        eventually("its children are gone", || !runs(pid));
    }
}

#[test]
fn bad_numbers_of_ranks_are_refused() {
    for ranks in ["0", "65", "x"] {
        let output = launch(&["-n", ranks], "says").output().unwrap();
        assert_eq!(output.status.code(), Some(2));
    }
    assert_eq!(
        launch(&["-n", "2"], "fails_alone")
            .output()
            .unwrap()
            .status
            .code(),
        Some(7)
    );
}

#[test]
fn a_launch_with_few_descriptors_succeeds_or_says_what_it_lacks() {
    let program = env!("CARGO_BIN_EXE_ringwork");
    let (mut failed, mut succeeded) = (0, 0);
    for limit in 4..=20 {
        let script = format!(
            "ulimit -n {limit}; exec {program} launch -n 2 -- {program} bench barrier --target 1ms -w 1"
        );
        let output = Command::new("sh").args(["-c", &script]).output().unwrap();
        let said = text(&output.stderr);
        if output.status.success() {
            succeeded += 1;
            continue;
        }
        failed += 1;
        assert!(said.contains("raise `ulimit -n`"), "{limit} descriptors: {said}");
        assert!(!said.contains(" 0 ms"), "{limit} descriptors: {said}");
    }
    assert!(
        failed > 0 && succeeded > 0,
        "{failed} failed, {succeeded} succeeded"
    );
}
