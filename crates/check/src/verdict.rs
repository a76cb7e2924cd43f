//! What was proved, what was found, and how far the search went.

use crate::cells::Broken;
use crate::explore::Bound;
use crate::fault::{Fault, Side};
use crate::replay::Trace;
use crate::reuse::Reuse;
use std::fmt;
use std::time::Duration;

/// How a program was proved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    /// Tier 1. Every signal keeps the conditions, so there is one execution up to equivalence, and it is free of faults.
    OneExecution,
    /// Tier 2. Some signals do not; all executions were explored.
    AllExecutions,
}

/// How far a proof goes, as reports name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tier {
    /// One schedule stands for all.
    One,
    /// All executions were explored.
    Two,
    /// One schedule stands for all, and it repeats itself: for any number of calls.
    Three,
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Tier::One => "tier 1: one schedule stands for all",
            Tier::Two => "tier 2: all executions were explored",
            Tier::Three => "tier 3: one schedule stands for all, and it repeats itself",
        })
    }
}

/// The outcome of [`prove`](crate::prove).
#[derive(Clone, Debug)]
#[must_use = "a verdict may be that there is a fault"]
pub struct Verdict {
    /// Ranks of the program.
    pub ranks: u32,
    /// Calls that each rank made.
    pub calls: u32,
    /// How it was proved; `None` if there is a fault, or a bound was reached.
    pub proof: Option<Proof>,
    /// If it is proved for any number of calls: how the program repeats itself. Only
    /// [`Program::prove_reuse`](crate::Program::prove_reuse) looks for that.
    pub reuse: Option<Reuse>,
    /// What is wrong. If this is empty and there is no proof, a bound was reached.
    pub faults: Vec<Fault>,
    /// The bound that was reached, if one was.
    pub bound: Option<Bound>,
    /// How the first fault comes about.
    pub trace: Option<Trace>,
    /// Executions that came to their end.
    pub executions: u64,
    /// States in which the order mattered.
    pub states: usize,
    /// Instructions in all executions together.
    pub instructions: u64,
    /// A rank repeated a failed test: it was assumed that the loop goes on until the signal changes.
    pub has_loops: bool,
    /// Signals whose order matters: index, rank, and the condition that is broken.
    pub ordered: Vec<(u32, u32, Broken)>,
    /// How long it took.
    pub elapsed: Duration,
}

impl Verdict {
    /// Whether it was proved that nothing is wrong.
    #[must_use]
    pub fn is_proved(&self) -> bool {
        self.proof.is_some()
    }

    /// Which kind of proof it is, if it is one.
    #[must_use]
    pub fn tier(&self) -> Option<Tier> {
        let proof = self.proof?;
        Some(match (proof, self.reuse) {
            (Proof::AllExecutions, _) => Tier::Two,
            (Proof::OneExecution, None) => Tier::One,
            (Proof::OneExecution, Some(_)) => Tier::Three,
        })
    }

    /// Whether a bound was reached before anything was found: neither a proof nor a fault.
    #[must_use]
    pub fn is_bounded(&self) -> bool {
        self.proof.is_none() && self.faults.is_empty()
    }

    /// Panics with the whole report unless it was proved: for tests.
    ///
    /// # Panics
    /// If there is a fault, or a bound was reached.
    #[track_caller]
    pub fn expect_proved(&self) {
        assert!(self.is_proved(), "{self}");
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (ranks, calls) = (self.ranks, self.calls);
        match self.tier() {
            Some(tier) => {
                let calls = match self.reuse {
                    Some(_) => "any number of".to_owned(),
                    None => calls.to_string(),
                };
                write!(f, "proved for {ranks} ranks and {calls} calls ({tier}")?;
                match self.reuse {
                    Some(Reuse { after, period }) => write!(f, " from call {after} on, every {period})")?,
                    None if tier == Tier::Two => write!(f, ", {} of them)", self.executions)?,
                    None => f.write_str(")")?,
                }
            }
            None if self.faults.is_empty() => {
                let bound = self.bound.map(|bound| format!(" of {bound}")).unwrap_or_default();
                write!(
                    f,
                    "not proved: the bound{bound} was reached after {} states; nothing was found so far. Ask for fewer ranks or calls, or raise the bounds",
                    self.states
                )?;
            }
            None => {
                for (index, fault) in self.faults.iter().enumerate() {
                    let gap = if index > 0 { "\n" } else { "" };
                    write!(f, "{gap}{fault}")?;
                    if let (0, Some(trace)) = (index, &self.trace) {
                        write!(f, "\n{trace}")?;
                    }
                }
            }
        }
        if self.has_loops && self.proof.is_some() {
            write!(f, ", if loops of `test` go on until their signal changes")?;
        }
        Ok(())
    }
}

/// A trace of more lines than this is not printed.
const MOST_LINES: usize = 24;

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shortest = if self.is_shortest {
            "the shortest way there: "
        } else {
            ""
        };
        let (kept, of) = (self.steps.len(), self.of);
        write!(f, "  {shortest}{kept} of {of} instructions matter")?;
        let lines = lines(&self.steps);
        if lines.len() <= MOST_LINES {
            write!(f, ", in this order")?;
            for (rank, call, site, what) in lines {
                write!(f, "\n    rank {rank}, call {call}  {site:<28}  {what}")?;
            }
        }
        write!(f, "\n  again with the schedule {}", self.schedule)
    }
}

/// The steps of one line of one rank together.
fn lines(steps: &[Side]) -> Vec<(u32, u32, String, String)> {
    let mut all: Vec<(u32, u32, String, String)> = Vec::new();
    for step in steps {
        let what = match step.signal.is_empty() {
            true => step.instruction.to_owned(),
            false => format!("{} {}", step.instruction, step.signal),
        };
        let site = step.site.to_string();
        match all.last_mut() {
            Some((rank, call, line, whole)) if (*rank, *call, &*line) == (step.rank, step.call, &site) => {
                whole.push_str(", ");
                whole.push_str(&what);
            }
            _ => all.push((step.rank, step.call, site, what)),
        }
    }
    all
}
