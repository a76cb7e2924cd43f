//! What stands above the tables on a page: the machine, the versions, how to make it again.

use super::render;
use super::sample::Sample;
use super::table::Table;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;

/// The whole section.
pub(crate) fn section(table: &Table, samples: &[Sample]) -> String {
    let mut out = format!(
        "Measured with `cargo xtask peers` on {}; microseconds, medians.\n\n",
        machine()
    );
    out.push_str("| measured | version |\n|---|---|\n");
    for (peer, version) in versions(samples) {
        let _ = writeln!(out, "| {peer} | {version} |");
    }
    let _ = write!(out, "\n{}", render::markdown(table));
    out
}

/// Who was measured in which versions.
pub(crate) fn versions(samples: &[Sample]) -> BTreeMap<&str, String> {
    let mut versions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for sample in samples {
        let known = versions.entry(&sample.peer).or_default();
        if !sample.version.is_empty() && !known.contains(&sample.version.as_str()) {
            known.push(&sample.version);
        }
    }
    versions
        .into_iter()
        .map(|(peer, known)| (peer, known.join(" and ")))
        .collect()
}

/// This machine, in a few words.
pub(crate) fn machine() -> String {
    let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    format!(
        "{} ({cores} cores, Linux {})",
        model(&cpu).unwrap_or("an unknown processor"),
        kernel.trim()
    )
}

fn model(cpuinfo: &str) -> Option<&str> {
    let line = cpuinfo.lines().find(|line| line.starts_with("model name"))?;
    line.split_once(':').map(|(_, name)| name.trim())
}

#[cfg(test)]
mod tests {
    use super::super::placement::Thresholds;
    use super::super::table::compare;
    use super::super::table::tests::sample;
    use super::*;

    #[test]
    fn every_version_that_was_measured_is_named() {
        let of = |peer: &str, version: &str| Sample {
            peer: peer.into(),
            version: version.into(),
            ..sample()
        };
        let samples = [
            of("a", "1"),
            of("a", "1"),
            of("b", "2"),
            of("b", "3"),
            of("c", ""),
        ];
        let page = section(&compare(&samples, &Thresholds::default()), &samples);
        for line in ["| a | 1 |", "| b | 2 and 3 |", "| c |  |"] {
            assert!(page.contains(line), "{page}");
        }
    }

    #[test]
    fn the_processor_is_named() {
        assert_eq!(model("processor : 0\nmodel name\t: AMD EPYC\n"), Some("AMD EPYC"));
        assert_eq!(model(""), None);
    }
}
