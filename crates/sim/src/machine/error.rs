//! What can go wrong on a machine.

use ringwork_isa::{Error, Segment, Site, Waited};
use std::fmt;

/// A kernel that cannot go on.
#[derive(Clone, Debug, PartialEq)]
pub struct Stuck {
    /// The machine's rank it runs on.
    pub rank: u32,
    /// Its task.
    pub task: String,
    /// What it waits for.
    pub on: StuckOn,
}

/// What a kernel can be stuck on.
#[derive(Clone, Debug, PartialEq)]
pub enum StuckOn {
    /// A signal.
    Signal(Waited),
    /// Something that is not an instruction of ours: the kernel awaits a future nobody completes.
    Unknown(Option<Site>),
}

impl fmt::Display for Stuck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "chip {} (`{}`): ", self.rank, self.task)?;
        match &self.on {
            StuckOn::Signal(waited) => waited.fmt(f),
            StuckOn::Unknown(Some(site)) => write!(f, "stopped after the instruction at {site}"),
            StuckOn::Unknown(None) => f.write_str("stopped before its first instruction"),
        }
    }
}

fn listed(stuck: &[Stuck]) -> String {
    let mut text: String = stuck.iter().take(8).map(|s| format!("\n  {s}")).collect();
    if stuck.len() > 8 {
        text.push_str(&format!("\n  and {} more", stuck.len() - 8));
    }
    text
}

/// Why a run did not end well.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SimError {
    /// Nothing more can happen, and these kernels have not ended.
    #[error("deadlock at {at_ps} ps: {} kernels wait and nothing can wake them{}", .stuck.len(), listed(.stuck))]
    Deadlock {
        /// When everything stopped.
        at_ps: u64,
        /// Which rank waits for what.
        stuck: Vec<Stuck>,
    },
    /// A task that has ended, or never was.
    #[error("the task is not running; start others for it while it is")]
    NoSuchTask,
    /// A kernel failed; cores that waited for it could not end either.
    #[error("chip {rank} (`{task}`): {error}{}", listed(.stuck))]
    Failed {
        /// The machine's rank it ran on.
        rank: u32,
        /// Its task.
        task: String,
        /// What it said.
        error: Box<Error>,
        /// The ranks that then waited in vain.
        stuck: Vec<Stuck>,
    },
    /// The clock passed the limit it was given.
    #[error(
        "still running at {at_ps} ps, past the limit of {limit_ps} ps; raise the limit, or look for a kernel that polls for ever"
    )]
    TooLong {
        /// Where the clock is.
        at_ps: u64,
        /// The limit.
        limit_ps: u64,
    },
    /// The clock cannot count further.
    #[error(
        "simulated time reached 213 days, the most that is counted; check the units of latencies and bandwidths"
    )]
    ClockOverflow,
    /// A rank that the machine does not have.
    #[error("there is no rank {rank} on a machine of {ranks}; choose a larger topology")]
    NoSuchRank {
        /// The rank asked for.
        rank: u32,
        /// How many there are.
        ranks: u32,
    },
    /// A segment that is not there, or bytes that are not in it.
    #[error("segment {segment} has no bytes {start}..{end}")]
    NotMapped {
        /// The segment.
        segment: Segment,
        /// First byte.
        start: u64,
        /// One past the last.
        end: u64,
    },
    /// A segment defined twice, or with a number too large.
    #[error("segment {0} cannot be defined: it exists, or its number is too large")]
    BadSegment(Segment),
    /// A memory is full.
    #[error("{memory} of rank {rank} holds {capacity} bytes; {needed} are needed")]
    OutOfMemory {
        /// The rank.
        rank: u32,
        /// Its memory.
        memory: String,
        /// What it holds.
        capacity: u64,
        /// What would be in it.
        needed: u64,
    },
}
