//! One execution as a plain value: where each rank is, memory, signals, clocks.
//!
//! Instructions happen one at a time. Which rank is next, and which value a read of a signal finds where there are
//! several, is chosen from outside.

mod execute;
mod open;
mod operands;
mod signals;

use crate::cells::{Broken, Cell, Place, Position};
use crate::clock::{Agent, Clock};
use crate::fault::Misuse;
use crate::memory::Memory;
use crate::shadow::{Access, Shadow};
use crate::tree::{NodeId, ROOT, Step, Tree};
use crate::words::Finding;
pub(crate) use open::Awaited;
pub(crate) use operands::{Operands, signal_of};
use ringwork_isa::stepped::{Instruction, PacketSource};
use ringwork_isa::{Compare, Segment, Signal, Span, Ticket};
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;
use std::panic::Location;
use std::rc::Rc;

/// A transfer that was begun and not joined yet.
#[derive(Clone, Debug)]
struct UnderWay {
    ticket: Ticket,
    /// Transfers of one rank that are under way at a time have different lanes; a lane is an agent.
    lane: usize,
    clock: Clock,
    node: NodeId,
}

/// A test that failed, and may be repeated in a loop.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Poll {
    line: (usize, u32, u32),
    call: u32,
    place: Place,
    /// What a test compares with; none for a peek.
    operand: Option<i32>,
    times: u32,
    /// Writes of the cell when it failed last.
    writes: usize,
}

impl Poll {
    fn is(&self, at: &'static Location<'static>, call: u32, place: Place, operand: Option<i32>) -> bool {
        (self.line, self.call, self.place, self.operand) == (line(at), call, place, operand)
    }
}

/// A write of a cell, without its clocks.
const EACH_WRITE_BYTES: usize = 64;

/// How often a test may fail in one call before it is taken for a loop.
const LOOP_AFTER: u32 = 2;

#[derive(Clone, Debug)]
pub(crate) struct Run {
    ranks: u32,
    first: i32,
    pub(crate) at: Vec<NodeId>,
    clocks: Vec<Clock>,
    pub(crate) memory: Memory,
    shadow: Shadow,
    cells: BTreeMap<Place, Rc<Cell>>,
    under_way: Vec<Vec<UnderWay>>,
    /// Transfers so far of each lane of each rank.
    lanes: Vec<Vec<u32>>,
    /// The agents of lanes, by rank and lane, where ranks come and go.
    open_lanes: BTreeMap<(u32, usize), Agent>,
    polls: Vec<Vec<Poll>>,
    /// What was done, in order.
    pub(crate) done: Vec<Done>,
    pub(crate) findings: Vec<Finding>,
    pub(crate) broken: Option<(Place, Broken)>,
}

/// An instruction that was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Done {
    pub(crate) rank: u32,
    pub(crate) node: NodeId,
    /// If the order of its signal matters: which value it read.
    pub(crate) read: Option<Position>,
}

/// Whether a rank can do its next instruction.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Enabled {
    Ended,
    /// It waits, and no value satisfies it.
    Blocked,
    /// It repeats a test that failed, and nothing has changed.
    Polling,
    /// It can, and the order does not matter.
    Free,
    /// It can, and the order matters: which values it may read.
    Ordered(Vec<Position>),
}

/// What is fixed while programs are explored.
#[derive(Debug)]
pub(crate) struct Context<'a> {
    pub(crate) trees: &'a mut [Tree],
    /// Cells that do not keep the conditions.
    pub(crate) bad: &'a BTreeSet<Place>,
}

pub(crate) fn place(signal: &Signal) -> Place {
    (signal.segment(), signal.offset().unwrap_or(u64::MAX))
}

fn range(span: &Span) -> Range<u64> {
    span.byte_range().unwrap_or(u64::MAX..u64::MAX)
}

impl Run {
    pub(crate) fn new(ranks: u32, first: i32, memory: Memory) -> Run {
        let count = ranks as usize;
        Run {
            ranks,
            first,
            at: vec![ROOT; count],
            clocks: vec![Clock::default(); count],
            memory,
            shadow: Shadow::default(),
            cells: BTreeMap::new(),
            under_way: vec![Vec::new(); count],
            lanes: vec![Vec::new(); count],
            open_lanes: BTreeMap::new(),
            polls: vec![Vec::new(); count],
            done: Vec::new(),
            findings: Vec::new(),
            broken: None,
        }
    }

    /// What makes two executions go on alike.
    pub(crate) fn key(&self) -> u128 {
        let half = |seed: u8| {
            let mut hasher = DefaultHasher::new();
            seed.hash(&mut hasher);
            (&self.at, &self.clocks, &self.lanes, &self.polls).hash(&mut hasher);
            for (place, cell) in &self.cells {
                place.hash(&mut hasher);
                for entry in &cell.history {
                    (entry.value, entry.by, &entry.released).hash(&mut hasher);
                }
            }
            u128::from(hasher.finish())
        };
        half(0) << 64 | half(1)
    }

