//! `ringwork run`: an example, verified.

use crate::devices::DeviceList;
use crate::examples::{self, Example};
use crate::job::{Job, Times};
use crate::output::{announce, complain, print_error_text, print_text, say};
use crate::{EXIT_INTERRUPTED, interrupt, machine, report};
use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use ringwork::isa::Algorithm;
use ringwork::isa::nearest;
use ringwork::native::memory::available_bytes;
use ringwork::prelude::Dtype;
use ringwork::runtime::{Platform, Simulation};
use ringwork::sim::timeline::Timeline;
use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// What `ringwork run` takes.
#[derive(Debug, Args)]
pub(crate) struct RunArguments {
    /// The example; `ringwork examples` lists them
    name: String,
    /// Where it runs
    #[arg(short, long, default_value = "native")]
    platform: Where,
    /// The machine to simulate: a preset (`ringwork topo list`) or a file [default: ring-N, as large as the
    /// devices need]
    #[arg(short, long, value_name = "FILE|PRESET")]
    topology: Option<String>,
    /// Write what ran where and when: .html to look at, .json for Perfetto; also of a run that failed
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// The chips: 0-3 or 0,2,5
    #[arg(short, long)]
    devices: Option<DeviceList>,
    /// How it reduces: onephase, twophase (unless said otherwise), ring, bidirectional-ring
    #[arg(long)]
    algo: Option<Algorithm>,
    /// Elements per rank
    #[arg(long, default_value_t = 256)]
    count: usize,
    /// Type of the elements: f32, f16, bf16, f64, i8, u8, i32, i64 [default: f32, or what the example has]
    #[arg(long)]
    dtype: Option<Dtype>,
    /// How often to do it, verifying every time
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// One JSON object instead of text
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Where {
    /// One process per chip on this host
    Native,
    /// A described machine, in virtual time
    Sim,
}

/// The most elements an example makes per rank: 1 Gi.
const MAX_COUNT: usize = 1 << 30;

pub(crate) fn run(arguments: &RunArguments) -> ExitCode {
    let Some(example) = examples::ALL
        .iter()
        .find(|example| example.name == arguments.name)
    else {
        let near = nearest(&arguments.name, examples::ALL.iter().map(|example| example.name));
        let hint = near.map_or_else(
            || "`ringwork examples` lists them".into(),
            |near| format!("did you mean `{near}`?"),
        );
        return refuse(&format!("there is no example `{}`; {hint}", arguments.name));
    };
    let mut devices = arguments
        .devices
        .clone()
        .map_or_else(|| (0..example.default_devices).collect(), |list| list.0);
    if arguments.count > MAX_COUNT {
        return refuse(&format!(
            "--count {} is more than {MAX_COUNT}; ask for less",
            arguments.count
        ));
    }
    if devices.len() < example.min_devices {
        return refuse(&format!(
            "`{}` needs at least {} devices; use -d",
            example.name, example.min_devices
        ));
    }
    if arguments.algo.is_some() && !example.takes_algo {
        return refuse(&format!(
            "`{}` has one way to do it; leave --algo out",
            example.name
        ));
    }
    if arguments.algo == Some(Algorithm::Packet) {
        return refuse(
            "packets are what a communicator uses; for an example use onephase, twophase, ring or bidirectional-ring",
        );
    }
    let usual = if example.dtypes.contains(&Dtype::F32) {
        Dtype::F32
    } else {
        example.dtypes[0]
    };
    let dtype = arguments.dtype.unwrap_or(usual);
    if !example.dtypes.contains(&dtype) {
        let have: Vec<_> = example.dtypes.iter().map(ToString::to_string).collect();
        return refuse(&format!(
            "`{}` has no {}; use --dtype {}",
            example.name,
            dtype,
            have.join(" or ")
        ));
    }
    if let Some(max) = example.max_devices.filter(|max| *max < devices.len()) {
        let unused: Vec<_> = devices.drain(max..).map(|device| device.to_string()).collect();
        let unused = unused.join(", ");
        announce(
            "note",
            format_args!(
                "`{}` uses {max} of these devices; not started: {unused}",
                example.name
            ),
        );
    }
    let platform = match platform(arguments, dtype, &devices) {
        Ok(platform) => platform,
        Err(why) => return refuse(&why),
    };
    let job = Job {
        platform,
        devices,
        count: arguments.count,
        dtype,
        algorithm: arguments.algo.unwrap_or(Algorithm::TwoPhase),
        rounds: arguments.rounds,
        bar: bar(arguments),
        times: RefCell::new(Times::default()),
    };
    interrupt::install();
    let code = execute(example, &job, arguments.json);
    match write_trace(arguments, &job) {
        Ok(()) => code,
        Err(why) => {
            complain(&why);
            ExitCode::FAILURE
        }
    }
}

/// Where the example runs, or why it cannot.
fn platform(arguments: &RunArguments, dtype: Dtype, devices: &[u32]) -> Result<Platform, String> {
    if let Some(path) = &arguments.trace {
        trace_format(path)?;
        // Better to know before the run than after it.
        let directory = path
            .parent()
            .filter(|directory| !directory.as_os_str().is_empty());
        if let Some(directory) = directory.filter(|directory| !directory.is_dir()) {
            return Err(format!(
                "--trace {}: there is no directory {}",
                path.display(),
                directory.display()
            ));
        }
    }
    if arguments.platform == Where::Native {
        let most = Platform::Native.max_ranks();
        if devices.len() > most as usize {
            return Err(format!(
                "more than {most} devices; -p sim takes as many as its machine has"
            ));
        }
        return match &arguments.topology {
            None => Ok(Platform::Native),
            Some(_) => Err("--topology is a machine to simulate; add -p sim".into()),
        };
    }
    let exact = exact_ranks(dtype);
    if devices.len() > exact {
        return Err(format!(
            "sums of more than {exact} ranks are not exact in {dtype}, so they cannot be verified; use --dtype f64 or i64"
        ));
    }
    let largest = devices.iter().max().copied().unwrap_or(0);
    let name = arguments
        .topology
        .clone()
        .unwrap_or_else(|| format!("ring-{}", (largest + 1).max(2)));
    let topology = machine::load(&name)?;
    Ok(Platform::Sim(
        Simulation::new(topology).trace(arguments.trace.is_some()),
    ))
}

/// The ranks whose patterns add up exactly.
fn exact_ranks(dtype: Dtype) -> usize {
    match dtype {
        Dtype::F64 | Dtype::I64 => 1 << 20,
        Dtype::F32 => 256,
        _ => 64,
    }
}

fn trace_format(path: &Path) -> Result<fn(&Timeline) -> String, String> {
    match path.extension().and_then(|end| end.to_str()) {
        Some("html") => Ok(Timeline::html),
        Some("json") => Ok(Timeline::chrome_json),
        _ => Err(format!(
            "--trace {}: name a file that ends in .html (to look at) or .json (for Perfetto)",
            path.display()
        )),
    }
}

fn write_trace(arguments: &RunArguments, job: &Job) -> Result<(), String> {
    let Some(path) = &arguments.trace else {
        return Ok(());
    };
    let Some(mut timeline) = job.times.borrow().timeline() else {
        return Ok(());
    };
    timeline.title = format!("{} on {}", arguments.name, timeline.title);
    let text = trace_format(path)?(&timeline);
    std::fs::write(path, text).map_err(|error| format!("writing {}: {error}", path.display()))?;
    if !arguments.json {
        say!("timeline in {}", path.display());
    }
    Ok(())
}

fn execute(example: &Example, job: &Job, json: bool) -> ExitCode {
    let outcome = check_memory(example, job).and_then(|()| (example.run)(job));
    job.bar.finish_and_clear();
    match outcome {
        Ok(checks) => {
            if json {
                say!("{}", report::json(example, job, &checks));
            } else {
                print_text(&report::lines(example, job, &checks));
            }
            if report::verified(&checks) {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            }
        }
        Err(error) => {
            if json {
                say!("{}", report::json_error(example, job, &error));
            }
            if error.is_interrupted() {
                print_error_text("interrupted; every chip was ended in order\n");
                return ExitCode::from(EXIT_INTERRUPTED);
            }
            complain(&error);
            if let Some(recent) = error.recent() {
                print_error_text(&format!("what each chip did last:\n{recent}\n"));
            }
            ExitCode::FAILURE
        }
    }
}

/// Refuses what this machine has no memory for, before anything is taken.
fn check_memory(example: &Example, job: &Job) -> ringwork::Result<()> {
    let ranks = job.devices.len();
    let elements = job
        .count
        .saturating_mul((example.counts_per_chip)(ranks))
        .saturating_mul(ranks);
    let need_bytes = (elements as u64).saturating_mul(job.dtype.bytes() as u64);
    let have_bytes = available_bytes();
    if need_bytes <= have_bytes {
        return Ok(());
    }
    let plural = if ranks == 1 { "" } else { "s" };
    let what = format!(
        "`{}` with --count {} on {ranks} device{plural}",
        example.name, job.count
    );
    Err(ringwork::native::Error::OutOfMemory {
        what,
        need_bytes,
        have_bytes,
    }
    .into())
}

fn bar(arguments: &RunArguments) -> ProgressBar {
    if arguments.rounds == 1 || arguments.json {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:40} round {pos} of {len}, {eta} left");
    ProgressBar::new(arguments.rounds.into())
        .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

fn refuse(why: &str) -> ExitCode {
    complain(why);
    ExitCode::from(2)
}
