//! The orchestrator of a node: what an orchestration talks to.
//!
//! All three levels have the same vocabulary: [`Orchestrator`] over a node's chips,
//! [`ChipOrchestrator`](crate::ChipOrchestrator) over a chip's cores, and
//! [`PodOrchestrator`](crate::PodOrchestrator) over the children of a worker. Each is a handle to the graph, and
//! carries the conditions for tasks that are submitted through it: `orch.after(a)` is another handle whose tasks
//! come after `a`. `submit` and `group` end a chain of such conditions.

use crate::domain::{Domain, DomainSpec};
use crate::error::{Error, Result};
use crate::intermediate::{self, Intermediate};
use crate::node::{Shared, open_domain};
use ringwork_engine::TaskId;
use ringwork_isa::{Arg, Argument, Compare, Device, Element, In, InOut, Out, Signal, Tag};
use std::marker::PhantomData;
use std::rc::Rc;

/// Submits tasks. A task starts after every earlier one that touches the same memory, if one of the two writes it.
/// Tasks without common memory run at the same time, on different chips.
///
/// Kernels order their accesses to a domain's shared buffers themselves, with signals. Only the tasks of one chip,
/// and groups that have a chip in common, keep the order of submission there. Tasks that wait for each other inside
/// their kernels belong into one [`group`](Orchestrator::group).
///
/// The graph makes progress while the orchestration submits or waits, and after it has returned.
///
/// [`after`](Orchestrator::after), [`when`](Orchestrator::when), [`reads`](Orchestrator::reads) and similar methods
/// return an orchestrator whose tasks have that condition too; the one they are called on does not change.
///
/// ```no_run
/// # use ringwork_runtime::{Orchestrator, Device, Result, TaskId};
/// # fn orchestration(orch: &mut Orchestrator<'_>, first: TaskId, task: ringwork_isa::Task) -> Result<()> {
/// orch.after(first).priority(3).submit(Device(0), task)?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "nothing is submitted until `submit`, `anywhere`, `group` or `host_task` is called"]
pub struct Orchestrator<'n> {
    pub(crate) node: &'n Shared,
    pub(crate) conditions: Conditions,
    /// One thread submits: only one thread at a time drives a node.
    one_thread: PhantomData<Rc<()>>,
}

/// The conditions of every task that is submitted through an orchestrator.
#[derive(Clone, Debug, Default)]
pub(crate) struct Conditions {
    pub(crate) priority: i8,
    pub(crate) after: Vec<TaskId>,
    pub(crate) when: Vec<(Signal, Compare, i32)>,
    pub(crate) until: Vec<(Signal, Compare, i32)>,
    /// Memory that a task touches, besides its arguments.
    pub(crate) extra: Vec<(Arg, Tag)>,
}

/// A run that has begun and has not ended yet. [`Node::run`](crate::Node::run) begins one, calls an orchestration, and
/// ends it.
///
/// One thread submits through its [`orchestrator`](Run::orchestrator). Dropping it ends the run as if the orchestration
/// had returned an error.
#[derive(Debug)]
#[must_use = "a run is ended by `end`"]
pub struct Run {
    node: Shared,
    ended: bool,
}

impl Run {
    pub(crate) fn begin(node: Shared) -> Result<Run> {
        let mut state = node.lock();
        state.check_open()?;
        if state.is_host_task() {
            let why = "a host task is part of a run and cannot wait for another on the same worker";
            return Err(Error::config("run", why));
        }
        state.attend(true);
        drop(state);
        Ok(Run { node, ended: false })
    }

    /// The orchestrator for submitting its tasks.
    pub fn orchestrator(&self) -> Orchestrator<'_> {
        Orchestrator::new(&self.node, Conditions::default())
    }

    /// Waits until everything that was submitted is done. `outcome` is the orchestration's own.
    ///
    /// # Errors
    /// The first error, with its path: a task's error is reported before the orchestration's own, which usually follows from it.
    pub fn end<R>(mut self, outcome: Result<R>) -> Result<R> {
        self.ended = true;
        if let Err(error) = &outcome {
            self.node.lock().abandon_ports(&error.to_string());
        }
        let ended = self.node.wait_for_all();
        self.node.lock().end_run();
        match (ended, outcome) {
            // The orchestration failed first and its kernels ended because of that; or it is the wait for the stuck
            // chip.
            (Err(ended), Err(own)) if own.explains(&ended) => Err(own),
            // A failed task explains why an orchestration returned an error, so the task is reported first.
            (ended, outcome) => ended.and(outcome),
        }
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if !self.ended {
            self.node.lock().abandon_ports("the orchestration gave up");
            // The outcome has no receiver any more.
            let _ = self.node.wait_for_all();
            self.node.lock().end_run();
        }
    }
}

