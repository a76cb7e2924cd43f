//! Where a node's chips are: processes of this host, a machine that is only described, or a checker.

use crate::backend::Layout;
use crate::error::Result;
use crate::node::Shared;
use crate::timeline::{self, Part};
use ringwork_check::Checked;
use ringwork_isa::{Device, MAX_RANKS, Segment};
#[cfg(feature = "sim")]
use ringwork_sim::Topology;
use ringwork_timeline::{Load, Timeline};
#[cfg(feature = "sim")]
use std::sync::Arc;

/// The platform of a node.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub enum Platform {
    /// One process per chip on this host; time is real.
    #[default]
    Native,
    /// A described machine; data and time are computed in the same run.
    #[cfg(feature = "sim")]
    Sim(Simulation),
    /// A checker, without a machine or time: it observes every access, and a run proves that there is no race, deadlock
    /// or misused signal, or reports where it is. See [`Checking`].
    Check(Checking),
}

impl Platform {
    /// The most chips a node, and so the most ranks a domain, may have.
    #[must_use]
    pub fn max_ranks(&self) -> u32 {
        match self {
            Platform::Native | Platform::Check(_) => MAX_RANKS,
            #[cfg(feature = "sim")]
            Platform::Sim(simulation) => simulation.topology.ranks(),
        }
    }

    /// The windows of a domain on it.
    pub(crate) fn windows(
        &self,
        segment: Segment,
        ranks: u32,
        signals: u32,
        data_bytes: u64,
    ) -> Result<Layout> {
        Ok(match self {
            Platform::Native => Layout::windows(segment, ranks, signals, data_bytes)?,
            #[cfg(feature = "sim")]
            Platform::Sim(_) => Layout::described(segment, ranks, signals, data_bytes)?,
            Platform::Check(_) => Layout::described(segment, ranks, signals, data_bytes)?,
        })
    }
}

/// A machine to simulate. Device `d` of the node is rank `d` of the topology.
///
/// ```
/// use ringwork_runtime::{Node, Platform, Simulation};
/// use ringwork_sim::Topology;
///
/// let ring = Simulation::new(Topology::preset("ring-4").unwrap());
/// let node = Node::builder().devices(0..4).platform(Platform::Sim(ring)).launch().unwrap();
/// assert_eq!(node.clock().simulated().unwrap().now_ps, 0);
/// ```
#[cfg(feature = "sim")]
#[derive(Clone, Debug)]
pub struct Simulation {
    pub(crate) topology: Arc<Topology>,
    pub(crate) trace: bool,
    pub(crate) races: bool,
}

#[cfg(feature = "sim")]
impl Simulation {
    /// On this machine.
    #[must_use]
    pub fn new(topology: Topology) -> Simulation {
        Simulation {
            topology: Arc::new(topology),
            trace: false,
            races: false,
        }
    }

    /// The machine.
    #[must_use]
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Sets whether to look for races during the simulation: a run with a race ends with
    /// [`Error::Faults`](crate::Error::Faults). The times do not change.
    #[must_use]
    pub fn races(mut self, look: bool) -> Simulation {
        self.races = look;
        self
    }

    /// Sets whether to record what ran where and when, for [`Clock::timeline`].
    #[must_use]
    pub fn trace(mut self, keep: bool) -> Simulation {
        self.trace = keep;
        self
    }
}

/// How a run is checked: the limit on instructions, and which chips are made to die.
///
/// The chips of a checked node are not processes, and time does not pass on them. A run executes one schedule, and the
/// checker knows for every access to memory which others are ordered with it: by signals, by edges of the task graph,
/// or by waits of the host. Two accesses that only happened one after the other in this schedule are not ordered. A
/// race or a misused signal ends the run with [`Error::Faults`](crate::Error::Faults), and a deadlock with the lines
/// that wait.
///
/// If nothing is found, and every signal is used such that one schedule stands for all, [`Clock::checked`] says that it is
/// proved.
///
/// ```
/// use ringwork_runtime::{Checking, Node, Platform};
///
/// let node = Node::builder().devices(0..2).platform(Platform::Check(Checking::new())).launch()?;
/// node.run(|_| Ok(()))?;
/// assert!(node.clock().checked().is_some_and(|checked| checked.is_proved()));
/// # Ok::<(), ringwork_runtime::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checking {
    pub(crate) instructions: u64,
    pub(crate) deaths: Vec<(Device, u64)>,
    pub(crate) tells_at_once: bool,
}

