//! The catalogue: every algorithm of every collective, what it needs of a domain, and its kernel.
//!
//! It is the only such list. The communicator, submitted kernels, `ringwork run`, `sim`, `bench`, `tune`, proofs and
//! tests iterate over it, so an algorithm in it is available to all of them. To add an algorithm, write its function
//! in a file of its own, add an [`Entry`] here and an arm to [`run`].
//!
//! ```
//! use ringwork_collectives::catalogue::{self, Needs};
//! use ringwork_isa::Collective;
//!
//! let ring = catalogue::named(Collective::AllReduce, "ring").unwrap();
//! assert!(ring.needs == Needs::Queues && !ring.algorithm.is_exact());
//! let error = catalogue::named(Collective::AllReduce, "rign").unwrap_err();
//! assert!(error.contains("did you mean `ring`?"));
//! ```

mod all_gather;
mod all_to_all;
mod broadcast;
mod gather;
mod reduce;
mod reduce_scatter;
mod scan;
mod scatter;

/// The collectives that are staged through the scratch in one way only. The others have modules of their own.
pub mod staged {
    pub use super::all_gather::all_gather;
    pub use super::all_to_all::all_to_all;
    pub use super::broadcast::broadcast;
    pub use super::gather::gather;
    pub use super::reduce::reduce;
    pub use super::reduce_scatter::reduce_scatter;
    pub use super::scan::{exclusive_scan, scan};
    pub use super::scatter::scatter;
}

use crate::all_reduce;
use crate::network;
use crate::window::{self, Spread};
use crate::{Team, packets};
use ringwork_isa::{
    Algorithm, Collective, Core, Dtype, Error, In, MAX_RANKS, Out, Queues, Rank, ReduceOp, Result, Shared,
    nearest,
};

/// One algorithm of one collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What it does.
    pub collective: Collective,
    /// How, by name.
    pub algorithm: Algorithm,
    /// The resources of a domain that it needs.
    pub needs: Needs,
}

/// The resources of a domain that an algorithm needs in addition to its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// A [`Team`] whose scratch it stages data in.
    Scratch,
    /// A [`Team`] with packets.
    Packets,
    /// The barrier of a [`Team`], and its data in the domain's window.
    Window,
    /// Queues between neighbours.
    Queues,
}

/// The resources of a domain for an algorithm, as handles of one member. Copy them freely.
#[derive(Clone, Copy, Debug)]
pub enum Resources {
    /// Scratch, barrier and counters; perhaps packets.
    Team(Team),
    /// Queues between neighbours.
    Queues(Queues),
}

/// One member's part in a call.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// The input. For a barrier, one byte.
    pub x: In,
    /// The output. For a barrier, the same byte.
    pub y: Out,
    /// The reduction, if it reduces.
    pub op: ReduceOp,
    /// The root, if it has one.
    pub root: Rank,
    /// How many members can run at the same time; for algorithms that share work among this many. The same on every
    /// member.
    pub workers: u32,
    /// The sides of the grid that the members form, innermost first; if they form no grid, their number.
    pub grid: &'a [u32],
    /// What goes along each side, for algorithms that go side by side: `ring` (also of sides that are not here), `direct`
    /// or `halving-doubling`.
    pub by_side: &'a [Algorithm],
}

macro_rules! entries {
    ($($collective:ident: $($algorithm:ident $needs:ident),*;)*) => {
        /// Every entry, in the order they are listed to users.
        pub static CATALOGUE: &[Entry] = &[$($(Entry {
            collective: Collective::$collective,
            algorithm: Algorithm::$algorithm,
            needs: Needs::$needs,
        },)*)*];
    };
}
entries! {
    AllReduce: Packet Packets, OnePhase Scratch, TwoPhase Scratch, StagedRing Scratch,
        WindowPull Window, WindowPush Window, Direct Queues, Ring Queues, BidirectionalRing Queues,
        HalvingDoubling Queues, DoubleTree Queues, Hierarchical Queues, Torus Queues, Centre Queues;
    AllGather: Packet Packets, Staged Scratch, WindowPull Window, Direct Queues, Ring Queues, BidirectionalRing Queues,
        HalvingDoubling Queues, Hierarchical Queues, Torus Queues;
    ReduceScatter: Packet Packets, Staged Scratch, WindowPull Window, Direct Queues, Ring Queues,
        BidirectionalRing Queues, HalvingDoubling Queues, Hierarchical Queues, Torus Queues;
    Broadcast: Packet Packets, Staged Scratch, WindowPull Window, Chain Queues, Tree Queues, ScatterGather Queues;
    Reduce: Staged Scratch, Chain Queues, Tree Queues, ScatterGather Queues;
    AllToAll: Packet Packets, Staged Scratch, WindowPull Window, Direct Queues, Pairwise Queues, Hierarchical Queues,
        Torus Queues;
    Gather: Staged Scratch, Direct Queues, Tree Queues;
    Scatter: Staged Scratch, Direct Queues, Tree Queues;
    Scan: Staged Scratch;
    ExclusiveScan: Staged Scratch;
    Barrier: Packet Packets, WindowPull Window;
}

