//! The simulator through the real program: examples, predictions, sweeps, machines, and what is refused.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use serde_json::Value;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use support::{ringwork, verified};

/// A directory of this test's own, gone at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("ringwork-sim-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn path(&self, file: &str) -> String {
        self.0.join(file).display().to_string()
    }

    fn write(&self, file: &str, text: &str) -> String {
        let path = self.path(file);
        std::fs::write(&path, text).unwrap();
        path
    }

    fn read(&self, file: &str) -> String {
        std::fs::read_to_string(self.0.join(file)).unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Runs a command that must succeed, and returns what it printed.
fn ok(arguments: &str) -> String {
    let run = ringwork(arguments);
    assert_eq!(run.code, Some(0), "ringwork {arguments}: {run:?}");
    run.stdout
}

fn json(arguments: &str) -> Value {
    serde_json::from_str(&ok(arguments)).unwrap()
}

/// Runs a command that must be refused before anything starts, and returns its one line.
fn refused(arguments: &str) -> String {
    let run = ringwork(arguments);
    assert_eq!(run.code, Some(2), "ringwork {arguments}: {run:?}");
    assert_eq!(run.stderr.lines().count(), 1, "{run:?}");
    run.stderr
}

const EXAMPLES: [(&str, u32); 13] = [
    ("vector_add", 1),
    ("multi_chip_dispatch", 1),
    ("allreduce", 1),
    ("allgather", 1),
    ("reduce_scatter", 1),
    ("broadcast", 1),
    ("reduce", 1),
    ("all_to_all", 1),
    ("resident_weight", 1),
    ("overlapping_domains", 2),
    ("tp_ffn", 1),
    ("moe_dispatch", 1),
    ("serving", 1),
];

#[test]
fn every_example_is_verified_on_every_kind_of_network() {
    for (name, least) in EXAMPLES {
        for (topology, devices) in [
            ("ring-3", 3),
            ("torus-2x2", 4),
            ("h100x8", 8),
            ("nodes-2x4", 5),
            ("sip6-torus", 2),
        ] {
            let json = verified(&format!(
                "{name} -p sim -t {topology} -d 0-{} --rounds 2",
                devices - 1
            ));
            assert_eq!(json["platform"], "sim");
            assert_eq!(json["simulated"]["topology"], topology);
            assert_eq!(json["simulated"]["round_ps"].as_array().unwrap().len(), 2);
        }
        let json = verified(&format!("{name} -p sim -d 0-{} --count 7", least - 1));
        assert!(
            json["simulated"]["topology"]
                .as_str()
                .unwrap()
                .starts_with("ring-")
        );
    }
}

#[test]
fn every_algorithm_and_type_is_verified_and_every_round_takes_the_same() {
    for algo in ["onephase", "twophase", "ring", "bidirectional-ring"] {
        let json = verified(&format!(
            "allreduce -p sim -t switch-4 --algo {algo} --count 1001 --rounds 4"
        ));
        let rounds = json["simulated"]["round_ps"].as_array().unwrap();
        assert!(
            rounds
                .iter()
                .all(|round| round == &rounds[0] && round.as_u64() > Some(0)),
            "{json}"
        );
    }
    for dtype in ["f16", "bf16", "f64", "i8", "u8", "i32", "i64"] {
        verified(&format!("allreduce -p sim --dtype {dtype}"));
    }
}

#[test]
fn devices_are_chips_of_the_machine() {
    let near = verified("reduce -p sim -t line-8 -d 0,1");
    let far = verified("reduce -p sim -t line-8 -d 0,7");
    let total = |json: &Value| json["simulated"]["total_ps"].as_u64().unwrap();
    assert!(total(&far) > 5 * total(&near), "{near} {far}");
    let run = ringwork("run reduce -p sim -t line-8 -d 0,8");
    assert_eq!(run.code, Some(1));
    assert!(
        run.stderr
            .contains("there is no device 8 on `line-8`, which has 8, from 0"),
        "{run:?}"
    );
}

#[test]
fn the_prediction_is_said_with_the_busiest_link() {
    let text = ok("run allreduce -p sim -t h100x8 -d 0-7");
    assert!(text.contains("\npredicted on h100x8: "), "{text}");
    assert!(text.contains("\nbusiest link: network "), "{text}");
    let free = ok("run vector_add -p sim");
    assert!(
        free.contains("0 ps\nnothing that this machine describes takes time here"),
        "{free}"
    );
}

/// The kernels of a chip in the order they began.
fn kernels_in_order(trace: &Value, chip: u64) -> Vec<String> {
    let events = trace["traceEvents"].as_array().unwrap().iter();
    let names = ["linear", "add_up", "ffn", "all_reduce"];
    let mut kernels: Vec<_> = events
        .filter(|event| event["ph"] == "X" && event["pid"] == chip)
        .filter(|event| names.iter().any(|name| event["name"] == *name))
        .map(|event| (event["ts"].as_f64().unwrap(), event["name"].as_str().unwrap()))
        .collect();
    kernels.sort_by(|a, b| a.0.total_cmp(&b.0));
    kernels.into_iter().map(|(_, name)| name.to_owned()).collect()
}

#[test]
fn tp_ffn_works_on_one_batch_while_another_is_on_its_way() {
    let folder = Folder::new("overlap");
    for devices in [2, 4, 8] {
        let file = folder.path("trace.json");
        ok(&format!(
            "run tp_ffn -p sim -t h100x8 -d 0-{} --trace {file}",
            devices - 1
        ));
        let trace: Value = serde_json::from_str(&folder.read("trace.json")).unwrap();
        for chip in 0..devices {
            let kernels = kernels_in_order(&trace, chip);
            let nth = |name: &str, n: usize| {
                let mut found = kernels.iter().enumerate().filter(|(_, kernel)| *kernel == name);
                found.nth(n).unwrap().0
            };
            assert_eq!(kernels.len(), 4 * 3 + 1, "{kernels:?}");
            // The second batch is begun while the first one's sums are on their way; the third waits its turn.
            assert!(nth("linear", 1) < nth("add_up", 0), "{kernels:?}");
            assert!(nth("ffn", 0) < nth("linear", 2), "{kernels:?}");
            assert!(nth("ffn", 0) < nth("add_up", 2), "{kernels:?}");
            assert_eq!(nth("all_reduce", 0), 12, "{kernels:?}");
        }
    }
}

#[test]
fn a_trace_opens_in_perfetto_or_as_a_page_and_is_the_same_every_time() {
    let folder = Folder::new("trace");
    let run = |file: &str| {
        ok(&format!(
            "run allreduce -p sim -t torus-2x2 --algo ring --trace {}",
            folder.path(file)
        ))
    };
    let said = run("a.json");
    assert!(said.contains("timeline in "), "{said}");
    run("b.json");
    run("c.html");
    run("d.html");
    assert_eq!(folder.read("a.json"), folder.read("b.json"));
    assert_eq!(folder.read("c.html"), folder.read("d.html"));
    let trace: Value = serde_json::from_str(&folder.read("a.json")).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    for kind in ["task", "wait", "transfer"] {
        assert!(events.iter().any(|event| event["cat"] == kind), "{kind}");
    }
    assert!(folder.read("c.html").contains("all_reduce"));
    // What the host does in between is no matter either: tasks that wait for signals, a host that talks to kernels.
    for example in ["tp_ffn", "moe_dispatch", "serving"] {
        let runs = ["e.json", "f.json"].map(|file| {
            let path = folder.path(file);
            ok(&format!("run {example} -p sim -t h100x8 -d 0-3 --trace {path}"));
            folder.read(file)
        });
        assert_eq!(runs[0], runs[1], "{example}");
    }
    assert!(refused("run tp_ffn -p sim --dtype f64").contains("--dtype f32"));
    assert!(refused("run allreduce -p sim --trace x.txt").contains(".html"));
    assert!(refused("run allreduce --trace x.txt").contains(".html"));
    assert!(refused("run allreduce -t ring-4").contains("-p sim"));
}

#[test]
fn predictions_are_verified_bounded_and_say_who_wins() {
    let text = ok("sim all_reduce -t torus-2x2 -b 1K -e 64K");
    assert!(
        text.starts_with("# all_reduce on torus-2x2: 4 ranks, data verified on every rank\n"),
        "{text}"
    );
    assert!(text.contains("# fastest all_reduce: "), "{text}");
    let json = json("sim all -t full-3 -b 3K -e 300K -f 10 --json");
    assert_eq!(json["complete"], true);
    let rows = json["rows"].as_array().unwrap();
    assert_eq!(rows.len(), (4 + 7) * 3);
    for row in rows {
        let (time, bound) = (
            row["time_ps"].as_u64().unwrap(),
            row["bound_ps"]["total"].as_u64().unwrap(),
        );
        assert!(time >= bound && bound > 0, "{row}");
        assert!(row["percent_of_bound"].as_f64().unwrap() <= 100.0, "{row}");
        assert_eq!(row["verified"], true);
        assert!(row["busiest"]["link"].as_str().unwrap().contains('>'), "{row}");
    }
}

#[test]
fn time_does_not_depend_on_whether_data_is_computed() {
    for topology in ["v100x8", "sip6-torus -g 5", "nodes-2x3"] {
        let rows = |more: &str| {
            let json = json(&format!("sim all -t {topology} -b 6K -e 60K -f 10 --json {more}"));
            let times: Vec<_> = json["rows"]
                .as_array()
                .unwrap()
                .iter()
                .map(|row| row["time_ps"].clone())
                .collect();
            times
        };
        assert_eq!(rows(""), rows("--timing-only"), "{topology}");
    }
}

#[test]
fn more_ranks_than_a_native_node_has_are_simulated_and_verified() {
    let json = json("sim all_reduce -t ring-128 --algo ring -b 2K -e 2K --json");
    assert_eq!(json["rows"][0]["ranks"], 128);
    assert_eq!(json["rows"][0]["verified"], true);
    assert!(refused("sim all_reduce -t ring-128 -d bf16").contains("--timing-only"));
    let run = verified("allreduce -p sim -t torus-16x8 -d 0-127 --algo ring");
    assert_eq!(run["checks"].as_array().unwrap().len(), 128);
    assert!(refused("run allreduce -p sim -t ring-300 -d 0-299").contains("--dtype f64"));
    assert!(refused("run allreduce -d 0-127").contains("more than 64 devices; -p sim"));
}

#[test]
fn csv_and_plots_are_written() {
    let folder = Folder::new("csv");
    let (csv, html, svg) = (folder.path("a.csv"), folder.path("a.html"), folder.path("a.svg"));
    ok(&format!(
        "sim all_reduce -t ring-4 -e 16K --csv={csv} --plot {html}"
    ));
    ok(&format!(
        "sim broadcast -t ring-4 -e 16K --csv={csv} --plot {svg}"
    ));
    let lines = folder.read("a.csv");
    assert_eq!(lines.lines().count(), 1 + 3 * 4 + 3, "{lines}");
    assert_eq!(lines.matches("topology,varied").count(), 1);
    assert!(folder.read("a.html").contains("<svg") && folder.read("a.svg").starts_with("<svg"));
    assert!(refused("sim all_reduce -t ring-4 --plot a.png").contains(".html or .svg"));
}

#[test]
fn ccl_chooses_algorithms_sizes_and_ranks() {
    let folder = Folder::new("ccl");
    let ccl = folder.write(
        "ccl.yaml",
        "defaults: {algorithm: ring, n_elem: 1024, world_size: 4}\ncollectives:\n  broadcast: {world_size: 3, n_elem: 10}\n\
         algorithms:\n  ring: {scratch: 1 KiB}\n",
    );
    let rows = json(&format!("sim all_reduce -t ring-8 --ccl {ccl} --json"));
    let row = &rows["rows"][0];
    assert_eq!(
        (&row["algo"], &row["ranks"], &row["bytes"]),
        (&"ring".into(), &4.into(), &4096.into())
    );
    let whole = json("sim all_reduce -t ring-8 -g 4 --algo ring -b 4K -e 4K --json");
    assert_ne!(
        row["time_ps"], whole["rows"][0]["time_ps"],
        "a small scratch moves in chunks"
    );
    let broadcast = json(&format!("sim broadcast -t ring-8 --ccl {ccl} --json"));
    assert_eq!(broadcast["rows"][0]["ranks"], 3);
    assert_eq!(broadcast["rows"][0]["bytes"], 40);
    let error = refused(&format!("sim all_reduce -t ring-3 --ccl {ccl}"));
    assert!(
        error.contains("world size 4 (the default in") && error.contains("ccl.yaml:1)"),
        "{error}"
    );
    let error = refused(&format!("sim broadcast -t ring-2 --ccl {ccl}"));
    assert!(
        error.contains("world size 3 (explicit in") && error.contains("ccl.yaml:3)"),
        "{error}"
    );
    let error = refused("sim broadcast -t ring-2 -g 9");
    assert!(
        error.contains("world size 9 (--ranks) is more than the 2 chips"),
        "{error}"
    );
    let wrong = folder.write("wrong.yaml", "defaults:\n  algorithm: ring\n  word_size: 4\n");
    let error = refused(&format!("sim all_reduce -t ring-8 --ccl {wrong}"));
    assert!(
        error
            .contains("wrong.yaml:3: defaults: there is no key `word_size` here; did you mean `world_size`?"),
        "{error}"
    );
}

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
    let nested = format!("network: {}", "[".repeat(1 << 21));
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
        (nested, "mine.yaml:1: recursion limit exceeded"),
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
            "sim all_reduce -t ring-64 --scratch 4K --algo ring --timing-only -b 1K -e 1G -f 2 --csv={csv}"
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
