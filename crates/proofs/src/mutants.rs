//! Mutants of every algorithm: each must be noticed by a check, or stand in the list of survivors with its reason.
//!
//! For each algorithm and number of ranks, every [`Mutant`] of every instruction is checked in the algorithm's workloads,
//! until one of them has a fault. A mutant that no workload notices is tried in a mixture of all algorithms that share a
//! team: some instructions are needed only there. What is left survives.
//!
//! Lines move when a file is edited, so that sites are numbered: `team.rs notify 2` is the second line of `team.rs` with a
//! notify that any workload executes.

use crate::{Size, Workload, workloads};
use ringwork_check::{Bounds, Mutant, Mutation, Noticed, Program};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Calls of each rank: two periods of what is used in turn, and one.
const CALLS: u32 = 5;

/// A mutant is not searched further than this.
const BOUNDS: Bounds = Bounds {
    states: 300,
    instructions: 200_000,
    bytes: 1 << 30,
};

/// What became of the mutants of one algorithm.
#[derive(Clone, Debug, Default)]
struct Outcome {
    sites: BTreeSet<Mutant>,
    killed: BTreeSet<Mutant>,
    /// Survivors; whether a bound was reached.
    survived: BTreeMap<Mutant, bool>,
}

/// A mutant that no check notices.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Survivor {
    /// Its site: the file, the instruction, and which of the lines with it.
    pub site: String,
    /// What is wrong.
    pub mutation: Mutation,
    /// On rank 0 only.
    pub is_on_first_only: bool,
    /// The algorithms in which it survives, each with its numbers of ranks.
    pub algorithms: BTreeMap<String, BTreeSet<u32>>,
    /// Where the site is now.
    pub line: String,
    /// In one of them no fault was found within the bounds.
    pub is_bounded: bool,
}

impl Survivor {
    /// What is compared: the site, the mutation, and where it survives.
    #[must_use]
    pub fn key(&self) -> String {
        let algorithms = self.algorithms.iter().map(|(name, ranks)| {
            let ranks: Vec<String> = ranks.iter().map(u32::to_string).collect();
            format!("{name} {}", ranks.join(" "))
        });
        let algorithms: Vec<String> = algorithms.collect();
        let first = if self.is_on_first_only {
            ", rank 0 only"
        } else {
            ""
        };
        format!(
            "{} | {}{first} | {}",
            self.site,
            self.mutation,
            algorithms.join(", ")
        )
    }
}

/// What became of all mutants.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Mutants of all sites that were noticed at some number of ranks in some algorithm.
    pub killed_sites: usize,
    /// By number of ranks: those, and all that change something.
    pub sites: BTreeMap<u32, (usize, usize)>,
    /// Mutants of each algorithm and number of ranks that were noticed.
    pub killed: usize,
    /// All of them.
    pub mutants: usize,
    /// Those that were not.
    pub survivors: Vec<Survivor>,
}

/// Checks every mutant of every algorithm at these numbers of ranks, on several threads.
#[must_use]
pub fn check_all(ranks: &[u32], threads: usize) -> Report {
    let all = workloads();
    let mut groups: BTreeMap<String, Vec<&Workload>> = BTreeMap::new();
    for workload in all.iter().filter(|one| !one.is_mixed()) {
        groups.entry(workload.algorithm()).or_default().push(workload);
    }
    let mixture = all.iter().find(|one| one.is_mixed());
    let jobs: Vec<(&String, &Vec<&Workload>, u32)> = ranks
        .iter()
        .rev()
        .flat_map(|ranks| groups.iter().map(move |(name, group)| (name, group, *ranks)))
        .collect();
    let (next, outcomes) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some((name, group, ranks)) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let outcome = check(group, mixture, *ranks);
                    if let Ok(mut outcomes) = outcomes.lock() {
                        outcomes.push(((*name).clone(), *ranks, outcome));
                    }
                }
            });
        }
    });
    report(&outcomes.into_inner().unwrap_or_default())
}

/// The programs in which a mutant of these workloads is looked for, those first that notice most.
fn programs(group: &[&Workload], ranks: u32) -> Vec<Program> {
    let sizes = [Size::Pieces, Size::Whole, Size::Small];
    let all = sizes
        .iter()
        .flat_map(|size| group.iter().map(move |workload| (workload, *size)));
    let fitting = all.filter(|(workload, _)| workload.fits(ranks));
    let programs = fitting.filter_map(|(workload, size)| workload.program(ranks, CALLS, size).ok());
    programs.map(|program| program.bounds(BOUNDS)).collect()
}

