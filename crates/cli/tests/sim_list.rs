//! Several collectives on one machine, timelines with links, and machines fitted to tables, through the real program.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use support::{Folder, json, ok, refused};

/// Two chips: 100 ps a byte and 1 us.
const PAIR: &str = "name: pair\nnetwork: {kind: line, size: 4, bandwidth: 10 GB/s, latency: 1 us}\n";
const BYTES: u64 = 1 << 20;
/// An all-reduce of two ranks, each of which sends one half and then the sum of the other. In pieces, so that the link is
/// never idle.
const ALONE_PS: u64 = 1_000_000 + BYTES * 100;

fn of(calls: &serde_json::Value, index: usize, key: &str) -> u64 {
    calls["calls"][index][key].as_u64().unwrap()
}

#[test]
fn calls_side_by_side_share_links_and_calls_apart_do_not() {
    let folder = Folder::new("list");
    let machine = folder.write("pair.yaml", PAIR);
    let list = folder.write(
        "calls.yaml",
        &format!(
            "topology: {machine}\ncalls:\n\
             \x20 - {{name: a, op: all_reduce, size: 1 MiB, algorithm: direct, ranks: 0-1}}\n\
             \x20 - {{name: b, op: all_reduce, size: 1 MiB, algorithm: direct, ranks: [0, 1]}}\n\
             \x20 - {{name: c, op: all_reduce, size: 1 MiB, algorithm: direct, ranks: 2-3}}\n\
             \x20 - {{name: d, op: all_reduce, size: 1 MiB, algorithm: direct, ranks: 2-3, after: c}}\n"
        ),
    );
    let calls = json(&format!("sim list {list} --json"));
    assert_eq!(calls["verified"], true);
    for index in 0..4 {
        assert_eq!(of(&calls, index, "alone_ps"), ALONE_PS, "{index}");
    }
    // The link between 0 and 1 is never idle until both are done: twice the bytes of one, and one latency.
    let last = of(&calls, 0, "end_ps").max(of(&calls, 1, "end_ps"));
    assert_eq!(last, 2 * BYTES * 100 + 1_000_000);
    // Nobody else uses the link between 2 and 3.
    assert_eq!(
        (of(&calls, 2, "start_ps"), of(&calls, 2, "end_ps")),
        (0, ALONE_PS)
    );
    assert_eq!(of(&calls, 3, "start_ps"), ALONE_PS);
    assert_eq!(of(&calls, 3, "end_ps"), 2 * ALONE_PS);
    let text = ok(&format!("sim list {list} --races"));
    assert!(
        text.contains("4 ranks, 4 calls, data verified on every rank"),
        "{text}"
    );
    assert!(text.contains(" 1.00\n"), "{text}");
    // The same, to the byte.
    assert_eq!(
        ok(&format!("sim list {list} --json")),
        ok(&format!("sim list {list} --json"))
    );
}

#[test]
fn groups_make_a_call_each_and_a_rank_waits_only_for_its_own_part() {
    let folder = Folder::new("groups");
    let machine = folder.write("pair.yaml", PAIR);
    let list = folder.write(
        "calls.yaml",
        "timing_only: yes\ncalls:\n\
         \x20 - {name: long, op: all_reduce, size: 4 MiB, algorithm: direct, ranks: 0-1}\n\
         \x20 - {name: short, op: all_reduce, size: 1 MiB, algorithm: direct, ranks: 2-3}\n\
         \x20 - {name: pairs, op: all_reduce, size: 1 MiB, algorithm: direct, groups: [0-1, 2-3], after: [long, short]}\n",
    );
    let calls = json(&format!("sim list {list} -t {machine} --json"));
    let long = 1_000_000 + 4 * BYTES * 100;
    assert_eq!(of(&calls, 0, "end_ps"), long);
    assert_eq!(
        of(&calls, 2, "start_ps"),
        ALONE_PS,
        "ranks 2 and 3 do not wait for 0 and 1"
    );
    assert_eq!(of(&calls, 2, "end_ps"), long + ALONE_PS);
    assert_eq!(calls["verified"], false);
}

