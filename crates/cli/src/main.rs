//! The `ringwork` program: examples, measurements and checks from the command line.
#![forbid(unsafe_code)]

mod bench;
mod devices;
mod doctor;
mod examples;
mod interrupt;
mod job;
mod launch;
mod machine;
mod output;
mod report;
mod run;
mod sim;
mod topo;
mod tune;
mod units;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Multi-chip programs: kernels, the memory they share, and the order they run in.
#[derive(Debug, Parser)]
#[command(name = "ringwork", version, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run an example and verify its result on every rank
    Run(run::RunArguments),
    /// Start a program as several ranks that work together
    Launch(launch::LaunchArguments),
    /// Measure collectives, in the way of nccl-tests
    Bench(Box<bench::BenchArguments>),
    /// Measure which way is fastest on this machine, and write it down
    Tune(tune::TuneArguments),
    /// Predict what collectives take on a machine that is only described
    Sim(Box<sim::SimArguments>),
    /// The machines that can be simulated
    #[command(subcommand)]
    Topo(topo::TopoCommand),
    /// List the examples
    Examples {
        /// As one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Say what this machine offers, and whether anything is missing
    Doctor {
        /// As one JSON object
        #[arg(long)]
        json: bool,
    },
}

/// Exit code after Ctrl-C, as shells expect it.
const EXIT_INTERRUPTED: u8 = 130;

fn main() -> ExitCode {
    match Arguments::parse().command {
        Command::Run(arguments) => run::run(&arguments),
        Command::Launch(arguments) => launch::run(arguments),
        Command::Bench(arguments) => bench::run(&arguments),
        Command::Tune(arguments) => tune::run(&arguments),
        Command::Sim(arguments) => sim::run(&arguments),
        Command::Topo(command) => topo::run(&command),
        Command::Examples { json } => {
            examples::print_list(json);
            ExitCode::SUCCESS
        }
        Command::Doctor { json } => doctor::run(json),
    }
}
