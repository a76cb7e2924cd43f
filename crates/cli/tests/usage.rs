//! What a user types right and wrong, and what comes back.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod support;

use serde_json::Value;
use std::collections::BTreeSet;
use std::process::Command;
use support::{Run, ringwork, run, verified};

/// The arguments are refused: exit code 2, nothing on standard output, one clear line.
fn refused(arguments: &str, wanted: &str) {
    let Run { code, stdout, stderr } = ringwork(arguments);
    assert_eq!(code, Some(2), "{arguments}: {stderr}");
    assert_eq!(stdout, "", "{arguments}");
    assert!(
        stderr.starts_with("error: ") && stderr.contains(wanted),
        "{arguments}: {stderr}"
    );
}

#[test]
fn a_run_prints_its_devices_a_line_per_rank_and_a_verdict() {
    let Run { code, stdout, stderr } = ringwork("run allreduce -d 0-3");
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
    let lines: Vec<_> = stdout.lines().collect();
    assert_eq!(
        lines[0],
        "allreduce: 256 x f32 (1.0 KiB) per rank, twophase, on devices 0, 1, 2, 3"
    );
    for rank in 0..4 {
        assert_eq!(
            lines[1 + rank],
            format!("  device {rank}  rank {rank}  ok     256 values as expected")
        );
    }
    assert!(
        lines[5].starts_with("verified on every rank: 1 round in "),
        "{}",
        lines[5]
    );
    assert_eq!(lines.len(), 6);
}

#[test]
fn a_wrong_example_suggests_the_nearest() {
    refused(
        "run all_reduce",
        "there is no example `all_reduce`; did you mean `allreduce`?",
    );
    refused("run vectoradd", "did you mean `vector_add`?");
    refused("run overlaping_domain", "did you mean `overlapping_domains`?");
    refused(
        "run zzz",
        "there is no example `zzz`; `ringwork examples` lists them",
    );
}

#[test]
fn bad_device_lists_are_refused_with_what_is_wrong() {
    refused("run allreduce -d 3-0", "`3-0` runs backwards; write 0-3");
    refused(
        "run allreduce -d 0,x",
        "`x` is not a device number; use for example 0-3 or 0,2,5",
    );
    refused("run allreduce -d 0,,2", "`` is not a device number");
    refused("run allreduce -d -1", "-1");
    refused("run allreduce -d 0-2,1", "device 1 is there twice");
    refused("run allreduce -d 0-64", "more than 64 devices");
    refused("run allreduce -d 0-4294967295", "more than 65536 devices");
    refused(
        "run allreduce -d 99999999999",
        "`99999999999` is not a device number",
    );
    refused(
        "run overlapping_domains -d 0",
        "`overlapping_domains` needs at least 2 devices; use -d",
    );
}

#[test]
fn other_bad_arguments_are_refused_with_what_would_do() {
    refused("run allreduce --algo rign", "did you mean `ring`?");
    refused(
        "run allgather --algo centre",
        "all_gather has no algorithm `centre`; use one of packet, staged, window-pull",
    );
    refused(
        "run vector_add --algo ring",
        "there is no collective in it; leave --algo out",
    );
    refused(
        "run pod --algo torus",
        "its collective cannot be done by `torus`; use one of packet, onephase",
    );
    refused(
        "run allreduce -p sim -d 0-3 -t v100x8 --algo torus",
        "needs ranks that form a grid",
    );
    refused(
        "run allreduce --dtype f31",
        "use one of f32, f16, bf16, f64, i8, u8, i32, i64",
    );
    refused("run allreduce --rounds 0", "'--rounds <ROUNDS>'");
    refused("run allreduce --count -1", "-1");
    refused(
        "run allreduce --count 1073741825",
        "--count 1073741825 is more than 1073741824",
    );
    refused("run allreduce -p cloud", "possible values: native");
    refused("exmples", "'examples'");
    refused("run", "<NAME>");
}

#[test]
fn devices_that_an_example_has_no_use_for_are_not_started_and_it_says_so() {
    let Run { code, stdout, stderr } = ringwork("run vector_add -d 4-6");
    assert_eq!(code, Some(0));
    assert_eq!(
        stderr,
        "note: `vector_add` uses 1 of these devices; not started: 5, 6\n"
    );
    assert!(
        stdout.starts_with("vector_add: 256 x f32 (1.0 KiB) per chip, on device 4\n"),
        "{stdout}"
    );
}

