//! `ringwork tune`: measures which algorithm of each collective is fastest here, and writes a table for the communicator.
//!
//! Like the benchmark it starts itself again as ranks, once for every number of ranks; rank 0 adds its rows to the
//! file. The rows are the `choices` of a `ccl.yaml`, of which the first that fits counts; algorithms in the window fit
//! only data that is there.

mod rows;

use crate::bench::{Bench, BenchArguments, Mode, Question, Roots};
use crate::launch;
use crate::output::{announce, complain, print_text, say};
use crate::units::{parse_bytes, short_bytes};
use clap::{Args, Parser};
use indicatif::{ProgressBar, ProgressStyle};
use ringwork::communicator::{Communicator, Error, choices, choosable};
use ringwork::isa::{Algorithm, Collective, ReduceOp};
use ringwork::native::ranks::{Job, RANK_VARIABLE};
use rows::{Measured, Seats, rows};
use std::fmt::Write;
use std::io::{ErrorKind, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// What `ringwork tune` takes.
#[derive(Debug, Args)]
#[command(after_help = "\
Use it with RINGWORK_CCL=FILE in the environment of the ranks. Only ways with exact results are considered.
Tune on a quiet machine: what is measured here is what will be chosen.")]
pub(crate) struct TuneArguments {
    /// The file to write
    #[arg(short, long, value_name = "FILE", default_value = "ccl.yaml")]
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

/// The smallest size that is measured; the next is four times as large.
const LEAST_BYTES: usize = 64;

pub(crate) fn run(arguments: &TuneArguments) -> ExitCode {
    let outcome = if std::env::var_os(RANK_VARIABLE).is_some() {
        measure(arguments)
    } else {
        start(arguments)
    };
    outcome.unwrap_or_else(|why| {
        complain(&why);
        ExitCode::FAILURE
    })
}

fn start(arguments: &TuneArguments) -> Result<ExitCode, String> {
    Communicator::check_env().map_err(|error| error.to_string())?;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let cores = u32::try_from(cores).unwrap_or(1);
    let mut ranks = arguments.ranks.clone();
    if ranks.is_empty() {
        ranks = vec![2, cores.clamp(2, 64), (2 * cores).clamp(2, 64)];
    }
    // The first row that fits counts: those for few ranks come first.
    ranks.sort_unstable();
    ranks.dedup();
    let path = &table_file(&arguments.output)?;
    let writing = |error: std::io::Error| format!("writing {}: {error}", path.display());
    let part = path.with_extension("yaml-part");
    std::fs::write(&part, HEAD).map_err(writing)?;
    for size in ranks {
        let mut job = Job::new("/proc/self/exe", size);
        job.arguments = vec!["tune".into(), "-o".into(), part.clone().into()];
        job.arguments
            .extend(["-e".into(), arguments.max_bytes.to_string().into()]);
        job.arguments.extend(["--cores".into(), cores.to_string().into()]);
        let code = launch::supervise(&job);
        if code != ExitCode::SUCCESS {
            keep_part(&part, path)?;
            return Ok(code);
        }
    }
    std::fs::rename(&part, path).map_err(writing)?;
    print_text(&std::fs::read_to_string(path).map_err(writing)?);
    say!("\nwritten to {0}; use it with RINGWORK_CCL={0}", path.display());
    Ok(ExitCode::SUCCESS)
}

/// Keeps what was measured before an interruption, if that is anything, beside the table that was asked for: a complete one
/// may be there from before.
fn keep_part(part: &Path, path: &Path) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{}: {error}", part.display());
    let measured = std::fs::read_to_string(part).map_err(failed)?;
    if !measured.contains("\n  - ") {
        return std::fs::remove_file(part).map_err(failed);
    }
    let kept = path.with_extension("partial.yaml");
    std::fs::write(
        part,
        format!("{measured}  # It was ended here: the rest is as built in.\n"),
    )
    .map_err(failed)?;
    std::fs::rename(part, &kept).map_err(failed)?;
    let kept = kept.display();
    announce(
        "note",
        format_args!("what was measured until then is in {kept}; it can be used with RINGWORK_CCL={kept}"),
    );
    Ok(())
}

/// The file that the table is renamed to. A rename replaces whatever has the name, so a symbolic link is followed first,
/// and anything but a regular file is refused: a device or a pipe would be lost.
fn table_file(path: &Path) -> Result<PathBuf, String> {
    let refused = |why: &str| Err(format!("writing {}: {why}", path.display()));
    match std::fs::canonicalize(path) {
        Ok(target) if target.is_file() => Ok(target),
        Ok(target) if target.is_dir() => refused("it is a directory; name a file in it"),
        Ok(_) => refused("it is not a regular file; name another"),
        Err(error) if error.kind() == ErrorKind::NotFound => match path.symlink_metadata() {
            Ok(_) => refused("it is a link to a file that does not exist; name that file"),
            Err(_) => Ok(path.to_owned()),
        },
        Err(error) => refused(&error.to_string()),
    }
}

const HEAD: &str = "\
# Written by `ringwork tune`: medians of mode `use`, f32 sum. The first choice that fits counts; other numbers of ranks are
# as built in.
choices:
";

/// What one rank does.
fn measure(arguments: &TuneArguments) -> Result<ExitCode, String> {
    let comm = Communicator::from_env().map_err(text)?;
    let sizes: Vec<usize> = std::iter::successors(Some(LEAST_BYTES), |bytes| bytes.checked_mul(4))
        .take_while(|bytes| *bytes <= arguments.max_bytes)
        .collect();
    let cores = arguments.cores.unwrap_or(1).max(1);
    let seats = Seats {
        ranks: comm.size(),
        per_core: comm.size().div_ceil(cores),
    };
    let (own, window) = (bench_arguments("--own")?, bench_arguments("--window")?);
    let mut stopwatch = Stopwatch {
        own: Bench::new(&comm, &own).map_err(text)?,
        window: Bench::new(&comm, &window).map_err(text)?,
        hops_ns: Vec::new(),
    };
    let bar = bar(&comm, sizes.len() * choosable().count());
    let (speaks, many) = (comm.rank() == 0, choosable().count());
    for (done, collective) in (1..).zip(choosable()) {
        let mut measured = Vec::new();
        for bytes in &sizes {
            bar.set_message(format!(
                "{} ranks, {collective} {}",
                comm.size(),
                short_bytes(*bytes)
            ));
            if let Some(bytes) = collective.whole(*bytes, size_of::<f32>(), comm.size() as usize) {
                measured.push(stopwatch.compare(collective, bytes)?);
            }
            bar.inc(1);
        }
        if speaks {
            let mut written = String::new();
            for row in rows(collective, seats, &measured) {
                let _ = writeln!(written, "  - {row}");
            }
            add(&arguments.output, &written)?;
            if !std::io::stderr().is_terminal() {
                let ranks = comm.size();
                announce(
                    "tune",
                    format_args!("{ranks} ranks: {collective} measured, {done} of {many}"),
                );
            }
        }
    }
    bar.finish_and_clear();
    if speaks {
        let Seats { ranks, per_core } = seats;
        let hops = stopwatch.hops();
        add(
            &arguments.output,
            &format!("  # Above: {ranks} ranks, {per_core} per core, {hops}\n"),
        )?;
    }
    comm.barrier().map_err(text)?;
    Ok(ExitCode::SUCCESS)
}

fn text(error: Error) -> String {
    error.to_string()
}

/// Rank 0 shows how far it is.
fn bar(comm: &Communicator, steps: usize) -> ProgressBar {
    if comm.rank() != 0 {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:40} {pos} of {len}, {msg}");
    ProgressBar::new(steps as u64).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// The benchmark's arguments, as its own command line reads them.
#[derive(Debug, Parser)]
struct Defaults {
    #[command(flatten)]
    bench: BenchArguments,
}

fn bench_arguments(memory: &str) -> Result<BenchArguments, String> {
    let line = ["bench", "all", "-c", "0", "--target", "20ms", memory];
    let read = Defaults::try_parse_from(line).map_err(|error| error.to_string())?;
    Ok(read.bench)
}

/// What measures, with data in each rank's own memory and in the window.
struct Stopwatch<'a> {
    own: Bench<'a>,
    window: Bench<'a>,
    /// From core to core, around every measurement; on rank 0.
    hops_ns: Vec<u128>,
}

impl Stopwatch<'_> {
    /// Every exact algorithm at one size.
    fn compare(&mut self, collective: Collective, bytes: usize) -> Result<Measured, String> {
        let ways = || choices(collective).filter(|way| way.is_exact());
        let staged: Vec<Algorithm> = ways().filter(|way| !way.needs_window()).collect();
        let mut measured = Measured {
            bytes: bytes as u64,
            own: Vec::new(),
            window: Vec::new(),
        };
        for way in &staged {
            // Where there is no choice there is nothing to know.
            let cost = match staged.len() {
                1 => 0.0,
                _ => self.time(true, collective, *way, bytes)?,
            };
            measured.own.push((*way, cost));
        }
        for way in ways() {
            let cost = self.time(false, collective, way, bytes)?;
            measured.window.push((way, cost));
        }
        Ok(measured)
    }

    /// Median microseconds; on rank 0.
    fn time(
        &mut self,
        own: bool,
        collective: Collective,
        way: Algorithm,
        bytes: usize,
    ) -> Result<f64, String> {
        let question = Question {
            collective,
            op: ReduceOp::Sum,
            root: Roots::Rotate,
            way: Some(way),
            mode: Mode::Use,
            bytes,
        };
        let bench = if own { &mut self.own } else { &mut self.window };
        let Some(answer) = bench.ask::<f32>(question).map_err(text)? else {
            return Ok(f64::INFINITY);
        };
        self.hops_ns
            .extend(answer.hops.into_iter().flatten().map(|hop| hop.as_nanos()));
        Ok(answer.stats.map_or(f64::INFINITY, |stats| stats.p50))
    }

    /// How far the cores were from each other meanwhile, for people.
    fn hops(&self) -> String {
        let mut hops = self.hops_ns.clone();
        hops.sort_unstable();
        match (hops.first(), hops.get(hops.len() / 2)) {
            (Some(least), Some(median)) => {
                format!("a hop from core to core took {least} ns at best, {median} ns in the median")
            }
            _ => "no hop was measured".into(),
        }
    }
}

fn add(path: &Path, rows: &str) -> Result<(), String> {
    let before = std::fs::read_to_string(path).unwrap_or_default();
    std::fs::write(path, before + rows).map_err(|error| format!("writing {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringwork_testkit::Folder;

    #[test]
    fn what_was_measured_before_an_interruption_is_kept_beside_the_table_of_before() {
        let folder = Folder::new("tune-part");
        let [table, part, kept] =
            ["ccl.yaml", "ccl.yaml-part", "ccl.partial.yaml"].map(|name| PathBuf::from(folder.path(name)));
        std::fs::write(&table, "of before").unwrap();
        std::fs::write(&part, HEAD).unwrap();
        keep_part(&part, &table).unwrap();
        assert!(!part.exists() && !kept.exists(), "nothing was measured");
        let row = "  - {collective: all_reduce, ranks: 2, algorithm: twophase}\n";
        std::fs::write(&part, format!("{HEAD}{row}")).unwrap();
        keep_part(&part, &table).unwrap();
        let text = std::fs::read_to_string(&kept).unwrap();
        assert!(text.contains(row.trim()) && text.contains("ended here"), "{text}");
        assert_eq!(std::fs::read_to_string(&table).unwrap(), "of before");
        assert!(!part.exists());
    }
}
