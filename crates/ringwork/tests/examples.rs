//! The examples, which the pages quote: each runs to its end, and what it asserts holds.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};

/// Where cargo puts the examples when it builds the tests: beside the folder of this test's own program.
fn example(name: &str) -> Command {
    let tests = std::env::current_exe().unwrap();
    let path: PathBuf = tests.ancestors().nth(2).unwrap().join("examples").join(name);
    assert!(
        path.exists(),
        "{} is missing; build it with: cargo build -p ringwork --examples",
        path.display()
    );
    let mut command = Command::new(path);
    command.stdout(Stdio::null());
    command
}

/// Starts an example once for each rank, as `ringwork launch` does.
fn as_ranks(name: &str, ranks: u32) -> Vec<ExitStatus> {
    let job = format!("{name}-{}", std::process::id());
    let start = |rank: u32| -> Child {
        example(name)
            .env("RINGWORK_RANK", rank.to_string())
            .env("RINGWORK_SIZE", ranks.to_string())
            .env("RINGWORK_RENDEZVOUS", &job)
            .spawn()
            .unwrap()
    };
    let children: Vec<Child> = (0..ranks).map(start).collect();
    children
        .into_iter()
        .map(|mut child| child.wait().unwrap())
        .collect()
}

/// Every example and how it is run: alone, or as so many ranks.
const ALONE: [&str; 14] = [
    "all_reduce_task",
    "graph",
    "neighbours",
    "parallel_step",
    "pipeline",
    "predict",
    "prove",
    "recover",
    "ring_shift",
    "serving",
    "sum",
    "tensor_parallel",
    "trace",
    "vector_add",
];
const RANKS: [&str; 4] = ["halo", "split", "spmd", "train"];
const WITH_A_DEATH: &str = "survive";

#[test]
fn every_program_of_a_node_runs_to_its_end() {
    for name in ALONE {
        let status = example(name).status().unwrap();
        assert!(status.success(), "{name}: {status}");
    }
}

#[test]
fn every_program_of_ranks_runs_to_its_end_on_each() {
    for name in RANKS {
        for (rank, status) in as_ranks(name, 4).iter().enumerate() {
            assert!(status.success(), "{name}, rank {rank}: {status}");
        }
    }
}

#[test]
fn the_survivors_of_a_death_finish() {
    let ended = as_ranks(WITH_A_DEATH, 4);
    let (dead, survivors) = ended.split_last().unwrap();
    assert!(!dead.success());
    for (rank, status) in survivors.iter().enumerate() {
        assert!(status.success(), "rank {rank}: {status}");
    }
}

#[test]
fn no_example_is_left_out() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/examples");
    let files = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<String> = files
        .map(|file| {
            file.unwrap()
                .path()
                .file_stem()
                .unwrap()
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    let mut run: Vec<&str> = ALONE.into_iter().chain(RANKS).chain([WITH_A_DEATH]).collect();
    names.sort();
    run.sort_unstable();
    assert_eq!(names, run);
}
