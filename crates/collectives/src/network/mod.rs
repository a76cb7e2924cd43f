//! All-reduce for networks: tiles pushed through queues between neighbours.
//!
//! In shared memory a direct algorithm is always the best. Between chips the cost is how many messages follow each
//! other, how far they go, and how much each link carries; so there are several algorithms, and the machine decides.
//! None needs a scratch buffer or a barrier: [`Queues`] hold the messages in flight, and their credits keep members
//! in step. With latency `a`, time per byte `b`, `g` to add one byte, `n` members, `S` bytes:
//!
//! | | time | links | exact |
//! |---|---|---|---|
//! | [`direct()`] | `2 (a + S/n b) + (n-1)/n S g` | every pair | yes |
//! | [`halving_doubling()`] | `2 log2 n a + 2 (n-1)/n S b + (n-1)/n S g` | distances 1, 2, 4 ... | no |
//! | [`by_dimensions()`], one lane | `2 sum(d-1) a + 2 (n-1)/n S b + (n-1)/n S g` | rings | no |
//! | the same, all ports | bandwidth divided by the ports | rings both ways | no |
//! | [`double_tree()`] | about `4 log2 n a + 2 S b`, in pieces | two trees | no |
//! | [`centre()`] | `2 sum(d/2) (a + S b)` | lines | no |
//!
//! Data that does not fit the slots is split. With each algorithm, all members get the same bits; the exact one gives
//! those of every other exact algorithm (COL-1).

mod centre;
mod dimensions;
mod direct;
mod double_tree;
mod halving_doubling;

pub use centre::centre;
pub use dimensions::{Lanes, by_dimensions};
pub use direct::direct;
pub use double_tree::double_tree;
pub use halving_doubling::halving_doubling;

use crate::arguments::same_length;
use ringwork_isa::{Algorithm, AnyTile, Core, Error, In, Out, Queues, ReduceOp, Result, Work};

/// Ports that each member of a grid of these sides needs.
#[must_use]
pub fn ports(algorithm: Algorithm, grid: &[u32]) -> u32 {
    let ranks = grid.iter().product::<u32>().max(1);
    match algorithm {
        Algorithm::Direct => ranks,
        Algorithm::HalvingDoubling => ranks.ilog2() + 1,
        Algorithm::DoubleTree => 6,
        _ => u32::try_from(2 * grid.len().max(1)).unwrap_or(u32::MAX),
    }
}

/// The default number of slots of a queue: as many as let an algorithm run without waiting for credits.
pub(crate) fn usual_slots(algorithm: Algorithm) -> u32 {
    match algorithm {
        Algorithm::Centre => 1,
        Algorithm::DoubleTree => 8,
        _ => 2,
    }
}

/// A tree cuts its half of the data into this many pieces, enough for its levels to overlap, if each piece has at
/// least this many bytes.
const TREE_PIECES: usize = 32;
const TREE_PIECE_BYTES: usize = 16 << 10;

/// Elements of the longest message of `count` elements, if all of it is sent at once.
pub(crate) fn longest_message(
    algorithm: Algorithm,
    grid: &[u32],
    count: usize,
    element_bytes: usize,
) -> usize {
    let sides = || grid.iter().map(|size| *size as usize).filter(|size| *size > 1);
    let shortest = sides().min().unwrap_or(1);
    match algorithm {
        Algorithm::Direct => count.div_ceil(sides().product()),
        Algorithm::DoubleTree => {
            let half = count.div_ceil(2);
            half.div_ceil(TREE_PIECES)
                .max(half.min(TREE_PIECE_BYTES / element_bytes))
        }
        Algorithm::Hierarchical => count.div_ceil(shortest),
        Algorithm::Torus => count.div_ceil(2 * sides().count().max(1)).div_ceil(shortest),
        _ => count,
    }
}

/// The checks that all of these do first (COL-4).
#[track_caller]
fn check(queues: &Queues, x: In, y: Out, needed: u32, slot: usize) -> Result<()> {
    same_length("`y`", y.len(), x.len())?;
    if queues.ports() < needed {
        return Err(Error::failed(format!(
            "this algorithm needs {needed} ports on {} ranks and there are {}; declare that many",
            queues.ranks(),
            queues.ports()
        )));
    }
    if !x.is_empty() && queues.slot_len() < slot {
        return Err(Error::failed(format!(
            "a slot holds {} elements and at least {slot} are needed; declare larger slots",
            queues.slot_len()
        )));
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
