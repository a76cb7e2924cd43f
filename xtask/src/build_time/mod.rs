//! `cargo xtask build-time`: what clean builds cost, in CPU seconds, beside the limits.
//!
//! CPU seconds, because they are the same on a busy machine: user time of cargo and everything that it started.
//! The seconds of a single crate are those of its `rustc`: cargo is told to start this program instead
//! ([`rustc_wrapper`]), which runs the compiler and writes down what it used.

mod cpu;

use crate::error::{Error, Result};
use clap::{Args, ValueEnum};
use cpu::Cpu;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// Names the file that the wrapper appends to.
const LOG: &str = "RINGWORK_BUILD_TIME_LOG";
/// Our crates that take longer than this are listed.
const LISTED_SECONDS: f64 = 10.0;
/// No crate of ours may take longer.
const CRATE_LIMIT_SECONDS: f64 = 60.0;
/// The stripped size of the `ringwork` program.
const SIZE_LIMIT_BYTES: u64 = 15_000_000;

/// Which builds to measure.
#[derive(Debug, Args)]
pub(crate) struct BuildTimeArguments {
    /// Only these
    #[arg(value_enum)]
    builds: Vec<Build>,
}

/// A clean build.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Build {
    /// A small program without the features `sim` and `collectives`, release
    Small,
    /// The same with all features, release
    Whole,
    /// The `ringwork` program, release
    Program,
    /// The small program, debug
    Debug,
}

impl Build {
    const fn what(self) -> &'static str {
        match self {
            Build::Small => "release, a program without features",
            Build::Whole => "release, the same with everything",
            Build::Program => "release, `ringwork` itself",
            Build::Debug => "debug, a program without features",
        }
    }

    const fn limit_seconds(self) -> f64 {
        match self {
            Build::Small => 90.0,
            Build::Whole => 150.0,
            Build::Program => 240.0,
            Build::Debug => 50.0,
        }
    }

    /// The arguments of cargo. Small programs are made in `dir`.
    fn arguments(self, dir: &Path) -> Result<Vec<OsString>> {
        let mut arguments: Vec<OsString> = vec!["build".into(), "--quiet".into()];
        match self {
            Build::Program => arguments.extend(["--locked", "--package", "ringwork-cli"].map(OsString::from)),
            Build::Small | Build::Debug => manifest(&mut arguments, &write_program(dir, false)?),
            Build::Whole => manifest(&mut arguments, &write_program(dir, true)?),
        }
        if self != Build::Debug {
            arguments.push("--release".into());
        }
        Ok(arguments)
    }
}

fn manifest(arguments: &mut Vec<OsString>, path: &Path) {
    arguments.extend(["--manifest-path".into(), path.into()]);
}

/// What a build took.
#[derive(Debug)]
struct Measured {
    cpu: Cpu,
    /// User seconds by crate of ours.
    crates: BTreeMap<String, f64>,
}

/// Measures and prints.
///
/// # Errors
/// A build fails, or a limit is missed.
pub(crate) fn run(arguments: &BuildTimeArguments) -> Result<()> {
    let builds = match &arguments.builds[..] {
        [] => Build::value_variants(),
        chosen => chosen,
    };
    let dir = workspace().join("target").join("build-time");
    let mut over = Vec::new();
    println!(
        "{:38} {:>8} {:>8} {:>8}",
        "clean build", "user s", "limit s", "sys s"
    );
    for build in builds {
        let measured = measure(*build, &dir)?;
        let limit = build.limit_seconds();
        let Cpu { user, system } = measured.cpu;
        println!("{:38} {user:8.1} {limit:8.0} {system:8.1}", build.what());
        if user > limit {
            over.push(format!("{} takes {user:.1} of {limit} s", build.what()));
        }
        let mut crates: Vec<_> = measured.crates.into_iter().collect();
        crates.sort_by(|a, b| b.1.total_cmp(&a.1));
        for (name, seconds) in crates.iter().filter(|(_, seconds)| *seconds > LISTED_SECONDS) {
            println!("    {name:34} {seconds:8.1} {CRATE_LIMIT_SECONDS:8.0}");
            if *seconds > CRATE_LIMIT_SECONDS {
                over.push(format!("{name} takes {seconds:.1} of {CRATE_LIMIT_SECONDS} s"));
            }
        }
        if *build == Build::Program {
            let bytes = stripped_bytes(&dir.join("target/release/ringwork"))?;
            let (size, limit) = (bytes as f64 / 1e6, SIZE_LIMIT_BYTES as f64 / 1e6);
            println!("    stripped, MB {size:30.1} {limit:8.0}");
            if bytes > SIZE_LIMIT_BYTES {
                over.push(format!("`ringwork` has {size:.1} of {limit} MB stripped"));
            }
        }
    }
    clear(&dir)?;
    if over.is_empty() {
        return Ok(());
    }
    Err(Error::OverLimit {
        what: over.join("; "),
    })
}

