//! One exchange of a member: what it sends, and what it then receives.

use ringwork_isa::{Port, Result};
use std::ops::Range;

/// Blocks of a piece: `len` of them from `first` on, `count` times, `step` apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Group {
    pub(super) first: usize,
    pub(super) len: usize,
    pub(super) count: usize,
    pub(super) step: usize,
}

impl From<Range<usize>> for Group {
    fn from(range: Range<usize>) -> Group {
        Group {
            first: range.start,
            len: range.len(),
            count: 1,
            step: 0,
        }
    }
}

impl Group {
    /// The blocks, in runs of neighbours.
    pub(super) fn runs(self) -> impl Iterator<Item = Range<usize>> {
        (0..self.count).map(move |index| {
            let first = self.first + index * self.step;
            first..first + self.len
        })
    }
}

/// What a member does in one exchange. Whatever is sent leaves before anything is received.
#[derive(Debug, Default)]
pub(super) struct Moves {
    pub(super) sends: Vec<(Port, Group)>,
    pub(super) receives: Vec<(Port, Group)>,
    /// If what is received is added to what is there: the place of mine among the terms of the sum.
    pub(super) adds: Option<usize>,
}

impl Moves {
    pub(super) fn clear(&mut self) {
        self.sends.clear();
        self.receives.clear();
        self.adds = None;
    }

    pub(super) fn send(&mut self, port: Result<Port>, blocks: impl Into<Group>) -> Result<()> {
        self.sends.push((port?, blocks.into()));
        Ok(())
    }

    pub(super) fn receive(&mut self, port: Result<Port>, blocks: impl Into<Group>) -> Result<()> {
        self.receives.push((port?, blocks.into()));
        Ok(())
    }
}
