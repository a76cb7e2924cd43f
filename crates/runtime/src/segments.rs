//! The memory of a node: which chips have each segment, how many tasks use it, and when it is freed.

use crate::backend::{Members, SegmentPlan};
use crate::domain::DomainPlan;
use crate::error::{Error, Result};
use crate::node::State;
use ringwork_isa::{Rank, Segment};

/// The record of a segment.
pub(crate) struct Known {
    /// Such as `window "tp"` or `a tensor on device 2`.
    pub(crate) what: String,
    /// The chips that have it; in rank order if it is a domain's windows.
    pub(crate) members: Members,
    pub(crate) sort: Sort,
    pub(crate) released: bool,
    /// Running tasks that use it.
    pub(crate) uses: usize,
}

/// What a segment is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sort {
    /// Memory of one chip.
    Private,
    /// The windows of a domain whose members are all this worker's.
    Domain,
    /// The windows of a domain that spans other workers too; the worker that opened it resets it.
    Wide,
}

impl State {
    /// Reserves a segment number for a domain that spans other workers; if it is taken, returns the next free one.
    pub(crate) fn claim_segment(&mut self, Segment(number): Segment) -> std::result::Result<(), Segment> {
        if number < self.next_segment {
            return Err(Segment(self.next_segment));
        }
        self.next_segment = number + 1;
        Ok(())
    }

    pub(crate) fn fresh_segment(&mut self) -> Segment {
        self.next_segment += 1;
        Segment(self.next_segment - 1)
    }

    pub(crate) fn know(&mut self, plan: &SegmentPlan, sort: Sort) {
        if sort == Sort::Wide {
            self.wide.push(plan.layout.segment);
        }
        self.signal_names.add(plan);
        let (what, members) = (plan.what.clone(), plan.members.clone());
        self.segments.insert(
            plan.layout.segment,
            Known {
                what,
                members,
                sort,
                released: false,
                uses: 0,
            },
        );
    }

    /// The same for the windows of a domain.
    pub(crate) fn know_domain(&mut self, plan: &DomainPlan, sort: Sort) {
        self.know(&plan.segment, sort);
        self.open_domains
            .insert(plan.segment.layout.segment, plan.clone());
    }

    /// No more uses; freed now, or when the last task that uses it is done.
    pub(crate) fn release(&mut self, segment: Segment) {
        self.open_domains.remove(&segment);
        let Some(known) = self.segments.get_mut(&segment) else {
            return;
        };
        known.released = true;
        if known.uses == 0
            && let Some(known) = self.segments.remove(&segment)
        {
            self.backend.release(segment, &known.members.chips);
        }
    }

    pub(crate) fn end_use(&mut self, segment: Segment) {
        let Some(known) = self.segments.get_mut(&segment) else {
            return;
        };
        known.uses -= 1;
        if known.released {
            self.release(segment);
        }
    }

    pub(crate) fn usable(&self, segment: Segment) -> Result<()> {
        self.check_open()?;
        match self.segments.get(&segment) {
            Some(known) if !known.released => Ok(()),
            Some(known) => Err(Error::Released {
                what: known.what.clone(),
            }),
            None => Err(Error::Released {
                what: "this memory".into(),
            }),
        }
    }

    pub(crate) fn write(&mut self, segment: Segment, rank: Rank, offset: u64, bytes: &[u8]) -> Result<()> {
        self.usable(segment)?;
        let fits = self.backend.write(segment, rank, offset, bytes);
        if fits {
            Ok(())
        } else {
            Err(self.outside(segment, bytes.len()))
        }
    }

    pub(crate) fn read(&mut self, segment: Segment, rank: Rank, offset: u64, bytes: &mut [u8]) -> Result<()> {
        self.usable(segment)?;
        let there = self.backend.read(segment, rank, offset, bytes);
        if there {
            Ok(())
        } else {
            Err(self.outside(segment, bytes.len()))
        }
    }

    fn outside(&self, segment: Segment, asked: usize) -> Error {
        let what = self
            .segments
            .get(&segment)
            .map_or_else(String::new, |known| known.what.clone());
        Error::Length { what, have: 0, asked }
    }

    /// Ends every wait in every domain.
    pub(crate) fn abort_all(&mut self, reason: &str) {
        let domains: Vec<Segment> = self
            .segments
            .iter()
            .filter(|(_, known)| known.sort != Sort::Private)
            .map(|(segment, _)| *segment)
            .collect();
        for segment in domains {
            self.backend.abort(segment, reason);
        }
    }
}
