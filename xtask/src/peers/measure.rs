//! The run itself: who takes part, one process after the other, every line kept.

use super::error::{Error, Result};
use super::job::{Job, Priority};
use super::library::Peer;
use super::options::{PeersArguments, Plan};
use super::sample::{self, COLUMNS, Mode, Op};
use super::schedule::{Turn, turns};
use super::scratch::Scratch;
use super::table::OURS;
use super::{launch, ringwork};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Someone who can be measured.
#[derive(Clone, Debug)]
pub(crate) enum Who {
    Us(PathBuf),
    Peer(Peer),
}

/// One column of the comparison.
#[derive(Clone, Debug)]
pub(crate) struct Runner {
    pub(crate) who: Who,
    pub(crate) version: String,
}

impl Runner {
    pub(crate) fn name(&self) -> String {
        match &self.who {
            Who::Us(_) => OURS.to_owned(),
            Who::Peer(peer) => peer.name(),
        }
    }
}

/// All runners, ready to be measured.
#[derive(Debug)]
pub(crate) struct Field {
    pub(crate) runners: Vec<Runner>,
    pub(crate) plan: Plan,
    pub(crate) dir: PathBuf,
    pub(crate) cores: usize,
    pub(crate) priority: Priority,
    pub(crate) limit: Duration,
    /// Peers were named: run them even where they do badly.
    pub(crate) named: bool,
}

impl Field {
    pub(crate) fn new(arguments: &PeersArguments, runners: Vec<Runner>) -> Field {
        Field {
            runners,
            plan: arguments.plan(),
            dir: arguments.dir(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            priority: arguments.priority,
            limit: Duration::from_secs(arguments.limit_s),
            named: arguments.peers().1,
        }
    }

    fn takes_part(&self, runner: usize, op: Op, ranks: u32) -> bool {
        match &self.runners[runner].who {
            Who::Us(_) => true,
            Who::Peer(peer) => peer.offers(op) && !self.sits_out(*peer, ranks),
        }
    }

    /// With more ranks than cores, a library that never yields takes a time slice per message: it
    /// cannot win, and takes most of the time.
    fn sits_out(&self, peer: Peer, ranks: u32) -> bool {
        ranks as usize > self.cores && !peer.library.yields() && !self.named
    }

    /// What a runner does at its turn, if there is something to do. It appends to `out`.
    fn job(&self, turn: Turn, scratch: &Path, out: &Path) -> Option<Job> {
        let modes: Vec<Mode> = turn
            .op
            .modes()
            .iter()
            .copied()
            .filter(|mode| turn.op == Op::Barrier || self.plan.modes.contains(mode))
            .collect();
        if modes.is_empty() {
            return None;
        }
        let peer = match &self.runners[turn.runner].who {
            Who::Us(program) => {
                return Some(ringwork::bench(
                    program, turn.op, turn.ranks, &modes, &self.plan, out,
                ));
            }
            Who::Peer(peer) => *peer,
        };
        let (min, max, factor) = self.plan.sizes;
        let modes: Vec<String> = modes.iter().map(Mode::to_string).collect();
        let job = launch::launcher(peer, turn.ranks, self.cores, &self.dir);
        let job = job.and([peer.library.benchmark(&self.dir)]);
        let job = job.and([
            "--pin",
            "--peer",
            &peer.name(),
            "--op",
            &turn.op.to_string(),
            "--modes",
            &modes.join(","),
        ]);
        let job = job.and([
            "--min",
            &min.to_string(),
            "--max",
            &max.to_string(),
            "--factor",
            &factor.to_string(),
        ]);
        let job = job.and(["--target-ms", &self.plan.target_ms.to_string()]);
        Some(job.and([
            "--stamps".into(),
            scratch.join("stamps"),
            "--out".into(),
            out.to_owned(),
        ]))
    }

    /// Runs everything and writes each line to `csv` as it comes.
    ///
    /// A benchmark that fails is named and the others go on.
    ///
    /// # Errors
    /// Ctrl-C, or the file cannot be written. What was measured until then is in the file.
    pub(crate) fn measure(&self, csv: &Path) -> Result<()> {
        let mut file = File::create(csv).map_err(Error::file(csv))?;
        let mut keep = |line: String| writeln!(file, "{line}").map_err(Error::file(csv));
        keep(format!("{COLUMNS},round,version"))?;
        for ranks in &self.plan.ranks {
            let idle = self
                .runners
                .iter()
                .filter(|runner| matches!(runner.who, Who::Peer(peer) if self.sits_out(peer, *ranks)));
            let idle: Vec<String> = idle.map(Runner::name).collect();
            if !idle.is_empty() {
                println!(
                    "{ranks} ranks: without {} (never yields; --peers to run it anyway)",
                    idle.join(", ")
                );
            }
        }
        let takes_part = |runner, op, ranks| self.takes_part(runner, op, ranks);
        let turns = turns(
            self.plan.rounds,
            &self.plan.ranks,
            &self.plan.ops,
            self.runners.len(),
            takes_part,
        );
        let (begun, mut last) = (Instant::now(), None);
        for turn in turns {
            let heading = (turn.round, turn.ranks, turn.op);
            if last.replace(heading) != Some(heading) {
                // Only here, so that whoever is compared has run as often as the others.
                if begun.elapsed() > self.plan.budget {
                    println!("\nthe time is up (--budget)");
                    break;
                }
                print!(
                    "\n{} of at most {}, round {}/{}, {} ranks, {}:",
                    minutes(begun.elapsed()),
                    minutes(self.plan.budget),
                    turn.round + 1,
                    self.plan.rounds,
                    turn.ranks,
                    turn.op
                );
                let _ = std::io::stdout().flush();
            }
            let runner = &self.runners[turn.runner];
            let taken = self.take(turn)?;
            print!(" {} {:.1}s", runner.name(), taken.took.as_secs_f64());
            for line in taken.lines {
                keep(format!("{line},{},{}", turn.round, runner.version))?;
            }
            match taken.failure {
                Some(Error::Interrupted) => return Err(Error::Interrupted),
                Some(error) => print!("\n  {} failed: {error}\n ", runner.name()),
                None => {}
            }
            let _ = std::io::stdout().flush();
        }
        println!();
        Ok(())
    }

    /// One turn. Lines that a benchmark wrote before it failed are as good as any.
    fn take(&self, turn: Turn) -> Result<Taken> {
        let scratch = Scratch::new()?;
        let out = scratch.path().join("lines");
        let Some(job) = self.job(turn, scratch.path(), &out) else {
            return Ok(Taken::default());
        };
        let started = Instant::now();
        let ended = job.run(
            scratch.path(),
            self.priority.resolve(turn.ranks, self.cores),
            self.limit,
        );
        let took = started.elapsed();
        let text = if out.exists() {
            fs::read_to_string(&out).map_err(Error::file(&out))?
        } else {
            String::new()
        };
        let lines = sample::in_our_columns(&text, &self.runners[turn.runner].name());
        let understood = sample::parse(&format!("{COLUMNS}\n{}", lines.join("\n")));
        Ok(match understood {
            Ok(_) => Taken {
                lines,
                took,
                failure: ended.err(),
            },
            Err(failure) => Taken {
                lines: Vec::new(),
                took,
                failure: Some(failure),
            },
        })
    }
}

/// As a clock shows it.
fn minutes(time: Duration) -> String {
    format!("{}:{:02}", time.as_secs() / 60, time.as_secs() % 60)
}

/// What one turn brought.
#[derive(Debug, Default)]
struct Taken {
    lines: Vec<String>,
    took: Duration,
    failure: Option<Error>,
}
