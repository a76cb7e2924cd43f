//! Executions again: along a schedule, and what of an execution matters for its fault.

use crate::clock::Clock;
use crate::explore::{Bounds, End, Found, go_on};
use crate::fault::{Fault, Side};
use crate::run::{Context, Done, Enabled, Run, place, signal_of};
use crate::schedule::{Schedule, ScheduleError};
use crate::shadow::Access;
use crate::tree::{Step, Tree};
use crate::words::{Finding, in_words, side};
use std::collections::BTreeSet;

/// How a fault comes about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// The instructions that the fault depends on, in an order in which they can happen.
    pub steps: Vec<Side>,
    /// From which step to which an order was published and learned: a notify and its wait, a packet, a message.
    pub edges: Vec<(usize, usize)>,
    /// Instructions that were done when it was found.
    pub of: usize,
    /// Replays them.
    pub schedule: Schedule,
    /// No execution comes to this fault with fewer instructions.
    pub is_shortest: bool,
}

/// The execution along a schedule, and what is wrong in it.
#[derive(Clone, Debug)]
pub struct Replay {
    /// Every instruction of the schedule.
    pub steps: Vec<Side>,
    /// What is wrong, if anything is.
    pub faults: Vec<Fault>,
}

/// Follows a schedule from `start`; says what is wrong after it.
pub(crate) fn replay(
    start: &Run,
    trees: &mut [Tree],
    schedule: &Schedule,
) -> Result<(Run, Vec<Fault>), ScheduleError> {
    let mut run = start.clone();
    let mut bad = BTreeSet::new();
    for turn in schedule.turns() {
        let rank = turn.rank as usize;
        for _ in 0..turn.times {
            let does_not_fit = ScheduleError::DoesNotFit {
                rank: turn.rank,
                number: run.done.iter().filter(|done| done.rank == turn.rank).count() + 1,
            };
            let Some(Step::Instruction(instruction, _)) = run.at.get(rank).map(|at| trees[rank].step(*at))
            else {
                return Err(does_not_fit);
            };
            if let (Some(signal), Some(_)) = (signal_of(instruction), turn.read) {
                bad.insert(place(signal));
            }
            let mut context = Context { trees, bad: &bad };
            let read = turn.read.flatten();
            match run.enabled(&context, rank) {
                Enabled::Free => {}
                Enabled::Ordered(positions) if positions.contains(&read) => {}
                _ => return Err(does_not_fit),
            }
            run.step(&mut context, rank, read);
            run.broken = None;
        }
    }
    if !run.findings.is_empty() {
        let faults = in_words(&run, trees);
        return Ok((run, faults));
    }
    let faults = match go_on(
        &mut run.clone(),
        &mut Context { trees, bad: &bad },
        Bounds::default(),
        &mut Found::default(),
    ) {
        End::Faulty(faults) => faults,
        _ => Vec::new(),
    };
    Ok((run, faults))
}

pub(crate) fn sides(run: &Run, trees: &[Tree]) -> Vec<Side> {
    run.done.iter().map(|done| side(trees, access(done))).collect()
}

fn access(done: &Done) -> Access {
    Access {
        agent: done.rank,
        rank: done.rank,
        time: 0,
        node: done.node,
        writes: false,
    }
}

/// What of a faulty execution matters for the first of its faults.
pub(crate) fn trace(start: &Run, trees: &mut [Tree], faulty: &Run, faults: &[Fault]) -> Trace {
    let (run, all) = with_clocks(start, trees, faulty);
    let whole = Schedule::of(faulty.done.iter().copied());
    let kept = matter(&run, trees, &all, faulty, faults);
    let short = Schedule::of(kept.iter().map(|known| known.done));
    // Fewer writes of a signal may mean another value: then the whole execution is shown.
    let again = replay(start, trees, &short);
    let (schedule, kept) = match again {
        Ok((_, found)) if is_alike(found.first(), faults.first()) => (short, kept),
        _ => (whole, all.iter().collect()),
    };
    Trace {
        steps: kept
            .iter()
            .map(|known| side(trees, access(&known.done)))
            .collect(),
        edges: edges(&kept),
        of: faulty.done.len(),
        schedule,
        is_shortest: false,
    }
}

