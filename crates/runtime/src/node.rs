//! The node: a worker of level 3, its chips, and everything that lives on them.

use crate::backend::{self, Backend, Interrupter, Layout, Members, SegmentPlan, Waiter};
use crate::chip_context::ChipContext;
use crate::config::{NodeBuilder, OnWait};
use crate::dispatch::InFlight;
use crate::domain::{Domain, DomainPlan, DomainSpec, list};
use crate::error::{Error, Result, Stopped};
use crate::failures::Failures;
use crate::handle_ops;
use crate::host_tasks::{Closures, Reports, SUB_WORKERS};
use crate::intermediate::Placed;
use crate::orchestrator::{Orchestrator, Run};
use crate::platform::{Clock, Platform};
use crate::segments::{Known, Sort};
use crate::task_binding::BoundTask;
use crate::task_history::TaskHistory;
use crate::tensor::{Allocated, Tensor};
use ringwork_engine::{Config, Engine, Kind, Ring, SignalId};
use ringwork_isa::{Device, Dtype, Element, Level, Segment, Signal};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;
use std::time::Duration;

/// A running node: chips that are up, memory on them, and the way to run things there.
///
/// Closed by [`close`](Node::close), which also happens on drop; nothing is left in either case.
#[derive(Debug)]
pub struct Node {
    pub(crate) shared: Shared,
    /// Beside the lock, which a run holds.
    interrupter: Interrupter,
    level: Level,
    domains: Vec<Domain>,
    contexts: Vec<ChipContext>,
}

/// The node's state, shared with the handles to what lives on it.
#[derive(Clone)]
pub(crate) struct Shared {
    state: Arc<Mutex<State>>,
    closures: Arc<Mutex<Closures>>,
    pub(crate) finished: Reports,
    /// What to wait with while the state is not locked; `None` where the machine itself must be asked.
    pub(crate) waiter: Option<Arc<dyn Waiter>>,
    pub(crate) on_wait: Option<OnWait>,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Shared")
    }
}

impl Shared {
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn closures(&self) -> MutexGuard<'_, Closures> {
        self.closures.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Everything a node knows. Locked for the length of one operation.
pub(crate) struct State {
    pub(crate) name: String,
    pub(crate) backend: Box<dyn Backend>,
    pub(crate) platform: Platform,
    pub(crate) devices: Vec<Device>,
    pub(crate) segments: BTreeMap<Segment, Known>,
    pub(crate) engine: Engine<Arc<BoundTask>, ()>,
    pub(crate) in_flight: InFlight,
    pub(crate) failures: Failures,
    pub(crate) history: TaskHistory,
    /// Signals that tasks wait for, and how many do.
    pub(crate) signals: BTreeMap<SignalId, (Signal, usize)>,
    /// Threads that run host tasks.
    pub(crate) host_threads: Vec<ThreadId>,
    pub(crate) finished: Reports,
    /// Where intermediates are, by the segment that stands for each.
    pub(crate) intermediates: BTreeMap<Segment, Placed>,
    /// The intermediates of each open scope; the first is the run's own.
    pub(crate) scopes: Vec<Vec<Segment>>,
    /// The ring of each chip, once it has one.
    pub(crate) rings: Vec<Option<Layout>>,
    pub(crate) intermediate_bytes: u64,
    pub(crate) next_intermediate: u32,
    /// Whose turn it is among chips that could run a task.
    pub(crate) turn: usize,
    pub(crate) wait_limit: Duration,
    pub(crate) closed: bool,
    /// Open ports, where each says that it is attended to, and whether it is.
    pub(crate) ports: BTreeMap<Segment, (Signal, bool)>,
    /// Segments of domains that reach over other workers, those that are gone included: for the timeline.
    pub(crate) wide: Vec<Segment>,
    pub(crate) next_segment: u32,
}

impl Node {
    /// A node to be configured.
    #[must_use]
    pub fn builder() -> NodeBuilder {
        NodeBuilder::default()
    }

