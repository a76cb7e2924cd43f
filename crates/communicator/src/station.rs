//! The station makes the calls of a communicator. The communicator owns it; while calls are pending, its worker does.

use crate::choose::Chooser;
use crate::error::{Error, Result};
use crate::hosts::{Spread, unmarked};
use crate::layout::Place;
use ringwork_collectives::all_reduce::packet_chunk;
use ringwork_collectives::packets::{Ring, Room};
use ringwork_isa::{
    Collective, Device, Dtype, Error as CoreError, ErrorKind, Fingerprint, Operation, Rank, ReduceOp,
    Result as CoreResult,
};
use ringwork_native::cell::Patience;
use ringwork_native::segment::{Alarm, Attached};
use ringwork_native::{NativeCore, Neighbours, WaitObserver, Waiting};
use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

/// Makes the calls: a rank's core, and its place in the communicator's segment.
#[derive(Debug)]
pub(crate) struct Station {
    core: NativeCore,
    /// Which ranks of a communicator over several hosts these are, for errors.
    pub(crate) spread: Option<Arc<Spread>>,
    pub(crate) home: Arc<Attached>,
    pub(crate) place: Place,
    pub(crate) chooser: Chooser,
    /// The memory for packets, and the ring of broadcasts.
    pub(crate) room: Room,
    pub(crate) ring: Ring,
    /// The sequence number of the next collective call.
    sequence: Cell<u32>,
    timeout: Duration,
    /// Is told of waits for other hosts; the core tells it of its own.
    observer: Option<Arc<dyn WaitObserver>>,
}

impl Station {
    pub(crate) fn new(
        home: Arc<Attached>,
        place: Place,
        chooser: Chooser,
        cores: usize,
        neighbours: Option<Neighbours>,
        timeout: Duration,
    ) -> Result<Station> {
        let patience = Patience::for_sharing(place.layout.ranks as usize, cores);
        let limit = timeout;
        let mut core = NativeCore::new(Device(place.me.0), Waiting { patience, limit });
        core.attach(home.clone());
        core.set_neighbours(neighbours);
        core.set_calls(home.clone(), place.calls());
        core.set_long_wait_observer(ringwork_native::ranks::launcher());
        let team = place.team(Dtype::U8);
        let (room, ring) = (team.room()?, team.ring()?);
        Ok(Station {
            core,
            spread: None,
            home,
            place,
            chooser,
            room,
            ring,
            sequence: Cell::new(0),
            timeout,
            observer: None,
        })
    }

    pub(crate) fn size(&self) -> u32 {
        self.place.layout.ranks
    }

    pub(crate) fn core(&self) -> &NativeCore {
        &self.core
    }

    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// The rank that the program knows a rank of this host by.
    fn known(&self, rank: Rank) -> Rank {
        let among = self
            .spread
            .as_ref()
            .and_then(|spread| spread.here().get(rank.0 as usize));
        among.map_or(rank, |rank| Rank(*rank))
    }

    /// Tells the observer that a wait for another host begins to take long.
    pub(crate) fn observer_hears(&self) {
        if let Some(observer) = &self.observer {
            observer.waits();
        }
    }

    /// The error of `call`, if the observer gives up waiting.
    pub(crate) fn check_interruption(&self, call: &Fingerprint) -> Result<()> {
        if !self
            .observer
            .as_ref()
            .is_some_and(|observer| observer.is_interrupted())
        {
            return Ok(());
        }
        let me = self.known(self.place.me);
        self.raise(format!("rank {me} was interrupted while it waited"));
        Err(self.alarmed(call))
    }

    /// The rank on another host that an alarm is about, and how it died.
    fn died_elsewhere(&self, reason: &str) -> Option<(Rank, String)> {
        let (spread, (process, cause)) = (self.spread.as_ref()?, unmarked(reason)?);
        let rank = spread.rank_of(process)?;
        let host = spread.host_of(rank);
        Some((Rank(rank), format!("{cause}, on host {host}")))
    }

    /// The error of `call`, if an alarm was raised.
    #[inline]
    pub(crate) fn check_alarm(&self, call: &Fingerprint) -> Result<()> {
        if self.home.alarmed() {
            return Err(self.alarmed(call));
        }
        Ok(())
    }

