//! Looking after ranks until the last one is reaped.

use super::output_prefix::Forwarders;
use super::start::{Process, rendezvous};
use super::{Job, Outcome, Stop, notices};
use crate::error::{Error, Result};
use crate::process::death_watch::End;
use rustix::event::{Timespec, epoll};
use rustix::process::Signal;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// Starts a job's ranks and returns when every one has ended.
///
/// `on_end` hears the outcome as soon as it is known: if it is a failure, before the others are ended. Call this
/// from a thread that lives as long (RANK-1): it returns only then.
///
/// # Errors
/// If a rank cannot be started: those that were are killed and reaped. [`Error::Output`] if tagged output was lost.
pub fn run(job: &Job, stop: &Stop, on_end: &mut dyn FnMut(Outcome)) -> Result<Outcome> {
    let mut forwarders = Forwarders::new();
    // A comfort: without it everything else works.
    let (ours, theirs) = job.on_wait.and_then(|_| notices::channel().ok()).unzip();
    let mut supervisor = Supervisor::new(job, stop, ours)?;
    let rendezvous = rendezvous();
    for (rank, cores) in (0..).zip(job.pin.plan(job.size)) {
        let (process, pipes) = Process::start(job, rank, &rendezvous, cores, theirs.as_ref())?;
        supervisor.add(process)?;
        forwarders
            .add(rank, pipes)
            .map_err(Error::system("starting a thread for output"))?;
    }
    let outcome = supervisor.look_after(on_end)?;
    match forwarders.finish(job.grace) {
        Some(source) => Err(Error::Output { source }),
        None => Ok(outcome),
    }
}

/// How long after an exit with an error to look for a rank that was killed and caused it (RANK-2).
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// How far the ending of a job has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Running,
    /// Asked to end.
    Asked,
    Killed,
}

struct Supervisor<'a> {
    job: &'a Job,
    stop: &'a Stop,
    epoll: OwnedFd,
    /// Where ranks tell of waits that last.
    notices: Option<OwnedFd>,
    ranks: Vec<Process>,
    phase: Phase,
    /// When the phase ends, if it does by time.
    deadline: Option<Instant>,
    outcome: Option<Outcome>,
    /// The first rank that exited with an error, and until when a better explanation is looked for.
    suspect: Option<(u32, End, Instant)>,
}

/// Beside the ranks' own numbers.
const STOP: u64 = u64::MAX;
const NOTICE: u64 = u64::MAX - 1;

