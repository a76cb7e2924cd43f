//! Side by side of a grid: a ring, everybody with everybody, or partners, along each.
//!
//! Ranks form a grid. Along one side of it, a line of members reduces its blocks so that each keeps a share; then the
//! next side goes on with that share, and so on. All-gathers come back in reverse order. A ring of all ranks is a grid
//! of one side, and so are direct exchange and halving-doubling. The sides may be those of a torus, or of groups and
//! their members.
//!
//! With [`Lanes::All`] the data is cut into one lane for each port, that is two for each side, one in each direction.
//! Each lane begins with another side, so in a grid of equal sides every port is busy in every exchange.

use super::moves::{Group, Moves};
use ringwork_isa::{Algorithm, Error, Port, Queues, Rank, Result};
use std::ops::Range;

/// How many lanes the data is cut into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lanes {
    /// One, upwards.
    One,
    /// Two for each side.
    All,
}

/// What the members of a line do with each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    /// A ring: each step to the next member.
    Ring,
    /// Everybody with everybody.
    Direct,
    /// Partners at distances 1, 2, 4, ...
    Halving,
}

impl Method {
    /// The method with the name of an algorithm.
    pub(super) fn named(algorithm: Algorithm) -> Option<Method> {
        match algorithm {
            Algorithm::Ring => Some(Method::Ring),
            Algorithm::Direct => Some(Method::Direct),
            Algorithm::HalvingDoubling => Some(Method::Halving),
            _ => None,
        }
    }

    /// Ports that it needs in a line of so many members.
    pub(super) fn ports(self, size: u32) -> u32 {
        match self {
            Method::Ring => 2,
            Method::Direct => size,
            Method::Halving => size.max(1).ilog2(),
        }
    }

    /// Exchanges of a reduce-scatter or an all-gather.
    pub(super) fn exchanges(self, size: usize) -> usize {
        match self {
            Method::Ring => size - 1,
            Method::Direct => 1,
            Method::Halving => size.ilog2() as usize,
        }
    }

    /// The share of the data in the longest message: one of so many.
    pub(super) fn largest_share(self, size: usize) -> usize {
        match self {
            Method::Ring | Method::Direct => size,
            Method::Halving => 2,
        }
    }
}

/// My place along one side.
#[derive(Clone, Copy, Debug)]
struct Side {
    method: Method,
    place: usize,
    size: usize,
    stride: usize,
    first_port: u32,
    /// Of a ring.
    neighbours: Option<(Port, Port)>,
}

/// What a phase does with its blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Everybody's sums; each keeps a share.
    ReduceScatter,
    /// Everybody's shares; each gets all.
    AllGather,
    /// A share from everyone to everyone.
    Swap,
}

/// One side's part in a plan.
#[derive(Clone, Debug)]
struct Phase {
    kind: Kind,
    side: usize,
    /// The first of the blocks that it is about, and how many belong to each member of the line.
    first: usize,
    share: usize,
    /// How often these blocks are repeated, and how far apart.
    count: usize,
    step: usize,
    exchanges: Range<usize>,
}

/// What is done with the data of the grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Task {
    /// Reduce-scatters, then all-gathers.
    AllReduce,
    /// Reduce-scatters.
    ReduceScatter,
    /// All-gathers.
    AllGather,
    /// Swaps.
    AllToAll,
}

/// A lane's plan.
#[derive(Clone, Debug)]
pub(super) struct Grid {
    queues: Queues,
    me: usize,
    sides: Vec<Side>,
    /// Sides in the order in which this lane takes them; blocks are numbered by the place in the first, then in the second.
    order: Vec<usize>,
    up: bool,
    phases: Vec<Phase>,
    blocks: usize,
}

