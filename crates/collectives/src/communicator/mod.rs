//! The communicator: collectives for programs in which every rank runs the same code.
//!
//! ```no_run
//! use ringwork_collectives::communicator::Communicator;
//! use ringwork_isa::ReduceOp::Sum;
//!
//! # fn main() -> Result<(), ringwork_collectives::communicator::Error> {
//! let comm = Communicator::from_env()?; // `ringwork launch -n 4 -- ./program`
//! let mut loss = [0.5f32];
//! comm.all_reduce(&mut loss, Sum)?; // own memory: staged through the window
//! let mut grad = comm.alloc::<f32>(1 << 20)?; // in the window: reduced in place, no copy
//! comm.all_reduce(&mut grad, Sum)?;
//! # Ok(())
//! # }
//! ```
//!
//! # Invariants
//! - **COMM-1 (in step).** Every rank makes the same calls in the same order. A call carries its fingerprint;
//!   ranks that disagree both get an error that names both calls.
//! - **COMM-2 (ends).** Every call ends: done, a peer died, aborted, or the deadline passed.
//! - **COMM-3 (exact).** The same bits on every rank, whatever the size and the way it was done.

mod buffer;
mod choose;
mod environment;
mod error;
mod groups;
mod hop;
mod layout;
mod operations;

pub use buffer::{Input, Output, Source, Target, WindowBuffer};
pub use error::{Error, Result};
pub use hop::HopProbe;

use environment::Environment;
use layout::Place;
use ringwork_isa::{Device, Dtype, Element, Error as CoreError, Fingerprint, Operation, Rank, Segment};
use ringwork_native::cell::Patience;
use ringwork_native::peers::{Attendant, Peer};
use ringwork_native::segment::{Alarm, Attached};
use ringwork_native::{NativeCore, Waiting};
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::time::Duration;

/// A group of ranks that make collective calls together.
#[derive(Debug)]
pub struct Communicator {
    core: RefCell<NativeCore>,
    home: Arc<Attached>,
    place: Place,
    members: Vec<Peer>,
    attendant: Arc<Attendant>,
    sequence: Cell<u32>,
    /// Numbers for segments, of this communicator and of those split from it.
    segments: Cell<u32>,
    timeout: Duration,
}

impl Communicator {
    /// Joins the job that this process was started in.
    ///
    /// # Errors
    /// If it was not started as a rank, or the others do not come in time.
    pub fn from_env() -> Result<Communicator> {
        let environment = Environment::read(|name| std::env::var(name).ok())?;
        let attendant = Arc::new(Attendant::start()?);
        let make = || {
            Ok(Attached::create(
                "a communicator",
                layout::plan(Segment(0), environment.size).map_err(platform)?,
            )?)
        };
        let Environment {
            rank,
            size,
            rendezvous,
            timeout,
        } = &environment;
        let (members, home) = attendant.meet(rendezvous, *rank, *size, *timeout, make)?;
        attendant.watch(&members)?;
        Communicator::on(home, *rank, members, attendant, *timeout)
    }

    fn on(
        home: Attached,
        rank: Rank,
        members: Vec<Peer>,
        attendant: Arc<Attendant>,
        timeout: Duration,
    ) -> Result<Communicator> {
        let home = Arc::new(home);
        attendant.tell(&home, &members);
        let cores = ringwork_native::ranks::cores_of(&members);
        let patience = Patience::for_sharing(members.len(), cores);
        let mut core = NativeCore::new(
            Device(rank.0),
            Waiting {
                patience,
                limit: timeout,
            },
        );
        let place = Place {
            layout: home.layout(),
            me: rank,
        };
        core.attach(home.clone());
        core.set_calls(place.calls());
        Ok(Communicator {
            core: RefCell::new(core),
            home,
            place,
            members,
            attendant,
            sequence: Cell::new(0),
            segments: Cell::new(place.layout.segment.0 + 1),
            timeout,
        })
    }

    /// This process's rank.
    #[must_use]
    pub fn rank(&self) -> u32 {
        self.place.me.0
    }

