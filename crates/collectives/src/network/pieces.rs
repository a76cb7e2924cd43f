//! The data of a call, cut into pieces that follow each other, and each piece into blocks.
//!
//! A piece is what a member works on at a time: it is loaded into a tile, exchanged block by block, and stored. Where
//! every rank has the same data (all-reduce, broadcast, reduce), a piece is a range of it, cut into blocks as the
//! algorithm needs. Where every rank has a part of its own, a piece has one block for each rank: the same range of every
//! part.

use super::moves::Group;
use super::plan::Plan;
use ringwork_isa::{AnyTile, Core, In, Out, ReduceOp, Result, part_range};
use std::ops::Range;

/// How much of the data a member has in its input, or gets into its output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Held {
    /// All of it.
    Everything,
    /// Its own part.
    Own,
    /// Nothing.
    Nothing,
}

/// The data of a call, as one member sees it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Data {
    pub(super) x: In,
    pub(super) y: Out,
    pub(super) op: ReduceOp,
    pub(super) input: Held,
    pub(super) output: Held,
    /// Whether every rank has a part of its own.
    pub(super) is_dealt: bool,
    /// Elements of all parts together.
    pub(super) total: usize,
    pub(super) me: usize,
    pub(super) ranks: usize,
}

/// How often the data is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cuts {
    /// Ranges of the data, or of every part.
    pub(super) ranges: usize,
    /// Whether each piece has the block of one rank alone, because a slot is too small for several.
    pub(super) single: bool,
}

impl Cuts {
    /// As few as let `largest` of `blocks` blocks fit into a slot; the pieces of `lanes` lanes are equally many.
    pub(super) fn new(data: &Data, lanes: usize, (largest, blocks): (usize, usize), slot_len: usize) -> Cuts {
        let slot_len = slot_len.max(1);
        let longest = |ranges: usize| {
            if data.is_dealt {
                let part = data.total.div_ceil(data.ranks);
                part.div_ceil(ranges).saturating_mul(largest)
            } else {
                let piece = data.total.div_ceil(ranges);
                part_range(piece, blocks, largest - 1).end
            }
        };
        let all = if data.is_dealt {
            data.total.div_ceil(data.ranks)
        } else {
            data.total
        };
        let mut each = (longest(lanes) / slot_len).max(1);
        while longest(each * lanes) > slot_len && each * lanes < all {
            each += (each / 8).max(1);
        }
        Cuts {
            ranges: each * lanes,
            single: longest(each * lanes) > slot_len,
        }
    }

    /// Pieces of all lanes together.
    pub(super) fn pieces(&self, blocks: usize) -> usize {
        self.ranges * if self.single { blocks } else { 1 }
    }
}

/// Where the blocks of a piece lie in its tile.
#[derive(Clone, Debug)]
enum Starts {
    /// An even cut of so many elements into so many blocks.
    Even(usize, usize),
    /// The start of each, and the end of the last.
    Listed(Vec<usize>),
}

/// A piece: its blocks, and where they are in the memory of the call.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    starts: Starts,
    range: usize,
    ranges: usize,
    /// Which block is there, if only one is.
    only: Option<usize>,
}

impl Piece {
    /// Piece `index` of a lane.
    pub(super) fn new(
        data: &Data,
        cuts: Cuts,
        (lane, lanes): (usize, usize),
        index: usize,
        plan: &Plan,
    ) -> Piece {
        let blocks = plan.blocks();
        let (index, only) = if cuts.single {
            (index / blocks, Some(plan.only(index % blocks)))
        } else {
            (index, None)
        };
        let (range, ranges) = (index * lanes + lane, cuts.ranges);
        let starts = if !data.is_dealt {
            Starts::Even(part_range(data.total, ranges, range).len(), blocks)
        } else if only.is_none() && data.total.is_multiple_of(data.ranks) {
            let each = part_range(data.total / data.ranks, ranges, range).len();
            Starts::Even(each * blocks, blocks)
        } else {
            let mut starts = vec![0];
            for block in 0..blocks {
                let part = part_range(data.total, data.ranks, plan.rank(block)).len();
                let is_in = only.is_none_or(|only| only == block);
                let len = if is_in {
                    part_range(part, ranges, range).len()
                } else {
                    0
                };
                starts.push(starts[block] + len);
            }
            Starts::Listed(starts)
        };
        Piece {
            starts,
            range,
            ranges,
            only,
        }
    }

