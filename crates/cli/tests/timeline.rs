//! Timelines of native runs through the real program: the file for Perfetto, and the page in a real browser.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod support;

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use support::{Folder, ringwork};

/// Runs an example with `--trace` to a file in a folder.
fn trace(folder: &Folder, example: &str, file: &str) -> PathBuf {
    let path = folder.path(file);
    let run = ringwork(&format!("run {example} --trace {path}"));
    assert_eq!(run.code, Some(0), "{run:?}");
    assert!(run.stdout.contains("timeline in "), "{run:?}");
    path.into()
}

fn events(path: &Path) -> Vec<Value> {
    let trace: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    trace["traceEvents"].as_array().unwrap().clone()
}

fn processes(events: &[Value]) -> Vec<&str> {
    let named = events.iter().filter(|event| event["name"] == "process_name");
    named
        .map(|event| event["args"]["name"].as_str().unwrap())
        .collect()
}

#[test]
fn a_native_run_has_a_row_per_chip_its_tasks_and_arrows_that_hang_on_slices() {
    let folder = Folder::new("json");
    let events = events(&trace(&folder, "two_groups -d 0-2 --rounds 3", "run.json"));
    assert_eq!(
        processes(&events),
        ["chip 0", "chip 1", "chip 2", "critical path"]
    );
    let tasks = events.iter().filter(|event| event["cat"] == "task");
    // Six groups of two, three times.
    assert_eq!(tasks.filter(|task| task["name"] == "all_reduce").count(), 36);
    let number = |event: &Value, field: &str| event[field].as_f64().unwrap();
    let ends = events.iter().filter(|event| event["cat"] == "cause");
    let mut count = 0;
    for end in ends {
        count += 1;
        let on = events.iter().any(|slice| {
            let (at, start) = (number(end, "ts"), slice["ts"].as_f64().unwrap_or(f64::MAX));
            let same = slice["ph"] == "X" && slice["pid"] == end["pid"] && slice["tid"] == end["tid"];
            same && start <= at && at <= start + number(slice, "dur")
        });
        assert!(on, "{end}");
    }
    assert!(count >= 2, "groups that share a chip wait for each other");
    assert!(events.iter().any(|event| event["cat"] == "critical path"));
}

#[test]
fn cores_of_a_chips_graph_and_nodes_of_a_pod_have_rows_of_their_own() {
    let folder = Folder::new("rows");
    let graph = events(&trace(&folder, "vector_graph", "graph.json"));
    let names = processes(&graph);
    assert!(names.contains(&"chip 0, vector core 0"), "{names:?}");
    assert!(graph.iter().any(|event| event["name"] == "multiply"));
    let pod = events(&trace(&folder, "pod -d 0-3", "pod.json"));
    let names = processes(&pod);
    for chip in ["left, chip 0", "left, chip 1", "right, chip 2", "right, chip 3"] {
        assert!(names.contains(&chip), "{names:?}");
    }
}

/// A browser, if one is installed.
fn browser() -> &'static str {
    let known = ["chromium", "chromium-browser", "google-chrome"];
    let found = known.into_iter().find(|name| {
        let version = Command::new(name).arg("--version").output();
        version.is_ok_and(|version| version.status.success())
    });
    found.unwrap_or_else(|| panic!("none of {known:?} is on the PATH"))
}

/// The page as the browser has it once its script has run.
fn dom(browser: &str, folder: &Folder, page: &Path, place: &str) -> String {
    let profile = format!("--user-data-dir={}", folder.path("profile"));
    let output = Command::new(browser)
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--window-size=1400,900",
        ])
        .args([&profile, "--dump-dom"])
        .arg(format!("file://{}{place}", page.display()))
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The part of a text between two others.
fn between<'a>(text: &'a str, before: &str, after: &str) -> &'a str {
    let start = text
        .find(before)
        .unwrap_or_else(|| panic!("no {before} in {text}"))
        + before.len();
    &text[start..start + text[start..].find(after).unwrap()]
}

/// How many of how many things are in view, and the labels that can be read.
fn in_view(dom: &str) -> (usize, usize, String) {
    let said = between(dom, "aria-label=\"", "\"");
    let counts = between(said, "rows, ", " things");
    let (drawn, all) = counts.split_once(" of ").unwrap();
    let labels = said.split_once("in view: ").unwrap().1;
    (drawn.parse().unwrap(), all.parse().unwrap(), labels.to_owned())
}

#[test]
#[ignore = "needs Chromium; `.ci/run long` runs it where there is one"]
fn the_page_shows_rows_and_labels_in_a_browser_and_can_be_zoomed() {
    let browser = browser();
    let folder = Folder::new("page");
    let page = trace(&folder, "two_groups -d 0-2 --rounds 5", "run.html");
    let whole = dom(browser, &folder, &page, "");
    let rows = between(&whole, "<div id=\"rows\">", "</div><canvas");
    for chip in ["chip 0", "chip 1", "chip 2"] {
        assert!(rows.contains(&format!(">{chip}<")), "{rows}");
    }
    let (drawn, all, _) = in_view(&whole);
    assert!(
        drawn == all && all >= 60,
        "everything is seen at first: {drawn} of {all}"
    );
    assert!(
        whole.contains("task all_reduce"),
        "the table says where the time went"
    );

    // The first task alone: it fills the view, and its label can be read.
    let zoomed = dom(browser, &folder, &page, "#0us-5us");
    let (drawn, same, labels) = in_view(&zoomed);
    assert!(same == all && (1..all).contains(&drawn), "{drawn} of {same}");
    assert!(labels.contains("all_reduce"), "{labels}");
    let range = |dom: &str| between(dom, "<output id=\"range\">", "<").to_owned();
    assert!(range(&zoomed).starts_with("0 to 5 us of "), "{}", range(&zoomed));
    assert_ne!(range(&zoomed), range(&whole));
}
