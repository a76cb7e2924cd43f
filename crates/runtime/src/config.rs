//! The configuration of a node, checked before anything starts.

use crate::domain::{DomainPlan, DomainSpec, list};
use crate::error::{Error, Result};
use crate::node::Node;
use crate::platform::Platform;
use ringwork_isa::{Device, Level, Segment};
use ringwork_native::cell::Patience;
use ringwork_native::{Program, Waiting};
use std::sync::Arc;
use std::time::Duration;

/// What to launch. Made by [`Node::builder`].
///
/// A chip's context exists only once the chip is up, so a builder has none:
///
/// ```compile_fail
/// # use ringwork_runtime::Node;
/// Node::builder().devices(0..2).contexts();
/// ```
pub struct NodeBuilder {
    pub(crate) name: String,
    pub(crate) level: Level,
    pub(crate) devices: Vec<Device>,
    pub(crate) domains: Vec<DomainSpec>,
    pub(crate) bring_up: Duration,
    pub(crate) wait_limit: Duration,
    pub(crate) task_slots: u32,
    pub(crate) intermediate_bytes: u64,
    pub(crate) program: Program,
    pub(crate) platform: Platform,
    pub(crate) record: bool,
    pub(crate) on_step: OnStep,
    pub(crate) on_wait: Option<OnWait>,
    pub(crate) on_long_wait: Option<OnLongWait>,
}

/// Called while the host waits; returns whether to go on.
pub(crate) type OnWait = Arc<dyn Fn() -> bool + Send + Sync>;
/// Called for waits that last for seconds.
pub(crate) type OnLongWait = Box<dyn FnMut(&str) + Send>;

/// Called at every step of every chip's bring-up: device, process id, step.
pub(crate) type OnStep = Box<dyn FnMut(Device, u32, &str)>;

impl std::fmt::Debug for NodeBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NodeBuilder")
            .field("name", &self.name)
            .field("level", &self.level)
            .field("devices", &self.devices)
            .field("domains", &self.domains)
            .finish_non_exhaustive()
    }
}

impl Default for NodeBuilder {
    fn default() -> NodeBuilder {
        NodeBuilder {
            name: "node".into(),
            level: Level::Node,
            devices: Vec::new(),
            domains: Vec::new(),
            bring_up: Duration::from_secs(120),
            wait_limit: Duration::from_secs(60),
            task_slots: 4096,
            intermediate_bytes: 16 << 20,
            program: Program::default(),
            platform: Platform::default(),
            record: true,
            on_step: Box::new(|_, _, _| {}),
            on_wait: None,
            on_long_wait: None,
        }
    }
}

impl NodeBuilder {
    /// Sets the chips, by device number.
    #[must_use]
    pub fn devices(mut self, devices: impl IntoIterator<Item = u32>) -> NodeBuilder {
        self.devices = devices.into_iter().map(Device).collect();
        self
    }

