//! A happens-before race detector on byte ranges, with vector clocks.
//!
//! `notify` releases, `wait` and `peek` acquire; nothing else orders ranks. Every range of bytes remembers
//! its last write and the reads since; an access that is not ordered after them races.

use ringwork_isa::Segment;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::panic::Location;

/// For each rank, how much of its past is known.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Clock(Vec<u32>);

impl Clock {
    pub fn new(ranks: usize) -> Clock {
        Clock(vec![0; ranks])
    }

    pub fn join(&mut self, other: &Clock) {
        for (mine, theirs) in self.0.iter_mut().zip(&other.0) {
            *mine = (*mine).max(*theirs);
        }
    }

    pub fn tick(&mut self, rank: usize) {
        self.0[rank] += 1;
    }

    fn knows(&self, access: &Access) -> bool {
        self.0[access.rank] >= access.time
    }
}

/// One access to memory or to a signal.
#[derive(Clone, Copy, Debug)]
pub struct Access {
    pub rank: usize,
    pub writes: bool,
    pub at: &'static Location<'static>,
    time: u32,
}

impl Access {
    pub fn new(rank: usize, writes: bool, at: &'static Location<'static>, clock: &Clock) -> Access {
        Access {
            rank,
            writes,
            at,
            time: clock.0[rank],
        }
    }

    pub fn is_before(&self, clock: &Clock) -> bool {
        clock.knows(self)
    }
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = if self.writes { "writes" } else { "reads" };
        write!(
            f,
            "rank {} {verb} at {}:{}",
            self.rank,
            self.at.file(),
            self.at.line()
        )
    }
}

/// Two accesses without a signal between them.
#[derive(Clone, Debug)]
pub struct Race {
    pub what: String,
    pub first: Access,
    pub second: Access,
}

impl fmt::Display for Race {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {}, {}, nothing orders them",
            self.what, self.first, self.second
        )
    }
}

#[derive(Clone, Debug, Default)]
struct Shade {
    end: u64,
    write: Option<Access>,
    reads: Vec<Access>,
}

/// What has been done to every byte.
#[derive(Debug, Default)]
pub struct Shadow(BTreeMap<Segment, BTreeMap<u64, Shade>>);

impl Shadow {
    /// Records an access, and says what it races with.
    pub fn touch(
        &mut self,
        segment: Segment,
        bytes: Range<u64>,
        access: Access,
        clock: &Clock,
    ) -> Result<(), Race> {
        if bytes.is_empty() {
            return Ok(());
        }
        let shades = self.0.entry(segment).or_default();
        cut(shades, bytes.start);
        cut(shades, bytes.end);
        let mut next = bytes.start;
        let mut gaps = Vec::new();
        for (&start, shade) in shades.range_mut(bytes.clone()) {
            if next < start {
                gaps.push(next..start);
            }
            next = shade.end;
            let earlier = shade
                .write
                .iter()
                .chain(shade.reads.iter().filter(|_| access.writes));
            for first in earlier {
                if !clock.knows(first) {
                    return Err(Race {
                        what: format!("segment {segment}, bytes {start}..{}", shade.end),
                        first: *first,
                        second: access,
                    });
                }
            }
            if access.writes {
                shade.write = Some(access);
                shade.reads.clear();
            } else {
                shade.reads.retain(|read| read.rank != access.rank);
                shade.reads.push(access);
            }
        }
        if next < bytes.end {
            gaps.push(next..bytes.end);
        }
        for gap in gaps {
            let mut shade = Shade {
                end: gap.end,
                ..Shade::default()
            };
            if access.writes {
                shade.write = Some(access);
            } else {
                shade.reads.push(access);
            }
            shades.insert(gap.start, shade);
        }
        Ok(())
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
