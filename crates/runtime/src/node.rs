//! The node: a worker of level 3, its chips, and all memory and domains on them.

use crate::backend::{self, Backend, Interrupter, Layout, Members, SegmentPlan, Waiter};
use crate::chip_context::ChipContext;
use crate::config::{NodeBuilder, OnLongWait, OnWait};
use crate::dispatch::InFlight;
use crate::domain::{Domain, DomainPlan, DomainSpec, list};
use crate::error::{Error, Result, Stopped};
use crate::failures::Failures;
use crate::graph_order::GraphRecord;
use crate::handle_ops;
use crate::host_tasks::{Closures, Reports, SUB_WORKERS};
use crate::intermediate::Placed;
use crate::orchestrator::{Orchestrator, Run};
use crate::per_chip::PerChip;
use crate::platform::{Clock, Platform};
use crate::segments::{Known, Sort};
use crate::signal_names::SignalNames;
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

/// A running node: chips that are up, their memory, and the methods to run tasks on them. Closed by
/// [`close`](Node::close), and on drop; nothing is left in either case.
#[derive(Debug)]
pub struct Node {
    pub(crate) shared: Shared,
    /// Outside the lock, which a run holds.
    interrupter: Interrupter,
    level: Level,
    domains: Vec<Domain>,
}

/// The node's state, shared with the handles to its memory and domains.
#[derive(Clone)]
pub(crate) struct Shared {
    state: Arc<Mutex<State>>,
    closures: Arc<Mutex<Closures>>,
    pub(crate) finished: Reports,
    /// The event source for waiting while the state is not locked; `None` if the backend itself must be used.
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

/// The state of a node. Locked for the duration of one operation.
pub(crate) struct State {
    pub(crate) name: String,
    pub(crate) backend: Box<dyn Backend>,
    pub(crate) platform: Platform,
    pub(crate) devices: Vec<Device>,
    pub(crate) segments: BTreeMap<Segment, Known>,
    /// Domains that have not been released.
    pub(crate) open_domains: BTreeMap<Segment, DomainPlan>,
    pub(crate) engine: Engine<Arc<BoundTask>, ()>,
    pub(crate) in_flight: InFlight,
    pub(crate) failures: Failures,
    pub(crate) history: TaskHistory,
    /// The memory that tasks touch, for a platform that looks for races.
    pub(crate) order: GraphRecord,
    /// Signals that tasks wait for, and how many do.
    pub(crate) signals: BTreeMap<SignalId, (Signal, usize)>,
    pub(crate) signal_names: SignalNames,
    /// Called for waits that last for seconds.
    pub(crate) on_long_wait: Option<OnLongWait>,
    /// Threads that run host tasks.
    pub(crate) host_threads: Vec<ThreadId>,
    pub(crate) finished: Reports,
    /// The place of each intermediate, by the segment number that stands for it.
    pub(crate) intermediates: BTreeMap<Segment, Placed>,
    /// The intermediates of each open scope; the first is the run's own.
    pub(crate) scopes: Vec<Vec<Segment>>,
    /// The ring of each chip, once it has one.
    pub(crate) rings: Vec<Option<Layout>>,
    pub(crate) intermediate_bytes: u64,
    pub(crate) next_intermediate: u32,
    /// The next chip in turn, among chips that can run a task.
    pub(crate) turn: usize,
    pub(crate) wait_limit: Duration,
    pub(crate) closed: bool,
    /// Open ports: the signal of each that says whether the host serves it, and its value.
    pub(crate) ports: BTreeMap<Segment, (Signal, bool)>,
    /// Segments of domains that span other workers, released ones too: for the timeline.
    pub(crate) wide: Vec<Segment>,
    pub(crate) next_segment: u32,
}

impl Node {
    /// A builder for a node.
    #[must_use]
    pub fn builder() -> NodeBuilder {
        NodeBuilder::default()
    }

    pub(crate) fn launch(mut builder: NodeBuilder, plans: Vec<DomainPlan>) -> Result<Node> {
        // Segment numbers for the graphs of simulated chips come after those of the domains.
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
            open_domains: BTreeMap::new(),
            engine,
            in_flight: InFlight::default(),
            failures: Failures::default(),
            history,
            order: GraphRecord::default(),
            signals: BTreeMap::new(),
            signal_names: SignalNames::default(),
            on_long_wait: builder.on_long_wait,
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
            state.know_domain(plan, Sort::Domain);
        }
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
        })
    }

    /// Each chip, in the order of the devices, and its part in every domain that is open now.
    #[must_use]
    pub fn contexts(&self) -> Vec<ChipContext> {
        let state = self.shared.lock();
        ChipContext::of_all(&state.devices, state.open_domains.values())
    }

    /// Calls `value` for each chip of the node, and returns the results, indexed by chip.
    ///
    /// # Errors
    /// The first error of `value`.
    pub fn each<T>(&self, value: impl FnMut(Device) -> Result<T>) -> Result<PerChip<T>> {
        PerChip::try_of(self.devices(), value)
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

    /// The process id of a chip, for display.
    ///
    /// # Errors
    /// If there is no such chip.
    pub fn pid(&self, device: Device) -> Result<u32> {
        let state = self.shared.lock();
        let chip = state.chip(device)?;
        state.backend.pid(chip).ok_or(Error::Closed)
    }

    /// The chips whose processes are stopped by a signal now.
    pub(crate) fn stopped(&self) -> Stopped {
        match self.shared.waiter {
            Some(_) => self.shared.lock().stopped(),
            // Simulated chips are not processes, and a simulated node stays locked while it waits.
            None => Stopped::default(),
        }
    }

    /// A domain that was configured before launch, by name.
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
    /// If the specification is impossible, or there is no memory.
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
            signals: Vec::new(),
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

    /// The node's clock, and what was recorded by it.
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

/// How many tasks are sent to a chip in advance: the one that runs, and those that follow it without waiting for the
/// host.
const DEPTH: u32 = 8;

/// Makes the engine of a node: its executors are the chips, each with memory for intermediates, and the sub-workers of
/// the host.
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
    state.know_domain(&plan, Sort::Domain);
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

    /// Translates what the engine refused into an error of a node.
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
