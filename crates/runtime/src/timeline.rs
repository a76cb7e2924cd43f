//! Timelines from the records of chips: what ran where and when, and what waited for what.
//!
//! Chips record in ticks of one clock; this module turns them into rows, slices and arrows of a [`Timeline`]. There
//! are two sorts of arrows: from the end of a task to the start of a task that waited for it (in a chip's own graph,
//! from the last one that it waited for), and from a notify to the end of the wait that it ended.

use crate::chip::CORE_NAMES;
use crate::node::State;
use crate::signal_names::SignalNames;
use crate::task_history::TaskHistory;
use ringwork_isa::{Device, Segment};
use ringwork_native::trace::{Entry, LastSeen, Record, What, tsc_clock};
use ringwork_timeline::{Arrow, Kind, ShowPs, Slice, Timeline};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Instant;

/// When recording began, to turn ticks into time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Epoch {
    at: Instant,
    ticks: u64,
}

impl Epoch {
    pub(crate) fn now() -> Epoch {
        Epoch {
            at: Instant::now(),
            ticks: tsc_clock::now(),
        }
    }

    /// Picoseconds of a tick; more exact after a longer time. A millisecond is enough, and bring-up takes longer. The
    /// report of a failure does not wait for a better value.
    fn ps_per_tick(self) -> f64 {
        let (elapsed, ticks) = (self.at.elapsed(), tsc_clock::now().saturating_sub(self.ticks));
        if elapsed.as_millis() < 1 || ticks == 0 {
            return tsc_clock::ns_per_tick() * 1e3;
        }
        elapsed.as_nanos() as f64 * 1e3 / ticks as f64
    }
}

/// What a node's chips have recorded.
#[derive(Debug)]
pub(crate) struct Records {
    pub(crate) epoch: Epoch,
    /// The record of each chip, and what the chip was last seen doing.
    pub(crate) chips: Vec<(Record, LastSeen)>,
    /// When this was read.
    pub(crate) now: u64,
}

impl Records {
    /// Drops impossible entries: those that began before recording began, or ended after the record was read.
    pub(crate) fn checked(mut self) -> Records {
        let times = self.epoch.ticks..=self.now;
        for (record, _) in &mut self.chips {
            record
                .entries
                .retain(|entry| times.contains(&entry.start) && times.contains(&entry.end));
            record.under_way.take_if(|task| !times.contains(&task.start));
        }
        self
    }
}

/// The recent entries of each chip, for the report of a failure.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recent {
    /// Chip by chip.
    pub chips: Box<[RecentChip]>,
}

/// The recent entries of one chip.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecentChip {
    /// The workers above the chip, below the one that reports; empty if that is its node.
    pub path: String,
    /// The chip.
    pub device: Device,
    /// One line for each entry, the newest last, such as `task add, 3.2 us, ended 12 us before`.
    pub lines: Vec<String>,
}

/// The number of entries per chip in a report.
const RECENT: usize = 6;

impl Recent {
    /// Whether nothing was recorded.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.chips.iter().all(|chip| chip.lines.is_empty())
    }

    /// The same, from the view of the worker above.
    pub(crate) fn below(&self, child: &str) -> impl Iterator<Item = RecentChip> {
        self.chips.iter().map(move |chip| RecentChip {
            path: match chip.path.as_str() {
                "" => child.to_owned(),
                path => format!("{child}, {path}"),
            },
            ..chip.clone()
        })
    }
}

impl fmt::Display for Recent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut first = true;
        for chip in self.chips.iter().filter(|chip| !chip.lines.is_empty()) {
            f.write_str(if std::mem::take(&mut first) { "" } else { "\n" })?;
            if !chip.path.is_empty() {
                write!(f, "{}, ", chip.path)?;
            }
            write!(f, "chip {}", chip.device)?;
            for line in &chip.lines {
                write!(f, "\n  {line}")?;
            }
        }
        Ok(())
    }
}

impl State {
    /// What each chip did last, before now.
    pub(crate) fn recent(&self) -> Recent {
        let Some(records) = self.backend.records().map(Records::checked) else {
            return Recent::default();
        };
        let scale = records.epoch.ps_per_tick();
        let chips = self.devices.iter().zip(&records.chips);
        Recent {
            chips: chips
                .map(|(device, (record, seen))| RecentChip {
                    path: String::new(),
                    device: *device,
                    lines: last_of(record, seen, (records.now, scale), &self.signal_names),
                })
                .collect(),
        }
    }
}