fn check(group: &[&Workload], mixture: Option<&Workload>, ranks: u32) -> Outcome {
    let mut outcome = Outcome::default();
    let programs = programs(group, ranks);
    let mutants: BTreeSet<Mutant> = programs.iter().flat_map(Program::mutants).collect();
    let mixed: Vec<Program> = mixture.map_or_else(Vec::new, |one| programs_of_mixture(one, ranks));
    for mutant in mutants {
        outcome.sites.insert(mutant.clone());
        let (mut has_changed, mut is_bounded, mut is_killed) = (false, false, false);
        for (index, program) in programs.iter().chain(&mixed).enumerate() {
            // In the mixture only what the algorithm itself does counts as a change.
            if index >= programs.len() && !has_changed {
                break;
            }
            match program.fault_of(&mutant) {
                None => continue,
                Some(Noticed::Fault(_)) => is_killed = true,
                Some(Noticed::Bound) => is_bounded = true,
                Some(Noticed::Nothing) => {}
            }
            has_changed = true;
            if is_killed {
                break;
            }
        }
        match (has_changed, is_killed) {
            (false, _) => {}
            (true, true) => drop(outcome.killed.insert(mutant)),
            (true, false) => drop(outcome.survived.insert(mutant, is_bounded)),
        }
    }
    outcome
}

fn programs_of_mixture(mixture: &Workload, ranks: u32) -> Vec<Program> {
    programs(&[mixture], ranks).into_iter().take(1).collect()
}

fn report(outcomes: &[(String, u32, Outcome)]) -> Report {
    let numbers = numbers(outcomes.iter().flat_map(|(_, _, outcome)| &outcome.sites));
    let mut report = Report::default();
    let mut killed: BTreeMap<u32, BTreeSet<&Mutant>> = BTreeMap::new();
    let mut changed = killed.clone();
    let mut survivors: BTreeMap<&Mutant, Survivor> = BTreeMap::new();
    for (name, ranks, outcome) in outcomes {
        killed.entry(*ranks).or_default().extend(&outcome.killed);
        let all = outcome.killed.iter().chain(outcome.survived.keys());
        changed.entry(*ranks).or_default().extend(all);
        report.killed += outcome.killed.len();
        report.mutants += outcome.killed.len() + outcome.survived.len();
        for (mutant, is_bounded) in &outcome.survived {
            let survivor = survivors.entry(mutant).or_insert_with(|| Survivor {
                site: site(mutant, &numbers),
                mutation: mutant.mutation,
                is_on_first_only: mutant.is_on_first_only,
                algorithms: BTreeMap::new(),
                line: mutant.site().to_string(),
                is_bounded: false,
            });
            survivor.is_bounded |= is_bounded;
            survivor
                .algorithms
                .entry(name.clone())
                .or_default()
                .insert(*ranks);
        }
    }
    for (ranks, all) in changed {
        let found = killed.get(&ranks).map_or(0, BTreeSet::len);
        report.sites.insert(ranks, (found, all.len()));
    }
    report.killed_sites = killed.into_values().flatten().collect::<BTreeSet<_>>().len();
    report.survivors = survivors.into_values().collect();
    report.survivors.sort();
    report
}

type Line = (&'static str, (u32, u32), &'static str);

/// The number of each line among those of its file that have the same instruction.
fn numbers<'a>(mutants: impl Iterator<Item = &'a Mutant>) -> BTreeMap<Line, usize> {
    let lines: BTreeSet<Line> = mutants.map(|one| (one.file, one.at, one.instruction)).collect();
    let mut counts: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    let number = |line: Line| {
        let count = counts.entry((line.0, line.2)).or_default();
        *count += 1;
        (line, *count)
    };
    lines.into_iter().map(number).collect()
}

fn site(mutant: &Mutant, numbers: &BTreeMap<Line, usize>) -> String {
    let number = numbers
        .get(&(mutant.file, mutant.at, mutant.instruction))
        .copied();
    let file = mutant
        .file
        .rsplit_once("src/")
        .map_or(mutant.file, |(_, file)| file);
    format!("{file} {} {}", mutant.instruction, number.unwrap_or(0))
}
