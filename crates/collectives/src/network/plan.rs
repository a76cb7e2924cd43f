//! Plans: which algorithm does which collective by which exchanges.
//!
//! This is the only place that knows the algorithms over queues by name. An [`Outline`] is what their memory depends on; a
//! [`Plan`] is what a member does.

use super::double_tree::{self, Branch, TREE_PORTS};
use super::grid::{self, Grid, Lanes, Method, Task};
use super::halving::{self, Halving};
use super::moves::Moves;
use super::trees::{Binomial, Chain, Pairs, Seat, Star, Way, rounds};
use ringwork_isa::{Algorithm, Collective, Queues, Rank, Result};

/// The shape of an algorithm on so many ranks: the same on every member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outline {
    /// Ports of each member.
    pub(crate) ports: u32,
    /// Lanes that the data is cut into.
    pub(crate) lanes: usize,
    /// Blocks of a piece, and how many of them the longest message has.
    pub(crate) blocks: usize,
    pub(crate) largest: usize,
    /// Exchanges that a piece takes, and messages that a member sends for it.
    pub(crate) exchanges: usize,
    pub(crate) messages: usize,
    /// How many messages of different lanes may be on a queue at the same time.
    pub(crate) sharing: usize,
    /// Whether each exchange uses other queues, so that a piece can begin in each turn.
    pub(crate) is_pipelined: bool,
    /// Whether pieces should begin at different times, so that they use different sides of the grid.
    pub(crate) is_staggered: bool,
}

/// The methods along the sides of a grid; rings unless said otherwise.
fn methods(algorithm: Algorithm, sides: usize, by_side: &[Algorithm]) -> Vec<Method> {
    let only = match algorithm {
        Algorithm::Direct => Method::Direct,
        Algorithm::HalvingDoubling => Method::Halving,
        Algorithm::Hierarchical | Algorithm::Torus => {
            let named = |index| by_side.get(index).copied().and_then(Method::named);
            return (0..sides)
                .map(|index| named(index).unwrap_or(Method::Ring))
                .collect();
        }
        _ => Method::Ring,
    };
    vec![only; sides]
}

/// The grid that an algorithm goes along: that of the members, or all of them in a line.
fn sides(algorithm: Algorithm, ranks: u32, grid: &[u32]) -> Vec<u32> {
    match algorithm {
        Algorithm::Hierarchical | Algorithm::Torus => grid.to_vec(),
        _ => vec![ranks],
    }
}

fn lanes(algorithm: Algorithm) -> Lanes {
    match algorithm {
        Algorithm::BidirectionalRing | Algorithm::Torus => Lanes::All,
        _ => Lanes::One,
    }
}

impl Outline {
    /// The outline of an algorithm that goes over queues.
    pub(crate) fn new(
        collective: Collective,
        algorithm: Algorithm,
        ranks: u32,
        grid: &[u32],
        by_side: &[Algorithm],
    ) -> Outline {
        let n = ranks.max(1) as usize;
        let tree = Outline {
            ports: 2,
            lanes: 1,
            blocks: 1,
            largest: 1,
            exchanges: (n - 1).max(1),
            messages: 1,
            sharing: 1,
            is_pipelined: true,
            is_staggered: false,
        };
        match (algorithm, collective) {
            (Algorithm::Centre, _) => Outline {
                ports: u32::try_from(2 * grid.len().max(1)).unwrap_or(u32::MAX),
                ..tree
            },
            (Algorithm::DoubleTree, _) => Outline {
                ports: 2 * TREE_PORTS,
                lanes: 2,
                exchanges: (2 * double_tree::height(ranks)).max(1),
                messages: 4,
                ..tree
            },
            (Algorithm::Chain, _) => tree,
            (Algorithm::Tree, _) => {
                let is_dealt = collective.has_parts();
                let rounds = rounds(n).max(1);
                Outline {
                    ports: u32::try_from(2 * rounds).unwrap_or(u32::MAX),
                    blocks: if is_dealt { n } else { 1 },
                    largest: if is_dealt { 1 << (rounds - 1) } else { 1 },
                    exchanges: rounds,
                    messages: rounds,
                    ..tree
                }
            }
            (Algorithm::ScatterGather, _) | (Algorithm::Direct, Collective::Gather | Collective::Scatter) => {
                let is_shared = algorithm == Algorithm::ScatterGather;
                Outline {
                    ports: ranks,
                    blocks: n,
                    exchanges: if is_shared { 2 } else { 1 },
                    messages: if is_shared { 2 * n } else { n },
                    is_pipelined: false,
                    ..tree
                }
            }
            (Algorithm::Pairwise, _) => Outline {
                ports: ranks,
                blocks: n,
                exchanges: n,
                messages: n,
                is_pipelined: false,
                ..tree
            },
            _ => Outline::of_grid(collective, algorithm, ranks, grid, by_side),
        }
    }

