//! Ring all-reduce: partial sums travel once around, then the results do.
//!
//! Every rank reads from its left neighbour only, so each link carries the least possible. See [`lane`](crate::lane)
//! for the steps. In shared memory a direct algorithm is always faster; between chips on a ring this one is faster.
//!
//! Traffic per rank, for `S` bytes on `n` ranks: `S` staged, `2 S (n-1)/n` read from the left neighbour,
//! `S` copied out; `2 (n-1)` steps. Not exact: part `p` is summed starting at rank `p + 1`, and rounded at
//! every step.

use crate::Team;
use crate::lane::{Direction, around};
use ringwork_isa::{Core, In, Out, ReduceOp, Result};

/// `y[i]` becomes `x[i]` reduced over all ranks, on every rank, passing parts from neighbour to neighbour.
///
/// In place if `y` is `x`. All ranks get the same bits, but not those of the exact algorithms.
///
/// # Errors
/// If `x` and `y` are not equally long, the scratch cannot hold one element per half, or as
/// [`Core::wait`].
pub async fn ring<C: Core>(core: &C, team: Team, x: In, y: Out, op: ReduceOp) -> Result<()> {
    around(core, team, x, y, op, [Direction::Forward]).await
}
