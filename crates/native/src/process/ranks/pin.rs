//! Which cores ranks run on.

use crate::spmd::Peer;
use rustix::thread::{CpuSet, sched_getaffinity};
use std::collections::BTreeSet;

/// How ranks are bound to cores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pin {
    /// As [`Core`](Pin::Core) if there is a core for each, or as many ranks on each core; else not at all, for the system
    /// balances better.
    #[default]
    Auto,
    /// Not at all.
    None,
    /// Rank `r` to core `r`, beginning again at the first when there are no more.
    Core,
}

impl Pin {
    /// The cores of each rank, out of those that this process may use; `None` where it is not bound.
    pub(super) fn plan(self, size: u32) -> Vec<Option<CpuSet>> {
        let cores = my_cores();
        let bind = match self {
            Pin::Auto => {
                let (ranks, cores) = (size as usize, cores.len());
                ranks <= cores || ranks.is_multiple_of(cores)
            }
            Pin::None => false,
            Pin::Core => true,
        };
        let one = |rank: u32| {
            let core = *cores.get(rank as usize % cores.len().max(1))?;
            let mut set = CpuSet::new();
            set.set(core);
            Some(set)
        };
        (0..size)
            .map(|rank| if bind { one(rank) } else { None })
            .collect()
    }
}

/// The cores that this process may use.
pub(crate) fn my_cores() -> Vec<usize> {
    sched_getaffinity(None).map_or_else(|_| Vec::new(), |set| members(&set))
}

fn members(set: &CpuSet) -> Vec<usize> {
    (0..CpuSet::MAX_CPU).filter(|core| set.is_set(*core)).collect()
}

/// How many cores these processes have among them: what counts when each is bound to one of its own. By what each said
/// of itself when it came, so that all of them find the same.
#[must_use]
pub fn cores_of(peers: &[Peer]) -> usize {
    let all: BTreeSet<usize> = peers.iter().flat_map(|peer| &peer.cores).copied().collect();
    let alike = peers.iter().all(|peer| peer.cores.len() == all.len());
    // Where all may use the same cores, the system may still allow less than all of them (a cgroup's quota).
    let allowed = peers.iter().map(|peer| peer.parallelism).min();
    match allowed {
        Some(allowed) if alike => allowed,
        _ => all.len().max(1),
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_bound_if_every_core_has_as_many_or_it_is_asked_for() {
        let cores = my_cores();
        let count = u32::try_from(cores.len()).unwrap();
        let many = count + 1;
        assert!(Pin::Auto.plan(1)[0].is_some());
        assert!(Pin::Auto.plan(3 * count).iter().all(Option::is_some));
        let uneven = Pin::Auto.plan(many).iter().any(Option::is_some);
        assert_eq!(
            uneven,
            count == 1,
            "one core would have a rank more than the others"
        );
        assert!(Pin::None.plan(1)[0].is_none());
        let round = Pin::Core.plan(many);
        let core = |rank: usize| members(round[rank].as_ref().unwrap());
        assert_eq!(core(0), vec![cores[0]]);
        assert_eq!(core(0), core(cores.len()), "beginning again at the first");
    }

    #[test]
    fn the_cores_of_a_job_are_those_of_all_its_ranks_but_no_more_than_may_run_at_once() {
        let cores = |of_each: &[(&[usize], usize)]| {
            let peer = |(cores, parallelism): &(&[usize], usize)| Peer::of_cores(cores, *parallelism);
            cores_of(&of_each.iter().map(peer).collect::<Vec<_>>())
        };
        assert_eq!(cores(&[(&[3], 1), (&[5], 1)]), 2, "each its own");
        assert_eq!(cores(&[(&[3], 1), (&[5], 1), (&[3], 1)]), 2);
        assert_eq!(cores(&[(&[0, 1, 2, 3], 4), (&[0, 1, 2, 3], 4)]), 4, "the same");
        assert_eq!(cores(&[(&[0, 1, 2, 3], 2), (&[0, 1, 2, 3], 2)]), 2, "by a quota");
        assert_eq!(cores(&[(&[], 1)]), 1, "of what cannot be asked");
    }
}
