//! Building our benchmark against a library.

use super::error::Result;
use super::job::{Job, Priority};
use super::library::Library;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

const BUILD_LIMIT: Duration = Duration::from_secs(300);
const FLAGS: [&str; 4] = ["-O3", "-march=native", "-Wall", "-Wextra"];

/// Where the C sources are.
pub(crate) fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("peers")
}

/// Builds the benchmark of a library, unless it is newer than its sources and the library.
///
/// # Errors
/// The compiler refuses.
pub(crate) fn build(library: Library, dir: &Path, scratch: &Path) -> Result<()> {
    let target = library.benchmark(dir);
    let files = ["harness.h", "harness.c", "mpi.c", "oneccl.cc"].map(|name| sources().join(name));
    let newest = files
        .iter()
        .map(|path| made(path))
        .chain([made(&library.evidence(dir))])
        .max()
        .flatten();
    if made(&target).is_some_and(|target| Some(target) > newest) {
        return Ok(());
    }
    steps(library, dir, scratch)
        .into_iter()
        .try_for_each(|job| job.run(scratch, Priority::Normal, BUILD_LIMIT).map(drop))
}

fn made(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).and_then(|metadata| metadata.modified()).ok()
}

/// The compilations it takes.
fn steps(library: Library, dir: &Path, scratch: &Path) -> Vec<Job> {
    let source = |name: &str| sources().join(name);
    let root = library.root(dir);
    let joined = |prefix: &str, path: PathBuf| {
        let mut word = std::ffi::OsString::from(prefix);
        word.push(path);
        word
    };
    let c = |compiler: PathBuf| Job::new([compiler]).and(["-std=gnu11"]).and(FLAGS);
    let target = |job: Job| job.and(["-o"]).and([library.benchmark(dir)]);
    let (include, rpath) = (
        joined("-I", root.join("include")),
        joined("-Wl,-rpath,", root.join("lib")),
    );
    match library {
        // Its own compiler script knows the paths.
        Library::OpenMpi4 | Library::OpenMpi5 | Library::Mpich4 | Library::Mpich5 => {
            vec![target(
                c(library.evidence(dir)).and([source("harness.c"), source("mpi.c")]),
            )]
        }
        Library::IntelMpi => {
            let job = c("gcc".into())
                .and([include])
                .and([source("harness.c"), source("mpi.c")]);
            vec![target(
                job.and([joined("-L", root.join("lib")), rpath]).and(["-lmpi"]),
            )]
        }
        Library::OneCcl => {
            let harness = scratch.join("harness.o");
            let first = c("gcc".into())
                .and(["-c"])
                .and([source("harness.c")])
                .and(["-o"])
                .and([&harness]);
            let second = Job::new(["g++", "-std=gnu++20"])
                .and(FLAGS)
                .and([include])
                .and([harness, source("oneccl.cc")]);
            vec![
                first,
                target(
                    second
                        .and(["-Wl,--no-as-needed"])
                        .and([rpath])
                        .and([root.join("lib/libccl.so.2")]),
                ),
            ]
        }
    }
}
