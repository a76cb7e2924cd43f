//! All-reduce: every rank gets the reduction of the data of all ranks.
//!
//! Four algorithms, one file each; [`all_reduce()`] takes the choice as a value. Bytes moved per rank for `S` bytes
//! on `n` ranks:
//!
//! | | staged | read from slots | steps | exact |
//! |---|---|---|---|---|
//! | [`packet()`] | `S` | `(n-1) S` | 1 | yes |
//! | [`one_phase()`] | `S` | `n S` | 1 | yes |
//! | [`two_phase()`] | `S` | `2 S` | 2 | yes |
//! | [`ring()`] | `S` | `2 S (n-1)/n` from one neighbour | `2 (n-1)` | no |

mod one_phase;
mod packet;
mod ring;
mod two_phase;

pub use one_phase::one_phase;
pub use packet::packet;
pub use packet::packet_chunk;
pub use ring::ring;
pub use two_phase::two_phase;

use crate::Team;
use ringwork_isa::{Algorithm, Core, Error, In, Out, ReduceOp, Result};

/// The algorithms that [`all_reduce()`] takes: those that need a [`Team`] only.
pub const BY_TEAM: [Algorithm; 4] = [
    Algorithm::Packet,
    Algorithm::OnePhase,
    Algorithm::TwoPhase,
    Algorithm::StagedRing,
];

/// `y[i]` becomes `x[i]` reduced over all ranks, on every rank, by the given algorithm. In place if `y` is `x`. The
/// same bits on every rank; the same bits for every exact algorithm (COL-1).
///
/// # Errors
/// If it is not one of the four above, `x` and `y` are not equally long, the scratch cannot hold one element per half, or as
/// [`Core::wait`].
pub async fn all_reduce<C: Core>(
    core: &C,
    team: Team,
    x: In,
    y: Out,
    op: ReduceOp,
    algorithm: Algorithm,
) -> Result<()> {
    match algorithm {
        Algorithm::Packet => packet(core, team, x, y, op).await,
        Algorithm::OnePhase => one_phase(core, team, x, y, op).await,
        Algorithm::TwoPhase => two_phase(core, team, x, y, op).await,
        Algorithm::StagedRing => ring(core, team, x, y, op).await,
        other => Err(Error::failed(format!(
            "`{other}` is not an all-reduce through a team; use packet, onephase, twophase or staged-ring"
        ))),
    }
}
