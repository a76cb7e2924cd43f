//! `ringwork sim` through the real program: predictions, algorithms, `ccl.yaml`, and what is refused.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use serde_json::Value;
use support::{Folder, json, ok, refused, ringwork, verified};

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
    assert_eq!(rows.len(), 55 * 3 + 2);
    for row in rows {
        let (time, bound) = (
            row["time_ps"].as_u64().unwrap(),
            row["bound_ps"]["total"].as_u64().unwrap(),
        );
        // A barrier moves nothing, so that nothing bounds it.
        assert!(time >= bound && (bound > 0) == (row["op"] != "barrier"), "{row}");
        assert!(row["percent_of_bound"].as_f64().unwrap() <= 100.0, "{row}");
        assert_eq!(row["verified"], true);
        let link = row["busiest"]["link"].as_str().unwrap();
        assert!(link.contains('>') || row["op"] == "barrier", "{row}");
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
    assert_eq!(lines.lines().count(), 1 + 3 * 14 + 3 * 6, "{lines}");
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
         algorithms:\n  ring: {slot: 64 B}\n",
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
        "small slots move in chunks"
    );
    let broadcast = json(&format!("sim broadcast -t ring-8 --ccl {ccl} --json"));
    assert_eq!(broadcast["rows"][0]["ranks"], 3);
    assert_eq!(broadcast["rows"][0]["bytes"], 40);
    let choices = folder.write(
        "choices.yaml",
        "choices:\n- {collective: all_reduce, bytes: 4 KiB, algorithm: onephase}\n\
         - {collective: all_reduce, algorithm: twophase}\n",
    );
    let rows = json(&format!(
        "sim all_reduce -t ring-4 --ccl {choices} -b 1K -e 16K -f 4 --json"
    ));
    let chosen: Vec<_> = rows["rows"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["algo"].clone())
        .collect();
    assert_eq!(chosen, ["onephase", "onephase", "twophase"]);
    let run = json(&format!("run allreduce --ccl {choices} --count 4096 --json"));
    assert_eq!(run["algo"], "twophase");
    let run = json(&format!("run allreduce -p sim --ccl {ccl} --json"));
    assert_eq!((&run["algo"], &run["count"]), (&"ring".into(), &1024.into()));
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

