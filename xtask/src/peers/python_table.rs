//! The table of `cargo xtask peers --python`: medians over the runs, and ratios within each.

use super::size;
use super::table::median;
use crate::error::{Error, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// The columns of a line.
pub(crate) const COLUMNS: &str = "what,peer,np,bytes,calls,med_us,verify,run,version";
/// What the same all-reduce takes from Rust.
pub(crate) const RUST: &str = "rust";
/// Our own ways from Python.
const OURS: [&str; 4] = ["numpy", "window", "dist", "dist-window"];

/// A line.
#[derive(Debug)]
pub(crate) struct Sample {
    what: String,
    peer: String,
    ranks: u32,
    bytes: u64,
    median_us: f64,
    pub(crate) right: bool,
    run: String,
    version: String,
}

/// The lines of a file.
///
/// # Errors
/// The first that is not one.
pub(crate) fn parse(text: &str) -> Result<Vec<Sample>> {
    let lines = text.lines().enumerate().skip(1);
    let read = |(index, line): (usize, &str)| {
        let bad = |why: &str| Error::BadLine {
            line: index + 1,
            why: why.to_owned(),
        };
        let fields: Vec<&str> = line.split(',').collect();
        let [what, peer, ranks, bytes, _, median, verify, run, version] = fields[..] else {
            return Err(bad("it does not have 9 fields"));
        };
        Ok(Sample {
            what: what.into(),
            peer: peer.into(),
            ranks: ranks.parse().map_err(|_| bad("its number of ranks is none"))?,
            bytes: bytes.parse().map_err(|_| bad("its size is not a number"))?,
            median_us: median.parse().map_err(|_| bad("its median is not a number"))?,
            right: verify == "ok",
            run: run.into(),
            version: version.into(),
        })
    };
    lines.map(read).collect()
}

/// The median over the runs of `peer` in these samples.
fn typical(samples: &[&Sample], peer: &str) -> Option<f64> {
    let times: Vec<f64> = samples
        .iter()
        .filter(|sample| sample.peer == peer)
        .map(|sample| sample.median_us)
        .collect();
    median(&times)
}

/// How many times as long `peer` takes as `ours`, as the median over the runs that have both.
fn ratio(samples: &[&Sample], ours: &str, peer: &str) -> Option<f64> {
    let time = |run: &str, who: &str| {
        let found = samples
            .iter()
            .find(|sample| sample.run == run && sample.peer == who);
        found.map(|sample| sample.median_us)
    };
    let runs: BTreeSet<&str> = samples.iter().map(|sample| sample.run.as_str()).collect();
    let ratios: Vec<f64> = runs
        .into_iter()
        .filter_map(|run| Some(time(run, peer)? / time(run, ours)?))
        .collect();
    median(&ratios)
}

/// The tables: NumPy beside every MPI, then torch beside gloo.
pub(crate) fn render(samples: &[Sample]) -> String {
    let mut out = String::from("| measured | version |\n|---|---|\n");
    let versions: BTreeSet<(&str, &str)> = samples
        .iter()
        .filter(|sample| !sample.version.is_empty() && !OURS.contains(&sample.peer.as_str()))
        .map(|sample| (sample.peer.as_str(), sample.version.as_str()))
        .collect();
    for (peer, version) in versions {
        let _ = writeln!(out, "| {peer} | {version} |");
    }
    let mut tables: BTreeMap<u32, Vec<&Sample>> = BTreeMap::new();
    for sample in samples.iter().filter(|sample| sample.right) {
        tables.entry(sample.ranks).or_default().push(sample);
    }
    for (ranks, samples) in tables {
        let mpis: BTreeSet<&str> = samples
            .iter()
            .map(|sample| sample.peer.as_str())
            .filter(|peer| peer.starts_with("mpi4py"))
            .collect();
        let rows = rows(&samples, "all_reduce");
        let _ = write!(
            out,
            "\n### all_reduce of NumPy arrays, {ranks} ranks\n\n\
             Ratios are the peer's time over ours: in own memory / in a window array.\n\n| size | Rust | NumPy | window |"
        );
        for mpi in &mpis {
            let _ = write!(out, " {mpi} | ratios |");
        }
        let _ = writeln!(out, "\n|---:|---:|---:|---:|{}", "---:|---:|".repeat(mpis.len()));
        for (bytes, row) in &rows {
            let _ = write!(out, "| {} |", size::show(*bytes));
            for peer in [RUST, "numpy", "window"] {
                let _ = write!(out, " {} |", shown(typical(row, peer), ""));
            }
            for mpi in &mpis {
                let (own, window) = (ratio(row, "numpy", mpi), ratio(row, "window", mpi));
                let _ = write!(
                    out,
                    " {} | {} / {} |",
                    shown(typical(row, mpi), ""),
                    shown(own, "x"),
                    shown(window, "x")
                );
            }
            out.push('\n');
        }
        let _ = write!(
            out,
            "\n### torch.distributed, {ranks} ranks\n\n| | size | own memory | window | gloo | ratios |\n|---|---:|---:|---:|---:|---:|\n"
        );
        let whats: BTreeSet<&str> = samples
            .iter()
            .filter(|sample| sample.peer == "gloo")
            .map(|sample| sample.what.as_str())
            .collect();
        for what in whats {
            for (bytes, row) in self::rows(&samples, what) {
                let Some(gloo) = typical(&row, "gloo") else {
                    continue;
                };
                let _ = writeln!(
                    out,
                    "| {what} | {} | {} | {} | {} | {} / {} |",
                    size::show(bytes),
                    shown(typical(&row, "dist"), ""),
                    shown(typical(&row, "dist-window"), ""),
                    shown(Some(gloo), ""),
                    shown(ratio(&row, "dist", "gloo"), "x"),
                    shown(ratio(&row, "dist-window", "gloo"), "x")
                );
            }
        }
    }
    out
}

fn rows<'a>(samples: &[&'a Sample], what: &str) -> BTreeMap<u64, Vec<&'a Sample>> {
    let mut rows: BTreeMap<u64, Vec<&Sample>> = BTreeMap::new();
    for sample in samples.iter().filter(|sample| sample.what == what) {
        rows.entry(sample.bytes).or_default().push(sample);
    }
    rows
}

