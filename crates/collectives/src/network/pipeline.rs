//! Runs a member's plan: pieces of the data go through its exchanges, several at a time.
//!
//! A *plan* is the list of exchanges that one piece takes. Time is cut into turns. Piece `c` begins in turn `start(c)` and
//! takes one exchange a turn: it sends in one turn and receives in the next, just before it sends again. So while one piece
//! is on its way, others are loaded, added and sent, and no link waits for a round trip.
//!
//! # Invariants
//! - **NET-1 (alike).** All members have the same turns, and a message that is sent in turn `t` is received in turn `t + 1`,
//!   at the same place among the pieces. So each queue is read in the order in which it is written.
//! - **NET-2 (no deadlock).** Between the sending and the receiving of a message lies one turn, and in one turn a queue
//!   carries at most as many messages as it has slots. So a send waits only for receives at an earlier place, and a receive
//!   only for sends at an earlier place.

use super::fold;
use super::moves::{Group, Moves};
use super::pieces::{Cuts, Data, Piece};
use super::plan::{Outline, Plan};
use ringwork_isa::{AnyTile, Core, Queues, Result};

/// A piece under way.
struct Underway {
    piece: Piece,
    tile: Option<AnyTile>,
}

/// When pieces begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pace {
    /// Pieces of a lane.
    pieces: usize,
    /// Pieces of a lane under way at the same time.
    together: usize,
    /// Turns from the beginning of one piece to that of the next.
    apart: usize,
    /// Exchanges of a piece.
    exchanges: usize,
}

impl Pace {
    fn new(outline: &Outline, pieces: usize, depth: usize) -> Pace {
        let exchanges = outline.exchanges;
        if outline.is_pipelined {
            // Each queue is used in one exchange alone.
            return Pace {
                pieces,
                together: pieces,
                apart: 1,
                exchanges,
            };
        }
        // Half of the slots are for messages, the other half for credits on their way back.
        let together = (depth / outline.sharing / 2).clamp(1, pieces.max(1));
        let apart = if outline.is_staggered {
            exchanges.div_ceil(together)
        } else {
            0
        };
        Pace {
            pieces,
            together,
            apart,
            exchanges,
        }
    }

    /// The piece and the exchange of place `place` in a turn, if it has begun; there may be no such piece.
    fn at(&self, turn: usize, place: usize) -> Option<(usize, usize)> {
        let since = turn.checked_sub(place * self.apart)?;
        Some((
            since / self.exchanges * self.together + place,
            since % self.exchanges,
        ))
    }

    /// Turns until the last piece has been received.
    fn turns(&self) -> usize {
        let last = self.pieces - 1;
        let rounds = self.pieces.div_ceil(self.together);
        rounds * self.exchanges + last.min(self.together - 1) * self.apart + 1
    }

    /// The places at which there may be something to do in a turn.
    fn places(&self, turn: usize) -> std::ops::Range<usize> {
        if self.apart == 0 {
            return 0..self.together;
        }
        let begun = turn / self.apart + 1;
        let ended = if self.together == self.pieces {
            turn.saturating_sub(self.exchanges).div_ceil(self.apart)
        } else {
            0
        };
        ended.min(self.together)..begun.min(self.together)
    }
}

/// Runs the plans of all lanes, side by side if the queues are deep enough.
pub(super) async fn run<C: Core>(
    core: &C,
    queues: Queues,
    outline: &Outline,
    plans: &[Plan],
    data: &Data,
) -> Result<()> {
    let lanes = plans.len();
    let cuts = Cuts::new(data, lanes, (outline.largest, outline.blocks), queues.slot_len());
    let depth = queues.depth() as usize;
    let each = cuts.pieces(outline.blocks) / lanes;
    let pace = Pace::new(outline, each, depth);
    let all: Vec<usize> = (0..lanes).collect();
    // If several lanes share a queue and it has fewer slots, they follow each other.
    let together = if outline.sharing > depth { 1 } else { lanes };
    for some in all.chunks(together) {
        side_by_side(core, plans, some, data, cuts, pace).await?;
    }
    Ok(())
}