    /// Where neighbouring blocks lie in the tile.
    pub(super) fn blocks(&self, blocks: &Range<usize>) -> Range<usize> {
        let start = |block: usize| match &self.starts {
            Starts::Even(len, count) if block == *count => *len,
            Starts::Even(len, count) => part_range(*len, *count, block).start,
            Starts::Listed(starts) => starts[block],
        };
        start(blocks.start)..start(blocks.end)
    }

    /// Elements of a group of blocks.
    pub(super) fn len_of(&self, group: Group) -> usize {
        group.runs().map(|run| self.blocks(&run).len()).sum()
    }

    /// Elements of the tile.
    pub(super) fn len(&self) -> usize {
        match &self.starts {
            Starts::Even(len, _) => *len,
            Starts::Listed(starts) => starts.last().copied().unwrap_or(0),
        }
    }

    /// The runs of memory that hold what a member has of this piece: where each begins in the tile, and where it lies.
    fn runs(&self, data: &Data, held: Held, plan: &Plan) -> Vec<(usize, Range<usize>)> {
        if held == Held::Nothing {
            return Vec::new();
        }
        if !data.is_dealt {
            return vec![(0, part_range(data.total, self.ranges, self.range))];
        }
        let mut runs: Vec<(usize, Range<usize>)> = Vec::new();
        for block in 0..plan.blocks() {
            let owner = plan.rank(block);
            let is_in = self.only.is_none_or(|only| only == block);
            if !is_in || (held == Held::Own && owner != data.me) {
                continue;
            }
            let part = part_range(data.total, data.ranks, owner);
            let inside = part_range(part.len(), self.ranges, self.range);
            let first = if held == Held::Own { 0 } else { part.start };
            let place = first + inside.start..first + inside.end;
            match runs.last_mut() {
                Some((_, last)) if last.end == place.start => last.end = place.end,
                _ => runs.push((self.blocks(&(block..block)).start, place)),
            }
        }
        runs
    }

    /// Reads what this member has of the piece; `None` if it has nothing.
    pub(super) async fn load<C: Core>(&self, core: &C, data: &Data, plan: &Plan) -> Result<Option<AnyTile>> {
        let mut tile = None;
        for (start, place) in self.runs(data, data.input, plan) {
            let loaded = core.load(data.x.slice(place)?).await?;
            self.put(&mut tile, start, loaded)?;
        }
        if tile.is_none() && data.input != Held::Nothing {
            // Not its block's turn: it sends messages without elements.
            tile = Some(core.load(data.x.slice(0..0)?).await?.blank(self.len()));
        }
        Ok(tile)
    }

    /// Writes what this member gets of the piece.
    pub(super) async fn store<C: Core>(
        &self,
        core: &C,
        data: &Data,
        tile: &AnyTile,
        plan: &Plan,
    ) -> Result<()> {
        for (start, place) in self.runs(data, data.output, plan) {
            let target = data.y.slice(place.clone())?;
            if place.len() == tile.len() {
                core.store(target, tile).await?;
            } else {
                core.store(target, &tile.slice(start..start + place.len())?)
                    .await?;
            }
        }
        Ok(())
    }

    /// Puts elements into the tile, which there is none of before the first.
    pub(super) fn put(&self, tile: &mut Option<AnyTile>, start: usize, part: AnyTile) -> Result<()> {
        if part.len() == self.len() {
            *tile = Some(part);
            return Ok(());
        }
        let len = self.len();
        tile.get_or_insert_with(|| part.blank(len)).replace(start, &part)
    }
}
