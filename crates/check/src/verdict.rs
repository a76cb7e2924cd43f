//! What was proved, what was found, and how far the search went.

use crate::cells::Broken;
use crate::fault::{Fault, Side};
use crate::replay::Trace;
use std::fmt;
use std::time::Duration;

/// How a program was proved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    /// Every signal keeps the conditions, so there is one execution up to equivalence, and it is free of faults.
    OneExecution,
    /// Some signals do not; all executions were explored.
    AllExecutions,
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
    /// What is wrong. If this is empty and there is no proof, a bound was reached.
    pub faults: Vec<Fault>,
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
        match self.proof {
            Some(Proof::OneExecution) => write!(
                f,
                "proved for {ranks} ranks and {calls} calls: one execution up to equivalence"
            )?,
            Some(Proof::AllExecutions) => {
                write!(
                    f,
                    "proved for {ranks} ranks and {calls} calls: all {} executions",
                    self.executions
                )?;
            }
            None if self.faults.is_empty() => write!(
                f,
                "not proved: the bound was reached after {} states; nothing was found so far. Ask for fewer ranks or calls, or raise the bounds",
                self.states
            )?,
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
