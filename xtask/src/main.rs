//! Chores of this repository, run with `cargo xtask`.
//!
//! Nothing here ships: no crate depends on this one.
#![forbid(unsafe_code)]
// A program for people prints.
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod build_time;
mod error;
mod mutants;
mod peers;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Chores of this repository
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measure ringwork beside the other libraries on this machine, and print how they compare
    Peers(Box<peers::PeersArguments>),
    /// Measure clean builds in CPU seconds, and compare them with their limits
    BuildTime(build_time::BuildTimeArguments),
    /// Check the checker: every mutant of every algorithm must be noticed, or stand in the list of survivors
    Mutants(mutants::MutantsArguments),
}

fn main() -> ExitCode {
    if let Some(code) = build_time::rustc_wrapper() {
        return code;
    }
    let outcome = match Arguments::parse().command {
        Command::Peers(arguments) => peers::run(&arguments),
        Command::BuildTime(arguments) => build_time::run(&arguments),
        Command::Mutants(arguments) => mutants::run(&arguments),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