/// Builds in an empty directory.
fn measure(build: Build, dir: &Path) -> Result<Measured> {
    clear(dir)?;
    fs::create_dir_all(dir).map_err(Error::file(dir))?;
    let log = dir.join("log");
    let wrapper = std::env::current_exe().map_err(Error::file(Path::new("cargo-xtask")))?;
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo
        .args(build.arguments(dir)?)
        .current_dir(workspace())
        .env("CARGO_TARGET_DIR", dir.join("target"))
        .env("CARGO_INCREMENTAL", "0")
        .env("RUSTC_WRAPPER", wrapper)
        .env(LOG, &log)
        .env_remove("RUSTFLAGS");
    let before = Cpu::of_children()?;
    must_succeed(&mut cargo)?;
    let cpu = Cpu::of_children()?.since(before);
    let text = fs::read_to_string(&log).map_err(Error::file(&log))?;
    Ok(Measured {
        cpu,
        crates: our_crates(&text),
    })
}

/// Adds up the lines of a log: a crate's name and its user seconds.
fn our_crates(log: &str) -> BTreeMap<String, f64> {
    let mut crates = BTreeMap::new();
    for line in log.lines() {
        if let Some((name, seconds)) = line.split_once(' ')
            && name.starts_with("ringwork")
            && let Ok(seconds) = seconds.parse::<f64>()
        {
            *crates.entry(name.to_owned()).or_default() += seconds;
        }
    }
    crates
}

/// Writes a program that depends on the facade, and returns its manifest.
fn write_program(dir: &Path, features: bool) -> Result<PathBuf> {
    let program = dir.join("program");
    fs::create_dir_all(&program).map_err(Error::file(&program))?;
    let path = workspace().join("crates/ringwork");
    let path = path.display();
    let manifest = program.join("Cargo.toml");
    let text = format!(
        "[package]\nname = \"program\"\nedition = \"2024\"\n\n[[bin]]\nname = \"program\"\npath = \"main.rs\"\n\n\
         [dependencies]\nringwork = {{ path = '{path}', default-features = {features} }}\n\n[workspace]\n"
    );
    fs::write(&manifest, text).map_err(Error::file(&manifest))?;
    // The same versions of all dependencies as here, so that nothing is fetched.
    for (from, to) in [
        ("Cargo.lock", "Cargo.lock"),
        ("crates/ringwork/examples/sum.rs", "main.rs"),
    ] {
        let from = workspace().join(from);
        fs::copy(&from, program.join(to)).map_err(Error::file(&from))?;
    }
    Ok(manifest)
}

fn stripped_bytes(program: &Path) -> Result<u64> {
    let stripped = program.with_extension("stripped");
    must_succeed(Command::new("strip").arg("-o").arg(&stripped).arg(program))?;
    let metadata = fs::metadata(&stripped).map_err(Error::file(&stripped))?;
    Ok(metadata.len())
}

fn must_succeed(command: &mut Command) -> Result<()> {
    let program = command.get_program().display().to_string();
    let status = command.status().map_err(|source| Error::Start {
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

fn clear(dir: &Path) -> Result<()> {
    if dir.exists() {
        fs::remove_dir_all(dir).map_err(Error::file(dir))?;
    }
    Ok(())
}

fn workspace() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here)
}

/// Runs the compiler, if this process was started instead of it, and writes down what it used.
///
/// The exit code of the compiler, or `None` if this process was started by a person.
pub(crate) fn rustc_wrapper() -> Option<ExitCode> {
    let log = std::env::var_os(LOG)?;
    let mut arguments = std::env::args_os().skip(1);
    let rustc = arguments.next()?;
    let arguments: Vec<OsString> = arguments.collect();
    let name = arguments
        .iter()
        .skip_while(|argument| *argument != "--crate-name")
        .nth(1);
    let status = Command::new(rustc).args(&arguments).status().ok()?;
    if let (Some(name), Ok(used)) = (name, Cpu::of_children())
        && let Ok(mut log) = File::options().create(true).append(true).open(log)
    {
        // One write, so that lines of compilers that run at the same time do not mix.
        let line = format!("{} {}\n", name.display(), used.user);
        let _ = log.write_all(line.as_bytes());
    }
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Some(ExitCode::from(code.unwrap_or(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crates_of_ours_are_added_up_and_others_left_out() {
        let crates =
            our_crates("serde 3.5\nringwork_isa 2.5\nringwork 0.5\nringwork 1\ngarbled\nringwork x\n");
        let crates: Vec<_> = crates.iter().map(|(name, s)| (name.as_str(), *s)).collect();
        assert_eq!(crates, [("ringwork", 1.5), ("ringwork_isa", 2.5)]);
    }
}