impl<'a> Supervisor<'a> {
    fn new(job: &'a Job, stop: &'a Stop, notices: Option<OwnedFd>) -> Result<Supervisor<'a>> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(Error::system("creating an epoll"))?;
        let data = epoll::EventData::new_u64(STOP);
        epoll::add(&epoll, &*stop.eventfd, data, epoll::EventFlags::IN)
            .map_err(Error::system("watching for a stop"))?;
        if let Some(notices) = &notices {
            let data = epoll::EventData::new_u64(NOTICE);
            epoll::add(&epoll, notices, data, epoll::EventFlags::IN)
                .map_err(Error::system("watching for notices"))?;
        }
        Ok(Supervisor {
            job,
            stop,
            epoll,
            notices,
            ranks: Vec::new(),
            phase: Phase::Running,
            deadline: job.limit.map(|limit| Instant::now() + limit),
            outcome: None,
            suspect: None,
        })
    }

    fn add(&mut self, process: Process) -> Result<()> {
        let data = epoll::EventData::new_u64(self.ranks.len() as u64);
        let added = epoll::add(&self.epoll, &process.pidfd, data, epoll::EventFlags::IN);
        self.ranks.push(process);
        added.map_err(Error::system("watching a rank"))
    }

    fn look_after(mut self, on_end: &mut dyn FnMut(Outcome)) -> Result<Outcome> {
        let mut events: Vec<epoll::Event> = Vec::with_capacity(self.ranks.len() + 1);
        while self.ranks.iter().any(|rank| rank.end.is_none()) {
            events.clear();
            let until = self.suspect.map(|(_, _, until)| until);
            let next = self.deadline.into_iter().chain(until).min();
            let left = next.map(|next| timespec(next.saturating_duration_since(Instant::now())));
            match epoll::wait(
                &self.epoll,
                rustix::buffer::spare_capacity(&mut events),
                left.as_ref(),
            ) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(Error::system("waiting for ranks")(error)),
            }
            // The kernel lists them in the order in which they became ready (RANK-2).
            for event in &events {
                self.take(event.data.u64(), on_end);
            }
            if let Some((rank, end, until)) = self.suspect
                && Instant::now() >= until
            {
                self.fail(rank, end, on_end);
            }
            if self.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                self.decide(Outcome::Overdue, on_end);
                self.next_phase();
            }
        }
        if let Some((rank, end, _)) = self.suspect {
            self.fail(rank, end, on_end);
        }
        if self.outcome.is_none() && self.job.keep_going {
            self.outcome = self.outcome_of_survivors();
        }
        self.decide(Outcome::Done, on_end);
        Ok(self.outcome.unwrap_or(Outcome::Done))
    }

    fn take(&mut self, event: u64, on_end: &mut dyn FnMut(Outcome)) {
        if event == STOP {
            let _ = rustix::io::read(&*self.stop.eventfd, &mut [0; 8]);
            self.decide(Outcome::Stopped, on_end);
            self.next_phase();
            return;
        }
        if event == NOTICE {
            let notice = self.notices.as_ref().and_then(notices::next);
            if let (Some(notice), Some(hear)) = (notice, self.job.on_wait) {
                hear(&notice);
            }
            return;
        }
        let Ok(rank) = u32::try_from(event) else { return };
        let Some(process) = self.ranks.get_mut(rank as usize) else {
            return;
        };
        let Some(end) = process.reap() else { return };
        // What has ended stays readable.
        let _ = epoll::delete(&self.epoll, &process.pidfd);
        if end == End::Exited(0) || self.phase != Phase::Running {
            return;
        }
        match (end, self.suspect) {
            _ if self.job.keep_going => on_end(self.failure(rank, end)),
            (End::Killed(_), _) => self.fail(rank, end, on_end),
            (End::Exited(_), None) => self.suspect = Some((rank, end, Instant::now() + LOOK_AGAIN)),
            (End::Exited(_), Some(_)) => {}
        }
    }

    /// Names the rank that failed, and ends the others.
    fn fail(&mut self, rank: u32, end: End, on_end: &mut dyn FnMut(Outcome)) {
        self.suspect = None;
        if self.phase == Phase::Running {
            self.decide(self.failure(rank, end), on_end);
            self.next_phase();
        }
    }

    /// How it is told that a rank failed.
    fn failure(&self, rank: u32, end: End) -> Outcome {
        let exited = matches!(end, End::Exited(_));
        let stopped = (0..)
            .zip(&self.ranks)
            .find(|(_, rank)| exited && rank.is_stopped());
        let stopped = stopped.map(|(rank, _)| rank);
        Outcome::Failed { rank, end, stopped }
    }

    /// The first rank that exited with an error; or the first of all, if every one was killed.
    fn outcome_of_survivors(&self) -> Option<Outcome> {
        let ends = || {
            (0..)
                .zip(&self.ranks)
                .filter_map(|(rank, process)| Some((rank, process.end?)))
        };
        let exited = ends().find(|(_, end)| matches!(end, End::Exited(code) if *code != 0));
        let all_killed = ends().all(|(_, end)| matches!(end, End::Killed(_)));
        let failed = exited.or_else(|| ends().next().filter(|_| all_killed));
        failed.map(|(rank, end)| self.failure(rank, end))
    }

    /// The first outcome stays.
    fn decide(&mut self, outcome: Outcome, on_end: &mut dyn FnMut(Outcome)) {
        if self.outcome.is_none() {
            self.outcome = Some(outcome);
            on_end(outcome);
        }
    }

    /// Asks all to end; if that was done, kills them.
    fn next_phase(&mut self) {
        self.suspect = None;
        let signal = match self.phase {
            Phase::Running => {
                (self.phase, self.deadline) = (Phase::Asked, Some(Instant::now() + self.job.grace));
                Signal::TERM
            }
            Phase::Asked | Phase::Killed => {
                (self.phase, self.deadline) = (Phase::Killed, None);
                Signal::KILL
            }
        };
        for rank in &self.ranks {
            rank.signal(signal);
            if signal == Signal::TERM {
                // One that is stopped hears it only when it goes on.
                rank.signal(Signal::CONT);
            }
        }
    }
}

fn timespec(time: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: time.subsec_nanos().into(),
    }
}
