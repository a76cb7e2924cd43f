//! The `ringwork` program: examples, measurements and checks from the command line.
#![forbid(unsafe_code)]

mod bench;
mod check;
mod devices;
mod doctor;
mod examples;
mod interrupt;
mod job;
mod launch;
mod machine;
mod narrow;
mod output;
mod pages;
mod report;
mod run;
mod sim;
mod timeline;
mod topo;
mod tune;
mod units;

use clap::{Parser, Subcommand};
use output::print_text;
use std::io::IsTerminal;
use std::path::PathBuf;
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
    /// Measure collectives, as nccl-tests does
    Bench(Box<bench::BenchArguments>),
    /// Measure which algorithms are fastest on this machine, and write a table of choices
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
    /// Prove that algorithms have no race, deadlock or wrong result
    Check(check::CheckArguments),
    /// Say what this machine offers, and whether anything is missing
    Doctor {
        /// As one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Print what a shell completes commands and flags from
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Write the manual pages, one per command, into a directory
    Man {
        /// The directory; it is made if it is not there
        #[arg(value_name = "DIR")]
        directory: PathBuf,
    },
}

/// Exit code after Ctrl-C, as shells expect it.
const EXIT_INTERRUPTED: u8 = 130;

fn main() -> ExitCode {
    ringwork::native::fail_beyond_file_size_limit();
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) if error.use_stderr() => error.exit(),
        Err(help) => {
            print_help(&help);
            return ExitCode::SUCCESS;
        }
    };
    match arguments.command {
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
        Command::Check(arguments) => check::run(&arguments),
        Command::Doctor { json } => doctor::run(json),
        Command::Completions { shell } => {
            print_text(&pages::completions(shell));
            ExitCode::SUCCESS
        }
        Command::Man { directory } => pages::write_manual(&directory),
    }
}

/// Prints help or the version. clap's own `exit` ignores that output cannot be written.
fn print_help(help: &clap::Error) {
    let colours =
        std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|no| no.is_empty());
    let text = help.render();
    if colours {
        print_text(&text.ansi().to_string());
    } else {
        print_text(&text.to_string());
    }
}
