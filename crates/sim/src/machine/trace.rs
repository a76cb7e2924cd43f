//! What a machine remembers of a run, if it was asked to.

use super::state::Waiting;
use crate::time::Ps;
use crate::timeline::{Arrow, Kind, Slice};
use ringwork_isa::{SIGNAL_STRIDE_BYTES, Segment, Signal, Signals};
use std::collections::BTreeMap;

/// Records of a run; empty unless tracing.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    on: bool,
    /// Rows beside those of the ranks: the rank each belongs to, and the core.
    rows: Vec<(u32, String)>,
    pub(crate) slices: Vec<Slice>,
    pub(crate) arrows: Vec<Arrow>,
    /// The row and the end of every task that is over.
    ended: BTreeMap<u32, (u32, Ps)>,
    /// Rows of signals: how many cells there are from this offset of rank 0 on, and what the row is called.
    names: BTreeMap<(Segment, u64), (u32, String)>,
}

impl Trace {
    pub(crate) fn new(on: bool) -> Trace {
        Trace {
            on,
            ..Trace::default()
        }
    }

    /// Gives a row of signals a name.
    pub(crate) fn name(&mut self, row: &Signals, name: &str) {
        if self.on {
            self.names
                .insert((row.segment, row.base), (row.count, name.to_owned()));
        }
    }

    /// Such as `"full"[0]`.
    fn name_of(&self, signal: &Signal) -> Option<String> {
        let at = (signal.segment(), signal.offset_on_first()?);
        let ((segment, base), (count, name)) = self.names.range(..=at).next_back()?;
        let index = (at.1 - base) / SIGNAL_STRIDE_BYTES;
        (*segment == at.0 && index < u64::from(*count)).then(|| format!("\"{name}\"[{index}]"))
    }

    /// The number of a core's row, counted from the first row after the ranks.
    pub(crate) fn row(&mut self, rank: u32, core: &str) -> u32 {
        let found = self
            .rows
            .iter()
            .position(|(of, name)| *of == rank && name == core);
        let found = found.unwrap_or_else(|| {
            self.rows.push((rank, core.to_owned()));
            self.rows.len() - 1
        });
        u32::try_from(found).unwrap_or(u32::MAX)
    }

    /// The names of all rows in the order they are shown, each rank's together; and the place of every row there.
    pub(crate) fn all_rows(&self, ranks: u32) -> (Vec<String>, Vec<u32>) {
        let of_ranks = (0..ranks).map(|rank| ((rank, ""), format!("chip {rank}")));
        let of_cores = self.rows.iter();
        let of_cores = of_cores.map(|(rank, core)| ((*rank, core.as_str()), format!("chip {rank}, {core}")));
        let mut rows: Vec<_> = of_ranks.chain(of_cores).zip(0usize..).collect();
        rows.sort_unstable();
        let mut places = vec![0; rows.len()];
        for (place, (_, row)) in (0u32..).zip(&rows) {
            places[*row] = place;
        }
        (rows.into_iter().map(|((_, name), _)| name).collect(), places)
    }

    #[inline(always)]
    fn slice(
        &mut self,
        row: u32,
        kind: Kind,
        (start_ps, end_ps): (Ps, Ps),
        bytes: u64,
        label: impl FnOnce() -> String,
    ) {
        if self.on && end_ps > start_ps {
            self.keep(Slice {
                row,
                kind,
                start_ps,
                end_ps,
                label: label(),
                bytes,
            });
        }
    }

    #[cold]
    fn keep(&mut self, slice: Slice) {
        self.slices.push(slice);
    }

    /// A task is over.
    pub(crate) fn task(&mut self, task: u32, row: u32, (start, end): (Ps, Ps), label: String) {
        self.slice(row, Kind::Task, (start, end.max(start + 1)), 0, || label);
        if self.on {
            self.ended.insert(task, (row, end));
        }
    }

    /// Something begins because a task is over.
    pub(crate) fn follows(&mut self, task: u32, to: (u32, Ps)) {
        let ended = self.ended.get(&task);
        self.arrows.extend(ended.map(|&from| Arrow { from, to }));
    }

    #[inline]
    pub(crate) fn transfer(&mut self, from: u32, to: u32, start: Ps, end: Ps, bytes: u64) {
        self.slice(from, Kind::Transfer, (start, end), bytes, || {
            format!("{from} to {to}")
        });
    }

    /// An operand of an instruction on its way, `between` two ranks; one of a core's own chip is no transfer.
    #[inline]
    pub(crate) fn operand(&mut self, row: u32, between: (u32, u32), (start, end): (Ps, Ps), bytes: u64) {
        let (from, to) = between;
        if from != to {
            self.slice(row, Kind::Transfer, (start, end), bytes, || {
                format!("{from} to {to}")
            });
        }
    }

    #[inline]
    pub(crate) fn compute(&mut self, rank: u32, start: Ps, end: Ps, bytes: u64, engine: &'static str) {
        self.slice(rank, Kind::Compute, (start, end), bytes, || engine.into());
    }

    /// A wait that ended because of something that `cause` (rank, time) did. A question about a value is not a wait.
    #[inline]
    pub(crate) fn waited(&mut self, rank: u32, end: Ps, cause: (u32, Ps), waiting: &Waiting) {
        if self.on && waiting.wanted.condition().is_some() {
            let start = waiting.since_ps;
            if end > start && cause.0 != u32::MAX {
                self.arrows.push(Arrow {
                    from: cause,
                    to: (rank, end),
                });
            }
            let signal = &waiting.signal;
            let name = self.name_of(signal);
            let name = name.unwrap_or_else(|| signal.index().to_string());
            let what = || format!("signal {name} of rank {}", signal.rank());
            self.slice(rank, Kind::Wait, (start, end), 0, what);
        }
    }
}
