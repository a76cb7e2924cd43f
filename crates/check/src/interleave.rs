//! Every interleaving, for any number of calls: a second opinion.
//!
//! It shares nothing with the detector: it has no clocks, no shadow memory and no conditions. A breadth-first search does one
//! instruction of one rank after the other, in every order. Two accesses race if there is a state in which both can be next.
//! It is exact where instructions are atomic and a signal has one value at a time, which programs without a race cannot tell
//! from the [memory model](crate#how-it-decides). It costs what all orders cost: 2 or 3 ranks, and no results are looked at.
//!
//! # Invariants
//! - **ALL-1 (relative).** A state is where the ranks are and the values of the signals, relative to the number of periods that
//!   every rank has done: values to those after so many periods, calls to the first of them. So a program that repeats
//!   itself has finitely many states, however often it is called.
//! - **ALL-2 (the same in every period).** Where a rank is contains every instruction of its call, with its operands relative to
//!   the values before that call. Calls that are a period apart must do the same: that is looked at, and not only hoped.

use crate::explore::Bound;
use crate::fault::Side;
use crate::run::{Operands, signal_of};
use crate::shadow::Access;
use crate::tree::{NodeId, ROOT, Step, Tree};
use crate::words::side;
use ringwork_isa::stepped::{Answer, Instruction, PacketSource, Payload};
use ringwork_isa::{Notify, Segment, Signal, Ticket};
use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;

/// What every interleaving of a program comes to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interleavings {
    /// States that differ.
    pub states: usize,
    /// Two accesses that can both be next.
    pub race: Option<(Side, Side)>,
    /// The ranks that wait in a state in which no rank can go on.
    pub deadlock: Option<Vec<Side>>,
    /// What ended the search, if it was not over.
    pub bound: Option<Bound>,
    /// The program came to the end of its calls in a state in which it was not before, or does not do the same after a period:
    /// ask for more calls, or it has another period.
    pub needs_more_calls: bool,
}

impl Interleavings {
    /// Whether there is no race and no deadlock, for any number of calls.
    #[must_use]
    pub fn is_proved(&self) -> bool {
        let is_over = self.bound.is_none() && !self.needs_more_calls;
        is_over && self.race.is_none() && self.deadlock.is_none()
    }
}

type Place = (Segment, u64);

#[derive(Clone, Debug)]
struct State {
    at: Vec<NodeId>,
    /// By the number of the cell.
    cells: Vec<i32>,
    /// Copies of each rank that are under way, and where each was begun.
    under_way: Vec<Vec<(Ticket, NodeId)>>,
}

/// What is known of the programs of the ranks, whatever the state.
struct Search<'a> {
    trees: &'a mut [Tree],
    period: u32,
    first: i32,
    numbers: HashMap<Place, usize>,
    /// Values of the cells after so many calls of every rank.
    after: Vec<Vec<i32>>,
    /// What each rank did in each call, one call after the other.
    did: Vec<Vec<u64>>,
    /// Where a rank is in its call (ALL-2), by rank and node.
    places: HashMap<(usize, NodeId), u64>,
    operands: HashMap<(usize, NodeId), Rc<Operands>>,
}

/// Explores every interleaving. Every rank makes `calls` calls; what is asked of it repeats after `period` of them.
pub(crate) fn interleave(
    trees: &mut [Tree],
    (calls, period): (u32, u32),
    first: i32,
    most_states: usize,
) -> Interleavings {
    let ranks = trees.len();
    let mut search = Search {
        trees,
        period,
        first,
        numbers: HashMap::new(),
        after: Vec::new(),
        did: Vec::new(),
        places: HashMap::new(),
        operands: HashMap::new(),
    };
    let start = State {
        at: vec![ROOT; ranks],
        cells: Vec::new(),
        under_way: vec![Vec::new(); ranks],
    };
    let mut found = Interleavings::default();
    if let Some(stuck) = search.call_by_call(start.clone(), calls) {
        found.deadlock = Some(stuck);
        return found;
    }
    found.needs_more_calls = !search.repeats();
    let mut seen = HashSet::from([search.key(&start)]);
    let mut open = VecDeque::from([start]);
    while let Some(state) = open.pop_front() {
        found.states = seen.len();
        if found.states >= most_states {
            found.bound = Some(Bound::States(found.states));
            return found;
        }
        if let Some(race) = search.race(&state) {
            found.race = Some(race);
            return found;
        }
        let can: Vec<usize> = (0..ranks).filter(|rank| search.can(&state, *rank)).collect();
        let has_ended = |rank: &usize| matches!(search.trees[*rank].step(state.at[*rank]), Step::Ended(_));
        let ended = (0..ranks).filter(has_ended).count();
        found.needs_more_calls |= ended > 0;
        if can.is_empty() && ended < ranks {
            found.deadlock = Some(search.stuck(&state));
            return found;
        }
        for rank in can {
            let mut next = state.clone();
            search.step(&mut next, rank);
            if seen.insert(search.key(&next)) {
                open.push_back(next);
            }
        }
    }
    found.states = seen.len();
    found
}