#[test]
fn a_list_that_cannot_be_is_refused_with_its_line() {
    let folder = Folder::new("bad-list");
    let call = "{name: a, op: all_reduce, size: 1 KiB, algorithm: direct}";
    for (text, expected) in [
        ("calls: []\n".to_owned(), "add one"),
        ("timing_only: yes\n".to_owned(), "the key `calls` is missing"),
        (format!("calls:\n  - {call}\n  - {call}\n"), "calls.yaml:3: "),
        (
            "calls:\n  - {name: a, op: all_redcue, size: 1 KiB, algorithm: direct}\n".to_owned(),
            "calls.yaml:2: ",
        ),
        (
            "calls:\n  - {name: a, op: all_reduce, size: 1 KiB, algoritm: direct}\n".to_owned(),
            "did you mean `algorithm`?",
        ),
        (
            "calls:\n  - {name: a, op: all_reduce, size: 1 KiB, algorithm: direct, ranks: 0-9}\n".to_owned(),
            "there is no rank 4 on",
        ),
        (
            "calls:\n  - {name: a, op: all_reduce, size: 1 KiB, algorithm: direct, groups: [0-1, 1-2]}\n"
                .to_owned(),
            "rank 1 is in two groups",
        ),
        (
            "calls:\n  - {name: a, op: all_reduce, size: 1 KiB, algorithm: direct, groups: [0-1, 2]}\n"
                .to_owned(),
            "groups must be as large as each other",
        ),
        (
            "calls:\n  - {name: a, op: all_reduce, size: 1 KiB, algorithm: direct, after: b}\n".to_owned(),
            "there is no call `b` before this one",
        ),
    ] {
        let list = folder.write("calls.yaml", &text);
        let error = refused(&format!("sim list {list} -t ring-4"));
        assert!(error.contains(expected), "{text}: {error}");
    }
    let list = folder.write("calls.yaml", &format!("calls:\n  - {call}\n"));
    assert!(refused(&format!("sim list {list}")).contains("the key `topology` is missing"));
}

#[test]
fn a_timeline_of_a_prediction_has_a_row_for_every_link() {
    let folder = Folder::new("sim-trace");
    let file = folder.path("trace.json");
    let text = ok(&format!(
        "sim all_reduce -t ring-4 -b 64K -e 64K --algo direct --trace {file}"
    ));
    assert!(text.contains(&format!("timeline in {file}")), "{text}");
    let trace = folder.read("trace.json").replace("\\u003e", ">");
    for link in ["0>1", "1>2", "2>3", "3>0", "1>0"] {
        assert!(trace.contains(&format!("link network {link}")), "{link}");
    }
    let several = refused(&format!("sim all_reduce -t ring-4 --trace {file}"));
    assert!(several.contains("add --algo NAME and one size"), "{several}");
    let list = folder.write(
        "calls.yaml",
        "calls:\n  - {name: a, op: all_reduce, size: 64 KiB, algorithm: direct}\n",
    );
    ok(&format!("sim list {list} -t ring-4 --trace {file}"));
    assert!(folder.read("trace.json").contains("link network 2\\u003e3"));
    let page = folder.path("trace.html");
    ok(&format!("sim list {list} -t ring-4 --trace {page}"));
    assert!(refused(&format!("sim list {list} -t ring-4 --trace x.txt")).contains(".html"));
}