    fn of_grid(
        collective: Collective,
        algorithm: Algorithm,
        ranks: u32,
        grid: &[u32],
        by_side: &[Algorithm],
    ) -> Outline {
        let sides = sides(algorithm, ranks, grid);
        let mut methods = methods(algorithm, sides.len(), by_side);
        let swaps = collective == Collective::AllToAll;
        if swaps {
            methods.fill(Method::Direct);
        }
        let ports = sides
            .iter()
            .zip(&methods)
            .map(|(size, method)| method.ports(*size));
        let mut ports = ports.fold(0, u32::saturating_add).max(1);
        let used = || sides.iter().zip(&methods).filter(|(size, _)| **size > 1);
        let directions = if collective == Collective::AllReduce { 2 } else { 1 };
        let mut exchanges: usize = used()
            .map(|(size, method)| method.exchanges(*size as usize) * directions)
            .sum();
        let mut messages: usize = used()
            .map(|(size, method)| match method {
                Method::Direct => (*size as usize - 1) * directions,
                _ => method.exchanges(*size as usize) * directions,
            })
            .sum();
        let mut blocks = sides.iter().map(|size| *size as usize).product::<usize>().max(1);
        let mut shares = used().map(|(size, method)| method.largest_share(*size as usize));
        // The first side has the largest messages; with all lanes, each side is the first of one. Swaps do not shrink.
        let share = if lanes(algorithm) == Lanes::One && !swaps {
            shares.next()
        } else {
            shares.min()
        };
        let mut largest = blocks.div_ceil(share.unwrap_or(1));
        if algorithm == Algorithm::HalvingDoubling && !ranks.is_power_of_two() {
            // Members beyond the power of two send everything to a partner first.
            blocks = 1 << ranks.ilog2();
            largest = blocks;
            exchanges = directions * ranks.ilog2() as usize + 2;
            messages = exchanges;
        }
        if algorithm == Algorithm::HalvingDoubling {
            ports = ranks.ilog2() + 1;
        }
        let dimensions = used().count();
        let (lanes, is_equal) = match lanes(algorithm) {
            Lanes::One => (1, true),
            Lanes::All => (
                (2 * dimensions).max(1),
                used().all(|(size, method)| Some((size, method)) == used().next()),
            ),
        };
        // With equal sides each lane is alone in its side; but the one before it is received only later in the same turn.
        let same_way = match (lanes, is_equal) {
            (1, _) => 1,
            (_, true) => dimensions.clamp(1, 2),
            (_, false) => dimensions.max(1),
        };
        // Only in rings do the two lanes of a side use different queues.
        let both_ways = if lanes > 1 && methods.iter().any(|method| *method != Method::Ring) {
            2
        } else {
            1
        };
        Outline {
            ports,
            lanes,
            blocks,
            largest,
            exchanges: exchanges.max(1),
            messages,
            sharing: both_ways * same_way,
            is_pipelined: false,
            is_staggered: lanes == 1 && dimensions > 1,
        }
    }
}

/// What a member does, exchange by exchange.
#[derive(Clone, Debug)]
pub(super) enum Plan {
    Grid(Grid),
    Halving(Halving),
    Branch(Branch),
    Chain(Chain),
    Binomial(Binomial),
    Star(Star),
    Pairs(Pairs),
}

