//! `ringwork topo measure`: this host as a machine to simulate, from `ringwork bench` and a few loops.
//!
//! Cores and caches are what the system says; the rate of memory and of additions is timed here, on one core; the hop is the
//! bench's. What a call, a message and a byte between two processes cost is then fitted to the bench's times, every third of
//! which is held out.

use super::fit::{self, Point};
use super::measured::Measured;
use crate::output::{say, write_new};
use clap::Args;
use ringwork::isa::Collective;
use ringwork::sim::yaml::Tree;
use serde_json::Value;
use std::hint::black_box;
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

#[derive(Debug, Args)]
#[command(after_help = "\
Takes about a minute. Nothing else should run meanwhile, and there should be as many cores as ranks.

Example:
  ringwork topo measure --output host.yaml
  ringwork sim all_reduce --topology host.yaml --algo onephase -b 4 -e 16M -g 2
  ringwork bench all_reduce --algo onephase -b 4 -e 16M -g 2")]
pub(crate) struct MeasureArguments {
    /// Processes that measure
    #[arg(short = 'g', long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(2..=64))]
    ranks: u32,
    /// Where the YAML goes [default: the output]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// What is timed between processes: the ways that the communicator takes, by size.
const CASES: [(&str, &str, &str, &str); 6] = [
    ("all_reduce", "packet", "4", "4K"),
    ("all_gather", "packet", "64", "4K"),
    ("broadcast", "packet", "4", "4K"),
    ("all_reduce", "onephase", "16K", "16M"),
    ("all_gather", "staged", "16K", "16M"),
    ("broadcast", "staged", "16K", "16M"),
];

const FITTED: [&str; 3] = ["chip.launch", "network.latency", "network.bandwidth"];
const TRIES: u32 = 7;

pub(super) fn run(arguments: &MeasureArguments) -> Result<(), String> {
    let (mut measured, mut hops) = (Vec::new(), Vec::new());
    for case in CASES {
        for row in bench(case, arguments.ranks)? {
            hops.extend(row["hop_ns"]["before"].as_u64().filter(|hop| *hop > 0));
            measured.push(read_row(&row, case.1)?);
        }
    }
    hops.sort_unstable();
    let hop_ns = hops.get(hops.len() / 2).copied().unwrap_or(100);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let chips = cores.max(arguments.ranks as usize);
    let memory = memory_gb_per_second();
    let vector = vector_gb_per_second();
    let yaml = format!(
        "name: host\n\
         network: {{kind: full, size: {chips}, bandwidth: {memory:.2} GB/s, latency: {hop_ns} ns}}\n\
         chip:\n  memory: {{name: ram, bandwidth: {memory:.2} GB/s, latency: 0}}\n  vector: {vector:.2} GB/s\n  launch: 500 ns\n"
    );
    let tree = Tree::parse("host", &yaml).map_err(|error| error.to_string())?;
    let mut points: Vec<Point> = (1u32..)
        .zip(measured)
        .map(|(number, one)| Point::new(one, number.is_multiple_of(3)))
        .collect();
    let places = FITTED.map(str::to_owned);
    let (found, _) = fit::fit(&tree, "host", &places, &mut points, (Some(arguments.ranks), None))?;
    let value = |place: &str| {
        let found = found.iter().find(|(name, _)| name == place);
        found.map_or("", |(_, value)| value.as_str())
    };
    let line = |held_out| {
        let (mean, worst) = fit::spread(&points, held_out);
        format!(
            "geometric mean {:.0} %, worst {:.0} %",
            100.0 * mean,
            100.0 * worst
        )
    };
    let text = format!(
        "# Measured by `ringwork topo measure` with {ranks} processes on {cores} cores{caches}.\n\
         # Fitted to `ringwork bench` ({cases}): {fitted}; points held out: {held}.\n\
         name: host\n\
         # Fitted: what a message and a byte from process to process cost. The hop between two cores is {hop_ns} ns.\n\
         network: {{kind: full, size: {chips}, bandwidth: {bandwidth}, latency: {latency}}}\n\
         chip:\n\
         \x20 # Timed: copying 64 MiB on one core, read and written bytes together.\n\
         \x20 memory: {{name: ram, bandwidth: {memory:.2} GB/s, latency: 0}}\n\
         \x20 vector: {vector:.2} GB/s  # timed: adding f32 that are in the cache, on one core\n\
         \x20 launch: {launch}  # fitted: what a call costs\n",
        ranks = arguments.ranks,
        caches = caches(),
        cases = "all_reduce, all_gather and broadcast, 4 B to 16 MiB",
        fitted = line(false),
        held = line(true),
        bandwidth = value("network.bandwidth"),
        latency = value("network.latency"),
        launch = value("chip.launch"),
    );
    match &arguments.output {
        None => say!("{}", text.trim_end()),
        Some(path) => {
            write_new(path, &text)?;
            say!("{}; points held out: {}", line(false), line(true));
            say!("written to {}", path.display());
        }
    }
    Ok(())
}

/// The rows of a bench of its own.
fn bench((op, algorithm, least, most): (&str, &str, &str, &str), ranks: u32) -> Result<Vec<Value>, String> {
    let output = Command::new("/proc/self/exe")
        .args([
            "bench", op, "-b", least, "-e", most, "-f", "4", "--modes", "oop", "--json",
        ])
        .args(["--algo", algorithm, "-g", &ranks.to_string()])
        .output()
        .map_err(|error| format!("starting the bench: {error}"))?;
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr);
        return Err(format!("bench {op} --algo {algorithm}: {}", why.trim()));
    }
    let json: Value = serde_json::from_slice(&output.stdout)
        .map_err(|error| format!("bench {op} --algo {algorithm}: its rows cannot be read: {error}"))?;
    Ok(json["rows"].as_array().cloned().unwrap_or_default())
}

