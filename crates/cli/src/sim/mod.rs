//! `ringwork sim`: what a collective would take on a machine that is only described.

mod algorithms;
mod call;
pub(crate) mod ccl;
mod fitted;
mod list;
mod prove;
mod question;
mod report;
mod row;
mod sweep;

use crate::bench::Collectives;
use crate::output::complain;
use crate::units::{parse_bytes, short_bytes};
use crate::{EXIT_INTERRUPTED, interrupt, timeline};
use algorithms::Algorithms;
pub(crate) use call::Failure;
use clap::{Args, Subcommand};
pub(crate) use fitted::Fitted;
use indicatif::ProgressBar;
use question::questions;
use report::{OutputArguments, Report};
use ringwork::collectives::catalogue::CATALOGUE;
use ringwork::isa::Dtype;
use ringwork::runtime::Interrupter;
use ringwork::sim::ShowPs;
use std::path::PathBuf;
use std::process::ExitCode;

/// What `ringwork sim` takes.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Sizes are nccl-tests': bytes per rank for all_reduce, broadcast and reduce; all ranks' bytes for the others. \
`of bound` is the least that any algorithm could take, in percent of the time predicted. Every value of every rank \
is checked unless --timing-only; with --prove, every input is shown to be counted exactly once. No prediction may be below the bound.

Rows are printed as they are known; Ctrl-C keeps them.

Examples:
  ringwork sim all_reduce --topology h100x8
  ringwork sim all_reduce --topology torus-8x8x8 --algo ring -b 1M -e 1G --timing-only
  ringwork sim all_reduce --topology torus-16x16x16 --algo torus -b 64K -e 64K --prove
  ringwork sim all --topology mine.yaml --ccl ccl.yaml --plot curves.html
  ringwork sim all_reduce --topology torus-4x4 --algo torus -b 1M -e 1M --trace torus.html
  ringwork sim list step.yaml --topology h100-nodes-2 --trace step.html
  ringwork sim sweep bandwidths.yaml --csv=rows.csv"
)]
pub(crate) struct SimArguments {
    #[command(subcommand)]
    command: Option<SimCommand>,
    /// all_reduce, all_gather, reduce_scatter, broadcast, reduce, all_to_all, gather, scatter, barrier; or all
    op: Option<Collectives>,
    /// The machine: a preset (`ringwork topo list`) or a file
    #[arg(short, long, value_name = "FILE|PRESET")]
    topology: Option<String>,
    /// Which algorithm runs which collective, with its parameters
    #[arg(long, value_name = "FILE")]
    ccl: Option<PathBuf>,
    /// Smallest size: 8, 4K, 64M [default: 1K]
    #[arg(short = 'b', long, value_name = "SIZE", value_parser = parse_bytes)]
    min_bytes: Option<usize>,
    /// Largest size [default: 1M]
    #[arg(short = 'e', long, value_name = "SIZE", value_parser = parse_bytes)]
    max_bytes: Option<usize>,
    /// Each size is this many times the one before
    #[arg(short = 'f', long, value_name = "FACTOR", default_value_t = 4, value_parser = clap::value_parser!(u32).range(2..))]
    step_factor: u32,
    #[arg(long, value_name = "NAME", help = algorithm_help())]
    algo: Option<Algorithms>,
    /// How many ranks take part [default: what --ccl says, else all of the machine]
    #[arg(short = 'g', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    ranks: Option<u32>,
    #[arg(short = 'd', long, value_name = "TYPE",
        help = format!("Element type: {} [default: what --ccl says, else f32]", Dtype::names()))]
    dtype: Option<Dtype>,
    /// Bytes of scratch per rank; more than fits moves in chunks [default: as much as everything takes at once]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    scratch: Option<usize>,
    /// Compute time alone: memory has sizes and no bytes, and nothing is verified
    #[arg(long)]
    timing_only: bool,
    /// Prove instead of computing: track whose inputs every element is made of, and from which place of them; large
    /// machines fit
    #[arg(long, conflicts_with = "timing_only")]
    prove: bool,
    /// Look for races too: two accesses that no signal orders, whenever they happened
    #[arg(long)]
    races: bool,
    /// Write a timeline of one prediction, with a row for every link: .html (to look at) or .json (for Perfetto)
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    #[command(flatten)]
    output: OutputArguments,
}

