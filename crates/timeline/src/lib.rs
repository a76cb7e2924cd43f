//! Timelines: what ran where and when, whichever platform it ran on.
//!
//! Knows nothing of the simulator: the native platform fills one too. Written out by
//! [`chrome_json`](Timeline::chrome_json) for Perfetto and by [`html`](Timeline::html) as a page of its own.
//!
//! # Invariants
//! - **TML-1 (order).** [`sort`](Timeline::sort) orders slices by (row, start, longest first), so that two
//!   equal runs write equal bytes.

#![forbid(unsafe_code)]

mod duration;
mod write;

pub use duration::{ShowPs, trimmed};
pub use write::escape;

use std::collections::BTreeMap;

/// What a slice of time was spent on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// A task, from its start to its end.
    Task,
    /// Waiting for a signal.
    Wait,
    /// Bytes on their way.
    Transfer,
    /// A vector or matrix engine at work.
    Compute,
}

impl Kind {
    /// In one word.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Task => "task",
            Kind::Wait => "wait",
            Kind::Transfer => "transfer",
            Kind::Compute => "compute",
        }
    }
}

/// Something that took time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slice {
    /// Which row: an index into [`Timeline::rows`].
    pub row: u32,
    /// What kind of thing.
    pub kind: Kind,
    /// When it began.
    pub start_ps: u64,
    /// When it ended.
    pub end_ps: u64,
    /// What to call it.
    pub label: String,
    /// Bytes it moved or combined; 0 if none.
    pub bytes: u64,
}

/// One thing that let another go on: a notify and the wait it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Arrow {
    /// Row and time of the cause.
    pub from: (u32, u64),
    /// Row and time of the effect.
    pub to: (u32, u64),
}

/// How much a link or an engine was used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Load {
    /// What it is called.
    pub name: String,
    /// Bytes that passed.
    pub bytes: u64,
    /// Time it was busy.
    pub busy_ps: u64,
}

/// What ran where and when.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timeline {
    /// What was run.
    pub title: String,
    /// Names of the rows: one per chip.
    pub rows: Vec<String>,
    /// What happened.
    pub slices: Vec<Slice>,
    /// What waited for what.
    pub arrows: Vec<Arrow>,
    /// How much was used.
    pub loads: Vec<Load>,
}

impl Timeline {
    /// When the last slice ends.
    #[must_use]
    pub fn end_ps(&self) -> u64 {
        self.slices.iter().map(|slice| slice.end_ps).max().unwrap_or(0)
    }

    /// Puts everything in its one order (TML-1).
    pub fn sort(&mut self) {
        self.slices.sort_by(|a, b| {
            let key = |s: &Slice| (s.row, s.start_ps, u64::MAX - s.end_ps, s.kind);
            key(a).cmp(&key(b)).then_with(|| a.label.cmp(&b.label))
        });
        self.arrows.sort_unstable();
    }

    /// Leaves out rows where nothing happened.
    pub fn drop_idle_rows(&mut self) {
        let mut used = vec![false; self.rows.len()];
        let slices = self.slices.iter().map(|slice| slice.row);
        let arrows = self.arrows.iter().flat_map(|arrow| [arrow.from.0, arrow.to.0]);
        for row in slices.chain(arrows) {
            if let Some(used) = used.get_mut(row as usize) {
                *used = true;
            }
        }
        let mut places = Vec::with_capacity(used.len());
        let mut next = 0;
        for used in &used {
            places.push(next);
            next += u32::from(*used);
        }
        let place = |row: &mut u32| *row = places.get(*row as usize).copied().unwrap_or(*row);
        self.slices.iter_mut().for_each(|slice| place(&mut slice.row));
        for arrow in &mut self.arrows {
            place(&mut arrow.from.0);
            place(&mut arrow.to.0);
        }
        let mut used = used.into_iter();
        self.rows.retain(|_| used.next().unwrap_or(true));
    }

    /// A hash of everything in it: equal timelines, equal hashes, on every build (FNV-1a).
    #[must_use]
    pub fn hash(&self) -> u64 {
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        let mut eat = |bytes: &[u8]| {
            for byte in bytes {
                hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
            }
        };
        for slice in &self.slices {
            for number in [
                u64::from(slice.row),
                slice.kind as u64,
                slice.start_ps,
                slice.end_ps,
                slice.bytes,
            ] {
                eat(&number.to_le_bytes());
            }
            eat(slice.label.as_bytes());
        }
        for arrow in &self.arrows {
            for number in [
                u64::from(arrow.from.0),
                arrow.from.1,
                u64::from(arrow.to.0),
                arrow.to.1,
            ] {
                eat(&number.to_le_bytes());
            }
        }
        hash
    }

    /// The chain of causes that ends last: the (row, from, to) stretches that decide the total time, in
    /// order of time. Shortening anything else changes nothing.
    #[must_use]
    pub fn critical_path(&self) -> Vec<(u32, u64, u64)> {
        let mut by_effect: BTreeMap<(u32, u64), (u32, u64)> = BTreeMap::new();
        for arrow in &self.arrows {
            let cause = by_effect.entry(arrow.to).or_insert(arrow.from);
            *cause = (*cause).max(arrow.from);
        }
        let Some(last) = self
            .slices
            .iter()
            .max_by_key(|slice| (slice.end_ps, u32::MAX - slice.row))
        else {
            return Vec::new();
        };
        let (mut row, mut until) = (last.row, last.end_ps);
        let mut path = Vec::new();
        while let Some((effect, cause)) = by_effect.range((row, 0)..=(row, until)).next_back() {
            path.push((row, effect.1, until));
            if cause.1 >= until && cause.0 == row {
                break; // no progress: a zero-time loop
            }
            path.push((cause.0, cause.1, effect.1));
            (row, until) = *cause;
            if path.len() > 2 * self.arrows.len() + 2 {
                break;
            }
        }
        let first = self
            .slices
            .iter()
            .filter(|s| s.row == row)
            .map(|s| s.start_ps)
            .min();
        path.push((row, first.unwrap_or(0).min(until), until));
        path.reverse();
        path.retain(|(_, from, to)| to > from);
        path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slice(row: u32, start_ps: u64, end_ps: u64) -> Slice {
        Slice {
            row,
            kind: Kind::Task,
            start_ps,
            end_ps,
            label: "t".into(),
            bytes: 0,
        }
    }

    #[test]
    fn the_critical_path_follows_causes_back_to_the_start() {
        let timeline = Timeline {
            rows: vec!["0".into(), "1".into()],
            slices: vec![slice(0, 0, 50), slice(1, 0, 90)],
            arrows: vec![
                Arrow {
                    from: (0, 30),
                    to: (1, 40),
                },
                Arrow {
                    from: (0, 10),
                    to: (1, 20),
                },
            ],
            ..Timeline::default()
        };
        assert_eq!(timeline.critical_path(), [(0, 0, 30), (0, 30, 40), (1, 40, 90)]);
    }

    #[test]
    fn order_and_hash_do_not_depend_on_the_order_of_recording() {
        let mut a = Timeline {
            slices: vec![slice(1, 5, 6), slice(0, 1, 2)],
            ..Timeline::default()
        };
        let mut b = Timeline {
            slices: vec![slice(0, 1, 2), slice(1, 5, 6)],
            ..Timeline::default()
        };
        a.sort();
        b.sort();
        assert_eq!(a, b);
        assert_eq!(a.hash(), b.hash());
        b.slices[0].end_ps += 1;
        assert_ne!(a.hash(), b.hash());
    }
}