impl Search<'_> {
    /// Lets all ranks do one call after the other, and notes the values of the cells in between. Who waits for ever, if that
    /// is not possible.
    fn call_by_call(&mut self, mut state: State, calls: u32) -> Option<Vec<Side>> {
        for call in 0..=calls {
            // Every rank is before this call, or has ended.
            self.after.push(state.cells.clone());
            let mut did = vec![0; self.trees.len()];
            let (mut rank, mut idle) = (0, 0);
            while idle < self.trees.len() {
                let at = state.at[rank];
                if self.trees[rank].call(at) == call && self.can(&state, rank) {
                    let before = self.place(rank, at);
                    did[rank] = self.what(before, &state, rank).unwrap_or(before);
                    self.step(&mut state, rank);
                    idle = 0;
                } else {
                    (rank, idle) = ((rank + 1) % self.trees.len(), idle + 1);
                }
            }
            let is_stuck = |(rank, tree): (usize, &Tree)| {
                let at = state.at[rank];
                tree.call(at) <= call && matches!(tree.step(at), Step::Instruction(..))
            };
            if self.trees.iter().enumerate().any(is_stuck) {
                return Some(self.stuck(&state));
            }
            self.did.push(did);
        }
        None
    }

    /// Whether calls that are a period apart do the same, after the first period.
    fn repeats(&self) -> bool {
        let (calls, period) = (self.did.len().saturating_sub(1), self.period as usize);
        let (first, last) = (period, calls.saturating_sub(period));
        first < last && (first..last).all(|call| self.did[call] == self.did[call + period])
    }

    fn stuck(&self, state: &State) -> Vec<Side> {
        let waiting = (0..self.trees.len())
            .filter(|rank| matches!(self.trees[*rank].step(state.at[*rank]), Step::Instruction(..)));
        waiting.map(|rank| self.side(rank, state.at[rank])).collect()
    }

    fn side(&self, rank: usize, node: NodeId) -> Side {
        let rank = u32::try_from(rank).unwrap_or(u32::MAX);
        let access = Access {
            agent: rank,
            rank,
            time: 0,
            node,
            writes: false,
        };
        side(self.trees, access)
    }

    fn number(&mut self, signal: &Signal) -> usize {
        let place = crate::run::place(signal);
        let next = self.numbers.len();
        *self.numbers.entry(place).or_insert(next)
    }

    fn value(&self, cells: &[i32], signal: &Signal) -> i32 {
        let number = self.numbers.get(&crate::run::place(signal));
        number
            .and_then(|number| cells.get(*number))
            .copied()
            .unwrap_or(self.first)
    }

    fn set(&mut self, state: &mut State, signal: &Signal, value: i32) {
        let number = self.number(signal);
        if state.cells.len() <= number {
            state.cells.resize(number + 1, self.first);
        }
        state.cells[number] = value;
    }

    fn instruction(&self, state: &State, rank: usize) -> Option<Rc<Instruction>> {
        match self.trees[rank].step(state.at[rank]) {
            Step::Instruction(instruction, _) => Some(instruction.clone()),
            Step::Ended(_) => None,
        }
    }

    /// Whether a rank's next instruction can happen.
    fn can(&self, state: &State, rank: usize) -> bool {
        let Step::Instruction(instruction, _) = self.trees[rank].step(state.at[rank]) else {
            return false;
        };
        match &**instruction {
            Instruction::Wait {
                signal,
                compare,
                operand,
            } => compare.holds(self.value(&state.cells, signal), *operand),
            Instruction::TakePackets { sources, epoch, .. } => {
                let came = |source: &PacketSource| match &source.arrives {
                    Some((flag, _)) => self.value(&state.cells, flag) == i32::from(*epoch),
                    None => true,
                };
                sources.iter().all(came)
            }
            _ => true,
        }
    }

    /// Does the next instruction of a rank.
    fn step(&mut self, state: &mut State, rank: usize) {
        let (at, Some(instruction)) = (state.at[rank], self.instruction(state, rank)) else {
            return;
        };
        let mut answer = Answer::Done;
        match &*instruction {
            Instruction::Notify { signal, how } => {
                let value = match how {
                    Notify::Set(value) => *value,
                    Notify::Add(amount) => self.value(&state.cells, signal).wrapping_add(*amount),
                };
                self.set(state, signal, value);
            }
            Instruction::Put { full, value, .. } => self.set(state, full, *value),
            Instruction::PutPacket { flag, epoch, .. } => self.set(state, flag, (*epoch).into()),
            Instruction::Peek { signal } | Instruction::OwnValue { signal } => {
                answer = Answer::Value(self.value(&state.cells, signal));
            }
            Instruction::Test {
                signal,
                compare,
                operand,
            } => answer = Answer::Tested(compare.holds(self.value(&state.cells, signal), *operand)),
            Instruction::Load { .. } | Instruction::LoadBlock { .. } => {
                answer = Answer::Loaded(Box::new(Payload::Hollow));
            }
            Instruction::CopyAsync { .. } => answer = Answer::Ticket(begin(state, rank, at)),
            Instruction::Take { .. } => {
                answer = Answer::Taken(begin(state, rank, at), Box::new(Payload::Hollow));
            }
            Instruction::Join(ticket) => state.under_way[rank].retain(|(one, _)| one != ticket),
            _ => {}
        }
        let what = self.what(self.place(rank, at), state, rank);
        let next = self.trees[rank].next(at, Ok(answer.clone()));
        state.at[rank] = next;
        if self.places.contains_key(&(rank, next)) {
            return;
        }
        let (call, after) = (self.trees[rank].call(at), self.trees[rank].call(next));
        let found = match (call == after, what) {
            (true, Some(what)) => {
                let values = &self.after[call as usize];
                let answered = match (&answer, signal_of(&instruction)) {
                    (Answer::Value(value), Some(signal)) => {
                        Some(value.wrapping_sub(self.value(values, signal)))
                    }
                    (Answer::Tested(holds), _) => Some(i32::from(*holds)),
                    _ => None,
                };
                let mut place = DefaultHasher::new();
                (what, answered).hash(&mut place);
                place.finish()
            }
            // A call begins with nothing that the kernel remembers.
            _ => beginning(after % self.period),
        };
        self.places.insert((rank, next), found);
    }

    /// The place `before` and the next instruction of a rank, as any period has it.
    fn what(&self, before: u64, state: &State, rank: usize) -> Option<u64> {
        let instruction = self.instruction(state, rank)?;
        let values = &self.after[self.trees[rank].call(state.at[rank]) as usize];
        let since = |signal: &Signal, value: i32| value.wrapping_sub(self.value(values, signal));
        let mut place = DefaultHasher::new();
        (before, relative(&instruction, since)).hash(&mut place);
        Some(place.finish())
    }

    fn place(&self, rank: usize, node: NodeId) -> u64 {
        let known = self.places.get(&(rank, node));
        // Only the first node is not known: the beginning of call 0.
        known.copied().unwrap_or_else(|| beginning(0))
    }

    /// A state as any period has it (ALL-1).
    fn key(&self, state: &State) -> u128 {
        let calls = state.at.iter().zip(self.trees.iter());
        let call = |(at, tree): (&NodeId, &Tree)| match tree.step(*at) {
            Step::Ended(_) => tree.call(*at) + 1,
            Step::Instruction(..) => tree.call(*at),
        };
        let calls: Vec<u32> = calls.map(call).collect();
        let base = calls.iter().min().copied().unwrap_or(0) / self.period * self.period;
        let values = &self.after[base as usize];
        let half = |seed: u8| {
            let mut key = DefaultHasher::new();
            seed.hash(&mut key);
            for (rank, call) in calls.iter().enumerate() {
                (call - base, self.place(rank, state.at[rank])).hash(&mut key);
            }
            for number in 0..self.numbers.len() {
                let value = |cells: &[i32]| cells.get(number).copied().unwrap_or(self.first);
                let since = value(&state.cells).wrapping_sub(value(values));
                // A cell that has not changed is as good as one that nobody has met yet.
                if since != 0 {
                    (number, since).hash(&mut key);
                }
            }
            u128::from(key.finish())
        };
        half(0) << 64 | half(1)
    }

    /// Two accesses that can both be next and overlap, one of them a write.
    fn race(&mut self, state: &State) -> Option<(Side, Side)> {
        let mut all = Vec::new();
        for rank in 0..self.trees.len() {
            for (_, node) in &state.under_way[rank] {
                all.push((rank, *node, self.operands(rank, *node)));
            }
            if self.can(state, rank) {
                let node = state.at[rank];
                all.push((rank, node, self.operands(rank, node)));
            }
        }
        for (index, (rank, node, one)) in all.iter().enumerate() {
            for (other_rank, other_node, other) in &all[index + 1..] {
                if conflict(one, other) {
                    return Some((self.side(*rank, *node), self.side(*other_rank, *other_node)));
                }
            }
        }
        None
    }

    fn operands(&mut self, rank: usize, node: NodeId) -> Rc<Operands> {
        if let Some(known) = self.operands.get(&(rank, node)) {
            return known.clone();
        }
        let operands = match self.trees[rank].step(node) {
            Step::Instruction(instruction, _) => Operands::of(instruction),
            Step::Ended(_) => Operands::default(),
        };
        let operands = Rc::new(operands);
        self.operands.insert((rank, node), operands.clone());
        operands
    }
}