fn last_of(record: &Record, seen: &LastSeen, (now, scale): (u64, f64), names: &SignalNames) -> Vec<String> {
    let shown = |entry: &&Entry| !matches!(entry.what, What::Notify { .. });
    let mut entries: Vec<&Entry> = record.entries.iter().filter(shown).collect();
    entries.sort_by_key(|entry| entry.end);
    let from = entries.len().saturating_sub(RECENT);
    let time = |ticks| ShowPs(rounded(scaled(ticks, scale)));
    let mut lines: Vec<String> = entries[from..]
        .iter()
        .map(|entry| {
            let (took, ago) = (time(entry.end - entry.start), time(now - entry.end));
            format!("{}, {took}, ended {ago} before", label(entry, names))
        })
        .collect();
    if let Some(task) = &record.under_way {
        let (name, ago) = (&task.text, time(now - task.start));
        lines.push(format!(
            "task {name}, begun {ago} before and not done, in: {}",
            seen.what
        ));
    }
    lines
}

/// Such as `wait for signal "full"[0] of rank 1 (kernel.rs:12)`.
fn label(entry: &Entry, names: &SignalNames) -> String {
    let what = match &entry.what {
        What::Task { failed, .. } => {
            let failed = if *failed { " (failed)" } else { "" };
            return format!("task {}{failed}", entry.text);
        }
        What::Wait {
            rank,
            index,
            queue,
            cell,
        } => match names.of(*cell).filter(|_| !*queue) {
            Some(name) => format!("wait for signal {name} of rank {rank}"),
            None => {
                let what = if *queue { "queue" } else { "signal" };
                format!("wait for {what} {index} of rank {rank}")
            }
        },
        What::Notify { .. } => "notify".into(),
        What::Work { name, .. } => (*name).to_owned(),
    };
    let line = entry.text.rsplit('/').next().unwrap_or(&entry.text);
    if line.is_empty() {
        what
    } else {
        format!("{what} ({line})")
    }
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "ticks and scale are positive, and casts saturate"
)]
fn scaled(ticks: u64, ps_per_tick: f64) -> u64 {
    (ticks as f64 * ps_per_tick) as u64
}

/// Rounded to three digits.
fn rounded(ps: u64) -> u64 {
    let unit = 10u64.pow(ps.max(1).ilog10().saturating_sub(2));
    ps / unit * unit
}

/// One node's part of a timeline.
#[derive(Debug)]
pub(crate) struct Part<'a> {
    /// The prefix of the names of its rows.
    pub(crate) prefix: String,
    pub(crate) devices: &'a [Device],
    pub(crate) records: Records,
    pub(crate) log: &'a TaskHistory,
    /// Segments that it shares with other nodes, under the same number.
    pub(crate) wide: &'a [Segment],
    /// The names of its signals.
    pub(crate) names: &'a SignalNames,
}

/// Identifies a signal's cell: the node and the cell, or only the cell if several nodes share it.
type Place = (Option<usize>, u64);

impl Part<'_> {
    /// The cell with this number in the records of this node's chips.
    fn place(&self, node: usize, cell: u64) -> Place {
        let shared = self.wide.iter().any(|segment| u64::from(segment.0) == cell >> 32);
        ((!shared).then_some(node), cell)
    }
}

/// The timelines of simulated nodes in one, with the name of the node before each row if there are several.
pub(crate) fn beside(mut nodes: Vec<(&str, Timeline)>) -> Timeline {
    if nodes.len() == 1
        && let Some((_, alone)) = nodes.pop()
    {
        return alone;
    }
    let mut all = Timeline::default();
    for (name, mut timeline) in nodes {
        let first = u32::try_from(all.rows.len()).unwrap_or(u32::MAX);
        all.title = timeline.title;
        all.rows
            .extend(timeline.rows.iter().map(|row| format!("{name}, {row}")));
        for slice in &mut timeline.slices {
            slice.row += first;
        }
        for arrow in &mut timeline.arrows {
            (arrow.from.0, arrow.to.0) = (arrow.from.0 + first, arrow.to.0 + first);
        }
        for load in &mut timeline.loads {
            load.name = format!("{name}, {}", load.name);
        }
        all.slices.extend(timeline.slices);
        all.arrows.extend(timeline.arrows);
        all.loads.extend(timeline.loads);
    }
    all.sort();
    all
}

