//! Lower bounds: what no algorithm can beat on a machine, so no prediction may either.
//!
//! Three things take time in any algorithm, and the slowest of them is a bound:
//! - **latency**: what one rank knows must reach the farthest other rank;
//! - **bandwidth**: each rank must send or receive its share through its ports;
//! - **compute**: somebody must combine the bytes.
//!
//! The textbook latency term, `ceil(log_(k+1) n) a` for `k` ports, assumes that a message keeps its port for
//! its whole latency. Links here are pipelined, as real ones are: a rank may send to many peers within one
//! latency, and a flat broadcast of a few bytes beats that term rightly. It is given beside the others, and is
//! a bound for kernels that wait for each message to arrive before they send the next.

use crate::time::{Ps, Rate};
use crate::topology::Topology;
use ringwork_isa::Collective;

/// What no algorithm can beat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// The farthest rank.
    pub latency_ps: Ps,
    /// The busiest port.
    pub bandwidth_ps: Ps,
    /// The combining.
    pub compute_ps: Ps,
    /// `ceil(log_(k+1) n) a`; see the module's page for when it binds.
    pub textbook_latency_ps: Ps,
}

impl Bound {
    /// The largest of latency, bandwidth and compute.
    #[must_use]
    pub fn total_ps(&self) -> Ps {
        self.latency_ps.max(self.bandwidth_ps).max(self.compute_ps)
    }

    /// Refuses a time that cannot be.
    ///
    /// # Errors
    /// [`BelowBound`] if `time_ps` is less than the bound, except for a picosecond of rounding per rank.
    pub fn check(&self, time_ps: Ps, ranks: u32) -> Result<(), BelowBound> {
        if time_ps.saturating_add(Ps::from(ranks)) >= self.total_ps() {
            return Ok(());
        }
        Err(BelowBound {
            time_ps,
            bound: *self,
        })
    }
}

/// A prediction that cannot be: a bug in the simulator, or a machine that is not what it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{time_ps} ps is below what any algorithm needs: {} ps for latency, {} ps for bandwidth, {} ps for compute; this is a bug of ours",
    .bound.latency_ps, .bound.bandwidth_ps, .bound.compute_ps
)]
pub struct BelowBound {
    /// The prediction.
    pub time_ps: Ps,
    /// The bound.
    pub bound: Bound,
}

/// The lower bound of `op` over the first `ranks` ranks of a machine, `bytes` being the full vector.
#[must_use]
pub fn lower_bound(op: Collective, topology: &Topology, ranks: u32, bytes: u64) -> Bound {
    let ranks = ranks.min(topology.ranks());
    if ranks <= 1 || bytes == 0 {
        return Bound {
            latency_ps: 0,
            bandwidth_ps: 0,
            compute_ps: 0,
            textbook_latency_ps: 0,
        };
    }
    let least = op.least_work();
    let (through_port, combined) = (
        least.through_port.of(bytes, ranks),
        least.combined.of(bytes, ranks),
    );
    let ports = Ports::of(topology, ranks);
    // Combining is shared by all ranks: each does its n-th of (n - 1) times the vector.
    let fastest = topology.speed.values().copied().fold(1.0, f64::max);
    Bound {
        latency_ps: farthest(topology, ranks),
        bandwidth_ps: ports.rate.time_ps(through_port),
        compute_ps: topology.chip.vector.scaled(fastest).time_ps(combined),
        textbook_latency_ps: match op {
            Collective::AllToAll => ports.latency_ps,
            _ => ports
                .latency_ps
                .saturating_mul(rounds(u64::from(ranks), ports.count)),
        },
    }
}

/// Rounds until `n` know what one knew, if each tells `ports` others per round.
impl Topology {
    /// The bytes that a link carries in the time of its latency, of the link of which this is the most: what is cut into
    /// pieces of about this size keeps links busy.
    ///
    /// ```
    /// # use ringwork_sim::Topology;
    /// // 500 ns of 50 GB/s.
    /// assert_eq!(Topology::preset("switch-8").unwrap().latency_bytes(), 25_000);
    /// ```
    #[must_use]
    pub fn latency_bytes(&self) -> u64 {
        const SAMPLE: u64 = 1 << 30;
        let of_link = |link| {
            let (_, to) = self.fabric.ends(link)?;
            let class = self.fabric.class(link)?;
            // Through a switch, half of the latency is on each side.
            let latency_ps = if to < self.fabric.places() {
                class.latency_ps
            } else {
                class.latency_ps.saturating_mul(2)
            };
            let sample_ps = class.bandwidth.time_ps(SAMPLE);
            let bytes = u128::from(latency_ps) * u128::from(SAMPLE) / u128::from(sample_ps.max(1));
            (sample_ps > 0).then(|| u64::try_from(bytes).unwrap_or(u64::MAX))
        };
        self.fabric.links().filter_map(of_link).max().unwrap_or(0)
    }
}