/// The place at the beginning of a call.
fn beginning(call: u32) -> u64 {
    let mut place = DefaultHasher::new();
    call.hash(&mut place);
    place.finish()
}

/// Begins a copy: it touches its memory until its join.
fn begin(state: &mut State, rank: usize, at: NodeId) -> Ticket {
    let all = &mut state.under_way[rank];
    let free = (0..)
        .map(Ticket)
        .find(|ticket| all.iter().all(|(used, _)| used != ticket));
    let ticket = free.unwrap_or(Ticket(0));
    all.push((ticket, at));
    ticket
}

fn conflict(a: &Operands, b: &Operands) -> bool {
    let overlap = |writes: &Operands, all: &Operands| {
        writes.writes.iter().any(|write| {
            all.writes.iter().chain(&all.reads).any(|other| {
                let (Some(a), Some(b)) = (write.byte_range(), other.byte_range()) else {
                    return false;
                };
                write.segment == other.segment && a.start < b.end && b.start < a.end
            })
        })
    };
    overlap(a, b) || overlap(b, a)
}

/// An instruction without what differs from call to call: its values of signals, relative to those before the call. Private
/// memory is nobody else's, so where it lies does not matter.
fn relative(
    instruction: &Instruction,
    since: impl Fn(&Signal, i32) -> i32,
) -> (&'static str, Vec<i32>, Vec<Place>) {
    let name = crate::words::name(instruction);
    let (values, signals): (Vec<i32>, Vec<Signal>) = match instruction {
        Instruction::Notify { signal, how } => {
            let value = match how {
                Notify::Set(value) => since(signal, *value),
                Notify::Add(amount) => *amount,
            };
            (vec![value], vec![*signal])
        }
        Instruction::Wait { signal, operand, .. } | Instruction::Test { signal, operand, .. } => {
            (vec![since(signal, *operand)], vec![*signal])
        }
        Instruction::Put { full, value, .. } => (vec![since(full, *value)], vec![*full]),
        Instruction::PutPacket { flag, epoch, .. } => (vec![since(flag, (*epoch).into())], vec![*flag]),
        Instruction::TakePackets { sources, epoch, .. } => {
            let flags: Vec<Signal> = sources
                .iter()
                .filter_map(|source| source.arrives)
                .map(|(flag, _)| flag)
                .collect();
            (
                flags.iter().map(|flag| since(flag, (*epoch).into())).collect(),
                flags,
            )
        }
        Instruction::Peek { signal } | Instruction::OwnValue { signal } => (Vec::new(), vec![*signal]),
        _ => (Vec::new(), Vec::new()),
    };
    let Operands { writes, reads } = Operands::of(instruction);
    let shared = writes.iter().chain(&reads).filter(|span| span.ranks > 1);
    let data = shared.map(|span| (span.segment, span.byte_range().map_or(0, |bytes| bytes.start)));
    let places = signals.iter().map(crate::run::place).chain(data);
    (name, values, places.collect())
}
