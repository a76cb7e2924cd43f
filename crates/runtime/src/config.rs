//! A node as it is asked for, checked before anything starts.

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
/// A chip's context exists only once it is up, so it cannot be asked of a builder:
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
}

/// Hears that the host waits, and says whether to go on.
pub(crate) type OnWait = Arc<dyn Fn() -> bool + Send + Sync>;

/// Hears of every step of every chip's bring-up: device, process id, step.
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
        }
    }
}

impl NodeBuilder {
    /// The chips, by device number.
    #[must_use]
    pub fn devices(mut self, devices: impl IntoIterator<Item = u32>) -> NodeBuilder {
        self.devices = devices.into_iter().map(Device).collect();
        self
    }

    /// The worker's name in errors; `node` unless said otherwise.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> NodeBuilder {
        self.name = name.into();
        self
    }

    /// Where the worker sits; chips hang below level 3 or higher.
    #[must_use]
    pub fn level(mut self, level: Level) -> NodeBuilder {
        self.level = level;
        self
    }

    /// A domain that exists from the start.
    #[must_use]
    pub fn domain(mut self, spec: DomainSpec) -> NodeBuilder {
        self.domains.push(spec);
        self
    }

    /// How long bring-up may take; 120 s unless said otherwise. A death is noticed at once in any case.
    #[must_use]
    pub fn bring_up_limit(mut self, limit: Duration) -> NodeBuilder {
        self.bring_up = limit;
        self
    }

    /// The longest that a kernel may wait for one signal, and that a chip may go without beginning an
    /// instruction; 60 s unless said otherwise.
    #[must_use]
    pub fn wait_limit(mut self, limit: Duration) -> NodeBuilder {
        self.wait_limit = limit;
        self
    }

    /// What the chips are; processes on this host unless said otherwise.
    #[must_use]
    pub fn platform(mut self, platform: Platform) -> NodeBuilder {
        self.platform = platform;
        self
    }

    /// Whether chips record what they do, for [timelines](crate::Clock::timeline) and reports; they do unless said
    /// otherwise. It costs so little that there is one reason to switch it off: to measure that.
    #[must_use]
    pub fn record(mut self, record: bool) -> NodeBuilder {
        self.record = record;
        self
    }

    /// Tasks that may be submitted and not yet done; 4096 unless said otherwise. A submission past that
    /// waits for one to be done.
    #[must_use]
    pub fn task_slots(mut self, slots: u32) -> NodeBuilder {
        self.task_slots = slots;
        self
    }

    /// Memory for intermediate tensors on each chip that has any; 16 MiB unless said otherwise. An
    /// allocation past that waits for a scope's users to be done.
    #[must_use]
    pub fn intermediate_bytes(mut self, bytes: u64) -> NodeBuilder {
        self.intermediate_bytes = bytes;
        self
    }

    /// The program that chips run, for hosts that are not an executable of their own (an interpreter).
    #[must_use]
    pub fn program(mut self, program: Program) -> NodeBuilder {
        self.program = program;
        self
    }

    /// Hears of every step of every chip's bring-up, as it begins: device, process id, step.
    #[must_use]
    pub fn on_step(mut self, hear: impl FnMut(Device, u32, &str) + 'static) -> NodeBuilder {
        self.on_step = Box::new(hear);
        self
    }

    /// Hears, about ten times a second, that a thread of the host waits for tasks, on that thread. If it returns false the
    /// node is interrupted, as by an [`Interrupter`](crate::Interrupter): for hosts that must look for signals themselves.
    #[must_use]
    pub fn on_wait(mut self, hear: impl Fn() -> bool + Send + Sync + 'static) -> NodeBuilder {
        self.on_wait = Some(Arc::new(hear));
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
        // The host waits too while its chips work, but sleeps soon.
        Waiting {
            patience: Patience::for_sharing(self.devices.len(), cores),
            limit: self.wait_limit,
        }
    }
}