impl Plan {
    /// The plans of a member, one for each lane.
    pub(super) fn all(
        (collective, algorithm): (Collective, Algorithm),
        queues: Queues,
        grid: &[u32],
        by_side: &[Algorithm],
        root: Rank,
    ) -> Result<Vec<Plan>> {
        let seat = Seat::new(queues, root);
        let way = match collective {
            Collective::Reduce => Way::Sum,
            Collective::Gather => Way::Collect,
            _ => Way::Down,
        };
        Ok(match (algorithm, collective) {
            (Algorithm::DoubleTree, _) => vec![
                Plan::Branch(Branch::new(queues, 0)?),
                Plan::Branch(Branch::new(queues, 1)?),
            ],
            (Algorithm::Chain, _) => vec![Plan::Chain(Chain { seat, way })],
            (Algorithm::Tree, _) => vec![Plan::Binomial(Binomial {
                seat,
                way,
                is_dealt: collective.has_parts(),
            })],
            (Algorithm::ScatterGather, _) | (Algorithm::Direct, Collective::Gather | Collective::Scatter) => {
                let is_shared = algorithm == Algorithm::ScatterGather;
                vec![Plan::Star(Star { seat, way, is_shared })]
            }
            (Algorithm::Pairwise, _) => vec![Plan::Pairs(Pairs {
                seat: Seat::new(queues, Rank(0)),
            })],
            (Algorithm::HalvingDoubling, _) if !queues.ranks().is_power_of_two() => {
                vec![Plan::Halving(beyond(queues)?)]
            }
            _ => {
                let sides = sides(algorithm, queues.ranks(), grid);
                let mut methods = methods(algorithm, sides.len(), by_side);
                let task = match collective {
                    Collective::AllGather => Task::AllGather,
                    Collective::ReduceScatter => Task::ReduceScatter,
                    Collective::AllToAll => Task::AllToAll,
                    _ => Task::AllReduce,
                };
                if task == Task::AllToAll {
                    methods.fill(Method::Direct);
                }
                let grids = grid::plans(queues, &sides, &methods, lanes(algorithm), task)?;
                grids.into_iter().map(Plan::Grid).collect()
            }
        })
    }

    /// Blocks of a piece.
    pub(super) fn blocks(&self) -> usize {
        match self {
            Plan::Grid(grid) => grid.blocks(),
            Plan::Halving(halving) => halving.power,
            Plan::Binomial(tree) if tree.is_dealt => tree.seat.ranks,
            Plan::Star(Star { seat, .. }) | Plan::Pairs(Pairs { seat }) => seat.ranks,
            Plan::Branch(_) | Plan::Chain(_) | Plan::Binomial(_) => 1,
        }
    }

    /// The block of piece `index` of pieces of single blocks.
    pub(super) fn only(&self, index: usize) -> usize {
        match self {
            Plan::Grid(grid) => grid.only(index),
            _ => index,
        }
    }

    /// The rank that a block belongs to, where every rank has its own.
    pub(super) fn rank(&self, block: usize) -> usize {
        match self {
            Plan::Grid(grid) => grid.rank(block),
            Plan::Binomial(Binomial { seat, .. })
            | Plan::Star(Star { seat, .. })
            | Plan::Pairs(Pairs { seat }) => seat.rank(block),
            Plan::Halving(_) | Plan::Branch(_) | Plan::Chain(_) => block,
        }
    }

    /// What is sent and received in an exchange.
    pub(super) fn moves(&self, exchange: usize, moves: &mut Moves) -> Result<()> {
        moves.clear();
        match self {
            Plan::Grid(plan) => plan.moves(exchange, moves),
            Plan::Halving(plan) => plan.moves(exchange, moves),
            Plan::Branch(plan) => plan.moves(exchange, moves),
            Plan::Chain(plan) => plan.moves(exchange, moves),
            Plan::Binomial(plan) => plan.moves(exchange, moves),
            Plan::Star(plan) => plan.moves(exchange, moves),
            Plan::Pairs(plan) => plan.moves(exchange, moves),
        }
    }
}

/// Halving and doubling among as many members as the largest power of two; the others have a partner.
fn beyond(queues: Queues) -> Result<Halving> {
    let (me, power) = (queues.rank().0, 1u32 << queues.ranks().ilog2());
    Ok(Halving {
        is_beyond: me >= power,
        inner: (me < power && power > 1).then(|| grid::partners(queues, power)),
        inner_exchanges: 2 * power.ilog2() as usize,
        other: halving::other(queues)?,
        power: power as usize,
    })
}
