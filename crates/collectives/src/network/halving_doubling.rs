//! Recursive halving and doubling: half the data with the furthest partner, a quarter with the next, and back.
//!
//! As few steps as a tree, as few bytes as a ring, if partners at every distance are equally near. If the number of
//! members is not a power of two, those beyond it first hand their data to a partner and get the result last. Not
//! exact: sums are rounded at every step.

use super::{check, combine, refuse_average};
use crate::chunk::chunks;
use ringwork_isa::{AnyTile, Core, In, Out, Queues, Rank, ReduceOp, Result};

/// `y[i]` becomes `x[i]` reduced over all members, on every one of them, by exchange with partners.
///
/// Port `p` leads to the member whose rank differs in bit `p`, and to its port `p`; the last port leads to the member
/// beyond the power of two, or to its partner. The number of ports is the number of bits of the number of ranks.
///
/// # Errors
/// If `x` and `y` are not equally long, there are too few ports, `op` is an average, or as [`Core::wait`].
pub async fn halving_doubling<C: Core>(core: &C, queues: Queues, x: In, y: Out, op: ReduceOp) -> Result<()> {
    let ranks = queues.ranks();
    let rounds = ranks.ilog2();
    check(&queues, x, y, rounds + 1, 1)?;
    refuse_average(op)?;
    for chunk in chunks(x.len(), queues.slot_len()) {
        let mine = core.load(x.slice(chunk.clone())?).await?;
        let result = with_partners(core, queues, rounds, mine, op).await?;
        core.store(y.slice(chunk)?, &result).await?;
    }
    Ok(())
}

async fn with_partners<C: Core>(
    core: &C,
    queues: Queues,
    rounds: u32,
    mine: AnyTile,
    op: ReduceOp,
) -> Result<AnyTile> {
    let (me, power) = (queues.rank().0, 1 << rounds);
    if me >= power {
        let partner = queues.port(rounds, Rank(me - power), rounds)?;
        core.send(partner, &mine).await?;
        return core.recv(partner, mine.len()).await;
    }
    let beyond = if me + power < queues.ranks() {
        Some(queues.port(rounds, Rank(me + power), rounds)?)
    } else {
        None
    };
    let mut tile = mine;
    if let Some(beyond) = beyond {
        let theirs = core.recv(beyond, tile.len()).await?;
        tile = combine(core, &tile, &theirs, op).await?;
    }
    let mut kept = Vec::with_capacity(rounds as usize);
    let mut range = 0..tile.len();
    for round in (0..rounds).rev() {
        let port = queues.port(round, Rank(me ^ 1 << round), round)?;
        let middle = range.start + range.len() / 2;
        let (keep, give) = if me & 1 << round == 0 {
            (range.start..middle, middle..range.end)
        } else {
            (middle..range.end, range.start..middle)
        };
        kept.push((port, range));
        core.send(port, &tile.slice(give)?).await?;
        let theirs = core.recv(port, keep.len()).await?;
        let sum = combine(core, &tile.slice(keep.clone())?, &theirs, op).await?;
        tile.replace(keep.start, &sum)?;
        range = keep;
    }
    for (port, whole) in kept.into_iter().rev() {
        core.send(port, &tile.slice(range.clone())?).await?;
        let theirs = if range.start == whole.start {
            range.end..whole.end
        } else {
            whole.start..range.start
        };
        tile.replace(theirs.start, &core.recv(port, theirs.len()).await?)?;
        range = whole;
    }
    if let Some(beyond) = beyond {
        core.send(beyond, &tile).await?;
    }
    Ok(tile)
}
