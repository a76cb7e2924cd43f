//! Direct all-reduce by messages: each part goes to the member that adds it, and the sum to all members.
//!
//! Two steps whatever the number of members, if every pair has a link of its own. Exact: each part is folded in rank
//! order, wide, and rounded once.

use super::{check, fold};
use crate::chunk::chunks;
use ringwork_isa::{Core, In, Out, Queues, Rank, ReduceOp, Result, part_range};

/// `y[i]` becomes `x[i]` reduced over all members, on every one of them; each adds one part.
///
/// Port `p` leads to rank `p`, and is joined to that rank's port with this rank's number. There are as many ports as
/// ranks; one is unused.
///
/// # Errors
/// If `x` and `y` are not equally long, there are too few ports, or as [`Core::wait`].
pub async fn direct<C: Core>(core: &C, queues: Queues, x: In, y: Out, op: ReduceOp) -> Result<()> {
    let (me, ranks) = (queues.rank().0, queues.ranks());
    check(&queues, x, y, ranks, 1)?;
    let (mine, n) = (me as usize, ranks as usize);
    // All members but me, beginning with my right neighbour, so that not all send to the same one at once.
    let others = || (1..ranks).map(|step| (me + step) % ranks);
    let port = |peer: u32| queues.port(peer, Rank(peer), me);
    for chunk in chunks(x.len(), queues.slot_len().saturating_mul(n)) {
        let whole = core.load(x.slice(chunk.clone())?).await?;
        let part = |rank: usize| part_range(whole.len(), n, rank);
        for peer in others() {
            let theirs = whole.slice(part(peer as usize))?;
            core.send(port(peer)?, &theirs).await?;
        }
        let own = whole.slice(part(mine))?;
        let mut parts = Vec::with_capacity(n);
        for peer in 0..ranks {
            parts.push(if peer == me {
                own.clone()
            } else {
                core.recv(port(peer)?, own.len()).await?
            });
        }
        let sum = fold(core, &parts.iter().collect::<Vec<_>>(), op).await?;
        for peer in others() {
            core.send(port(peer)?, &sum).await?;
        }
        let mut result = whole.clone();
        result.replace(part(mine).start, &sum)?;
        for peer in others() {
            let range = part(peer as usize);
            let theirs = core.recv(port(peer)?, range.len()).await?;
            result.replace(range.start, &theirs)?;
        }
        core.store(y.slice(chunk)?, &result).await?;
    }
    Ok(())
}
