//! The search: one execution where the order does not matter, all of them where it does.
//!
//! An instruction whose order does not matter is done as soon as it can. Only instructions on cells that do not keep the
//! [conditions](crate::cells) are branched on. If a cell breaks a condition while the search runs, the search starts
//! again with that cell among the branching ones.
//!
//! Executions that differ only in the order of independent instructions meet in the same state, because a state is where
//! the ranks are, what they know, and the histories of the cells; it is explored once.

use crate::cells::{Broken, Place};
use crate::fault::Fault;
use crate::replay::{Trace, trace};
use crate::run::{Context, Enabled, Run};
use crate::tree::{Step, Tree};
use crate::words::{deadlock, in_words};
use ringwork_isa::{Result, Signal};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt;

/// How far a search goes before it gives up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// States in which the order mattered.
    pub states: usize,
    /// Instructions in all executions together.
    pub instructions: u64,
    /// Memory for states and for what kernels were seen to do, about so many bytes.
    pub bytes: u64,
}

impl Default for Bounds {
    fn default() -> Bounds {
        Bounds {
            states: 100_000,
            instructions: 50_000_000,
            bytes: 1 << 30,
        }
    }
}

/// What ended a search before it was over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// [`Bounds::states`].
    States(usize),
    /// [`Bounds::instructions`].
    Instructions(u64),
    /// [`Bounds::bytes`].
    Bytes(u64),
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Bound::States(states) => write!(f, "{states} states"),
            Bound::Instructions(instructions) => write!(f, "{instructions} instructions"),
            Bound::Bytes(bytes) => write!(f, "{} MiB of memory", bytes >> 20),
        }
    }
}

/// What a search found.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) faults: Vec<Fault>,
    pub(crate) bound: Option<Bound>,
    pub(crate) executions: u64,
    pub(crate) states: usize,
    pub(crate) instructions: u64,
    /// Signals whose order matters, and the condition that each broke first.
    pub(crate) ordered: Vec<(Signal, Broken)>,
    /// A rank repeated a failed test, and was held until its signal changed.
    pub(crate) has_loops: bool,
    /// How the first fault comes about.
    pub(crate) trace: Option<Trace>,
    /// What each kernel returned, in the last execution that came to its end.
    pub(crate) ends: Vec<Result<()>>,
}

/// After so many instructions memory is looked at.
const LOOKS_AT_MEMORY: u64 = 4096;

/// How often a rank may repeat a failed test when nobody else can move.
const MOST_POLLS: u32 = 1000;

pub(crate) enum End {
    Finished,
    Faulty(Vec<Fault>),
    Broken(Place, Broken),
    Branch(Vec<(usize, Option<usize>)>),
    Bounded(Bound),
}

/// A search over all signals whose order matters.
pub(crate) struct Complete {
    pub(crate) found: Found,
    faulty: Option<Run>,
    bad: BTreeSet<Place>,
}

/// Explores a program from `start`. `check` looks at the memory of every execution that came to its end.
pub(crate) fn search(
    start: &Run,
    trees: &mut [Tree],
    bounds: Bounds,
    check: &dyn Fn(&Run) -> Vec<Fault>,
) -> Complete {
    let (mut bad, mut ordered) = (BTreeSet::new(), Vec::new());
    let mut instructions = 0;
    loop {
        let search = Search {
            start,
            bounds,
            check,
            bad: &bad,
        };
        let Searched {
            mut found,
            faulty,
            broken,
        } = search.run(trees, Order::DepthFirst, instructions);
        if let Some((place, signal, broken)) = broken {
            instructions = found.instructions;
            ordered.extend(signal.map(|signal| (signal, broken)));
            bad.insert(place);
            continue;
        }
        found.ordered = ordered;
        return Complete { found, faulty, bad };
    }
}

/// The same; also says how the first fault comes about, as shortly as it can.
pub(crate) fn explore(
    start: &Run,
    trees: &mut [Tree],
    bounds: Bounds,
    check: &dyn Fn(&Run) -> Vec<Fault>,
) -> Found {
    let Complete {
        mut found,
        faulty,
        bad,
    } = search(start, trees, bounds, check);
    let Some(run) = faulty else { return found };
    let mut trace = trace(start, trees, &run, &found.faults);
    // With one execution there is no shorter one.
    trace.is_shortest = bad.is_empty();
    if !bad.is_empty() {
        let search = Search {
            start,
            bounds,
            check,
            bad: &bad,
        };
        let again = search.run(trees, Order::ShortestFirst, 0);
        if let (Some(run), None) = (again.faulty, again.broken) {
            trace = crate::replay::trace(start, trees, &run, &again.found.faults);
            // Every instruction before a deadlock counts; of a race only those that its two sides know of.
            trace.is_shortest = matches!(again.found.faults[..], [Fault::Deadlock(_)]);
            found.faults = again.found.faults;
        }
    }
    found.trace = Some(trace);
    found
}

/// Which execution goes on first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// The one that was branched off last: needs the least memory.
    DepthFirst,
    /// The one with the fewest instructions, so that the first fault that is found is the shortest.
    ShortestFirst,
}

/// One search with a fixed set of signals whose order matters.
struct Search<'a> {
    start: &'a Run,
    bounds: Bounds,
    check: &'a dyn Fn(&Run) -> Vec<Fault>,
    bad: &'a BTreeSet<Place>,
}

#[derive(Default)]
struct Searched {
    found: Found,
    /// The execution that the faults are of.
    faulty: Option<Run>,
    /// Another signal whose order matters.
    broken: Option<(Place, Option<Signal>, Broken)>,
}

