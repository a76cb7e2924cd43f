//! The collectives: what each is called, how much data it takes, and what every rank must get.
//!
//! This is the only list of them. Whatever needs to know a collective, from the communicator to the simulator's lower
//! bounds, asks here; how one is done is an [`Algorithm`](crate::Algorithm).

use crate::{Arg, Argument, Parameter, Tag, Value};
use std::fmt;
use std::ops::Range;
use std::str::FromStr;

/// An operation that every rank of a group calls together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Collective {
    /// Everybody's data reduced, everywhere.
    AllReduce = 1,
    /// Everybody's data, everywhere.
    AllGather,
    /// Each rank its part of the reduction.
    ReduceScatter,
    /// The root's data, everywhere.
    Broadcast,
    /// The reduction, on the root.
    Reduce,
    /// A part from everyone to everyone.
    AllToAll,
    /// Everybody's data, on the root.
    Gather,
    /// Each rank its part of the root's data.
    Scatter,
    /// Nothing but meeting.
    Barrier,
    /// The reduction of the data of all ranks up to each.
    Scan,
    /// The reduction of the data of all ranks before each; nothing on the first.
    ExclusiveScan,
}

/// Elements of the two buffers of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    /// Of the input.
    pub send: usize,
    /// Of the output.
    pub recv: usize,
}

/// What a piece of a rank's output is made of: the inputs of some ranks, reduced if there are several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The piece of the output.
    pub output: Range<usize>,
    /// The ranks whose inputs it is made of.
    pub ranks: Range<u32>,
    /// Where the piece begins in each of these inputs.
    pub start: usize,
}

/// What any algorithm must do, in units of the size: the basis of lower bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeastWork {
    /// What goes through the busiest port.
    pub through_port: Share,
    /// What every rank combines if all share the work.
    pub combined: Share,
}

/// A part of the size of a collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    /// Nothing.
    Nothing,
    /// All but one rank's part: (n-1)/n of it.
    OthersParts,
    /// Twice that.
    OthersPartsTwice,
    /// All of it.
    Whole,
}

impl Share {
    /// So much of `bytes` over `ranks`.
    #[must_use]
    pub fn of(self, bytes: u64, ranks: u32) -> u64 {
        let n = u128::from(ranks.max(1));
        let others = u64::try_from(u128::from(bytes) * (n - 1) / n).unwrap_or(u64::MAX);
        match self {
            Share::Nothing => 0,
            Share::OthersParts => others,
            Share::OthersPartsTwice => others.saturating_mul(2),
            Share::Whole => bytes,
        }
    }

    /// As a factor.
    #[must_use]
    pub fn factor(self, ranks: u32) -> f64 {
        let n = f64::from(ranks.max(1));
        match self {
            Share::Nothing => 0.0,
            Share::OthersParts => (n - 1.0) / n,
            Share::OthersPartsTwice => 2.0 * (n - 1.0) / n,
            Share::Whole => 1.0,
        }
    }
}

use Collective::{
    AllGather, AllReduce, AllToAll, Barrier, Broadcast, ExclusiveScan, Gather, Reduce, ReduceScatter, Scan,
    Scatter,
};

impl Collective {
    /// Every collective, in the order they are listed to users.
    pub const ALL: [Collective; 11] = [
        AllReduce,
        AllGather,
        ReduceScatter,
        Broadcast,
        Reduce,
        AllToAll,
        Gather,
        Scatter,
        Scan,
        ExclusiveScan,
        Barrier,
    ];