/// The algorithms of rows, without repetition.
fn algorithms(json: &Value) -> Vec<&str> {
    let mut names = Vec::new();
    for row in json["rows"].as_array().unwrap() {
        let name = row["algo"].as_str().unwrap();
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

const NETWORK: [&str; 6] = [
    "direct",
    "halving-doubling",
    "double-tree",
    "hierarchical",
    "torus",
    "centre",
];

#[test]
fn algorithms_for_networks_are_verified_on_every_kind_of_machine() {
    for (topology, all) in [
        ("ring-6", true),
        ("line-5", true),
        ("mesh-3x4", true),
        ("torus-3x2x2", true),
        ("full-5", true),
        ("switch-7", true),
        ("fat-tree-4x2", true),
        ("nodes-2x4", true),
        ("sip6-torus -g 16", true),
        ("h100x8", true),
        ("v100x8", false),
        ("torus-4x4 -g 6", false),
    ] {
        let json = json(&format!(
            "sim all_reduce -t {topology} -b 100 -e 10000 -f 100 --json"
        ));
        let names = algorithms(&json);
        assert_eq!(names.len(), if all { 14 } else { 11 }, "{topology}: {names:?}");
        for name in NETWORK.iter().filter(|name| !names.contains(name)) {
            let left_out = &json["left_out"][0];
            assert!(
                left_out["algos"].as_array().unwrap().contains(&(*name).into()),
                "{left_out}"
            );
            assert!(
                left_out["why"].as_str().unwrap().contains("not a grid"),
                "{left_out}"
            );
            let error = refused(&format!("sim all_reduce -t {topology} --algo {name}"));
            assert!(error.contains(&format!("`{name}` cannot run here: ")), "{error}");
        }
        for row in json["rows"].as_array().unwrap() {
            assert_eq!(row["verified"], true);
            assert!(
                row["time_ps"].as_u64() >= row["bound_ps"]["total"].as_u64(),
                "{row}"
            );
        }
    }
}

/// Closed forms of a ring for each dimension, on links of 500 ns and 50 GB/s.
#[test]
fn all_ports_of_a_torus_win_where_there_is_much_to_carry() {
    let json = json("sim all_reduce -t torus-4x4 -b 64K -e 16M -f 256 --timing-only --json");
    let time = |algo: &str, bytes: u64| {
        let mut rows = json["rows"].as_array().unwrap().iter();
        let found = rows.find(|row| row["algo"] == algo && row["bytes"] == bytes);
        found.unwrap()["time_ps"].as_u64().unwrap()
    };
    let bytes = 16 << 20;
    let (latency, drain) = (2 * 6 * 500_000, 2 * 15 * bytes / 16 * 20);
    // In pieces, levels and directions overlap; nothing is faster than what all ports need to drain.
    assert!(time("hierarchical", bytes) < latency + drain);
    assert!(time("torus", bytes) > drain / 4);
    assert!(time("torus", bytes) < time("hierarchical", bytes) / 2);
    let fastest = json["fastest"][0]["sizes"].as_array().unwrap();
    assert_eq!(fastest.last().unwrap()["algo"], "torus");
}

#[test]
fn direct_is_left_out_of_large_comparisons_and_done_if_asked_for() {
    let text = ok("sim all_reduce -t switch-300 -b 2K -e 2K --timing-only");
    let said = "# left out: direct: it has a queue for every pair, and 300 ranks are more than 256; ask for it by name";
    assert!(text.contains(said), "{text}");
    let one = json("sim all_reduce -t switch-300 -b 2K -e 2K --timing-only --algo direct --json");
    assert_eq!(algorithms(&one), ["direct"]);
}

#[test]
fn a_scratch_that_is_too_small_is_refused() {
    for scratch in ["0", "1", "63"] {
        let error = refused(&format!("sim all_reduce -t ring-8 -e 1K --scratch {scratch}"));
        assert!(error.contains("give it at least 64 B"), "{error}");
    }
    ok("sim all_reduce -t ring-8 -b 1K -e 1K --algo twophase --scratch 64");
}

/// The ancestor's times, from the command line: the first PE of every cube, data in TCM.
#[test]
fn the_ancestors_all_reduce_takes_what_it_published() {
    let folder = Folder::new("ancestor");
    let machine = ok("topo show sip6-torus --yaml").replace("ranks: cores", "ranks: cube");
    let machine = folder.write("cubes.yaml", &machine);
    let ccl = |slots: &str| {
        let text = format!("defaults: {{algorithm: centre, memory: tcm, slot_memory: {slots}}}\n");
        folder.write("ccl.yaml", &text)
    };
    for (slots, bytes, published) in [
        ("tcm", 2048, 1957.04),
        ("tcm", 65_536, 12_001.04),
        ("sram", 2048, 2389.04),
        ("sram", 65_536, 24_337.04),
    ] {
        let json = json(&format!(
            "sim all_reduce -t {machine} --ccl {} -b {bytes} -e {bytes} --json",
            ccl(slots)
        ));
        let row = &json["rows"][0];
        assert_eq!((&row["algo"], &row["ranks"]), (&"centre".into(), &96.into()));
        let time = row["time_ps"].as_f64().unwrap() / 1000.0;
        assert!(
            (time / published - 1.0).abs() < 0.0001,
            "{slots}, {bytes}: {time}"
        );
    }
}

#[test]
fn queues_are_as_ccl_says_and_what_it_cannot_say_is_refused() {
    let folder = Folder::new("queues");
    let time = |settings: &str| {
        let ccl = folder.write("ccl.yaml", &format!("algorithms:\n  centre: {{{settings}}}\n"));
        let json = json(&format!(
            "sim all_reduce -t mesh-4x4 --algo centre --ccl {ccl} -b 64K -e 64K --json"
        ));
        json["rows"][0]["time_ps"].as_u64().unwrap()
    };
    let whole = time("slots: 1");
    assert_eq!(whole, time("slot: 64 KiB"));
    assert!(
        time("slots: 8, slot: 4 KiB") > whole,
        "every piece goes there and back"
    );
    let ccl = folder.write("wrong.yaml", "algorithms:\n  center: {slots: 2}\n");
    let error = refused(&format!("sim all_reduce -t mesh-4x4 --ccl {ccl}"));
    assert!(
        error.contains("wrong.yaml:2: there is no algorithm `center`; did you mean `centre`?"),
        "{error}"
    );
    let ccl = folder.write("memory.yaml", "defaults: {slot_memory: sram}\n");
    let error = refused(&format!("sim all_reduce -t mesh-4x4 --ccl {ccl}"));
    assert!(
        error.contains("memory.yaml:1: the chips of `mesh-4x4` have no memory `sram`"),
        "{error}"
    );
    let run = ringwork("sim all_reduce -t mesh-4x4 --algo center");
    assert_eq!(run.code, Some(2));
    assert!(run.stderr.contains("did you mean `centre`?"), "{run:?}");
}
