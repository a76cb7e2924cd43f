//! Machines described in YAML: networks, chips, faults, and the presets that ship.
//!
//! ```
//! use ringwork_sim::Topology;
//! let machine = Topology::from_yaml("mine.yaml", "
//! network: {kind: torus, dims: [4, 4], bandwidth: 50 GB/s, latency: 500 ns}
//! chip: {vector: 1 TB/s}
//! ").unwrap();
//! assert_eq!(machine.ranks(), 16);
//!
//! let wrong = Topology::from_yaml("mine.yaml", "
//! network: {kind: ring, size: 4, bandwith: 50 GB/s, latency: 500 ns}
//! ").unwrap_err();
//! assert!(wrong.to_string().starts_with(
//!     "mine.yaml:2: network: there is no key `bandwith` here; did you mean `bandwidth`?"));
//! ```

mod ancestor;
mod chip;
mod error;
mod faults;
mod grid;
mod irregular;
mod network;
mod presets;
#[cfg(test)]
mod tests;
mod units;

pub use chip::{Chip, Dma, Memory, Queues};
pub use error::Impossible;
pub use presets::{PRESETS, preset_yaml};

use crate::net::{Fabric, Level, Switching};
use ringwork_yaml::{ConfigError, Problem, Tree};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What a rank is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A whole chip.
    Chip,
    /// One of the cores inside.
    Core,
    /// A member of a level, of so many cores; the first of them stands for it.
    Member(u32),
}

/// A machine, resolved: every link exists, every number has been checked.
#[derive(Clone, Debug)]
pub struct Topology {
    /// What it is called.
    pub name: String,
    /// Its levels, outermost first; empty if its links were written down one by one.
    pub levels: Vec<Level>,
    /// Its links.
    pub fabric: Arc<Fabric>,
    /// When a message's head may go on.
    pub switching: Switching,
    /// What each chip is made of.
    pub chip: Chip,
    /// What a rank is.
    pub unit: Unit,
    /// Places inside one chip.
    pub cores_per_chip: u32,
    /// How fast some ranks compute, where it is not 1.
    pub speed: BTreeMap<u32, f64>,
}

const TOP_KEYS: [&str; 11] = [
    "name",
    "network",
    "levels",
    "chip",
    "ranks",
    "stragglers",
    "faults",
    "system",
    "sip",
    "cube",
    "ipcq",
];

impl Topology {
    /// A machine from the text of a file; `file` is only for messages.
    ///
    /// # Errors
    /// The first thing that is wrong, with its line.
    pub fn from_yaml(file: &str, text: &str) -> Result<Topology, ConfigError> {
        Topology::from_tree(file, &Tree::parse(file, text)?)
    }