    pub(crate) fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
        self.core.set_wait_limit(timeout);
    }

    pub(crate) fn set_wait_observer(&mut self, observer: Option<Arc<dyn WaitObserver>>) {
        self.observer.clone_from(&observer);
        self.core.set_wait_observer(observer);
    }

    /// Attaches a window buffer's segment, and detaches the segments without handles.
    pub(crate) fn attach(&mut self, segment: Arc<Attached>) {
        self.core.detach_unused();
        self.core.attach(segment);
    }

    /// Makes a collective call. All signals between entering and leaving carry its fingerprint.
    pub(crate) fn call(
        &self,
        describe: impl FnOnce(u32) -> Fingerprint,
        work: impl FnOnce(&NativeCore) -> CoreResult<()>,
    ) -> Result<()> {
        let sequence = self.sequence.get();
        let call = describe(sequence);
        if call.moves_nothing() {
            // No rank meets another in such a call (COL-5), so it must not be counted: ranks would get out of step.
            return Ok(());
        }
        self.sequence.set(sequence.wrapping_add(1));
        self.core.enter(call);
        let outcome = if self.home.alarmed() {
            Err(self.alarmed(&call))
        } else {
            work(&self.core).map_err(|error| self.failed(&call, None, error))
        };
        self.core.leave();
        outcome
    }

    /// Moves data between this rank and `peer`. This is not a collective call and has no sequence number.
    pub(crate) fn transfer(
        &self,
        operation: Operation,
        (dtype, count): (Dtype, usize),
        peer: Rank,
        work: impl FnOnce(&NativeCore) -> CoreResult<()>,
    ) -> Result<()> {
        let call = Fingerprint::new(self.sequence.get(), operation, dtype, count as u64).rooted(peer.0);
        self.core.announce(call);
        if self.home.alarmed() {
            return Err(self.alarmed(&call));
        }
        work(&self.core).map_err(|error| self.failed(&call, Some(peer), error))
    }

    pub(crate) fn barrier(&self) -> Result<()> {
        let call = |sequence| Fingerprint::new(sequence, Collective::Barrier, Dtype::U8, 0);
        self.call(call, |core| {
            if self.size() == 1 {
                return Ok(());
            }
            // A barrier uses packets, because their lines can be prefetched for writing; the lines of the barrier's
            // counters cannot.
            core.lend_mut(Dtype::U8, &mut [0][..], |nothing| {
                let (x, y) = (nothing.into(), nothing.into());
                core.run(packet_chunk(core, &self.room, x, y, ReduceOp::Max))
            })
        })
    }

    /// The error of a call that meets an alarm.
    #[cold]
    fn alarmed(&self, call: &Fingerprint) -> Error {
        let (me, call) = (self.known(self.place.me), call.to_string());
        match self.home.alarm() {
            Some(Alarm {
                dead: Some(rank),
                reason,
            }) => {
                let rank = self.known(rank);
                let host = self.spread.as_ref().map(|spread| spread.host_of(rank.0));
                let cause = match host {
                    Some(host) => format!("{reason}, on host {host}"),
                    None => reason,
                };
                Error::Died {
                    me,
                    rank,
                    cause,
                    call,
                }
            }
            alarm => {
                let reason = alarm.map_or_else(String::new, |alarm| alarm.reason);
                match self.died_elsewhere(&reason) {
                    Some((rank, cause)) => Error::Died {
                        me,
                        rank,
                        cause,
                        call,
                    },
                    None => Error::Aborted { me, reason, call },
                }
            }
        }
    }

    #[cold]
    fn failed(&self, call: &Fingerprint, peer: Option<Rank>, error: CoreError) -> Error {
        match error.kind() {
            ErrorKind::PeerDied { .. } | ErrorKind::Aborted { .. } => self.alarmed(call),
            ErrorKind::Deadline { waited, .. } => {
                let missing = match peer {
                    Some(peer) => vec![peer],
                    None => self.missing(call, waited.on),
                };
                let missing = missing
                    .into_iter()
                    .map(|rank| (self.known(rank), self.last_call(rank)))
                    .collect();
                let (me, after_ms, call) = (
                    self.known(self.place.me),
                    self.timeout.as_millis(),
                    call.to_string(),
                );
                let error = Error::Deadline {
                    me,
                    call,
                    after_ms,
                    missing,
                };
                self.raise(error.to_string());
                error
            }
            ErrorKind::PeerLeft { rank, .. } => {
                let (me, rank, call) = (self.known(self.place.me), self.known(*rank), call.to_string());
                let error = Error::Left { me, rank, call };
                self.raise(error.to_string());
                error
            }
            // Whatever the error is, the other ranks must not wait for this one.
            _ => {
                self.raise(error.to_string());
                error.into()
            }
        }
    }

    pub(crate) fn raise(&self, reason: String) {
        self.home.raise(&Alarm { dead: None, reason });
    }

    /// The ranks that hold `call` up: those that are not in it, else those that are furthest behind in it.
    fn missing(&self, call: &Fingerprint, waited_on: Rank) -> Vec<Rank> {
        let others = || (0..self.size()).map(Rank).filter(|rank| *rank != self.place.me);
        // A rank with a larger sequence number has already passed this call.
        let absent = |rank: &Rank| {
            let last = self.core.last_call(*rank);
            last.is_none_or(|last| {
                let ahead = last.sequence().wrapping_sub(call.sequence()).cast_signed();
                ahead < 0 || ahead == 0 && last.operation() != call.operation()
            })
        };
        let absent: Vec<Rank> = others().filter(absent).collect();
        if !absent.is_empty() {
            return absent;
        }
        let lag = |rank: Rank| self.core.lag(self.place.progress(), rank);
        match others().map(lag).max() {
            Some(worst) if worst > 0 => others().filter(|rank| lag(*rank) == worst).collect(),
            _ => vec![waited_on],
        }
    }

    fn last_call(&self, rank: Rank) -> String {
        let last = self.core.last_call(rank);
        last.map_or_else(|| "none yet".into(), |last| last.to_string())
    }
}

impl Drop for Station {
    /// Tells all ranks that this one makes no more calls, so that none waits for it.
    fn drop(&mut self) {
        let sequence = self.sequence.get();
        self.core
            .announce(Fingerprint::new(sequence, Operation::Leave, Dtype::U8, 0));
        self.home.leave(self.place.me);
    }
}
