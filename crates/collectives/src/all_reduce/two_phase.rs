//! Two-phase all-reduce: each rank reduces its part, then everybody pulls the parts together.
//!
//! Phase one is a reduce-scatter inside the slots: part `r` of rank `r`'s slot becomes the reduction of
//! part `r` of all slots. Phase two is an all-gather of these parts.
//!
//! Traffic per rank, for `S` bytes on `n` ranks: `S` staged, `S` read and `S/n` written in phase one, `S`
//! pulled in phase two; 2 steps. Exact.
//!
//! # Invariants
//! - **TWO-1 (own part).** Part `r` of rank `r`'s slot is read by nobody else before the second meeting,
//!   so it can be overwritten by its reduction; the other parts are only read.
//! - **TWO-2 (one epoch).** The first meeting counts in the step cells and only the second takes an epoch
//!   of the team's barrier, as TEAM-3 demands.

use crate::Team;
use crate::arguments::same_length;
use ringwork_isa::{Barrier, Core, Element, In, Out, ReduceOp, Result};

/// `y[i]` becomes `x[i]` reduced over all ranks, on every rank; each rank reduces one part.
///
/// In place if `y` is `x`.
///
/// # Errors
/// If `x` and `y` are not equally long, the scratch cannot hold one element per half, or as
/// [`Core::wait`].
pub async fn two_phase<C: Core, T: Element>(
    core: &C,
    team: Team<T>,
    x: In<T>,
    y: Out<T>,
    op: ReduceOp,
) -> Result<()> {
    same_length("`y`", y.len(), x.len())?;
    if team.ranks() == 1 {
        return core.copy(y, x).await;
    }
    let (me, ranks) = team.place();
    let staged = Barrier::new(team.steps());
    for chunk in team.chunks(x.len(), 1)? {
        let turn = team.turn(core, chunk.len()).await?;
        let slot = turn.slot.slice(0..chunk.len())?;
        core.copy(slot, x.slice(chunk.clone())?).await?;
        staged.arrive_and_wait(core).await?;

        let mine = slot.part(ranks, me)?;
        if !mine.is_empty() {
            core.reduce(mine, mine.on_all(), op).await?;
        }
        turn.arrive(core).await?;

        let y = y.slice(chunk)?;
        for (peer, index) in team.members() {
            turn.wait_for(core, peer).await?;
            let part = y.part(ranks, index)?;
            if !part.is_empty() {
                core.copy(part, slot.on(peer)?.part(ranks, index)?).await?;
            }
        }
    }
    Ok(())
}
