//! The faults of a program, named by its lines.

use ringwork_isa::{Error, Site, Waited};
use std::fmt;
use std::ops::Range;

/// One side of a fault: an instruction of a rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Side {
    /// The rank that did it.
    pub rank: u32,
    /// The number of the call, from 0.
    pub call: u32,
    /// The instruction's name, as in [`Core`](ringwork_isa::Core).
    pub instruction: &'static str,
    /// The kernel's line.
    pub site: Site,
    /// Whether it wrote.
    pub writes: bool,
    /// The signal, and what is done to it or asked of it; empty for data.
    pub signal: String,
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Side {
            rank,
            call,
            instruction,
            site,
            ..
        } = self;
        write!(f, "{instruction:<12} {site}  rank {rank}, call {call}")
    }
}

/// Two accesses to the same bytes that nothing orders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Race {
    /// Whose memory.
    pub memory_of: u32,
    /// Whether it is private memory of that rank.
    pub is_private: bool,
    /// Elements of the later access's buffer that both touch.
    pub elements: Range<u64>,
    /// The access that came first in the schedule that was run.
    pub first: Side,
    /// The other.
    pub second: Side,
    /// The last thing that the second rank knew of the first one.
    pub known: Option<Side>,
    /// What to do about it, if the pattern is known.
    pub help: Option<String>,
    /// How often this pair of lines raced.
    pub count: usize,
}

impl fmt::Display for Race {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (first, second) = (&self.first, &self.second);
        let Range { start, end } = &self.elements;
        let of = self.memory_of;
        let memory = if self.is_private {
            "the memory"
        } else {
            "the window"
        };
        let place = format!("elements {start}..{end} in {memory} of rank {of}");
        let verb = |side: &Side| if side.writes { "write" } else { "read" };
        let (a, b) = (first.rank, second.rank);
        if a == b {
            writeln!(
                f,
                "race: rank {a} {}s {place} while its own copy may still {} them",
                verb(second),
                verb(first)
            )?;
        } else {
            writeln!(
                f,
                "race: rank {b} {}s {place} while rank {a} may still {} them",
                verb(second),
                verb(first)
            )?;
        }
        writeln!(f, "  {:<5}  {first}", verb(first))?;
        write!(f, "  {:<5}  {second}", verb(second))?;
        if a != b {
            match &self.known {
                Some(known) => write!(
                    f,
                    "\n  the last that rank {b} knows of rank {a} is its {} in call {} ({}); no signal from after the {} has reached rank {b}",
                    known.instruction, known.call, known.site, first.instruction
                )?,
                None => write!(f, "\n  rank {b} has not waited for anything that rank {a} did")?,
            }
        }
        if let Some(help) = &self.help {
            write!(f, "\n  help: {help}")?;
        }
        if self.count > 1 {
            write!(f, "\n  ({} times in this execution)", self.count)?;
        }
        Ok(())
    }
}

/// A rank that waits for ever.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stuck {
    /// The number of its call.
    pub call: u32,
    /// What it waits for.
    pub waited: Waited,
    /// Why that does not come, as far as it is known.
    pub why: String,
}

impl fmt::Display for Stuck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (call {}); {}", self.waited, self.call, self.why)
    }
}

/// A signal, packet or copy that is not used as its contract says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Misuse {
    /// Two ranks `Set` one signal, and nothing orders them.
    TwoSetters,
    /// `own_value` of a signal that another rank writes.
    NotItsOwn,
    /// A copy was begun and never joined.
    NeverJoined,
    /// A data instruction touches memory where a signal or the flag of a packet lies.
    DataOverSignal,
}

impl fmt::Display for Misuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Misuse::TwoSetters => {
                "two ranks set one signal and nothing orders them; give each rank a signal of its own, or use `Add`"
            }
            Misuse::NotItsOwn => "`own_value` of a signal that another rank writes too; use `peek`, or a signal of its own",
            Misuse::NeverJoined => "a copy was begun and never joined; `join` it before the kernel ends",
            Misuse::DataOverSignal => "a data instruction touches a signal or the flag of a packet; give it other memory",
        })
    }
}

/// Something that is wrong in at least one execution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Two accesses that nothing orders.
    Race(Box<Race>),
    /// No rank can go on: those that have not ended.
    Deadlock(Vec<Stuck>),
    /// A contract is not kept.
    Misuse {
        /// Which.
        what: Misuse,
        /// The instruction, and the other one that it conflicts with.
        sides: Vec<Side>,
        /// The signal: its number, and the rank that it belongs to.
        signal: Option<(u32, u32)>,
    },
    /// A kernel returned an error.
    Failed {
        /// The instruction before its end.
        last: Side,
        /// The error.
        error: Error,
    },
    /// A result is not what it should be.
    Wrong {
        /// Whose.
        rank: u32,
        /// What is wrong with it.
        message: String,
    },
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Race(race) => race.fmt(f),
            Fault::Deadlock(stuck) => {
                write!(f, "deadlock: no rank can go on")?;
                stuck.iter().try_for_each(|one| write!(f, "\n  {one}"))
            }
            Fault::Misuse { what, sides, signal } => {
                write!(f, "misuse: {what}")?;
                if let Some((index, rank)) = signal {
                    write!(f, " (signal {index} of rank {rank})")?;
                }
                sides.iter().try_for_each(|side| write!(f, "\n  {side}"))
            }
            Fault::Failed { last, error } => {
                write!(f, "rank {} failed in call {}: {error}", last.rank, last.call)
            }
            Fault::Wrong { rank, message } => write!(f, "wrong result on rank {rank}: {message}"),
        }
    }
}
