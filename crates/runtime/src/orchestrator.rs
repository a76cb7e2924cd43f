//! The orchestrator: what an orchestration talks to.

use crate::domain::{Domain, DomainSpec};
use crate::engine::TaskId;
use crate::error::{Error, Result};
use crate::intermediate::{self, Intermediate};
use crate::node::{Shared, open_domain};
use crate::submission::Submission;
use ringwork_isa::{Argument, Compare, Device, Element, In, InOut, Out, Signal, Task};

/// Submits tasks, which run as soon as what they touch is ready: a task comes after every earlier one that
/// touches the same memory, if one of the two writes it. Tasks that have nothing in common run at once, on
/// different chips.
///
/// What chips do with a domain's shared buffers and signals is theirs to order, with signals; only the tasks
/// of one chip, and groups that have a chip in common, keep the order of submission there. Tasks that wait
/// for each other inside their kernels belong into one [`group`](Orchestrator::group).
///
/// The graph moves while the orchestration submits or waits, and when it has returned.
#[derive(Debug)]
pub struct Orchestrator<'n> {
    pub(crate) node: &'n Shared,
}

impl<'n> Orchestrator<'n> {
    pub(crate) fn run<R>(
        node: &'n Shared,
        orchestration: impl FnOnce(&mut Orchestrator<'_>) -> Result<R>,
    ) -> Result<R> {
        let mut state = node.lock();
        state.check_open()?;
        if state.is_host_task() {
            let why = "a host task is part of a run and cannot wait for another on the same worker";
            return Err(Error::config("run", why));
        }
        state.attend(true);
        drop(state);
        let outcome = orchestration(&mut Orchestrator { node });
        // A failed task explains an orchestration that gave up; so it is reported first.
        let settled = node.settle();
        node.lock().end_run();
        settled.and(outcome)
    }

    /// Submits a kernel to a chip.
    ///
    /// # Errors
    /// If the chip or the arguments cannot be used; or, early, the failure of a task before.
    pub fn submit(&mut self, device: Device, task: Task) -> Result<TaskId> {
        self.plain().submit(device, task)
    }

    /// Submits a kernel to whichever chip is free first, among those that have all the memory it uses.
    ///
    /// # Errors
    /// As [`submit`](Orchestrator::submit); or if no chip has all of it, or an argument means something else
    /// on every chip.
    pub fn anywhere(&mut self, task: Task) -> Result<TaskId> {
        self.plain().anywhere(task)
    }

    /// Submits a kernel to several chips that start together: all of it is checked before any of it is sent,
    /// and it starts when all its chips are free. They do nothing else until it is done.
    ///
    /// # Errors
    /// As [`submit`](Orchestrator::submit); nothing was sent then.
    pub fn group(
        &mut self,
        devices: impl IntoIterator<Item = Device>,
        task: impl FnMut(Device) -> Result<Task>,
    ) -> Result<TaskId> {
        self.plain().group(devices, task)
    }

    fn plain(&mut self) -> Submission<'_> {
        Submission::new(self.node)
    }

    /// Begins a submission that comes after this task, whatever they touch.
    pub fn after(&mut self, task: TaskId) -> Submission<'_> {
        self.plain().after(task)
    }

    /// Begins a submission of this priority: larger goes first among tasks that are ready; 0 unless said.
    pub fn priority(&mut self, priority: i8) -> Submission<'_> {
        self.plain().priority(priority)
    }

    /// Begins a submission that starts only once the signal compares so. It occupies no chip until then.
    pub fn when(&mut self, signal: Signal, compare: Compare, operand: i32) -> Submission<'_> {
        self.plain().when(signal, compare, operand)
    }

    /// Begins a submission that is done only once it has run and the signal compares so.
    pub fn until(&mut self, signal: Signal, compare: Compare, operand: i32) -> Submission<'_> {
        self.plain().until(signal, compare, operand)
    }

    /// Begins a submission that reads this, beside what its kernel's arguments say.
    pub fn reads<T: Element>(&mut self, memory: &impl Argument<In<T>>) -> Submission<'_> {
        self.plain().reads(memory)
    }

    /// Begins a submission that writes this, beside what its kernel's arguments say.
    pub fn writes<T: Element>(&mut self, memory: &impl Argument<Out<T>>) -> Submission<'_> {
        self.plain().writes(memory)
    }

    /// Begins a submission that reads and writes this, beside what its kernel's arguments say.
    pub fn updates<T: Element>(&mut self, memory: &impl Argument<InOut<T>>) -> Submission<'_> {
        self.plain().updates(memory)
    }

    /// Runs a closure on the host, now, after everything submitted before is done, and returns what it
    /// returns. See [`Submission::host_task`] for one that takes its turn in the graph.
    ///
    /// # Errors
    /// The failure of a task before; or the closure's own, with its name.
    pub fn host<R, E: std::fmt::Display>(
        &mut self,
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
    /// If the chip cannot be used, or the memory can never fit ([`Error::RingStuck`]); or, early, the failure
    /// of a task before.
    pub fn intermediate<T: Element>(&mut self, device: Device, count: usize) -> Result<Intermediate<T>> {
        intermediate::allocate(self.node, device, count)
    }

    /// Runs a part of the orchestration whose intermediates are its own. Scopes nest to
    /// [`MAX_SCOPES`](crate::engine::MAX_SCOPES).
    ///
    /// # Errors
    /// What the part returns; or that scopes are nested too deeply.
    pub fn scope<R>(&mut self, part: impl FnOnce(&mut Orchestrator<'n>) -> Result<R>) -> Result<R> {
        let depth = self.node.lock().begin_scope()?;
        let outcome = part(self);
        self.node.lock().end_scope(depth);
        outcome
    }

    /// Waits until everything submitted before is done.
    ///
    /// # Errors
    /// The first failure among it.
    pub fn wait(&mut self) -> Result<()> {
        self.node.settle()
    }

    /// Opens a domain, for as long as its handle or a handle to one of its buffers lives.
    ///
    /// # Errors
    /// If the spec cannot be, or there is no memory.
    pub fn domain(&mut self, spec: &DomainSpec) -> Result<Domain> {
        open_domain(self.node, spec)
    }
}
