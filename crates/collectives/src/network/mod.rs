//! Collectives for networks: tiles pushed through queues between neighbours.
//!
//! In shared memory a direct algorithm is always the best. Between chips the cost is how many messages follow each
//! other, how far they go, and how much each link carries; so there are several algorithms, and the machine decides.
//! None needs a scratch buffer or a barrier: [`Queues`] hold the messages in flight, and their credits keep members
//! in step. With latency `a`, time per byte `b`, `g` to add one byte, `n` members, `S` bytes, in one piece:
//!
//! | | collectives | time | links | exact |
//! |---|---|---|---|---|
//! | direct | all-reduce | `2 (a + S/n b) + (n-1)/n S g` | every pair | yes |
//! | | all-gather, reduce-scatter, all-to-all | half of it | | |
//! | | gather, scatter | `a + (n-1)/n S b` | to the root | |
//! | ring | all-reduce | `2 (n-1) (a + S/n b) + (n-1)/n S g` | a ring | no |
//! | | all-gather, reduce-scatter | half of it | | |
//! | bidirectional ring | the same | half of the bytes each way | a ring both ways | no |
//! | halving-doubling | all-reduce | `2 log2 n a + 2 (n-1)/n S b + (n-1)/n S g` | distances 1, 2, 4 ... | no |
//! | | all-gather, reduce-scatter | half of it | | |
//! | hierarchical | all-reduce | `2 sum(d-1) a + 2 (n-1)/n S b + (n-1)/n S g` | rings along each side | no |
//! | | all-gather, reduce-scatter | half of it | | |
//! | | all-to-all | `sum(a + (d-1)/d S b)` | every pair of a line | |
//! | torus | the same | bytes divided by the ports | the same both ways | no |
//! | double tree | all-reduce | about `2 log2 n a + 2 S b`, in pieces | two trees | no |
//! | chain | broadcast, reduce | `(n-1) a + (n-2+k) S/k b` in `k` pieces | a line | no |
//! | tree | broadcast, reduce | `log2 n (a + S b)` | a binomial tree | no |
//! | | gather, scatter | `log2 n a + (n-1)/n S b` | | |
//! | scatter-gather | broadcast, reduce | `2 (a + S/n b)` | every pair | yes |
//! | pairwise | all-to-all | `n (a + S/n b)` | every pair | |
//! | [`centre()`] | all-reduce | `2 sum(d/2) (a + S b)` | lines | no |
//!
//! # Pieces
//! A message is at most as long as a slot. What is longer goes in several pieces, half as many at a time as a queue has
//! slots. So the size of a slot is the chunk size of other libraries, and the number of slots sets how many chunks are under
//! way. While one piece travels, the next is loaded and another one is added: links need not wait for memory or for
//! latency. By default, pieces are so large that a link carries a few of them in one latency.
//!
//! With each algorithm, all members get the same bits; the exact ones give those of every other exact algorithm (COL-1).

mod centre;
mod double_tree;
mod grid;
mod halving;
mod moves;
mod pieces;
mod pipeline;
mod plan;
mod trees;

pub use centre::centre;

use crate::arguments::{dealt_part, member, my_part, one_part, rooted, same_length, times_ranks};
use crate::catalogue::{Call, Entry};
use pieces::{Data, Held};
pub(crate) use plan::Outline;
use plan::Plan;
use ringwork_isa::{
    Algorithm, AnyTile, Collective, Core, Error, In, Out, Queues, Rank, ReduceOp, Result, Work, part_range,
};

/// Ports that an algorithm needs on each member of a grid of these sides.
#[must_use]
pub fn ports(entry: &Entry, grid: &[u32], by_side: &[Algorithm]) -> u32 {
    let ranks = grid.iter().product::<u32>().max(1);
    Outline::new(entry.collective, entry.algorithm, ranks, grid, by_side).ports
}

/// Runs one member's part of a collective call over queues.
///
/// # Errors
/// If lengths or the root do not fit, there are too few ports, a slot holds nothing, partial results would be averaged, or
/// as [`Core::wait`].
pub async fn run<C: Core>(core: &C, entry: &Entry, queues: Queues, call: Call<'_>) -> Result<()> {
    let Call {
        x,
        y,
        op,
        root,
        grid,
        by_side,
        ..
    } = call;
    let (collective, algorithm) = (entry.collective, entry.algorithm);
    if algorithm == Algorithm::Centre {
        return centre(core, queues, grid, x, y, op).await;
    }
    entry.fits(queues.ranks(), Some(grid)).map_err(Error::failed)?;
    let data = data(collective, queues, (x, y), op, root)?;
    let outline = Outline::new(collective, algorithm, queues.ranks(), grid, by_side);
    has_ports(&queues, outline.ports, data.total)?;
    if collective.reduces() && !algorithm.is_exact() {
        refuse_average(op)?;
    }
    if data.total == 0 {
        return Ok(());
    }
    if data.ranks == 1 {
        return core.copy(y, x).await;
    }
    let plans = Plan::all((collective, algorithm), queues, grid, by_side, root)?;
    pipeline::run(core, queues, &outline, &plans, &data).await
}

