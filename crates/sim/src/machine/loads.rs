//! What a run leaves behind: the load of every link, and the timeline.

use super::Machine;
use crate::timeline::{Kind, Load, Slice, Timeline};
use std::collections::BTreeMap;

impl Machine {
    /// Load of every link that carried anything, busiest first, then by number.
    #[must_use]
    pub fn loads(&self) -> Vec<Load> {
        let state = self.inner.state.borrow();
        let fabric = state.network.fabric();
        let mut loads: Vec<Load> = fabric
            .links()
            .filter_map(|link| {
                let (bytes, busy_ps) = state.network.load(link);
                let name = || format!("{} {}", fabric.section(link), fabric.link_name(link));
                (bytes > 0).then(|| Load {
                    name: name(),
                    bytes,
                    busy_ps,
                })
            })
            .collect();
        loads.sort_by_key(|load| std::cmp::Reverse(load.busy_ps));
        loads
    }

    /// The busiest link and its load; ties go to the lowest number.
    #[must_use]
    pub fn busiest(&self) -> Option<Load> {
        let state = self.inner.state.borrow();
        let links = state.network.fabric().links();
        let link = links.max_by_key(|link| (state.network.load(*link).1, u32::MAX - link))?;
        let (bytes, busy_ps) = state.network.load(link);
        let fabric = state.network.fabric();
        (bytes > 0).then(|| Load {
            name: format!("{} {}", fabric.section(link), fabric.link_name(link)),
            bytes,
            busy_ps,
        })
    }

    /// Bytes over all links of the network together.
    #[must_use]
    pub fn bytes_carried(&self) -> u64 {
        let state = self.inner.state.borrow();
        state
            .network
            .fabric()
            .links()
            .map(|link| state.network.load(link).0)
            .sum()
    }

    /// What ran where and when, if the machine was asked to keep it. Chips that did nothing have no row.
    #[must_use]
    pub fn timeline(&self) -> Timeline {
        let loads = self.loads();
        let state = self.inner.state.borrow();
        let (rows, places) = state.trace.all_rows(state.topology.ranks());
        let place = |row: u32| places.get(row as usize).copied().unwrap_or(row);
        let mut timeline = Timeline {
            title: state.topology.name.clone(),
            rows,
            slices: state.trace.slices.clone(),
            arrows: state.trace.arrows.clone(),
            loads,
        };
        for slice in &mut timeline.slices {
            slice.row = place(slice.row);
        }
        for arrow in &mut timeline.arrows {
            (arrow.from.0, arrow.to.0) = (place(arrow.from.0), place(arrow.to.0));
        }
        timeline.drop_idle_rows();
        timeline.sort();
        timeline
    }

    /// The [`timeline`](Machine::timeline), with a row for every link that carried anything, below those of the chips.
    #[must_use]
    pub fn timeline_with_links(&self) -> Timeline {
        let mut timeline = self.timeline();
        let state = self.inner.state.borrow();
        let fabric = state.network.fabric();
        let mut uses = state.network.uses();
        uses.retain(|one| one.end > one.start && one.link < state.first_port);
        let used: BTreeMap<u32, u32> = uses.iter().map(|one| (one.link, 0)).collect();
        let first = u32::try_from(timeline.rows.len()).unwrap_or(u32::MAX);
        let rows: BTreeMap<u32, u32> = used.into_keys().zip(first..).collect();
        for link in rows.keys() {
            let name = format!("link {} {}", fabric.section(*link), fabric.link_name(*link));
            timeline.rows.push(name);
        }
        timeline.slices.extend(uses.iter().map(|one| Slice {
            row: rows[&one.link],
            kind: Kind::Transfer,
            start_ps: one.start,
            end_ps: one.end,
            label: fabric.link_name(one.link),
            bytes: one.bytes,
        }));
        timeline.sort();
        timeline
    }
}