#[test]
fn json_is_one_object_with_everything_in_it() {
    let json = verified("allreduce -d 0-1 --algo ring --count 10 --dtype bf16 --rounds 3");
    let wanted = serde_json::json!({
        "example": "allreduce", "platform": "native", "devices": [0, 1], "count": 10, "dtype": "bf16",
        "algo": "ring", "rounds": 3, "verified": true,
        "checks": [
            { "device": 0, "who": "rank 0", "values": 10, "wrong": null },
            { "device": 1, "who": "rank 1", "values": 10, "wrong": null },
        ],
        "launch_us": json["launch_us"], "round_us": json["round_us"],
    });
    assert_eq!(json, wanted);
    let time = |name: &str| json["round_us"][name].as_f64().unwrap();
    assert!(0.0 < time("min") && time("min") <= time("median") && time("median") <= time("max"));
    assert!(json["launch_us"].as_f64().unwrap() > 0.0);
}

#[test]
fn a_run_that_cannot_be_fails_with_the_numbers_in_words_and_in_json() {
    // 64 chips with 65 times 8 GiB each: more than any machine that runs this test has.
    let Run { code, stdout, stderr } =
        ringwork("run allgather -d 0-63 --count 1073741824 --dtype f64 --json");
    assert_eq!(code, Some(1), "{stderr}");
    assert!(
        stderr.starts_with("error: ")
            && stderr.contains("`allgather` with --count 1073741824 on 64 devices needs 32.5 TiB of memory"),
        "{stderr}"
    );
    let json: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(json["verified"], false);
    assert!(stderr.contains(json["error"].as_str().unwrap()));
}

#[test]
fn every_listed_example_runs_as_it_is_listed() {
    let Run { code, stdout, .. } = ringwork("examples --json");
    assert_eq!(code, Some(0));
    let json: Value = serde_json::from_str(&stdout).unwrap();
    let listed = json["examples"].as_array().unwrap();
    assert_eq!(listed.len(), 20);
    let people = ringwork("examples").stdout;
    for example in listed {
        let name = example["name"].as_str().unwrap();
        assert!(people.contains(&format!("{name} ")), "{people}");
        let devices = verified(name)["devices"].as_array().unwrap().len();
        assert_eq!(devices as u64, example["default_devices"].as_u64().unwrap());
    }
}

#[test]
fn doctor_finds_that_this_machine_will_do() {
    let Run { code, stdout, .. } = ringwork("doctor");
    assert_eq!(code, Some(0), "{stdout}");
    for name in [
        "cores",
        "memory",
        "sealed memory",
        "pidfd",
        "prctl",
        "futex",
        "open files",
    ] {
        assert!(stdout.contains(name), "{stdout}");
    }
    assert!(stdout.ends_with("Nothing is missing: ringwork runs here.\n"));
    let json: Value = serde_json::from_str(&ringwork("doctor --json").stdout).unwrap();
    assert_eq!(json["missing"], 0);
    assert_eq!(json["findings"].as_array().unwrap().len(), 12);
}

#[test]
fn help_names_every_command_and_no_arguments_is_a_question() {
    let help = ringwork("--help");
    assert_eq!(help.code, Some(0));
    for command in ["run", "examples", "doctor"] {
        assert!(help.stdout.contains(command), "{}", help.stdout);
    }
    assert_eq!(ringwork("").code, Some(2));
    assert_eq!(
        ringwork("--version").stdout,
        concat!("ringwork ", env!("CARGO_PKG_VERSION"), "\n")
    );
}

fn entries(path: &str) -> BTreeSet<std::ffi::OsString> {
    let Ok(listing) = std::fs::read_dir(path) else {
        return BTreeSet::new();
    };
    listing
        .filter_map(|entry| Some(entry.ok()?.file_name()))
        .collect()
}

#[test]
fn shared_memory_and_temporary_directories_stay_as_they_were() {
    let temporary =
        std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("empty-{}", std::process::id()));
    std::fs::create_dir_all(&temporary).unwrap();
    // Other programs may use /dev/shm meanwhile; what is ours would be there every time.
    let mut added = Vec::new();
    for _ in 0..3 {
        let before = entries("/dev/shm");
        for arguments in [
            "run allreduce -d 0-3 --rounds 5",
            "run all_to_all -d 0-7",
            "run no_such_example",
        ] {
            let mut command = Command::new(env!("CARGO_BIN_EXE_ringwork"));
            run(command.args(arguments.split(' ')).env("TMPDIR", &temporary));
        }
        added = entries("/dev/shm").difference(&before).cloned().collect();
        if added.is_empty() {
            break;
        }
    }
    assert_eq!(added, Vec::<std::ffi::OsString>::new());
    std::fs::remove_dir(&temporary).expect("nothing was written to the temporary directory");
}
