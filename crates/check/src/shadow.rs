//! Shadow memory: of every range of bytes the last write, and the reads since by each agent (as in FastTrack).

use crate::clock::{Agent, Clock};
use crate::tree::NodeId;
use ringwork_isa::Segment;
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

/// One access to memory or to a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Access {
    pub(crate) agent: Agent,
    pub(crate) rank: u32,
    /// Which event of its agent it is.
    pub(crate) time: u32,
    /// The instruction.
    pub(crate) node: NodeId,
    pub(crate) writes: bool,
}

impl Access {
    pub(crate) fn is_before(&self, clock: &Clock) -> bool {
        clock.knows(self.agent, self.time)
    }
}

#[derive(Clone, Debug, Default)]
struct Shade {
    end: u64,
    write: Option<Access>,
    reads: Vec<Access>,
}

/// What has been done to every byte. Cheap to clone: segments are copied when they change.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shadow(BTreeMap<Segment, Rc<BTreeMap<u64, Shade>>>);

impl Shadow {
    /// Records an access, and reports every earlier one that it races with.
    pub(crate) fn touch(
        &mut self,
        (segment, bytes): (Segment, Range<u64>),
        access: Access,
        clock: &Clock,
        mut race: impl FnMut(Access, Range<u64>),
    ) {
        if bytes.is_empty() {
            return;
        }
        let shades = Rc::make_mut(self.0.entry(segment).or_default());
        // Mostly the same ranges are touched again and again.
        if let Some(shade) = shades.get_mut(&bytes.start)
            && shade.end == bytes.end
        {
            shade.races(access, clock, |earlier| race(earlier, bytes.clone()));
            return shade.record(access);
        }
        cut(shades, bytes.start);
        cut(shades, bytes.end);
        let mut next = bytes.start;
        let mut gaps = Vec::new();
        for (&start, shade) in shades.range_mut(bytes.clone()) {
            if next < start {
                gaps.push(next..start);
            }
            next = shade.end;
            shade.races(access, clock, |earlier| race(earlier, start..next));
            shade.record(access);
        }
        if next < bytes.end {
            gaps.push(next..bytes.end);
        }
        for gap in gaps {
            let mut shade = Shade {
                end: gap.end,
                ..Shade::default()
            };
            shade.record(access);
            shades.insert(gap.start, shade);
        }
    }
}

impl Shadow {
    /// Forgets what was done to these bytes: they are handed out anew.
    pub(crate) fn forget(&mut self, segment: Segment, bytes: &Range<u64>) {
        let Some(shades) = self.0.get_mut(&segment) else {
            return;
        };
        let shades = Rc::make_mut(shades);
        cut(shades, bytes.start);
        cut(shades, bytes.end);
        shades.retain(|start, _| !bytes.contains(start));
    }

    /// What it holds, about.
    pub(crate) fn bytes(&self) -> u64 {
        let shades: usize = self.0.values().map(|shades| shades.len()).sum();
        (shades * 3 * size_of::<Shade>()) as u64
    }

    /// The accesses that are not settled, by range. Neighbours with the same accesses are one range.
    pub(crate) fn unsettled(
        &self,
        is_settled: impl Fn(Segment, &Access) -> bool,
    ) -> Vec<(Segment, Range<u64>, Vec<Access>)> {
        let mut all: Vec<(Segment, Range<u64>, Vec<Access>)> = Vec::new();
        for (segment, shades) in &self.0 {
            for (start, shade) in &**shades {
                let accesses = shade.write.iter().chain(&shade.reads);
                let mut left: Vec<Access> = accesses
                    .filter(|one| !is_settled(*segment, one))
                    .copied()
                    .collect();
                left.sort_by_key(|one| (one.agent, one.time));
                match all.last_mut() {
                    _ if left.is_empty() => {}
                    Some((of, bytes, same)) if (*of, bytes.end, &*same) == (*segment, *start, &left) => {
                        bytes.end = shade.end;
                    }
                    _ => all.push((*segment, *start..shade.end, left)),
                }
            }
        }
        all
    }

    /// Forgets the accesses that are settled.
    pub(crate) fn forget_settled(&mut self, is_settled: impl Fn(Segment, &Access) -> bool) {
        for (segment, shades) in &mut self.0 {
            Rc::make_mut(shades).retain(|_, shade| {
                shade.write = shade.write.filter(|one| !is_settled(*segment, one));
                shade.reads.retain(|one| !is_settled(*segment, one));
                shade.write.is_some() || !shade.reads.is_empty()
            });
        }
    }

    /// Forgets everything: whatever comes is ordered after it.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

impl Shade {
    /// Reports what an access races with.
    fn races(&self, access: Access, clock: &Clock, mut race: impl FnMut(Access)) {
        let reads = self.reads.iter().filter(|_| access.writes);
        for earlier in self.write.iter().chain(reads) {
            if !earlier.is_before(clock) {
                race(*earlier);
            }
        }
    }

    fn record(&mut self, access: Access) {
        if access.writes {
            self.write = Some(access);
            self.reads.clear();
        } else if let Some(read) = self.reads.iter_mut().find(|read| read.agent == access.agent) {
            *read = access;
        } else {
            self.reads.push(access);
        }
    }
}

/// Makes `at` a boundary.
fn cut(shades: &mut BTreeMap<u64, Shade>, at: u64) {
    if let Some((_, shade)) = shades.range_mut(..at).next_back()
        && shade.end > at
    {
        let right = shade.clone();
        shade.end = at;
        shades.insert(at, right);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(agent: Agent, time: u32, writes: bool) -> Access {
        Access {
            agent,
            rank: agent,
            time,
            node: NodeId(0),
            writes,
        }
    }

    fn races(shadow: &mut Shadow, bytes: Range<u64>, access: Access, clock: &Clock) -> usize {
        let mut found = 0;
        shadow.touch((Segment(1), bytes), access, clock, |_, _| found += 1);
        found
    }

    #[test]
    fn ranges_that_touch_do_not_race_and_those_that_overlap_by_a_byte_do() {
        let (mut shadow, nothing) = (Shadow::default(), Clock::default());
        assert_eq!(races(&mut shadow, 0..8, access(0, 1, true), &nothing), 0);
        assert_eq!(races(&mut shadow, 8..16, access(1, 1, true), &nothing), 0);
        assert_eq!(races(&mut shadow, 7..8, access(2, 1, false), &nothing), 1);
    }

    #[test]
    fn reads_do_not_race_with_reads_and_a_known_write_does_not_race() {
        let (mut shadow, mut knows) = (Shadow::default(), Clock::default());
        assert_eq!(races(&mut shadow, 0..8, access(0, 1, true), &knows), 0);
        knows.set(0, 1);
        assert_eq!(races(&mut shadow, 0..8, access(1, 1, false), &knows), 0);
        assert_eq!(races(&mut shadow, 0..8, access(2, 1, false), &knows), 0);
        assert_eq!(races(&mut shadow, 0..8, access(0, 2, true), &knows), 2);
    }
}
