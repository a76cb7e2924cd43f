//! Recursive halving and doubling over any number of members.
//!
//! Members beyond the largest power of two hand their data to a partner first, and get the result from it last. The last
//! port leads to that partner, the others as in [`grid`](super::grid).

use super::grid::Grid;
use super::moves::Moves;
use ringwork_isa::{Port, Queues, Rank, Result};

/// A member's plan, if their number is not a power of two.
#[derive(Clone, Debug)]
pub(super) struct Halving {
    /// Whether this member is beyond the power of two.
    pub(super) is_beyond: bool,
    /// The plan of a member up to it.
    pub(super) inner: Option<Grid>,
    /// Exchanges of these.
    pub(super) inner_exchanges: usize,
    /// The member beyond, or the partner.
    pub(super) other: Option<Port>,
    /// The largest power of two.
    pub(super) power: usize,
}

/// The port to the member beyond the power of two, or to its partner.
pub(super) fn other(queues: Queues) -> Result<Option<Port>> {
    let (me, ranks, rounds) = (queues.rank().0, queues.ranks(), queues.ranks().ilog2());
    let peer = if me >= 1 << rounds {
        me - (1 << rounds)
    } else {
        me + (1 << rounds)
    };
    if peer >= ranks {
        return Ok(None);
    }
    queues.port(rounds, Rank(peer), rounds).map(Some)
}

impl Halving {
    pub(super) fn moves(&self, exchange: usize, moves: &mut Moves) -> Result<()> {
        let (first, last) = (exchange == 0, exchange == self.inner_exchanges + 1);
        if !first && !last {
            return self
                .inner
                .as_ref()
                .map_or(Ok(()), |inner| inner.moves(exchange - 1, moves));
        }
        let Some(other) = self.other else {
            return Ok(());
        };
        let everything = 0..self.power;
        if first == self.is_beyond {
            return moves.send(Ok(other), everything);
        }
        if first {
            moves.adds = Some(0);
        }
        moves.receive(Ok(other), everything)
    }
}
