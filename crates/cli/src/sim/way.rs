//! The ways to all-reduce that can be compared: over shared windows, and over queues between neighbours.

use super::ccl::Ccl;
use crate::bench::Collective;
use crate::nearest::nearest;
use ringwork::collectives::Algorithm;
use ringwork::collectives::network::NetworkAlgorithm;
use ringwork::sim::Topology;
use std::fmt;
use std::str::FromStr;

/// How an all-reduce is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// Through windows that every member reads and writes.
    Windows(Algorithm),
    /// By messages through queues between neighbours.
    Queues(NetworkAlgorithm),
}

/// More ranks have more queues than anybody would build: a comparison leaves it out.
const MOST_DIRECT: u32 = 256;

impl Way {
    /// Every way, in the order they are listed to users.
    pub(crate) fn all() -> impl Iterator<Item = Way> {
        // Packets are what a communicator uses.
        let windows = Algorithm::ALL.into_iter().filter(|one| *one != Algorithm::Packet);
        let queues = NetworkAlgorithm::ALL.into_iter().map(Way::Queues);
        windows.map(Way::Windows).chain(queues)
    }

    /// The name a user types.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Way::Windows(algorithm) => algorithm.name(),
            Way::Queues(algorithm) => algorithm.name(),
        }
    }

    /// The sides of the grid that the algorithm works on.
    ///
    /// # Errors
    /// If it needs one and the ranks make none.
    pub(crate) fn grid(self, topology: &Topology, ranks: u32) -> Result<Vec<u32>, String> {
        let needs_one = matches!(
            self,
            Way::Queues(NetworkAlgorithm::Hierarchical | NetworkAlgorithm::Torus | NetworkAlgorithm::Centre)
        );
        match topology.grid(ranks) {
            Some(sizes) if needs_one => Ok(sizes),
            None if needs_one => {
                let why = if topology.levels.is_empty() {
                    "its links were written down one by one".to_owned()
                } else {
                    format!(
                        "{ranks} of its {} ranks end in the middle of a row",
                        topology.ranks()
                    )
                };
                Err(format!(
                    "`{self}` needs a grid of ranks (rings, meshes, tori, or levels of them), and `{}` has none: {why}; \
                     use direct, halving-doubling, double-tree or a way through windows",
                    topology.name
                ))
            }
            _ => Ok(vec![ranks]),
        }
    }

    /// Why a comparison of everything leaves this way out, if it does.
    fn left_out(self, topology: &Topology, ranks: u32) -> Option<String> {
        match self {
            Way::Queues(NetworkAlgorithm::Direct) if ranks > MOST_DIRECT => Some(format!(
                "`{self}` has a queue for every pair, and {ranks} ranks are more than {MOST_DIRECT}; ask for it by name"
            )),
            _ => self.grid(topology, ranks).err(),
        }
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Way {
    type Err = String;

    fn from_str(name: &str) -> Result<Way, String> {
        if name == Algorithm::Packet.name() {
            return Err("packets are what a communicator uses; choose another".into());
        }
        Way::all().find(|way| way.name() == name).ok_or_else(|| {
            let names: Vec<_> = Way::all().map(Way::name).collect();
            let hint = nearest(name, names.iter().copied())
                .map_or_else(String::new, |near| format!("did you mean `{near}`? "));
            let name = name.escape_debug();
            format!(
                "there is no algorithm `{name}`; {hint}(valid: {}, all)",
                names.join(", ")
            )
        })
    }
}

/// The ways that were asked for.
#[derive(Clone, Debug, Default)]
pub(super) struct Ways {
    each: Vec<Way>,
    /// Whatever can be done: what cannot is left out.
    all: bool,
}

impl FromStr for Ways {
    type Err = String;

    fn from_str(name: &str) -> Result<Ways, String> {
        match name {
            "all" => Ok(Ways::all()),
            one => Ok(Ways::of(vec![one.parse()?])),
        }
    }
}

impl Ways {
    fn all() -> Ways {
        Ways {
            each: Way::all().collect(),
            all: true,
        }
    }

    fn of(each: Vec<Way>) -> Ways {
        Ways { each, all: false }
    }

    /// These and those, without any twice.
    pub(super) fn and(mut self, more: Ways) -> Ways {
        self.all |= more.all;
        let new = more.each.into_iter().filter(|way| !self.each.contains(way));
        let new: Vec<_> = new.collect();
        self.each.extend(new);
        self
    }

    /// The ways to do a collective: those asked for, else what is configured, else all.
    pub(super) fn choose(asked: Option<&Ways>, ccl: &Ccl, collective: Collective) -> Ways {
        let configured = || ccl.algorithm(collective).map(|one| Ways::of(vec![one]));
        asked.cloned().or_else(configured).unwrap_or_else(Ways::all)
    }

    pub(super) fn each(&self) -> impl Iterator<Item = Way> {
        self.each.iter().copied()
    }

    /// Whether a way can be done here; if not, why it is left out.
    ///
    /// # Errors
    /// The same, if it was asked for by name.
    pub(super) fn check(&self, way: Way, topology: &Topology, ranks: u32) -> Result<Option<String>, String> {
        if self.all {
            return Ok(way.left_out(topology, ranks));
        }
        way.grid(topology, ranks).map(|_| None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parse_back_and_a_slip_is_recognised() {
        for way in Way::all() {
            assert_eq!(way.name().parse(), Ok(way));
        }
        let error = "doubletree".parse::<Way>().unwrap_err();
        assert!(error.contains("did you mean `double-tree`?"), "{error}");
        assert!("packet".parse::<Way>().unwrap_err().contains("communicator"));
    }

    #[test]
    fn a_comparison_leaves_out_what_cannot_be_and_a_name_is_refused() {
        let links = Topology::preset("v100x8").unwrap();
        let centre = Way::Queues(NetworkAlgorithm::Centre);
        let left_out = Ways::all().check(centre, &links, 8).unwrap().unwrap();
        let refused = Ways::of(vec![centre]).check(centre, &links, 8).unwrap_err();
        assert_eq!(left_out, refused);
        assert!(refused.contains("`centre` needs a grid of ranks"), "{refused}");
        let torus = Topology::preset("torus-4x4").unwrap();
        let refused = centre.grid(&torus, 6).unwrap_err();
        assert!(
            refused.contains("6 of its 16 ranks end in the middle of a row"),
            "{refused}"
        );
        let direct = Way::Queues(NetworkAlgorithm::Direct);
        let ring = Topology::preset("ring-512").unwrap();
        assert!(Ways::all().check(direct, &ring, 512).unwrap().is_some());
        assert_eq!(Ways::all().check(direct, &ring, 256), Ok(None));
        assert_eq!(Ways::of(vec![direct]).check(direct, &ring, 512), Ok(None));
    }
}