    pub(crate) fn launch(mut builder: NodeBuilder, plans: Vec<DomainPlan>) -> Result<Node> {
        // After the domains, numbers for what simulated chips keep for their own graphs.
        let own = u32::try_from(plans.len()).unwrap_or(u32::MAX);
        let after_own = own.saturating_add(u32::try_from(builder.devices.len()).unwrap_or(u32::MAX));
        let backend = backend::launch(&mut builder, &plans, Segment(own))?;
        let hosts = backend.waiter().map_or(1, |_| SUB_WORKERS);
        let (slots, bytes) = (builder.task_slots, builder.intermediate_bytes);
        let engine = engine(builder.devices.len(), hosts, slots, bytes);
        let engine = engine.map_err(|problem| Error::config("task_slots", problem.to_string()))?;
        let history = TaskHistory::new(builder.record, builder.devices.len());
        let mut state = State {
            rings: vec![None; builder.devices.len()],
            name: builder.name,
            backend,
            platform: builder.platform,
            devices: builder.devices,
            segments: BTreeMap::new(),
            engine,
            in_flight: InFlight::default(),
            failures: Failures::default(),
            history,
            signals: BTreeMap::new(),
            host_threads: Vec::new(),
            finished: Reports::default(),
            intermediates: BTreeMap::new(),
            scopes: vec![Vec::new()],
            intermediate_bytes: builder.intermediate_bytes,
            next_intermediate: 0,
            turn: 0,
            wait_limit: builder.wait_limit,
            closed: false,
            ports: BTreeMap::new(),
            wide: Vec::new(),
            next_segment: after_own,
        };
        for plan in &plans {
            state.know(&plan.segment, Sort::Domain);
        }
        let contexts = ChipContext::of_all(&state.devices, &plans);
        let interrupter = state.backend.interrupter();
        let shared = Shared {
            finished: state.finished.clone(),
            waiter: state.backend.waiter(),
            on_wait: builder.on_wait,
            state: Arc::new(Mutex::new(state)),
            closures: Arc::default(),
        };
        let domains = plans
            .into_iter()
            .map(|plan| Domain::new(plan, shared.clone()))
            .collect();
        Ok(Node {
            shared,
            level: builder.level,
            interrupter,
            domains,
            contexts,
        })
    }

    /// What each chip reported when it was ready, in the order of the devices.
    #[must_use]
    pub fn contexts(&self) -> &[ChipContext] {
        &self.contexts
    }

    /// The worker's name in errors.
    #[must_use]
    pub fn name(&self) -> String {
        self.shared.lock().name.clone()
    }

    /// Where the worker sits.
    #[must_use]
    pub fn level(&self) -> Level {
        self.level
    }

    /// The chips, in order.
    #[must_use]
    pub fn devices(&self) -> Vec<Device> {
        self.shared.lock().devices.clone()
    }

    /// The process of a chip, for people.
    ///
    /// # Errors
    /// If there is no such chip.
    pub fn pid(&self, device: Device) -> Result<u32> {
        let state = self.shared.lock();
        let chip = state.chip(device)?;
        state.backend.pid(chip).ok_or(Error::Closed)
    }

    /// The chips whose processes are stopped now.
    pub(crate) fn stopped(&self) -> Stopped {
        match self.shared.waiter {
            Some(_) => self.shared.lock().stopped(),
            // Its chips are not processes, and it is locked while it waits.
            None => Stopped::default(),
        }
    }

    /// A domain that was configured before launch.
    ///
    /// # Errors
    /// If there is none of this name.
    pub fn domain(&self, name: &str) -> Result<Domain> {
        let found = self.domains.iter().find(|domain| domain.name() == name);
        found
            .cloned()
            .ok_or_else(|| Error::config("domain", format!("`{name}` was not configured")))
    }

    /// Opens a domain now.
    ///
    /// # Errors
    /// If the spec cannot be, or there is no memory.
    pub fn open_domain(&self, spec: &DomainSpec) -> Result<Domain> {
        open_domain(&self.shared, spec)
    }

    /// Zeroed memory for `count` elements on a chip.
    ///
    /// # Errors
    /// If there is no such chip or no memory.
    pub fn zeros<T: Element>(&self, device: Device, count: usize) -> Result<Tensor<T>> {
        self.allocate(device, T::DTYPE, count).map(Tensor::new)
    }

    pub(crate) fn allocate(&self, device: Device, dtype: Dtype, count: usize) -> Result<Allocated> {
        let mut state = self.shared.lock();
        let chip = state.chip(device)?;
        let what = format!("a tensor on device {device}");
        let bytes = (count as u64).saturating_mul(dtype.bytes() as u64);
        let layout = Layout::private(state.fresh_segment(), bytes).map_err(ringwork_native::Error::from)?;
        let plan = SegmentPlan {
            layout,
            what,
            members: Members::all([chip]),
        };
        state.backend.create(&plan)?;
        state.know(&plan, Sort::Private);
        drop(state);
        Ok(Allocated {
            device,
            node: self.shared.clone(),
            span: handle_ops::private(layout.segment, layout.data_offset(), dtype, count),
        })
    }

    /// Memory on a chip with these values.
    ///
    /// # Errors
    /// If there is no such chip or no memory.
    pub fn tensor<T: Element>(&self, device: Device, values: &[T]) -> Result<Tensor<T>> {
        let tensor = self.zeros(device, values.len())?;
        tensor.write(values)?;
        Ok(tensor)
    }

