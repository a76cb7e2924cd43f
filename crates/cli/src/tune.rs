//! `ringwork tune`: which way to all-reduce is fastest here, written down for the communicator.
//!
//! Like the benchmark it starts itself again as ranks, once for every number of ranks; rank 0 adds its rows to the
//! file. The rows are those of the communicator's table: `operation ranks ranks-per-core bytes way`, of which the
//! first that fits counts; ways in the window fit only data that is there.

use crate::bench::{Bench, BenchArguments, Collective, Mode, Question, Roots};
use crate::launch;
use crate::units::{parse_bytes, short_bytes};
use clap::{Args, Parser};
use indicatif::{ProgressBar, ProgressStyle};
use ringwork::collectives::Algorithm;
use ringwork::collectives::communicator::{Communicator, Error};
use ringwork::isa::ReduceOp;
use ringwork::native::ranks::{Job, RANK_VARIABLE};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// What `ringwork tune` takes.
#[derive(Debug, Args)]
#[command(after_help = "\
Use it with RINGWORK_TUNE=FILE in the environment of the ranks. Only ways with exact results are considered.
Tune on a quiet machine: what is measured here is what will be chosen.")]
pub(crate) struct TuneArguments {
    /// The file to write
    #[arg(short, long, value_name = "FILE", default_value = "ringwork.tune")]
    output: PathBuf,
    /// Numbers of ranks [default: 2, one per core, and two per core]
    #[arg(short = 'g', long = "ranks", value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(2..=64))]
    ranks: Vec<u32>,
    /// Largest size
    #[arg(short = 'e', long, value_name = "SIZE", default_value = "16M", value_parser = parse_bytes)]
    max_bytes: usize,
    /// How many cores the ranks have, as whoever launches them knows.
    #[arg(long, hide = true)]
    cores: Option<u32>,
}

/// The ways through the scratch that give the same bits.
const STAGED: [Algorithm; 3] = [Algorithm::Packet, Algorithm::OnePhase, Algorithm::TwoPhase];
/// From here the communicator pushes in the window; below it pulls. Not measured.
const PUSH_BYTES: usize = 1 << 20;

pub(crate) fn run(arguments: &TuneArguments) -> ExitCode {
    let outcome = if std::env::var_os(RANK_VARIABLE).is_some() {
        measure(arguments)
    } else {
        start(arguments)
    };
    outcome.unwrap_or_else(|why| {
        eprintln!("error: {why}");
        ExitCode::FAILURE
    })
}

