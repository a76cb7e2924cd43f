//! The driver of a worker's engine: a thread for each child and one for the worker itself, which run closures.
//!
//! This is one of three drivers of an engine, beside a node's ([`dispatch`](crate::dispatch)) and a chip's
//! ([`chip`](crate::chip)). It is separate because it dispatches closures that borrow from the caller of `run`: they
//! need scoped threads, and there are no chips, memory or events.

use super::{Pod, Worker};
use crate::error::{Error, Result, Stopped};
use crate::timeline::RecentChip;
use ringwork_engine::{Config, Engine, Executor, Kind, Outcome, Spec, TaskId};
use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::Scope;

/// The kind of executor that a child is.
const CHILD: Kind = Kind(0);
/// The kind of executor that the worker itself is.
pub(super) const OWN: Kind = Kind(1);

/// How a task failed.
pub(super) enum Failed {
    Below(Box<Error>),
    Own(String),
    Panicked(String),
}

pub(super) type Job<'env> = Box<dyn FnOnce() -> std::result::Result<(), Failed> + Send + 'env>;
type Done = (TaskId, Executor, std::result::Result<(), Failed>);

/// See the [module](self).
pub(super) struct Driver<'env, C: Worker> {
    pub(super) pod: &'env Pod<C>,
    /// Tasks by name.
    engine: Engine<String, ()>,
    /// Tasks that have not begun; of a group, one job for each member.
    waiting: BTreeMap<TaskId, Vec<Job<'env>>>,
    /// To each child, and to the worker itself. The threads end when these are dropped.
    jobs: Vec<Sender<(TaskId, Executor, Job<'env>)>>,
    done: Receiver<Done>,
    failure: Option<Error>,
    /// The recent entries of the chips of children whose tasks failed, by child.
    recent: BTreeMap<u32, Vec<RecentChip>>,
}

impl<'env, C: Worker> Driver<'env, C> {
    /// Starts the threads.
    pub(super) fn start<'scope>(pod: &'env Pod<C>, scope: &'scope Scope<'scope, 'env>) -> Result<Self> {
        let count = u32::try_from(pod.children.len()).unwrap_or(u32::MAX);
        let config = Config::new().executors(CHILD, count).executors(OWN, 1);
        let engine = Engine::new(&config).map_err(|problem| pod.refused(problem))?;
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
                        Err(Failed::Panicked(crate::host_tasks::panic_message(&*panic).into()))
                    });
                    if results.send((task, on, outcome)).is_err() {
                        return;
                    }
                }
            });
        }
        Ok(Driver {
            pod,
            engine,
            waiting: BTreeMap::new(),
            jobs,
            done,
            failure: None,
            recent: BTreeMap::new(),
        })
    }

    /// Gives a task to the engine, waiting for room.
    pub(super) fn accept(&mut self, spec: &Spec, name: &str, jobs: Vec<Job<'env>>) -> Result<TaskId> {
        loop {
            if self.failure.is_some() {
                self.wait()?;
            }
            match self.engine.submit(spec, name.to_owned()) {
                Err(problem) => return Err(self.pod.refused(problem)),
                Ok(Outcome::Full { .. }) => self.advance(),
                Ok(Outcome::Accepted(task)) => {
                    self.waiting.insert(task, jobs);
                    self.start_ready();
                    return Ok(task);
                }
            }
        }
    }

    /// Waits until everything submitted before is done.
    ///
    /// # Errors
    /// The first failure among it.
    pub(super) fn wait(&mut self) -> Result<()> {
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
                self.pod.reset_domains();
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

    /// Stopped chips of the other children: the one that failed names its own.
    fn stopped_beside(&self, failed: Executor) -> Stopped {
        let children = self.pod.children.iter().enumerate();
        let others = children.filter(|(child, _)| *child != failed.0 as usize);
        let nodes = others.flat_map(|(_, child)| child.nodes().unwrap_or_default());
        let chips = nodes.flat_map(|node| {
            let name = node.name();
            node.stopped().below(&name).collect::<Vec<_>>()
        });
        Stopped {
            chips: chips.collect(),
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
                    Failed::Below(cause) => {
                        let timed_out = cause.is_timeout();
                        let mut error = Error::below(&worker, &child, *cause, Vec::new());
                        if let Error::Below { stopped, .. } = &mut error
                            && timed_out
                        {
                            *stopped = self.stopped_beside(on);
                        }
                        error
                    }
                    Failed::Own(message) => Error::Host {
                        worker,
                        name,
                        message,
                    },
                    Failed::Panicked(panic_message) => {
                        let message = format!("it panicked: {panic_message}");
                        Error::Host {
                            worker,
                            name,
                            message,
                        }
                    }
                };
                // The first failure is reported, unless it only says that a partner failed.
                if self.failure.as_ref().is_none_or(Error::is_echo) {
                    self.failure = Some(error);
                }
                self.engine.fail(task, on, ())
            }
        };
        debug_assert!(reported.is_ok(), "it was dispatched");
    }
}