    /// A machine from a file that was read, and perhaps changed; its name is `file` unless it has one.
    ///
    /// # Errors
    /// The first thing that is wrong, with its line.
    pub fn from_tree(file: &str, tree: &Tree) -> Result<Topology, ConfigError> {
        let top = tree.reader().table(&TOP_KEYS)?;
        // Only one of them would have an effect.
        let described = ["network", "levels"].into_iter().chain(ancestor::KEYS);
        let mut described = described.filter(|key| top.get(key).is_some());
        if let (Some(first @ ("network" | "levels")), Some(second)) = (described.next(), described.next())
            && let Some(reader) = top.get(second)
        {
            return Err(reader.error(Impossible::Conflict(first, second)));
        }
        let mut chip = top.get("chip").map_or(Ok(Chip::default()), |r| chip::read(&r))?;
        let (key, mut wired) = if let Some(network) = top.get("network") {
            (network.clone(), network::read(&network)?)
        } else if let Some(levels) = top.get("levels") {
            (levels.clone(), network::read_levels(&levels)?)
        } else if let Some(system) = ancestor::KEYS.iter().find_map(|key| top.get(key)) {
            (system, ancestor::read(&top, &mut chip)?)
        } else {
            return Err(top.reader.error(Problem::Missing(
                "network",
                "network: {kind: ring, size: 8, ...}".into(),
            )));
        };
        let faults = top.get("faults");
        if let Some(faults) = &faults {
            faults::read(faults, &mut wired.fabric)?;
        }
        if let Some(lost) = wired.fabric.cut_off() {
            return Err(faults
                .as_ref()
                .unwrap_or(&key)
                .error(Impossible::Disconnected(lost)));
        }
        let unit = top
            .get("ranks")
            .map_or(Ok(Unit::Chip), |r| grid::read_unit(&r, &wired.levels))?;
        let mut topology = Topology {
            name: top.get("name").map_or(Ok(file), |r| r.text())?.to_owned(),
            levels: wired.levels,
            fabric: Arc::new(wired.fabric),
            switching: wired.switching,
            chip,
            unit,
            cores_per_chip: wired.cores_per_chip,
            speed: BTreeMap::new(),
        };
        if let Some(stragglers) = top.get("stragglers") {
            for item in stragglers.list()? {
                let table = item.table(&["rank", "speed"])?;
                let rank = table
                    .need("rank", "0")?
                    .count(0, u64::from(topology.ranks()) - 1)?;
                let speed = table.need("speed", "0.5")?.factor(1e6)?;
                if topology.speed.insert(rank, speed).is_some() {
                    return Err(item.error(Impossible::Twice(rank)));
                }
            }
        }
        Ok(topology)
    }

    /// A preset by its name: `h100x8`, `torus-8x8x8`.
    ///
    /// # Errors
    /// [`Impossible::NoSuchPreset`], or what is wrong with its numbers.
    pub fn preset(name: &str) -> Result<Topology, ConfigError> {
        let text = preset_yaml(name).ok_or_else(|| ConfigError {
            file: units::shorten(name),
            line: 0,
            key: String::new(),
            problem: Impossible::NoSuchPreset {
                got: units::shorten(name),
                valid: PRESETS.iter().map(|preset| preset.0).collect(),
            }
            .into(),
        })?;
        Topology::from_yaml(name, &text)
    }

    /// Ranks: chips, the cores inside them, or what is between.
    #[must_use]
    pub fn ranks(&self) -> u32 {
        match self.unit {
            Unit::Chip => self.chips(),
            Unit::Core => self.fabric.places(),
            Unit::Member(cores) => self.fabric.places() / cores.max(1),
        }
    }

    /// Whether every program takes the same time on another machine, as far as that can be told without running one: the
    /// names do not count, nor do slow ranks where computing takes no time.
    #[must_use]
    pub fn behaves_as(&self, other: &Topology) -> bool {
        let computes = |of: &Topology| {
            !(of.chip.vector.is_unlimited() && of.chip.matrix.is_unlimited() && of.chip.array.is_none())
        };
        self.levels
            .iter()
            .map(|l| (&l.shape, l.link, l.one_way, l.attach))
            .eq(other
                .levels
                .iter()
                .map(|l| (&l.shape, l.link, l.one_way, l.attach)))
            && self.fabric.behaves_as(&other.fabric)
            && self.switching == other.switching
            && self.chip == other.chip
            && self.unit == other.unit
            && self.cores_per_chip == other.cores_per_chip
            && (self.speed == other.speed || !computes(self))
    }

    /// Chips.
    #[must_use]
    pub fn chips(&self) -> u32 {
        self.fabric.places() / self.cores_per_chip.max(1)
    }

    /// The place in the network where a rank sits. A chip with cores inside sits where its outermost links
    /// are.
    #[must_use]
    pub fn place(&self, rank: u32) -> u32 {
        match self.unit {
            Unit::Core => rank,
            Unit::Member(cores) => rank * cores,
            Unit::Chip => {
                let door = self.levels.iter().find_map(|level| match level.attach {
                    crate::net::Attach::Gateway(gateway) => Some(gateway),
                    crate::net::Attach::Each => None,
                });
                rank * self.cores_per_chip + door.unwrap_or(0).min(self.cores_per_chip - 1)
            }
        }
    }
}
