//! Workers above the node: a pod over nodes, a supernode over pods, and so on, each with an engine of its own.
//!
//! A worker here cannot tell what its children are: it gives each a task at a time and waits. What passes between
//! children passes through [memory of the worker](PodTensor), and the order of its tasks follows from what they
//! say they do with that.
//!
//! # Invariants
//! - **POD-1 (one at a time).** A child is given one task at a time; different children work at the same time.
//! - **POD-2 (path).** An error carries the name of every worker from the top to where it happened.
//! - **POD-3 (ends).** `run` returns when every task of it has ended, whatever became of it.

use crate::config::NodeBuilder;
use crate::engine::{
    AccessKind, BufferId, Config, Engine, Executor, Kind, Outcome, Place, Spec, TaskId, View,
};
use crate::error::{Error, Result};
use crate::node::Node;
use ringwork_isa::Level;
use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Something that runs orchestrations: a [`Node`], or a [`Pod`] of such.
pub trait Worker: Send + Sync {
    /// Its name in errors.
    fn name(&self) -> String;
    /// Where it sits.
    fn level(&self) -> Level;
    /// Ends everything below it. Idempotent.
    fn close(&self);
}

impl Worker for Node {
    fn name(&self) -> String {
        Node::name(self)
    }
    fn level(&self) -> Level {
        Node::level(self)
    }
    fn close(&self) {
        Node::close(self);
    }
}

/// A worker over workers one level down: over nodes a pod, over pods a supernode, over those a cluster.
#[derive(Debug)]
pub struct Pod<C: Worker = Node> {
    name: String,
    level: Level,
    children: Vec<C>,
    tensors: AtomicU64,
}

impl Pod<Node> {
    /// Launches nodes, and a worker over them.
    ///
    /// # Errors
    /// The first that failed, with its name; the others are ended. Or as [`over`](Pod::over).
    pub fn launch(name: &str, nodes: impl IntoIterator<Item = NodeBuilder>) -> Result<Pod<Node>> {
        let mut children = Vec::new();
        for node in nodes {
            let child = node.name.clone();
            children.push(
                node.launch()
                    .map_err(|cause| Error::below(name, &child, cause, Vec::new()))?,
            );
        }
        Pod::over(name, children)
    }
}

impl<C: Worker> Pod<C> {
    /// A worker over these.
    ///
    /// # Errors
    /// If there are none, if two have the same name, or if they are not all of one level that has one above it.
    pub fn over(name: &str, children: impl IntoIterator<Item = C>) -> Result<Pod<C>> {
        let children: Vec<C> = children.into_iter().collect();
        let field = || format!("worker `{name}`");
        let Some(first) = children.first() else {
            return Err(Error::config(field(), "it needs at least one child"));
        };
        let below = first.level();
        let level = match below {
            Level::Core | Level::Die | Level::Chip => Level::Node,
            Level::Node => Level::Pod,
            Level::Pod => Level::Supernode,
            Level::Supernode => Level::Cluster,
            Level::Cluster => return Err(Error::config(field(), "nothing is above a cluster")),
        };
        for (at, child) in children.iter().enumerate() {
            if child.level() != below {
                let why = format!(
                    "`{}` is a {} and `{}` a {below}",
                    child.name(),
                    child.level(),
                    first.name()
                );
                return Err(Error::config(field(), why));
            }
            if children[..at].iter().any(|other| other.name() == child.name()) {
                return Err(Error::config(
                    field(),
                    format!("two children are called `{}`", child.name()),
                ));
            }
        }
        Ok(Pod {
            name: name.into(),
            level,
            children,
            tensors: AtomicU64::new(0),
        })
    }

    /// The workers below, in order.
    #[must_use]
    pub fn children(&self) -> &[C] {
        &self.children
    }

    /// Memory of this worker with these values.
    #[must_use]
    pub fn tensor<T: Clone + Send>(&self, values: Vec<T>) -> PodTensor<T> {
        PodTensor {
            buffer: BufferId::new(self.tensors.fetch_add(1, Ordering::Relaxed)),
            values: Arc::new(Mutex::new(values)),
        }
    }