fn start(arguments: &TuneArguments) -> Result<ExitCode, String> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let cores = u32::try_from(cores).unwrap_or(1);
    let mut ranks = arguments.ranks.clone();
    if ranks.is_empty() {
        ranks = vec![2, cores.clamp(2, 64), (2 * cores).clamp(2, 64)];
    }
    ranks.sort_unstable();
    ranks.dedup();
    let path = &arguments.output;
    let writing = |error: std::io::Error| format!("writing {}: {error}", path.display());
    let part = path.with_extension("tune-part");
    std::fs::write(&part, HEAD).map_err(writing)?;
    let bar = ProgressBar::new(ranks.len() as u64);
    if let Ok(style) = ProgressStyle::with_template("{bar:40} {pos} of {len}, {msg}") {
        bar.set_style(style);
    }
    for size in ranks {
        bar.set_message(format!("{size} ranks"));
        bar.tick();
        let mut job = Job::new("/proc/self/exe", size);
        job.arguments = vec!["tune".into(), "-o".into(), part.clone().into()];
        job.arguments
            .extend(["-e".into(), arguments.max_bytes.to_string().into()]);
        job.arguments.extend(["--cores".into(), cores.to_string().into()]);
        let code = launch::supervise(&job);
        if code != ExitCode::SUCCESS {
            let _ = std::fs::remove_file(&part);
            return Ok(code);
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    std::fs::rename(&part, path).map_err(writing)?;
    print!("{}", std::fs::read_to_string(path).map_err(writing)?);
    println!("\nwritten to {0}; use it with RINGWORK_TUNE={0}", path.display());
    Ok(ExitCode::SUCCESS)
}

const HEAD: &str = "\
# operation  ranks  ranks-per-core  bytes  way: the first row that fits
# written by `ringwork tune`; medians of mode `use`, f32 sum.
# Between window-pull and window-push the bound is the built-in one; it was not measured.
";

/// What one rank does.
fn measure(arguments: &TuneArguments) -> Result<ExitCode, String> {
    let comm = Communicator::from_env().map_err(text)?;
    let sizes: Vec<usize> = std::iter::successors(Some(64), |bytes| Some(bytes * 4))
        .take_while(|bytes| *bytes <= arguments.max_bytes)
        .collect();
    let mut measured = Vec::new();
    for bytes in sizes {
        let ask = |own: bool, algorithm| time(&comm, own, algorithm, bytes);
        let mut own = [0.0; STAGED.len()];
        let mut window = own;
        for (i, algorithm) in STAGED.into_iter().enumerate() {
            own[i] = ask(true, Some(algorithm))?;
            window[i] = ask(false, Some(algorithm))?;
        }
        let in_window = if bytes >= 4 << 10 {
            ask(false, None)?
        } else {
            f64::INFINITY
        };
        measured.push(Measured {
            bytes,
            own,
            window,
            in_window,
        });
    }
    if comm.rank() == 0 {
        let cores = arguments.cores.unwrap_or(1).max(1);
        let rows = rows(comm.size(), comm.size().div_ceil(cores), &measured);
        add(&arguments.output, &rows)?;
    }
    comm.barrier().map_err(text)?;
    Ok(ExitCode::SUCCESS)
}

fn text(error: Error) -> String {
    error.to_string()
}

/// The benchmark's arguments, as its own command line reads them.
#[derive(Debug, Parser)]
struct Defaults {
    #[command(flatten)]
    bench: BenchArguments,
}

/// Median microseconds of an all-reduce; on rank 0.
fn time(comm: &Communicator, own: bool, algorithm: Option<Algorithm>, bytes: usize) -> Result<f64, String> {
    let mut line = vec!["bench", "all_reduce", "-c", "0", "--target", "20ms"];
    line.extend(own.then_some("--own"));
    let arguments = Defaults::try_parse_from(line)
        .map_err(|error| error.to_string())?
        .bench;
    let question = Question {
        collective: Collective::AllReduce,
        op: ReduceOp::Sum,
        root: Roots::Rotate,
        algorithm,
        mode: Mode::Use,
        bytes,
    };
    let answer = Bench::new(comm, &arguments)
        .and_then(|mut bench| bench.ask::<f32>(question))
        .map_err(text)?;
    let stats = answer.and_then(|answer| answer.stats);
    Ok(stats.map_or(f64::INFINITY, |stats| stats.p50))
}

/// Median microseconds of one size: the staged ways on own memory and on data in the window, and the window's way.
#[derive(Clone, Debug)]
struct Measured {
    bytes: usize,
    own: [f64; STAGED.len()],
    window: [f64; STAGED.len()],
    in_window: f64,
}

impl Measured {
    /// Whether data in the window is best reduced there.
    fn stays(&self) -> bool {
        self.window.iter().all(|staged| self.in_window < *staged)
    }

    fn staged(&self, cost: impl Fn(usize) -> f64) -> Algorithm {
        let best = (0..STAGED.len()).min_by(|a, b| cost(*a).total_cmp(&cost(*b)));
        STAGED[best.unwrap_or(STAGED.len() - 1)]
    }
}

/// The rows for one number of ranks: staged ways for small data wherever it is; from the size on where the window
/// wins for good, its ways for data that is there; then staged ways for the rest.
fn rows(ranks: u32, per_core: u32, measured: &[Measured]) -> String {
    let first = measured
        .iter()
        .rposition(|one| !one.stays())
        .map_or(0, |last| last + 1);
    let (small, large) = measured.split_at(first);
    let mut rows = String::new();
    let mut row = |bytes: &str, way: &str| {
        let _ = writeln!(
            rows,
            "{:<15} {ranks:>5} {per_core:>5} {bytes:>9}  {way}",
            "all_reduce"
        );
    };
    let both = |one: &Measured| one.staged(|i| one.own[i] + one.window[i]);
    for (bytes, way) in merged(small, both) {
        row(&short_bytes(bytes), way.name());
    }
    if let Some(from) = large.first() {
        if from.bytes < PUSH_BYTES {
            row(&short_bytes(PUSH_BYTES - 1), "window-pull");
        }
        row("*", "window-push");
    }
    let rest = if large.is_empty() { small } else { large };
    let mut rest = merged(rest, |one| one.staged(|i| one.own[i]));
    let last = rest.pop().map_or(Algorithm::TwoPhase, |(_, way)| way);
    for (bytes, way) in rest {
        row(&short_bytes(bytes), way.name());
    }
    row("*", last.name());
    rows
}

/// Runs of sizes with the same way: the largest size of each.
fn merged(measured: &[Measured], way: impl Fn(&Measured) -> Algorithm) -> Vec<(usize, Algorithm)> {
    let mut runs: Vec<(usize, Algorithm)> = Vec::new();
    for one in measured {
        let way = way(one);
        match runs.last_mut() {
            Some((bytes, last)) if *last == way => *bytes = one.bytes,
            _ => runs.push((one.bytes, way)),
        }
    }
    runs
}

fn add(path: &Path, rows: &str) -> Result<(), String> {
    let before = std::fs::read_to_string(path).unwrap_or_default();
    std::fs::write(path, before + rows).map_err(|error| format!("writing {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(bytes: usize, own: [f64; 3], window: [f64; 3], in_window: f64) -> Measured {
        Measured {
            bytes,
            own,
            window,
            in_window,
        }
    }

    #[test]
    fn small_data_is_staged_and_large_data_stays_in_its_window() {
        let never = f64::INFINITY;
        let measured = [
            one(64, [1.0, 2.0, 3.0], [1.0, 2.0, 3.0], never),
            one(1024, [2.0, 3.0, 4.0], [2.0, 3.0, 4.0], never),
            one(4096, [5.0, 4.0, 6.0], [5.0, 4.0, 6.0], 5.0),
            one(65536, [50.0, 30.0, 20.0], [50.0, 30.0, 20.0], 10.0),
        ];
        let rows = rows(2, 1, &measured);
        let fields: Vec<Vec<&str>> = rows
            .lines()
            .map(|line| line.split_whitespace().collect())
            .collect();
        assert_eq!(
            fields,
            [
                ["all_reduce", "2", "1", "1K", "packet"],
                ["all_reduce", "2", "1", "4K", "onephase"],
                ["all_reduce", "2", "1", "1048575", "window-pull"],
                ["all_reduce", "2", "1", "*", "window-push"],
                ["all_reduce", "2", "1", "*", "twophase"],
            ]
        );
    }

    #[test]
    fn without_measurements_there_is_still_a_way() {
        assert!(rows(4, 2, &[]).ends_with("twophase\n"));
    }
}
