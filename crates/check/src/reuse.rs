//! Any number of calls: after a few of them a program repeats itself.
//!
//! This is for programs with one execution up to equivalence, so that one schedule stands for all. The schedule is call by
//! call: every rank ends a call before any rank begins the next. Between two calls a kernel has no state of its own. What
//! can make the next calls differ is what the ranks know of accesses that not every rank knows of yet, and the values of
//! the signals. Kernels count epochs, so values are taken relative to the present one.
//!
//! If the state before call `k` is the state before call `k + p`, and the calls from `k + p` on did the instructions of the
//! calls from `k` on, then the program goes on so for ever, and every check has the outcome that it had.
//!
//! # Invariants
//! - **REUSE-1 (settled).** An access that every rank knows of is left out of the state: whatever comes is ordered after it.
//! - **REUSE-2 (relative).** Values of signals are relative to the present value, times to the accesses that are left,
//!   private memory to the part of the call. The kernel is assumed not to treat one epoch differently from another; the
//!   second period shows that it did not.

use crate::clock::{Agent, Clock};
use crate::run::{Context, Enabled, Run, place};
use crate::shadow::Access;
use crate::tree::{Step, Tree};
use ringwork_isa::stepped::{Instruction, Payload};
use ringwork_isa::{BlockSpan, Epoch, Notify, Segment, Signal, Span};
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};

/// From which call on a program repeats itself, and how soon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reuse {
    /// Calls before the first that is repeated.
    pub after: u32,
    /// Calls until the same state is reached again.
    pub period: u32,
}

/// Private memory that calls do not share: call `c` uses the part from `c * each_call_bytes` on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Private {
    pub(crate) first: Segment,
    pub(crate) each_call_bytes: u64,
}

impl Private {
    /// REUSE-1.
    fn is_settled(self, segment: Segment, access: &Access, clocks: &[Clock]) -> bool {
        match segment >= self.first {
            // Nobody else can touch private memory.
            true => access.is_before(&clocks[access.rank as usize]),
            false => clocks.iter().all(|clock| access.is_before(clock)),
        }
    }
}

/// Finds out whether a program of one execution repeats itself within its calls.
pub(crate) fn reuse(start: &Run, trees: &mut [Tree], calls: u32, private: Private) -> Option<Reuse> {
    let mut run = start.clone();
    let (mut states, mut did) = (vec![state(&run, private)?], Vec::new());
    for call in 0..calls {
        did.push(do_call(&mut run, trees, call, private)?);
        states.push(state(&run, private)?);
        run.forget_settled(|segment, access, clocks| private.is_settled(segment, access, clocks));
    }
    let calls = did.len();
    let period = (1..=calls / 2).find(|period| {
        let (first, second) = (calls - 2 * period, calls - period);
        states[first] == states[second]
            && states[second] == states[calls]
            && did[first..second] == did[second..]
    })?;
    let is_alike = |call: &usize| states[*call] == states[call + period] && did[*call] == did[call + period];
    let after = (0..calls - period).rev().take_while(is_alike).last()?;
    let number = |calls| u32::try_from(calls).unwrap_or(u32::MAX);
    Some(Reuse {
        after: number(after),
        period: number(period),
    })
}

/// Lets every rank do one call; what they did, as one number. `None` if not all can end it.
fn do_call(run: &mut Run, trees: &mut [Tree], call: u32, private: Private) -> Option<u128> {
    let values = run.cells().map(|(place, cell)| (*place, cell.value()));
    let (before, bad) = (values.collect::<BTreeMap<_, _>>(), BTreeSet::new());
    let first = run.first_value();
    let value = |signal: &Signal| before.get(&place(signal)).copied().unwrap_or(first);
    let mut did = vec![Digest::default(); trees.len()];
    let (mut rank, mut idle) = (0, 0);
    while idle < trees.len() {
        let at = run.at[rank];
        let is_in_call = trees[rank].call(at) == call;
        let context = &mut Context { trees, bad: &bad };
        if is_in_call && run.enabled(context, rank) == Enabled::Free {
            if let Step::Instruction(instruction, line) = context.trees[rank].step(at) {
                let line = (line.file(), line.line(), line.column());
                let (same, values) = relative(instruction, call, value, private);
                did[rank].add(&(line, format!("{same:?}"), values));
            }
            run.step(context, rank, None);
            idle = 0;
        } else {
            (rank, idle) = ((rank + 1) % trees.len(), idle + 1);
        }
    }
    let has_ended =
        |(tree, at): (&Tree, _)| tree.call(at) > call || matches!(tree.step(at), Step::Ended(Ok(())));
    let all_ended = trees.iter().zip(run.at.iter().copied()).all(has_ended);
    let is_well = all_ended && run.broken.is_none() && run.findings.is_empty();
    let mut whole = Digest::default();
    did.iter().for_each(|one| whole.add(&one.value()));
    is_well.then(|| whole.value())
}

