//! The communicator: collectives for programs in which every rank runs the same code.
//!
//! ```no_run
//! use ringwork_communicator::Communicator;
//! use ringwork_isa::ReduceOp::Sum;
//!
//! # fn main() -> Result<(), ringwork_communicator::Error> {
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
//! - **COMM-1 (in step).** Every rank makes the same calls in the same order. A call carries its fingerprint; if two
//!   ranks disagree, both get an error that names both calls.
//! - **COMM-2 (ends).** Every call ends: done, a peer died or left, aborted, or the deadline passed.
//! - **COMM-3 (exact).** The same bits on every rank, whatever the size and the algorithm, unless the caller asked
//!   for an algorithm that is not exact. Over several hosts: the same bits on every rank, in an order that depends on which
//!   ranks share a host, unless the caller asked for an algorithm that is exact.
//! - **COMM-4 (in order).** Calls are made in the order in which the program begins them, pending or not.
//!
//! A communicator can move to another thread; two threads that communicate need two communicators.

mod buffer;
mod calls;
mod checks;
mod choose;
mod context;
mod environment;
mod erased;
mod error;
mod groups;
mod hop;
mod hosts;
mod layout;
mod lending;
mod operations;
mod pending;
mod raw;
mod raw_calls;
mod station;
mod usable;
mod worker;

pub use buffer::{Input, Output, Source, Target, WindowBuffer};
pub use error::{Error, Result};
pub use hop::HopProbe;
pub use pending::Pending;
pub use raw::{AnyWindow, Call, Operand, Operands, RawBuffer};
pub use ringwork_isa::Algorithm;
pub use ringwork_native::WaitObserver;
pub use usable::{choices, choosable};

