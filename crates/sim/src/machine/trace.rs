//! What a machine remembers of a run, if it was asked to.

use crate::time::Ps;
use crate::timeline::{Arrow, Kind, Slice};

/// Records of a run; empty unless tracing.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    on: bool,
    pub(crate) slices: Vec<Slice>,
    pub(crate) arrows: Vec<Arrow>,
}

impl Trace {
    pub(crate) fn new(on: bool) -> Trace {
        Trace {
            on,
            ..Trace::default()
        }
    }

    fn slice(
        &mut self,
        row: u32,
        kind: Kind,
        (start_ps, end_ps): (Ps, Ps),
        bytes: u64,
        label: impl FnOnce() -> String,
    ) {
        if self.on && end_ps > start_ps {
            self.slices.push(Slice {
                row,
                kind,
                start_ps,
                end_ps,
                label: label(),
                bytes,
            });
        }
    }

    pub(crate) fn task(&mut self, rank: u32, start: Ps, end: Ps, label: String) {
        self.slice(rank, Kind::Task, (start, end.max(start + 1)), 0, || label);
    }

    pub(crate) fn transfer(&mut self, from: u32, to: u32, start: Ps, end: Ps, bytes: u64) {
        self.slice(from, Kind::Transfer, (start, end), bytes, || {
            format!("{from} to {to}")
        });
    }

    pub(crate) fn compute(&mut self, rank: u32, start: Ps, end: Ps, bytes: u64, engine: &'static str) {
        self.slice(rank, Kind::Compute, (start, end), bytes, || engine.into());
    }

    /// A wait that ended because of something that `cause` (rank, time) did.
    pub(crate) fn wait(
        &mut self,
        rank: u32,
        (start, end): (Ps, Ps),
        cause: (u32, Ps),
        what: impl FnOnce() -> String,
    ) {
        if self.on && end > start && cause.0 != u32::MAX {
            self.arrows.push(Arrow {
                from: cause,
                to: (rank, end),
            });
        }
        self.slice(rank, Kind::Wait, (start, end), 0, what);
    }
}
