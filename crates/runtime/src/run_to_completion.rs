//! Running to completion: the loop that waits until every task is done, has failed, or can never be done.
//!
//! # Invariants
//! - **RUN-1 (ends).** [`Shared::wait_for_all`] returns, because every task ends: by itself, with its chip, by an
//!   abort, because its chip made no progress for the limit and was killed, because the signal that it waits for did
//!   not come within the limit, or because no task is left that could change that signal. Host closures must end too
//!   (HOST-2).
//! - **RUN-2 (unlocked).** The node is not locked while a thread waits, where the backend allows that.

use crate::error::{Cause, Error, Result, millis};
use crate::node::{Shared, State};
use crate::segments::Sort;
use ringwork_engine::{Link, TaskId};
use ringwork_isa::{Signal, Waited};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::MutexGuard;
use std::time::{Duration, Instant};

/// How long the partners of a failed task may take to end.
const GRACE: Duration = Duration::from_millis(500);

/// How long a wait lasts before it is reported, and how many such waits one report lists.
const NOTICE: Duration = Duration::from_secs(3);
const SHOWN: usize = 4;

/// The interval of progress checks.
const LOOK: Duration = Duration::from_millis(100);

/// How often to read signals that a task waits for, where a wait does not end when they change.
const SIGNAL_LOOK: Duration = Duration::from_micros(50);

/// The outcome of a step.
pub(crate) enum Step {
    /// Nothing is left.
    Over,
    /// Something has changed.
    Moving,
    /// Wait for an event, at most this long.
    Wait(Duration),
    /// Wait for host closures: only they are left of an interrupted run.
    Hosts,
}

impl Shared {
    /// Waits until nothing is left.
    ///
    /// # Errors
    /// The root of the failures, if any.
    pub(crate) fn wait_for_all(&self) -> Result<()> {
        let mut progress = Progress::new();
        // While the host waits for its tasks, it serves no ports.
        self.lock().attend(false);
        while !self.advance(&mut progress) {}
        let mut state = self.lock();
        state.tell_waited_for_all();
        let settled = state.end_run_with_outcome();
        drop(state);
        // The closures of cancelled tasks.
        drop(self.take_closures());
        settled
    }

    /// The node, once everything is done that was submitted; or at once for a host task, whose memory is
    /// ready and which is itself not done.
    ///
    /// # Errors
    /// As [`wait_for_all`](Self::wait_for_all), or that it is closed.
    pub(crate) fn lock_when_idle(&self) -> Result<MutexGuard<'_, State>> {
        let state = self.lock();
        state.check_open()?;
        if state.is_host_task() {
            return Ok(state);
        }
        drop(state);
        self.wait_for_all()?;
        Ok(self.lock())
    }

    /// Waits for one event and processes it; returns whether nothing is left.
    pub(crate) fn advance(&self, progress: &mut Progress) -> bool {
        let mut state = self.lock();
        let step = state.step(progress);
        let hosts = state.take_hosts();
        drop(state);
        self.start_hosts(hosts);
        match step {
            Step::Over => return true,
            Step::Moving => {}
            Step::Hosts => {
                self.finished.wait(LOOK);
                self.tell_of_wait();
            }
            Step::Wait(look) => self.wait(look, progress),
        }
        false
    }

    /// Waits for an event, and regularly ends what would never end by itself.
    fn wait(&self, look: Duration, progress: &mut Progress) {
        let deadline = Some(Instant::now() + look);
        match &self.waiter {
            Some(waiter) => waiter.wait(deadline),
            None => self.lock().backend.wait(deadline),
        };
        if progress.is_due() {
            self.tell_of_wait();
            let mut state = self.lock();
            state.end_the_stuck(progress);
            state.end_the_overdue(progress);
            state.tell_of_waits(progress);
        }
    }
}

