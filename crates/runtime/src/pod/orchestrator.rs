//! What an orchestration over workers talks to: tasks for one child or several, closures of the worker itself.

use super::{Pod, PodTensor, Worker};
use crate::engine::{AccessKind, Config, Engine, Executor, Kind, Outcome, Place, Spec, TaskId, View};
use crate::error::{Error, Result};
use crate::timeline::RecentChip;
use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

/// The kind of executor that a child is.
const CHILD: Kind = Kind(0);
/// The kind of executor that the worker itself is.
const OWN: Kind = Kind(1);

/// How a task failed.
enum Failed {
    Below(Box<Error>),
    Own(String),
    Panicked(String),
}

type Job<'env> = Box<dyn FnOnce() -> std::result::Result<(), Failed> + Send + 'env>;
type Done = (TaskId, Executor, std::result::Result<(), Failed>);

/// Submits tasks to the children of a worker. A task is code that uses one child; tasks are ordered by what they
/// are said to do with the worker's [memory](PodTensor), and by [`after`](PodOrchestrator::after).
pub struct PodOrchestrator<'env, C: Worker> {
    pod: &'env Pod<C>,
    /// Tasks by name.
    engine: Engine<String, ()>,
    /// What is not begun; of a group, one job for each member.
    waiting: BTreeMap<TaskId, Vec<Job<'env>>>,
    /// To each child, and to the worker itself.
    jobs: Vec<Sender<(TaskId, Executor, Job<'env>)>>,
    done: Receiver<Done>,
    failure: Option<Error>,
    /// What the chips of children whose tasks failed did before, by child.
    recent: BTreeMap<u32, Vec<RecentChip>>,
}

impl<C: Worker> std::fmt::Debug for PodOrchestrator<'_, C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PodOrchestrator")
            .field("pod", &self.pod.name)
            .finish_non_exhaustive()
    }
}

