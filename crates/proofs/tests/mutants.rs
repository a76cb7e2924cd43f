//! Every mutant of every algorithm is noticed, or it is one of the survivors that are explained.
//!
//! After a change that is meant, `cargo xtask mutants --write` writes the list again; give each new survivor its reason.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use ringwork_proofs::mutants::{Report, check_all};
use std::collections::BTreeMap;

/// Mutants of lines that must be noticed.
const LEAST_KILLED: usize = 1000;

const LIST: &str = include_str!("../survivors.txt");

/// The survivors that are listed, each with its reason.
fn known() -> BTreeMap<&'static str, &'static str> {
    let lines = LIST
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(|line| line.rsplit_once(" | ").unwrap()).collect()
}

/// Writes the list again, with the reasons that are known.
fn write(report: &Report) {
    let (known, mut text) = (known(), String::new());
    for line in LIST.lines().take_while(|line| line.starts_with('#')) {
        text.push_str(line);
        text.push('\n');
    }
    for survivor in &report.survivors {
        let key = survivor.key();
        let reason = known.get(key.as_str()).copied().unwrap_or("?");
        text.push_str(&format!("{key} | {reason}\n"));
    }
    std::fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/survivors.txt"), text).unwrap();
}

#[test]
fn every_mutant_is_noticed_or_explained() {
    let report = check_all(&[2, 3, 4], 2);
    println!(
        "{} of {} mutants noticed, {} of lines; of lines by ranks {:?}",
        report.killed, report.mutants, report.killed_sites, report.sites
    );
    if std::env::var_os("RINGWORK_WRITE_SURVIVORS").is_some() {
        return write(&report);
    }
    let known = known();
    let found: Vec<String> = report.survivors.iter().map(|one| one.key()).collect();
    let is_new = |key: &&String| !known.contains_key(key.as_str());
    let new: Vec<&String> = found.iter().filter(is_new).collect();
    let is_gone = |key: &&&str| !found.iter().any(|one| one == **key);
    let gone: Vec<&&str> = known.keys().filter(is_gone).collect();
    assert!(
        new.is_empty() && gone.is_empty(),
        "survivors that are not listed:\n{new:#?}\nlisted, but noticed now:\n{gone:#?}\nrun `cargo xtask mutants --write` and explain them"
    );
    let unexplained = known.iter().filter(|(_, reason)| reason.len() < 8);
    let unexplained: Vec<&&str> = unexplained.map(|(key, _)| key).collect();
    assert!(unexplained.is_empty(), "without a reason: {unexplained:#?}");
    assert!(
        report.killed_sites >= LEAST_KILLED,
        "{} mutants of lines noticed",
        report.killed_sites
    );
}
