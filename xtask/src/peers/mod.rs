//! `cargo xtask peers`: ringwork beside the libraries people would otherwise use.
//!
//! Everyone is measured on the same machine in the same minutes, by the same definitions
//! (`xtask/peers/harness.h`), in turns. A sample counts only beside samples that were taken while the
//! cores were equally far apart. `docs/peers.md` says how to use it.
//!
//! It is a tool, not a test: nothing here has an opinion about the numbers.

mod build;
mod install;
mod job;
mod launch;
mod library;
mod measure;
mod options;
mod page;
mod placement;
mod python;
mod python_table;
mod render;
mod ringwork;
mod sample;
mod schedule;
mod scratch;
mod section;
mod size;
mod table;

pub(crate) use options::PeersArguments;

use crate::error::{self, Error, Result};
use library::Library;
use measure::{Field, Runner, Who};
use scratch::Scratch;
use std::fs::{self, File, TryLockError};
use std::path::Path;

/// Does what the command line asks.
///
/// # Errors
/// Nothing could be measured, a file could not be written, or ringwork returned a wrong result.
pub(crate) fn run(arguments: &PeersArguments) -> Result<()> {
    let dir = arguments.dir();
    match &arguments.from {
        Some(_) if arguments.python => return python::run(arguments, &dir),
        Some(csv) => return show(arguments, csv),
        None => {}
    }
    job::watch_for_interrupts();
    fs::create_dir_all(dir.join("bin")).map_err(Error::file(&dir))?;
    let _alone = lock(&dir.join("lock"))?;
    if arguments.python {
        return python::run(arguments, &dir);
    }
    let runners = prepare(arguments, &dir)?;
    let field = Field::new(arguments, runners);
    if field.plan.rounds == 0 {
        return Ok(());
    }
    let csv = arguments.csv();
    let measured = field.measure(&csv);
    if let Err(error) = measured {
        println!("\nstopped; so far:");
        let (table, _) = read(arguments, &csv)?;
        print!("{}", render::text(&table));
        return Err(error);
    }
    show(arguments, &csv)
}

/// Held while we measure: two measurements at once would measure each other.
fn lock(path: &Path) -> Result<File> {
    let file = File::create(path).map_err(Error::file(path))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(Error::Busy {
            path: path.to_owned(),
        }),
        Err(TryLockError::Error(source)) => Err(Error::File {
            path: path.to_owned(),
            source,
        }),
    }
}

/// Installs and builds. Says for each who is left out, and why.
fn prepare(arguments: &PeersArguments, dir: &Path) -> Result<Vec<Runner>> {
    let scratch = Scratch::new()?;
    let (peers, _) = arguments.peers();
    let mut runners = Vec::new();
    match our_runner(arguments, scratch.path()) {
        Ok(runner) => runners.push(runner),
        Err(Error::Interrupted) => return Err(Error::Interrupted),
        Err(error) => println!("skipped ringwork itself: {error}"),
    }
    for library in Library::ALL {
        let wanted: Vec<_> = peers
            .iter()
            .copied()
            .filter(|peer| peer.library == library)
            .collect();
        if wanted.is_empty() {
            continue;
        }
        match ready(library, arguments.no_install, dir, scratch.path()) {
            Ok(version) => {
                println!("{}: {version}", library.title());
                let runner = |peer| Runner {
                    who: Who::Peer(peer),
                    version: version.clone(),
                };
                runners.extend(wanted.into_iter().map(runner));
            }
            Err(Error::Interrupted) => return Err(Error::Interrupted),
            Err(error) => println!("skipped {}: {error}", library.title()),
        }
    }
    if runners.iter().all(|runner| matches!(runner.who, Who::Us(_))) {
        return Err(Error::NoPeers {
            why: "see above".to_owned(),
        });
    }
    Ok(runners)
}

fn our_runner(arguments: &PeersArguments, scratch: &Path) -> Result<Runner> {
    let (program, version) = match &arguments.ringwork {
        Some(given) => (given.clone(), ringwork::version_of(given, scratch)),
        None => (ringwork::build(scratch)?, ringwork::version_here(scratch)),
    };
    ringwork::can_bench(&program, scratch)?;
    println!("ringwork: {version}");
    Ok(Runner {
        who: Who::Us(program),
        version,
    })
}

/// Installed and built; its version.
fn ready(library: Library, no_install: bool, dir: &Path, scratch: &Path) -> Result<String> {
    if !no_install {
        install::install(library, dir, scratch)?;
    } else if !library.evidence(dir).exists() {
        let how = "is not installed, and --no-install was given".to_owned();
        return Err(Error::Failed {
            program: library.title().to_owned(),
            how,
            said: String::new(),
        });
    }
    build::build(library, dir, scratch)?;
    Ok(install::version(library, dir, scratch))
}

fn read(arguments: &PeersArguments, csv: &Path) -> Result<(table::Table, Vec<sample::Sample>)> {
    let text = fs::read_to_string(csv).map_err(Error::file(csv))?;
    let samples = sample::parse(&text)?;
    Ok((table::compare(&samples, &arguments.thresholds()), samples))
}

/// Prints the tables, and writes them where they are wanted.
fn show(arguments: &PeersArguments, csv: &Path) -> Result<()> {
    let (table, samples) = read(arguments, csv)?;
    print!("{}", render::text(&table));
    println!("raw lines: {}", csv.display());
    if let Some(page) = &arguments.write {
        section::write(page, &page::section(&table, &samples))?;
        println!("written: {}", page.display());
    }
    match table.tally.wrong_ours {
        0 => Ok(()),
        samples => Err(Error::WrongResult {
            samples,
            path: csv.to_owned(),
        }),
    }
}