/// What may go along each dimension of a grid, for the algorithms that go dimension by dimension.
pub const BY_DIMENSION: [Algorithm; 3] = [Algorithm::Ring, Algorithm::Direct, Algorithm::HalvingDoubling];

/// The entries of a collective.
pub fn of(collective: Collective) -> impl Iterator<Item = &'static Entry> {
    CATALOGUE
        .iter()
        .filter(move |entry| entry.collective == collective)
}

/// The entry of a collective and an algorithm, if there is one.
#[must_use]
pub fn find(collective: Collective, algorithm: Algorithm) -> Option<&'static Entry> {
    of(collective).find(|entry| entry.algorithm == algorithm)
}

/// The entry of a collective whose algorithm has this name or alias.
///
/// # Errors
/// The names that exist, and the one that was probably meant.
pub fn named(collective: Collective, name: &str) -> std::result::Result<&'static Entry, String> {
    let wanted = one_of(of(collective).map(|entry| entry.algorithm), name);
    let wanted = wanted.map_err(|instead| format!("{collective} has {instead}"))?;
    find(collective, wanted).ok_or_else(|| format!("{collective} has no algorithm `{wanted}`"))
}

/// The algorithm with this name in any collective.
///
/// # Errors
/// As [`named`].
pub fn algorithm(name: &str) -> std::result::Result<Algorithm, String> {
    let used = |algorithm: &Algorithm| CATALOGUE.iter().any(|entry| entry.algorithm == *algorithm);
    one_of(Algorithm::ALL.into_iter().filter(used), name).map_err(|instead| format!("there is {instead}"))
}

/// The algorithm with this name, among the `usable` ones.
///
/// # Errors
/// The second half of a sentence: that there is no such algorithm, the name that was probably meant, and the
/// names that exist.
pub fn one_of(usable: impl Iterator<Item = Algorithm>, name: &str) -> std::result::Result<Algorithm, String> {
    let usable: Vec<Algorithm> = usable.collect();
    let wanted = name.parse().ok().filter(|wanted| usable.contains(wanted));
    wanted.ok_or_else(|| {
        let names: Vec<&str> = usable.iter().map(|one| one.name()).collect();
        let meant = nearest(&name.to_ascii_lowercase(), names.iter().copied());
        let meant = meant.map(|meant| format!("did you mean `{meant}`? "));
        format!(
            "no algorithm `{}`; {}use one of {}",
            name.escape_debug(),
            meant.unwrap_or_default(),
            names.join(", ")
        )
    })
}

impl Entry {
    /// Whether it works in one buffer only, with the input in the place of the output.
    #[must_use]
    pub fn is_in_place(&self) -> bool {
        self.needs == Needs::Window
            && matches!(self.collective, Collective::AllReduce | Collective::Broadcast)
    }

    /// Whether its members must form a grid.
    #[must_use]
    pub fn needs_grid(&self) -> bool {
        matches!(
            self.algorithm,
            Algorithm::Hierarchical | Algorithm::Torus | Algorithm::Centre
        )
    }

