//! Data on its way: bytes are read when their transfer begins, and written when it arrives.
//!
//! # The model
//! - A transfer takes its bytes from the source at the moment it begins there. If the source is on another chip, that is when
//!   the request has got there.
//! - They are at their destination when the last of them arrives, and not before: whoever looks earlier sees what was there.
//! - The result of a reduction is written when the vector engine is done. Its sources are read when the last request has
//!   got to its chip.
//!
//! Nothing of this is an event: whoever looks at memory first makes up for what was due. So times are the same whether there
//! is data or not.
//!
//! # Invariants
//! - **MOVE-1 (in order).** What is due is done in the order of time; at one moment, in the order in which it was issued.

use super::memory::{Located, Memory};
use crate::time::Ps;
use ringwork_isa::stepped::Payload;
use ringwork_isa::{Dtype, ReduceOp};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Data on its way, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moved(u32);

/// Where data on its way comes from.
#[derive(Debug)]
enum Source {
    /// It was read.
    Known(Payload),
    Memory(Located),
    /// The sum, or another combination, of several places.
    Reduced(Vec<Located>, Dtype, ReduceOp),
}

#[derive(Debug)]
struct Move {
    source: Source,
    /// `None` if it goes to a core and not to memory.
    dst: Option<Located>,
}

/// What is due at a time. Reads come before writes where both are of one move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    Read,
    Write,
}

/// All data on its way.
#[derive(Debug, Default)]
pub(crate) struct Moves {
    all: Vec<Option<Move>>,
    free: Vec<u32>,
    due: BinaryHeap<Reverse<(Ps, u64, Due, Moved)>>,
    issued: u64,
}

impl Moves {
    fn keep(&mut self, one: Move) -> Moved {
        if let Some(index) = self.free.pop() {
            self.all[index as usize] = Some(one);
            return Moved(index);
        }
        self.all.push(Some(one));
        Moved(u32::try_from(self.all.len() - 1).unwrap_or(u32::MAX))
    }

    fn at(&mut self, time_ps: Ps, due: Due, moved: Moved) {
        self.issued += 1;
        self.due.push(Reverse((time_ps, self.issued, due, moved)));
    }

    fn take(&mut self, moved: Moved) -> Option<Move> {
        let taken = self.all.get_mut(moved.0 as usize)?.take()?;
        self.free.push(moved.0);
        Some(taken)
    }

    /// Whether anything is due.
    #[inline(always)]
    fn is_due(&self, now: Ps) -> bool {
        self.due.peek().is_some_and(|Reverse(first)| first.0 <= now)
    }
}

impl Memory {
    /// Does what is due by now. Has to be called before anybody looks at data.
    #[inline(always)]
    pub(crate) fn catch_up(&mut self, now: Ps) {
        if self.moves.is_due(now) {
            self.do_what_is_due(now);
        }
    }

    #[inline(never)]
    fn do_what_is_due(&mut self, now: Ps) {
        while self.moves.is_due(now)
            && let Some(Reverse((_, _, due, moved))) = self.moves.due.pop()
        {
            match due {
                Due::Read => self.read(moved),
                Due::Write => self.write(moved),
            }
        }
    }

    /// Reads the source of a move, if that has not been done.
    fn read(&mut self, moved: Moved) {
        let Some(one) = self.moves.all.get_mut(moved.0 as usize).and_then(Option::as_mut) else {
            return;
        };
        let source = std::mem::replace(&mut one.source, Source::Known(Payload::Hollow));
        let data = match source {
            Source::Known(data) => data,
            Source::Memory(src) => self.load(&src),
            Source::Reduced(sources, dtype, op) => {
                let loaded: Vec<Payload> = sources.iter().map(|source| self.load(source)).collect();
                Payload::combine(dtype, op, &loaded.iter().collect::<Vec<_>>())
            }
        };
        if let Some(one) = self.moves.all[moved.0 as usize].as_mut() {
            one.source = Source::Known(data);
        }
    }

    /// Writes what a move has read.
    fn write(&mut self, moved: Moved) {
        self.read(moved);
        if let Some(one) = self.moves.take(moved)
            && let (Some(dst), Source::Known(data)) = (one.dst, one.source)
        {
            self.store(&dst, &data);
        }
    }

    /// Begins to move data that is there; `None` if no data is kept.
    pub(crate) fn move_payload(&mut self, dst: &Located, data: &Payload) -> Option<Moved> {
        self.keeps_data().then(|| {
            self.moves.keep(Move {
                source: Source::Known(data.clone()),
                dst: Some(*dst),
            })
        })
    }

    /// Begins to move data from one place to another: it is read at `start_ps`.
    pub(crate) fn move_between(
        &mut self,
        dst: &Located,
        src: &Located,
        (now, start_ps): (Ps, Ps),
    ) -> Option<Moved> {
        let source = Source::Memory(*src);
        self.begin_move(source, Some(*dst), (now, start_ps))
    }

    /// Begins to move data to a core.
    pub(crate) fn move_to_core(&mut self, src: &Located, (now, start_ps): (Ps, Ps)) -> Option<Moved> {
        self.begin_move(Source::Memory(*src), None, (now, start_ps))
    }

    /// Begins to reduce: all sources are read at `start_ps`.
    pub(crate) fn move_reduced(
        &mut self,
        dst: &Located,
        sources: &[Located],
        (dtype, op): (Dtype, ReduceOp),
        (now, start_ps): (Ps, Ps),
    ) -> Option<Moved> {
        let source = match sources {
            [source] => Source::Memory(*source),
            _ => Source::Reduced(sources.to_vec(), dtype, op),
        };
        self.begin_move(source, Some(*dst), (now, start_ps))
    }

    fn begin_move(
        &mut self,
        source: Source,
        dst: Option<Located>,
        (now, start_ps): (Ps, Ps),
    ) -> Option<Moved> {
        if !self.keeps_data() {
            return None;
        }
        let moved = self.moves.keep(Move { source, dst });
        if start_ps > now {
            self.moves.at(start_ps, Due::Read, moved);
        } else {
            self.catch_up(now);
            self.read(moved);
        }
        Some(moved)
    }

    /// Data arrives at this time.
    #[inline(always)]
    pub(crate) fn arrives(&mut self, moved: Option<Moved>, now: Ps, at: Ps) {
        let Some(moved) = moved else {
            return;
        };
        if at > now {
            self.moves.at(at, Due::Write, moved);
        } else {
            self.catch_up(now);
            self.write(moved);
        }
    }

    /// What a core has been brought.
    pub(crate) fn brought(&mut self, moved: Moved, now: Ps) -> Payload {
        self.catch_up(now);
        match self.moves.take(moved).map(|one| one.source) {
            Some(Source::Known(data)) => data,
            _ => Payload::Hollow,
        }
    }

    /// Data on its way to or from a segment that is gone stays where it is.
    pub(crate) fn forget_moves(&mut self, segment: u32) {
        let of = |at: &Located| at.segment == segment;
        for one in &mut self.moves.all {
            let Some(one) = one else { continue };
            let gone = match &one.source {
                Source::Known(_) => false,
                Source::Memory(src) => of(src),
                Source::Reduced(sources, ..) => sources.iter().any(of),
            };
            if gone {
                one.source = Source::Known(Payload::Hollow);
            }
            if gone || one.dst.as_ref().is_some_and(of) {
                one.dst = None;
            }
        }
    }
}
