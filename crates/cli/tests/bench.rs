//! `ringwork bench` and `ringwork tune` through the real program.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use ringwork_testkit::Folder;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Output};

fn ringwork(arguments: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringwork"));
    let Output {
        status,
        stdout,
        stderr,
    } = command.args(arguments).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (status.code(), text(&stdout), text(&stderr))
}

const QUICK: [&str; 4] = ["--target", "1ms", "-w", "2"];

fn bench(arguments: &[&str]) -> String {
    let (code, stdout, stderr) = ringwork(&[&["bench"], arguments, &QUICK[..]].concat());
    assert_eq!(code, Some(0), "{arguments:?}: {stdout}{stderr}");
    stdout
}

#[test]
fn the_table_is_that_of_nccl_tests() {
    let table = bench(&["all_reduce", "-g", "2", "-b", "8", "-e", "128", "-f", "4", "-I"]);
    assert!(
        table.contains("out-of-place") && table.contains("in-place"),
        "{table}"
    );
    assert!(table.contains("# Out of bounds values : 0 OK"), "{table}");
    assert!(table.contains("# Avg bus bandwidth    : "), "{table}");
    assert!(table.contains("launch + init + finalize of 2 ranks"), "{table}");
    let sizes: Vec<&str> = table
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert_eq!(sizes, ["8", "32", "128"]);
}

#[test]
fn every_operation_is_right_in_every_mode() {
    let rows = bench(&[
        "all",
        "-g",
        "3",
        "-b",
        "24",
        "-e",
        "200K",
        "-f",
        "64",
        "--modes",
        "oop,inp,use",
        "--csv",
    ]);
    assert!(!rows.contains("BAD"), "{rows}");
    for op in [
        "allreduce",
        "allgather",
        "reduce_scatter",
        "bcast",
        "reduce",
        "alltoall",
        "gather",
        "scatter",
        "scan",
        "exscan",
        "barrier",
    ] {
        let modes = |mode: &str| {
            let of = |line: &&str| line.split(',').skip(2).take(2).eq([op, mode]);
            rows.lines().filter(of).count()
        };
        let sizes = if op == "barrier" { 1 } else { 3 };
        let has = |is: bool| if is { sizes } else { 0 };
        assert_eq!(
            modes("oop"),
            has(!["bcast", "reduce"].contains(&op)),
            "{op}: {rows}"
        );
        let one_buffer = !["gather", "scatter", "barrier"].contains(&op);
        assert_eq!(modes("inp"), has(one_buffer), "{op}: {rows}");
        assert_eq!(modes("use"), has(op != "barrier"), "{op}: {rows}");
    }
}

#[test]
fn every_way_of_every_operation_is_right_and_has_a_row() {
    let run = |memory: &str| {
        bench(&[
            "all", "-g", "3", "-b", "12K", "-e", "12K", "--modes", "oop,inp", "--algo", "all", memory,
            "--csv",
        ])
    };
    let (window, own) = (run("--window"), run("--own"));
    assert!(!window.contains("BAD") && !own.contains("BAD"), "{window}{own}");
    for (op, ways) in [
        (
            "allreduce",
            &[
                "packet",
                "onephase",
                "twophase",
                "staged-ring",
                "window-pull",
                "window-push",
            ][..],
        ),
        ("allgather", &["packet", "staged", "window-pull"]),
        ("reduce_scatter", &["packet", "staged", "window-pull"]),
        ("bcast", &["packet", "staged", "window-pull"]),
        ("alltoall", &["packet", "staged"]),
    ] {
        for way in ways {
            let row = format!("ringwork-{way},3,{op},inp,");
            assert!(window.contains(&row), "{row}: {window}");
            assert_eq!(own.contains(&row), !way.starts_with("window"), "{row}: {own}");
        }
    }
    // What is swapped in one buffer cannot be pulled from where it lies.
    let swapped = "ringwork-window-pull,3,alltoall,";
    assert!(
        window.contains(&format!("{swapped}oop")) && !window.contains(&format!("{swapped}inp")),
        "{window}"
    );
}

#[test]
fn every_type_reduction_and_root_is_right() {
    let rows = bench(&[
        "all_reduce",
        "-b",
        "1K",
        "-e",
        "1K",
        "-d",
        "all",
        "-o",
        "all",
        "--csv",
    ]);
    assert!(!rows.contains("BAD") && rows.lines().count() > 8 * 4, "{rows}");
    let rows = bench(&[
        "reduce", "-g", "3", "-b", "1K", "-e", "1K", "-r", "all", "--modes", "inp", "--csv",
    ]);
    assert!(!rows.contains("BAD") && rows.lines().count() == 4, "{rows}");
}

