//! `cargo xtask peers --python`: NumPy and torch over ringwork beside mpi4py and gloo.
//!
//! Each run has both libraries in the same processes, batch by batch in turns (`xtask/peers/python.py`). So a ratio is
//! taken within a run, and the table shows the median of the ratios of all runs: no hop has to be probed. What the same
//! calls take from Rust, in own memory, is measured by `ringwork bench` once in every round.

use super::job::Job;
use super::library::{Library, Peer};
use super::options::{PeersArguments, Plan};
use super::python_table::{COLUMNS, RUST, parse, render};
use super::sample::{Mode, Op};
use super::scratch::Scratch;
use super::{install, launch, page, ringwork, section};
use crate::error::{Error, Result};
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The MPIs that mpi4py can be run over, each in an environment of its own.
const MPIS: [Library; 3] = [Library::OpenMpi5, Library::Mpich5, Library::IntelMpi];
const INSTALL_LIMIT: Duration = Duration::from_secs(3600);

/// A Python in which ringwork and one other library are installed.
#[derive(Debug)]
struct Runner {
    python: PathBuf,
    /// The library's name in the table.
    name: String,
    version: String,
    /// The MPI under mpi4py; none for gloo.
    mpi: Option<Peer>,
}

/// Measures, and shows the table.
///
/// # Errors
/// Nothing could be measured, a file could not be written, or ringwork returned a wrong result.
pub(crate) fn run(arguments: &PeersArguments, dir: &Path) -> Result<()> {
    let csv = arguments.csv();
    if arguments.from.is_none() {
        let scratch = Scratch::new()?;
        let runners = prepare(arguments, dir, scratch.path())?;
        let program = match &arguments.ringwork {
            Some(given) => given.clone(),
            None => ringwork::build(scratch.path())?,
        };
        measure(arguments, (&runners, &program), dir, &csv)?;
    }
    let csv = arguments.from.as_ref().unwrap_or(&csv);
    let lines = fs::read_to_string(csv).map_err(Error::file(csv))?;
    let samples = parse(&lines)?;
    let text = render(&samples);
    println!("\n{text}\nraw lines: {}", csv.display());
    if let Some(page) = &arguments.write {
        let head = format!(
            "Measured with `cargo xtask peers --python` on {}; microseconds, medians.\n\n",
            page::machine()
        );
        section::write(page, &(head + &text))?;
        println!("written: {}", page.display());
    }
    let wrong = samples.iter().filter(|sample| !sample.right).count();
    if wrong > 0 {
        return Err(Error::WrongResult {
            samples: wrong,
            path: csv.clone(),
        });
    }
    Ok(())
}

// --- preparing ---

/// Installs what can be installed. Says for each that is left out why.
fn prepare(arguments: &PeersArguments, dir: &Path, scratch: &Path) -> Result<Vec<Runner>> {
    let wheel = wheel(arguments, dir, scratch)?;
    let mut runners = Vec::new();
    let mut keep = |name: &str, ready: Result<Runner>| match ready {
        Ok(runner) => {
            println!("{name}: {}", runner.version);
            runners.push(runner);
            Ok(())
        }
        Err(Error::Interrupted) => Err(Error::Interrupted),
        Err(error) => {
            println!("skipped {name}: {error}");
            Ok(())
        }
    };
    for library in MPIS {
        let name = format!("mpi4py-{}", library.name());
        keep(
            &name,
            beside_mpi4py(arguments, (library, &name), &wheel, dir, scratch),
        )?;
    }
    keep("gloo", beside_gloo(arguments, &wheel, dir, scratch))?;
    if runners.is_empty() {
        let why = "see above".to_owned();
        return Err(Error::NoPeers { why });
    }
    Ok(runners)
}

fn pip(python: &Path) -> Job {
    let quiet = [
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-input",
        "--disable-pip-version-check",
    ];
    Job::new([python]).and(quiet)
}

fn go(job: &Job, scratch: &Path) -> Result<String> {
    job.run(scratch, super::job::Priority::Normal, INSTALL_LIMIT)
}

/// The wheel of this workspace, or the one that was given.
fn wheel(arguments: &PeersArguments, dir: &Path, scratch: &Path) -> Result<PathBuf> {
    if let Some(given) = &arguments.wheel {
        return Ok(given.clone());
    }
    println!("building the Python package ...");
    let (venv, wheels) = (dir.join("venv-build"), scratch.join("wheels"));
    let python = environment(&venv, scratch)?;
    let package = ringwork::workspace().join("crates/python");
    let job = Job::new([&python]).and(["-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir"]);
    let job = job.and([&wheels, &package]);
    go(&job.with("CARGO_TARGET_DIR", ringwork::target_dir()), scratch)?;
    let mut found = fs::read_dir(&wheels).map_err(Error::file(&wheels))?;
    match found.next() {
        Some(Ok(wheel)) => Ok(wheel.path()),
        _ => Err(Error::Failed {
            program: "pip wheel".into(),
            how: "made no wheel".into(),
            said: String::new(),
        }),
    }
}

fn environment(venv: &Path, scratch: &Path) -> Result<PathBuf> {
    let python = venv.join("bin/python");
    if !python.exists() {
        go(&Job::new(["python3", "-m", "venv"]).and([venv]), scratch)?;
    }
    Ok(python)
}

/// Installs `packages` unless `import` works, and the wheel in any case.
fn fill(python: &Path, import: &str, packages: &[&str], wheel: &Path, scratch: &Path) -> Result<String> {
    let ask = Job::new([python]).and(["-c", &format!("import {import} as m; print(m.__version__)")]);
    if go(&ask, scratch).is_err() {
        println!("installing {} ...", packages.join(" "));
        go(&pip(python).and(packages.iter().copied()), scratch)?;
    }
    let again = pip(python).and(["--no-deps", "--force-reinstall"]).and([wheel]);
    go(&again, scratch)?;
    Ok(install::tidy(&go(&ask, scratch)?))
}