/// The data of a call, its lengths checked (COL-4).
#[track_caller]
fn data(collective: Collective, queues: Queues, (x, y): (In, Out), op: ReduceOp, root: Rank) -> Result<Data> {
    let (me, ranks) = (queues.rank().0 as usize, queues.ranks() as usize);
    let place = (me, ranks);
    let is_root = queues.rank() == root;
    let at_root = |held| if is_root { held } else { Held::Nothing };
    let (input, output, total) = match collective {
        Collective::AllGather => {
            one_part(&x, &y, place)?;
            (Held::Own, Held::Everything, y.len())
        }
        Collective::ReduceScatter => {
            my_part(&x, &y, place)?;
            (Held::Everything, Held::Own, x.len())
        }
        Collective::AllToAll => {
            dealt_part(&x, &y, place)?;
            if !x.len().is_multiple_of(ranks) {
                return Err(Error::failed(format!(
                    "{} elements cannot be dealt to {ranks} ranks in equal parts; use `staged`",
                    x.len()
                )));
            }
            (Held::Everything, Held::Everything, x.len())
        }
        Collective::Gather => {
            member(root, ranks)?;
            let total = times_ranks(x.len(), ranks)?;
            if is_root {
                same_length("`y` on the root, one `x` per rank,", y.len(), total)?;
            }
            (Held::Own, at_root(Held::Everything), total)
        }
        Collective::Scatter => {
            member(root, ranks)?;
            let total = times_ranks(y.len(), ranks)?;
            if is_root {
                same_length("`x` on the root, one `y` per rank,", x.len(), total)?;
            }
            (at_root(Held::Everything), Held::Own, total)
        }
        Collective::Broadcast => {
            rooted((queues.rank(), queues.ranks()), &x, &y, root)?;
            (at_root(Held::Everything), Held::Everything, y.len())
        }
        Collective::Reduce => {
            member(root, ranks)?;
            if is_root {
                same_length("`y` on the root", y.len(), x.len())?;
            }
            (Held::Everything, at_root(Held::Everything), x.len())
        }
        _ => {
            same_length("`y`", y.len(), x.len())?;
            (Held::Everything, Held::Everything, x.len())
        }
    };
    Ok(Data {
        x,
        y,
        op,
        input,
        output,
        is_dealt: collective.has_parts(),
        total,
        me,
        ranks,
    })
}

/// The default number of slots of a queue.
pub(crate) fn usual_slots(algorithm: Algorithm, outline: &Outline) -> u32 {
    match algorithm {
        Algorithm::Centre => 1,
        // Half as many pieces are under way: four, which hide latency, and room for credits over links of unequal length.
        _ if outline.exchanges > 2 => 8,
        _ => 4,
    }
}

/// The most messages that a member sends in one call because its data is cut into pieces: so that simulating large machines
/// stays cheap. With so many messages, latency is hidden anyway.
const MOST_MESSAGES: usize = 1024;
/// The most pieces.
const MOST_PIECES: usize = 256;
/// Pieces of fewer bytes than this gain nothing.
const LEAST_PIECE_BYTES: usize = 4 << 10;

/// Elements of the longest message of a call of `count` elements, so that pieces follow each other well on links that carry
/// `latency_bytes` in the time of their latency.
pub(crate) fn usual_message(
    outline: &Outline,
    count: usize,
    element_bytes: usize,
    latency_bytes: u64,
) -> usize {
    let piece = count.div_ceil(outline.lanes);
    // Blocks are longest first.
    let whole = part_range(piece, outline.blocks, outline.largest - 1).end.max(1);
    let bytes = whole.saturating_mul(element_bytes);
    let latency_bytes = usize::try_from(latency_bytes)
        .unwrap_or(usize::MAX)
        .max(LEAST_PIECE_BYTES);
    let pieces = if outline.is_pipelined {
        // The best number for a chain: the square root of (n-2) S b / a.
        (bytes / latency_bytes)
            .saturating_mul(outline.exchanges.saturating_sub(1))
            .isqrt()
    } else if bytes < latency_bytes / 4 {
        1
    } else {
        (bytes / latency_bytes).clamp(4, 32)
    };
    let most = (MOST_MESSAGES / outline.messages.max(1)).min(bytes / LEAST_PIECE_BYTES);
    whole.div_ceil(pieces.min(most).clamp(1, MOST_PIECES))
}

/// The checks that all of these do first (COL-4).
#[track_caller]
fn has_ports(queues: &Queues, needed: u32, elements: usize) -> Result<()> {
    if queues.ports() < needed {
        return Err(Error::failed(format!(
            "this algorithm needs {needed} ports on {} ranks and there are {}; declare that many",
            queues.ranks(),
            queues.ports()
        )));
    }
    if elements > 0 && queues.slot_len() == 0 {
        return Err(Error::failed(
            "a slot holds 0 elements and at least 1 is needed; declare larger slots",
        ));
    }
    Ok(())
}

/// Partial results are combined two at a time, so they cannot be averaged.
#[track_caller]
fn refuse_average(op: ReduceOp) -> Result<()> {
    if op == ReduceOp::Avg {
        return Err(Error::failed(
            "partial results are combined two at a time, which cannot average; use a direct algorithm",
        ));
    }
    Ok(())
}

async fn combine<C: Core>(core: &C, a: &AnyTile, b: &AnyTile, op: ReduceOp) -> Result<AnyTile> {
    fold(core, &[a, b], op).await
}

/// Combines tiles element by element in the given order, in the time that the vector engine takes for it.
async fn fold<C: Core>(core: &C, tiles: &[&AnyTile], op: ReduceOp) -> Result<AnyTile> {
    let folded = AnyTile::fold(tiles, op)?;
    let elements = tiles.iter().skip(1).map(|tile| tile.len() as u64).sum();
    let dtype = folded.dtype();
    core.spend(Work::Vector { elements, dtype }).await?;
    Ok(folded)
}
