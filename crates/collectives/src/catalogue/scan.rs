//! Scan: every rank gets the reduction of the data of the ranks before it, with its own or without.
//!
//! Model: all stage but the last, all meet, each rank reduces the slots before it, and its own data, in rank order.
//!
//! Traffic, for `S` bytes on each of `n` ranks: every rank but the last stages `S`, rank `r` reads `S r`; 1 step. Exact
//! (COL-1).

use crate::Team;
use crate::arguments::same_length;
use ringwork_isa::{Core, Erased, In, Out, Rank, ReduceOp, Result, Shared, Sources, Span};

/// `y[i]` becomes `x[i]` reduced over ranks `0..=me`.
///
/// In place if `y` is `x`.
///
/// # Errors
/// If `x` and `y` are not equally long, the scratch cannot hold one element per half, or as [`Core::wait`].
pub async fn scan<C: Core>(core: &C, team: Team, x: In, y: Out, op: ReduceOp) -> Result<()> {
    same_length("`y`", y.len(), x.len())?;
    prefixes(core, team, x, y, op, true).await
}

/// `y[i]` becomes `x[i]` reduced over ranks `0..me`; `y` of rank 0 is not touched.
///
/// In place if `y` is `x`.
///
/// # Errors
/// As [`scan`].
pub async fn exclusive_scan<C: Core>(core: &C, team: Team, x: In, y: Out, op: ReduceOp) -> Result<()> {
    same_length("`y`", y.len(), x.len())?;
    prefixes(core, team, x, y, op, false).await
}

/// Both scans: over the ranks before me, and over mine as well if `with_mine`.
async fn prefixes<C: Core>(core: &C, team: Team, x: In, y: Out, op: ReduceOp, with_mine: bool) -> Result<()> {
    let (me, ranks) = team.place();
    if ranks == 1 {
        return if with_mine { core.copy(y, x).await } else { Ok(()) };
    }
    for chunk in team.chunks(x.len(), 1)? {
        let turn = team.turn(core, chunk.len()).await?;
        let (slot, mine) = (turn.slot.slice(0..chunk.len())?, x.slice(chunk.clone())?);
        if me + 1 < ranks {
            core.copy(slot, mine).await?;
        }
        turn.meet(core).await?;
        let before = Before {
            slot,
            me,
            mine,
            with_mine,
        };
        if Sources::count(&before) > 0 {
            core.reduce(y.slice(chunk)?, before, op).await?;
        }
    }
    Ok(())
}

/// The slots of the ranks before me, and then my own data if it is included.
#[derive(Debug)]
struct Before {
    slot: Shared,
    me: usize,
    mine: In,
    with_mine: bool,
}

impl Sources<Erased> for Before {
    fn count(&self) -> usize {
        self.me + usize::from(self.with_mine)
    }

    fn source(&self, index: usize) -> Span {
        if index == self.me {
            return self.mine.span();
        }
        let rank = Rank(u32::try_from(index).unwrap_or(u32::MAX));
        Span {
            rank,
            ..self.slot.span()
        }
    }
}