/// The plans of all lanes.
///
/// # Errors
/// If there is no grid of these sides.
pub(super) fn plans(
    queues: Queues,
    sizes: &[u32],
    methods: &[Method],
    lanes: Lanes,
    task: Task,
) -> Result<Vec<Grid>> {
    let (me, mut stride, mut first_port) = (queues.rank().0, 1u32, 0);
    let mut sides = Vec::with_capacity(sizes.len());
    for (index, &size) in sizes.iter().enumerate() {
        let method = methods.get(index).copied().unwrap_or(Method::Ring);
        let place = me / stride.max(1) % size.max(1);
        let first = me - place * stride;
        let at = |place: u32| Rank(first + place * stride);
        // A side of size one has no peer; in one of size two, both neighbours are the same peer.
        if size > 1 {
            let neighbours = match method {
                Method::Ring => Some((
                    queues.port(first_port, at((place + size - 1) % size), first_port + 1)?,
                    queues.port(first_port + 1, at((place + 1) % size), first_port)?,
                )),
                Method::Direct | Method::Halving => None,
            };
            sides.push(Side {
                method,
                place: place as usize,
                size: size as usize,
                stride: stride as usize,
                first_port,
                neighbours,
            });
        }
        first_port = first_port.saturating_add(method.ports(size));
        stride = stride.saturating_mul(size);
    }
    if stride != queues.ranks() {
        return Err(Error::failed(format!(
            "a grid of {sizes:?} has {stride} members, the domain {}; say the sizes of all its dimensions",
            queues.ranks()
        )));
    }
    let count = match lanes {
        Lanes::One => 1,
        Lanes::All => (2 * sides.len()).max(1),
    };
    let plan = |lane: usize| {
        let order: Vec<usize> = (0..sides.len()).map(|i| (i + lane / 2) % sides.len()).collect();
        Grid::new(queues, sides.clone(), order, lane.is_multiple_of(2), task)
    };
    Ok((0..count).map(plan).collect())
}

/// The plan of an all-reduce by halving and doubling among the first `power` ranks.
pub(super) fn partners(queues: Queues, power: u32) -> Grid {
    let side = Side {
        method: Method::Halving,
        place: queues.rank().0 as usize,
        size: power as usize,
        stride: 1,
        first_port: 0,
        neighbours: None,
    };
    Grid::new(queues, vec![side], vec![0], true, Task::AllReduce)
}

impl Grid {
    fn new(queues: Queues, sides: Vec<Side>, order: Vec<usize>, up: bool, task: Task) -> Grid {
        let blocks: usize = sides.iter().map(|side| side.size).product();
        let (mut scatters, mut first, mut share) = (Vec::new(), 0, blocks);
        for &index in &order {
            let side = &sides[index];
            let whole = share;
            share /= side.size;
            let phase = |kind, first, count, step| Phase {
                kind,
                side: index,
                first,
                share,
                count,
                step,
                exchanges: 0..side.method.exchanges(side.size),
            };
            if task == Task::AllToAll {
                let swap = phase(Kind::Swap, 0, blocks / whole, whole);
                scatters.push(Phase {
                    exchanges: 0..1,
                    ..swap
                });
            } else {
                scatters.push(phase(Kind::ReduceScatter, first, 1, 0));
                first += side.place * share;
            }
        }
        let gathers = scatters.iter().rev().map(|phase| Phase {
            kind: Kind::AllGather,
            ..phase.clone()
        });
        let mut phases: Vec<Phase> = match task {
            Task::AllGather => gathers.collect(),
            Task::AllReduce => scatters.iter().cloned().chain(gathers).collect(),
            Task::ReduceScatter | Task::AllToAll => scatters,
        };
        let mut start = 0;
        for phase in &mut phases {
            phase.exchanges = start..start + phase.exchanges.len();
            start = phase.exchanges.end;
        }
        Grid {
            me: queues.rank().0 as usize,
            queues,
            sides,
            order,
            up,
            phases,
            blocks,
        }
    }

    pub(super) fn blocks(&self) -> usize {
        self.blocks
    }

    /// The rank that block `index` belongs to.
    pub(super) fn rank(&self, index: usize) -> usize {
        let (mut rest, mut rank) = (index, 0);
        for side in self.order.iter().rev().map(|side| &self.sides[*side]) {
            rank += rest % side.size * side.stride;
            rest /= side.size;
        }
        rank
    }

    /// The block that I have in a piece of single blocks, of which this is number `index`.
    ///
    /// In an all-to-all a block changes its meaning on the way: from the rank that it is for to the rank that it is from. So the
    /// members have those blocks in the same piece whose places and their own add up to the same in each side.
    pub(super) fn only(&self, index: usize) -> usize {
        if self.phases.iter().all(|phase| phase.kind != Kind::Swap) {
            return index;
        }
        let (mut rest, mut block, mut weight) = (index, 0, 1);
        for side in self.order.iter().rev().map(|side| &self.sides[*side]) {
            block += (rest % side.size + side.size - side.place) % side.size * weight;
            rest /= side.size;
            weight *= side.size;
        }
        block
    }