impl Search<'_> {
    fn run(&self, trees: &mut [Tree], order: Order, instructions: u64) -> Searched {
        let mut ended = Searched::default();
        ended.found.instructions = instructions;
        let mut open = Open::new(order, self.start.clone());
        let mut seen = HashSet::new();
        while let Some(mut run) = open.pop() {
            let found = &mut ended.found;
            let mut context = Context { trees, bad: self.bad };
            match go_on(&mut run, &mut context, self.bounds, found) {
                End::Finished => {
                    found.executions += 1;
                    found.faults = (self.check)(&run);
                    found.ends = ends(&run, trees);
                    if !found.faults.is_empty() {
                        ended.faulty = Some(run);
                        return ended;
                    }
                }
                End::Faulty(faults) => {
                    found.executions += 1;
                    found.ends = ends(&run, trees);
                    found.faults = faults;
                    ended.faulty = Some(run);
                    return ended;
                }
                End::Broken(place, broken) => {
                    ended.broken = Some((place, run.signal_at(&place), broken));
                    return ended;
                }
                End::Branch(choices) => {
                    if !seen.insert(run.key()) {
                        continue;
                    }
                    found.states = seen.len();
                    let bound = match () {
                        () if found.states >= self.bounds.states => Some(Bound::States(found.states)),
                        () if open.bytes + tree_bytes(context.trees) >= self.bounds.bytes => {
                            Some(Bound::Bytes(self.bounds.bytes))
                        }
                        () => None,
                    };
                    if bound.is_some() {
                        found.bound = bound;
                        return ended;
                    }
                    // The last is done first: begin with the lowest rank.
                    for (rank, read) in choices.into_iter().rev() {
                        let mut next = run.clone();
                        next.step(&mut context, rank, read);
                        found.instructions += 1;
                        open.push(next);
                    }
                }
                End::Bounded(bound) => {
                    found.bound = Some(bound);
                    return ended;
                }
            }
        }
        ended
    }
}

/// Executions that are to go on.
struct Open {
    order: Order,
    /// By number of instructions; all under 0 if that does not matter.
    runs: BTreeMap<usize, Vec<Run>>,
    /// What they hold, about.
    bytes: u64,
}

impl Open {
    fn new(order: Order, start: Run) -> Open {
        let mut open = Open {
            order,
            runs: BTreeMap::new(),
            bytes: 0,
        };
        open.push(start);
        open
    }

    fn push(&mut self, run: Run) {
        let length = match self.order {
            Order::DepthFirst => 0,
            Order::ShortestFirst => run.done.len(),
        };
        self.bytes += run.bytes();
        self.runs.entry(length).or_default().push(run);
    }

    fn pop(&mut self) -> Option<Run> {
        let mut shortest = self.runs.first_entry()?;
        let run = shortest.get_mut().pop();
        if shortest.get().is_empty() {
            shortest.remove();
        }
        self.bytes -= run.as_ref().map_or(0, Run::bytes);
        run
    }
}

/// What kernels were seen to do, in bytes, about.
fn tree_bytes(trees: &[Tree]) -> u64 {
    trees.iter().map(Tree::bytes).sum()
}

fn ends(run: &Run, trees: &[Tree]) -> Vec<Result<()>> {
    let end = |(tree, at): (&Tree, _)| match tree.step(at) {
        Step::Ended(result) => result.clone(),
        Step::Instruction(..) => Ok(()),
    };
    trees.iter().zip(run.at.iter().copied()).map(end).collect()
}

/// Does instructions until the order matters, or nothing can be done any more.
pub(crate) fn go_on(run: &mut Run, context: &mut Context<'_>, bounds: Bounds, found: &mut Found) -> End {
    let ranks = run.at.len();
    let (mut rank, mut idle, mut polls) = (0, 0, 0);
    loop {
        if let Some((place, broken)) = run.broken {
            return End::Broken(place, broken);
        }
        if idle < ranks {
            // The same rank goes on until it cannot; then the next one.
            if run.enabled(context, rank) == Enabled::Free {
                run.step(context, rank, None);
                found.instructions += 1;
                if found.instructions >= bounds.instructions {
                    return End::Bounded(Bound::Instructions(found.instructions));
                }
                if found.instructions.is_multiple_of(LOOKS_AT_MEMORY)
                    && run.bytes() + tree_bytes(context.trees) >= bounds.bytes
                {
                    return End::Bounded(Bound::Bytes(bounds.bytes));
                }
                idle = 0;
            } else {
                rank = (rank + 1) % ranks;
                idle += 1;
            }
            continue;
        }
        if !run.findings.is_empty() {
            return End::Faulty(in_words(run, context.trees));
        }
        let (mut choices, mut polling, mut running) = (Vec::new(), None, 0);
        for other in 0..ranks {
            match run.enabled(context, other) {
                Enabled::Ended => continue,
                Enabled::Ordered(positions) => {
                    choices.extend(positions.into_iter().map(|read| (other, read)))
                }
                Enabled::Polling => polling = Some(other),
                Enabled::Blocked | Enabled::Free => {}
            }
            running += 1;
        }
        found.has_loops |= polling.is_some();
        if running == 0 {
            return End::Finished;
        }
        if choices
            .iter()
            .any(|(other, _)| run.moves_with_latest(context, *other))
        {
            return End::Branch(choices);
        }
        match polling {
            // Not every repeated test is a loop without end.
            Some(other) if choices.is_empty() && polls < MOST_POLLS => {
                let latest = run.latest_of(context, other);
                run.step(context, other, latest);
                (polls, idle) = (polls + 1, 0);
            }
            _ => {
                return End::Faulty(vec![deadlock(run, context.trees)]);
            }
        }
    }
}
