//! The orchestrator of a worker above the node: submits tasks for one child or several, and closures of the worker
//! itself.

use super::driver::{Driver, Failed, Job, OWN};
use super::{Pod, PodTensor, Worker};
use crate::error::{Error, Result};
use ringwork_engine::{AccessKind, Executor, Place, Spec, TaskId, View};
use std::cell::RefCell;
use std::rc::{Rc, Weak};
use std::sync::Arc;

/// Submits tasks to the children of a worker. A task is code that uses one child; tasks are ordered by what they
/// are said to do with the worker's [memory](PodTensor), and by [`after`](PodOrchestrator::after).
///
/// The vocabulary is that of [`Orchestrator`](crate::Orchestrator): `after`, `priority`, `reads` and `writes` return
/// an orchestrator whose tasks have that condition too.
#[must_use = "nothing is submitted until `submit`, `group` or `host_task` is called"]
pub struct PodOrchestrator<'env, C: Worker> {
    /// Dangling when the run is over.
    driver: Weak<RefCell<Driver<'env, C>>>,
    /// The conditions of every task.
    spec: Spec,
}

impl<C: Worker> std::fmt::Debug for PodOrchestrator<'_, C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PodOrchestrator").finish_non_exhaustive()
    }
}

impl<'env, C: Worker> PodOrchestrator<'env, C> {
    pub(super) fn run<R>(
        pod: &'env Pod<C>,
        orchestration: impl FnOnce(&mut PodOrchestrator<'env, C>) -> Result<R>,
    ) -> Result<R> {
        pod.revive_domains();
        std::thread::scope(|scope| {
            let driver = Rc::new(RefCell::new(Driver::start(pod, scope)?));
            let outcome = orchestration(&mut PodOrchestrator {
                driver: Rc::downgrade(&driver),
                spec: Spec::new(Place::Any(OWN)),
            });
            let ended = driver.borrow_mut().wait();
            ended.and(outcome)
        })
    }

    /// # Errors
    /// If the run is over.
    fn driver(&self) -> Result<Rc<RefCell<Driver<'env, C>>>> {
        let over = || Error::config("run", "the run of this orchestrator is over; submit in another");
        self.driver.upgrade().ok_or_else(over)
    }

    /// The same orchestrator with one more condition.
    fn with(&self, add: impl FnOnce(&mut Spec)) -> PodOrchestrator<'env, C> {
        let mut spec = self.spec.clone();
        add(&mut spec);
        let driver = self.driver.clone();
        PodOrchestrator { driver, spec }
    }

    fn touching<T>(&self, tensor: &PodTensor<T>, kind: AccessKind) -> PodOrchestrator<'env, C> {
        // A tensor may change its length, so a task touches all of it.
        let all = View::range(0..u64::MAX);
        self.with(|spec| spec.touch(tensor.buffer, all, kind))
    }

    /// Its tasks come after this task, or these, whatever they touch.
    pub fn after(&self, tasks: impl IntoIterator<Item = TaskId>) -> PodOrchestrator<'env, C> {
        self.with(|spec| spec.after.extend(tasks))
    }

    /// Its tasks have this priority: larger goes first among ready tasks; the default is 0.
    pub fn priority(&self, priority: i8) -> PodOrchestrator<'env, C> {
        self.with(|spec| spec.priority = priority)
    }

    /// Its tasks read this.
    pub fn reads<T>(&self, tensor: &PodTensor<T>) -> PodOrchestrator<'env, C> {
        self.touching(tensor, AccessKind::Input)
    }

    /// Its tasks write this.
    pub fn writes<T>(&self, tensor: &PodTensor<T>) -> PodOrchestrator<'env, C> {
        self.touching(tensor, AccessKind::OutputExisting)
    }

    /// Submits work for a child, by its place.
    ///
    /// # Errors
    /// If there is no such child; or the failure of an earlier task.
    pub fn submit(
        &self,
        child: usize,
        name: &str,
        task: impl FnOnce(&C) -> Result<()> + Send + 'env,
    ) -> Result<TaskId> {
        let worker = self.child(child)?;
        let job = || task(worker).map_err(|error| Failed::Below(error.into()));
        self.accept(Place::On(executor(child)), name, vec![Box::new(job)])
    }

    /// Submits work for several children, by their places, that starts on all of them together, when all are free:
    /// for tasks that meet in a [domain](super::PodDomain) of their chips.
    ///
    /// # Errors
    /// As [`submit`](PodOrchestrator::submit).
    pub fn group(
        &self,
        children: impl IntoIterator<Item = usize>,
        name: &str,
        task: impl Fn(usize, &C) -> Result<()> + Send + Sync + 'env,
    ) -> Result<TaskId> {
        let task = Arc::new(task);
        let (mut members, mut jobs): (Vec<Executor>, Vec<Job<'env>>) = (Vec::new(), Vec::new());
        for child in children {
            let (worker, task) = (self.child(child)?, task.clone());
            if members.contains(&executor(child)) {
                return Err(Error::config("group", format!("child {child} is there twice")));
            }
            members.push(executor(child));
            jobs.push(Box::new(move || {
                task(child, worker).map_err(|error| Failed::Below(error.into()))
            }));
        }
        let place = match members[..] {
            [] => return Err(Error::config("group", "a group has at least one member")),
            [only] => Place::On(only),
            _ => Place::Group(members),
        };
        self.accept(place, name, jobs)
    }

    /// Submits work for the worker itself: a closure that takes its turn.
    ///
    /// # Errors
    /// The failure of an earlier task.
    pub fn host_task<E: std::fmt::Display>(
        &self,
        name: &str,
        closure: impl FnOnce() -> std::result::Result<(), E> + Send + 'env,
    ) -> Result<TaskId> {
        let job = || closure().map_err(|error| Failed::Own(error.to_string()));
        self.accept(Place::Any(OWN), name, vec![Box::new(job)])
    }

    /// Waits until everything submitted before is done.
    ///
    /// # Errors
    /// The first failure among it.
    pub fn wait(&self) -> Result<()> {
        self.driver()?.borrow_mut().wait()
    }

    fn accept(&self, place: Place, name: &str, jobs: Vec<Job<'env>>) -> Result<TaskId> {
        let mut spec = self.spec.clone();
        spec.place = place;
        self.driver()?.borrow_mut().accept(&spec, name, jobs)
    }

    fn child(&self, child: usize) -> Result<&'env C> {
        let pod = self.driver()?.borrow().pod;
        pod.children.get(child).ok_or_else(|| {
            let (name, count) = (&pod.name, pod.children.len());
            Error::config(
                "submit",
                format!("there is no child {child}; `{name}` has {count}"),
            )
        })
    }
}

fn executor(child: usize) -> Executor {
    Executor(u32::try_from(child).unwrap_or(u32::MAX))
}
