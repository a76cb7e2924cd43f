//! Which collective call each rank is in, published for the others, and the error when two ranks disagree.

use super::waits::Awaited;
use super::{At, NativeCore};
use crate::cell::Cell;
use crate::segment::Attached;
use ringwork_isa::{Compare, Error, ErrorKind, Fingerprint, Rank, Result, Signals};
use std::sync::Arc;

/// The collective call in progress, if any, as it lies in shared memory. It is only a few words, because every
/// instruction reads it.
#[derive(Debug, Default)]
pub(super) struct CallUnderWay(std::cell::Cell<[u64; 2]>);

impl CallUnderWay {
    /// Its number and its words. No call is all zero.
    #[inline(always)]
    pub(super) fn get(&self) -> Option<(u32, [u64; 2])> {
        let words = self.0.get();
        (words[0] != 0).then(|| (sequence(words), words))
    }

    /// The tag that tells packets of this call from packets of other calls.
    #[inline(always)]
    pub(super) fn tag(&self) -> u64 {
        let [head, count] = self.0.get();
        (head.rotate_left(17) ^ count).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}

/// The sequence number in these words.
#[inline(always)]
fn sequence([head, _]: [u64; 2]) -> u32 {
    (head >> 32) as u32
}

/// Where each rank publishes the call that it is in.
#[derive(Clone, Debug)]
pub(super) struct Calls {
    row: Signals,
    /// The segment with these cells, and the index of mine in it.
    home: Arc<Attached>,
    mine: u64,
}

impl Calls {
    #[inline(always)]
    fn mine(&self) -> &Cell {
        // SAFETY: `set_calls`, which alone makes these, has found it there.
        unsafe { self.home.cell_at(self.mine) }
    }

    fn of(&self, rank: Rank) -> Option<&Cell> {
        self.home.signal(&self.row.at(0).ok()?.on(rank).ok()?)
    }
}

impl NativeCore {
    /// The diagnosis of a signal that does not carry the note `words` of my call: the peer has finished this call and
    /// gone on, or it is in a different one.
    #[cold]
    #[inline(never)]
    pub(super) fn other_note(
        &self,
        cell: Awaited<'_>,
        words: [u64; 2],
        condition: (Compare, i32),
        at: At,
    ) -> Result<()> {
        let (noted, peer) = (cell.cell.noted(sequence(words)), cell.name.on());
        let ahead = sequence(noted).wrapping_sub(sequence(words)).cast_signed();
        if noted[0] != 0 && ahead > 0 {
            return Ok(());
        }
        let found = self.astray(cell, condition, at);
        let found = found.or_else(|| self.mismatch_with(peer, words, noted));
        Err(found.unwrap_or_else(|| {
            let call = Fingerprint::from_words(words).map_or_else(String::new, |call| call.to_string());
            let message = format!("rank {peer} is not in {call}");
            ErrorKind::Failed {
                message,
                site: at.into(),
            }
            .into()
        }))
    }

    /// The error if `peer` has published a different call under the same sequence number.
    pub(super) fn mismatch(&self, peer: Rank) -> Option<Error> {
        let (sequence, mine) = self.call.get()?;
        self.mismatch_with(peer, mine, self.calls.as_ref()?.of(peer)?.noted(sequence))
    }

    /// Whether `peer` was in a different call than I was under that sequence number.
    pub(super) fn parting(&self, peer: Rank) -> Option<Error> {
        let calls = self.calls.as_ref()?;
        let theirs = self.last_call(peer)?;
        self.mismatch_with(peer, calls.mine().noted(theirs.sequence()), theirs.words())
    }

    /// An error, if these two calls have the same sequence number and differ.
    fn mismatch_with(&self, peer: Rank, mine: [u64; 2], theirs: [u64; 2]) -> Option<Error> {
        let same = mine == theirs;
        let (mine, theirs) = (Fingerprint::from_words(mine)?, Fingerprint::from_words(theirs)?);
        let between_two = theirs.operation().is_between_two() || mine.operation().is_between_two();
        if same || theirs.sequence() != mine.sequence() || between_two {
            return None;
        }
        let me = self.calls.as_ref().map_or(Rank(0), |calls| calls.row.me);
        Some(
            ErrorKind::Mismatch {
                me,
                mine: mine.to_string(),
                peer,
                theirs: theirs.to_string(),
            }
            .into(),
        )
    }

    /// Sets where each rank publishes the collective call that it is in: a cell of this row, in the segment `home`,
    /// which nothing else uses.
    pub fn set_calls(&mut self, home: Arc<Attached>, row: Signals) {
        let mine = row.at(0).ok().filter(|signal| home.signal(signal).is_some());
        let mine = mine.and_then(|signal| signal.offset());
        self.calls = mine.map(|mine| Calls { row, home, mine });
    }

    /// Publishes the collective call that the instructions until the next `enter` or `leave` belong to. Signals carry
    /// a note of it and waits compare the note, so ranks that disagree get [`ErrorKind::Mismatch`].
    #[inline(always)]
    pub fn enter(&self, call: Fingerprint) {
        self.call.0.set(call.words());
        self.announce(call);
    }

    /// Publishes what this rank does, so that other ranks can name it in errors. Signals carry no note of it.
    #[inline(always)]
    pub fn announce(&self, call: Fingerprint) {
        if let Some(cell) = self.calls.as_ref().map(Calls::mine) {
            cell.note(call.sequence(), call.words());
            cell.mark(call.sequence());
        }
    }

    /// Publishes that the call is over.
    #[inline(always)]
    pub fn leave(&self) {
        self.call.0.set([0; 2]);
    }

    /// By how much the counters of `peer` in this row are behind mine, in total.
    #[must_use]
    pub fn lag(&self, row: Signals, peer: Rank) -> i64 {
        let value = |index: u32, rank: Rank| {
            let signal = row.at(index).ok()?.on(rank).ok()?;
            Some(self.segment(signal.segment())?.signal(&signal)?.load())
        };
        let behind = |index| Some(i64::from(value(index, row.me)?.wrapping_sub(value(index, peer)?)));
        (0..row.count).filter_map(behind).sum()
    }

    /// The last call that a rank has begun, if any.
    #[must_use]
    pub fn last_call(&self, rank: Rank) -> Option<Fingerprint> {
        let cell = self.calls.as_ref()?.of(rank)?;
        Fingerprint::from_words(cell.noted(cell.load().cast_unsigned()))
    }
}
