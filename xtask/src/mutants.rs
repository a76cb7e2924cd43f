//! `cargo xtask mutants`: every mutant of every algorithm must be noticed or explained.

use crate::error::{Error, Result};
use clap::Args;
use std::process::Command;

/// How the mutants are run.
#[derive(Debug, Args)]
pub(crate) struct MutantsArguments {
    /// Write `crates/proofs/survivors.txt` again; new survivors get `?` for a reason
    #[arg(long)]
    write: bool,
}

pub(crate) fn run(arguments: &MutantsArguments) -> Result<()> {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut cargo = Command::new(&program);
    cargo.args(["test", "--package", "ringwork-proofs", "--test", "mutants"]);
    cargo.args(["--", "--nocapture"]);
    if arguments.write {
        cargo.env("RINGWORK_WRITE_SURVIVORS", "1");
    }
    let program = program.display().to_string();
    let status = cargo.status().map_err(|source| Error::Start {
        program: program.clone(),
        source,
    })?;
    if status.success() {
        return Ok(());
    }
    Err(Error::Failed {
        program,
        how: status.to_string(),
        said: String::new(),
    })
}
