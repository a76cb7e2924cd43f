//! Two-phase all-reduce: each rank reduces its part, then every rank pulls the reduced parts from their owners.
//!
//! Phase one is a reduce-scatter through the slots: part `r` of rank `r`'s slot becomes the reduction of part `r` of
//! all inputs. Phase two is an all-gather of these parts.
//!
//! Traffic per rank, for `S` bytes on `n` ranks: `S (n-1)/n` staged; `S` read and `S/n` written twice in phase one;
//! `S (n-1)/n` pulled in phase two; 2 steps. Exact.
//!
//! # Invariants
//! - **TWO-1 (own part).** No other rank reads part `r` of rank `r`'s slot before the second meeting: it is not
//!   staged, and holds only its reduction. The other parts are only read.
//! - **TWO-2 (one epoch).** The first meeting counts in the step cells and only the second takes an epoch
//!   of the team's barrier, as TEAM-3 demands.

use crate::Team;
use crate::arguments::same_length;
use crate::caches::MOST_STAGED_BYTES;
use ringwork_isa::{Barrier, Core, In, Out, ReduceOp, Result, part_range};

/// `y[i]` becomes `x[i]` reduced over all ranks, on every rank; each rank reduces one part.
///
/// In place if `y` is `x`.
///
/// # Errors
/// If `x` and `y` are not equally long, the scratch cannot hold one element per half, or as
/// [`Core::wait`].
pub async fn two_phase<C: Core>(core: &C, team: Team, x: In, y: Out, op: ReduceOp) -> Result<()> {
    same_length("`y`", y.len(), x.len())?;
    if team.ranks() == 1 {
        return core.copy(y, x).await;
    }
    let (me, ranks) = team.place();
    let staged = Barrier::new(team.steps());
    for chunk in team.chunks_within(x.len(), 1, 2 * MOST_STAGED_BYTES)? {
        let turn = team.turn(core, chunk.len()).await?;
        let slot = turn.slot.slice(0..chunk.len())?;
        let (x, y) = (x.slice(chunk.clone())?, y.slice(chunk)?);
        let mine = part_range(slot.len(), ranks, me);
        for others in [0..mine.start, mine.end..slot.len()] {
            if !others.is_empty() {
                core.copy(slot.slice(others.clone())?, x.slice(others)?).await?;
            }
        }
        staged.arrive_and_wait(core).await?;

        if !mine.is_empty() {
            let (part, x) = (slot.slice(mine.clone())?, x.slice(mine.clone())?);
            core.reduce((y.slice(mine)?, part), part.on_others(x), op).await?;
        }
        turn.arrive(core).await?;

        for (peer, index) in team.members().skip(1) {
            turn.wait_for(core, peer).await?;
            let part = part_range(slot.len(), ranks, index);
            if !part.is_empty() {
                core.copy(y.slice(part.clone())?, slot.on(peer)?.slice(part)?)
                    .await?;
            }
        }
    }
    Ok(())
}