#[test]
fn a_sweep_refuses_a_place_that_changes_nothing() {
    let folder = Folder::new("nothing");
    let base = "op: all_reduce\nsizes: 4 KiB\nalgorithms: direct\n";
    for (topology, vary) in [
        // Every link says its own.
        (
            "name: x\nnetwork: {kind: links, chips: 2, links: [{from: 0, to: 1, bandwidth: 1 GB/s, latency: 1 us}]}\n",
            "network.bandwidth: [1 GB/s, 2 GB/s]",
        ),
        // Nothing computes.
        (
            "name: x\nnetwork: {kind: ring, size: 2, bandwidth: 1 GB/s, latency: 1 us}\n",
            "stragglers: [[], [{rank: 0, speed: 0.5}]]",
        ),
        (
            "name: x\nnetwork: {kind: ring, size: 2, bandwidth: 1 GB/s, latency: 1 us}\n",
            "name: [a, b]",
        ),
    ] {
        let machine = folder.write("x.yaml", topology);
        let spec = folder.write(
            "spec.yaml",
            &format!("{base}topology: {machine}\nvary:\n  {vary}\n"),
        );
        let error = refused(&format!("sim sweep {spec}"));
        assert!(error.contains("changes nothing on"), "{vary}: {error}");
        assert!(error.contains("take it out of `vary`"), "{error}");
    }
    // One place that does and one that does not.
    let machine = folder.write(
        "x.yaml",
        "network: {kind: ring, size: 2, bandwidth: 1 GB/s, latency: 1 us}\n",
    );
    let spec = folder.write(
        "spec.yaml",
        &format!("{base}topology: {machine}\nvary:\n  network.bandwidth: [1 GB/s, 2 GB/s]\n  name: [a, b]\n"),
    );
    assert!(refused(&format!("sim sweep {spec}")).contains("`name` changes nothing"));
}

/// A table made by the simulator: the fit finds what it was made with.
#[test]
fn a_fit_finds_the_numbers_that_a_table_was_made_with() {
    let folder = Folder::new("fit");
    let truth = folder.write(
        "truth.yaml",
        "network: {kind: ring, size: 4, bandwidth: 20 GB/s, latency: 3 us}\nchip: {launch: 5 us}\n",
    );
    let rows = json(&format!(
        "sim all_reduce -t {truth} --algo twophase -b 1K -e 4M -f 4 --timing-only --json"
    ));
    let mut table = "bytes,us\n".to_owned();
    for row in rows["rows"].as_array().unwrap() {
        let us = row["time_ps"].as_f64().unwrap() / 1e6;
        table += &format!("{},{us}\n", row["bytes"]);
    }
    let table = folder.write("table.csv", &table);
    let guess = folder.write(
        "guess.yaml",
        "network: {kind: ring, size: 4, bandwidth: 50 GB/s, latency: 1 us}\nchip: {launch: 5 us}\n",
    );
    let mine = folder.path("fitted.yaml");
    let fitted = json(&format!(
        "topo fit {table} -t {guess} --algo twophase --fit network.bandwidth --fit network.latency -o {mine} --json"
    ));
    assert!(fitted["error"]["worst"].as_f64().unwrap() < 0.01, "{fitted}");
    assert!(
        fitted["error_held_out"]["worst"].as_f64().unwrap() < 0.01,
        "{fitted}"
    );
    let number = |key: &str| {
        let text = fitted["fitted"][key].as_str().unwrap();
        text.split(' ').next().unwrap().parse::<f64>().unwrap()
    };
    assert!(
        (number("network.bandwidth") / 20.0 - 1.0).abs() < 0.01,
        "{fitted}"
    );
    assert!((number("network.latency") / 3.0 - 1.0).abs() < 0.01, "{fitted}");
    assert!(ok(&format!("topo show {mine}")).contains("ring of 4"));
    for (arguments, expected) in [
        ("--fit network.bandwith", "there is no `network.bandwith` to fit"),
        ("--fit network.kind", "begin with a number above 0"),
        ("--fit chip.launch --algo nonesuch", "nonesuch"),
        ("--fit chip.launch -g 9", "--ranks 9 is more"),
    ] {
        let error = refused(&format!("topo fit {table} -t {guess} {arguments}"));
        assert!(error.contains(expected), "{arguments}: {error}");
    }
}
