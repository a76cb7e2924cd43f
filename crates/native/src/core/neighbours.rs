//! Waiting when several ranks share one core.
//!
//! Waiting for a rank on the same core must yield: that rank needs the core to make progress. Once all ranks of this
//! core have arrived, none of them has work until the ranks of other cores arrive. Yielding would then only make each
//! rank of this core poll in vain. Worse, cores that are out of step stay so, and every call takes two rounds. So the
//! last one polls for up to one round, which brings the cores into step.

use crate::spmd::Peer;
use ringwork_isa::Rank;
use std::ops::Range;
use std::time::{Duration, Instant};

/// The ranks that share a rank's core, and how long one round of turns on a core takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Neighbours {
    ranks: Vec<u32>,
    round: Duration,
}

/// The longest turn: a switch, and a small call with caches that other ranks have used.
const TURN: Duration = Duration::from_micros(5);

/// The limit for polling for ranks on other cores, however many share a core.
const LONGEST_ROUND: Duration = Duration::from_micros(200);

/// Polls between two readings of the clock.
const LOOKS: u32 = 32;

impl Neighbours {
    /// The neighbours of rank `me`. `None` unless each of these processes, in rank order, is bound to one core, and
    /// some share a core.
    #[must_use]
    pub fn of(me: Rank, peers: &[Peer]) -> Option<Neighbours> {
        let bound = |peer: &Peer| match peer.cores[..] {
            [core] => Some(core),
            _ => None,
        };
        let cores: Vec<usize> = peers.iter().map(bound).collect::<Option<_>>()?;
        let on = |core: usize| (0u32..).zip(&cores).filter(move |(_, on)| **on == core);
        let most = cores.iter().map(|core| on(*core).count()).max()?;
        let mine = *cores.get(me.0 as usize)?;
        (most > 1).then(|| Neighbours {
            ranks: on(mine)
                .map(|(rank, _)| rank)
                .filter(|rank| *rank != me.0)
                .collect(),
            round: LONGEST_ROUND.min(TURN.saturating_mul(u32::try_from(most).unwrap_or(u32::MAX))),
        })
    }

    /// The neighbours among `ranks`.
    pub(super) fn among(&self, ranks: &Range<u32>) -> impl Iterator<Item = Rank> {
        self.ranks
            .iter()
            .filter(|rank| ranks.contains(rank))
            .copied()
            .map(Rank)
    }

    /// Polls until `came` is true for all `others`, but not longer than one round. To be called when all neighbours
    /// have arrived.
    pub(super) fn spin_for_others(
        &self,
        mut others: impl Iterator<Item = Rank>,
        came: impl Fn(Rank) -> bool,
    ) {
        let mut missing = others.find(|rank| !came(*rank));
        if missing.is_none() {
            return;
        }
        let start = Instant::now();
        while start.elapsed() < self.round {
            for _ in 0..LOOKS {
                match missing {
                    None => return,
                    Some(rank) if came(rank) => missing = others.find(|rank| !came(*rank)),
                    Some(_) => std::hint::spin_loop(),
                }
            }
        }
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    fn neighbours(me: u32, cores: &[&[usize]]) -> Option<Vec<u32>> {
        let peers: Vec<Peer> = cores.iter().map(|cores| Peer::of_cores(cores, 1)).collect();
        Neighbours::of(Rank(me), &peers).map(|found| found.ranks)
    }

    #[test]
    fn neighbours_are_known_where_everybody_is_bound_and_some_share_a_core() {
        let round_robin: &[&[usize]] = &[&[4], &[7], &[4], &[7], &[4]];
        assert_eq!(neighbours(0, round_robin), Some(vec![2, 4]));
        assert_eq!(neighbours(3, round_robin), Some(vec![1]));
        assert_eq!(
            neighbours(1, &[&[0], &[1], &[0]]),
            Some(vec![]),
            "alone, among others who share"
        );
        assert_eq!(neighbours(0, &[&[0], &[1]]), None, "everybody alone");
        assert_eq!(neighbours(0, &[&[0], &[0, 1], &[0]]), None, "not everybody bound");
        assert_eq!(neighbours(3, round_robin[..3].as_ref()), None, "no such rank");
        assert_eq!(neighbours(0, &[]), None);
    }

    #[test]
    fn looking_for_others_ends_when_they_have_come_or_a_round_is_over() {
        let peers = [&[0][..], &[0], &[1]].map(|cores| Peer::of_cores(cores, 1));
        let found = Neighbours::of(Rank(0), &peers).unwrap();
        assert_eq!(found.among(&(0..3)).collect::<Vec<_>>(), [Rank(1)]);
        assert_eq!(found.among(&(2..3)).count(), 0);
        let looks = std::cell::Cell::new(0);
        found.spin_for_others([Rank(1), Rank(2)].into_iter(), |_| {
            looks.replace(looks.get() + 1) > 2
        });
        assert_eq!(
            looks.get(),
            5,
            "the first came at the fourth look, the other at once"
        );
        found.spin_for_others([Rank(2)].into_iter(), |_| false);
    }
}
