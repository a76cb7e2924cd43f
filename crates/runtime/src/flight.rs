//! Tasks under way: started when the engine says so, watched, ended, and what happens when one fails.
//!
//! The engine decides what may start where; a chip takes what it is sent in order, a little ahead of what it
//! runs. When a task fails, the domains it uses are aborted, so that its partners end too; what needs it is
//! cancelled, everything else finishes; the failure that is not merely the echo of another is the one that is
//! reported.
//!
//! # Invariants
//! - **FLY-1 (as sent).** What a chip is sent, it runs in the order it was sent.
//! - **FLY-2 (clean).** After a failure nothing is under way and the domains of living chips are fresh.

use crate::engine::{Completion, Executor, Status, TaskId};
use crate::error::{Cause, Error, TaskFailure};
use crate::node::State;
use crate::segments::Sort;
use crate::timeline::Recent;
use crate::work::{Parts, Work, signal_id};
use ringwork_isa::ErrorKind;
use ringwork_native::{Event, Failure};
use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

/// A task that was sent to a chip, or that has a place in the line to be.
pub(crate) struct Flight {
    pub(crate) task: TaskId,
    pub(crate) chip: usize,
    work: Arc<Work>,
    /// Which of its parts.
    part: usize,
}

/// All tasks under way, and the failures so far.
#[derive(Default)]
pub(crate) struct Flights {
    /// By the number that the chip answers with, which grows.
    pub(crate) under_way: BTreeMap<u64, Flight>,
    /// Those whose chip had no room, in order.
    unsent: VecDeque<u64>,
    /// Host closures whose turn it is.
    pub(crate) hosts: Vec<(TaskId, Executor)>,
    /// How many have begun and not ended.
    pub(crate) hosted: usize,
    /// Tasks that have run and wait for a signal to be done.
    deferred: Vec<(TaskId, Arc<Work>)>,
    failures: Vec<Failed>,
    /// What each chip did before the first of them.
    recent: Option<Recent>,
    /// What went wrong first, if it was no task of a chip.
    first: Option<Error>,
    /// Tasks that a failure belongs to, and when the last of them came.
    pub(crate) failed_tasks: Vec<TaskId>,
    pub(crate) failed_at: Option<Instant>,
    /// Chips that ended since nothing was under way.
    died: Vec<usize>,
    next: u64,
}

/// A failure, and the dead partner that it is the echo of.
struct Failed {
    failure: TaskFailure,
    dead_partner: Option<usize>,
}

fn executor(chip: usize) -> Executor {
    Executor(u32::try_from(chip).unwrap_or(u32::MAX))
}

impl State {
    /// Takes in what has happened, and starts what can be started.
    pub(crate) fn move_on(&mut self) {
        self.take_events();
        self.take_hosted();
        if !self.machine.moving() {
            self.look_at_signals();
        }
        self.start_ready();
    }

    /// The first of those that run host closures.
    pub(crate) fn first_host(&self) -> Executor {
        executor(self.devices.len())
    }

    /// Host closures that are to begin now; they count as begun.
    pub(crate) fn take_hosts(&mut self) -> Vec<(TaskId, Executor)> {
        self.flights.hosted += self.flights.hosts.len();
        std::mem::take(&mut self.flights.hosts)
    }

    /// Sends what the engine lets go.
    pub(crate) fn start_ready(&mut self) {
        for _ in 0..self.flights.unsent.len() {
            if let Some(id) = self.flights.unsent.pop_front() {
                self.send(id);
            }
        }
        while let Some(dispatch) = self.engine.ready() {
            let Some(work) = self.engine.payload(dispatch.task).cloned() else {
                continue;
            };
            match &work.parts {
                Parts::Host(_) => self.flights.hosts.push((dispatch.task, dispatch.executor)),
                Parts::Anywhere(_) => self.take_off(dispatch.task, dispatch.executor.0 as usize, &work, 0),
                Parts::Chips(parts) => {
                    for (part, (chip, _)) in parts.iter().enumerate() {
                        self.take_off(dispatch.task, *chip, &work, part);
                    }
                }
            }
        }
    }

    fn take_off(&mut self, task: TaskId, chip: usize, work: &Arc<Work>, part: usize) {
        self.flights.next += 1;
        let (id, work) = (self.flights.next, work.clone());
        let flight = Flight {
            task,
            chip,
            work,
            part,
        };
        self.flights.under_way.insert(id, flight);
        self.log.sent(task);
        self.send(id);
    }

