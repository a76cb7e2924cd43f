//! Getting the libraries, and saying which version came. Each is optional.

use super::error::{Error, Result};
use super::job::{Job, Priority};
use super::library::{Library, Source};
use std::path::Path;
use std::time::Duration;

/// Long enough for two gigabytes over a slow line.
const INSTALL_LIMIT: Duration = Duration::from_secs(3600);
/// Asking for a version is quick.
const ASK_LIMIT: Duration = Duration::from_secs(60);

/// Installs a library unless it is there.
///
/// # Errors
/// It cannot be installed. The others still can.
pub(crate) fn install(library: Library, dir: &Path, scratch: &Path) -> Result<()> {
    if library.evidence(dir).exists() {
        return Ok(());
    }
    println!("installing {} ...", library.title());
    let run = |job: Job| job.run(scratch, Priority::Normal, INSTALL_LIMIT).map(drop);
    match library.source() {
        Source::Debian(packages) => {
            let install = apt(["install", "-y", "--no-install-recommends"]).and(packages.iter().copied());
            // Without fresh lists the packages may be unknown; with them in place, asking is a waste.
            run(install.clone()).or_else(|_| run(apt(["update"])).and_then(|()| run(install)))?;
        }
        Source::Pypi(packages) => {
            let root = library.root(dir);
            let python = root.join("bin/python");
            if !python.exists() {
                run(Job::new(["python3", "-m", "venv"]).and([&root]))?;
            }
            let pip = Job::new([python]).and([
                "-m",
                "pip",
                "install",
                "--no-input",
                "--disable-pip-version-check",
            ]);
            run(pip.and(packages.iter().copied()))?;
        }
    }
    if library.evidence(dir).exists() {
        return Ok(());
    }
    let how = format!("did not bring {}", library.evidence(dir).display());
    Err(Error::Failed {
        program: format!("installing {}", library.title()),
        how,
        said: String::new(),
    })
}

fn apt<const N: usize>(arguments: [&str; N]) -> Job {
    let job = Job::new(["apt-get", "-q", "-o", "DPkg::Lock::Timeout=120"]).and(arguments);
    job.with("DEBIAN_FRONTEND", "noninteractive")
}

/// The installed version, or a question mark.
pub(crate) fn version(library: Library, dir: &Path, scratch: &Path) -> String {
    let job = match library.source() {
        Source::Debian(packages) => Job::new(["dpkg-query", "-W", "-f", "${Version}", packages[0]]),
        Source::Pypi(packages) => {
            let ask = "import sys, importlib.metadata as m; print(m.version(sys.argv[1]))";
            Job::new([library.root(dir).join("bin/python")]).and(["-c", ask, packages[0]])
        }
    };
    match job.run(scratch, Priority::Normal, ASK_LIMIT) {
        Ok(text) if !text.trim().is_empty() => tidy(&text),
        _ => "?".to_owned(),
    }
}

/// A version as one field of a CSV.
pub(crate) fn tidy(version: &str) -> String {
    version.trim().replace([',', '\n'], " ")
}
