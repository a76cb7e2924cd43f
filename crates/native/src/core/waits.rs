//! Notifying and waiting: how a wait polls, sleeps, and ends.

use super::observer::{LOOK_UP, NOTICE};
use super::{At, NativeCore};
use crate::cell::{Cell, Ended, Looking, Patience};
use crate::segment::{Alarm, Attached};
use crate::trace::progress::Doing;
use crate::trace::ring;
use ringwork_isa::{Compare, Error, ErrorKind, Notify, QueueSignal, Rank, Result, Signal, Waited, others};
use std::ops::Range;
use std::time::Duration;

impl NativeCore {
    #[inline(always)]
    pub(super) fn notify_now(&self, cell: &Cell, how: Notify, at: At) {
        self.say(Doing::Notify, at);
        if let Some(activity) = &self.activity {
            self.record_notify(activity, cell);
        }
        if let Some((sequence, words)) = self.call.get() {
            cell.note(sequence, words);
        }
        match how {
            Notify::Set(value) => cell.set(value),
            Notify::Add(amount) => cell.add(amount),
        }
    }

    #[inline(always)]
    pub(super) fn wait_now(&self, cell: Awaited<'_>, compare: Compare, operand: i32, at: At) -> Result<()> {
        let mut value = cell.cell.load();
        for _ in 0..self.eager_looks {
            if compare.holds(value, operand) {
                break;
            }
            std::hint::spin_loop();
            value = cell.cell.load();
        }
        if !compare.holds(value, operand) {
            self.wait_long(cell, (compare, operand), at)?;
        }
        match self.call.get() {
            Some((sequence, words)) if cell.cell.noted(sequence) != words => {
                self.other_note(cell, words, (compare, operand), at)
            }
            _ => Ok(()),
        }
    }

    /// Waits for the signal of each of `ranks` but mine. Ranks on this core first: they need the core to make
    /// progress.
    #[inline(always)]
    pub(super) fn wait_on_now(
        &self,
        signal: &Signal,
        ranks: Range<u32>,
        (compare, operand): (Compare, i32),
        at: At,
    ) -> Result<()> {
        if ranks.end > signal.ranks() {
            return signal.on(Rank(ranks.end - 1)).map(drop);
        }
        if self.neighbours.is_some() {
            self.wait_on_neighbours(*signal, ranks.clone(), (compare, operand), at)?;
        }
        for rank in others(signal.holder(), ranks) {
            self.wait_now(self.signal_on(signal, rank, at)?, compare, operand, at)?;
        }
        Ok(())
    }

    /// Waits for those of `ranks` that share this core, then polls for the others for a while.
    #[inline(never)]
    fn wait_on_neighbours(
        &self,
        signal: Signal,
        ranks: Range<u32>,
        (compare, operand): (Compare, i32),
        at: At,
    ) -> Result<()> {
        let Some(neighbours) = &self.neighbours else {
            return Ok(());
        };
        for rank in neighbours.among(&ranks) {
            self.wait_now(self.signal_on(&signal, rank, at)?, compare, operand, at)?;
        }
        let came = |rank| {
            let found = self.signal_on(&signal, rank, at);
            found.map_or(true, |found| compare.holds(found.cell.load(), operand))
        };
        neighbours.spin_for_others(others(signal.holder(), ranks), came);
        Ok(())
    }

    #[cold]
    pub(super) fn wait_long(
        &self,
        awaited: Awaited<'_>,
        (compare, operand): (Compare, i32),
        at: At,
    ) -> Result<i32> {
        let Awaited { segment, cell, .. } = awaited;
        self.say(Doing::Wait, at);
        let satisfied = |value| compare.holds(value, operand);
        let exit = |looking| self.exit(segment, awaited.name.on(), looking);
        if let Some(observer) = &self.observer {
            observer.waits();
        }
        let wait = || {
            let (mut left, mut patience) = (self.wait_limit, self.patience);
            let mut until_told = self.long_waits.as_ref().map(|_| NOTICE);
            loop {
                let slice = if self.observer.is_some() { LOOK_UP } else { left };
                let slice = until_told.unwrap_or(left).min(slice).min(left);
                left -= slice;
                match cell.wait_within(patience, slice, satisfied, exit) {
                    Err(Ended::Deadline) if !left.is_zero() => patience = SLEEP_AT_ONCE,
                    ended => return ended,
                }
                until_told = until_told.and_then(|until| until.checked_sub(slice));
                if until_told == Some(Duration::ZERO) {
                    until_told = None;
                    self.tell_of_long_wait(awaited, (compare, operand), at);
                }
            }
        };
        let ended = match self.activity.as_ref() {
            None => wait(),
            Some(activity) => {
                let name = awaited.name.recorded();
                activity.waited((segment.cell_number(cell).unwrap_or(u64::MAX), name), wait)
            }
        };
        let ended = match ended {
            Ok(value) => return Ok(value),
            Err(ended) => ended,
        };
        let waited = awaited.waited((compare, operand), at);
        Err(match (ended, segment.alarm()) {
            (Ended::Exit(Exit::Mismatch(error)), _) => *error,
            (Ended::Exit(Exit::Left), _) => {
                let rank = waited.on;
                ErrorKind::PeerLeft { rank, waited }.into()
            }
            (Ended::Exit(Exit::Alarm), Some(alarm)) => alarmed(alarm, waited),
            _ => ErrorKind::Deadline {
                after_ms: u64::try_from(self.wait_limit.as_millis()).unwrap_or(u64::MAX),
                waited,
            }
            .into(),
        })
    }