    /// Sets the worker's name in errors; the default is `node`.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> NodeBuilder {
        self.name = name.into();
        self
    }

    /// Sets the worker's level; chips hang below level 3 or higher.
    #[must_use]
    pub fn level(mut self, level: Level) -> NodeBuilder {
        self.level = level;
        self
    }

    /// Adds a domain that exists from the start.
    #[must_use]
    pub fn domain(mut self, spec: DomainSpec) -> NodeBuilder {
        self.domains.push(spec);
        self
    }

    /// Sets how long bring-up may take; the default is 120 s. A death is noticed at once in any case.
    #[must_use]
    pub fn bring_up_limit(mut self, limit: Duration) -> NodeBuilder {
        self.bring_up = limit;
        self
    }

    /// Sets the longest time that a kernel may wait for one signal, and that a chip may take to begin its next
    /// instruction; the default is 60 s.
    #[must_use]
    pub fn wait_limit(mut self, limit: Duration) -> NodeBuilder {
        self.wait_limit = limit;
        self
    }

    /// Sets the platform; the default is processes on this host.
    #[must_use]
    pub fn platform(mut self, platform: Platform) -> NodeBuilder {
        self.platform = platform;
        self
    }

    /// Sets whether chips record what they do, for [timelines](crate::Clock::timeline) and reports. The default is to
    /// record; the only reason to switch it off is to measure its cost.
    #[must_use]
    pub fn record(mut self, record: bool) -> NodeBuilder {
        self.record = record;
        self
    }

    /// Sets how many tasks may be submitted and unfinished; the default is 4096. A submission past that waits.
    #[must_use]
    pub fn task_slots(mut self, slots: u32) -> NodeBuilder {
        self.task_slots = slots;
        self
    }

    /// Sets the memory for intermediate tensors on each chip that has any; the default is 16 MiB. An allocation past
    /// that waits until the users of a scope have finished.
    #[must_use]
    pub fn intermediate_bytes(mut self, bytes: u64) -> NodeBuilder {
        self.intermediate_bytes = bytes;
        self
    }

    /// Sets the program that chips run, for hosts that are not an executable of their own (an interpreter).
    #[must_use]
    pub fn program(mut self, program: Program) -> NodeBuilder {
        self.program = program;
        self
    }

    /// Calls `hear` at every step of every chip's bring-up, as it begins: device, process id, step.
    #[must_use]
    pub fn on_step(mut self, hear: impl FnMut(Device, u32, &str) + 'static) -> NodeBuilder {
        self.on_step = Box::new(hear);
        self
    }

    /// Calls `hear` about ten times a second on each thread of the host that waits for tasks. If it returns false, the
    /// node is interrupted, as by an [`Interrupter`](crate::Interrupter): for hosts that must look for signals
    /// themselves.
    #[must_use]
    pub fn on_wait(mut self, hear: impl Fn() -> bool + Send + Sync + 'static) -> NodeBuilder {
        self.on_wait = Some(Arc::new(hear));
        self
    }

    /// Calls `hear` once for every wait of the host that lasts longer than a few seconds, with a text that says which
    /// chips it waits for and what each does. For programs that inform their user before the limit.
    #[must_use]
    pub fn on_long_wait(mut self, hear: impl FnMut(&str) + Send + 'static) -> NodeBuilder {
        self.on_long_wait = Some(Box::new(hear));
        self
    }

    /// Starts the chips and returns when all are ready.
    ///
    /// # Errors
    /// [`Error::Config`] before anything starts; or the first chip that failed, with its own words, after
    /// all others were ended.
    pub fn launch(self) -> Result<Node> {
        let plans = self.plan()?;
        Node::launch(self, plans)
    }

    /// Checks everything that can be checked without starting anything.
    fn plan(&self) -> Result<Vec<DomainPlan>> {
        if self.devices.is_empty() {
            return Err(Error::config("devices", "a node needs at least one chip"));
        }
        let most = self.platform.max_ranks();
        if self.devices.len() > most as usize {
            let why = format!("{} chips; a node has at most {most}", self.devices.len());
            return Err(Error::config("devices", why));
        }
        if self.level < Level::Node {
            let why = format!(
                "a {} has no chips below it; use level 3 (node) or higher",
                self.level
            );
            return Err(Error::config("level", why));
        }
        for (i, device) in self.devices.iter().enumerate() {
            if self.devices[..i].contains(device) {
                let why = format!("device {device} is there twice in {}", list(&self.devices));
                return Err(Error::config("devices", why));
            }
        }
        #[cfg(feature = "sim")]
        if let Platform::Sim(simulation) = &self.platform {
            let (ranks, name) = (simulation.topology.ranks(), &simulation.topology.name);
            if let Some(device) = self.devices.iter().find(|device| device.0 >= ranks) {
                let why = format!("there is no device {device} on `{name}`, which has {ranks}, from 0");
                return Err(Error::config("devices", why));
            }
        }
        for (name, limit) in [("bring_up_limit", self.bring_up), ("wait_limit", self.wait_limit)] {
            if limit.is_zero() {
                return Err(Error::config(name, "zero leaves no time for anything"));
            }
        }
        if self.task_slots == 0 || self.task_slots >= 1 << 30 {
            let why = format!("{} slots; a worker has between 1 and 2^30", self.task_slots);
            return Err(Error::config("task_slots", why));
        }
        let mut plans: Vec<DomainPlan> = Vec::with_capacity(self.domains.len());
        for (segment, spec) in (0..).map(Segment).zip(&self.domains) {
            let plan = spec.plan(&self.platform, &self.devices, segment)?;
            if plans.iter().any(|other| other.name == plan.name) {
                return Err(Error::config(
                    "domains",
                    format!("`{}` is there twice", plan.name),
                ));
            }
            plans.push(plan);
        }
        Ok(plans)
    }

    pub(crate) fn waiting(&self) -> Waiting {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        // The host waits as a chip does, but sleeps sooner.
        Waiting {
            patience: Patience::for_sharing(self.devices.len(), cores),
            limit: self.wait_limit,
        }
    }
}
