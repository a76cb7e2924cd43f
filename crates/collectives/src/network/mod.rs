//! All-reduce for networks: tiles pushed through queues between neighbours.
//!
//! Inside a box a direct algorithm over shared memory is always the best. Between chips what counts is how many
//! messages follow each other, how far they go, and how much each link carries; so there are several, and a machine
//! decides. None needs a scratch buffer or a barrier: [`Queues`] hold what is under way, and
//! their credits keep members in step. With latency `a`, time per byte `b`, `g` to add one, `n` members, `S` bytes:
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
//! What does not fit the slots goes in pieces. Whichever it is, all members get the same bits; the exact one gives
//! those of every other exact algorithm (COL-1).

mod algorithm;
mod centre;
mod dimensions;
mod direct;
mod double_tree;
mod halving_doubling;

pub use algorithm::{NetworkAlgorithm, all_reduce};
pub use centre::centre;
pub use dimensions::{Lanes, by_dimensions};
pub use direct::direct;
pub use double_tree::double_tree;
pub use halving_doubling::halving_doubling;

use crate::arguments::same_length;
use ringwork_isa::{AnyTile, Core, Error, In, Out, Queues, ReduceOp, Result, Work};

/// What every one of these checks first (COL-4).
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

/// Partial results are combined two at a time: that cannot average.
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

/// Combines tiles element by element in the order given, for what that costs the vector engine.
async fn fold<C: Core>(core: &C, tiles: &[&AnyTile], op: ReduceOp) -> Result<AnyTile> {
    let folded = AnyTile::fold(tiles, op)?;
    let elements = tiles.iter().skip(1).map(|tile| tile.len() as u64).sum();
    let dtype = folded.dtype();
    core.spend(Work::Vector { elements, dtype }).await?;
    Ok(folded)
}