impl<'n> Orchestrator<'n> {
    fn new(node: &'n Shared, conditions: Conditions) -> Orchestrator<'n> {
        Orchestrator {
            node,
            conditions,
            one_thread: PhantomData,
        }
    }

    /// The same orchestrator with one more condition.
    fn with(&self, add: impl FnOnce(&mut Conditions)) -> Orchestrator<'n> {
        let mut conditions = self.conditions.clone();
        add(&mut conditions);
        Orchestrator::new(self.node, conditions)
    }

    /// Its tasks come after this task, or these, whatever they touch.
    pub fn after(&self, tasks: impl IntoIterator<Item = TaskId>) -> Orchestrator<'n> {
        self.with(|conditions| conditions.after.extend(tasks))
    }

    /// Its tasks have this priority: larger goes first among ready tasks; the default is 0.
    pub fn priority(&self, priority: i8) -> Orchestrator<'n> {
        self.with(|conditions| conditions.priority = priority)
    }

    /// Its tasks start only once the comparison holds for the signal. They occupy no chip until then.
    pub fn when(&self, signal: Signal, compare: Compare, operand: i32) -> Orchestrator<'n> {
        self.with(|conditions| conditions.when.push((signal, compare, operand)))
    }

    /// Its tasks are done only once they have run and the comparison holds for the signal.
    pub fn until(&self, signal: Signal, compare: Compare, operand: i32) -> Orchestrator<'n> {
        self.with(|conditions| conditions.until.push((signal, compare, operand)))
    }

    /// Its tasks read this, besides what their kernels' arguments say.
    pub fn reads<T: Element>(&self, memory: &impl Argument<In<T>>) -> Orchestrator<'n> {
        self.with(|conditions| conditions.extra.push((memory.to_arg(), Tag::Input)))
    }

    /// Its tasks write this, besides what their kernels' arguments say.
    pub fn writes<T: Element>(&self, memory: &impl Argument<Out<T>>) -> Orchestrator<'n> {
        self.with(|conditions| conditions.extra.push((memory.to_arg(), Tag::Output)))
    }

    /// Its tasks read and write this, besides what their kernels' arguments say.
    pub fn updates<T: Element>(&self, memory: &impl Argument<InOut<T>>) -> Orchestrator<'n> {
        self.with(|conditions| conditions.extra.push((memory.to_arg(), Tag::InOut)))
    }

    /// Waits until all earlier tasks are done, runs a closure on the host, and returns its value. See
    /// [`host_task`](Orchestrator::host_task) for a closure that is part of the graph.
    ///
    /// # Errors
    /// The failure of an earlier task; or the closure's own, with its name.
    pub fn host<R, E: std::fmt::Display>(
        &self,
        name: &str,
        closure: impl FnOnce() -> std::result::Result<R, E>,
    ) -> Result<R> {
        self.wait()?;
        closure().map_err(|error| Error::Host {
            worker: self.node.lock().name.clone(),
            name: name.into(),
            message: error.to_string(),
        })
    }

    /// Memory for `count` elements on a chip, for what passes between tasks. It lives until the innermost
    /// [`scope`](Orchestrator::scope) (or the run) has ended and the tasks that use it are done; it holds
    /// anything until a task has written it. Waits for room if there is none.
    ///
    /// # Errors
    /// If the chip cannot be used, or the memory can never fit ([`Error::RingStuck`]); or the failure
    /// of an earlier task.
    pub fn intermediate<T: Element>(&self, device: Device, count: usize) -> Result<Intermediate<T>> {
        let span = intermediate::allocate(self.node, device, T::DTYPE, count)?;
        Ok(Intermediate::new(span, device))
    }

    /// Runs a part of the orchestration with its own intermediates. Scopes nest to
    /// [`MAX_SCOPES`](ringwork_engine::MAX_SCOPES).
    ///
    /// # Errors
    /// What the part returns; or that scopes are nested too deeply.
    pub fn scope<R>(&mut self, part: impl FnOnce(&mut Orchestrator<'n>) -> Result<R>) -> Result<R> {
        let depth = self.node.lock().begin_scope()?;
        let outcome = part(self);
        self.node.lock().end_scope(depth);
        outcome
    }

    /// Its tasks access this memory in this way, in addition to their kernels' arguments:
    /// [`reads`](Orchestrator::reads) and its relatives for an argument of any type.
    pub fn touches(&self, memory: Arg, tag: Tag) -> Orchestrator<'n> {
        self.with(|conditions| conditions.extra.push((memory, tag)))
    }

    /// Waits until everything submitted before is done.
    ///
    /// # Errors
    /// The first failure among it.
    pub fn wait(&self) -> Result<()> {
        self.node.wait_for_all()
    }

    /// Opens a domain, for as long as its handle or a handle to one of its buffers lives.
    ///
    /// # Errors
    /// If the specification is impossible, or there is no memory.
    pub fn domain(&self, spec: &DomainSpec) -> Result<Domain> {
        open_domain(self.node, spec)
    }
}