    /// Reports a wait that has lasted longer than `NOTICE`.
    #[cold]
    fn tell_of_long_wait(&self, awaited: Awaited<'_>, condition: (Compare, i32), at: At) {
        if let Some(observer) = &self.long_waits {
            observer.waits_long(NOTICE, &awaited.waited(condition, at));
        }
    }

    /// Diagnoses a signal without its packet: the peer is in a different collective call, or has already aborted the
    /// domain.
    #[cold]
    pub(super) fn astray(&self, awaited: Awaited<'_>, condition: (Compare, i32), at: At) -> Option<Error> {
        if let Some(alarm) = awaited.segment.alarm() {
            let waited = awaited.waited(condition, at);
            return Some(alarmed(alarm, waited));
        }
        let peer = awaited.name.on();
        self.mismatch(peer).or_else(|| self.parting(peer))
    }

    /// The reason to give up waiting for a signal, if there is one.
    pub(super) fn exit(&self, segment: &Attached, on: Rank, looking: Looking) -> Option<Exit> {
        if segment.alarmed() {
            return Some(Exit::Alarm);
        }
        match looking {
            Looking::Awake => None,
            Looking::BeforeSleep => match self.mismatch(on) {
                Some(error) => Some(Exit::Mismatch(Box::new(error))),
                None if segment.has_left(on) => Some(Exit::Left),
                None => self.interrupted(segment),
            },
        }
    }

    /// Aborts the domain if this core's observer asks for it.
    fn interrupted(&self, segment: &Attached) -> Option<Exit> {
        if !self.observer.as_ref()?.is_interrupted() {
            return None;
        }
        segment.raise(&Alarm {
            dead: None,
            reason: format!("rank {} was interrupted while it waited", self.device.0),
        });
        Some(Exit::Alarm)
    }
}

/// The patience of an observed wait after its first sleep: it sleeps again at once.
const SLEEP_AT_ONCE: Patience = Patience {
    spin: Duration::ZERO,
    yields: 0,
};

/// The error of a wait that an alarm ended.
fn alarmed(alarm: Alarm, waited: Waited) -> Error {
    let Alarm { dead, reason } = alarm;
    match dead {
        Some(rank) => ErrorKind::PeerDied {
            rank,
            cause: reason,
            waited,
        },
        None => ErrorKind::Aborted { reason, waited },
    }
    .into()
}

/// A resolved signal: its cell, and its name for errors.
#[derive(Clone, Copy, Debug)]
pub(super) struct Awaited<'a> {
    pub(super) segment: &'a Attached,
    pub(super) cell: &'a Cell,
    pub(super) name: Name,
}

impl Awaited<'_> {
    /// The description of a wait for it, for errors and reports.
    fn waited(&self, condition: (Compare, i32), at: At) -> Waited {
        Waited {
            cell: self.segment.cell_number(self.cell).unwrap_or(u64::MAX),
            ..self.name.waited(self.cell.load(), condition, at)
        }
    }
}

/// The waiting rank, the rank it waits for, and the index of the signal, in one word: see `instructions.rs` for why.
#[derive(Clone, Copy, Debug)]
pub(super) struct Name(u64);

impl Name {
    #[inline(always)]
    pub(super) fn of(signal: &Signal, rank: Rank) -> Name {
        let (on, index, queue) = match signal.queue() {
            None => (rank, signal.index(), 0),
            Some(end) => (end.peer, end.port, end.signal as u64 + 1),
        };
        // The ranks of a resolved signal are below MAX_RANKS, and a window has few cells, so all three fit.
        let (me, on) = (u64::from(signal.holder().0), u64::from(on.0));
        Name(queue << 61 | (u64::from(index) & 0x1fff_ffff) << 32 | (on & 0xffff) << 16 | me & 0xffff)
    }

    pub(super) fn on(self) -> Rank {
        Rank((self.0 >> 16 & 0xffff) as u32)
    }

    /// The name in the form of the record.
    pub(super) fn recorded(self) -> u32 {
        ring::signal_name(
            self.on().0,
            (self.0 >> 32 & 0x1fff_ffff) as u32,
            self.0 >> 61 != 0,
        )
    }

    fn waited(self, value: i32, (compare, needed): (Compare, i32), at: At) -> Waited {
        let queue = (self.0 >> 61).checked_sub(1);
        Waited {
            me: Rank((self.0 & 0xffff) as u32),
            on: self.on(),
            signal: (self.0 >> 32 & 0x1fff_ffff) as u32,
            value,
            compare,
            needed,
            queue: QueueSignal::ALL
                .into_iter()
                .find(|known| Some(*known as u64) == queue),
            site: at.into(),
            cell: u64::MAX,
            name: None,
        }
    }
}

/// Why a wait ends early.
#[derive(Debug)]
pub(super) enum Exit {
    /// The domain's alarm was raised.
    Alarm,
    /// The peer is in another call.
    Mismatch(Box<Error>),
    /// The peer has left the domain.
    Left,
}
