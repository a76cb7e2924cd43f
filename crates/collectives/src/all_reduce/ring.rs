//! Ring all-reduce through the scratch: partial sums travel once around, then the results do.
//!
//! Every rank reads from its left neighbour only. In shared memory a direct algorithm is always faster; over a network,
//! the ring of messages is ([`network`](crate::network)).
//!
//! Traffic per rank, for `S` bytes on `n` ranks: `S` staged, `2 S (n-1)/n` read from the left neighbour,
//! `S` copied out; `2 (n-1)` steps. Not exact: part `p` is summed starting at rank `p + 1`, and rounded at
//! every step.
//!
//! Each rank pulls from the one before it (its upstream). The
//! data in a slot is cut into n parts. In step `s` of the first n-1 steps, place `q` pulls its upstream's partial
//! result of part `q - 2 - s` and adds its own data; so part `p` starts at place `p + 1` and is complete at place
//! `p`. In the next n-1 steps it pulls the finished part `q - 1 - s`.
//!
//! One counter per rank holds the number of steps that the rank has finished; staging is step 0. The rule
//! for every step is the same: wait until my upstream has finished as many steps as I have.
//!
//! # Invariants
//! - **RING-1 (in step).** Every operation adds `2n - 1` to the counter (TEAM-2).
//! - **RING-2 (all have begun).** When I may take step `k`, my upstream has finished `k` steps, and the place `j`
//!   before me at least `k - j + 1`. In the last step, `2n - 2`, that is `n` steps for the furthest place: every rank
//!   has staged, which is TEAM-4 without waiting at the barrier.
//! - **RING-3 (no overwriting).** I overwrite my partial value of part `q - 1 - s` with the finished one in step `n +
//!   s`. Its only reader is place `q + 1`, in its step `1 + s`. That place is `n - 1` before me, so by RING-2 it has
//!   finished `s + 2` steps, including the read.

use crate::Team;
use crate::arguments::same_length;
use ringwork_isa::{Compare, Core, Error, In, Notify, Out, Rank, ReduceOp, Result, Shared, Signal};

/// `y[i]` becomes `x[i]` reduced over all ranks, on every rank, passing parts from neighbour to neighbour.
///
/// In place if `y` is `x`. All ranks get the same bits, but not those of the exact algorithms.
///
/// # Errors
/// If `x` and `y` are not equally long, the scratch cannot hold one element per half, or as
/// [`Core::wait`].
pub async fn ring<C: Core>(core: &C, team: Team, x: In, y: Out, op: ReduceOp) -> Result<()> {
    same_length("`y`", y.len(), x.len())?;
    if op == ReduceOp::Avg {
        return Err(Error::failed(
            "a ring adds two at a time and cannot average; use a direct algorithm",
        ));
    }
    let (_, ranks) = team.place();
    if ranks == 1 {
        return core.copy(y, x).await;
    }
    for chunk in team.chunks(x.len(), 1)? {
        let turn = team.turn(core, chunk.len()).await?;
        let slot = turn.slot.slice(0..chunk.len())?;
        core.copy(slot, x.slice(chunk.clone())?).await?;
        // Keeps the epoch of the next operation in step on all ranks; no rank waits for it here (RING-2).
        turn.arrive(core).await?;

        let mut place = Place::enter(core, &team, slot).await?;
        for step in 0..ranks - 1 {
            place.reduce(core, step, op).await?;
        }
        for step in 0..ranks - 1 {
            place.take(core, step).await?;
        }
        core.copy(y.slice(chunk)?, slot).await?;
    }
    Ok(())
}

/// One rank's place in the ring, during one operation.
#[derive(Debug)]
struct Place {
    /// My data, staged.
    slot: Shared,
    /// The rank that I pull from.
    upstream: Rank,
    me: usize,
    ranks: usize,
    /// My counter.
    steps: Signal,
    /// The value of my counter: the steps of this operation that I have finished, after those of earlier operations.
    finished: i32,
}

impl Place {
    /// Joins the ring with `slot` staged: the first step.
    async fn enter<C: Core>(core: &C, team: &Team, slot: Shared) -> Result<Place> {
        let (me, ranks) = (team.rank().0, team.ranks());
        let own = team.steps().own(0)?;
        let mut place = Place {
            slot,
            upstream: Rank((me + ranks - 1) % ranks),
            me: me as usize,
            ranks: ranks as usize,
            steps: own.signal(),
            finished: core.own_value(own).await?,
        };
        place.finish(core).await?;
        Ok(place)
    }

    /// Adds my data to the partial result of a part, at step `step` of the first `ranks - 1`.
    async fn reduce<C: Core>(&mut self, core: &C, step: usize, op: ReduceOp) -> Result<()> {
        self.upstream_is_level(core).await?;
        let (mine, theirs) = self.part(2 + step)?;
        if !mine.is_empty() {
            core.reduce(mine, [theirs, mine], op).await?;
        }
        self.finish(core).await
    }

    /// Takes a finished part, at step `step` of the second `ranks - 1`.
    async fn take<C: Core>(&mut self, core: &C, step: usize) -> Result<()> {
        self.upstream_is_level(core).await?;
        let (mine, theirs) = self.part(1 + step)?;
        if !mine.is_empty() {
            core.copy(mine, theirs).await?;
        }
        self.finish(core).await
    }

    /// The part that is `back` places behind me, in my slot and in my upstream's.
    fn part(&self, back: usize) -> Result<(Shared, Shared)> {
        let mine = self
            .slot
            .part(self.ranks, (self.me + 2 * self.ranks - back) % self.ranks)?;
        Ok((mine, mine.on(self.upstream)?))
    }

    async fn upstream_is_level<C: Core>(&self, core: &C) -> Result<()> {
        core.wait(self.steps.on(self.upstream)?, Compare::Ge, self.finished)
            .await
    }

    async fn finish<C: Core>(&mut self, core: &C) -> Result<()> {
        self.finished = self.finished.wrapping_add(1);
        core.notify(self.steps, Notify::Set(self.finished)).await
    }
}