/// The timeline of some nodes, which share the clock.
pub(crate) fn assemble(title: String, parts: &[Part<'_>]) -> Timeline {
    let starts = parts.iter().flat_map(|part| {
        let entries = part.records.chips.iter().flat_map(|(record, _)| {
            let under_way = record.under_way.iter().map(|task| task.start);
            record.entries.iter().map(|entry| entry.start).chain(under_way)
        });
        entries.chain(part.log.on_host().map(|hosted| hosted.start))
    });
    let origin = starts.min().unwrap_or(0);
    let scale = parts.first().map_or(1.0, |part| part.records.epoch.ps_per_tick());
    let mut timeline = Timeline {
        title,
        ..Timeline::default()
    };
    let mut assembly = Assembly {
        timeline: &mut timeline,
        origin,
        scale,
        tasks: BTreeMap::new(),
        notifies: BTreeMap::new(),
        waits: Vec::new(),
        conditions: Vec::new(),
    };
    for (node, part) in parts.iter().enumerate() {
        assembly.add(node, part);
    }
    assembly.signal_arrows();
    timeline.sort();
    timeline
}

/// A node's part while it is added to a timeline.
struct Assembly<'a> {
    timeline: &'a mut Timeline,
    origin: u64,
    scale: f64,
    /// Where and when each task of the part's engine ran: one or more of (row, start, end).
    tasks: BTreeMap<u64, Vec<(u32, u64, u64)>>,
    /// The notifies of each signal: time and row.
    notifies: BTreeMap<Place, Vec<(u64, u32)>>,
    /// The waits for each signal: row, start and end.
    waits: Vec<(Place, u32, (u64, u64))>,
    /// The row and the start, in picoseconds, of a task that waited for a signal.
    conditions: Vec<(Place, u32, u64)>,
}

