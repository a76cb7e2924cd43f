//! `ringwork topo`: the machines that can be simulated.

mod fit;
mod measure;
mod measured;

use crate::machine;
use crate::output::{complain, print_line, say, write_new};
use clap::{Args, Subcommand};
use ringwork::sim::{PRESETS, Topology};
use serde_json::json;
use std::path::PathBuf;
use std::process::ExitCode;

/// What `ringwork topo` takes.
#[derive(Debug, Subcommand)]
pub(crate) enum TopoCommand {
    /// List the machines that ship
    List {
        /// As one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Show a machine: as text, or as a picture
    Show(ShowArguments),
    /// Fit numbers of a machine to measured times
    Fit(fit::FitArguments),
    /// Measure this host, and write it as a machine to simulate
    Measure(measure::MeasureArguments),
}

#[derive(Debug, Args)]
pub(crate) struct ShowArguments {
    /// A preset (`ringwork topo list`) or a file
    #[arg(value_name = "FILE|PRESET")]
    machine: String,
    /// Draw it as a page to look at
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Draw it as a picture
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Print the YAML it is made from: change it, and use it as a file
    #[arg(long)]
    yaml: bool,
}

pub(crate) fn run(command: &TopoCommand) -> ExitCode {
    match command {
        TopoCommand::List { json } => {
            list(*json);
            ExitCode::SUCCESS
        }
        TopoCommand::Show(arguments) => done(show(arguments)),
        TopoCommand::Fit(arguments) => done(fit::run(arguments)),
        TopoCommand::Measure(arguments) => done(measure::run(arguments)),
    }
}

fn done(result: Result<(), String>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            complain(&why);
            ExitCode::from(2)
        }
    }
}

fn list(as_json: bool) {
    if as_json {
        let presets = PRESETS.map(|(name, about)| json!({ "name": name, "about": about }));
        say!("{}", json!({ "presets": presets }));
        return;
    }
    let width = PRESETS.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    for (name, about) in PRESETS {
        say!("{name:<width$}  {about}");
    }
    say!(
        "\nN, X, Y and Z are numbers: ring-8, torus-4x4x4. Those from ring-N on are networks alone: what a kernel does inside a \
         chip takes no time. `ringwork topo show NAME --yaml` is where to start your own."
    );
}

fn show(arguments: &ShowArguments) -> Result<(), String> {
    let (file, text) = machine::source(&arguments.machine)?;
    let topology = Topology::from_yaml(&file, &text).map_err(|error| error.to_string())?;
    if arguments.yaml {
        print_line(text.trim_end());
        return Ok(());
    }
    print_line(topology.describe().trim_end());
    if let Some(path) = &arguments.html {
        write_new(path, &topology.html())?;
        say!("drawn in {}", path.display());
    }
    if let Some(path) = &arguments.svg {
        write_new(path, &topology.svg())?;
        say!("drawn in {}", path.display());
    }
    Ok(())
}