impl Shared {
    fn tell_of_wait(&self) {
        let goes_on = self.on_wait.as_ref().is_none_or(|hear| hear());
        if !goes_on {
            self.lock().backend.interrupter().interrupt();
        }
    }
}

impl State {
    /// Whether the run refuses new work.
    pub(crate) fn run_is_over(&self) -> bool {
        self.engine.failure().is_some() || self.backend.interrupted()
    }

    fn step(&mut self, progress: &mut Progress) -> Step {
        self.move_on();
        if self.engine.live() == 0 {
            return Step::Over;
        }
        // A host that waits for its tasks does not answer the kernels at its ports. After a failure it never will.
        let attends = progress.watches.is_some();
        if !attends && self.engine.failure().is_some() && self.failures.abandoned.is_empty() {
            let why = self.first_failure().unwrap_or_default();
            self.abandon_ports(&why);
        }
        if self.backend.interrupted() {
            self.end_interrupted();
            let closures = self.in_flight.hosted > 0;
            return if closures { Step::Hosts } else { Step::Over };
        }
        if !self.in_flight.hosts.is_empty() {
            return Step::Moving;
        }
        if self.engine.is_stalled() {
            // On a simulated machine a task may end before its last notification has arrived.
            self.watch(progress.watches);
            if !self.backend.settle() {
                self.end_stalled();
            }
            return Step::Moving;
        }
        Step::Wait(self.watch(progress.watches))
    }

