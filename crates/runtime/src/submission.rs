//! Submission: how a task gets into the graph of a node, with its conditions, its memory and where it runs.

use crate::backend::Order;
use crate::error::{Error, Result};
use crate::host_tasks::Closure;
use crate::node::{CHIP, HOST, State};
use crate::orchestrator::Orchestrator;
use crate::run_to_completion::Progress;
use crate::task_binding::{BoundTask, Parts, signal_id};
use ringwork_engine::{Condition, Executor, Outcome, Place, Spec, TaskId};
use ringwork_isa::{Device, Segment, Task};
use std::sync::Arc;

impl Orchestrator<'_> {
    /// Submits a kernel to a chip.
    ///
    /// # Errors
    /// If the chip or the arguments cannot be used; or the failure of an earlier task.
    pub fn submit(&self, device: Device, task: Task) -> Result<TaskId> {
        let mut state = self.node.lock();
        let chip = state.chip(device)?;
        state.check_alive(chip)?;
        let (mut spec, mut segments) = self.begin(&mut state, Place::On(executor(chip)))?;
        let bound = state.bind(chip, &task, &mut spec, &mut segments)?;
        for &(arg, tag) in &self.conditions.extra {
            state.bind_extra(chip, arg, tag, &mut spec, &mut segments)?;
        }
        drop(state);
        let parts = Parts::Chips(vec![(chip, bound)]);
        self.accept(&spec, parts, segments)
    }

    /// Submits a kernel to whichever chip is free first, among those that have all the memory it uses.
    ///
    /// # Errors
    /// As [`submit`](Orchestrator::submit); or if no chip has all of it, or an argument means something else
    /// on every chip.
    pub fn anywhere(&self, task: Task) -> Result<TaskId> {
        let mut state = self.node.lock();
        state.check_open()?;
        let (mut spec, mut segments) = self.begin(&mut state, Place::Any(CHIP))?;
        let chips = state.bind_anywhere(&task, &mut spec, &mut segments)?;
        for &(arg, tag) in &self.conditions.extra {
            state.bind_on_host(arg, tag, &mut spec, &mut segments)?;
        }
        let every =
            (0..state.devices.len()).all(|chip| chips.contains(&chip) || state.check_alive(chip).is_err());
        if every {
            drop(state);
            let parts = Parts::Anywhere(task);
            return self.accept(&spec, parts, segments);
        }
        // Only some chips have all of its memory: pick among them round-robin.
        state.turn = state.turn.wrapping_add(1);
        let chip = chips[state.turn % chips.len()];
        spec.place = Place::On(executor(chip));
        spec.accesses.clear();
        let bound = state.bind(chip, &task, &mut spec, &mut segments)?;
        for &(arg, tag) in &self.conditions.extra {
            state.bind_on_host(arg, tag, &mut spec, &mut segments)?;
        }
        drop(state);
        let parts = Parts::Chips(vec![(chip, bound)]);
        self.accept(&spec, parts, segments)
    }

    /// Submits a kernel to several chips that start together: all of it is checked before any of it is sent,
    /// and it starts when all its chips are free. They do nothing else until it is done.
    ///
    /// # Errors
    /// As [`submit`](Orchestrator::submit); nothing was sent then.
    pub fn group(
        &self,
        devices: impl IntoIterator<Item = Device>,
        mut task: impl FnMut(Device) -> Result<Task>,
    ) -> Result<TaskId> {
        let (mut spec, mut segments) = self.begin(&mut self.node.lock(), Place::Group(Vec::new()))?;
        let mut members: Vec<(usize, Task)> = Vec::new();
        for device in devices {
            // The lock is not held here, because the closure may use the node.
            let task = task(device)?;
            let state = self.node.lock();
            let chip = state.chip(device)?;
            state.check_alive(chip)?;
            if members.iter().any(|(other, _)| *other == chip) {
                return Err(Error::config("group", format!("device {device} is there twice")));
            }
            members.push((chip, state.bind(chip, &task, &mut spec, &mut segments)?));
        }
        let state = self.node.lock();
        for &(arg, tag) in &self.conditions.extra {
            state.bind_on_host(arg, tag, &mut spec, &mut segments)?;
        }
        drop(state);
        spec.place = match &members[..] {
            [] => return Err(Error::config("group", "a group has at least one member")),
            // A group of one chip is an ordinary task, which may queue on its chip.
            [(chip, _)] => Place::On(executor(*chip)),
            _ => Place::Group(members.iter().map(|(chip, _)| executor(*chip)).collect()),
        };
        let parts = Parts::Chips(members);
        self.accept(&spec, parts, segments)
    }

    /// Submits a closure that runs on the host when its turn has come: after the tasks that this orchestrator's
    /// tasks come [after](Orchestrator::after), or that touch what they [read](Orchestrator::reads) or
    /// [write](Orchestrator::writes). It may read and write that; reading or writing other memory is a race.
    ///
    /// It runs on a thread beside the orchestration's, one of a few; the orchestration goes on. On a simulated
    /// worker it runs on the orchestration's own, while that waits.
    ///
    /// # Errors
    /// As [`submit`](Orchestrator::submit). If the closure fails, what needs it is cancelled, and the run
    /// fails with its name and its words.
    pub fn host_task<E: std::fmt::Display>(
        &self,
        name: &str,
        closure: impl FnOnce() -> std::result::Result<(), E> + Send + 'static,
    ) -> Result<TaskId> {
        let mut state = self.node.lock();
        state.check_open()?;
        let (mut spec, mut segments) = self.begin(&mut state, Place::Any(HOST))?;
        for &(arg, tag) in &self.conditions.extra {
            state.bind_on_host(arg, tag, &mut spec, &mut segments)?;
        }
        drop(state);
        let parts = Parts::Host(name.into());
        let closure: Closure = Box::new(|| closure().map_err(|error| error.to_string()));
        self.accept_with(&spec, parts, segments, Some(closure))
    }

    /// The part that does not depend on where it runs.
    fn begin(&self, state: &mut State, place: Place) -> Result<(Spec, Vec<Segment>)> {
        let mut spec = Spec::new(place);
        let mut segments = Vec::new();
        spec.priority = self.conditions.priority;
        spec.after.extend_from_slice(&self.conditions.after);
        for (conditions, into) in [
            (&self.conditions.when, &mut spec.when),
            (&self.conditions.until, &mut spec.until),
        ] {
            for &(signal, compare, operand) in conditions {
                state.bind_signal(&signal, &mut segments)?;
                into.push(Condition {
                    signal: signal_id(&signal),
                    compare,
                    operand,
                });
            }
        }
        Ok((spec, segments))
    }

    fn accept(&self, spec: &Spec, parts: Parts, segments: Vec<Segment>) -> Result<TaskId> {
        self.accept_with(spec, parts, segments, None)
    }

    /// Gives a task to the engine, waiting for room.
    fn accept_with(
        &self,
        spec: &Spec,
        parts: Parts,
        segments: Vec<Segment>,
        closure: Option<Closure>,
    ) -> Result<TaskId> {
        let conditions = self.conditions.when.iter().chain(&self.conditions.until);
        let mut work = Arc::new(BoundTask {
            signals: conditions.map(|&(signal, ..)| signal).collect(),
            to_start: self.conditions.when.len(),
            parts,
            segments,
        });
        let mut progress = None;
        loop {
            let mut state = self.node.lock();
            if state.run_is_over() {
                drop(state);
                self.node.wait_for_all()?;
                continue;
            }
            let kept = work.clone();
            match state.engine.submit(spec, work) {
                Err(problem) => return Err(state.refused(problem)),
                Ok(Outcome::Accepted(task)) => {
                    if let Some(closure) = closure {
                        self.node.keep_closure(task, closure);
                    }
                    state.tell_submitted(task, spec, &self.conditions);
                    state.accepted(&kept);
                    // A simulated worker runs closures while it waits, on this thread.
                    if self.node.waiter.is_some() && !state.in_flight.hosts.is_empty() {
                        let hosts = state.take_hosts();
                        drop(state);
                        self.node.start_hosts(hosts);
                    }
                    return Ok(task);
                }
                Ok(Outcome::Full { payload, .. }) => work = payload,
            }
            drop(state);
            self.node.advance(progress.get_or_insert_with(Progress::new));
            self.node.lock().tell(Order::Waited { all: false });
        }
    }
}

fn executor(chip: usize) -> Executor {
    Executor(u32::try_from(chip).unwrap_or(u32::MAX))
}

impl State {
    /// The task is in the graph: its memory is kept, its signals are watched, and it starts if it can.
    fn accepted(&mut self, work: &BoundTask) {
        for segment in &work.segments {
            if let Some(known) = self.segments.get_mut(segment) {
                known.uses += 1;
            }
        }
        for signal in &work.signals {
            self.signals.entry(signal_id(signal)).or_insert((*signal, 0)).1 += 1;
        }
        self.move_on();
    }
}
