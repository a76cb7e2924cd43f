//! Tasks under way: sent, watched, ended, and what happens when one fails.
//!
//! Each chip takes its tasks in the order they were submitted. When a task fails, the domains it uses are
//! aborted, so that its partners end too; everything under way is waited for; the failure that is not
//! merely the echo of another is the one that is reported.
//!
//! # Invariants
//! - **FLY-1 (ends).** [`State::settle`] returns: every task ends by itself, with its chip, by an abort, or
//!   because its chip made no progress for the limit and was ended.
//! - **FLY-2 (clean).** After a failure nothing is under way and the domains of living chips are fresh.

use crate::error::{Cause, Error, Result, TaskFailure};
use crate::node::State;
use ringwork_isa::{Arg, Barrier, ErrorKind, Rank, Segment, Signals, Span, Task};
use ringwork_native::{Event, Failure};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How long the partners of a failed task may take to notice.
const GRACE: Duration = Duration::from_millis(500);

/// How often progress is looked at.
const LOOK: Duration = Duration::from_millis(100);

/// A task that was sent to a chip.
struct Flight {
    chip: usize,
    kernel: String,
    segments: Vec<Segment>,
    /// Tasks of one group have the same number.
    group: u64,
}

/// All tasks under way, and the failures so far.
#[derive(Default)]
pub(crate) struct Flights {
    under_way: BTreeMap<u64, Flight>,
    failures: Vec<Failed>,
    /// Groups that a failure belongs to, and when the last of them came.
    failed_groups: Vec<u64>,
    failed_at: Option<Instant>,
    /// Chips that ended since nothing was under way.
    died: Vec<usize>,
    next: u64,
}

/// A failure, and the dead partner that it is the echo of.
struct Failed {
    failure: TaskFailure,
    dead_partner: Option<usize>,
}

impl Flights {
    /// A number for a task or a group.
    pub(crate) fn fresh(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    pub(crate) fn failed(&self) -> bool {
        !self.failures.is_empty()
    }
}

/// A task with its ranks filled in, and the segments it uses.
pub(crate) struct Bound {
    task: Task,
    segments: Vec<Segment>,
}

impl State {
    /// Fills in the ranks that a chip has in the domains of a task's arguments.
    pub(crate) fn bind(&self, chip: usize, task: &Task) -> Result<Bound> {
        let mut segments = Vec::new();
        let mut args = Vec::with_capacity(task.args.len());
        for arg in &task.args {
            let Some(segment) = arg.segment() else {
                args.push(*arg);
                continue;
            };
            let Some(known) = self.segments.get(&segment).filter(|known| !known.released) else {
                let what = self
                    .segments
                    .get(&segment)
                    .map_or("this memory", |known| &known.what)
                    .to_owned();
                return Err(Error::Released { what });
            };
            let place = known.chips.iter().position(|member| *member == chip);
            let place = place.and_then(|place| u32::try_from(place).ok()).map(Rank);
            let rank = place.ok_or_else(|| Error::NotAMember {
                device: self.devices[chip],
                what: known.what.clone(),
            })?;
            args.push(on_rank(*arg, rank));
            if !segments.contains(&segment) {
                segments.push(segment);
            }
        }
        Ok(Bound {
            task: Task { args, ..task.clone() },
            segments,
        })
    }

    /// Sends a task behind those its chip has, waiting for room.
    pub(crate) fn send(&mut self, chip: usize, group: u64, bound: Bound) -> Result<()> {
        let id = self.flights.fresh();
        let mut progress = Progress::new();
        loop {
            if self.flights.failed() || self.machine.interrupted() {
                return self.settle();
            }
            self.check_alive(chip)?;
            if self.machine.submit(chip, id, &bound.task)? {
                break;
            }
            self.take_events();
            self.machine.wait(Some(Instant::now() + LOOK));
            self.end_the_stuck(&mut progress);
        }
        for segment in &bound.segments {
            if let Some(known) = self.segments.get_mut(segment) {
                known.uses += 1;
            }
        }
        let kernel = bound.task.kernel.to_string();
        self.flights.under_way.insert(
            id,
            Flight {
                chip,
                kernel,
                segments: bound.segments,
                group,
            },
        );
        Ok(())
    }