    /// Runs an orchestration over the children: returns when every task it submitted is done.
    ///
    /// # Errors
    /// The first error, with its path; what did not need the failed task has finished.
    pub fn run<'env, R>(
        &'env self,
        orchestration: impl FnOnce(&mut PodOrchestrator<'env, C>) -> Result<R>,
    ) -> Result<R> {
        let count = u32::try_from(self.children.len()).unwrap_or(u32::MAX);
        let config = Config::new().executors(CHILD, count).executors(OWN, 1);
        let engine = Engine::new(&config).map_err(|problem| self.refused(problem))?;
        std::thread::scope(|scope| {
            let (results, done) = channel();
            let mut jobs = Vec::new();
            for _ in 0..=self.children.len() {
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
                pod: self,
                engine,
                waiting: BTreeMap::new(),
                jobs,
                done,
                failure: None,
            };
            let outcome = orchestration(&mut orch);
            orch.wait().and(outcome)
        })
    }

    /// Ends every child. Idempotent, also done when the children are dropped.
    pub fn close(&self) {
        self.children.iter().for_each(Worker::close);
    }

    fn refused(&self, problem: crate::engine::Error) -> Error {
        let worker = self.name.clone();
        Error::Refused { worker, problem }
    }
}

impl<C: Worker> Worker for Pod<C> {
    fn name(&self) -> String {
        self.name.clone()
    }
    fn level(&self) -> Level {
        self.level
    }
    fn close(&self) {
        Pod::close(self);
    }
}

/// Elements in memory of a worker: what its children pass to each other.
#[derive(Debug)]
pub struct PodTensor<T> {
    buffer: BufferId,
    values: Arc<Mutex<Vec<T>>>,
}

impl<T> Clone for PodTensor<T> {
    fn clone(&self) -> Self {
        PodTensor {
            buffer: self.buffer,
            values: self.values.clone(),
        }
    }
}

impl<T: Clone> PodTensor<T> {
    fn lock(&self) -> MutexGuard<'_, Vec<T>> {
        self.values.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The values now. A task that was said to [read](PodSubmission::reads) it sees what those before it wrote.
    #[must_use]
    pub fn read(&self) -> Vec<T> {
        self.lock().clone()
    }

    /// Other values, as many as one likes.
    pub fn write(&self, values: Vec<T>) {
        *self.lock() = values;
    }
}

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
    /// What is not begun.
    waiting: BTreeMap<TaskId, Job<'env>>,
    /// To each child, and to the worker itself.
    jobs: Vec<Sender<(TaskId, Executor, Job<'env>)>>,
    done: Receiver<Done>,
    failure: Option<Error>,
}

impl<C: Worker> std::fmt::Debug for PodOrchestrator<'_, C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PodOrchestrator")
            .field("pod", &self.pod.name)
            .finish_non_exhaustive()
    }
}

impl<'env, C: Worker> PodOrchestrator<'env, C> {
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
        match self.failure.take() {
            None => Ok(()),
            Some(mut error) => {
                if let Error::Below { cancelled, .. } = &mut error {
                    cancelled.extend(report.cancelled.into_iter().filter_map(|lost| lost.payload));
                }
                Err(error)
            }
        }
    }

    fn start_ready(&mut self) {
        while let Some(dispatch) = self.engine.ready() {
            let job = self.waiting.remove(&dispatch.task);
            let sent = job.and_then(|job| {
                let to = self.jobs.get(dispatch.executor.0 as usize)?;
                to.send((dispatch.task, dispatch.executor, job)).ok()
            });
            if sent.is_none() {
                let why = Failed::Own("nobody is there to do it".into());
                self.ended((dispatch.task, dispatch.executor, Err(why)));
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
                self.failure.get_or_insert_with(|| match failed {
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
                });
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
        let pod = self.orch.pod;
        let Some(worker) = pod.children.get(child) else {
            let why = format!(
                "there is no child {child}; `{}` has {}",
                pod.name,
                pod.children.len()
            );
            return Err(Error::config("submit", why));
        };
        self.spec.place = Place::On(Executor(u32::try_from(child).unwrap_or(u32::MAX)));
        self.accept(
            name,
            Box::new(|| task(worker).map_err(|error| Failed::Below(error.into()))),
        )
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
        self.accept(
            name,
            Box::new(|| closure().map_err(|error| Failed::Own(error.to_string()))),
        )
    }

    fn accept(self, name: &str, job: Job<'env>) -> Result<TaskId> {
        let PodSubmission { orch, spec } = self;
        loop {
            if orch.failure.is_some() {
                orch.wait()?;
            }
            match orch.engine.submit(&spec, name.to_owned()) {
                Err(problem) => return Err(orch.pod.refused(problem)),
                Ok(Outcome::Full { .. }) => orch.advance(),
                Ok(Outcome::Accepted(task)) => {
                    orch.waiting.insert(task, job);
                    orch.start_ready();
                    return Ok(task);
                }
            }
        }
    }
}
