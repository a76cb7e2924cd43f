//! Which collective call a rank is in, as the others see it, and what is said when they disagree.

use super::waits::Awaited;
use super::{At, NativeCore};
use crate::cell::Cell;
use ringwork_isa::{Error, ErrorKind, Fingerprint, Rank, Signals};

impl NativeCore {
    #[cold]
    #[inline(never)]
    pub(super) fn out_of_step(&self, cell: Awaited<'_>, call: Fingerprint, at: At) -> Error {
        let noted = cell.cell.noted(call.sequence());
        self.mismatch_with(cell.name.on(), noted).unwrap_or_else(|| {
            // A note of another call in its place: the peer is out of step.
            let message = format!("rank {} is not in {call}", cell.name.on());
            ErrorKind::Failed {
                message,
                site: at.into(),
            }
            .into()
        })
    }

    /// Whether `peer` says that it is in another call of the same number.
    pub(super) fn mismatch(&self, peer: Rank) -> Option<Error> {
        let (call, _) = self.call.get()?;
        let signal = self.calls?.at(0).ok()?.on(peer).ok()?;
        let cell = self.segment(signal.segment())?.signal(&signal)?;
        self.mismatch_with(peer, cell.noted(call.sequence()))
    }

    pub(super) fn mismatch_with(&self, peer: Rank, words: [u64; 2]) -> Option<Error> {
        let (call, mine) = self.call.get()?;
        let theirs = Fingerprint::from_words(words)?;
        let other_kind = theirs.operation().is_between_two();
        if words == mine || theirs.sequence() != call.sequence() || other_kind {
            return None;
        }
        let me = self.calls.map_or(Rank(0), |row| row.me);
        Some(
            ErrorKind::Mismatch {
                me,
                mine: call.to_string(),
                peer,
                theirs: theirs.to_string(),
            }
            .into(),
        )
    }

    /// Where ranks say which collective call they are in: a cell of each that nothing else touches.
    pub fn set_calls(&mut self, calls: Signals) {
        self.calls = Some(calls);
    }

    /// Says which collective call the instructions until the next `enter` or `leave` belong to. Signals are
    /// marked with it, and waiting compares: ranks that disagree get [`ErrorKind::Mismatch`].
    #[inline(always)]
    pub fn enter(&self, call: Fingerprint) {
        let words = call.words();
        self.call.set(Some((call, words)));
        if let Some(cell) = self.my_call() {
            cell.note(call.sequence(), words);
            cell.mark(call.sequence());
        }
    }

    /// Says what this rank does, for the diagnosis of others, without marking signals with it.
    pub fn announce(&self, call: Fingerprint) {
        if let Some(cell) = self.my_call() {
            cell.note(call.sequence(), call.words());
            cell.mark(call.sequence());
        }
    }

    /// Says that the call is over.
    #[inline(always)]
    pub fn leave(&self) {
        self.call.set(None);
    }

    /// How far `peer`'s counters in this row are behind mine, all together.
    #[must_use]
    pub fn lag(&self, row: Signals, peer: Rank) -> i64 {
        let value = |index: u32, rank: Rank| {
            let signal = row.at(index).ok()?.on(rank).ok()?;
            Some(self.segment(signal.segment())?.signal(&signal)?.load())
        };
        let behind = |index| Some(i64::from(value(index, row.me)?.wrapping_sub(value(index, peer)?)));
        (0..row.count).filter_map(behind).sum()
    }

    #[inline(always)]
    pub(super) fn my_call(&self) -> Option<&Cell> {
        let mine = self.calls?.at(0).ok()?;
        self.segment(mine.segment())?.signal(&mine)
    }

    /// The last call that a rank began, if it has begun any.
    #[must_use]
    pub fn last_call(&self, rank: Rank) -> Option<Fingerprint> {
        let signal = self.calls?.at(0).ok()?.on(rank).ok()?;
        let cell = self.segment(signal.segment())?.signal(&signal)?;
        let sequence = cell.load().cast_unsigned();
        Fingerprint::from_words(cell.noted(sequence))
    }
}
