//! A lane: one direction around the ring, and the steps that data takes in it.
//!
//! Ranks have places 0..n along a lane, each pulling from the place before it (its upstream), around the ring. The
//! data in a slot is cut into n parts. In step `s` of the first n-1 steps, place `q` pulls its upstream's partial
//! result of part `q - 2 - s` and adds its own data; so part `p` starts at place `p + 1` and is complete at place
//! `p`. In the next n-1 steps it pulls the finished part `q - 1 - s`.
//!
//! One counter per lane and rank holds the number of steps that the rank has finished; staging is step 0. The rule
//! for every step is the same: wait until my upstream has finished as many steps as I have.
//!
//! # Invariants
//! - **LANE-1 (in step).** Every operation adds `2n - 1` to the counter of each lane it uses (TEAM-2).
//! - **LANE-2 (all have begun).** When I may take step `k`, my upstream has finished `k` steps, and the place `j`
//!   before me at least `k - j + 1`. In the last step, `2n - 2`, that is `n` steps for the furthest place: every rank
//!   has staged, which is TEAM-4 without waiting at the barrier.
//! - **LANE-3 (no overwriting).** I overwrite my partial value of part `q - 1 - s` with the finished one in step `n +
//!   s`. Its only reader is place `q + 1`, in its step `1 + s`. That place is `n - 1` before me, so by LANE-2 it has
//!   finished `s + 2` steps, including the read.

use crate::Team;
use crate::arguments::same_length;
use ringwork_isa::{Compare, Core, Error, In, Notify, Out, Rank, ReduceOp, Result, Shared, Signal};

/// The direction in which data moves. The number is the step cell of the lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// To the right neighbour, `me + 1`.
    Forward = 0,
    /// To the left neighbour, `me - 1`.
    Backward = 1,
}

/// All-reduces over `L` lanes at the same time, each with an equal part of the data.
pub(crate) async fn around<C: Core, const L: usize>(
    core: &C,
    team: Team,
    x: In,
    y: Out,
    op: ReduceOp,
    directions: [Direction; L],
) -> Result<()> {
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
        // Advances the barrier's epoch, as every operation must; no rank waits for it here (LANE-2).
        turn.arrive(core).await?;

        let mut lanes = Vec::with_capacity(L);
        for (index, direction) in directions.into_iter().enumerate() {
            lanes.push(Lane::open(core, &team, slot.part(L, index)?, direction).await?);
        }
        for step in 0..ranks - 1 {
            for lane in &mut lanes {
                lane.reduce(core, step, op).await?;
            }
        }
        for step in 0..ranks - 1 {
            for lane in &mut lanes {
                lane.take(core, step).await?;
            }
        }
        core.copy(y.slice(chunk)?, slot).await?;
    }
    Ok(())
}

/// One rank's place on a lane, during one operation.
#[derive(Debug)]
struct Lane {
    /// My memory for this lane, staged.
    slot: Shared,
    /// The rank that I pull from.
    upstream: Rank,
    /// My place along the lane: the rank, or its mirror image on the way back.
    place: usize,
    /// Places on the lane.
    ranks: usize,
    /// My counter.
    steps: Signal,
    /// The value of my counter: the steps of this operation that I have finished, after those of earlier operations.
    finished: i32,
}

impl Lane {
    /// Enters the lane with `slot` staged: the first step.
    async fn open<C: Core>(core: &C, team: &Team, slot: Shared, direction: Direction) -> Result<Lane> {
        let (me, ranks) = (team.rank().0, team.ranks());
        let (place, upstream) = match direction {
            Direction::Forward => (me, (me + ranks - 1) % ranks),
            Direction::Backward => (ranks - 1 - me, (me + 1) % ranks),
        };
        let own = team.steps().own(direction as u32)?;
        let mut lane = Lane {
            slot,
            upstream: Rank(upstream),
            place: place as usize,
            ranks: ranks as usize,
            steps: own.signal(),
            finished: core.own_value(own).await?,
        };
        lane.finish(core).await?;
        Ok(lane)
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
            .part(self.ranks, (self.place + 2 * self.ranks - back) % self.ranks)?;
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