#[test]
fn one_wrong_value_on_one_rank_fails_the_whole() {
    for op in [
        "all_reduce",
        "all_gather",
        "reduce_scatter",
        "broadcast",
        "all_to_all",
    ] {
        let run = |also: &[&str]| {
            let line = [
                "bench", op, "-g", "3", "-b", "12K", "-e", "12K", "--modes", "inp,use", "--spoil",
            ];
            ringwork(&[&line[..], &QUICK[..], also].concat())
        };
        let (code, stdout, stderr) = run(&[]);
        assert_eq!(code, Some(1), "{stdout}");
        assert!(
            stdout.contains("FAILED") && stderr.contains("values are wrong"),
            "{stdout}{stderr}"
        );
        let (code, stdout, _) = run(&["--csv"]);
        assert!(code == Some(1) && stdout.contains(",BAD,"), "{stdout}");
    }
}

#[test]
fn csv_has_the_columns_of_the_peers() {
    let csv = bench(&[
        "all_reduce",
        "-b",
        "64",
        "-e",
        "64",
        "--modes",
        "inp,use",
        "--csv",
    ]);
    let lines: Vec<Vec<&str>> = csv.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!(lines.len(), 3, "{csv}");
    assert!(lines.iter().all(|fields| fields.len() == 16), "{csv}");
    assert_eq!(lines[0][..5], ["peer", "np", "op", "mode", "bytes"]);
    assert_eq!(lines[1][..5], ["ringwork", "2", "allreduce", "inp", "64"]);
    assert_eq!((lines[2][3], lines[2][12]), ("use", "ok"));
    let time: f64 = lines[1][7].parse().unwrap();
    assert!(time > 0.0 && time < 1e6);
}

#[test]
fn json_is_one_object() {
    let json = bench(&[
        "all_reduce",
        "-b",
        "64",
        "-e",
        "64",
        "--algo",
        "all",
        "--modes",
        "inp",
        "--own",
        "--json",
    ]);
    let whole: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(whole["ranks"], 2);
    assert_eq!(whole["rows"].as_array().unwrap().len(), 4, "{json}");
    assert!(whole["launch_ms"].as_f64().unwrap() > 0.0);
    assert_eq!(whole["rows"][0]["memory"], "own");
}

