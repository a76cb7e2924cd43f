//! Dispatch: sends ready tasks to their chips, and processes the ends of tasks.
//!
//! A chip may have several tasks at the same time: it runs them in sending order, so it need not wait for the host
//! between two. [`failures`](crate::failures) handles failed tasks.
//!
//! This is one of three drivers of an engine. It differs from a chip's ([`chip`](crate::chip)) and a pod's
//! ([`pod`](crate::pod)) in what it dispatches to: chips behind a [`Backend`](crate::backend::Backend), which take
//! messages, answer with events, and may die.
//!
//! # Invariants
//! - **DISP-1 (as sent).** A chip runs its tasks in the order in which they were sent.

use crate::backend::{Event, Order};
use crate::error::{Cause, Error};
use crate::node::State;
use crate::task_binding::{BoundTask, Parts, signal_id};
use ringwork_engine::{Completion, Executor, Status, TaskId};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A task that was sent to a chip, or waits for room in its mailbox.
pub(crate) struct SentTask {
    pub(crate) task: TaskId,
    pub(crate) chip: usize,
    pub(crate) work: Arc<BoundTask>,
    /// Which of its parts.
    part: usize,
}

/// All tasks in flight.
#[derive(Default)]
pub(crate) struct InFlight {
    /// By the number in the chip's answers, which counts up.
    pub(crate) under_way: BTreeMap<u64, SentTask>,
    unsent: Unsent,
    /// Host closures whose turn has come.
    pub(crate) hosts: Vec<(TaskId, Executor)>,
    /// How many have begun and not ended.
    pub(crate) hosted: usize,
    /// Tasks that have run and wait for a signal to be done.
    deferred: Vec<(TaskId, Arc<BoundTask>)>,
    next: u64,
}

/// Tasks whose chip had no room, as (chip, number), in sending order.
#[derive(Default)]
struct Unsent(Vec<(usize, u64)>);

impl Unsent {
    fn waits_for(&self, chip: usize) -> bool {
        self.0.iter().any(|(other, _)| *other == chip)
    }

    /// Sends them again. If a chip has no room, its later tasks are not tried: they must not overtake (DISP-1).
    fn retry(&mut self, mut send: impl FnMut(u64) -> bool) {
        let mut full = Vec::new();
        self.0.retain(|&(chip, id)| {
            let waits = full.contains(&chip) || !send(id);
            if waits {
                full.push(chip);
            }
            waits
        });
    }
}

fn executor(chip: usize) -> Executor {
    Executor(u32::try_from(chip).unwrap_or(u32::MAX))
}

impl State {
    /// Processes all events, and starts what can start.
    pub(crate) fn move_on(&mut self) {
        self.take_events();
        self.take_hosted();
        if !self.backend.moving() {
            self.look_at_signals();
        }
        self.start_ready();
    }

    /// The first executor that runs host closures.
    pub(crate) fn first_host(&self) -> Executor {
        executor(self.devices.len())
    }

    /// Host closures that must begin now; they count as begun.
    pub(crate) fn take_hosts(&mut self) -> Vec<(TaskId, Executor)> {
        self.in_flight.hosted += self.in_flight.hosts.len();
        std::mem::take(&mut self.in_flight.hosts)
    }

    /// Sends the tasks that the engine has released.
    pub(crate) fn start_ready(&mut self) {
        let mut unsent = std::mem::take(&mut self.in_flight.unsent);
        unsent.retry(|id| self.send(id));
        self.in_flight.unsent = unsent;
        while let Some(dispatch) = self.engine.ready() {
            let Some(work) = self.engine.payload(dispatch.task).cloned() else {
                continue;
            };
            match &work.parts {
                Parts::Host(_) => self.in_flight.hosts.push((dispatch.task, dispatch.executor)),
                Parts::Anywhere(_) => self.send_part(dispatch.task, dispatch.executor.0 as usize, &work, 0),
                Parts::Chips(parts) => {
                    for (part, (chip, _)) in parts.iter().enumerate() {
                        self.send_part(dispatch.task, *chip, &work, part);
                    }
                }
            }
        }
    }

    fn send_part(&mut self, task: TaskId, chip: usize, work: &Arc<BoundTask>, part: usize) {
        self.in_flight.next += 1;
        let (id, work) = (self.in_flight.next, work.clone());
        let sent = SentTask {
            task,
            chip,
            work,
            part,
        };
        self.in_flight.under_way.insert(id, sent);
        self.history.sent(task.sequence());
        let task = task.sequence();
        self.tell(Order::Sent { id, task });
        if self.in_flight.unsent.waits_for(chip) || !self.send(id) {
            self.in_flight.unsent.0.push((chip, id));
        }
    }

    /// Sends a task to its chip; false if there is no room for now.
    fn send(&mut self, id: u64) -> bool {
        let Some(sent) = self.in_flight.under_way.get(&id) else {
            return true;
        };
        let task = match &sent.work.parts {
            Parts::Chips(parts) => Cow::Borrowed(&parts[sent.part].1),
            Parts::Anywhere(task) => Cow::Owned(self.bind_late(sent.chip, task)),
            Parts::Host(_) => return true,
        };
        match self.backend.submit(sent.chip, id, &task) {
            Ok(accepted) => return accepted,
            // The end of the chip is among the events to come, and fails all its tasks.
            Err(Error::Gone { .. }) => {}
            Err(error) => {
                let outcome = Cause::NotBegun {
                    why: error.to_string(),
                };
                self.ended_on_chip(id, Some(outcome));
            }
        }
        true
    }