    fn cell(&mut self, signal: &Signal) -> &mut Cell {
        let first = self.first;
        let cell = self
            .cells
            .entry(place(signal))
            .or_insert_with(|| Rc::new(Cell::new(*signal, first)));
        Rc::make_mut(cell)
    }

    /// The value of a signal now.
    pub(crate) fn value(&self, signal: &Signal) -> i32 {
        self.cells
            .get(&place(signal))
            .map_or(self.first, |cell| cell.value())
    }

    pub(crate) fn history_len(&self, signal: &Signal) -> usize {
        self.cells
            .get(&place(signal))
            .map_or(0, |cell| cell.history.len())
    }

    /// Whether a packet of this epoch was ever put.
    pub(crate) fn was_put(&self, flag: &Signal, epoch: i32) -> bool {
        let cell = self.cells.get(&place(flag));
        cell.is_some_and(|cell| cell.history.iter().any(|entry| entry.value == epoch))
    }

    pub(crate) fn has_come(&self, flag: &Signal, epoch: i32) -> bool {
        let cell = self.cells.get(&place(flag));
        cell.is_some_and(|cell| !cell.history.is_empty() && cell.value() == epoch)
    }

    /// What it holds, about, if it shares nothing with other executions.
    pub(crate) fn bytes(&self) -> u64 {
        let events: usize = self.cells.values().map(|cell| cell.history.len()).sum();
        let parts = [
            self.done.len() * size_of::<Done>(),
            (self.clocks.len() + events) * self.clocks.len() * size_of::<u32>(),
            events * EACH_WRITE_BYTES,
        ];
        let parts: usize = parts.into_iter().sum();
        parts as u64 + self.shadow.bytes() + self.memory.bytes()
    }

    /// The value that every signal begins with.
    pub(crate) fn first_value(&self) -> i32 {
        self.first
    }

    /// What every rank knows now.
    pub(crate) fn clocks(&self) -> &[Clock] {
        &self.clocks
    }

    /// What was done to memory.
    pub(crate) fn shadow(&self) -> &Shadow {
        &self.shadow
    }

    /// Every cell that was touched.
    pub(crate) fn cells(&self) -> impl Iterator<Item = (&Place, &Cell)> {
        self.cells.iter().map(|(place, cell)| (place, &**cell))
    }

    /// Forgets what every rank knows of, between two calls: whatever comes is ordered after it.
    pub(crate) fn forget_settled(&mut self, is_settled: impl Fn(Segment, &Access, &[Clock]) -> bool) {
        self.shadow
            .forget_settled(|segment, access| is_settled(segment, access, &self.clocks));
        for cell in self.cells.values_mut() {
            Rc::make_mut(cell).forget_settled(&self.clocks);
        }
        self.done.clear();
    }

    /// Whether no copy is under way.
    pub(crate) fn is_quiet(&self) -> bool {
        self.under_way.iter().all(Vec::is_empty)
    }

    /// What a rank knows now.
    pub(crate) fn clock(&self, rank: usize) -> &Clock {
        &self.clocks[rank]
    }

    /// The cell that is described by a place.
    pub(crate) fn signal_at(&self, place: &Place) -> Option<Signal> {
        self.cells.get(place).map(|cell| cell.signal)
    }

    /// The first write of a signal that satisfies a wait.
    pub(crate) fn first_holding(&self, signal: &Signal, compare: Compare, operand: i32) -> Option<Access> {
        let cell = self.cells.get(&place(signal))?;
        let index = cell.first_holding(compare, operand)?;
        cell.history.get(index).map(|entry| entry.by)
    }

    /// Ranks that have written a signal, in order.
    pub(crate) fn writers(&self, signal: &Signal) -> Vec<Access> {
        let cell = self.cells.get(&place(signal));
        cell.map_or_else(Vec::new, |cell| {
            cell.history.iter().map(|entry| entry.by).collect()
        })
    }

