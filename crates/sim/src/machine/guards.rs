//! Memory that a core's posted transfers still use: what is still being read must not be written, what is still
//! arriving neither read nor written.

use super::memory::Located;
use crate::time::Ps;
use std::collections::VecDeque;

/// When something posted is over.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Until {
    At(Ps),
    /// When this posted transfer has arrived.
    Sequence(u64),
}

/// Posted transfers of unknown arrival, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Inflight {
    /// Whether each has arrived.
    arrived: VecDeque<bool>,
    /// Sequence number of the first of them: all before have arrived.
    oldest: u64,
}

impl Inflight {
    /// The number of one more.
    pub(crate) fn open(&mut self) -> u64 {
        self.arrived.push_back(false);
        self.next() - 1
    }

    /// The number that the next one gets.
    #[inline(always)]
    pub(crate) fn next(&self) -> u64 {
        self.oldest + self.arrived.len() as u64
    }

    /// All before this one have arrived.
    #[inline(always)]
    pub(crate) fn oldest(&self) -> u64 {
        self.oldest
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.arrived.is_empty()
    }

    /// One has arrived.
    pub(crate) fn arrive(&mut self, sequence: u64) {
        if let Some(index) = sequence
            .checked_sub(self.oldest)
            .and_then(|index| usize::try_from(index).ok())
            && let Some(arrived) = self.arrived.get_mut(index)
        {
            *arrived = true;
        }
        while self.arrived.front() == Some(&true) {
            self.arrived.pop_front();
            self.oldest += 1;
        }
    }

    /// Whether this is over.
    pub(crate) fn is_over(&self, until: Until, now: Ps) -> bool {
        match until {
            Until::At(at) => at <= now,
            Until::Sequence(sequence) => {
                let index = sequence
                    .checked_sub(self.oldest)
                    .and_then(|index| usize::try_from(index).ok());
                index.is_none_or(|index| self.arrived.get(index).copied().unwrap_or(true))
            }
        }
    }
}

/// Memory that a posted transfer uses.
#[derive(Clone, Copy, Debug)]
struct Guard {
    at: Located,
    until: Until,
    /// Bytes arrive there; else they are read.
    written: bool,
}

impl Guard {
    fn touches(&self, at: &Located) -> bool {
        self.at.overlaps(at)
    }
}

/// All such ranges of a core.
#[derive(Debug, Default)]
pub(crate) struct Guards {
    all: Vec<Guard>,
    /// When all of these are over; the end of time if that is not known.
    until_ps: Ps,
}

impl Guards {
    #[inline(always)]
    pub(crate) fn read(&mut self, at: &Located, until: Until) {
        self.add(at, until, false);
    }

    #[inline(always)]
    pub(crate) fn written(&mut self, at: &Located, until: Until) {
        self.add(at, until, true);
    }

    #[inline(always)]
    fn add(&mut self, at: &Located, until: Until, written: bool) {
        let end_ps = match until {
            Until::At(at) => at,
            Until::Sequence(_) => Ps::MAX,
        };
        self.until_ps = self.until_ps.max(end_ps);
        self.all.push(Guard {
            at: *at,
            until,
            written,
        });
    }

    /// Whether everything guarded is over: nothing is then.
    #[inline(always)]
    pub(crate) fn all_over(&mut self, now: Ps) -> bool {
        let over = self.until_ps <= now;
        if over {
            self.all.clear();
        }
        over
    }

    /// What an instruction that reads and writes this has to wait for, if it has to.
    pub(crate) fn blocking(
        &mut self,
        inflight: &Inflight,
        now: Ps,
        reads: &[Located],
        write: Option<&Located>,
    ) -> Option<Until> {
        self.all.retain(|guard| !inflight.is_over(guard.until, now));
        if self.all.is_empty() {
            self.until_ps = 0;
        }
        let mut blocked: Option<Until> = None;
        for guard in &self.all {
            let touched = write.is_some_and(|write| guard.touches(write))
                || guard.written && reads.iter().any(|read| guard.touches(read));
            if touched {
                blocked = Some(match (blocked, guard.until) {
                    (Some(Until::At(a)), Until::At(b)) => Until::At(a.max(b)),
                    (_, Until::Sequence(sequence)) => Until::Sequence(sequence),
                    (Some(known), _) => known,
                    (None, until) => until,
                });
            }
        }
        blocked
    }
}