    pub(crate) fn take_events(&mut self) {
        for event in self.backend.events() {
            match event {
                Event::Ran { task, outcome, .. } => {
                    self.ended_on_chip(task, outcome.err().map(Cause::Kernel))
                }
                Event::NotMapped { chip, message } => {
                    let why = format!("the chip could not map its memory: {message}");
                    self.fail_all_on(chip, &Cause::NotBegun { why });
                }
                Event::Ended { chip, cause } => {
                    self.failures.ended_chips.push(chip);
                    let last_seen = self.backend.last_seen(chip).what;
                    let how = cause;
                    self.lose(chip, &Cause::Ended { how, last_seen });
                }
            }
        }
    }

    /// A chip is done with its part of a task.
    fn ended_on_chip(&mut self, id: u64, failed: Option<Cause>) {
        // An unknown number belongs to a chip that was given up already.
        let Some(sent) = self.in_flight.under_way.remove(&id) else {
            return;
        };
        let on = executor(sent.chip);
        let reported = match failed {
            None => {
                let waiting = self.engine.successors(sent.task).map(TaskId::sequence);
                self.history.waited_for(sent.task.sequence(), waiting);
                self.tell_ended(sent.task);
                let cells = sent.work.cells_to_start();
                self.history.waited_for_signals(sent.task.sequence(), cells);
                self.engine.complete(sent.task, on)
            }
            Some(cause) => {
                self.failed(&sent, cause);
                self.engine.fail(sent.task, on, ())
            }
        };
        match reported {
            Ok(Completion::Partial { .. }) => {}
            Ok(Completion::Deferred) => self.in_flight.deferred.push((sent.task, sent.work)),
            // An error means that the engine has given the task up already.
            Ok(Completion::Finished) | Err(_) => self.release_uses(&sent.work),
        }
    }

    /// All tasks on a chip fail: the oldest for this cause; the others had not started.
    fn fail_all_on(&mut self, chip: usize, cause: &Cause) {
        for (index, id) in self.sent_to(chip).into_iter().enumerate() {
            let cause = if index == 0 {
                cause.clone()
            } else {
                self.gone(chip)
            };
            self.ended_on_chip(id, Some(cause));
        }
    }

    fn sent_to(&self, chip: usize) -> Vec<u64> {
        let under_way = self.in_flight.under_way.iter();
        let here = under_way.filter(|(_, sent)| sent.chip == chip);
        here.map(|(id, _)| *id).collect()
    }

    fn gone(&self, chip: usize) -> Cause {
        let why = format!("chip {} is gone", self.devices[chip]);
        Cause::NotBegun { why }
    }

    /// A chip is dead: its tasks have failed, and tasks that could only run there are cancelled.
    pub(crate) fn lose(&mut self, chip: usize, cause: &Cause) {
        let mut over = Vec::new();
        for (index, id) in self.sent_to(chip).into_iter().enumerate() {
            let cause = if index == 0 {
                cause.clone()
            } else {
                self.gone(chip)
            };
            if let Some(sent) = self.in_flight.under_way.remove(&id) {
                self.failed(&sent, cause);
                over.push(sent);
            }
        }
        // An error means that this was handled before: a chip that was killed because it was stuck is reported as ended
        // now.
        let affected = self.engine.lose(executor(chip), ()).unwrap_or(0);
        if affected > 0 {
            let device = self.devices[chip];
            let cause = self.backend.end(chip).unwrap_or_else(|| cause.to_string());
            self.record_error(Error::Gone { device, cause });
        }
        for sent in over {
            let mut others = self.in_flight.under_way.values();
            if !others.any(|other| other.task == sent.task) {
                self.release_uses(&sent.work);
            }
        }
    }

    /// A task has ended and releases its memory.
    pub(crate) fn release_uses(&mut self, work: &BoundTask) {
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

    /// Releases the tasks whose signal has its value.
    pub(crate) fn release_deferred(&mut self) {
        let mut done = Vec::new();
        let engine = &self.engine;
        self.in_flight.deferred.retain(|(task, work)| {
            let waits = engine.status(*task) == Ok(Status::Deferred);
            if !waits {
                done.push(work.clone());
            }
            waits
        });
        for work in done {
            self.release_uses(&work);
        }
    }

    /// Such as `kernel `add` on chip 0, 1`.
    pub(crate) fn describe(&self, work: &BoundTask) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_that_found_no_room_are_sent_in_order_as_soon_as_there_is_some() {
        let mut unsent = Unsent(vec![(0, 1), (0, 2), (1, 3), (0, 4)]);
        let mut room = [2, 0];
        let mut sent = Vec::new();
        let mut try_all = |unsent: &mut Unsent, room: &mut [i32; 2]| {
            unsent.retry(|id| {
                let chip = usize::from(id == 3);
                let fits = room[chip] > 0;
                if fits {
                    room[chip] -= 1;
                    sent.push(id);
                }
                fits
            });
        };
        try_all(&mut unsent, &mut room);
        assert!(unsent.waits_for(0) && unsent.waits_for(1));
        room = [1, 1];
        try_all(&mut unsent, &mut room);
        assert!(!unsent.waits_for(0) && !unsent.waits_for(1));
        assert_eq!(sent, [1, 2, 3, 4]);
    }
}