impl Default for Checking {
    fn default() -> Checking {
        Checking {
            instructions: 50_000_000,
            deaths: Vec::new(),
            tells_at_once: false,
        }
    }
}

impl Checking {
    /// At most 50 million instructions, and no chip dies.
    #[must_use]
    pub fn new() -> Checking {
        Checking::default()
    }

    /// Sets the most instructions of a run. A run that reaches this limit fails, and is not proved.
    #[must_use]
    pub fn instructions(self, instructions: u64) -> Checking {
        Checking { instructions, ..self }
    }

    /// Makes a chip die before its instruction of this number, counted from 0. The other chips learn of it when they
    /// can do nothing else.
    #[must_use]
    pub fn let_die(mut self, device: Device, instruction: u64) -> Checking {
        self.deaths.push((device, instruction));
        self
    }

    /// Reports a death to the other chips at once.
    #[must_use]
    pub fn tell_at_once(self) -> Checking {
        Checking {
            tells_at_once: true,
            ..self
        }
    }
}

/// The virtual time of a simulated node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Simulated {
    /// The machine's name.
    pub topology: String,
    /// The virtual clock.
    pub now_ps: u64,
    /// Events so far.
    pub events: u64,
    /// A hash of the times of all events: equal runs have equal ones, on every build.
    pub fingerprint: u64,
    /// Every link that carried anything, busiest first.
    pub loads: Vec<Load>,
}

/// A handle to a node's time; does not keep the node up.
#[derive(Clone, Debug)]
pub struct Clock {
    pub(crate) node: Shared,
}

impl Clock {
    /// The virtual time and the load of the links; `None` where time is real, or the node is closed.
    #[must_use]
    pub fn simulated(&self) -> Option<Simulated> {
        self.node.lock().backend.simulated()
    }

    /// What was checked so far, also after the node was closed; `None` on platforms that do not check.
    #[must_use]
    pub fn checked(&self) -> Option<Checked> {
        self.node.lock().backend.checked()
    }

    /// What ran where and when so far, as far back as the records reach; `None` if nothing is recorded. Chips that are
    /// processes always record, and what they did can be asked for after the node was closed; a simulated machine
    /// records if it was asked to (`Simulation::trace`) and until its node is closed.
    #[must_use]
    pub fn timeline(&self) -> Option<Timeline> {
        Clock::timeline_of(std::slice::from_ref(self))
    }

    /// The timeline of several nodes of this host in one, with the name of the node before each row.
    #[must_use]
    pub fn timeline_of(clocks: &[Clock]) -> Option<Timeline> {
        let nodes: Vec<_> = clocks.iter().map(|clock| clock.node.lock()).collect();
        let simulated: Vec<_> = nodes.iter().filter_map(|node| node.backend.timeline()).collect();
        if !simulated.is_empty() {
            let names = nodes.iter().map(|node| node.name.as_str());
            return Some(timeline::beside(names.zip(simulated).collect()));
        }
        let mut parts = Vec::with_capacity(nodes.len());
        for node in &nodes {
            let alone = nodes.len() == 1;
            parts.push(Part {
                names: &node.signal_names,
                prefix: if alone {
                    String::new()
                } else {
                    format!("{}, ", node.name)
                },
                devices: &node.devices,
                records: node.backend.records()?.checked(),
                log: &node.history,
                wide: &node.wide,
            });
        }
        let title = "this host".into();
        (!parts.is_empty()).then(|| timeline::assemble(title, &parts))
    }
}
