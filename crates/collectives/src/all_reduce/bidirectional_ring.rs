//! Bidirectional-ring all-reduce: half the data goes around each way.
//!
//! Two [lanes](crate::lane), step by step in turn: the first half of the data moves to the right, the
//! second to the left, so that both directions of every link carry half as much. With two ranks both
//! neighbours are the same peer; the lanes keep apart because each has its own half of the slot and its
//! own step counter.
//!
//! Traffic per rank, for `S` bytes on `n` ranks: `S` staged, `S (n-1)/n` read from each neighbour, `S`
//! copied out; `2 (n-1)` steps of two moves. Not exact.

use crate::Team;
use crate::lane::{Direction, around};
use ringwork_isa::{Core, In, Out, ReduceOp, Result};

/// `y[i]` becomes `x[i]` reduced over all ranks, on every rank, passing parts to both neighbours.
///
/// In place if `y` is `x`. All ranks get the same bits, but not those of the exact algorithms.
///
/// # Errors
/// If `x` and `y` are not equally long, the scratch cannot hold one element per half, or as
/// [`Core::wait`].
pub async fn bidirectional_ring<C: Core>(core: &C, team: Team, x: In, y: Out, op: ReduceOp) -> Result<()> {
    around(core, team, x, y, op, [Direction::Forward, Direction::Backward]).await
}
