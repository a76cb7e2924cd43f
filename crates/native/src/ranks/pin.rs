//! Which cores ranks run on.

use crate::peers::Peer;
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity};

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
        let cores = members(sched_getaffinity(None).ok().as_ref());
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

fn members(set: Option<&CpuSet>) -> Vec<usize> {
    set.map_or_else(Vec::new, |set| {
        (0..CpuSet::MAX_CPU).filter(|core| set.is_set(*core)).collect()
    })
}

/// How many cores these processes have among them: what counts when each is bound to one of its own.
#[must_use]
pub fn cores_of(peers: &[Peer]) -> usize {
    let mine = std::thread::available_parallelism().map_or(1, usize::from);
    let mut all: Vec<usize> = peers
        .iter()
        .filter_map(|peer| Pid::from_raw(i32::try_from(peer.pid).ok()?))
        // One that is gone needs no core.
        .filter_map(|pid| sched_getaffinity(Some(pid)).ok())
        .flat_map(|set| members(Some(&set)))
        .collect();
    all.sort_unstable();
    all.dedup();
    let bound = members(sched_getaffinity(None).ok().as_ref()).len();
    // Where all may use the same cores, the system may still allow less than all of them (a cgroup's quota).
    if all.len() > bound { all.len() } else { mine }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_bound_if_every_core_has_as_many_or_it_is_asked_for() {
        let cores = members(sched_getaffinity(None).ok().as_ref());
        let count = u32::try_from(cores.len()).unwrap();
        let many = count + 1;
        assert!(Pin::Auto.plan(1)[0].is_some());
        assert!(Pin::Auto.plan(3 * count).iter().all(Option::is_some));
        let uneven = Pin::Auto.plan(many).iter().any(Option::is_some);
        assert_eq!(uneven, count == 1, "one core would have a rank more than the others");
        assert!(Pin::None.plan(1)[0].is_none());
        let round = Pin::Core.plan(many);
        let core = |rank: usize| members(round[rank].as_ref());
        assert_eq!(core(0), vec![cores[0]]);
        assert_eq!(core(0), core(cores.len()), "beginning again at the first");
    }
}
