//! Trees and chains: data goes from the root to all members, or from all to the root, piece by piece.

use super::moves::Moves;
use ringwork_isa::{Port, Queues, Rank, Result};

/// Which way data goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// From the root.
    Down,
    /// To the root, added up.
    Sum,
    /// To the root, side by side.
    Collect,
}

/// A member's place as seen from the root: the root is at place 0.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seat {
    queues: Queues,
    root: usize,
    pub(super) place: usize,
    pub(super) ranks: usize,
}

impl Seat {
    pub(super) fn new(queues: Queues, root: Rank) -> Seat {
        let (me, ranks, root) = (queues.rank().0 as usize, queues.ranks() as usize, root.0 as usize);
        Seat {
            queues,
            root,
            place: (me + ranks - root) % ranks,
            ranks,
        }
    }

    /// The rank at a place.
    pub(super) fn rank(&self, place: usize) -> usize {
        (self.root + place) % self.ranks
    }

    fn port(&self, mine: usize, place: usize, theirs: usize) -> Result<Port> {
        let number = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        self.queues
            .port(number(mine), Rank(number(self.rank(place))), number(theirs))
    }
}

impl Seat {
    /// The port to a place that has the number of its rank.
    fn port_of_rank(&self, place: usize) -> Result<Port> {
        self.port(self.rank(place), place, self.rank(self.place))
    }
}

/// One after the other: each member to the next.
#[derive(Clone, Debug)]
pub(super) struct Chain {
    pub(super) seat: Seat,
    pub(super) way: Way,
}

impl Chain {
    /// Port 0 leads towards the root, port 1 away from it.
    pub(super) fn moves(&self, exchange: usize, moves: &mut Moves) -> Result<()> {
        let Seat { place, ranks, .. } = self.seat;
        // The link that is used in this exchange: from this place to the next.
        let link = match self.way {
            Way::Down => exchange,
            Way::Sum | Way::Collect => ranks - 2 - exchange,
        };
        let (is_near, is_far) = (place == link, place == link + 1);
        match (is_near, is_far, self.way) {
            (true, _, Way::Down) => moves.send(self.seat.port(1, place + 1, 0), 0..1),
            (_, true, Way::Down) => moves.receive(self.seat.port(0, place - 1, 1), 0..1),
            (_, true, _) => moves.send(self.seat.port(0, place - 1, 1), 0..1),
            (true, ..) => {
                moves.adds = Some(0);
                moves.receive(self.seat.port(1, place + 1, 0), 0..1)
            }
            _ => Ok(()),
        }
    }
}

/// A binomial tree: place `p` hands the upper half of its members to the one in the middle, and so on.
#[derive(Clone, Debug)]
pub(super) struct Binomial {
    pub(super) seat: Seat,
    pub(super) way: Way,
    /// Whether each place has a block of its own, so that only those of the members below go along.
    pub(super) is_dealt: bool,
}

impl Binomial {
    /// Port `2 bit` leads to the rank `2^bit` before me, the port after it to the one behind me; whatever the root.
    pub(super) fn moves(&self, exchange: usize, moves: &mut Moves) -> Result<()> {
        let Seat { place, ranks, .. } = self.seat;
        let rounds = rounds(ranks);
        let bit = match self.way {
            Way::Down => rounds - 1 - exchange,
            Way::Sum | Way::Collect => exchange,
        };
        let distance = 1 << bit;
        let (upper, lower) = match place & (2 * distance - 1) {
            0 if place + distance < ranks => (Some(place + distance), None),
            within if within == distance => (None, Some(place - distance)),
            _ => return Ok(()),
        };
        let first = upper.unwrap_or(place);
        let blocks = if self.is_dealt {
            first..(first + distance).min(ranks)
        } else {
            0..1
        };
        let (mine, theirs) = if upper.is_some() {
            (2 * bit + 1, 2 * bit)
        } else {
            (2 * bit, 2 * bit + 1)
        };
        let peer = self.seat.port(mine, upper.or(lower).unwrap_or(0), theirs);
        if upper.is_some() == (self.way == Way::Down) {
            return moves.send(peer, blocks);
        }
        if self.way == Way::Sum {
            moves.adds = Some(0);
        }
        moves.receive(peer, blocks)
    }
}

/// The levels of a binomial tree.
pub(super) fn rounds(ranks: usize) -> usize {
    ranks.next_power_of_two().ilog2() as usize
}

/// Straight between the root and each member; for all-gathers in between, between all members.
#[derive(Clone, Debug)]
pub(super) struct Star {
    pub(super) seat: Seat,
    pub(super) way: Way,
    /// What follows a scatter, or comes before a gather, between all members.
    pub(super) is_shared: bool,
}

impl Star {
    /// Port `r` leads to rank `r`, and to its port with my rank; whatever the root.
    pub(super) fn moves(&self, exchange: usize, moves: &mut Moves) -> Result<()> {
        let Seat { place, ranks, .. } = self.seat;
        let port = |peer: usize| self.seat.port_of_rank(peer);
        let others = || (1..ranks).map(|step| (place + step) % ranks);
        match (self.way, exchange, self.is_shared) {
            (Way::Down, 0, _) if place == 0 => {
                for peer in others() {
                    moves.send(port(peer), peer..peer + 1)?;
                }
            }
            (Way::Down, 0, _) => moves.receive(port(0), place..place + 1)?,
            // The root has everything.
            (Way::Down, ..) => {
                for peer in others().filter(|peer| *peer != 0) {
                    moves.send(port(peer), place..place + 1)?;
                }
                if place != 0 {
                    for peer in (0..ranks).filter(|peer| *peer != place) {
                        moves.receive(port(peer), peer..peer + 1)?;
                    }
                }
            }
            (_, 0, true) => {
                for peer in others() {
                    moves.send(port(peer), peer..peer + 1)?;
                }
                // In the order of ranks, so that the sum is exact.
                let by_rank = |rank: usize| (rank + ranks - self.seat.root) % ranks;
                for peer in (0..ranks).map(by_rank).filter(|peer| *peer != place) {
                    moves.receive(port(peer), place..place + 1)?;
                }
                moves.adds = Some(self.seat.rank(place));
            }
            _ if place == 0 => {
                for peer in 1..ranks {
                    moves.receive(port(peer), peer..peer + 1)?;
                }
            }
            _ => moves.send(port(0), place..place + 1)?,
        }
        Ok(())
    }
}

/// All-to-all pair by pair: in exchange `e` the partners are those whose places add up to `e`.
#[derive(Clone, Debug)]
pub(super) struct Pairs {
    pub(super) seat: Seat,
}

impl Pairs {
    /// Port `r` leads to rank `r`, and to its port with my rank; whatever the root.
    pub(super) fn moves(&self, exchange: usize, moves: &mut Moves) -> Result<()> {
        let Seat { place, ranks, .. } = self.seat;
        let partner = (exchange + ranks - place) % ranks;
        if partner == place {
            return Ok(());
        }
        moves.send(self.seat.port_of_rank(partner), partner..partner + 1)?;
        moves.receive(self.seat.port_of_rank(partner), partner..partner + 1)
    }
}