/// Whether two faults are the same fault of the same lines.
fn is_alike(a: Option<&Fault>, b: Option<&Fault>) -> bool {
    match (a, b) {
        (Some(Fault::Race(a)), Some(Fault::Race(b))) => {
            (&a.first.site, &a.second.site) == (&b.first.site, &b.second.site)
        }
        (Some(Fault::Deadlock(a)), Some(Fault::Deadlock(b))) => {
            let lines =
                |all: &[crate::Stuck]| all.iter().map(|one| one.waited.site.clone()).collect::<Vec<_>>();
            lines(a) == lines(b)
        }
        (Some(a), Some(b)) => std::mem::discriminant(a) == std::mem::discriminant(b),
        _ => false,
    }
}

/// An instruction that was done, and what its rank knew before and after.
#[derive(Clone, Debug)]
struct Known {
    done: Done,
    /// Its number among those of its rank, from 1.
    time: u32,
    before: Clock,
    after: Clock,
}

/// The instructions of an execution with clocks, which are not kept while a program is explored; and its end.
fn with_clocks(start: &Run, trees: &mut [Tree], faulty: &Run) -> (Run, Vec<Known>) {
    let mut run = start.clone();
    let mut all = Vec::with_capacity(faulty.done.len());
    let mut bad = BTreeSet::new();
    for done in &faulty.done {
        let rank = done.rank as usize;
        if let (Step::Instruction(instruction, _), Some(_)) = (trees[rank].step(done.node), done.read)
            && let Some(signal) = signal_of(instruction)
        {
            bad.insert(place(signal));
        }
        let before = run.clock(rank).clone();
        run.step(&mut Context { trees, bad: &bad }, rank, done.read.flatten());
        run.broken = None;
        let after = run.clock(rank).clone();
        let time = after.get(done.rank);
        all.push(Known {
            done: *done,
            time,
            before,
            after,
        });
    }
    (run, all)
}

/// Between which instructions an order was published and learned.
fn edges(kept: &[&Known]) -> Vec<(usize, usize)> {
    let mut all = Vec::new();
    for (to, learner) in kept.iter().enumerate() {
        // Of each other rank the last instruction that became known with this one.
        let news = kept[..to].iter().enumerate().filter(|(_, one)| {
            let rank = one.done.rank;
            rank != learner.done.rank
                && one.time == learner.after.get(rank)
                && !learner.before.knows(rank, one.time)
        });
        let news: Vec<(usize, &&Known)> = news.collect();
        for (from, one) in &news {
            let is_behind = |(other, known): &(usize, &&Known)| {
                other != from && known.after.knows(one.done.rank, one.time)
            };
            if !news.iter().any(is_behind) {
                all.push((*from, to));
            }
        }
    }
    all
}

/// The instructions that the events of the first fault know of.
fn matter<'a>(
    run: &Run,
    trees: &mut [Tree],
    all: &'a [Known],
    faulty: &Run,
    faults: &[Fault],
) -> Vec<&'a Known> {
    let at = |access: &Access| {
        let is_it = |known: &&Known| (known.done.rank, known.done.node) == (access.rank, access.node);
        all.iter().find(is_it).map(|known| known.after.clone())
    };
    let ends = match (faults.first(), faulty.findings.first()) {
        (Some(Fault::Deadlock(_)), _) => stuck(run, trees, all),
        (_, Some(Finding::Race { first, second, .. })) => vec![at(first), at(second)],
        (_, Some(Finding::Misuse(_, first, second, _))) => vec![at(first), second.as_ref().and_then(at)],
        (_, Some(Finding::Failed { rank, .. })) => vec![Some(run.clock(*rank as usize).clone())],
        (_, None) => return all.iter().collect(),
    };
    let is_kept = |known: &&Known| {
        let (rank, time) = (known.done.rank, known.time);
        ends.iter().flatten().any(|clock| clock.knows(rank, time))
    };
    all.iter().filter(is_kept).collect()
}

/// What the ranks know that wait for ever, and those that wrote what they wait for.
fn stuck(run: &Run, trees: &[Tree], all: &[Known]) -> Vec<Option<Clock>> {
    let mut ends = Vec::new();
    for (rank, tree) in trees.iter().enumerate() {
        let Step::Instruction(instruction, _) = tree.step(run.at[rank]) else {
            continue;
        };
        ends.push(Some(run.clock(rank).clone()));
        let Some(awaited) = signal_of(instruction).map(place) else {
            continue;
        };
        for known in all {
            if let Step::Instruction(other, _) = trees[known.done.rank as usize].step(known.done.node)
                && signal_of(other).map(place) == Some(awaited)
            {
                ends.push(Some(known.after.clone()));
            }
        }
    }
    ends
}