    /// The name a user types.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            AllReduce => "all_reduce",
            AllGather => "all_gather",
            ReduceScatter => "reduce_scatter",
            Broadcast => "broadcast",
            Reduce => "reduce",
            AllToAll => "all_to_all",
            Gather => "gather",
            Scatter => "scatter",
            Barrier => "barrier",
            Scan => "scan",
            ExclusiveScan => "exclusive_scan",
        }
    }

    /// What MPI's benchmarks call it.
    #[must_use]
    pub const fn mpi_name(self) -> &'static str {
        match self {
            AllReduce => "allreduce",
            AllGather => "allgather",
            Broadcast => "bcast",
            AllToAll => "alltoall",
            ExclusiveScan => "exscan",
            other => other.name(),
        }
    }

    /// Whether it combines data, so that it takes a [`ReduceOp`](crate::ReduceOp).
    #[must_use]
    pub const fn reduces(self) -> bool {
        matches!(self, AllReduce | ReduceScatter | Reduce | Scan | ExclusiveScan)
    }

    /// Whether one rank is the root.
    #[must_use]
    pub const fn has_root(self) -> bool {
        matches!(self, Broadcast | Reduce | Gather | Scatter)
    }

    /// Whether each rank has a part of the data, so that its size must be a multiple of the ranks.
    #[must_use]
    pub const fn has_parts(self) -> bool {
        matches!(self, AllGather | ReduceScatter | AllToAll | Gather | Scatter)
    }

    /// Elements of a rank's input and output when the size is `elements`, which nccl-tests' conventions define: what a rank
    /// has, where all have the same; else all ranks' parts together.
    #[must_use]
    pub const fn counts(self, elements: usize, ranks: usize) -> Counts {
        let per = elements / ranks;
        let (send, recv) = match self {
            Barrier => (0, 0),
            AllReduce | Broadcast | Reduce | AllToAll | Scan | ExclusiveScan => (elements, elements),
            AllGather | Gather => (per, elements),
            ReduceScatter | Scatter => (elements, per),
        };
        Counts { send, recv }
    }

    /// The bytes nearest below `bytes` that this can be done on, by this many ranks; `None` if there are none.
    #[must_use]
    pub fn whole(self, bytes: usize, element: usize, ranks: usize) -> Option<usize> {
        if self == Barrier {
            return Some(0);
        }
        let unit = if self.has_parts() {
            element * ranks
        } else {
            element
        };
        Some(bytes / unit * unit).filter(|bytes| *bytes > 0)
    }

    /// What the output of rank `me` must be made of, piece by piece, when the size is `elements`. Pieces that are missing keep
    /// what was there.
    #[must_use]
    pub fn golden(self, me: u32, ranks: u32, root: u32, elements: usize) -> Vec<Origin> {
        let Counts { send, recv } = self.counts(elements, ranks as usize);
        let piece = |output, ranks, start| Origin { output, ranks, start };
        let reduced = |start| vec![piece(0..recv, 0..ranks, start)];
        let one = |rank: u32, start| vec![piece(0..recv, rank..rank + 1, start)];
        // A piece of `per` elements from every rank, from `start` on in each input.
        let each = |per: usize, start| {
            let from = |rank: u32| {
                (
                    rank as usize * per..(rank as usize + 1) * per,
                    rank..rank + 1,
                    start,
                )
            };
            (0..ranks)
                .map(from)
                .map(|(output, ranks, start)| piece(output, ranks, start))
                .collect()
        };
        let mine = me as usize;
        match self {
            AllReduce => reduced(0),
            Scan => vec![piece(0..recv, 0..me + 1, 0)],
            ExclusiveScan if me > 0 => vec![piece(0..recv, 0..me, 0)],
            Reduce if me == root => reduced(0),
            ReduceScatter => reduced(mine * recv),
            Broadcast => one(root, 0),
            Scatter => one(root, mine * recv),
            AllGather => each(send, 0),
            Gather if me == root => each(send, 0),
            AllToAll => each(recv / ranks as usize, mine * (recv / ranks as usize)),
            Reduce | Gather | Barrier | ExclusiveScan => Vec::new(),
        }
    }

    /// What no algorithm can do without.
    #[must_use]
    pub const fn least_work(self) -> LeastWork {
        let (through_port, combined) = match self {
            AllReduce => (Share::OthersPartsTwice, Share::OthersParts),
            ReduceScatter => (Share::OthersParts, Share::OthersParts),
            Reduce | Scan => (Share::Whole, Share::OthersParts),
            // Of two ranks, nobody combines anything.
            ExclusiveScan => (Share::Whole, Share::Nothing),
            Broadcast => (Share::Whole, Share::Nothing),
            AllGather | Gather | Scatter | AllToAll => (Share::OthersParts, Share::Nothing),
            Barrier => (Share::Nothing, Share::Nothing),
        };
        LeastWork {
            through_port,
            combined,
        }
    }
}

impl fmt::Display for Collective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Parameter for Collective {
    const TAG: Tag = Tag::Value;
    fn type_name() -> String {
        "Collective".into()
    }
    fn from_arg(arg: &Arg) -> Result<Self, String> {
        let Arg::Value(Value::U64(number)) = arg else {
            return Err(Self::type_name());
        };
        let found = Collective::ALL.into_iter().find(|one| *one as u64 == *number);
        found.ok_or_else(Self::type_name)
    }
}

impl Argument<Collective> for Collective {
    fn to_arg(&self) -> Arg {
        Arg::Value((*self as u64).into())
    }
}

impl FromStr for Collective {
    type Err = String;

    /// By our name, or MPI's.
    fn from_str(name: &str) -> Result<Collective, String> {
        let known = |one: &Collective| one.name() == name || one.mpi_name() == name;
        Collective::ALL.into_iter().find(known).ok_or_else(|| {
            format!(
                "`{}` is not a collective; use one of {}",
                name.escape_debug(),
                Collective::ALL.map(Collective::name).join(", ")
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parse_back_mpis_too() {
        for one in Collective::ALL {
            assert_eq!(one.name().parse(), Ok(one));
            assert_eq!(one.mpi_name().parse(), Ok(one));
        }
        assert!(
            "all_redcue"
                .parse::<Collective>()
                .unwrap_err()
                .contains("all_reduce")
        );
    }

    #[test]
    fn sizes_mean_what_nccl_tests_mean() {
        let counts = |one: Collective| one.counts(12, 3);
        assert_eq!(counts(AllReduce), Counts { send: 12, recv: 12 });
        assert_eq!(counts(AllGather), Counts { send: 4, recv: 12 });
        assert_eq!(counts(ReduceScatter), Counts { send: 12, recv: 4 });
        assert_eq!(AllGather.whole(64, 4, 3), Some(60));
        assert_eq!(AllGather.whole(8, 4, 3), None);
        assert_eq!(AllReduce.whole(7, 4, 3), Some(4));
    }

    #[test]
    fn pieces_cover_the_output_once_and_lie_inside_the_inputs() {
        for one in Collective::ALL {
            for (ranks, root) in [(1, 0), (3, 1), (4, 3)] {
                let elements = 12;
                let Counts { send, recv } = one.counts(elements, ranks as usize);
                for me in 0..ranks {
                    let pieces = one.golden(me, ranks, root, elements);
                    let mut end = 0;
                    for piece in &pieces {
                        assert_eq!(piece.output.start, end, "{one} {me}");
                        end = piece.output.end;
                        assert!(piece.start + piece.output.len() <= send, "{one} {me}: {piece:?}");
                        assert!(piece.ranks.end <= ranks && !piece.ranks.is_empty());
                    }
                    assert!(pieces.is_empty() || end == recv, "{one} {me}");
                }
            }
        }
        let piece = Origin {
            output: 0..4,
            ranks: 0..3,
            start: 8,
        };
        assert_eq!(ReduceScatter.golden(2, 3, 0, 12), [piece]);
    }
}
