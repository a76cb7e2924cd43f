//! Barrier: every rank waits until all ranks have called it.
//!
//! Model: one arrival, one wait per peer. Traffic per rank: one signal word written, `n - 1` read; one step.

use crate::Team;
use ringwork_isa::{Core, Result};

/// Returns when every member has called it, and then sees all their earlier writes. Takes an epoch of the team's
/// barrier like any other operation, so it may be mixed with all of them (TEAM-2).
///
/// # Errors
/// As [`Core::wait`].
pub async fn barrier<C: Core>(core: &C, team: Team) -> Result<()> {
    team.meet().arrive_and_wait(core).await
}
