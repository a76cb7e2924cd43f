//! The orchestrator: what an orchestration talks to.

use crate::domain::{Domain, DomainSpec};
use crate::error::{Error, Result};
use crate::node::{Shared, open_domain};
use ringwork_isa::{Device, Task};

/// Submits tasks. A chip runs its tasks in the order they were submitted; different chips run at the same
/// time, and meet only through the signals of a domain they share.
#[derive(Debug)]
pub struct Orchestrator<'n> {
    node: &'n Shared,
}

impl<'n> Orchestrator<'n> {
    pub(crate) fn run<R>(
        node: &'n Shared,
        orchestration: impl FnOnce(&mut Orchestrator<'_>) -> Result<R>,
    ) -> Result<R> {
        node.lock().check_open()?;
        let outcome = orchestration(&mut Orchestrator { node });
        // A failed task explains an orchestration that gave up; so it is reported first.
        let settled = node.lock().settle();
        settled.and(outcome)
    }

    /// Submits a kernel to a chip.
    ///
    /// # Errors
    /// If the chip or the arguments cannot be used; or, early, the failure of a task before.
    pub fn submit(&mut self, device: Device, task: Task) -> Result<()> {
        self.group([device], |_| Ok(task.clone()))
    }

    /// Submits a kernel to several chips that start together: all of it is checked before any of it is sent.
    ///
    /// # Errors
    /// As [`submit`](Orchestrator::submit); nothing was sent then.
    pub fn group(
        &mut self,
        devices: impl IntoIterator<Item = Device>,
        mut task: impl FnMut(Device) -> Result<Task>,
    ) -> Result<()> {
        let mut members = Vec::new();
        for device in devices {
            // Not under the lock: the closure may well ask the node for something.
            let task = task(device)?;
            let state = self.node.lock();
            let chip = state.chip(device)?;
            state.check_alive(chip)?;
            if members.iter().any(|(other, _)| *other == chip) {
                return Err(Error::config("group", format!("device {device} is there twice")));
            }
            members.push((chip, state.bind(chip, &task)?));
        }
        let mut state = self.node.lock();
        let group = state.flights.fresh();
        for (chip, bound) in members {
            state.send(chip, group, bound)?;
        }
        Ok(())
    }

    /// Runs a closure on the host after everything submitted before is done.
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

    /// Waits until everything submitted before is done.
    ///
    /// # Errors
    /// The first failure among it.
    pub fn wait(&mut self) -> Result<()> {
        self.node.lock().settle()
    }

    /// Opens a domain, for as long as its handle or a handle to one of its buffers lives.
    ///
    /// # Errors
    /// If the spec cannot be, or there is no memory.
    pub fn domain(&mut self, spec: &DomainSpec) -> Result<Domain> {
        open_domain(self.node, spec)
    }
}