impl Assembly<'_> {
    fn ps(&self, ticks: u64) -> u64 {
        scaled(ticks.saturating_sub(self.origin), self.scale)
    }

    fn row(&mut self, name: String) -> u32 {
        self.timeline.rows.push(name);
        u32::try_from(self.timeline.rows.len() - 1).unwrap_or(u32::MAX)
    }

    fn slice(
        &mut self,
        row: u32,
        kind: Kind,
        (start, end): (u64, u64),
        label: String,
        bytes: u64,
    ) -> (u64, u64) {
        let start_ps = self.ps(start);
        let end_ps = self.ps(end).max(start_ps + 1);
        self.timeline.slices.push(Slice {
            row,
            kind,
            start_ps,
            end_ps,
            label,
            bytes,
        });
        (start_ps, end_ps)
    }

    fn ran(&mut self, task: Option<u64>, row: u32, (start, end): (u64, u64)) {
        if let Some(task) = task {
            self.tasks.entry(task).or_default().push((row, start, end));
        }
    }

    fn add(&mut self, node: usize, part: &Part<'_>) {
        self.tasks.clear();
        for (device, (record, _)) in part.devices.iter().zip(&part.records.chips) {
            let mut rows: [Option<u32>; CORE_NAMES.len() + 1] = [None; CORE_NAMES.len() + 1];
            rows[0] = Some(self.row(format!("{}chip {device}", part.prefix)));
            // 0 is the chip itself; then come the cores that its own graphs run on.
            for (core, name) in (1..).zip(CORE_NAMES) {
                let used = record.entries.iter().any(|entry| usize::from(entry.core) == core);
                rows[core] = used.then(|| self.row(format!("{}chip {device}, {name}", part.prefix)));
            }
            // For the chip's own graphs: when each task ended, by number, and which task waited for which.
            let mut inner: BTreeMap<u64, (u32, u64)> = BTreeMap::new();
            let mut inner_waits: Vec<(u64, u32, u64)> = Vec::new();
            for entry in &record.entries {
                let Some(&Some(row)) = rows.get(usize::from(entry.core)) else {
                    continue;
                };
                let times = (entry.start, entry.end);
                match &entry.what {
                    What::Task {
                        number,
                        after,
                        failed,
                    } => {
                        let label = format!("{}{}", entry.text, if *failed { " (failed)" } else { "" });
                        let times = self.slice(row, Kind::Task, times, label, 0);
                        if entry.core == 0 {
                            self.ran(part.log.task(*number), row, times);
                        } else {
                            inner.insert(*number, (row, times.1));
                            inner_waits.extend(after.map(|after| (after, row, times.0)));
                        }
                    }
                    What::Wait { cell, .. } => {
                        let label = label(entry, part.names);
                        let label = label.strip_prefix("wait for ").unwrap_or(&label).to_owned();
                        self.slice(row, Kind::Wait, times, label, 0);
                        self.waits.push((part.place(node, *cell), row, times));
                    }
                    What::Notify { cell } => {
                        let notified = self.notifies.entry(part.place(node, *cell));
                        notified.or_default().push((entry.start, row));
                    }
                    What::Work { name, bytes } => {
                        let moves = matches!(*name, "copy" | "load" | "store");
                        let kind = if moves { Kind::Transfer } else { Kind::Compute };
                        self.slice(row, kind, times, label(entry, part.names), *bytes);
                    }
                }
            }
            let arrows = inner_waits.iter().filter_map(|&(after, to, start)| {
                let &(from, end) = inner.get(&after)?;
                let to = (to, start.max(end));
                (start + 1 >= end).then_some(Arrow {
                    from: (from, end),
                    to,
                })
            });
            self.timeline.arrows.extend(arrows);
            if let (Some(task), Some(row)) = (&record.under_way, rows[0]) {
                let label = format!("{} (not done)", task.text);
                let times = self.slice(row, Kind::Task, (task.start, part.records.now), label, 0);
                self.ran(part.log.task(task.number), row, times);
            }
        }
        let used: BTreeSet<u32> = part.log.on_host().map(|hosted| hosted.sub_worker).collect();
        let mut hosts = BTreeMap::new();
        for number in used {
            let name = match number {
                0 => format!("{}host", part.prefix),
                _ => format!("{}host {number}", part.prefix),
            };
            hosts.insert(number, self.row(name));
        }
        for hosted in part.log.on_host() {
            let row = hosts[&hosted.sub_worker];
            let times = self.slice(
                row,
                Kind::Task,
                (hosted.start, hosted.end),
                hosted.name.clone(),
                0,
            );
            self.ran(Some(hosted.task), row, times);
        }
        self.task_arrows(part.log);
        for (cell, task) in part.log.signals() {
            let place = part.place(node, cell);
            let ran = self.tasks.get(&task).into_iter().flatten();
            self.conditions
                .extend(ran.map(|&(row, start, _)| (place, row, start)));
        }
    }

    /// Adds arrows from the last notify of another row to the wait that it ended, and from the last notify to the task
    /// that it started.
    fn signal_arrows(mut self) {
        let mut notifies = std::mem::take(&mut self.notifies);
        notifies.values_mut().for_each(|times| times.sort_unstable());
        for (cell, row, (start, end)) in &std::mem::take(&mut self.waits) {
            let of_cell = notifies.get(cell).map_or(&[][..], |times| times);
            let before = &of_cell[..of_cell.partition_point(|(at, _)| at <= end)];
            if let Some((at, from)) = before.last().filter(|(at, from)| at >= start && from != row) {
                self.timeline.arrows.push(Arrow {
                    from: (*from, self.ps(*at)),
                    to: (*row, self.ps(*end).max(self.ps(*start) + 1)),
                });
            }
        }
        for (cell, row, start) in std::mem::take(&mut self.conditions) {
            let of_cell = notifies.get(&cell).map_or(&[][..], |times| times);
            let before = &of_cell[..of_cell.partition_point(|(at, _)| self.ps(*at) <= start)];
            if let Some((at, from)) = before.last() {
                self.timeline.arrows.push(Arrow {
                    from: (*from, self.ps(*at)),
                    to: (row, start),
                });
            }
        }
    }

    /// Adds arrows from the end of a task, on the chip where it ended last, to the starts of the tasks that waited for
    /// it.
    fn task_arrows(&mut self, log: &TaskHistory) {
        let edges: BTreeSet<(u64, u64)> = log.edges().collect();
        for (before, after) in edges {
            let last = self
                .tasks
                .get(&before)
                .and_then(|ran| ran.iter().max_by_key(|ran| ran.2));
            let (Some(&(from, _, end)), Some(then)) = (last, self.tasks.get(&after)) else {
                continue;
            };
            for &(to, start, _) in then.iter().filter(|(_, start, _)| *start >= end) {
                self.timeline.arrows.push(Arrow {
                    from: (from, end),
                    to: (to, start),
                });
            }
        }
    }
}