fn read_row(row: &Value, algorithm: &str) -> Result<Measured, String> {
    let unreadable = || format!("the bench gave a row that cannot be read: {row}");
    let collective: Collective = row["op"].as_str().ok_or_else(unreadable)?.parse()?;
    let bytes = row["bytes"]
        .as_u64()
        .and_then(|bytes| usize::try_from(bytes).ok());
    Ok(Measured {
        collective,
        algorithm: Some(algorithm.to_owned()),
        bytes: bytes.ok_or_else(unreadable)?,
        us: row["time_us"]["p50"]
            .as_f64()
            .filter(|us| *us > 0.0)
            .ok_or_else(unreadable)?,
    })
}

/// The best of a few tries, in seconds.
fn best(mut work: impl FnMut()) -> f64 {
    (0..TRIES)
        .map(|_| {
            let start = Instant::now();
            work();
            start.elapsed().as_secs_f64()
        })
        .fold(f64::MAX, f64::min)
}

/// Bytes read and written while memory is copied.
fn memory_gb_per_second() -> f64 {
    let from = vec![1u8; 64 << 20];
    let mut to = vec![2u8; 64 << 20];
    let seconds = best(|| {
        to.copy_from_slice(black_box(&from));
        black_box(&mut to);
    });
    2.0 * from.len() as f64 / seconds / 1e9
}

/// Bytes of sums.
fn vector_gb_per_second() -> f64 {
    const ROUNDS: u32 = 2000;
    let from = vec![1f32; 4096];
    let mut to = vec![0f32; 4096];
    let seconds = best(|| {
        for _ in 0..ROUNDS {
            for (sum, one) in to.iter_mut().zip(black_box(&from)) {
                *sum += one;
            }
            black_box(&mut to);
        }
    });
    f64::from(ROUNDS) * 4.0 * from.len() as f64 / seconds / 1e9
}

/// The caches of the first core, as far as the system says.
fn caches() -> String {
    let mut text = String::new();
    for index in 0..8 {
        let read = |what: &str| {
            let path = format!("/sys/devices/system/cpu/cpu0/cache/index{index}/{what}");
            std::fs::read_to_string(path).map(|text| text.trim().to_owned())
        };
        if let (Ok(level), Ok(kind), Ok(size)) = (read("level"), read("type"), read("size"))
            && kind != "Instruction"
        {
            text += &format!(", L{level} {size}");
        }
    }
    text
}