    /// Whether it runs with this many members, on a grid of these sides if they form one.
    ///
    /// # Errors
    /// The reason why it does not.
    pub fn fits(&self, ranks: u32, grid: Option<&[u32]>) -> std::result::Result<(), String> {
        let name = self.algorithm;
        if self.needs == Needs::Packets && ranks > MAX_RANKS {
            return Err(format!(
                "`{name}` has a packet for every pair of ranks, and {ranks} ranks are more than {MAX_RANKS}"
            ));
        }
        if self.needs_grid() && grid.is_none() {
            return Err(format!("`{name}` needs ranks that form a grid"));
        }
        let is_halving = name == Algorithm::HalvingDoubling && self.collective != Collective::AllReduce;
        if is_halving && !ranks.is_power_of_two() {
            return Err(format!(
                "{} by `{name}` needs a power of two of ranks, and there are {ranks}",
                self.collective
            ));
        }
        Ok(())
    }

    /// Whether it can reduce elements of this type by `op`; yes if it reduces nothing.
    ///
    /// # Errors
    /// The reason why it cannot.
    pub fn reduces_by(&self, op: ReduceOp, dtype: Dtype) -> std::result::Result<(), String> {
        if !self.collective.reduces() {
            return Ok(());
        }
        op.check(dtype)?;
        if op == ReduceOp::Avg && matches!(self.collective, Collective::Scan | Collective::ExclusiveScan) {
            return Err(format!(
                "{} reduces the data of fewer ranks on each, which have no common average",
                self.collective
            ));
        }
        if op == ReduceOp::Avg && !self.algorithm.is_exact() {
            return Err(format!(
                "`{}` combines two at a time, which cannot average; use an exact algorithm",
                self.algorithm
            ));
        }
        Ok(())
    }
}

/// Runs one member's part of a collective call.
///
/// # Errors
/// As the algorithm's own function; or if the domain does not offer what the algorithm needs.
pub async fn run<C: Core>(core: &C, entry: &Entry, resources: Resources, call: Call<'_>) -> Result<()> {
    match resources {
        Resources::Queues(queues) if entry.needs == Needs::Queues => {
            network::run(core, entry, queues, call).await
        }
        Resources::Queues(_) => Err(missing(entry, "a team")),
        Resources::Team(team) => {
            let team = team.of(call.x.dtype());
            match entry.needs {
                Needs::Scratch => staged(core, entry, team, call).await,
                Needs::Packets => in_packets(core, entry, team, call).await,
                Needs::Window => in_window(core, entry, team, call).await,
                Needs::Queues => Err(missing(entry, "queues between neighbours")),
            }
        }
    }
}

fn missing(entry: &Entry, what: &str) -> Error {
    Error::failed(format!(
        "{} by `{}` needs {what}, and the domain offers none",
        entry.collective, entry.algorithm
    ))
}

async fn staged<C: Core>(core: &C, entry: &Entry, team: Team, call: Call<'_>) -> Result<()> {
    let Call { x, y, op, root, .. } = call;
    match entry.collective {
        Collective::AllReduce => all_reduce::all_reduce(core, team, x, y, op, entry.algorithm).await,
        Collective::AllGather => crate::all_gather(core, team, x, y).await,
        Collective::ReduceScatter => crate::reduce_scatter(core, team, x, y, op).await,
        Collective::Broadcast => crate::broadcast(core, team, x, y, root).await,
        Collective::Reduce => crate::reduce(core, team, x, y, op, root).await,
        Collective::AllToAll => crate::all_to_all(core, team, x, y).await,
        Collective::Gather => crate::gather(core, team, x, y, root).await,
        Collective::Scatter => crate::scatter(core, team, x, y, root).await,
        Collective::Scan => crate::scan(core, team, x, y, op).await,
        Collective::ExclusiveScan => crate::exclusive_scan(core, team, x, y, op).await,
        Collective::Barrier => Err(missing(entry, "packets")),
    }
}

async fn in_packets<C: Core>(core: &C, entry: &Entry, team: Team, call: Call<'_>) -> Result<()> {
    let Call { x, y, op, root, .. } = call;
    match entry.collective {
        Collective::AllReduce => all_reduce::packet(core, team, x, y, op).await,
        Collective::AllGather => packets::all_gather(core, &team.room()?, x, y).await,
        Collective::ReduceScatter => packets::reduce_scatter(core, &team.room()?, x, y, op).await,
        Collective::AllToAll => packets::all_to_all(core, &team.room()?, x, y).await,
        Collective::Broadcast => packets::broadcast(core, &team.ring()?, x, y, root).await,
        // All ranks exchange packets of one byte.
        Collective::Barrier => all_reduce::packet(core, team, x, y, ReduceOp::Max).await,
        _ => Err(missing(entry, "a scratch")),
    }
}