    /// Nothing is left: returns the failure, if there was one.
    fn end_run_with_outcome(&mut self) -> Result<()> {
        let interrupted = self.backend.interrupted();
        // A kernel may have ended well although its port was aborted.
        let abandoned = !self.failures.abandoned.is_empty();
        let root = self.take_root_cause();
        if root.is_some() || interrupted || abandoned {
            self.reset_domains();
        }
        // A race explains whatever else went wrong.
        let faults = self.backend.take_faults();
        if !faults.is_empty() && !interrupted {
            let worker = self.name.clone();
            return Err(Error::Faults { worker, faults });
        }
        match root {
            _ if interrupted => Err(Error::Interrupted),
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// Tells the machine which signals are waited for; returns how long to wait before reading them.
    fn watch(&mut self, mine: Option<Signal>) -> Duration {
        let of_tasks = self.engine.watched();
        let of_tasks = of_tasks.filter_map(|watched| self.signals.get(&watched.signal));
        let watched: Vec<Signal> = of_tasks.map(|(signal, _)| *signal).chain(mine).collect();
        let told = self.backend.watch(&watched);
        if told || watched.is_empty() {
            LOOK
        } else {
            SIGNAL_LOOK
        }
    }

    /// Passes the values of the signals that tasks wait for to the engine.
    pub(crate) fn look_at_signals(&mut self) {
        if self.signals.is_empty() {
            return;
        }
        let watched: Vec<_> = self.engine.watched().collect();
        for watched in watched {
            let signal = self.signals.get(&watched.signal);
            let value = signal.and_then(|(signal, _)| self.backend.peek(signal));
            if value != watched.value
                && let Some(value) = value
            {
                self.engine.signal_changed(watched.signal, value);
            }
        }
        self.release_deferred();
    }

    /// Such as `signal "full"[0] of rank 1 in window "tp" >= 3, it is 0`.
    fn describe_condition(&self, condition: &ringwork_engine::Condition, value: Option<i32>) -> String {
        let (compare, operand) = (condition.compare, condition.operand);
        let Some((signal, _)) = self.signals.get(&condition.signal) else {
            return condition.to_string();
        };
        let known = self.segments.get(&signal.segment());
        let what = known.map_or("released memory", |known| &known.what);
        let (index, rank) = (signal.index(), signal.rank());
        let cell = Waited::cell_of(signal);
        let name = cell.and_then(|cell| self.signal_names.of(cell));
        let name = name.unwrap_or_else(|| index.to_string());
        let is = value.map_or_else(|| "it cannot be read".into(), |value| format!("it is {value}"));
        format!("signal {name} of rank {rank} in {what} {compare} {operand}, {is}")
    }

    fn describe_task(&self, task: TaskId) -> String {
        let work = self.engine.payload(task);
        work.map_or_else(|| task.to_string(), |work| self.describe(work))
    }

    /// A deadlock: no task runs and none can start, so the signals that tasks wait for cannot change.
    fn end_stalled(&mut self) {
        let Some(stall) = self.engine.stall() else { return };
        let mut chains = Vec::with_capacity(stall.chains.len());
        for chain in &stall.chains {
            let mut text = self.describe_task(chain.task);
            for link in &chain.links {
                text += " waits for ";
                text += &match link {
                    Link::Task(task) => self.describe_task(*task),
                    Link::Signal(condition, value) => self.describe_condition(condition, *value),
                };
            }
            chains.push(text);
        }
        let (worker, left) = (self.name.clone(), stall.live);
        let recent = self.recent();
        self.record_error(Error::Stalled {
            worker,
            left,
            chains,
            recent,
        });
        self.engine.cancel_all(());
        self.release_deferred();
    }

    /// Fails tasks that have waited only for signals for longer than the limit.
    fn end_the_overdue(&mut self, progress: &mut Progress) {
        if self.signals.is_empty() {
            return;
        }
        let waiting = self.engine.what_waits();
        let since = |task| waiting.iter().any(|waiting| waiting.only && waiting.task == task);
        progress.waiting.retain(|task, _| since(*task));
        for waiting in waiting.iter().filter(|waiting| waiting.only) {
            let since = progress.waiting.entry(waiting.task).or_insert_with(Instant::now);
            if since.elapsed() < self.wait_limit {
                continue;
            }
            let after_ms = millis(since.elapsed());
            let waited_for = self.describe_condition(&waiting.condition, waiting.value);
            let work = self.engine.payload(waiting.task);
            let task = work.map_or_else(String::new, ToString::to_string);
            let (worker, deferred) = (self.name.clone(), waiting.deferred);
            self.record_error(Error::Overdue {
                worker,
                task,
                deferred,
                after_ms,
                waited_for,
                stopped: self.stopped(),
                recent: self.recent(),
            });
            // An error means that it was cancelled together with another task.
            let _ = self.engine.cancel(waiting.task, ());
        }
        self.release_deferred();
    }

    /// Kills chips that have begun no instruction for longer than the limit.
    fn end_the_stuck(&mut self, progress: &mut Progress) {
        // Partners of a failed task have their time from the moment of the failure.
        let told_for = self.failures.last_at.map_or(Duration::ZERO, |at| at.elapsed());
        let mut chips: Vec<(usize, bool)> = Vec::new();
        for sent in self.in_flight.under_way.values() {
            let abandoned = |segment| self.failures.abandoned.contains(segment);
            let concerned =
                self.failures.tasks.contains(&sent.task) || sent.work.segments.iter().any(abandoned);
            match chips.iter_mut().find(|(chip, _)| *chip == sent.chip) {
                Some((_, failed)) => *failed |= concerned,
                None => chips.push((sent.chip, concerned)),
            }
        }
        for (chip, failed) in chips {
            // A kernel's wait ends itself at its own limit, so a chip counts as stuck only after that.
            let limit = self.wait_limit + GRACE;
            let seen = self.backend.last_seen(chip);
            let still = progress.still_for(chip, seen.count);
            if still >= limit || failed && still.min(told_for) >= GRACE {
                // Read before the chip is killed.
                let stopped = self.backend.stopped(chip).is_some();
                let stopped = if stopped { "; a signal had stopped it" } else { "" };
                self.backend.kill(chip);
                let cause = Cause::Stuck {
                    after_ms: millis(still),
                    last_seen: seen.what + stopped,
                };
                self.lose(chip, &cause);
            }
        }
    }

    fn end_interrupted(&mut self) {
        self.engine.cancel_all(());
        for (task, on) in std::mem::take(&mut self.in_flight.hosts) {
            self.host_task_done(task, on, Err(Error::Interrupted));
        }
        self.abort_all("the run was interrupted");
        let deadline = Instant::now() + GRACE;
        while !self.in_flight.under_way.is_empty() && Instant::now() < deadline {
            self.take_events();
            // Interrupted waits return at once, so the chips get the core instead.
            std::thread::yield_now();
        }
        let stuck: Vec<usize> = self.in_flight.under_way.values().map(|sent| sent.chip).collect();
        for chip in stuck {
            self.backend.kill(chip);
            let why = "interrupted".into();
            self.lose(chip, &Cause::NotBegun { why });
        }
        self.release_deferred();
    }

    /// Resets the domains of living chips to their state when opened (FAIL-1).
    fn reset_domains(&mut self) {
        for (segment, known) in &self.segments {
            if known.sort == Sort::Domain {
                self.backend.reset(*segment, &known.members);
            }
        }
    }
}

/// Waits that last.
impl State {
    /// Reports every long wait once, with what it waits for.
    fn tell_of_waits(&mut self, progress: &mut Progress) {
        if self.on_long_wait.is_none() {
            return;
        }
        let mut lasting = Vec::new();
        for sent in self.in_flight.under_way.values() {
            let seen = self.backend.last_seen(sent.chip);
            let lasts = progress.still_for(sent.chip, seen.count) >= NOTICE;
            if lasts && progress.told_chips.insert(sent.chip, seen.count) != Some(seen.count) {
                let (device, kernel) = (self.devices[sent.chip], sent.work.to_string());
                lasting.push(format!("chip {device}, kernel `{kernel}`, in: {}", seen.what));
            }
        }
        for waiting in self.engine.what_waits().iter().filter(|waiting| waiting.only) {
            let since = progress.waiting.get(&waiting.task);
            if since.is_some_and(|since| since.elapsed() >= NOTICE)
                && progress.told_tasks.insert(waiting.task)
            {
                let condition = self.describe_condition(&waiting.condition, waiting.value);
                lasting.push(format!("{} for {condition}", self.describe_task(waiting.task)));
            }
        }
        if lasting.is_empty() {
            return;
        }
        let more = lasting.len().saturating_sub(SHOWN);
        lasting.truncate(SHOWN);
        if more > 0 {
            lasting.push(format!("and {more} more"));
        }
        let (seconds, stopped) = (NOTICE.as_secs(), self.stopped());
        let text = format!(
            "{} has waited {seconds} s: {}{stopped}",
            self.name,
            lasting.join("; ")
        );
        if let Some(hear) = &mut self.on_long_wait {
            hear(&text);
        }
    }
}

/// When each chip was last seen to begin an instruction, and since when tasks wait for signals.
pub(crate) struct Progress {
    looked: Instant,
    seen: BTreeMap<usize, (u64, Instant)>,
    waiting: BTreeMap<TaskId, Instant>,
    /// Chips whose wait was reported, with the count of instructions they had begun then.
    told_chips: BTreeMap<usize, u64>,
    told_tasks: BTreeSet<TaskId>,
    /// The signal that the host itself waits for.
    watches: Option<Signal>,
}

impl Progress {
    pub(crate) fn new() -> Progress {
        Progress {
            looked: Instant::now(),
            seen: BTreeMap::new(),
            waiting: BTreeMap::new(),
            told_chips: BTreeMap::new(),
            told_tasks: BTreeSet::new(),
            watches: None,
        }
    }

    /// For a host that waits for a signal.
    pub(crate) fn watching(signal: Signal) -> Progress {
        Progress {
            watches: Some(signal),
            ..Progress::new()
        }
    }

    /// Whether the next progress check is due.
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