    /// Sends a task behind those its chip has; if there is no room it keeps its place in the line (FLY-1).
    fn send(&mut self, id: u64) {
        let Some(flight) = self.flights.under_way.get(&id) else {
            return;
        };
        let under_way = &self.flights.under_way;
        let behind = |other: &u64| {
            under_way
                .get(other)
                .is_some_and(|other| other.chip == flight.chip)
        };
        if self.flights.unsent.iter().any(behind) {
            self.flights.unsent.push_back(id);
            return;
        }
        let task = match &flight.work.parts {
            Parts::Chips(parts) => Cow::Borrowed(&parts[flight.part].1),
            Parts::Anywhere(task) => Cow::Owned(self.bind_late(flight.chip, task)),
            Parts::Host(_) => return,
        };
        match self.machine.submit(flight.chip, id, &task) {
            Ok(true) => {}
            Ok(false) => self.flights.unsent.push_back(id),
            // Its end is among the events to come, and fails all it has.
            Err(ringwork_native::Error::ChipGone { .. }) => {}
            Err(error) => {
                let outcome = Cause::NotBegun {
                    why: error.to_string(),
                };
                self.landed(id, Some(outcome));
            }
        }
    }

    pub(crate) fn take_events(&mut self) {
        for event in self.machine.events() {
            match event {
                Event::Ran { task, outcome, .. } => self.landed(task, outcome.err().map(Cause::Kernel)),
                Event::NotMapped { chip, message, .. } => {
                    let why = format!("the chip could not map its memory: {message}");
                    self.fail_all_on(chip, &Cause::NotBegun { why });
                }
                Event::Ended { chip, cause } => {
                    self.flights.died.push(chip);
                    let last_seen = self.machine.last_seen(chip).what;
                    let how = cause;
                    self.lose(chip, &Cause::Ended { how, last_seen });
                }
            }
        }
    }

    /// A chip is done with its part of a task.
    fn landed(&mut self, id: u64, failed: Option<Cause>) {
        // An unknown number is of a chip that was given up already.
        let Some(flight) = self.flights.under_way.remove(&id) else {
            return;
        };
        let on = executor(flight.chip);
        let reported = match failed {
            None => {
                self.log
                    .waited_for(flight.task, self.engine.successors(flight.task));
                self.engine.complete(flight.task, on)
            }
            Some(cause) => {
                self.failed(&flight, cause);
                self.engine.fail(flight.task, on, ())
            }
        };
        match reported {
            Ok(Completion::Partial { .. }) => {}
            Ok(Completion::Deferred) => self.flights.deferred.push((flight.task, flight.work)),
            // An error means that the engine has given the task up already.
            Ok(Completion::Finished) | Err(_) => self.let_go(&flight.work),
        }
    }

    /// Everything on a chip fails: the oldest for this cause, the others were never begun.
    fn fail_all_on(&mut self, chip: usize, cause: &Cause) {
        for (index, id) in self.flights_on(chip).into_iter().enumerate() {
            let cause = if index == 0 {
                cause.clone()
            } else {
                self.gone(chip)
            };
            self.landed(id, Some(cause));
        }
    }

    fn flights_on(&self, chip: usize) -> Vec<u64> {
        let under_way = self.flights.under_way.iter();
        let here = under_way.filter(|(_, flight)| flight.chip == chip);
        here.map(|(id, _)| *id).collect()
    }

    fn gone(&self, chip: usize) -> Cause {
        let why = format!("chip {} is gone", self.devices[chip]);
        Cause::NotBegun { why }
    }

    /// A chip is gone: what it had has failed, and what could only run there is cancelled.
    pub(crate) fn lose(&mut self, chip: usize, cause: &Cause) {
        let mut over = Vec::new();
        for (index, id) in self.flights_on(chip).into_iter().enumerate() {
            let cause = if index == 0 {
                cause.clone()
            } else {
                self.gone(chip)
            };
            if let Some(flight) = self.flights.under_way.remove(&id) {
                self.failed(&flight, cause);
                over.push(flight);
            }
        }
        // Lost before: a chip that was ended for being stuck, and whose end is reported now.
        let affected = self.engine.lose(executor(chip), ()).unwrap_or(0);
        if affected > 0 && self.flights.failures.is_empty() {
            let device = self.devices[chip];
            let cause = self.machine.end(chip).unwrap_or_else(|| cause.to_string());
            self.went_wrong(Error::Gone { device, cause });
        }
        for flight in over {
            let mut others = self.flights.under_way.values();
            if !others.any(|other| other.task == flight.task) {
                self.let_go(&flight.work);
            }
        }
    }

    /// Something failed that is no task of a chip; the first such error, or the task's before it, is the run's.
    pub(crate) fn went_wrong(&mut self, error: Error) {
        if self.flights.failures.is_empty() {
            self.flights.first.get_or_insert(error);
        }
    }