async fn side_by_side<C: Core>(
    core: &C,
    plans: &[Plan],
    lanes: &[usize],
    data: &Data,
    cuts: Cuts,
    pace: Pace,
) -> Result<()> {
    let mut underway: Vec<Option<Underway>> = Vec::new();
    underway.resize_with(pace.together.min(pace.pieces) * lanes.len(), || None);
    let mut moves = Moves::default();
    for turn in 0..pace.turns() {
        for place in pace.places(turn) {
            for (index, &lane) in lanes.iter().enumerate() {
                let plan = &plans[lane];
                let now = &mut underway[place * lanes.len() + index];
                let Some((piece, exchange)) = pace.at(turn, place) else {
                    continue;
                };
                if let Some(mut before) = now.take() {
                    let last = if exchange == 0 { pace.exchanges } else { exchange } - 1;
                    plan.moves(last, &mut moves)?;
                    receive(core, &moves, &mut before, data).await?;
                    if exchange > 0 {
                        *now = Some(before);
                    } else if let Some(tile) = &before.tile {
                        before.piece.store(core, data, tile, plan).await?;
                    }
                }
                if exchange == 0 && piece < pace.pieces {
                    let piece = Piece::new(data, cuts, (lane, plans.len()), piece, plan);
                    let tile = piece.load(core, data, plan).await?;
                    *now = Some(Underway { piece, tile });
                }
                if let Some(now) = now {
                    plan.moves(exchange, &mut moves)?;
                    send(core, &moves, now).await?;
                }
            }
        }
    }
    Ok(())
}

async fn send<C: Core>(core: &C, moves: &Moves, now: &Underway) -> Result<()> {
    let Some(tile) = &now.tile else {
        return Ok(());
    };
    for (port, group) in &moves.sends {
        if now.piece.len_of(*group) == tile.len() {
            core.send(*port, tile).await?;
        } else {
            core.send(*port, &taken(tile, &now.piece, *group)?).await?;
        }
    }
    Ok(())
}

/// The elements of a group of blocks, one after the other.
fn taken(tile: &AnyTile, piece: &Piece, group: Group) -> Result<AnyTile> {
    if group.count == 1 {
        return tile.slice(piece.blocks(&(group.first..group.first + group.len)));
    }
    let mut all = tile.blank(piece.len_of(group));
    let mut start = 0;
    for run in group.runs() {
        let part = tile.slice(piece.blocks(&run))?;
        all.replace(start, &part)?;
        start += part.len();
    }
    Ok(all)
}

async fn receive<C: Core>(core: &C, moves: &Moves, now: &mut Underway, data: &Data) -> Result<()> {
    let Underway { piece, tile } = now;
    let Some(mine) = moves.adds else {
        for (port, group) in &moves.receives {
            let theirs = core.recv(*port, piece.len_of(*group)).await?;
            if group.count == 1 {
                let start = piece.blocks(&(group.first..group.first)).start;
                piece.put(tile, start, theirs)?;
                continue;
            }
            let mut from = 0;
            for run in group.runs() {
                let place = piece.blocks(&run);
                let part = theirs.slice(from..from + place.len())?;
                from += place.len();
                piece.put(tile, place.start, part)?;
            }
        }
        return Ok(());
    };
    let (Some((_, group)), Some(tile)) = (moves.receives.first(), tile) else {
        return Ok(());
    };
    let place = piece.blocks(&(group.first..group.first + group.len));
    let mut terms = Vec::with_capacity(moves.receives.len() + 1);
    for (port, _) in &moves.receives {
        if terms.len() == mine {
            terms.push(tile.slice(place.clone())?);
        }
        terms.push(core.recv(*port, place.len()).await?);
    }
    if terms.len() == mine {
        terms.push(tile.slice(place.clone())?);
    }
    let sum = fold(core, &terms.iter().collect::<Vec<_>>(), data.op).await?;
    if sum.len() == tile.len() {
        *tile = sum;
        return Ok(());
    }
    tile.replace(place.start, &sum)
}