fn beside_mpi4py(
    arguments: &PeersArguments,
    (library, name): (Library, &str),
    wheel: &Path,
    dir: &Path,
    scratch: &Path,
) -> Result<Runner> {
    if !arguments.no_install {
        install::install(library, dir, scratch)?;
    }
    let python = library.root(dir).join("bin/python");
    let version = fill(&python, "mpi4py", &["mpi4py", "numpy"], wheel, scratch)?;
    let under = install::version(library, dir, scratch);
    Ok(Runner {
        python,
        name: name.to_owned(),
        version: format!("{version} over {} {under}", library.title()),
        mpi: Some(Peer {
            library,
            tuned: false,
        }),
    })
}

fn beside_gloo(arguments: &PeersArguments, wheel: &Path, dir: &Path, scratch: &Path) -> Result<Runner> {
    let python = match &arguments.torch {
        Some(given) => given.clone(),
        None => environment(&dir.join("venv-torch"), scratch)?,
    };
    let version = fill(&python, "torch", &["torch", "numpy"], wheel, scratch)?;
    Ok(Runner {
        python,
        name: "gloo".into(),
        version: format!("torch {version}"),
        mpi: None,
    })
}

// --- measuring ---

fn measure(
    arguments: &PeersArguments,
    (runners, program): (&[Runner], &Path),
    dir: &Path,
    csv: &Path,
) -> Result<()> {
    let plan = arguments.plan();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut kept = format!("{COLUMNS}\n");
    let begun = Instant::now();
    let rounds = (0..plan.rounds).flat_map(|round| plan.ranks.iter().map(move |ranks| (round, *ranks)));
    for (number, (round, ranks)) in rounds.enumerate() {
        if number > 0 && begun.elapsed() > plan.budget {
            println!("the time is up (--budget)");
            break;
        }
        let priority = arguments.priority.resolve(ranks, cores);
        for turn in 0..=runners.len() {
            let scratch = Scratch::new()?;
            let out = scratch.path().join("lines");
            // Nobody is always first.
            let runner = runners.get((turn + round) % (runners.len() + 1));
            let name = runner.map_or(RUST, |runner| &runner.name);
            let job = match runner {
                None => {
                    ringwork::bench(program, Op::AllReduce, ranks, &[Mode::Inp], &plan, &out).and(["--own"])
                }
                Some(runner) => job(runner, ranks, (cores, dir), &plan, (&out, number)),
            };
            let ended = job.run(scratch.path(), priority, Duration::from_secs(arguments.limit_s));
            let text = fs::read_to_string(&out).unwrap_or_default();
            let version = runner.map_or("", |runner| &runner.version);
            for line in text.lines() {
                let line = if runner.is_none() {
                    from_bench(line)
                } else {
                    Some(line.to_owned())
                };
                if let Some(line) = line {
                    let _ = writeln!(kept, "{line},{name}-{number},{version}");
                }
            }
            fs::write(csv, &kept).map_err(Error::file(csv))?;
            match ended {
                Ok(_) => println!("{ranks} ranks, round {}/{}: {name}", round + 1, plan.rounds),
                Err(Error::Interrupted) => return Err(Error::Interrupted),
                Err(error) => println!("{name} failed: {error}"),
            }
        }
    }
    Ok(())
}

fn job(
    runner: &Runner,
    ranks: u32,
    (cores, dir): (usize, &Path),
    plan: &Plan,
    (out, run): (&Path, usize),
) -> Job {
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers/python.py");
    let job = match runner.mpi {
        Some(peer) => launch::launcher(peer, ranks, cores, dir)
            .and([&runner.python, &program])
            .and(["mpi4py", "--pin"]),
        None => Job::new([&runner.python])
            .and([
                "-m",
                "torch.distributed.run",
                "--standalone",
                "--nproc-per-node",
                &ranks.to_string(),
            ])
            .and([program])
            .and(["gloo"]),
    };
    let (min, max, factor) = plan.sizes;
    let name = format!("peers-{}-{run}-{}", std::process::id(), runner.name);
    job.and(["--peer", &runner.name, "--job", &name])
        .and(["--smallest", &min.to_string(), "--largest", &max.to_string()])
        .and([
            "--factor",
            &factor.to_string(),
            "--target-ms",
            &plan.target_ms.to_string(),
        ])
        .and(["--out"])
        .and([out])
}

/// A line of `ringwork bench --csv` in our columns.
fn from_bench(line: &str) -> Option<String> {
    let fields: Vec<&str> = line.split(',').collect();
    let [_, ranks, op, _, bytes, calls, _, median, _, _, _, _, verify, ..] = fields[..] else {
        return None;
    };
    // The command writes `allreduce`.
    let op: Op = op.parse().ok()?;
    Some(format!("{op},{RUST},{ranks},{bytes},{calls},{median},{verify}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_command_are_brought_into_our_columns() {
        let line = "ringwork,2,allreduce,inp,4,900,0.1,0.123,0.2,0.13,0,0,ok,1,60,60";
        assert_eq!(
            from_bench(line).as_deref(),
            Some("all_reduce,rust,2,4,900,0.123,ok")
        );
        assert_eq!(
            from_bench("peer,np,op,mode,bytes,iters,min_us,med_us,p99_us,mean_us,a,b,verify"),
            None
        );
    }
}