    /// A task is over: it no longer keeps its memory.
    pub(crate) fn let_go(&mut self, work: &Work) {
        for segment in &work.segments {
            self.end_use(*segment);
        }
        for signal in &work.signals {
            let id = signal_id(signal);
            if let Some((_, waiting)) = self.signals.get_mut(&id) {
                *waiting -= 1;
                if *waiting == 0 {
                    self.signals.remove(&id);
                }
            }
        }
    }

    /// Lets go of tasks whose signal has come.
    pub(crate) fn land_deferred(&mut self) {
        let mut done = Vec::new();
        let engine = &self.engine;
        self.flights.deferred.retain(|(task, work)| {
            let waits = engine.status(*task) == Ok(Status::Deferred);
            if !waits {
                done.push(work.clone());
            }
            waits
        });
        for work in done {
            self.let_go(&work);
        }
    }

    fn failed(&mut self, flight: &Flight, cause: Cause) {
        if self.flights.recent.is_none() {
            self.flights.recent = Some(self.recent());
        }
        let device = self.devices[flight.chip];
        let kernel = flight.work.to_string();
        let reason = format!("chip {device}, kernel `{kernel}` failed: {cause}");
        let under_way = self.flights.under_way.values();
        let partners = under_way.filter(|other| other.task == flight.task);
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
        let first_of_task = !self.flights.failed_tasks.contains(&flight.task);
        if first_of_task {
            self.flights.failed_tasks.push(flight.task);
        }
        self.flights.failed_at = Some(Instant::now());
        let failure = TaskFailure {
            worker: self.name.clone(),
            device,
            kernel,
            cause,
            missing,
            others: Vec::new(),
            cancelled: Vec::new(),
            recent: Recent::default(),
        };
        self.flights.failures.push(Failed {
            failure,
            dead_partner,
        });
        // Once: the second alarm would only rouse everybody again, and there are as many as members.
        if !first_of_task {
            return;
        }
        for segment in &flight.work.segments {
            if self
                .segments
                .get(segment)
                .is_some_and(|known| known.sort != Sort::Private)
            {
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
        let segments = flight.work.segments.iter();
        let domains = segments.filter_map(|segment| self.segments.get(segment));
        let mut members = domains.filter_map(|known| known.members.chip_of(rank));
        members.find(|chip| self.machine.end(*chip).is_some())
    }

    /// The error of a run that has failed, now that nothing is left of it; the next one starts clean.
    pub(crate) fn take_root(&mut self) -> Option<Error> {
        // An end is recorded before anybody hears of it: it is among the events by now.
        self.take_events();
        let failures = std::mem::take(&mut self.flights.failures);
        let died = std::mem::take(&mut self.flights.died);
        let first = self.flights.first.take();
        let recent = self.flights.recent.take().unwrap_or_default();
        self.flights.failed_tasks.clear();
        self.flights.failed_at = None;
        if self.engine.failure().is_none() && failures.is_empty() && first.is_none() {
            return None;
        }
        let cancelled = self.end_run();
        let mut root = match first {
            Some(error) => return Some(error),
            None => self.root_of(failures, &died)?,
        };
        if let Error::Task(failure) = &mut root {
            failure.cancelled = cancelled;
            failure.recent = recent;
        }
        Some(root)
    }

    /// The failure that explains the others.
    fn root_of(&self, mut failures: Vec<Failed>, died: &[usize]) -> Option<Error> {
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
                let last_seen = self.machine.last_seen(chip).what;
                TaskFailure {
                    worker: failure.worker.clone(),
                    device,
                    kernel: failure.kernel.clone(),
                    cause: Cause::Ended { how, last_seen },
                    missing: Vec::new(),
                    others: Vec::new(),
                    cancelled: Vec::new(),
                    recent: Recent::default(),
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

    /// Makes the engine as new; returns the tasks that never ran, as a person reads them.
    pub(crate) fn end_run(&mut self) -> Vec<String> {
        self.forget_intermediates();
        let Ok(mut report) = self.engine.end_run() else {
            return Vec::new();
        };
        report.cancelled.sort_unstable_by_key(|cancelled| cancelled.task);
        let mut names = Vec::with_capacity(report.cancelled.len());
        for work in report
            .cancelled
            .iter()
            .filter_map(|cancelled| cancelled.payload.as_ref())
        {
            names.push(self.describe(work));
            self.let_go(work);
        }
        names
    }

    /// Such as `kernel `add` on chip 0, 1`.
    pub(crate) fn describe(&self, work: &Work) -> String {
        match &work.parts {
            Parts::Host(name) => format!("host task `{name}`"),
            Parts::Anywhere(task) => format!("kernel `{}`", task.kernel),
            Parts::Chips(parts) => {
                let devices: Vec<_> = parts.iter().map(|(chip, _)| self.devices[*chip]).collect();
                format!("kernel `{work}` on chip {}", crate::domain::list(&devices))
            }
        }
    }
}
