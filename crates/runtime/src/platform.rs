//! Where a node's chips are: processes of this host, or a machine that is only described.

use crate::backend::Layout;
use crate::error::Result;
use crate::node::Shared;
use crate::timeline::{self, Part};
use ringwork_isa::{MAX_RANKS, Segment};
#[cfg(feature = "sim")]
use ringwork_sim::Topology;
use ringwork_timeline::{Load, Timeline};
#[cfg(feature = "sim")]
use std::sync::Arc;

/// What the chips of a node are.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub enum Platform {
    /// One process per chip on this host; time is real.
    #[default]
    Native,
    /// A described machine; data and time are computed in the same run.
    #[cfg(feature = "sim")]
    Sim(Simulation),
}

impl Platform {
    /// The most chips a node, and so the most ranks a domain, may have.
    #[must_use]
    pub fn max_ranks(&self) -> u32 {
        match self {
            Platform::Native => MAX_RANKS,
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
}

#[cfg(feature = "sim")]
impl Simulation {
    /// On this machine.
    #[must_use]
    pub fn new(topology: Topology) -> Simulation {
        Simulation {
            topology: Arc::new(topology),
            trace: false,
        }
    }

    /// The machine.
    #[must_use]
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Keeps what ran where and when, for [`Clock::timeline`].
    #[must_use]
    pub fn trace(mut self, keep: bool) -> Simulation {
        self.trace = keep;
        self
    }
}

/// What a simulated node knows of its own time.
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
    /// Where virtual time is and what the links carried; `None` where time is real, or the node is closed.
    #[must_use]
    pub fn simulated(&self) -> Option<Simulated> {
        self.node.lock().backend.simulated()
    }

    /// What ran where and when so far, as far back as it is remembered; `None` if it is not recorded. Chips that are
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