fn rounds(n: u64, ports: u64) -> u64 {
    let (mut know, mut rounds) = (1u64, 0);
    while know < n {
        know = know.saturating_mul(ports + 1);
        rounds += 1;
    }
    rounds
}

/// The best-connected rank: its links, what they carry together, and its nearest neighbour.
struct Ports {
    count: u64,
    rate: Rate,
    latency_ps: Ps,
}

impl Ports {
    fn of(topology: &Topology, ranks: u32) -> Ports {
        let fabric = &topology.fabric;
        let vertices = fabric.vertices() as usize;
        let mut sum: Vec<(u64, Option<Rate>, Ps)> = vec![(0, None, Ps::MAX); vertices];
        for link in fabric.links() {
            if let (Some((from, _)), Some(class)) = (fabric.ends(link), fabric.class(link)) {
                let ports = &mut sum[from as usize];
                ports.0 += 1;
                ports.1 = Some(ports.1.map_or(class.bandwidth, |rate| rate.plus(class.bandwidth)));
                ports.2 = ports.2.min(class.latency_ps);
            }
        }
        let mut best = Ports {
            count: 1,
            rate: Rate::UNLIMITED,
            latency_ps: 0,
        };
        let (mut fastest, mut nearest) = (None, Ps::MAX);
        for rank in 0..ranks {
            let place = topology.place(rank) as usize;
            best.count = best.count.max(sum[place].0);
            fastest = fastest.max(sum[place].1);
        }
        for link in fabric.links() {
            if let (Some((from, to)), Some(class)) = (fabric.ends(link), fabric.class(link))
                && from < fabric.places()
            {
                let onward = if to < fabric.places() {
                    0
                } else {
                    sum[to as usize].2
                };
                nearest = nearest.min(class.latency_ps.saturating_add(onward));
            }
        }
        best.rate = fastest.unwrap_or(Rate::UNLIMITED);
        best.latency_ps = if nearest == Ps::MAX { 0 } else { nearest };
        best
    }
}

/// The least latency from the first rank to the farthest of the others.
fn farthest(topology: &Topology, ranks: u32) -> Ps {
    let latency = crate::net::latencies_from(&topology.fabric, topology.place(0));
    (1..ranks)
        .filter_map(|rank| latency.get(topology.place(rank) as usize))
        .copied()
        .max()
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_the_facts_on_a_ring_and_a_full_mesh() {
        let ring = Topology::preset("ring-8").unwrap();
        let bound = lower_bound(Collective::AllReduce, &ring, 8, 8_000_000);
        // Two ports of 50 GB/s, 500 ns per link, the farthest rank four links away.
        assert_eq!(bound.bandwidth_ps, 2 * 7_000_000 * 10);
        assert_eq!(bound.latency_ps, 4 * 500_000);
        assert_eq!(bound.textbook_latency_ps, 2 * 500_000);
        let full = Topology::preset("full-8").unwrap();
        let bound = lower_bound(Collective::AllToAll, &full, 8, 8_000_000);
        assert_eq!(bound.bandwidth_ps, 1_000_000 * 20);
        assert_eq!(bound.textbook_latency_ps, 500_000);
        let switch = Topology::preset("switch-8").unwrap();
        let bound = lower_bound(Collective::Broadcast, &switch, 8, 8_000_000);
        assert_eq!((bound.bandwidth_ps, bound.latency_ps), (8_000_000 * 20, 500_000));
        assert_eq!(bound.textbook_latency_ps, 3 * 500_000);
        assert!(bound.check(1, 8).is_err());
        assert!(bound.check(8_000_000 * 20, 8).is_ok());
    }

    #[test]
    fn one_rank_or_no_bytes_need_no_time() {
        let ring = Topology::preset("ring-8").unwrap();
        assert_eq!(lower_bound(Collective::AllReduce, &ring, 1, 100).total_ps(), 0);
        assert_eq!(lower_bound(Collective::AllReduce, &ring, 8, 0).total_ps(), 0);
    }
}