#[test]
fn pictures_stand_alone() {
    let directory = std::env::temp_dir().join(format!("ringwork-plot-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    for name in ["curves.svg", "curves.html"] {
        let path = directory.join(name);
        bench(&[
            "all_reduce",
            "-b",
            "64",
            "-e",
            "4K",
            "--plot",
            path.to_str().unwrap(),
        ]);
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(
            text.contains("class=\"curve\"") && !text.contains("src="),
            "{text}"
        );
    }
    std::fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn a_bench_inside_a_job_takes_its_ranks() {
    let program = env!("CARGO_BIN_EXE_ringwork");
    let launch = ["launch", "-n", "3", "--", program, "bench", "barrier", "--csv"];
    let (code, stdout, stderr) = ringwork(&[&launch[..], &QUICK[..]].concat());
    assert_eq!(code, Some(0), "{stderr}");
    assert!(stdout.contains("ringwork,3,barrier,oop,0,"), "{stdout}");
    let (code, _, stderr) = ringwork(&[&launch[..], &["-g", "2"]].concat());
    assert!(
        code != Some(0) && stderr.contains("this job has 3 ranks"),
        "{stderr}"
    );
}

#[test]
fn a_wrong_environment_is_said_once_before_any_rank_is_started() {
    let folder = Folder::new("wrong-environment");
    let table = folder.path("table.yaml");
    let not_text = OsStr::from_bytes(b"\xff");
    for (variable, value) in [
        ("RINGWORK_ALGO", OsStr::new("all_reduce=rign")),
        ("RINGWORK_CCL", OsStr::new("/nowhere/at/all")),
        ("RINGWORK_TIMEOUT", OsStr::new("soon")),
        ("RINGWORK_ALGO", not_text),
        ("RINGWORK_CCL", not_text),
        ("RINGWORK_TIMEOUT", not_text),
    ] {
        for command in [&["bench", "all_reduce", "-g", "4"][..], &["tune", "-o", &table]] {
            let mut ringwork = Command::new(env!("CARGO_BIN_EXE_ringwork"));
            let refused = ringwork.args(command).env(variable, value).output().unwrap();
            let said = String::from_utf8_lossy(&refused.stderr).into_owned();
            assert!(!refused.status.success(), "{command:?}");
            assert_eq!(said.lines().count(), 1, "{command:?}: {said}");
            assert!(said.contains(variable), "{command:?}: {said}");
        }
    }
}

#[test]
fn ranks_that_fail_at_once_do_not_write_into_each_others_lines() {
    let program = env!("CARGO_BIN_EXE_ringwork");
    let mut launch = Command::new(program);
    launch.args(["launch", "-n", "8", "--", program, "bench", "barrier", "-g", "8"]);
    let refused = launch.env("RINGWORK_ALGO", "all_reduce=rign").output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("RINGWORK_ALGO"), "{said}");
    for line in said.lines() {
        let whole = line.starts_with("error: the environment variable") && line.ends_with("window-push");
        assert!(whole || line.starts_with("ringwork: rank "), "{said}");
    }
}

#[test]
fn what_cannot_be_measured_is_refused_with_a_cure() {
    let refused = |arguments: &[&str], says: &str| {
        let (code, _, stderr) = ringwork(&[&["bench"], arguments].concat());
        assert_ne!(code, Some(0), "{arguments:?}");
        assert!(stderr.contains(says), "{arguments:?}: {stderr}");
    };
    refused(&["all_redcue"], "did you mean `all_reduce`?");
    refused(&["all_reduce", "-b", "1M", "-e", "1K"], "below the smallest");
    refused(&["all_reduce", "-b", "8X"], "use for example 8, 4K, 64M or 1G");
    refused(&["all_reduce", "-b", "0"], "nothing would be measured");
    refused(&["all_reduce", "-g", "65"], "65");
    refused(&["all_reduce", "-f", "1"], "1");
    refused(&["reduce", "-r", "2", "-g", "2"], "there are 2 ranks");
    refused(&["all_reduce", "--plot", "x.png"], ".svg or .html");
    refused(
        &["all_reduce", "--algo", "staged-rign"],
        "did you mean `staged-ring`?",
    );
    refused(
        &["broadcast", "--algo", "ring"],
        "use one of packet, staged, window-pull",
    );
    refused(&["barrier", "--algo", "all"], "only one way");
}

#[test]
fn tuning_writes_a_table_of_ways_that_is_read_back() {
    let path = std::env::temp_dir().join(format!("ringwork-{}.yaml", std::process::id()));
    let file = path.to_str().unwrap();
    let (code, stdout, stderr) = ringwork(&["tune", "-g", "2", "-e", "1K", "-o", file]);
    assert_eq!(code, Some(0), "{stderr}");
    assert!(stdout.contains("RINGWORK_CCL="), "{stdout}");
    let table = std::fs::read_to_string(&path).unwrap();
    for op in [
        "all_reduce",
        "all_gather",
        "reduce_scatter",
        "broadcast",
        "all_to_all",
    ] {
        let of = format!("- {{collective: {op}, ranks: 2, ranks_per_core: ");
        let rows: Vec<&str> = table.lines().filter(|line| line.contains(&of)).collect();
        let last = rows.last().unwrap_or_else(|| panic!("no row for {op}: {table}"));
        assert!(!last.contains("bytes:"), "the last fits any size: {table}");
    }
    let tuned = Command::new(env!("CARGO_BIN_EXE_ringwork"))
        .args([
            "bench",
            "all_reduce",
            "-b",
            "64",
            "-e",
            "64",
            "--own",
            "--modes",
            "inp",
        ])
        .args(QUICK)
        .envs([("RINGWORK_CCL", file), ("RINGWORK_DEBUG", "1")])
        .output()
        .unwrap();
    std::fs::remove_file(&path).unwrap();
    let said = String::from_utf8_lossy(&tuned.stderr).into_owned();
    let first = table
        .lines()
        .find(|line| line.contains("all_reduce") && !line.contains("window"));
    let way = first
        .unwrap()
        .trim_end_matches('}')
        .split_whitespace()
        .last()
        .unwrap();
    let chosen = format!("all_reduce of 64 bytes, staged: {way} (row ");
    assert!(
        tuned.status.success() && said.contains(&chosen),
        "{chosen}: {said}{table}"
    );
    assert!(said.contains(file), "{said}");
}