use buffer::Held;
use choose::{Chooser, Rules};
use context::CallContext;
use environment::Environment;
use hosts::{Hosts, Spread};
use layout::Place;
use ringwork_isa::{Collective, Dtype, Element, Error as CoreError, MAX_RANKS, Rank, Segment};
use ringwork_native::Neighbours;
use ringwork_native::segment::{Alarm, Attached};
use ringwork_native::spmd::{Attendant, Peer};
use station::Station;
use std::cell::{Cell, RefCell, RefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use worker::Worker;

/// A group of ranks that make collective calls together. Dropping it waits for pending calls, and tells the other
/// ranks, whose next calls then fail.
#[derive(Debug)]
pub struct Communicator {
    /// `None` while the worker owns it.
    station: RefCell<Option<Box<CallContext>>>,
    worker: RefCell<Option<Worker>>,
    home: Arc<Attached>,
    place: Place,
    /// Where the ranks are, if some are on other hosts. The other fields are of the ranks on this host.
    spread: Option<Arc<Spread>>,
    members: Vec<Peer>,
    attendant: Arc<Attendant>,
    rules: Arc<Rules>,
    /// Numbers for new segments, of this communicator and of those split from it.
    segments: Cell<u32>,
    timeout: Duration,
}

impl Communicator {
    /// Joins the job that this process was started in. If its launcher has started ranks on several hosts, MPI joins them.
    ///
    /// A process may join again: every rank must then do so as often, and gets another communicator.
    ///
    /// # Errors
    /// If it was not started as a rank, or the others do not come in time.
    pub fn from_env() -> Result<Communicator> {
        static JOINED: AtomicU32 = AtomicU32::new(0);
        environment::check_encoding()?;
        let get = environment::variable;
        let Environment {
            rank,
            size,
            over_hosts,
            starter,
            rendezvous,
            timeout,
        } = Environment::read(get)?;
        let rules = Arc::new(Rules::read(get)?);
        // A separate address for each join. Otherwise a rank that joins for the second time finds the socket of the
        // first.
        let rendezvous = format!("{rendezvous}-{}", JOINED.fetch_add(1, Ordering::Relaxed));
        if over_hosts {
            let (spread, job) = hosts::meet(starter, size)?;
            let (rank, size) = (Rank(spread.local_rank()), spread.ranks_here());
            let spread = (spread.hosts.len() > 1).then(|| Arc::new(spread));
            let rendezvous = format!("ringwork-mpi-{job:016x}");
            return Communicator::meet(&rendezvous, rank, size, spread, rules, timeout);
        }
        Communicator::meet(&rendezvous, rank, size, None, rules, timeout)
    }

    /// Joins the `size` processes of this user and host that name the same `name`, as `rank`; no variable of the environment
    /// says who this process is. `timeout` is how long to wait for the others, and how long a call may wait. A name can be used
    /// again when all have joined.
    ///
    /// # Errors
    /// If the rank and the size make no sense, or the others do not come in time.
    pub fn join(name: &str, rank: u32, size: u32, timeout: Duration) -> Result<Communicator> {
        if size == 0 || size > MAX_RANKS || rank >= size {
            let problem = format!("rank {rank} of {size}; there are 1 to {MAX_RANKS} ranks, counted from 0");
            return Err(Error::arguments("join", problem));
        }
        let rules = Arc::new(Rules::read(|name: &str| std::env::var(name).ok())?);
        // An address is at most 107 bytes, and a name may be longer.
        let rendezvous = format!("ringwork-join-{:016x}", ringwork_isa::signature_hash(name));
        Communicator::meet(&rendezvous, Rank(rank), size, None, rules, timeout)
    }

    fn meet(
        rendezvous: &str,
        rank: Rank,
        size: u32,
        spread: Option<Arc<Spread>>,
        rules: Arc<Rules>,
        timeout: Duration,
    ) -> Result<Communicator> {
        let attendant = Arc::new(Attendant::start()?);
        let make = || {
            let layout = layout::plan(Segment(0), size).map_err(platform)?;
            Attached::create("a communicator", layout)
        };
        let (members, home) = attendant.meet(rendezvous, rank, size, timeout, make)?;
        attendant.watch(&members)?;
        let comm = Communicator::on(home, (rank, spread), members, attendant, rules, timeout)?;
        if let Some(spread) = &comm.spread {
            hosts::start(&comm.home, spread)?;
        }
        // No rank continues, or even ends, before all ranks watch all others.
        comm.barrier()?;
        Ok(comm)
    }

    /// Checks the variables that are the same for every rank, as [`from_env`](Communicator::from_env) would:
    /// `RINGWORK_TIMEOUT`, `RINGWORK_ALGO` and `RINGWORK_CCL`. For programs that start ranks, so that a mistake is
    /// reported once and not by each rank.
    ///
    /// # Errors
    /// [`Error::BadEnvironment`]: the variable, and what is wrong with it.
    pub fn check_env() -> Result<()> {
        environment::check_encoding()?;
        let get = environment::variable;
        environment::timeout(get)?;
        Rules::read(get).map(drop)
    }

    fn on(
        home: Attached,
        (rank, spread): (Rank, Option<Arc<Spread>>),
        members: Vec<Peer>,
        attendant: Arc<Attendant>,
        rules: Arc<Rules>,
        timeout: Duration,
    ) -> Result<Communicator> {
        let home = Arc::new(home);
        attendant.tell(&home, &members);
        if let Some(spread) = &spread {
            hosts::register(&home, spread);
        }
        let place = Place::new(home.layout(), rank);
        let cores = ringwork_native::ranks::cores_of(&members);
        let chooser = Chooser::new(Arc::clone(&rules), rank.0, place.layout.ranks, cores);
        let neighbours = Neighbours::of(rank, &members);
        let mut station = Station::new(Arc::clone(&home), place, chooser, cores, neighbours, timeout)?;
        station.spread.clone_from(&spread);
        let context = match &spread {
            Some(spread) => CallContext::Hosts(Hosts::new(station, Arc::clone(spread))),
            None => CallContext::Host(station),
        };
        Ok(Communicator {
            station: RefCell::new(Some(Box::new(context))),
            worker: RefCell::new(None),
            home,
            place,
            spread,
            members,
            attendant,
            rules,
            segments: Cell::new(place.layout.segment.0 + 1),
            timeout,
        })
    }

    /// This process's rank.
    #[must_use]
    pub fn rank(&self) -> u32 {
        self.spread.as_ref().map_or(self.place.me.0, |spread| spread.me)
    }

    /// How many ranks there are.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.spread
            .as_ref()
            .map_or(self.ranks_here(), |spread| spread.size())
    }

    /// How many of the ranks are on this host.
    fn ranks_here(&self) -> u32 {
        self.place.layout.ranks
    }

    /// How long a call may wait from now on; 60 s, or `RINGWORK_TIMEOUT`, unless said otherwise. Waits for what is
    /// pending.
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
        if let Ok(mut station) = self.station() {
            station.here_mut().set_timeout(timeout);
        }
    }

    /// Sets the algorithm of a collective in this communicator, over what `RINGWORK_ALGO` and the table say; `None` removes the
    /// setting. Every rank must set the same. An algorithm in the window is used only for data that is there. Waits for what is
    /// pending.
    ///
    /// # Errors
    /// If the collective has no such algorithm here.
    pub fn set_algorithm(&self, collective: Collective, algorithm: Option<Algorithm>) -> Result<()> {
        self.station()?.here_mut().chooser.ask(collective, algorithm)
    }

    /// Ends every call in this communicator, on every rank, now and later, including pending calls.
    pub fn abort(&self, reason: &str) {
        let reason = format!("rank {} aborted: {reason}", self.rank());
        self.home.raise(&Alarm { dead: None, reason });
    }

    /// The station, after all pending calls.
    #[inline]
    fn station(&self) -> Result<RefMut<'_, CallContext>> {
        if self.station.borrow().is_none() {
            self.recall();
        }
        RefMut::filter_map(self.station.borrow_mut(), Option::as_deref_mut).map_err(|_| Error::lost())
    }

    #[cold]
    fn recall(&self) {
        *self.station.borrow_mut() = self.worker.borrow().as_ref().and_then(Worker::recall);
    }

    /// Zeroed elements in the window, the same number on every rank. A collective call.
    ///
    /// # Errors
    /// COMM-2; or if there is no memory, on every rank.
    pub fn alloc<T: Element>(&self, len: usize) -> Result<WindowBuffer<T>> {
        Ok(WindowBuffer::new(self.alloc_held(T::DTYPE, len)?))
    }

    fn alloc_held(&self, dtype: Dtype, len: usize) -> Result<Held> {
        let bytes = (len as u64).checked_mul(dtype.bytes() as u64);
        let bytes = bytes.ok_or_else(|| {
            Error::arguments(
                "alloc",
                format!("{len} elements of {dtype} are more than any memory"),
            )
        })?;
        let number = Segment(self.fresh_segment());
        let segment = self.share("a window buffer", || {
            layout::plan_buffer(number, self.ranks_here(), bytes)
        })?;
        let segment = Arc::new(segment);
        self.station()?.here_mut().attach(Arc::clone(&segment));
        let home = self.home.layout().nonce;
        Ok(Held::new(segment, home, self.place.me, (dtype, len)))
    }

    fn fresh_segment(&self) -> u32 {
        let number = self.segments.get();
        self.segments.set(number.wrapping_add(1));
        number
    }
}

/// Converts an error for a callback that must return an error of the platform.
fn platform(error: Error) -> ringwork_native::Error {
    match error {
        Error::Platform(error) => error,
        Error::Collective(error) => error.into(),
        other => CoreError::failed(other.to_string()).into(),
    }
}
