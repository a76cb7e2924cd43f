//! The failures of a run, and which of them is the root cause.
//!
//! One failure causes others: when a task fails, its domains are aborted so that its partners end too, and each of
//! them reports that a partner failed. Such an *echo* is reported only if no other failure is known; otherwise the
//! root cause is reported.
//!
//! # Invariants
//! - **FAIL-1 (clean).** After a failure no task is running, and the domains of living chips are reset.

use crate::backend::Failure;
use crate::dispatch::SentTask;
use crate::error::{Cause, Error, Stopped, TaskFailure};
use crate::node::State;
use crate::segments::Sort;
use crate::timeline::Recent;
use ringwork_engine::TaskId;
use ringwork_isa::{ErrorKind, Segment};
use std::time::Instant;

/// The failures of a run so far.
#[derive(Default)]
pub(crate) struct Failures {
    of_tasks: Vec<Failed>,
    /// The recent entries of each chip before the first failure.
    recent: Option<Recent>,
    /// The first failure that did not come from a chip's task, if no task failed before it.
    first: Option<Error>,
    /// The failed tasks, and the time of the last failure.
    pub(crate) tasks: Vec<TaskId>,
    pub(crate) last_at: Option<Instant>,
    /// Ports of a failed orchestration, whose kernels were ended.
    pub(crate) abandoned: Vec<Segment>,
    /// Chips that have ended since the node was last idle.
    pub(crate) ended_chips: Vec<usize>,
}

/// A failure. If it only reports that a partner died, the dead partner.
struct Failed {
    failure: TaskFailure,
    dead_partner: Option<usize>,
}

impl State {
    /// Records an error that is not a chip's task. The run returns the first such error, unless a task failed
    /// before it.
    pub(crate) fn record_error(&mut self, error: Error) {
        if self.failures.of_tasks.is_empty() {
            self.failures.first.get_or_insert(error);
        }
    }

    /// A chip failed its part of a task: records it, and ends its partners.
    pub(crate) fn failed(&mut self, sent: &SentTask, cause: Cause) {
        if self.failures.recent.is_none() {
            self.failures.recent = Some(self.recent());
        }
        let cause = match cause {
            Cause::Kernel(Failure::Returned(error)) => {
                Cause::Kernel(Failure::Returned(self.with_names(error)))
            }
            other => other,
        };
        let device = self.devices[sent.chip];
        let kernel = sent.work.to_string();
        let reason = format!("chip {device}, kernel `{kernel}` failed: {cause}");
        let under_way = self.in_flight.under_way.values();
        let partners = under_way.filter(|other| other.task == sent.task);
        let timed_out = cause.is_timeout();
        let missing = if timed_out {
            partners
                .map(|other| (self.devices[other.chip], self.backend.last_seen(other.chip).what))
                .collect()
        } else {
            Vec::new()
        };
        let stopped = if timed_out {
            self.stopped()
        } else {
            Stopped::default()
        };
        let dead_partner = self.dead_partner(sent, &cause);
        let first_of_task = !self.failures.tasks.contains(&sent.task);
        if first_of_task {
            self.failures.tasks.push(sent.task);
        }
        self.failures.last_at = Some(Instant::now());
        let failure = TaskFailure {
            worker: self.name.clone(),
            device,
            kernel,
            cause,
            missing,
            stopped,
            others: Vec::new(),
            cancelled: Vec::new(),
            recent: Recent::default(),
        };
        self.failures.of_tasks.push(Failed {
            failure,
            dead_partner,
        });
        // The alarm is raised once per task: every member fails, and each further alarm would wake all waiters again.
        if !first_of_task {
            return;
        }
        for segment in &sent.work.segments {
            if self
                .segments
                .get(segment)
                .is_some_and(|known| known.sort != Sort::Private)
            {
                self.backend.abort(*segment, &reason);
            }
        }
    }

