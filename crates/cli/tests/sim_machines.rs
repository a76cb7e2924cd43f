//! Sweeps and machines through the real program: varied, shown, refused, interrupted.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use std::process::{Command, Stdio};
use support::{Folder, json, ok, refused};

#[test]
fn a_sweep_varies_machines_and_sizes_on_all_cores_in_a_fixed_order() {
    let folder = Folder::new("sweep");
    let spec = folder.write(
        "spec.yaml",
        "op: all_reduce\ntopology: [ring-4, ring-6]\nsizes: [4 KiB, 64 KiB]\nalgorithms: [ring, twophase]\n\
         vary:\n  network.bandwidth: [10 GB/s, 100 GB/s]\n  faults: [[], [{from: 0, to: 1, failed: yes}]]\n",
    );
    let (csv, html) = (folder.path("rows.csv"), folder.path("rows.html"));
    let text = ok(&format!("sim sweep {spec} -j 4 --csv={csv} --plot {html}"));
    assert!(text.contains("data verified on every rank"), "{text}");
    let lines = folder.read("rows.csv");
    assert_eq!(lines.lines().count(), 1 + 2 * 2 * 2 * 2 * 2, "{lines}");
    let again = json(&format!("sim sweep {spec} -j 1 --json"));
    let rows = again["rows"].as_array().unwrap();
    for (line, row) in lines.lines().skip(1).zip(rows) {
        let us = format!(",{:.6},", row["time_ps"].as_f64().unwrap() / 1e6);
        assert!(line.contains(&us), "{line} {row}");
    }
    let time = |bandwidth: &str, faults: &str| {
        let row = rows.iter().find(|row| {
            row["topology"] == "ring-6"
                && row["algo"] == "ring"
                && row["bytes"] == 65536
                && row["varied"]["network.bandwidth"] == bandwidth
                && row["varied"]["faults"] == faults
        });
        row.unwrap()["time_ps"].as_u64().unwrap()
    };
    let broken = "[{from: 0, to: 1, failed: true}]";
    assert!(time("100 GB/s", "[]") < time("10 GB/s", "[]"));
    assert!(time("10 GB/s", "[]") < time("10 GB/s", broken));
    assert!(folder.read("rows.html").contains("network.bandwidth=10 GB/s"));
}

#[test]
fn a_sweep_that_cannot_be_is_refused_with_its_line() {
    let folder = Folder::new("bad-sweep");
    let base = "op: all_reduce\ntopology: ring-4\nsizes: 4 KiB\n";
    for (text, expected) in [
        (
            "op: all_reduce\nsizes: 4 KiB\n".to_owned(),
            "the key `topology` is missing",
        ),
        (
            format!("{base}vary:\n  network.bandwith: [1 GB/s]\n"),
            "there is no key `bandwith` here; did you mean `bandwidth`?",
        ),
        (
            format!("{base}vary:\n  network.bandwidth: [-1 GB/s]\n"),
            "out of range",
        ),
        (
            format!("{base}algorithm: ring\n"),
            "spec.yaml:4: there is no key `algorithm` here; did you mean `algorithms`?",
        ),
        (format!("{base}ranks: [2, 9]\n"), "world size 9"),
        (
            format!("{base}timing_only: maybe\n"),
            "spec.yaml:4: `maybe` is neither yes nor no",
        ),
        (base.replace("4 KiB", "4"), "`4` has no unit"),
        (
            base.replace("all_reduce", "all_redcue"),
            "did you mean `all_reduce`?",
        ),
    ] {
        let spec = folder.write("spec.yaml", &text);
        let error = refused(&format!("sim sweep {spec}"));
        assert!(error.contains(expected), "{text}: {error}");
    }
}

