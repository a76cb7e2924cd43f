//! Which algorithms of the catalogue are predicted, and which do not fit a machine.

use ringwork::ccl::Ccl;
use ringwork::collectives::catalogue::{self, Entry, Needs};
use ringwork::collectives::network::ports;
use ringwork::isa::{Algorithm, Collective};
use ringwork::sim::Topology;
use std::str::FromStr;

/// A comparison leaves out what has a queue or polls for every pair of more ranks than these: nobody would build it, and it
/// takes minutes to simulate.
const MOST_PEERS: u32 = 256;

/// The sides of the grid that some ranks of a machine form; their number if they form none.
pub(super) fn grid_of(topology: &Topology, members: &[u32]) -> Vec<u32> {
    sides_of(topology, members).unwrap_or_else(|| vec![count(members)])
}

/// The sides of the grid that some ranks form: those of the first ranks, or of as many that follow each other further on,
/// where a row begins.
fn sides_of(topology: &Topology, members: &[u32]) -> Option<Vec<u32>> {
    let (ranks, first) = (count(members), *members.first()?);
    let in_order = members.iter().copied().eq(first..first.saturating_add(ranks));
    (in_order && first % ranks == 0)
        .then(|| topology.grid(ranks))
        .flatten()
}

fn count(members: &[u32]) -> u32 {
    u32::try_from(members.len()).unwrap_or(u32::MAX)
}

/// Why an algorithm cannot run on some ranks of a machine, if it cannot.
pub(super) fn misfit_of(entry: &Entry, topology: &Topology, members: &[u32]) -> Option<String> {
    let sides = sides_of(topology, members);
    let why = entry.fits(count(members), sides.as_deref()).err()?;
    Some(match sides {
        Some(_) => why,
        None => "these ranks are not a grid".into(),
    })
}

/// Why an algorithm cannot run on a machine, if it cannot.
pub(crate) fn misfit(entry: &Entry, topology: &Topology, ranks: u32) -> Option<String> {
    let grid = topology.grid(ranks);
    let why = entry.fits(ranks, grid.as_deref()).err()?;
    Some(match grid {
        Some(_) => why,
        None => no_grid(topology, ranks),
    })
}

/// Why ranks do not form a grid.
fn no_grid(topology: &Topology, ranks: u32) -> String {
    let name = &topology.name;
    if topology.levels.is_empty() {
        return format!(
            "`{name}` is not a grid (rings, meshes, tori, or levels of them): its links are listed one by one"
        );
    }
    let all = topology.ranks();
    format!("{ranks} of the {all} ranks of `{name}` are not a grid: they end in the middle of a row")
}

/// The algorithms that were asked for.
#[derive(Clone, Debug, Default)]
pub(super) struct Algorithms {
    each: Vec<Algorithm>,
    /// Whatever fits: the rest is left out.
    all: bool,
}

impl FromStr for Algorithms {
    type Err = String;

    fn from_str(name: &str) -> Result<Algorithms, String> {
        match name {
            "all" => Ok(Algorithms::all()),
            one => Ok(Algorithms::of(vec![catalogue::algorithm(one)?])),
        }
    }
}

impl Algorithms {
    fn all() -> Algorithms {
        Algorithms {
            each: Vec::new(),
            all: true,
        }
    }

    fn of(each: Vec<Algorithm>) -> Algorithms {
        Algorithms { each, all: false }
    }

    /// These and those, without any twice.
    pub(super) fn and(mut self, more: Algorithms) -> Algorithms {
        self.all |= more.all;
        for one in more.each {
            if !self.each.contains(&one) {
                self.each.push(one);
            }
        }
        self
    }

    /// The algorithms of a collective: those asked for, else what is configured, else all.
    pub(super) fn choose(asked: Option<&Algorithms>, ccl: &Ccl, collective: Collective) -> Algorithms {
        let configured = || {
            let mut each: Vec<Algorithm> = ccl.named(collective).into_iter().collect();
            if each.is_empty() {
                let choices = ccl.table().iter().filter(|row| row.collective == collective);
                each.extend(choices.map(|row| row.algorithm));
                each.extend(ccl.default_algorithm());
            }
            each.retain(|one| catalogue::find(collective, *one).is_some());
            (!each.is_empty()).then(|| Algorithms::of(each))
        };
        asked.cloned().or_else(configured).unwrap_or_else(Algorithms::all)
    }

    /// The entries of a collective among them.
    pub(super) fn entries(&self, collective: Collective) -> Vec<&'static Entry> {
        catalogue::of(collective)
            .filter(|entry| self.all || self.each.contains(&entry.algorithm))
            .collect()
    }

    /// Whether a collective has any of them.
    ///
    /// # Errors
    /// What it has instead.
    pub(super) fn check_any(&self, collective: Collective) -> Result<(), String> {
        match self.each.first() {
            Some(first) if self.entries(collective).is_empty() => {
                catalogue::named(collective, first.name()).map(drop)
            }
            _ => Ok(()),
        }
    }

    /// Why an algorithm is left out here, if it is.
    ///
    /// # Errors
    /// The same, if it was asked for by name.
    pub(super) fn check(
        &self,
        entry: &Entry,
        topology: &Topology,
        ranks: u32,
    ) -> Result<Option<String>, String> {
        let name = entry.algorithm;
        let misfit = misfit(entry, topology, ranks);
        if self.each.contains(&name) {
            return misfit.map_or(Ok(None), |why| {
                Err(format!(
                    "`{name}` cannot run here: {why}; --algo all shows what can"
                ))
            });
        }
        if ranks > MOST_PEERS && misfit.is_none() {
            let (why, peers) = match entry.needs {
                Needs::Queues => (
                    "it has a queue for every pair",
                    ports(entry, &grid_of(topology, &(0..ranks).collect::<Vec<_>>()), &[]),
                ),
                Needs::Scratch | Needs::Packets | Needs::Window => ("its ranks poll each other", ranks),
            };
            if peers > MOST_PEERS {
                return Ok(Some(format!(
                    "{why}, and {ranks} ranks are more than {MOST_PEERS}; ask for it by name"
                )));
            }
        }
        Ok(misfit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comparison_leaves_out_what_cannot_be_and_a_name_is_refused() {
        let entry = |algorithm| catalogue::find(Collective::AllReduce, algorithm).unwrap();
        let links = Topology::preset("v100x8").unwrap();
        let centre = entry(Algorithm::Centre);
        let named = Algorithms::of(vec![Algorithm::Centre]);
        let left_out = Algorithms::all().check(centre, &links, 8).unwrap().unwrap();
        let refused = named.check(centre, &links, 8).unwrap_err();
        assert!(
            refused.starts_with("`centre` cannot run here: `v100x8` is not a grid"),
            "{refused}"
        );
        assert!(refused.contains(&left_out), "{refused}");
        let torus = Topology::preset("torus-4x4").unwrap();
        let refused = named.check(centre, &torus, 6).unwrap_err();
        assert!(
            refused.contains("6 of the 16 ranks of `torus-4x4` are not a grid"),
            "{refused}"
        );
        let direct = entry(Algorithm::Direct);
        let ring = Topology::preset("ring-512").unwrap();
        assert!(Algorithms::all().check(direct, &ring, 512).unwrap().is_some());
        assert_eq!(Algorithms::all().check(direct, &ring, 256), Ok(None));
        let named = Algorithms::of(vec![Algorithm::Direct]);
        assert_eq!(named.check(direct, &ring, 512), Ok(None));
    }
}
