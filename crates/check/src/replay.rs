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
    let whole = Schedule::of(faulty.done.iter().copied());
    let kept = matter(start, trees, faulty, faults);
    let short = Schedule::of(kept.iter().copied());
    // Fewer writes of a signal may mean another value: then the whole execution is shown.
    let again = replay(start, trees, &short);
    let (schedule, kept) = match again {
        Ok((_, found)) if is_alike(found.first(), faults.first()) => (short, kept),
        _ => (whole, faulty.done.clone()),
    };
    Trace {
        steps: kept.iter().map(|done| side(trees, access(done))).collect(),
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

/// The instructions that the events of the first fault know of.
fn matter(start: &Run, trees: &mut [Tree], faulty: &Run, faults: &[Fault]) -> Vec<Done> {
    // Clocks are not kept while a program is explored: they are computed again.
    let mut run = start.clone();
    let mut clocks: Vec<Clock> = Vec::with_capacity(faulty.done.len());
    let mut bad = BTreeSet::new();
    for done in &faulty.done {
        let rank = done.rank as usize;
        if let (Step::Instruction(instruction, _), Some(_)) = (trees[rank].step(done.node), done.read)
            && let Some(signal) = signal_of(instruction)
        {
            bad.insert(place(signal));
        }
        run.step(&mut Context { trees, bad: &bad }, rank, done.read.flatten());
        run.broken = None;
        clocks.push(run.clock(rank).clone());
    }
    let at = |access: &Access| {
        let is_it = |done: &Done| (done.rank, done.node) == (access.rank, access.node);
        faulty
            .done
            .iter()
            .position(is_it)
            .map(|index| clocks[index].clone())
    };
    let ends = match (faults.first(), faulty.findings.first()) {
        (Some(Fault::Deadlock(_)), _) => stuck(&run, trees, faulty, &clocks),
        (_, Some(Finding::Race { first, second, .. })) => vec![at(first), at(second)],
        (_, Some(Finding::Misuse(_, first, second, _))) => vec![at(first), second.as_ref().and_then(at)],
        (_, Some(Finding::Failed { rank, .. })) => vec![Some(run.clock(*rank as usize).clone())],
        (_, None) => return faulty.done.clone(),
    };
    let mut times = vec![0; start.at.len()];
    let mut kept = Vec::new();
    for done in &faulty.done {
        let time = &mut times[done.rank as usize];
        *time += 1;
        if ends.iter().flatten().any(|clock| clock.knows(done.rank, *time)) {
            kept.push(*done);
        }
    }
    kept
}

/// What the ranks know that wait for ever, and those that wrote what they wait for.
fn stuck(run: &Run, trees: &[Tree], faulty: &Run, clocks: &[Clock]) -> Vec<Option<Clock>> {
    let mut ends = Vec::new();
    for (rank, tree) in trees.iter().enumerate() {
        let Step::Instruction(instruction, _) = tree.step(run.at[rank]) else {
            continue;
        };
        ends.push(Some(run.clock(rank).clone()));
        let Some(awaited) = signal_of(instruction).map(place) else {
            continue;
        };
        for (done, clock) in faulty.done.iter().zip(clocks) {
            if let Step::Instruction(other, _) = trees[done.rank as usize].step(done.node)
                && signal_of(other).map(place) == Some(awaited)
            {
                ends.push(Some(clock.clone()));
            }
        }
    }
    ends
}