async fn in_window<C: Core>(core: &C, entry: &Entry, team: Team, call: Call<'_>) -> Result<()> {
    let (meet, Call { x, y, op, root, .. }) = (team.meet(), call);
    match entry.collective {
        Collective::Barrier => meet.arrive_and_wait(core).await,
        Collective::AllReduce => {
            let data = in_place(core, team, x, y, true).await?;
            let spread = match entry.algorithm {
                Algorithm::WindowPush => Spread::Push(call.workers),
                _ => Spread::Pull,
            };
            window::all_reduce(core, meet, data, op, spread).await
        }
        Collective::Broadcast => {
            let data = in_place(core, team, x, y, team.rank() == root).await?;
            window::broadcast(core, meet, data, root).await
        }
        Collective::AllGather => window::all_gather_into(core, meet, of_window(team, x.span())?, y).await,
        Collective::AllToAll => window::all_to_all_into(core, meet, of_window(team, x.span())?, y).await,
        Collective::ReduceScatter => {
            window::reduce_scatter(core, meet, of_window(team, x.span())?, y, op).await
        }
        _ => Err(missing(entry, "a scratch")),
    }
}

/// Returns the output, which must lie in the window. If this member has an input (`counts`) that lies elsewhere, it is
/// copied there first.
async fn in_place<C: Core>(core: &C, team: Team, x: In, y: Out, counts: bool) -> Result<Shared> {
    let data = of_window(team, y.span())?;
    if counts && x.span() != y.span() {
        core.copy(y, x).await?;
    }
    Ok(data)
}

/// A region that must be in the team's window.
fn of_window(team: Team, span: ringwork_isa::Span) -> Result<Shared> {
    if (span.me, span.ranks) != (team.rank(), team.ranks()) {
        return Err(Error::failed(
            "an algorithm in the window needs data that lies there; give it a buffer of the domain, or use another algorithm",
        ));
    }
    Ok(Shared::of_span(span))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_entry_is_there_twice_and_every_collective_has_an_exact_one() {
        for (i, entry) in CATALOGUE.iter().enumerate() {
            assert!(!CATALOGUE[..i].contains(entry), "{entry:?}");
            assert_eq!(find(entry.collective, entry.algorithm), Some(entry));
        }
        for collective in Collective::ALL {
            assert!(
                of(collective).any(|entry| entry.algorithm.is_exact()),
                "{collective}"
            );
        }
    }

    #[test]
    fn a_wrong_name_suggests_the_nearest_and_lists_all() {
        let refused = |name: &str| named(Collective::AllGather, name).unwrap_err();
        assert_eq!(
            refused("stagd"),
            "all_gather has no algorithm `stagd`; did you mean `staged`? use one of packet, staged, window-pull, direct, ring, \
             bidirectional-ring, halving-doubling, hierarchical, torus"
        );
        assert!(refused("centre").contains("use one of packet"));
        assert!(!refused("hypercube-of-trees").contains("did you mean"));
        assert!(!refused("").contains("did you mean"));
        assert!(refused(&"r".repeat(100_000)).contains("use one of"));
        assert!(algorithm("doubletree").unwrap_err().contains("`double-tree`?"));
        assert_eq!(algorithm("two-shot"), Ok(Algorithm::TwoPhase));
    }

    #[test]
    fn what_does_not_fit_says_why() {
        let entry = |name| named(Collective::AllReduce, name).unwrap();
        assert!(entry("torus").fits(6, None).unwrap_err().contains("grid"));
        assert_eq!(entry("torus").fits(6, Some(&[2, 3])), Ok(()));
        assert!(entry("packet").fits(65, None).unwrap_err().contains("65 ranks"));
        assert!(entry("ring").reduces_by(ReduceOp::Avg, Dtype::F32).is_err());
        assert_eq!(entry("twophase").reduces_by(ReduceOp::Avg, Dtype::F32), Ok(()));
    }
}
