//! Us: the program of this repository, measured by its own `bench` command.

use super::error::{Error, Result};
use super::install::tidy;
use super::job::{Job, Priority};
use super::options::Plan;
use super::sample::{Mode, Op};
use std::ffi::OsString;
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

/// Whether this build of `ringwork` has a `bench` command that can be compared.
///
/// # Errors
/// It has not; the message says what is missing.
pub(crate) fn can_bench(program: &Path, scratch: &Path) -> Result<()> {
    let help = match Job::new([program])
        .and(["bench", "--help"])
        .run(scratch, Priority::Normal, ASK_LIMIT)
    {
        Ok(help) => help,
        Err(Error::Failed { program, said, .. }) => {
            return Err(Error::Failed {
                program,
                how: "has no `bench` command".to_owned(),
                said,
            });
        }
        Err(error) => return Err(error),
    };
    match ["--csv", "--modes", "--target"]
        .into_iter()
        .find(|flag| !help.contains(flag))
    {
        None => Ok(()),
        Some(flag) => {
            let how = format!("has a `bench` command without `{flag}`");
            Err(Error::Failed {
                program: program.display().to_string(),
                how,
                said: String::new(),
            })
        }
    }
}

/// The commit of this workspace, and whether something was changed since.
pub(crate) fn version_here(scratch: &Path) -> String {
    ask(
        Job::new(["git", "-C"])
            .and([workspace()])
            .and(["describe", "--always", "--dirty"]),
        scratch,
    )
}

/// What a program says its version is.
pub(crate) fn version_of(program: &Path, scratch: &Path) -> String {
    ask(Job::new([program]).and(["--version"]), scratch)
}

fn ask(job: Job, scratch: &Path) -> String {
    job.run(scratch, Priority::Normal, ASK_LIMIT)
        .map_or_else(|_| "?".to_owned(), |text| tidy(&text))
}

/// One run of `ringwork bench`, with the sizes and times that our own harness is given; lines go to `out`.
pub(crate) fn bench(program: &Path, op: Op, ranks: u32, modes: &[Mode], plan: &Plan, out: &Path) -> Job {
    let (min, max, factor) = plan.sizes;
    let modes: Vec<String> = modes.iter().map(Mode::to_string).collect();
    let mut csv = OsString::from("--csv=");
    csv.push(out);
    Job::new([program])
        .and(["bench", &op.to_string(), "-g", &ranks.to_string()])
        .and([
            "-b",
            &min.to_string(),
            "-e",
            &max.to_string(),
            "-f",
            &factor.to_string(),
        ])
        .and([
            "--modes",
            &modes.join(","),
            "--target",
            &format!("{}ms", plan.target_ms),
        ])
        // As the harness binds everyone else's, also where ranks share cores.
        .and(["--pin", "core"])
        .and([csv])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_command_line_has_the_flags_of_nccl_tests() {
        let plan = Plan {
            ops: Vec::new(),
            modes: Vec::new(),
            ranks: Vec::new(),
            rounds: 1,
            sizes: (4, 1024, 4),
            target_ms: 15,
            budget: Duration::from_secs(60),
        };
        let out = Path::new("/s/lines");
        let job = bench(
            Path::new("ringwork"),
            Op::AllReduce,
            2,
            &[Mode::Inp, Mode::Use],
            &plan,
            out,
        );
        let words: Vec<String> = job.words.iter().map(|word| word.display().to_string()).collect();
        let wanted = "ringwork bench all_reduce -g 2 -b 4 -e 1024 -f 4 --modes inp,use --target 15ms --pin core \
             --csv=/s/lines";
        assert_eq!(words.join(" "), wanted);
    }
}