/// An instruction as any period does it (REUSE-2), and its values of signals relative to those before the call.
fn relative(
    instruction: &Instruction,
    call: u32,
    value_before: impl Fn(&Signal) -> i32,
    private: Private,
) -> (Instruction, Vec<i32>) {
    let (mut same, mut values) = (instruction.clone(), Vec::new());
    let mut since = |signal: &Signal, value: &mut i32| {
        values.push(value.wrapping_sub(value_before(signal)));
        *value = 0;
    };
    let moved = |span: &mut Span| {
        if span.segment >= private.first {
            span.base = span.base.wrapping_sub(u64::from(call) * private.each_call_bytes);
        }
    };
    let block = |block: &mut BlockSpan| moved(&mut block.extent);
    match &mut same {
        Instruction::Copy { dst, src } | Instruction::CopyAsync { dst, src } => {
            moved(dst);
            moved(src);
        }
        Instruction::Reduce { dst, sources, .. } => {
            moved(dst);
            sources.iter_mut().for_each(moved);
        }
        Instruction::Load { src } | Instruction::Take { slot: src } => moved(src),
        Instruction::Store { dst, data } => {
            moved(dst);
            *data = Payload::Hollow;
        }
        Instruction::CopyBlock { dst, src } => {
            block(dst);
            block(src);
        }
        Instruction::LoadBlock { src } => block(src),
        Instruction::StoreBlock { dst, data } => {
            block(dst);
            *data = Payload::Hollow;
        }
        Instruction::Put {
            slot,
            data,
            full,
            value,
        } => {
            moved(slot);
            *data = Payload::Hollow;
            since(full, value);
        }
        Instruction::PutPacket {
            payload,
            src,
            flag,
            epoch,
        } => {
            moved(payload);
            moved(src);
            since(flag, &mut i32::from(*epoch));
            *epoch = Epoch::default();
        }
        Instruction::TakePackets {
            dst, sources, epoch, ..
        } => {
            moved(dst);
            for source in sources {
                moved(&mut source.payload);
                if let Some((flag, _)) = &source.arrives {
                    since(flag, &mut i32::from(*epoch));
                }
            }
            *epoch = Epoch::default();
        }
        Instruction::Notify { signal, how } => {
            if let Notify::Set(value) = how {
                since(signal, value);
            }
        }
        Instruction::Wait { signal, operand, .. } | Instruction::Test { signal, operand, .. } => {
            since(signal, operand);
        }
        // A ticket is counted; which of those under way it is, is its lane.
        Instruction::Join(ticket) => ticket.0 &= 0xffff,
        Instruction::Spend(_) | Instruction::Peek { .. } | Instruction::OwnValue { .. } => {}
    }
    (same, values)
}

/// What makes the calls that come differ, as one number. `None` where a copy is still under way, or where that cannot be
/// said in so few words.
fn state(run: &Run, private: Private) -> Option<u128> {
    if !run.is_quiet() {
        return None;
    }
    let clocks = run.clocks();
    let is_settled = |segment: Segment, access: &Access| private.is_settled(segment, access, clocks);
    let touched = run.shadow().unsettled(is_settled);
    let cells = run
        .cells()
        .map(|(place, cell)| Some((*place, cell.unsettled(clocks)?)))
        .collect::<Option<Vec<_>>>()?;
    let mut times = Times::default();
    touched
        .iter()
        .flat_map(|(_, _, all)| all)
        .for_each(|access| times.note(access));
    for (_, cell) in &cells {
        cell.accesses().for_each(|access| times.note(access));
    }
    let mut whole = Digest::default();
    for clock in clocks {
        whole.add(&times.of_clock(clock));
    }
    for (segment, bytes, all) in &touched {
        let all: Vec<_> = all.iter().map(|access| times.of(access)).collect();
        whole.add(&(segment, bytes.start, bytes.end, all));
    }
    for (place, cell) in &cells {
        whole.add(&(
            place,
            cell.key(|access| times.of(access), |clock| times.of_clock(clock)),
        ));
    }
    Some(whole.value())
}

/// The accesses of each agent that are not settled, numbered.
#[derive(Debug, Default)]
struct Times(BTreeMap<Agent, BTreeSet<u32>>);

impl Times {
    fn note(&mut self, access: &Access) {
        self.0.entry(access.agent).or_default().insert(access.time);
    }

    fn number(&self, agent: Agent, time: u32) -> usize {
        self.0.get(&agent).map_or(0, |times| times.range(..=time).count())
    }

    fn of(&self, access: &Access) -> (Agent, usize, bool) {
        (
            access.agent,
            self.number(access.agent, access.time),
            access.writes,
        )
    }

    /// How many of those a clock knows.
    fn of_clock(&self, clock: &Clock) -> Vec<usize> {
        let known = self.0.keys().map(|agent| self.number(*agent, clock.get(*agent)));
        known.collect()
    }
}

/// Two hashes: equal by chance once in 2^128.
#[derive(Clone, Debug)]
struct Digest([DefaultHasher; 2]);

impl Default for Digest {
    fn default() -> Digest {
        let mut second = DefaultHasher::new();
        1_u8.hash(&mut second);
        Digest([DefaultHasher::new(), second])
    }
}

impl Digest {
    fn add(&mut self, value: &impl Hash) {
        self.0.iter_mut().for_each(|hasher| value.hash(hasher));
    }

    fn value(&self) -> u128 {
        let [first, second] = &self.0;
        u128::from(first.finish()) << 64 | u128::from(second.finish())
    }
}
