//! A task on its way into the graph: what it waits for beside its memory, and where it runs.

use crate::engine::{Condition, Executor, Outcome, Place, Spec, TaskId};
use crate::error::{Error, Result};
use crate::host::Closure;
use crate::node::{CHIP, HOST, Shared, State};
use crate::settle::Progress;
use crate::work::{Parts, Work, signal_id};
use ringwork_isa::{Arg, Argument, Compare, Device, Element, In, InOut, Out, Segment, Signal, Tag, Task};
use std::sync::Arc;

/// Conditions of a task, to be ended by what it is: [`submit`](Submission::submit),
/// [`anywhere`](Submission::anywhere), [`group`](Submission::group) or [`host_task`](Submission::host_task).
///
/// ```no_run
/// # use ringwork_runtime::{Orchestrator, Device, Result, TaskId};
/// # fn orchestration(orch: &mut Orchestrator<'_>, first: TaskId, task: ringwork_isa::Task) -> Result<()> {
/// orch.after(first).priority(3).submit(Device(0), task)?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "nothing is submitted until it says what"]
pub struct Submission<'o> {
    node: &'o Shared,
    priority: i8,
    after: Vec<TaskId>,
    when: Vec<(Signal, Compare, i32)>,
    until: Vec<(Signal, Compare, i32)>,
    extra: Vec<(Arg, Tag)>,
}

