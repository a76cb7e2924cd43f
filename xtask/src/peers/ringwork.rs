//! Us: the program of this repository, measured by its own `bench` command.

use super::error::{Error, Result};
use super::install::tidy;
use super::job::{Job, Priority};
use super::sample::{Mode, Op};
use std::path::{Path, PathBuf};
use std::time::Duration;

const BUILD_LIMIT: Duration = Duration::from_secs(1800);
const ASK_LIMIT: Duration = Duration::from_secs(60);

/// The directory of the workspace.
pub(crate) fn workspace() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here)
}

/// Where cargo puts what it builds: two levels above this program.
pub(crate) fn target_dir() -> PathBuf {
    let own = std::env::current_exe().ok();
    let target = own.as_deref().and_then(|exe| exe.parent()?.parent());
    target.map_or_else(|| workspace().join("target"), Path::to_owned)
}

/// Builds `ringwork` for release and returns where it is.
///
/// # Errors
/// It does not build.
pub(crate) fn build(scratch: &Path) -> Result<PathBuf> {
    println!("building ringwork ...");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let manifest = workspace().join("Cargo.toml");
    let job = Job::new([cargo]).and(["build", "--release", "--quiet", "--package", "ringwork-cli"]);
    let job = job
        .and(["--manifest-path"])
        .and([manifest])
        .with("CARGO_TARGET_DIR", target_dir());
    job.run(scratch, Priority::Normal, BUILD_LIMIT)?;
    Ok(target_dir().join("release/ringwork"))
}

/// Whether this build of `ringwork` has a `bench` command that prints CSV.
///
/// # Errors
/// It has not; the message says what is missing.
pub(crate) fn can_bench(program: &Path, scratch: &Path) -> Result<()> {
    let help = Job::new([program])
        .and(["bench", "--help"])
        .run(scratch, Priority::Normal, ASK_LIMIT)?;
    if help.contains("--csv") && help.contains("--modes") {
        return Ok(());
    }
    let how = "has a `bench` command without `--csv` or `--modes`".to_owned();
    Err(Error::Failed {
        program: program.display().to_string(),
        how,
        said: String::new(),
    })
}

/// The commit, and whether something was changed since.
pub(crate) fn version(scratch: &Path) -> String {
    let job = Job::new(["git", "-C"])
        .and([workspace()])
        .and(["describe", "--always", "--dirty"]);
    job.run(scratch, Priority::Normal, ASK_LIMIT)
        .map_or_else(|_| "?".to_owned(), |text| tidy(&text))
}

/// One run of `ringwork bench`, with sizes as our own harness is given them.
pub(crate) fn bench(program: &Path, op: Op, ranks: u32, modes: &[Mode], sizes: (u64, u64, u64)) -> Job {
    let (min, max, factor) = sizes;
    let modes: Vec<String> = modes.iter().map(Mode::to_string).collect();
    let job = Job::new([program]).and(["bench", &op.to_string(), "-g", &ranks.to_string()]);
    let job = if op == Op::Barrier {
        job
    } else {
        job.and([
            "-b",
            &min.to_string(),
            "-e",
            &max.to_string(),
            "-f",
            &factor.to_string(),
        ])
        .and(["--modes", &modes.join(",")])
    };
    job.and(["--csv"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_command_line_has_the_flags_of_nccl_tests() {
        let job = bench(
            Path::new("ringwork"),
            Op::AllReduce,
            2,
            &[Mode::Inp, Mode::Use],
            (4, 1024, 4),
        );
        let words: Vec<String> = job.words.iter().map(|word| word.display().to_string()).collect();
        assert_eq!(
            words.join(" "),
            "ringwork bench all_reduce -g 2 -b 4 -e 1024 -f 4 --modes inp,use --csv"
        );
    }
}
