//! Examples on the simulator through the real program: verified, timed, traced.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use serde_json::Value;
use support::{Folder, ok, refused, ringwork, verified};

const EXAMPLES: [(&str, u32); 16] = [
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
    ("two_groups", 2),
    ("vector_graph", 1),
    ("pod", 2),
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
    for algo in [
        "onephase",
        "twophase",
        "staged-ring",
        "ring",
        "bidirectional-ring",
    ] {
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
        free.contains("0 ps\nthe machine has no rate for: memory, vector engine"),
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
    for example in ["tp_ffn", "moe_dispatch", "serving", "vector_graph", "pod"] {
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
fn a_sweep_of_nothing_is_refused() {
    let folder = Folder::new("empty-sweep");
    let file = folder.path("sweep.yaml");
    for spec in [
        "topology: []\nsizes: [1 KiB]",
        "topology: ring-4\nsizes: []",
        "topology: ring-4\nsizes: [1 KiB]\nvary: {network.latency: []}",
    ] {
        std::fs::write(&file, format!("op: all_reduce\n{spec}\n")).unwrap();
        let stderr = refused(&format!("sim sweep {file}"));
        assert!(stderr.contains("nothing to simulate"), "{spec}: {stderr}");
    }
}

#[test]
fn a_place_that_has_no_effect_is_not_varied() {
    let folder = Folder::new("idle-sweep");
    let file = folder.path("sweep.yaml");
    let spec = "op: all_reduce\ntopology: ring-4\nsizes: [1 KiB]\nvary: {levels.0.latency: [1 us, 5 us]}\n";
    std::fs::write(&file, spec).unwrap();
    let stderr = refused(&format!("sim sweep {file}"));
    assert!(stderr.contains("both describe the network"), "{stderr}");
}

#[test]
fn a_time_that_cannot_be_counted_is_not_a_prediction() {
    let folder = Folder::new("long-time");
    let file = folder.path("slow.yaml");
    let slow = "network: {kind: ring, size: 40, bandwidth: 50 GB/s, latency: 900000 s}\n";
    std::fs::write(&file, slow).unwrap();
    let run = ringwork(&format!("sim all_reduce -t {file} -b 1K -e 1K --algo ring"));
    assert_ne!(run.code, Some(0), "{run:?}");
    assert!(run.stderr.contains("213 days"), "{run:?}");
}