impl<'o> Submission<'o> {
    pub(crate) fn new(node: &'o Shared) -> Submission<'o> {
        Submission {
            node,
            priority: 0,
            after: Vec::new(),
            when: Vec::new(),
            until: Vec::new(),
            extra: Vec::new(),
        }
    }

    /// See [`Orchestrator::after`](crate::Orchestrator::after).
    pub fn after(mut self, task: TaskId) -> Self {
        self.after.push(task);
        self
    }

    /// See [`Orchestrator::priority`](crate::Orchestrator::priority).
    pub fn priority(mut self, priority: i8) -> Self {
        self.priority = priority;
        self
    }

    /// See [`Orchestrator::when`](crate::Orchestrator::when).
    pub fn when(mut self, signal: Signal, compare: Compare, operand: i32) -> Self {
        self.when.push((signal, compare, operand));
        self
    }

    /// See [`Orchestrator::until`](crate::Orchestrator::until).
    pub fn until(mut self, signal: Signal, compare: Compare, operand: i32) -> Self {
        self.until.push((signal, compare, operand));
        self
    }

    /// See [`Orchestrator::reads`](crate::Orchestrator::reads).
    pub fn reads<T: Element>(mut self, memory: &impl Argument<In<T>>) -> Self {
        self.extra.push((memory.to_arg(), Tag::Input));
        self
    }

    /// See [`Orchestrator::writes`](crate::Orchestrator::writes).
    pub fn writes<T: Element>(mut self, memory: &impl Argument<Out<T>>) -> Self {
        self.extra.push((memory.to_arg(), Tag::Output));
        self
    }

    /// See [`Orchestrator::updates`](crate::Orchestrator::updates).
    pub fn updates<T: Element>(mut self, memory: &impl Argument<InOut<T>>) -> Self {
        self.extra.push((memory.to_arg(), Tag::InOut));
        self
    }

    /// See [`Orchestrator::submit`](crate::Orchestrator::submit).
    ///
    /// # Errors
    /// As there.
    pub fn submit(self, device: Device, task: Task) -> Result<TaskId> {
        let mut state = self.node.lock();
        let chip = state.chip(device)?;
        state.check_alive(chip)?;
        let (mut spec, mut segments) = self.begin(&mut state, Place::On(executor(chip)))?;
        let bound = state.bind(chip, &task, &mut spec, &mut segments)?;
        for &(arg, tag) in &self.extra {
            state.bind_extra(chip, arg, tag, &mut spec, &mut segments)?;
        }
        drop(state);
        let parts = Parts::Chips(vec![(chip, bound)]);
        self.accept(&spec, parts, segments)
    }

    /// See [`Orchestrator::anywhere`](crate::Orchestrator::anywhere).
    ///
    /// # Errors
    /// As there.
    pub fn anywhere(self, task: Task) -> Result<TaskId> {
        let mut state = self.node.lock();
        state.check_open()?;
        let (mut spec, mut segments) = self.begin(&mut state, Place::Any(CHIP))?;
        let chips = state.bind_anywhere(&task, &mut spec, &mut segments)?;
        for &(arg, tag) in &self.extra {
            state.bind_on_host(arg, tag, &mut spec, &mut segments)?;
        }
        let every =
            (0..state.devices.len()).all(|chip| chips.contains(&chip) || state.check_alive(chip).is_err());
        if every {
            drop(state);
            let parts = Parts::Anywhere(task);
            return self.accept(&spec, parts, segments);
        }
        // Some have its memory: they take turns.
        state.turn = state.turn.wrapping_add(1);
        let chip = chips[state.turn % chips.len()];
        spec.place = Place::On(executor(chip));
        spec.accesses.clear();
        let bound = state.bind(chip, &task, &mut spec, &mut segments)?;
        for &(arg, tag) in &self.extra {
            state.bind_on_host(arg, tag, &mut spec, &mut segments)?;
        }
        drop(state);
        let parts = Parts::Chips(vec![(chip, bound)]);
        self.accept(&spec, parts, segments)
    }

    /// See [`Orchestrator::group`](crate::Orchestrator::group).
    ///
    /// # Errors
    /// As there.
    pub fn group(
        self,
        devices: impl IntoIterator<Item = Device>,
        mut task: impl FnMut(Device) -> Result<Task>,
    ) -> Result<TaskId> {
        let (mut spec, mut segments) = self.begin(&mut self.node.lock(), Place::Group(Vec::new()))?;
        let mut members: Vec<(usize, Task)> = Vec::new();
        for device in devices {
            // Not under the lock: the closure may well ask the node for something.
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
        for &(arg, tag) in &self.extra {
            state.bind_on_host(arg, tag, &mut spec, &mut segments)?;
        }
        drop(state);
        spec.place = match &members[..] {
            [] => return Err(Error::config("group", "a group has at least one member")),
            // Alone it may wait in its chip's line.
            [(chip, _)] => Place::On(executor(*chip)),
            _ => Place::Group(members.iter().map(|(chip, _)| executor(*chip)).collect()),
        };
        let parts = Parts::Chips(members);
        self.accept(&spec, parts, segments)
    }

    /// Submits a closure that runs on the host when its turn has come: after the tasks that it was said to
    /// come [after](Submission::after), or that touch what it was said to [read](Submission::reads) or
    /// [write](Submission::writes). It may read and write that; reading or writing other memory is a race.
    ///
    /// It runs on a thread beside the orchestration's, one of a few; the orchestration goes on. On a simulated
    /// worker it runs on the orchestration's own, while that waits.
    ///
    /// # Errors
    /// As [`submit`](Submission::submit). If the closure fails, what needs it is cancelled, and the run
    /// fails with its name and its words.
    pub fn host_task<E: std::fmt::Display>(
        self,
        name: &str,
        closure: impl FnOnce() -> std::result::Result<(), E> + Send + 'static,
    ) -> Result<TaskId> {
        let mut state = self.node.lock();
        state.check_open()?;
        let (mut spec, mut segments) = self.begin(&mut state, Place::Any(HOST))?;
        for &(arg, tag) in &self.extra {
            state.bind_on_host(arg, tag, &mut spec, &mut segments)?;
        }
        drop(state);
        let parts = Parts::Host(name.into());
        let closure: Closure = Box::new(|| closure().map_err(|error| error.to_string()));
        self.accept_with(&spec, parts, segments, Some(closure))
    }

    /// What does not depend on where it runs.
    fn begin(&self, state: &mut State, place: Place) -> Result<(Spec, Vec<Segment>)> {
        let mut spec = Spec::new(place);
        let mut segments = Vec::new();
        spec.priority = self.priority;
        spec.after.extend_from_slice(&self.after);
        for (conditions, into) in [(&self.when, &mut spec.when), (&self.until, &mut spec.until)] {
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

    fn accept(self, spec: &Spec, parts: Parts, segments: Vec<Segment>) -> Result<TaskId> {
        self.accept_with(spec, parts, segments, None)
    }

    /// Gives a task to the engine, waiting for room.
    fn accept_with(
        self,
        spec: &Spec,
        parts: Parts,
        segments: Vec<Segment>,
        closure: Option<Closure>,
    ) -> Result<TaskId> {
        let conditions = self.when.iter().chain(&self.until);
        let mut work = Arc::new(Work {
            signals: conditions.map(|&(signal, ..)| signal).collect(),
            parts,
            segments,
        });
        let mut progress = None;
        loop {
            let mut state = self.node.lock();
            if state.run_is_over() {
                drop(state);
                self.node.settle()?;
                continue;
            }
            let kept = work.clone();
            match state.engine.submit(spec, work) {
                Err(problem) => return Err(state.refused(problem)),
                Ok(Outcome::Accepted(task)) => {
                    if let Some(closure) = closure {
                        self.node.keep_closure(task, closure);
                    }
                    state.accepted(&kept);
                    // A simulated worker runs closures while it waits, on this thread.
                    if self.node.waiter.is_some() && !state.flights.hosts.is_empty() {
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
        }
    }
}

fn executor(chip: usize) -> Executor {
    Executor(u32::try_from(chip).unwrap_or(u32::MAX))
}

impl State {
    /// A task is in: its memory is kept, its signals are watched, and it starts if it can.
    fn accepted(&mut self, work: &Work) {
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
