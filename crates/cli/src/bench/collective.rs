//! The operations that can be measured, and what sizes and bandwidths mean for each (nccl-tests' conventions).

use crate::nearest::nearest;
use ringwork::isa::Operation;
use std::fmt;
use std::ops::Range;
use std::str::FromStr;

/// An operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Collective {
    AllReduce,
    AllGather,
    ReduceScatter,
    Broadcast,
    Reduce,
    AllToAll,
    Gather,
    Scatter,
    Barrier,
}

/// Elements of the two buffers of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) send: usize,
    pub(crate) recv: usize,
}

impl Collective {
    pub(crate) const ALL: [Collective; 9] = [
        Collective::AllReduce,
        Collective::AllGather,
        Collective::ReduceScatter,
        Collective::Broadcast,
        Collective::Reduce,
        Collective::AllToAll,
        Collective::Gather,
        Collective::Scatter,
        Collective::Barrier,
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Collective::AllReduce => "all_reduce",
            Collective::AllGather => "all_gather",
            Collective::ReduceScatter => "reduce_scatter",
            Collective::Broadcast => "broadcast",
            Collective::Reduce => "reduce",
            Collective::AllToAll => "all_to_all",
            Collective::Gather => "gather",
            Collective::Scatter => "scatter",
            Collective::Barrier => "barrier",
        }
    }

    /// What the peers' benchmarks call it.
    pub(crate) const fn peers_name(self) -> &'static str {
        match self {
            Collective::AllReduce => "allreduce",
            Collective::AllGather => "allgather",
            Collective::Broadcast => "bcast",
            Collective::AllToAll => "alltoall",
            other => other.name(),
        }
    }

    pub(crate) const fn reduces(self) -> bool {
        matches!(
            self,
            Collective::AllReduce | Collective::ReduceScatter | Collective::Reduce
        )
    }

    pub(crate) const fn has_root(self) -> bool {
        matches!(
            self,
            Collective::Broadcast | Collective::Reduce | Collective::Gather | Collective::Scatter
        )
    }

    /// The communicator's word for it.
    pub(crate) const fn operation(self) -> Operation {
        match self {
            Collective::AllReduce => Operation::AllReduce,
            Collective::AllGather => Operation::AllGather,
            Collective::ReduceScatter => Operation::ReduceScatter,
            Collective::Broadcast => Operation::Broadcast,
            Collective::Reduce => Operation::Reduce,
            Collective::AllToAll => Operation::AllToAll,
            Collective::Gather => Operation::Gather,
            Collective::Scatter => Operation::Scatter,
            Collective::Barrier => Operation::Barrier,
        }
    }

    /// Whether it has a form with one buffer.
    pub(crate) const fn in_place(self) -> bool {
        !matches!(
            self,
            Collective::Gather | Collective::Scatter | Collective::Barrier
        )
    }

    /// Whether it is used in place where its result is used: as the peers' benchmark does it.
    pub(crate) const fn used_in_place(self) -> bool {
        matches!(
            self,
            Collective::AllReduce | Collective::Broadcast | Collective::Reduce
        )
    }

    /// Where rank `me` has its input and its result in the one buffer of an in-place call on `elements`: as in
    /// nccl-tests, each part is where it would be in the whole.
    pub(crate) fn parts(self, elements: usize, ranks: usize, me: usize) -> (Range<usize>, Range<usize>) {
        let per = elements / ranks;
        let (whole, mine) = (0..elements, me * per..(me + 1) * per);
        match self {
            Collective::AllGather => (mine, whole),
            Collective::ReduceScatter => (whole, mine),
            _ => (whole.clone(), whole),
        }
    }

    /// Whether it has a form with two buffers.
    pub(crate) const fn out_of_place(self) -> bool {
        !matches!(self, Collective::Broadcast | Collective::Reduce)
    }

    /// The bytes nearest below `bytes` that this can be done on, by this many ranks; `None` if there are none.
    pub(crate) fn whole(self, bytes: usize, element: usize, ranks: usize) -> Option<usize> {
        let unit = match self {
            Collective::Barrier => return Some(0),
            Collective::AllReduce | Collective::Broadcast | Collective::Reduce => element,
            _ => element * ranks,
        };
        Some(bytes / unit * unit).filter(|bytes| *bytes > 0)
    }

    /// How many elements a rank sends and receives when the size is `elements`.
    pub(crate) fn counts(self, elements: usize, ranks: usize) -> Counts {
        let per = elements / ranks;
        let (send, recv) = match self {
            Collective::Barrier => (0, 0),
            Collective::AllReduce | Collective::Broadcast | Collective::Reduce | Collective::AllToAll => {
                (elements, elements)
            }
            Collective::AllGather | Collective::Gather => (per, elements),
            Collective::ReduceScatter | Collective::Scatter => (elements, per),
        };
        Counts { send, recv }
    }

    /// Bus bandwidth is this times size over time.
    pub(crate) fn bus_factor(self, ranks: u32) -> f64 {
        let n = f64::from(ranks);
        match self {
            Collective::AllReduce => 2.0 * (n - 1.0) / n,
            Collective::Broadcast | Collective::Reduce => 1.0,
            Collective::Barrier => 0.0,
            _ => (n - 1.0) / n,
        }
    }
}

impl fmt::Display for Collective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What to measure: one, or all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Collectives(pub(crate) Vec<Collective>);

impl FromStr for Collectives {
    type Err = String;

    fn from_str(name: &str) -> Result<Collectives, String> {
        if name == "all" {
            return Ok(Collectives(Collective::ALL.to_vec()));
        }
        let known = |one: &Collective| one.name() == name || one.peers_name() == name;
        if let Some(found) = Collective::ALL.into_iter().find(known) {
            return Ok(Collectives(vec![found]));
        }
        let names = Collective::ALL.map(Collective::name);
        let hint = nearest(name, names).map_or_else(String::new, |near| format!("did you mean `{near}`? "));
        Err(format!(
            "no such operation; {hint}use one of {}, all",
            names.join(", ")
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parse_back_the_peers_too() {
        for one in Collective::ALL {
            assert_eq!(one.name().parse(), Ok(Collectives(vec![one])));
            assert_eq!(one.peers_name().parse(), Ok(Collectives(vec![one])));
        }
        assert_eq!("all".parse::<Collectives>().unwrap().0.len(), 9);
        assert!(
            "all_redcue"
                .parse::<Collectives>()
                .unwrap_err()
                .contains("`all_reduce`?")
        );
    }

    #[test]
    fn sizes_mean_what_nccl_tests_mean() {
        let counts = |one: Collective| one.counts(12, 3);
        assert_eq!(counts(Collective::AllReduce), Counts { send: 12, recv: 12 });
        assert_eq!(counts(Collective::AllGather), Counts { send: 4, recv: 12 });
        assert_eq!(counts(Collective::ReduceScatter), Counts { send: 12, recv: 4 });
        assert_eq!(Collective::AllGather.parts(12, 3, 1), (4..8, 0..12));
        assert_eq!(Collective::ReduceScatter.parts(12, 3, 2), (0..12, 8..12));
        assert_eq!(Collective::AllToAll.parts(12, 3, 2), (0..12, 0..12));
        assert_eq!(Collective::AllGather.whole(64, 4, 3), Some(60));
        assert_eq!(Collective::AllGather.whole(8, 4, 3), None);
        assert_eq!(Collective::AllReduce.whole(7, 4, 3), Some(4));
        assert!((Collective::AllReduce.bus_factor(4) - 1.5).abs() < 1e-12);
    }
}