    /// The chips whose processes are stopped now.
    pub(crate) fn stopped(&self) -> Stopped {
        let devices = self.devices.iter().enumerate();
        let stopped = |(chip, device)| Some((format!("chip {device}"), self.backend.stopped(chip)?));
        Stopped {
            chips: devices.filter_map(stopped).collect(),
        }
    }

    /// The first failure of a run that continues to its end, if there was one.
    pub(crate) fn first_failure(&self) -> Option<String> {
        let of_tasks = &self.failures.of_tasks;
        let root = of_tasks
            .iter()
            .find(|failed| !failed.failure.cause.is_echo())
            .or(of_tasks.first());
        let first = self.failures.first.as_ref().map(ToString::to_string);
        first.or_else(|| root.map(|failed| failed.failure.to_string()))
    }

    /// Ends the kernels at open ports, which the host does not serve any more once the run has failed.
    pub(crate) fn abandon_ports(&mut self, why: &str) {
        let reason = format!("the run has failed: {why}");
        let mut ports: Vec<Segment> = self.ports.keys().copied().collect();
        ports.retain(|port| !self.unused(*port));
        for segment in &ports {
            self.backend.abort(*segment, &reason);
        }
        self.failures.abandoned.extend(ports);
        self.failures.last_at.get_or_insert_with(Instant::now);
    }

    /// The dead chip that a task's failure reports, if it reports one.
    fn dead_partner(&self, sent: &SentTask, cause: &Cause) -> Option<usize> {
        let rank = match cause {
            Cause::Kernel(Failure::Returned(error)) => match error.kind() {
                ErrorKind::PeerDied { rank, .. } => *rank,
                _ => return None,
            },
            Cause::Kernel(Failure::NotBegun { dead, .. }) => (*dead)?,
            _ => return None,
        };
        let segments = sent.work.segments.iter();
        let domains = segments.filter_map(|segment| self.segments.get(segment));
        let mut members = domains.filter_map(|known| known.members.chip_of(rank));
        members.find(|chip| self.backend.end(*chip).is_some())
    }

    /// The error of a failed run, once no task of it is left; the next run starts clean.
    pub(crate) fn take_root_cause(&mut self) -> Option<Error> {
        // The end of a chip is recorded before its partners are told, so its event is here by now.
        self.take_events();
        let failures = std::mem::take(&mut self.failures.of_tasks);
        let died = std::mem::take(&mut self.failures.ended_chips);
        let first = self.failures.first.take();
        let recent = self.failures.recent.take().unwrap_or_default();
        self.failures.tasks.clear();
        self.failures.last_at = None;
        self.failures.abandoned.clear();
        if self.engine.failure().is_none() && failures.is_empty() && first.is_none() {
            return None;
        }
        let cancelled = self.end_run();
        let mut root = match first {
            Some(error) => return Some(error),
            None => self.root_cause(failures, &died)?,
        };
        if let Error::Task(failure) = &mut root {
            failure.cancelled = cancelled;
            failure.recent = recent;
        }
        Some(root)
    }

    /// The root cause.
    fn root_cause(&self, mut failures: Vec<Failed>, died: &[usize]) -> Option<Error> {
        let found = failures.iter().position(|failed| !failed.failure.cause.is_echo());
        let mut root = match (found, failures.first()?) {
            (Some(found), _) => failures.remove(found).failure,
            // There are only echoes: the chip that died had finished its own part, or was dead before the run.
            (
                None,
                &Failed {
                    dead_partner: Some(chip),
                    ref failure,
                },
            ) => {
                let (device, how) = (self.devices[chip], self.backend.end(chip)?);
                if !died.contains(&chip) {
                    return Some(Error::Gone { device, cause: how });
                }
                let last_seen = self.backend.last_seen(chip).what;
                TaskFailure {
                    worker: failure.worker.clone(),
                    device,
                    kernel: failure.kernel.clone(),
                    cause: Cause::Ended { how, last_seen },
                    missing: Vec::new(),
                    stopped: Stopped::default(),
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

    /// Resets the engine; returns the tasks that never ran, as text.
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
            self.release_uses(work);
        }
        names
    }
}