impl<'env, C: Worker> PodOrchestrator<'env, C> {
    pub(super) fn run<R>(
        pod: &'env Pod<C>,
        orchestration: impl FnOnce(&mut PodOrchestrator<'env, C>) -> Result<R>,
    ) -> Result<R> {
        pod.revive_domains();
        let count = u32::try_from(pod.children.len()).unwrap_or(u32::MAX);
        let config = Config::new().executors(CHILD, count).executors(OWN, 1);
        let engine = Engine::new(&config).map_err(|problem| pod.refused(problem))?;
        std::thread::scope(|scope| {
            let (results, done) = channel();
            let mut jobs = Vec::new();
            for _ in 0..=pod.children.len() {
                let (job, todo) = channel::<(TaskId, Executor, Job<'env>)>();
                let results: Sender<Done> = results.clone();
                jobs.push(job);
                scope.spawn(move || {
                    for (task, on, job) in todo {
                        let ended = std::panic::catch_unwind(AssertUnwindSafe(job));
                        let outcome = ended.unwrap_or_else(|panic| {
                            Err(Failed::Panicked(crate::host::words(&*panic).into()))
                        });
                        if results.send((task, on, outcome)).is_err() {
                            return;
                        }
                    }
                });
            }
            // The threads end when the orchestrator, and with it their channels, is dropped.
            let mut orch = PodOrchestrator {
                pod,
                engine,
                waiting: BTreeMap::new(),
                jobs,
                done,
                failure: None,
                recent: BTreeMap::new(),
            };
            let outcome = orchestration(&mut orch);
            orch.wait().and(outcome)
        })
    }

    /// Begins a submission that comes after this task.
    pub fn after(&mut self, task: TaskId) -> PodSubmission<'_, 'env, C> {
        self.plain().after(task)
    }

    /// Begins a submission that reads this.
    pub fn reads<T>(&mut self, tensor: &PodTensor<T>) -> PodSubmission<'_, 'env, C> {
        self.plain().reads(tensor)
    }

    /// Begins a submission that writes this.
    pub fn writes<T>(&mut self, tensor: &PodTensor<T>) -> PodSubmission<'_, 'env, C> {
        self.plain().writes(tensor)
    }

    /// Submits work for a child, by its place.
    ///
    /// # Errors
    /// If there is no such child; or, early, the failure of a task before.
    pub fn submit(
        &mut self,
        child: usize,
        name: &str,
        task: impl FnOnce(&C) -> Result<()> + Send + 'env,
    ) -> Result<TaskId> {
        self.plain().submit(child, name, task)
    }

    /// Submits work for several children, by their places, that starts on all of them together, when all are free:
    /// for tasks that meet in a [domain](super::PodDomain) of their chips.
    ///
    /// # Errors
    /// As [`submit`](PodOrchestrator::submit).
    pub fn group(
        &mut self,
        children: impl IntoIterator<Item = usize>,
        name: &str,
        task: impl Fn(usize, &C) -> Result<()> + Send + Sync + 'env,
    ) -> Result<TaskId> {
        self.plain().group(children, name, task)
    }

    fn plain(&mut self) -> PodSubmission<'_, 'env, C> {
        PodSubmission {
            orch: self,
            spec: Spec::new(Place::Any(OWN)),
        }
    }

    /// Waits until everything submitted before is done.
    ///
    /// # Errors
    /// The first failure among it.
    pub fn wait(&mut self) -> Result<()> {
        while self.engine.live() > 0 {
            self.advance();
        }
        let report = self
            .engine
            .end_run()
            .map_err(|problem| self.pod.refused(problem))?;
        self.waiting.clear();
        let told = std::mem::take(&mut self.recent);
        match self.failure.take() {
            None => Ok(()),
            Some(mut error) => {
                self.pod.freshen_domains();
                if let Error::Below {
                    cancelled, recent, ..
                } = &mut error
                {
                    cancelled.extend(report.cancelled.into_iter().filter_map(|lost| lost.payload));
                    recent.chips = told.into_values().flatten().collect();
                }
                Err(error)
            }
        }
    }

    fn start_ready(&mut self) {
        while let Some(dispatch) = self.engine.ready() {
            let members = self.engine.members(dispatch.task).to_vec();
            let jobs = self.waiting.remove(&dispatch.task).unwrap_or_default();
            let mut jobs = jobs.into_iter();
            for on in members {
                let sent = jobs.next().and_then(|job| {
                    let to = self.jobs.get(on.0 as usize)?;
                    to.send((dispatch.task, on, job)).ok()
                });
                if sent.is_none() {
                    let why = Failed::Own("nobody is there to do it".into());
                    self.ended((dispatch.task, on, Err(why)));
                }
            }
        }
    }

    /// Waits for a task to end.
    fn advance(&mut self) {
        self.start_ready();
        if self.engine.running() == 0 {
            return;
        }
        if let Ok(done) = self.done.recv() {
            self.ended(done);
        }
    }

    fn ended(&mut self, (task, on, outcome): Done) {
        let reported = match outcome {
            Ok(()) => self.engine.complete(task, on),
            Err(failed) => {
                let name = self.engine.payload(task).cloned().unwrap_or_default();
                let child = self
                    .pod
                    .children
                    .get(on.0 as usize)
                    .map_or_else(|| "its own".into(), Worker::name);
                let worker = self.pod.name.clone();
                if let Failed::Below(cause) = &failed
                    && let Some(recent) = cause.recent()
                {
                    let told = self.recent.entry(on.0);
                    told.or_insert_with(|| recent.below(&child).collect());
                }
                let error = match failed {
                    Failed::Below(cause) => Error::below(&worker, &child, *cause, Vec::new()),
                    Failed::Own(message) => Error::Host {
                        worker,
                        name,
                        message,
                    },
                    Failed::Panicked(words) => {
                        let message = format!("it panicked: {words}");
                        Error::Host {
                            worker,
                            name,
                            message,
                        }
                    }
                };
                // The first is the one that is told, unless it only says that a partner failed.
                if self.failure.as_ref().is_none_or(Error::is_echo) {
                    self.failure = Some(error);
                }
                self.engine.fail(task, on, ())
            }
        };
        debug_assert!(reported.is_ok(), "it was dispatched");
    }
}

/// Conditions of a task of a worker, to be ended by [`submit`](PodSubmission::submit) or
/// [`host_task`](PodSubmission::host_task).
#[derive(Debug)]
#[must_use = "nothing is submitted until it says what"]
pub struct PodSubmission<'o, 'env, C: Worker> {
    orch: &'o mut PodOrchestrator<'env, C>,
    spec: Spec,
}

impl<'env, C: Worker> PodSubmission<'_, 'env, C> {
    fn touch<T>(mut self, tensor: &PodTensor<T>, kind: AccessKind) -> Self {
        // Tensors may change their length: whoever touches one touches all of it.
        self.spec.touch(tensor.buffer, View::range(0..u64::MAX), kind);
        self
    }

    /// See [`PodOrchestrator::after`].
    pub fn after(mut self, task: TaskId) -> Self {
        self.spec.after.push(task);
        self
    }

    /// See [`PodOrchestrator::reads`].
    pub fn reads<T>(self, tensor: &PodTensor<T>) -> Self {
        self.touch(tensor, AccessKind::Input)
    }

    /// See [`PodOrchestrator::writes`].
    pub fn writes<T>(self, tensor: &PodTensor<T>) -> Self {
        self.touch(tensor, AccessKind::OutputExisting)
    }

    /// See [`PodOrchestrator::submit`].
    ///
    /// # Errors
    /// As there.
    pub fn submit(
        mut self,
        child: usize,
        name: &str,
        task: impl FnOnce(&C) -> Result<()> + Send + 'env,
    ) -> Result<TaskId> {
        let worker = self.child(child)?;
        self.spec.place = Place::On(executor(child));
        let job = || task(worker).map_err(|error| Failed::Below(error.into()));
        self.accept(name, vec![Box::new(job)])
    }

    /// See [`PodOrchestrator::group`].
    ///
    /// # Errors
    /// As there.
    pub fn group(
        mut self,
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
        self.spec.place = match members[..] {
            [] => return Err(Error::config("group", "a group has at least one member")),
            [only] => Place::On(only),
            _ => Place::Group(members),
        };
        self.accept(name, jobs)
    }

    fn child(&self, child: usize) -> Result<&'env C> {
        let pod = self.orch.pod;
        pod.children.get(child).ok_or_else(|| {
            let (name, count) = (&pod.name, pod.children.len());
            Error::config(
                "submit",
                format!("there is no child {child}; `{name}` has {count}"),
            )
        })
    }

    /// Submits work for the worker itself: a closure that takes its turn.
    ///
    /// # Errors
    /// The failure of a task before.
    pub fn host_task<E: std::fmt::Display>(
        self,
        name: &str,
        closure: impl FnOnce() -> std::result::Result<(), E> + Send + 'env,
    ) -> Result<TaskId> {
        let job = || closure().map_err(|error| Failed::Own(error.to_string()));
        self.accept(name, vec![Box::new(job)])
    }

    fn accept(self, name: &str, jobs: Vec<Job<'env>>) -> Result<TaskId> {
        let PodSubmission { orch, spec } = self;
        loop {
            if orch.failure.is_some() {
                orch.wait()?;
            }
            match orch.engine.submit(&spec, name.to_owned()) {
                Err(problem) => return Err(orch.pod.refused(problem)),
                Ok(Outcome::Full { .. }) => orch.advance(),
                Ok(Outcome::Accepted(task)) => {
                    orch.waiting.insert(task, jobs);
                    orch.start_ready();
                    return Ok(task);
                }
            }
        }
    }
}

fn executor(child: usize) -> Executor {
    Executor(u32::try_from(child).unwrap_or(u32::MAX))
}
