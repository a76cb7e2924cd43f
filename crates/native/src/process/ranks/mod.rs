//! Ranks: the processes of one job, each told its place in it, from the first start to the last one reaped.
//!
//! For programs in which every rank runs the same code. A rank finds its place in its environment
//! ([`RANK_VARIABLE`] and its siblings) and meets the others at the rendezvous it is told; nothing else is
//! shared with the process that started it.
//!
//! ```no_run
//! use ringwork_native::ranks::{Job, Stop, run};
//! # fn main() -> ringwork_native::Result<()> {
//! let outcome = run(&Job::new("./train", 4), &Stop::new()?, &mut |_| {})?;
//! std::process::exit(outcome.exit_code());
//! # }
//! ```
//!
//! # Invariants
//! - **RANK-1 (no orphans).** A rank asks the kernel to be killed when the thread that started it ends, and
//!   checks that this has not happened already; [`run`] returns to that thread only when every rank is reaped.
//! - **RANK-2 (the root cause is named).** Ends are taken in the order in which they happened. A process that dies
//!   closes its sockets before its pidfd is readable, so its partners may exit with an error first: after an exit
//!   with an error a rank that was killed by a signal is looked for once more before somebody is named.
//! - **RANK-3 (by descriptor).** A rank is signalled by its pidfd, and its process group only while it is not
//!   reaped: neither can hit a stranger.
//! - **RANK-4 (no clock but the asked-for).** Without a limit, and until somebody fails, nothing here wakes up
//!   by time.

mod notices;
mod output_prefix;
mod pin;
mod start;
mod supervise;

pub(crate) use notices::ToLauncher;
pub use notices::launcher;
pub(crate) use pin::my_cores;
pub use pin::{Pin, cores_of};
pub use supervise::run;

use crate::error::{Error, Result};
use crate::process::death_watch::End;
use rustix::event::EventfdFlags;
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

/// Holds a rank's number, from 0.
pub const RANK_VARIABLE: &str = "RINGWORK_RANK";
/// Holds the number of ranks.
pub const SIZE_VARIABLE: &str = "RINGWORK_SIZE";
/// Holds a text that no other job has: the ranks derive from it where they meet.
pub const RENDEZVOUS_VARIABLE: &str = "RINGWORK_RENDEZVOUS";

/// Holds the number of an inherited socket, by which a rank tells of waits that last.
pub const NOTICES_VARIABLE: &str = "RINGWORK_NOTICES";

/// What to start, how often, and how to treat it.
#[derive(Clone, Debug)]
pub struct Job {
    /// The program: a path, or a name to look up in `PATH`.
    pub program: OsString,
    /// Its arguments, the same for every rank.
    pub arguments: Vec<OsString>,
    /// Environment variables beside those that make a process a rank.
    pub variables: Vec<(OsString, OsString)>,
    /// How many ranks.
    pub size: u32,
    /// Which cores they run on.
    pub pin: Pin,
    /// Whether every line of output is preceded by `[rank] `. Else the output is the launcher's own.
    pub tag_output: bool,
    /// How long all of it may take.
    pub limit: Option<Duration>,
    /// How long ranks have between being asked to end and being killed.
    pub grace: Duration,
    /// Whether the others go on when a rank fails. The job has then failed if a rank exits with an error or every
    /// rank is killed; one that is killed by a signal while others finish is not a failure.
    pub keep_going: bool,
    /// Hears what ranks wait for that have waited for a few seconds.
    pub on_wait: Option<fn(&str)>,
}

impl Job {
    /// `size` ranks of a program without arguments, pinned as [`Pin::Auto`] says.
    pub fn new(program: impl Into<OsString>, size: u32) -> Job {
        Job {
            program: program.into(),
            arguments: Vec::new(),
            variables: Vec::new(),
            size,
            pin: Pin::Auto,
            tag_output: false,
            limit: None,
            grace: Duration::from_secs(2),
            keep_going: false,
            on_wait: None,
        }
    }
}

/// How a job ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Every rank exited with code 0.
    Done,
    /// A rank failed, and the others were ended unless the job [keeps going](Job::keep_going).
    Failed {
        /// The one that failed first.
        rank: u32,
        /// How.
        end: End,
        /// A rank that was stopped by a signal at that moment, if this one exited by itself: it answered nobody, which
        /// may be why.
        stopped: Option<u32>,
    },
    /// [`Stop::stop`] was called.
    Stopped,
    /// It took longer than its limit.
    Overdue,
}

impl Outcome {
    /// The code to exit with: the first failure's, 128 + signal if it was killed; 130 if stopped, 124 if overdue.
    #[must_use]
    pub fn exit_code(&self) -> i32 {
        match *self {
            Outcome::Done => 0,
            Outcome::Failed {
                end: End::Exited(code),
                ..
            } => u8::try_from(code).map_or(1, i32::from),
            Outcome::Failed {
                end: End::Killed(signal),
                ..
            } => 128 + signal,
            Outcome::Stopped => 130,
            Outcome::Overdue => 124,
        }
    }
}

/// Ends a job from another thread, for Ctrl-C: the first call asks every rank to end, the second kills.
#[derive(Clone, Debug)]
pub struct Stop {
    eventfd: Arc<OwnedFd>,
}

impl Stop {
    /// A handle for one job.
    ///
    /// # Errors
    /// If the process has no descriptors left.
    pub fn new() -> Result<Stop> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let eventfd = rustix::event::eventfd(0, flags).map_err(Error::system("creating an eventfd"))?;
        Ok(Stop {
            eventfd: Arc::new(eventfd),
        })
    }

    /// Ends the job.
    pub fn stop(&self) {
        // It fails only if nobody has read 2^64 of them.
        let _ = rustix::io::write(&*self.eventfd, &1u64.to_ne_bytes());
    }
}