#[test]
fn a_sweep_takes_what_it_does_not_say_from_a_ccl_file() {
    let folder = Folder::new("ccl-sweep");
    let ccl = folder.write(
        "ccl.yaml",
        "defaults: {algorithm: ring, n_elem: 1024, dtype: f64}\nalgorithms:\n  ring: {world_size: 3}\n",
    );
    let base = format!("op: all_reduce\ntopology: [ring-4, ring-6]\nccl: {ccl}\n");
    let rows = |text: &str| {
        let spec = folder.write("spec.yaml", text);
        let all = json(&format!("sim sweep {spec} --json"));
        let rows = all["rows"].as_array().unwrap();
        let of = |row: &serde_json::Value| {
            let number = |key: &str| row[key].as_u64().unwrap();
            let algo = row["algo"].as_str().unwrap().to_owned();
            (algo, number("ranks"), number("bytes"))
        };
        rows.iter().map(of).collect::<Vec<_>>()
    };
    assert_eq!(rows(&base), vec![("ring".to_owned(), 3, 8192); 2]);
    let said = format!("{base}sizes: 64 KiB\nranks: 2\nalgorithms: direct\ndtype: f32\n");
    assert_eq!(rows(&said), vec![("direct".to_owned(), 2, 65536); 2]);
    for (ccl, expected) in [
        (
            "defaults: {algoritm: ring}\n",
            "ccl.yaml:1: defaults: there is no key `algoritm` here; did you mean `algorithm`?",
        ),
        ("defaults: {world_size: 5}\n", "world size 5 (the default in"),
        ("defaults: {algorithm: ring}\n", "the key `sizes` is missing"),
    ] {
        folder.write("ccl.yaml", ccl);
        let spec = folder.write("spec.yaml", &base);
        let error = refused(&format!("sim sweep {spec}"));
        assert!(error.contains(expected), "{ccl}: {error}");
    }
    let spec = folder.write(
        "spec.yaml",
        "op: all_reduce\ntopology: ring-4\nccl: missing.yaml\n",
    );
    let error = refused(&format!("sim sweep {spec}"));
    assert!(
        error.contains("spec.yaml:3: ccl: missing.yaml: No such file"),
        "{error}"
    );
}

#[test]
fn machines_are_listed_and_shown() {
    let list = ok("topo list");
    for preset in [
        "h100x8",
        "v100x8",
        "tpu-v5e-16x16",
        "ascend-a3-pod",
        "ascend-910b-8",
        "sip6-torus",
        "ring-N",
        "torus-XxYxZ",
    ] {
        assert!(list.contains(preset), "{list}");
    }
    assert_eq!(
        json("topo list --json")["presets"].as_array().unwrap().len(),
        list.lines().count() - 2
    );
    let folder = Folder::new("topo");
    let (html, svg) = (folder.path("m.html"), folder.path("m.svg"));
    let shown = ok(&format!("topo show v100x8 --html {html} --svg {svg}"));
    assert!(shown.starts_with("v100x8: 8 ranks (chips)\n"), "{shown}");
    assert!(folder.read("m.html").contains("<svg") && folder.read("m.svg").contains("</svg>"));
    // What is printed as YAML is the same machine.
    let mine = folder.write("mine.yaml", &ok("topo show v100x8 --yaml"));
    assert_eq!(ok(&format!("topo show {mine}")), ok("topo show v100x8"));
    assert!(refused("topo show h100x9").contains("did you mean `h100x8`?"));
    assert!(refused("topo show missing.yaml").contains("missing.yaml: No such file"));
}

/// However large, deep or repeated they are.
#[test]
fn bad_machines_are_refused_with_one_short_line() {
    let folder = Folder::new("bad");
    let ring = "network: {kind: ring, size: 4, bandwidth: 1 GB/s, latency: 1 us}\n";
    let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for i in 1..12 {
        bomb += &format!("a{i}: &a{i} [{}]\n", vec![format!("*a{}", i - 1); 10].join(", "));
    }
    let nested = format!("network: {}", "[".repeat(1 << 19));
    let cases = [
        (
            ring.replace("bandwidth", "bandwith"),
            "mine.yaml:1: network: there is no key `bandwith` here; did you mean `bandwidth`?",
        ),
        (
            ring.replace("1 us", "1"),
            "mine.yaml:1: network.latency: `1` has no unit",
        ),
        (
            ring.replace("1 GB/s", "-1 GB/s"),
            "mine.yaml:1: network.bandwidth: -1 GB/s is out of range",
        ),
        (
            format!(
                "{ring}faults:\n  - {{from: 0, to: 1, failed: yes}}\n  - {{from: 0, to: 3, failed: yes}}\n"
            ),
            "cannot be reached",
        ),
        (
            ring.replace("size: 4", "size: 1000000000"),
            "1000000000 chips are more than",
        ),
        (bomb, "mine.yaml:"),
        (nested, "mine.yaml:1: it is nested more than 32 deep"),
        ("network: {kind: rig, size: 4}\n".into(), "did you mean `ring`?"),
        ("\tnetwork: x".into(), "mine.yaml:1:"),
        (String::new(), "mine.yaml:"),
    ];
    for (text, expected) in cases {
        let file = folder.write("mine.yaml", &text);
        for command in [
            format!("topo show {file}"),
            format!("sim all_reduce -t {file}"),
            format!("run allreduce -p sim -t {file}"),
        ] {
            let error = refused(&command);
            assert!(error.contains(expected), "{error}");
            assert!(error.len() < 1000, "{}", error.len());
        }
    }
}

