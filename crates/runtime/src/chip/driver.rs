//! The driver of a chip's engine: which task each core runs next, and what the outcome was.
//!
//! The two platforms share it and differ in how a task runs on a core: [`core_threads`](super::core_threads) calls
//! it, here or on another thread; [`stepped_graph`](super::stepped_graph) hands it to a simulated core.
//!
//! This is one of three drivers of an engine, beside a node's ([`dispatch`](crate::dispatch)) and a pod's
//! ([`pod`](crate::pod)). It stays apart because a chip's graph lives inside one process: there are no events, no
//! deaths and no partners, and a replayed task must cost well under a microsecond.

use super::replay_arguments::ReplayArguments;
use super::{Prepared, SCRATCH_BYTES, refused};
use ringwork_engine::{Config, Dispatch, Engine, Kind};
use ringwork_isa::{Arg, Error, ErrorKind, Result};
use ringwork_registry::KernelEntry;

/// The engine of a chip. The first failure of a run is kept in it.
pub(super) type ChipEngine = Engine<Prepared, Error>;

/// Cores of each kind: one for matrices, two for vectors.
const MATRIX_CORES: u32 = 1;
const VECTOR_CORES: u32 = 2;

/// The names of the cores, by executor.
pub(crate) const CORE_NAMES: [&str; 3] = ["matrix core", "vector core 0", "vector core 1"];

/// See the [module](self).
pub(super) struct Driver {
    pub(super) engine: ChipEngine,
}

impl Driver {
    /// An engine with the cores of a chip, its memory for intermediates, and at most so many slots.
    pub(super) fn new(slots: Option<u32>) -> Result<Driver> {
        let config = Config::new().arena(SCRATCH_BYTES);
        let config = config.executors(Kind(0), MATRIX_CORES);
        let mut config = config.executors(Kind(1), VECTOR_CORES);
        config.slots = slots.map_or(config.slots, |slots| slots.min(config.slots));
        let engine = Engine::new(&config).map_err(refused)?;
        Ok(Driver { engine })
    }

    /// A task's kernel, and its arguments as a core sees them: `replayed` has those of a captured graph.
    pub(super) fn task<'a>(
        &'a self,
        dispatch: Dispatch,
        replayed: Option<&'a ReplayArguments>,
    ) -> Result<(&'static KernelEntry, &'a [Arg])> {
        let found = match replayed {
            Some(arguments) => {
                let node = self.engine.node_of(dispatch.task);
                node.and_then(|node| arguments.task(node))
            }
            None => {
                let task = self.engine.payload(dispatch.task);
                task.map(|task| (task.entry, &*task.args))
            }
        };
        found.ok_or_else(|| Error::failed("a task without a kernel"))
    }

    /// A core has finished a task.
    pub(super) fn report(&mut self, dispatch: Dispatch, outcome: Result<()>) {
        let Dispatch { task, executor, .. } = dispatch;
        let reported = match outcome {
            Ok(()) => self.engine.complete(task, executor),
            Err(error) => {
                let kernel = self.engine.payload(task).map(|task| task.entry.id().to_string());
                let error = in_graph(error, kernel.as_deref());
                self.engine.fail(task, executor, error)
            }
        };
        debug_assert!(reported.is_ok(), "it was dispatched");
    }

    /// # Errors
    /// The first failure of a task, if there is one.
    pub(super) fn check(&self) -> Result<()> {
        let failure = self.engine.failure();
        failure.map_or(Ok(()), |failure| Err(failure.error.clone()))
    }

    /// The reason for a standstill, if there is one.
    pub(super) fn stalled(&self) -> Option<Error> {
        let stall = self.engine.stall()?;
        Some(Error::failed(format!("the chip's graph: {stall}")))
    }
}

/// The error of a task of the graph. Errors about a partner are not changed, because the node interprets them.
fn in_graph(error: Error, kernel: Option<&str>) -> Error {
    match error.kind() {
        ErrorKind::PeerDied { .. } | ErrorKind::Aborted { .. } | ErrorKind::Deadline { .. } => error,
        _ => {
            let kernel = kernel.unwrap_or("unknown");
            Error::failed(format!("its task `{kernel}`: {error}"))
        }
    }
}
