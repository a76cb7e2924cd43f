//! The names of signals, for errors and timelines.

use crate::backend::SegmentPlan;
use crate::node::State;
use ringwork_isa::{SIGNAL_STRIDE_BYTES, Segment};
use std::collections::BTreeMap;

/// Domains whose names are kept, those that are released included: timelines are drawn after the domains are gone.
const MAX_SEGMENTS: usize = 1024;

/// The rows of signals of every domain, by segment.
#[derive(Clone, Debug, Default)]
pub(crate) struct SignalNames(BTreeMap<Segment, Rows>);

#[derive(Clone, Debug)]
struct Rows {
    header_bytes: u64,
    stride: u64,
    rows: Vec<SignalsOf>,
}

/// A row of signals of a window: its first cell, how many there are, and its name.
pub(crate) type SignalsOf = (u32, u32, String);

impl SignalNames {
    pub(crate) fn add(&mut self, plan: &SegmentPlan) {
        if plan.signals.is_empty() {
            return;
        }
        let rows = Rows {
            header_bytes: plan.layout.header_bytes,
            stride: plan.layout.stride,
            rows: plan.signals.clone(),
        };
        self.0.insert(plan.layout.segment, rows);
        if self.0.len() > MAX_SEGMENTS {
            self.0.pop_first();
        }
    }

    /// The name of a cell, such as `"full"[0]`. Cells are numbered as [`ringwork_isa::Waited::cell`] says.
    pub(crate) fn of(&self, cell: u64) -> Option<String> {
        let segment = u32::try_from(cell >> 32).ok()?;
        let Rows {
            header_bytes,
            stride,
            rows,
        } = self.0.get(&Segment(segment))?;
        let offset = (cell & u64::from(u32::MAX)) * SIGNAL_STRIDE_BYTES;
        let in_window = offset.checked_sub(*header_bytes)?.checked_rem(*stride)?;
        let number = in_window / SIGNAL_STRIDE_BYTES;
        rows.iter().find_map(|(first, count, name)| {
            let index = number.checked_sub(u64::from(*first))?;
            (index < u64::from(*count)).then(|| format!("\"{name}\"[{index}]"))
        })
    }
}

impl State {
    /// An error of a kernel with the names of the signals in it.
    pub(crate) fn with_names(&self, mut error: ringwork_isa::Error) -> ringwork_isa::Error {
        error.name_signals(|cell| self.signal_names.of(cell));
        error
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::DomainSpec;
    use crate::platform::Platform;
    use ringwork_isa::{Compare, Device, ErrorKind, Rank, Site, Waited};

    #[test]
    fn cells_of_every_rank_have_the_name_of_their_row_and_their_number_in_it() {
        let spec = DomainSpec::new("d", [Device(0), Device(1)])
            .buffer::<u8>("data", 1000)
            .signals("empty", 2)
            .signals("full", 3);
        let devices = [Device(0), Device(1)];
        let plan = spec.plan(&Platform::Native, &devices, Segment(7)).unwrap();
        let mut names = SignalNames::default();
        names.add(&plan.segment);
        let layout = plan.segment.layout;
        for (first, count, name) in &plan.segment.signals {
            let row = ringwork_layout::CellRow {
                first: *first,
                count: *count,
            };
            for (rank, index) in [(0, 0), (1, count - 1)] {
                let signal = layout.signals(Rank(0), row).at(index).unwrap();
                let signal = signal.on(Rank(rank)).unwrap();
                let cell = Waited::cell_of(&signal).unwrap();
                assert_eq!(names.of(cell), Some(format!("\"{name}\"[{index}]")));
                let waited = Waited::new(&signal, 0, (Compare::Ge, 1), Site::caller());
                let mut error: ringwork_isa::Error = ErrorKind::Deadline { after_ms: 1, waited }.into();
                error.name_signals(|cell| names.of(cell));
                let wanted = format!("for signal \"{name}\"[{index}] of rank {rank} to be");
                assert!(error.to_string().contains(&wanted), "{error}");
            }
        }
        assert_eq!(names.of(6 << 32 | 40), None);
        assert_eq!(names.of(u64::MAX), None);
    }
}