    fn port(&self, side: &Side, place: usize) -> Result<Port> {
        let peer = self.me - side.place * side.stride + place * side.stride;
        let number = |place: usize| side.first_port + u32::try_from(place).unwrap_or(u32::MAX);
        let (mine, theirs) = match side.method {
            Method::Halving => {
                let bit = (side.place ^ place).max(1).ilog2() as usize;
                (number(bit), number(bit))
            }
            _ => (number(place), number(side.place)),
        };
        let peer = Rank(u32::try_from(peer).unwrap_or(u32::MAX));
        self.queues.port(mine, peer, theirs)
    }

    pub(super) fn moves(&self, exchange: usize, moves: &mut Moves) -> Result<()> {
        let Some(phase) = self.phases.iter().find(|phase| exchange < phase.exchanges.end) else {
            return Ok(());
        };
        let (step, side) = (exchange - phase.exchanges.start, &self.sides[phase.side]);
        if phase.kind == Kind::ReduceScatter {
            moves.adds = Some(0);
        }
        match (side.method, side.neighbours, phase.kind) {
            (_, _, Kind::Swap) => self.swap(phase, side, moves),
            (Method::Ring, Some(neighbours), _) => self.ring(phase, side, neighbours, step, moves),
            (Method::Halving, ..) => self.halving(phase, side, step, moves),
            _ => self.direct(phase, side, moves),
        }
    }

    fn ring(
        &self,
        phase: &Phase,
        side: &Side,
        (before, after): (Port, Port),
        step: usize,
        moves: &mut Moves,
    ) -> Result<()> {
        let (place, size) = (side.place, side.size);
        // Sums travel on by one in each step, and end at the member whose share they are.
        let behind = match phase.kind {
            Kind::ReduceScatter => step + 1,
            _ => step,
        };
        let (to, from, out, come) = if self.up {
            (
                after,
                before,
                place + 2 * size - behind,
                place + 2 * size - behind - 1,
            )
        } else {
            (before, after, place + behind, place + behind + 1)
        };
        moves.send(Ok(to), phase.share_of(out % size))?;
        moves.receive(Ok(from), phase.share_of(come % size))
    }

    fn direct(&self, phase: &Phase, side: &Side, moves: &mut Moves) -> Result<()> {
        // Beginning with my neighbour, so that not all send to the same one at once.
        for peer in (1..side.size).map(|step| (side.place + step) % side.size) {
            let share = match phase.kind {
                Kind::ReduceScatter => peer,
                _ => side.place,
            };
            moves.send(self.port(side, peer), phase.share_of(share))?;
        }
        for peer in (0..side.size).filter(|peer| *peer != side.place) {
            let share = match phase.kind {
                Kind::ReduceScatter => side.place,
                _ => peer,
            };
            moves.receive(self.port(side, peer), phase.share_of(share))?;
        }
        if phase.kind == Kind::ReduceScatter {
            // In the order of ranks, so that the sum is exact.
            moves.adds = Some(side.place);
        }
        Ok(())
    }

    fn halving(&self, phase: &Phase, side: &Side, step: usize, moves: &mut Moves) -> Result<()> {
        let rounds = side.size.ilog2() as usize;
        let bit = match phase.kind {
            Kind::ReduceScatter => rounds - 1 - step,
            _ => step,
        };
        let half = |place: usize| {
            let first = place >> bit << bit;
            phase.first + first * phase.share..phase.first + (first + (1 << bit)) * phase.share
        };
        let peer = side.place ^ 1 << bit;
        let (mine, theirs) = (half(side.place), half(peer));
        let (out, come) = match phase.kind {
            Kind::ReduceScatter => (theirs, mine),
            _ => (mine, theirs),
        };
        moves.send(self.port(side, peer), out)?;
        moves.receive(self.port(side, peer), come)
    }

    fn swap(&self, phase: &Phase, side: &Side, moves: &mut Moves) -> Result<()> {
        let group = |place: usize| Group {
            first: phase.first + place * phase.share,
            len: phase.share,
            count: phase.count,
            step: phase.step,
        };
        for peer in (1..side.size).map(|step| (side.place + step) % side.size) {
            moves.send(self.port(side, peer), group(peer))?;
        }
        for peer in (1..side.size).map(|step| (side.place + side.size - step) % side.size) {
            moves.receive(self.port(side, peer), group(peer))?;
        }
        Ok(())
    }
}

impl Phase {
    /// The blocks of one member of the line.
    fn share_of(&self, place: usize) -> Range<usize> {
        let first = self.first + place * self.share;
        first..first + self.share
    }
}