    pub(crate) fn enabled(&self, context: &Context<'_>, rank: usize) -> Enabled {
        let Step::Instruction(instruction, at) = context.trees[rank].step(self.at[rank]) else {
            return Enabled::Ended;
        };
        let is_bad = |signal: &Signal| context.bad.contains(&place(signal));
        match &**instruction {
            Instruction::Wait {
                signal,
                compare,
                operand,
            } => {
                let holds = |value| compare.holds(value, *operand);
                if is_bad(signal) {
                    let positions = self.readable(rank, signal, holds);
                    return if positions.is_empty() {
                        Enabled::Blocked
                    } else {
                        Enabled::Ordered(positions)
                    };
                }
                if holds(self.value(signal)) {
                    Enabled::Free
                } else {
                    Enabled::Blocked
                }
            }
            Instruction::TakePackets { sources, epoch, .. } => {
                let epoch = (*epoch).into();
                let came = |source: &PacketSource| {
                    source.arrives.is_none_or(|(flag, _)| self.has_come(&flag, epoch))
                };
                if sources.iter().all(came) {
                    Enabled::Free
                } else {
                    Enabled::Blocked
                }
            }
            Instruction::Test { signal, .. } | Instruction::Peek { signal } => {
                let call = context.trees[rank].call(self.at[rank]);
                let operand = match &**instruction {
                    Instruction::Test { operand, .. } => Some(*operand),
                    _ => None,
                };
                let poll = self.polls[rank]
                    .iter()
                    .find(|poll| poll.is(at, call, place(signal), operand));
                match poll.filter(|poll| poll.times >= LOOP_AFTER) {
                    Some(poll) if poll.writes == self.history_len(signal) => Enabled::Polling,
                    _ if !is_bad(signal) => Enabled::Free,
                    Some(_) => Enabled::Ordered(vec![self.history_len(signal).checked_sub(1)]),
                    None => Enabled::Ordered(self.readable(rank, signal, |_| true)),
                }
            }
            Instruction::Notify { signal, .. } | Instruction::Put { full: signal, .. } if is_bad(signal) => {
                Enabled::Ordered(vec![None])
            }
            _ => Enabled::Free,
        }
    }

    /// The values that a rank may read: from the newest that it knows to the latest.
    fn readable(&self, rank: usize, signal: &Signal, holds: impl Fn(i32) -> bool) -> Vec<Position> {
        let Some(cell) = self.cells.get(&place(signal)) else {
            return if holds(self.first) { vec![None] } else { Vec::new() };
        };
        let known = cell.newest_known(&self.clocks[rank]);
        let initial = known.is_none().then_some(None);
        let later = (known.unwrap_or(0)..cell.history.len()).map(Some);
        initial
            .into_iter()
            .chain(later)
            .filter(|position| holds(cell.value_at(*position)))
            .collect()
    }

    /// The latest value of the signal that a rank tests.
    pub(crate) fn latest_of(&self, context: &Context<'_>, rank: usize) -> Position {
        match context.trees[rank].step(self.at[rank]) {
            Step::Instruction(instruction, _) => self.history_len(signal_of(instruction)?).checked_sub(1),
            Step::Ended(_) => None,
        }
    }

    /// Whether a rank that can move could also do so if it read the latest value.
    pub(crate) fn moves_with_latest(&self, context: &Context<'_>, rank: usize) -> bool {
        match context.trees[rank].step(self.at[rank]) {
            Step::Instruction(instruction, _) => match &**instruction {
                Instruction::Wait {
                    signal,
                    compare,
                    operand,
                } => compare.holds(self.value(signal), *operand),
                _ => true,
            },
            Step::Ended(_) => false,
        }
    }

    /// Does the next instruction of a rank, which can happen. `read` is the value that it reads of a signal whose order matters.
    pub(crate) fn step(&mut self, context: &mut Context<'_>, rank: usize, read: Position) {
        let node = self.at[rank];
        let Step::Instruction(instruction, at) = context.trees[rank].step(node).clone() else {
            return;
        };
        let agent = u32::try_from(rank).unwrap_or(u32::MAX);
        let time = self.clocks[rank].get(agent) + 1;
        self.clocks[rank].set(agent, time);
        let by = Access {
            agent,
            rank: agent,
            time,
            node,
            writes: false,
        };
        let is_ordered = signal_of(&instruction).is_some_and(|signal| context.bad.contains(&place(signal)));
        self.done.push(Done {
            rank: agent,
            node,
            read: is_ordered.then_some(read),
        });
        let call = context.trees[rank].call(node);
        let doing = Doing {
            by,
            at,
            call,
            read,
            bad: context.bad,
        };
        let answer = match self.check(agent, &instruction, at) {
            Ok(()) => self.execute(&doing, &instruction),
            Err(error) => Err(error),
        };
        self.at[rank] = context.trees[rank].next(node, answer);
        if let Step::Ended(result) = context.trees[rank].step(self.at[rank]) {
            if let Err(error) = result {
                self.findings.push(Finding::Failed {
                    rank: agent,
                    node,
                    error: error.clone(),
                });
            } else if let Some(left) = self.under_way[rank].first() {
                let begun = Access {
                    agent,
                    rank: agent,
                    time,
                    node: left.node,
                    writes: true,
                };
                self.findings
                    .push(Finding::Misuse(Misuse::NeverJoined, begun, None, None));
            }
        }
    }
}

/// The instruction that is being done.
struct Doing<'a> {
    by: Access,
    at: &'static Location<'static>,
    call: u32,
    read: Position,
    bad: &'a BTreeSet<Place>,
}

/// A line of source, as a value that can be hashed.
fn line(at: &'static Location<'static>) -> (usize, u32, u32) {
    (at.file().as_ptr() as usize, at.line(), at.column())
}