#[test]
fn an_interrupt_keeps_the_rows_that_were_known() {
    let folder = Folder::new("interrupt");
    let csv = folder.path("rows.csv");
    // Far more than anybody waits for: 2,000 sizes on 64 chips.
    let spec: Vec<String> = (1..2000).map(|kib| format!("{kib} KiB")).collect();
    let spec = format!(
        "op: all_reduce\ntopology: ring-64\nalgorithms: ring\ntiming_only: yes\nsizes: [{}]\n",
        spec.join(", ")
    );
    let spec = folder.write("spec.yaml", &spec);
    for arguments in [
        format!("sim sweep {spec} --csv={csv}"),
        format!(
            "sim all_reduce -t ring-64 --scratch 4K --algo staged-ring --timing-only -b 1K -e 1G -f 2 --csv={csv}"
        ),
    ] {
        let _ = std::fs::remove_file(&csv);
        let mut child = Command::new(env!("CARGO_BIN_EXE_ringwork"))
            .args(arguments.split_whitespace())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let rows = || std::fs::read_to_string(&csv).map_or(0, |text| text.lines().count());
        while rows() < 3 && child.try_wait().unwrap().is_none() {
            std::thread::yield_now();
        }
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(130), "{arguments}");
        let text = folder.read("rows.csv");
        assert!(text.lines().count() >= 3 && text.ends_with('\n'), "{text}");
        assert!(text.lines().skip(1).all(|line| line.ends_with(",no")), "{text}");
    }
}

/// A single step of this simulation moves the data of a thousand ranks over hundreds of links.
#[test]
fn a_large_simulation_ends_at_the_first_interrupt() {
    use std::io::{BufRead, BufReader};
    let mut child = Command::new(env!("CARGO_BIN_EXE_ringwork"))
        .args("sim all_reduce -t ring-1000 -b 1K -e 1K --algo onephase".split(' '))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let process = ringwork_testkit::process::Process::open(child.id()).unwrap();
    // It prints the heading before it begins.
    let mut heading = String::new();
    BufReader::new(child.stdout.as_mut().unwrap())
        .read_line(&mut heading)
        .unwrap();
    process.signal(rustix::process::Signal::INT);
    // To the end it would take minutes.
    assert!(process.ended(std::time::Duration::from_secs(20)), "it goes on");
    assert_eq!(child.wait().unwrap().code(), Some(130));
}

#[test]
fn a_clock_that_has_no_more_room_is_an_error_and_not_a_prediction() {
    let folder = Folder::new("clock");
    let machine = folder.write(
        "slow.yaml",
        "network: {kind: ring, size: 40, bandwidth: 50 GB/s, latency: 900000 s}\n",
    );
    for command in [
        "run allreduce -p sim -d 0-39 -t",
        "sim all_reduce -e 1K --algo ring -t",
    ] {
        let run = support::ringwork(&format!("{command} {machine}"));
        assert_eq!(run.code, Some(1), "{run:?}");
        assert!(run.stderr.contains("simulated time reached 213 days"), "{run:?}");
        assert!(!run.stderr.contains("deadlock"), "{run:?}");
    }
}