/// Every algorithm of the catalogue, by name.
pub(crate) fn algorithm_names() -> Vec<&'static str> {
    let mut names = Vec::new();
    for name in CATALOGUE.iter().map(|entry| entry.algorithm.name()) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

fn algorithm_help() -> String {
    format!(
        "The algorithm: {}; or all, to compare [default: what --ccl says, else all]",
        algorithm_names().join(", ")
    )
}

#[derive(Debug, Subcommand)]
enum SimCommand {
    /// Vary a machine and sizes, on all cores
    Sweep(sweep::SweepArguments),
    /// Several collectives side by side or one after another, and what they take from each other
    List(list::ListArguments),
}

pub(crate) fn run(arguments: &SimArguments) -> ExitCode {
    let done = match &arguments.command {
        Some(SimCommand::Sweep(sweep)) => sweep::run(sweep),
        Some(SimCommand::List(list)) => list::run(list),
        None => predict(arguments),
    };
    match done {
        Ok(code) => code,
        Err(Refused::Arguments(why)) => {
            complain(&why);
            ExitCode::from(2)
        }
        Err(Refused::Failed(why)) => {
            complain(&why);
            ExitCode::FAILURE
        }
    }
}

/// Why there is no result.
enum Refused {
    /// What was asked for cannot be.
    Arguments(String),
    /// It went wrong.
    Failed(String),
}

impl From<String> for Refused {
    fn from(why: String) -> Refused {
        Refused::Arguments(why)
    }
}

/// The same for other commands.
pub(crate) fn stopper() -> Result<Interrupter, String> {
    stop().map_err(|refused| match refused {
        Refused::Arguments(why) | Refused::Failed(why) => why,
    })
}

/// Ctrl-C sets this, and the run ends with what it has.
fn stop() -> Result<Interrupter, Refused> {
    let stop = Interrupter::new().map_err(|error| Refused::Failed(error.to_string()))?;
    interrupt::install();
    interrupt::watch(stop.clone());
    Ok(stop)
}

fn predict(arguments: &SimArguments) -> Result<ExitCode, Refused> {
    if let Some(path) = &arguments.trace {
        timeline::check(path)?;
    }
    let (questions, left_out) = questions(arguments)?;
    let stop = stop()?;
    let mut report = Report::new(&arguments.output, left_out)?;
    let mut last = None;
    // Only on a terminal, and only where it takes long enough to be seen.
    let busy = ProgressBar::new_spinner();
    for question in &questions {
        report.on_machine(&question.topology);
        let about = (question.call.collective(), question.call.ranks);
        if last != Some(about) && report.for_people() {
            report.introduce(question);
        }
        last = Some(about);
        let answer = question.ask(&stop, &|events, now_ps| {
            let size = short_bytes(question.call.bytes);
            let (name, at) = (question.call.algorithm_name(), ShowPs(now_ps));
            busy.set_message(format!("{name}, {size}: {events} events, {at} so far"));
            busy.tick();
        });
        busy.set_message("");
        match answer {
            Ok(mut row) => {
                let timeline = row.prediction.timeline.take();
                busy.suspend(|| report.add(row))?;
                if let (Some(path), Some(mut timeline)) = (&arguments.trace, timeline) {
                    let name = question.call.algorithm_name();
                    timeline.title = format!("{} {name} on {}", question.call.collective(), timeline.title);
                    timeline::write(path, &timeline, !report.for_people()).map_err(Refused::Failed)?;
                }
            }
            Err(Failure::Interrupted) => {
                busy.finish_and_clear();
                report.finish(true)?;
                return Ok(ExitCode::from(EXIT_INTERRUPTED));
            }
            Err(Failure::Because(why)) => {
                busy.finish_and_clear();
                report.finish(true)?;
                return Err(Refused::Failed(why));
            }
        }
    }
    busy.finish_and_clear();
    report.finish(false)?;
    Ok(ExitCode::SUCCESS)
}