    /// How many ranks there are.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.place.layout.ranks
    }

    /// How long a call may wait from now on; 60 s, or `RINGWORK_TIMEOUT`, unless said otherwise.
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
        self.core.get_mut().set_wait_limit(timeout);
    }

    /// Ends every call in this communicator, on every rank, now and later.
    pub fn abort(&self, reason: &str) {
        let reason = format!("rank {} aborted: {reason}", self.rank());
        self.home.raise(&Alarm { dead: None, reason });
    }

    /// Makes a collective call: everything between entering and leaving carries its fingerprint.
    fn call(
        &self,
        describe: impl FnOnce(u32) -> Fingerprint,
        work: impl FnOnce(&NativeCore) -> std::result::Result<(), CoreError>,
    ) -> Result<()> {
        let sequence = self.sequence.get();
        let call = describe(sequence);
        if call.moves_nothing() {
            // Nobody meets in such a call (COL-5), so it must not count: ranks would get out of step.
            return Ok(());
        }
        self.sequence.set(sequence.wrapping_add(1));
        let core = self.core.borrow();
        core.enter(call);
        let outcome = if self.home.alarmed() {
            Err(self.alarmed(&call))
        } else {
            work(&core)
        };
        core.leave();
        outcome.map_err(|error| self.failed(&core, call, error))
    }

    /// The error of a call that began after the alarm was raised.
    fn alarmed(&self, call: &Fingerprint) -> CoreError {
        let Some(Alarm { dead, reason }) = self.home.alarm() else {
            return CoreError::failed("aborted");
        };
        match dead {
            Some(rank) => CoreError::failed(format!(
                "rank {rank} died ({reason}) before {call}; shrink, and go on without it"
            )),
            None => CoreError::failed(format!("{reason} (before {call})")),
        }
    }

    #[cold]
    fn failed(&self, core: &NativeCore, call: Fingerprint, error: CoreError) -> Error {
        match &error {
            CoreError::Deadline { .. } => {
                let behind = |rank: &Rank| {
                    let last = core.last_call(*rank);
                    *rank != self.place.me && last.is_none_or(|last| last.sequence() != call.sequence())
                };
                let doing = |rank: Rank| {
                    let last = core.last_call(rank);
                    (
                        rank,
                        last.map_or_else(|| "none yet".into(), |last| last.to_string()),
                    )
                };
                let missing: Vec<_> = (0..self.size()).map(Rank).filter(behind).map(doing).collect();
                let (me, after_ms) = (self.place.me, self.timeout.as_millis());
                self.abort(&format!("{call} got no further in {after_ms} ms"));
                Error::Deadline {
                    me,
                    call: call.to_string(),
                    after_ms,
                    missing,
                }
            }
            CoreError::Mismatch { .. } => {
                self.home.raise(&Alarm {
                    dead: None,
                    reason: error.to_string(),
                });
                error.into()
            }
            _ => error.into(),
        }
    }

    /// Waits until every rank has called this.
    ///
    /// # Errors
    /// COMM-2.
    pub fn barrier(&self) -> Result<()> {
        let call = |sequence| Fingerprint::new(sequence, Operation::Barrier, Dtype::U8, 0);
        self.call(call, |core| core.run(self.place.meet().arrive_and_wait(core)))
    }

    /// Zeroed elements in the window, the same number on every rank. A collective call.
    ///
    /// # Errors
    /// COMM-2; or if there is no memory.
    pub fn alloc<T: Element>(&self, len: usize) -> Result<WindowBuffer<T>> {
        let bytes = (len as u64).checked_mul(T::DTYPE.bytes() as u64);
        let bytes = bytes.ok_or_else(|| {
            Error::arguments(
                "alloc",
                format!("{len} elements of {} are more than any memory", T::DTYPE),
            )
        })?;
        let number = Segment(self.fresh_segment());
        let segment = self.share("a window buffer", || {
            layout::plan_buffer(number, self.size(), bytes)
        })?;
        let segment = Arc::new(segment);
        let mut core = self.core.borrow_mut();
        core.detach_unused();
        core.attach(segment.clone());
        Ok(WindowBuffer::new(segment, self.place.me, len))
    }

    fn fresh_segment(&self) -> u32 {
        let number = self.segments.get();
        self.segments.set(number.wrapping_add(1));
        number
    }
}

/// Errors inside a callback of the platform are the platform's.
fn platform(error: Error) -> ringwork_native::Error {
    match error {
        Error::Platform(error) => error,
        Error::Collective(error) => error.into(),
        other => CoreError::failed(other.to_string()).into(),
    }
}