fn shown(value: Option<f64>, unit: &str) -> String {
    match value {
        None => "-".to_owned(),
        Some(value) if value < 10.0 => format!("{value:.2}{unit}"),
        Some(value) if value < 100.0 => format!("{value:.1}{unit}"),
        Some(value) => format!("{value:.0}{unit}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: &str = "what,peer,np,bytes,calls,med_us,verify,run,version\n\
        all_reduce,numpy,2,4,100,0.5,ok,mpi4py-ompi5-0,4.1 over Open MPI\n\
        all_reduce,mpi4py-ompi5,2,4,100,2.0,ok,mpi4py-ompi5-0,4.1 over Open MPI\n\
        all_reduce,numpy,2,4,100,1.0,ok,mpi4py-ompi5-1,4.1 over Open MPI\n\
        all_reduce,mpi4py-ompi5,2,4,100,2.0,ok,mpi4py-ompi5-1,4.1 over Open MPI\n\
        all_reduce,rust,2,4,100,0.25,ok,rust-0,\n\
        ddp_step,dist,2,1048576,9,300,ok,gloo-0,torch 2.15\n\
        ddp_step,gloo,2,1048576,9,900,ok,gloo-0,torch 2.15\n";

    #[test]
    fn a_ratio_is_taken_within_a_run_and_its_median_over_the_runs() {
        let samples = parse(LINES).unwrap();
        let all: Vec<&Sample> = samples.iter().collect();
        assert_eq!(ratio(&all, "numpy", "mpi4py-ompi5"), Some(3.0));
        assert_eq!(ratio(&all, "numpy", "rust"), None, "they were never in one run");
        assert_eq!(typical(&all, "numpy"), Some(0.75));
    }

    #[test]
    fn the_tables_have_what_was_measured_and_a_dash_for_the_rest() {
        let text = render(&parse(LINES).unwrap());
        assert!(text.contains("| mpi4py-ompi5 | 4.1 over Open MPI |"), "{text}");
        assert!(
            text.contains("| 4 B | 0.25 | 0.75 | - | 2.00 | 3.00x / - |"),
            "{text}"
        );
        assert!(
            text.contains("| ddp_step | 1 MiB | 300 | - | 900 | 3.00x / - |"),
            "{text}"
        );
    }

    #[test]
    fn a_wrong_result_counts_for_nothing() {
        let samples = parse(&LINES.replace("300,ok", "300,BAD")).unwrap();
        assert!(render(&samples).contains("| ddp_step | 1 MiB | - | - | 900 | - / - |"));
    }
}