    /// Waits until nothing is under way.
    ///
    /// # Errors
    /// The root of the failures, if any.
    pub(crate) fn settle(&mut self) -> Result<()> {
        let mut progress = Progress::new();
        let interrupted = loop {
            self.take_events();
            if self.flights.under_way.is_empty() {
                break self.machine.interrupted();
            }
            if self.machine.interrupted() {
                self.end_interrupted();
                break true;
            }
            self.machine.wait(Some(Instant::now() + LOOK));
            self.end_the_stuck(&mut progress);
        };
        let root = self.take_root();
        if root.is_some() || interrupted {
            self.freshen_domains();
        }
        match root {
            _ if interrupted => Err(Error::Interrupted),
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// The failure that explains the others.
    fn take_root(&mut self) -> Option<Error> {
        // An end is recorded before anybody hears of it: it is among the events by now.
        self.take_events();
        let mut failures = std::mem::take(&mut self.flights.failures);
        let died = std::mem::take(&mut self.flights.died);
        self.flights.failed_groups.clear();
        self.flights.failed_at = None;
        let found = failures.iter().position(|failed| !failed.failure.cause.is_echo());
        let mut root = match (found, failures.first()?) {
            (Some(found), _) => failures.remove(found).failure,
            // Nothing but echoes of a chip that had finished its own part, or was dead long before.
            (
                None,
                &Failed {
                    dead_partner: Some(chip),
                    ref failure,
                },
            ) => {
                let (device, how) = (self.devices[chip], self.machine.end(chip)?);
                if !died.contains(&chip) {
                    return Some(Error::Gone { device, cause: how });
                }
                let (worker, kernel) = (failure.worker.clone(), failure.kernel.clone());
                let last_seen = self.machine.last_seen(chip).what;
                let cause = Cause::Ended { how, last_seen };
                let (missing, others) = (Vec::new(), Vec::new());
                TaskFailure {
                    worker,
                    device,
                    kernel,
                    cause,
                    missing,
                    others,
                }
            }
            (None, _) => failures.remove(0).failure,
        };
        root.others = failures
            .into_iter()
            .map(|Failed { failure, .. }| (failure.device, failure.cause))
            .collect();
        root.blame_the_stuck();
        Some(Box::new(root).into())
    }

    fn take_events(&mut self) {
        for event in self.machine.events() {
            match event {
                Event::Ran { task, outcome, .. } => self.ran(task, outcome),
                Event::NotMapped { chip, message, .. } => {
                    let cause = Cause::NotBegun {
                        why: format!("the chip could not map its memory: {message}"),
                    };
                    self.chip_failed(chip, &cause);
                }
                Event::Ended { chip, cause } => {
                    self.flights.died.push(chip);
                    let last_seen = self.machine.last_seen(chip).what;
                    self.chip_failed(
                        chip,
                        &Cause::Ended {
                            how: cause,
                            last_seen,
                        },
                    );
                }
            }
        }
    }

    fn ran(&mut self, task: u64, outcome: std::result::Result<(), Failure>) {
        // An unknown number is a chip that was given up already.
        let Some(flight) = self.flights.under_way.remove(&task) else {
            return;
        };
        if let Err(failure) = outcome {
            self.failed(&flight, Cause::Kernel(failure));
        }
        self.land(&flight);
    }

    fn land(&mut self, flight: &Flight) {
        for segment in &flight.segments {
            self.end_use(*segment);
        }
    }

    /// Everything on a chip fails: the oldest for this cause, the others were never begun.
    fn chip_failed(&mut self, chip: usize, cause: &Cause) {
        let ids: Vec<u64> = self
            .flights
            .under_way
            .iter()
            .filter(|(_, flight)| flight.chip == chip)
            .map(|(id, _)| *id)
            .collect();
        for (i, id) in ids.into_iter().enumerate() {
            let Some(flight) = self.flights.under_way.remove(&id) else {
                continue;
            };
            let why = format!("chip {} is gone", self.devices[chip]);
            self.failed(
                &flight,
                if i == 0 {
                    cause.clone()
                } else {
                    Cause::NotBegun { why }
                },
            );
            self.land(&flight);
        }
    }

    fn failed(&mut self, flight: &Flight, cause: Cause) {
        let device = self.devices[flight.chip];
        let reason = format!("chip {device}, kernel `{}` failed: {cause}", flight.kernel);
        let partners = self
            .flights
            .under_way
            .values()
            .filter(|other| other.group == flight.group);
        let timed_out = matches!(
            &cause,
            Cause::Kernel(Failure::Returned(error)) if matches!(error.kind(), ErrorKind::Deadline { .. })
        );
        let missing = if timed_out {
            partners
                .map(|other| (self.devices[other.chip], self.machine.last_seen(other.chip).what))
                .collect()
        } else {
            Vec::new()
        };
        let dead_partner = self.dead_partner(flight, &cause);
        let first_of_group = !self.flights.failed_groups.contains(&flight.group);
        if first_of_group {
            self.flights.failed_groups.push(flight.group);
        }
        self.flights.failed_at = Some(Instant::now());
        let failure = TaskFailure {
            worker: self.name.clone(),
            device,
            kernel: flight.kernel.clone(),
            cause,
            missing,
            others: Vec::new(),
        };
        self.flights.failures.push(Failed {
            failure,
            dead_partner,
        });
        // Once: the second alarm would only rouse everybody again, and there are as many as members.
        if !first_of_group {
            return;
        }
        for segment in &flight.segments {
            if self.segments.get(segment).is_some_and(|known| known.is_domain) {
                self.machine.abort(*segment, &reason);
            }
        }
    }

    /// The chip whose death a task heard of.
    fn dead_partner(&self, flight: &Flight, cause: &Cause) -> Option<usize> {
        let rank = match cause {
            Cause::Kernel(Failure::Returned(error)) => match error.kind() {
                ErrorKind::PeerDied { rank, .. } => *rank,
                _ => return None,
            },
            Cause::Kernel(Failure::NotBegun { dead, .. }) => (*dead)?,
            _ => return None,
        };
        let domains = flight
            .segments
            .iter()
            .filter_map(|segment| self.segments.get(segment));
        let mut members = domains.filter_map(|known| known.chips.get(rank.0 as usize).copied());
        members.find(|chip| self.machine.end(*chip).is_some())
    }

    /// Ends chips that have begun no instruction for too long.
    fn end_the_stuck(&mut self, progress: &mut Progress) {
        if !progress.is_due() {
            return;
        }
        // Those who were told of a failure have as long to notice from then on.
        let told_for = self.flights.failed_at.map_or(Duration::ZERO, |at| at.elapsed());
        let mut chips: Vec<(usize, bool)> = Vec::new();
        for flight in self.flights.under_way.values() {
            let concerned = self.flights.failed_groups.contains(&flight.group);
            match chips.iter_mut().find(|(chip, _)| *chip == flight.chip) {
                Some((_, failed)) => *failed |= concerned,
                None => chips.push((flight.chip, concerned)),
            }
        }
        for (chip, failed) in chips {
            // A wait may take its whole limit without being stuck; it ends itself then.
            let limit = self.wait_limit + GRACE;
            let seen = self.machine.last_seen(chip);
            let still = progress.still_for(chip, seen.count);
            if still >= limit || failed && still.min(told_for) >= GRACE {
                self.machine.kill(chip);
                self.chip_failed(
                    chip,
                    &Cause::Stuck {
                        after_ms: still.as_millis(),
                        last_seen: seen.what,
                    },
                );
            }
        }
    }

    fn end_interrupted(&mut self) {
        self.abort_all("the run was interrupted");
        let deadline = Instant::now() + GRACE;
        while !self.flights.under_way.is_empty() && Instant::now() < deadline {
            self.take_events();
            // Interrupted waits return at once, so the chips get the core instead.
            std::thread::yield_now();
        }
        let stuck: Vec<usize> = self
            .flights
            .under_way
            .values()
            .map(|flight| flight.chip)
            .collect();
        for chip in stuck {
            self.machine.kill(chip);
            self.chip_failed(
                chip,
                &Cause::NotBegun {
                    why: "interrupted".into(),
                },
            );
        }
    }

    /// Makes the domains of living chips as they were when opened (FLY-2).
    fn freshen_domains(&mut self) {
        for (segment, known) in &self.segments {
            if known.is_domain {
                self.machine.reset(*segment, &known.chips);
            }
        }
    }
}

/// When each chip was last seen to begin an instruction.
struct Progress {
    looked: Instant,
    seen: BTreeMap<usize, (u64, Instant)>,
}

impl Progress {
    fn new() -> Progress {
        Progress {
            looked: Instant::now(),
            seen: BTreeMap::new(),
        }
    }

    /// Whether it is time to look again.
    fn is_due(&mut self) -> bool {
        let now = Instant::now();
        let due = now - self.looked >= LOOK;
        if due {
            self.looked = now;
        }
        due
    }

    fn still_for(&mut self, chip: usize, count: u64) -> Duration {
        let now = Instant::now();
        let entry = self.seen.entry(chip).or_insert((count, now));
        if entry.0 != count {
            *entry = (count, now);
        }
        now - entry.1
    }
}

/// An argument as the chip with this rank sees it.
fn on_rank(arg: Arg, rank: Rank) -> Arg {
    let span = |span: Span| {
        if span.stride == 0 {
            span
        } else {
            Span {
                me: rank,
                rank,
                ..span
            }
        }
    };
    let signals = |row: Signals| Signals { me: rank, ..row };
    match arg {
        Arg::Memory(region) => Arg::Memory(span(region)),
        Arg::Window(region) => Arg::Window(span(region)),
        Arg::Signals(row) => Arg::Signals(signals(row)),
        Arg::Barrier(barrier) => Arg::Barrier(Barrier::new(signals(barrier.signals()))),
        Arg::Value(value) => Arg::Value(value),
    }
}
