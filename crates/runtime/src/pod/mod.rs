//! Workers above the node: a pod over nodes, a supernode over pods, and so on, each with an engine of its own.
//!
//! A worker here cannot tell what its children are: it gives each one task at a time and waits. Data passes between
//! children through [memory of the worker](PodTensor), and the order of its tasks follows from the reads and writes
//! that they declare; or, if children share a host, through a [domain](PodDomain) of all their chips.
//!
//! # Invariants
//! - **POD-1 (one at a time).** A child is given one task at a time; different children work at the same time.
//! - **POD-2 (path).** An error carries the name of every worker from the top to where it happened.
//! - **POD-3 (ends).** `run` returns when each of its tasks has ended, whether it failed or not.

mod domain;
mod driver;
mod orchestrator;

pub use domain::PodDomain;
pub use orchestrator::PodOrchestrator;

use crate::config::NodeBuilder;
use crate::domain::DomainSpec;
use crate::error::{Error, Result};
use crate::node::Node;
use domain::{Chosen, Wide};
use ringwork_engine::BufferId;
use ringwork_isa::{Device, Level};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// A worker that runs orchestrations: a [`Node`], or a [`Pod`] of workers.
pub trait Worker: Send + Sync {
    /// Its name in errors.
    fn name(&self) -> String;
    /// Its level.
    fn level(&self) -> Level;
    /// Ends everything below it. Idempotent.
    fn close(&self);
    /// Ends everything that runs below it, now and from now on, for Ctrl-C.
    fn interrupt(&self);
    /// The nodes that it is or has, in order, if their chips can map memory of this host: for a [domain](PodDomain)
    /// of them.
    ///
    /// # Errors
    /// If they cannot, because it is on another host.
    fn nodes(&self) -> Result<Vec<&Node>> {
        let why = "its chips cannot map memory of this host; pass data through the worker's tensors";
        Err(Error::config(format!("worker `{}`", self.name()), why))
    }
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
    fn interrupt(&self) {
        self.interrupter().interrupt();
    }
    fn nodes(&self) -> Result<Vec<&Node>> {
        Ok(vec![self])
    }
}

/// A worker over workers one level down: over nodes a pod, over pods a supernode, over those a cluster.
#[derive(Debug)]
pub struct Pod<C: Worker = Node> {
    name: String,
    level: Level,
    children: Vec<C>,
    tensors: AtomicU64,
    /// The domains that were opened here, and are reset here after a failure.
    domains: Mutex<Vec<Weak<Wide>>>,
}

impl Pod<Node> {
    /// Launches nodes, and a worker over them.
    ///
    /// # Errors
    /// The error of the first node that failed, with its name; the other nodes are closed. Or as
    /// [`over`](Pod::over).
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
    /// A worker over these children.
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
            domains: Mutex::default(),
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

    /// Opens a domain of all chips of all nodes below: ranks are dense, node by node, each node's chips in their
    /// order. The spec names no members. Tasks that meet there belong into one
    /// [group](PodOrchestrator::group) of children.
    ///
    /// # Errors
    /// If the specification is impossible, there is no memory, or a node below does not share this host's memory.
    pub fn open_domain(&self, spec: &DomainSpec) -> Result<PodDomain> {
        self.open(spec, |nodes| Ok(domain::everyone(nodes)))
    }

    /// The same for some of the chips: each is named by the place of its node among all nodes below and its own
    /// number, in the order of their ranks; the chips of one node are consecutive.
    ///
    /// # Errors
    /// As [`open_domain`](Pod::open_domain), or if there is no such chip.
    pub fn open_domain_of(
        &self,
        spec: &DomainSpec,
        members: impl IntoIterator<Item = (usize, Device)>,
    ) -> Result<PodDomain> {
        self.open(spec, |nodes| domain::chosen(nodes, spec, members))
    }

    fn open(
        &self,
        spec: &DomainSpec,
        members: impl FnOnce(&[&Node]) -> Result<Vec<Chosen>>,
    ) -> Result<PodDomain> {
        let below = |error| Error::below(&self.name, "its domain", error, Vec::new());
        let nodes = Worker::nodes(self)?;
        let domain = members(&nodes).and_then(|members| PodDomain::open(&nodes, spec, members));
        let domain = domain.map_err(below)?;
        let mut domains = self.domains();
        domains.retain(|known| known.strong_count() > 0);
        domains.push(domain.weak());
        Ok(domain)
    }

    fn domains(&self) -> MutexGuard<'_, Vec<Weak<Wide>>> {
        self.domains.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Resets its domains whose members are all alive to the state when they were opened. Only while nothing runs.
    fn reset_domains(&self) {
        for domain in self.domains().iter().filter_map(Weak::upgrade) {
            domain.reset();
        }
    }

    /// Resets the domains that a child's own run has left aborted.
    fn revive_domains(&self) {
        for domain in self.domains().iter().filter_map(Weak::upgrade) {
            domain.revive();
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
        PodOrchestrator::run(self, orchestration)
    }

    /// Ends every child. Idempotent, also done when the children are dropped.
    pub fn close(&self) {
        self.children.iter().for_each(Worker::close);
    }

    fn refused(&self, problem: ringwork_engine::Error) -> Error {
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
    fn interrupt(&self) {
        self.children.iter().for_each(Worker::interrupt);
    }
    fn nodes(&self) -> Result<Vec<&Node>> {
        let nodes: Result<Vec<_>> = self.children.iter().map(Worker::nodes).collect();
        Ok(nodes?.into_iter().flatten().collect())
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

    /// The current values. A task that declares to [read](PodOrchestrator::reads) it sees the values of earlier
    /// writers.
    #[must_use]
    pub fn read(&self) -> Vec<T> {
        self.lock().clone()
    }

    /// Sets the values; their number may change.
    pub fn write(&self, values: Vec<T>) {
        *self.lock() = values;
    }
}