    /// Runs an orchestration: returns when every task it submitted is done.
    ///
    /// # Errors
    /// The first error, with its path. Other tasks have then ended too, and the node can run again, except
    /// on chips that are gone.
    pub fn run<R>(&self, orchestration: impl FnOnce(&mut Orchestrator<'_>) -> Result<R>) -> Result<R> {
        let run = self.begin_run()?;
        let outcome = orchestration(&mut run.orchestrator());
        run.end(outcome)
    }

    /// Begins a run whose orchestration is not a Rust closure: [`run`](Node::run) in two halves.
    ///
    /// # Errors
    /// If the node is closed, or this thread runs a host task of it.
    pub fn begin_run(&self) -> Result<Run> {
        Run::begin(self.shared.clone())
    }

    /// What keeps this node's time.
    #[must_use]
    pub fn clock(&self) -> Clock {
        Clock {
            node: self.shared.clone(),
        }
    }

    /// A handle by which another thread can end a run, for Ctrl-C.
    #[must_use]
    pub fn interrupter(&self) -> Interrupter {
        self.interrupter.clone()
    }

    /// Ends everything: tasks, domains, chips, memory. Idempotent, bounded, also done on drop. A run on
    /// another thread is interrupted.
    pub fn close(&self) {
        self.interrupter.interrupt();
        let mut state = self.shared.lock();
        if !std::mem::replace(&mut state.closed, true) {
            state.abort_all("the node is closing");
            state.backend.close();
            state.segments.clear();
        }
        drop(state);
        drop(self.shared.take_closures());
        self.shared.dismiss_sub_workers();
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.close();
    }
}

/// How many tasks a chip has at once: the one it runs, and some that it need not wait for.
const DEPTH: u32 = 8;

/// Chips, each with memory for intermediates, and the sub-workers of the host.
fn engine(
    chips: usize,
    hosts: u32,
    slots: u32,
    intermediate_bytes: u64,
) -> std::result::Result<Engine<Arc<BoundTask>, ()>, ringwork_engine::Error> {
    let chips = u32::try_from(chips).unwrap_or(u32::MAX);
    let mut config = Config::new().slots(slots).executors_of_depth(CHIP, chips, DEPTH);
    for _ in 0..chips {
        config = config.arena(intermediate_bytes);
    }
    Engine::new(&config.executors(HOST, hosts))
}

/// The kind of executor that a chip is.
pub(crate) const CHIP: Kind = Kind(0);
/// The kind of executor that a sub-worker of the host is.
pub(crate) const HOST: Kind = Kind(1);

/// Opens a domain on a node.
pub(crate) fn open_domain(shared: &Shared, spec: &DomainSpec) -> Result<Domain> {
    let mut state = shared.lock();
    state.check_open()?;
    let segment = state.fresh_segment();
    let plan = spec.plan(&state.platform, &state.devices, segment)?;
    for &chip in &plan.segment.members.chips {
        state.check_alive(chip)?;
    }
    state.backend.create(&plan.segment)?;
    state.know(&plan.segment, Sort::Domain);
    let mut staged = true;
    spec.for_each_staged(&plan, |rank, offset, bytes| {
        staged &= state.backend.write(segment, rank, offset, bytes)
    });
    drop(state);
    debug_assert!(staged, "the plan was checked against the data");
    Ok(Domain::new(plan, shared.clone()))
}

impl State {
    pub(crate) fn check_open(&self) -> Result<()> {
        if self.closed { Err(Error::Closed) } else { Ok(()) }
    }

    pub(crate) fn chip(&self, device: Device) -> Result<usize> {
        self.check_open()?;
        let found = self.devices.iter().position(|have| *have == device);
        found.ok_or_else(|| Error::NoSuchDevice {
            device,
            have: list(&self.devices),
        })
    }

    pub(crate) fn check_alive(&self, chip: usize) -> Result<()> {
        match self.backend.end(chip) {
            None => Ok(()),
            Some(cause) => Err(Error::Gone {
                device: self.devices[chip],
                cause,
            }),
        }
    }

    /// What the engine refused, in the words of a node.
    pub(crate) fn refused(&self, problem: ringwork_engine::Error) -> Error {
        let worker = self.name.clone();
        match problem {
            ringwork_engine::Error::RingStuck { fill } => {
                let raise = match fill.ring {
                    Ring::Slots => "task_slots",
                    Ring::Memory(_) => "intermediate_bytes",
                };
                Error::RingStuck { worker, fill, raise }
            }
            problem => Error::Refused { worker, problem },
        }
    }
}
