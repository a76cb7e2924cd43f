//! What `ringwork check` prints: a line for each algorithm, or a JSON object for each program that was checked.

use super::Calls;
use ringwork::check::{Reuse, Tier, Verdict};
use ringwork_proofs::Size;
use serde::Serialize;
use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

/// The search gave up: neither proved nor wrong.
const EXIT_BOUND: u8 = 2;

/// What a verdict says of what was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Proved,
    Bound,
    Wrong,
}

fn outcome(asked: Calls, verdict: &Verdict) -> Outcome {
    match () {
        () if !verdict.is_proved() && !verdict.is_bounded() => Outcome::Wrong,
        () if verdict.is_bounded() || asked == Calls::Any && verdict.reuse.is_none() => Outcome::Bound,
        () => Outcome::Proved,
    }
}

/// The verdicts of one algorithm.
#[derive(Debug)]
pub(super) struct Line {
    name: String,
    asked: Calls,
    /// The most that a program made, and the longest period if any number of them was asked for.
    calls: u32,
    period: u32,
    ranks: Vec<u32>,
    programs: u32,
    instructions: u64,
    executions: u64,
    states: usize,
    elapsed: Duration,
    /// The kinds of proof that there are.
    tiers: BTreeSet<Tier>,
    wrong: Vec<(Size, Verdict)>,
    bounded: Vec<(Size, Verdict)>,
}

impl Line {
    pub(super) fn new(name: &str, asked: Calls) -> Line {
        Line {
            name: name.into(),
            asked,
            calls: 0,
            period: 0,
            ranks: Vec::new(),
            programs: 0,
            instructions: 0,
            executions: 0,
            states: 0,
            elapsed: Duration::ZERO,
            tiers: BTreeSet::new(),
            wrong: Vec::new(),
            bounded: Vec::new(),
        }
    }

    pub(super) fn add(&mut self, size: Size, verdict: Verdict) {
        if self.ranks.last() != Some(&verdict.ranks) {
            self.ranks.push(verdict.ranks);
        }
        self.calls = self.calls.max(verdict.calls);
        self.programs += 1;
        self.instructions += verdict.instructions;
        self.executions += verdict.executions;
        self.elapsed += verdict.elapsed;
        self.states += verdict.states;
        self.tiers.extend(verdict.tier());
        self.period = self.period.max(verdict.reuse.map_or(0, |reuse| reuse.period));
        match outcome(self.asked, &verdict) {
            Outcome::Proved => {}
            Outcome::Bound => self.bounded.push((size, verdict)),
            Outcome::Wrong => self.wrong.push((size, verdict)),
        }
    }

    /// The smallest program that has a fault.
    pub(super) fn wrong(&self) -> Option<&Verdict> {
        self.wrong.first().map(|(_, verdict)| verdict)
    }

    fn word(&self) -> &'static str {
        let is_only = |tier| self.tiers.iter().all(|one| *one == tier);
        match (self.wrong.len(), self.bounded.len()) {
            (0, 0) if is_only(Tier::One) => "proved (tier 1)",
            (0, 0) if is_only(Tier::Two) => "proved (tier 2)",
            (0, 0) if is_only(Tier::Three) => "proved (tier 3)",
            (0, 0) => "proved (tiers 1 and 2)",
            (0, _) => "BOUND REACHED",
            _ => "WRONG",
        }
    }

    /// 0 if all were proved, 1 if one is wrong, 2 if a bound was reached.
    pub(super) fn exit_code(&self) -> u8 {
        match (self.wrong.len(), self.bounded.len()) {
            (0, 0) => 0,
            (0, _) => EXIT_BOUND,
            _ => 1,
        }
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:<33} {:>6} ranks  {:>3} calls  {:<22}  {:>3} programs  {:>8} instructions  {:>7.1} ms",
            self.name,
            ranges(&self.ranks),
            match self.asked {
                Calls::Number(_) => self.calls.to_string(),
                Calls::Any => "any".into(),
            },
            self.word(),
            self.programs,
            self.instructions,
            self.elapsed.as_secs_f64() * 1e3
        )?;
        if self.period > 0 {
            write!(f, "  period {}", self.period)?;
        }
        if self.states > 0 {
            write!(f, "  {} executions, {} states", self.executions, self.states)?;
        }
        // The smallest program that shows a fault is the easiest to understand.
        if let Some((size, verdict)) = self.wrong.first() {
            write!(f, "\n{} ranks, {}:\n{verdict}", verdict.ranks, size.name())?;
            if self.wrong.len() > 1 {
                write!(f, "\nand {} more programs are wrong", self.wrong.len() - 1)?;
            }
        }
        for (size, verdict) in &self.bounded {
            write!(f, "\n{} ranks, {}: {verdict}", verdict.ranks, size.name())?;
            if verdict.is_proved() {
                write!(f, "; not for any number of calls: it did not repeat itself")?;
            }
        }
        Ok(())
    }
}

/// Numbers in order, as `2-5,8`.
fn ranges(numbers: &[u32]) -> String {
    let mut all: Vec<(u32, u32)> = Vec::new();
    for number in numbers.iter().copied() {
        match all.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => all.push((number, number)),
        }
    }
    let text = |(first, last): &(u32, u32)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    all.iter().map(text).collect::<Vec<_>>().join(",")
}

/// How many algorithms were proved, wrong, or not decided.
#[derive(Debug, Default)]
pub(super) struct Summary {
    proved: u32,
    wrong: u32,
    bounded: u32,
    programs: u32,
}

impl Summary {
    pub(super) fn count(&mut self, line: &Line) {
        self.programs += line.programs;
        match line.exit_code() {
            0 => self.proved += 1,
            EXIT_BOUND => self.bounded += 1,
            _ => self.wrong += 1,
        }
    }

    pub(super) fn exit_code(&self) -> u8 {
        match (self.wrong, self.bounded) {
            (0, 0) => 0,
            (0, _) => EXIT_BOUND,
            _ => 1,
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} proved, {} wrong, {} not decided within the bounds: {} programs",
            self.proved, self.wrong, self.bounded, self.programs
        )
    }
}

/// The answer for one program, as `--json` prints it.
#[derive(Debug, Serialize)]
struct Row<'a> {
    name: &'a str,
    ranks: u32,
    calls: u32,
    size: &'static str,
    /// `proved`, `wrong` or `bound`.
    verdict: &'static str,
    /// How it was proved: 1 by one schedule, 2 by all executions, 3 for any number of calls.
    tier: Option<u8>,
    /// If it is proved for any number of calls: how it repeats itself.
    repeats: Option<Repeats>,
    executions: u64,
    states: usize,
    instructions: u64,
    /// What ended the search, if it was not over.
    bound: Option<String>,
    seconds: f64,
    faults: Vec<String>,
}

/// From which call on a program repeats itself, and after how many.
#[derive(Debug, Serialize)]
struct Repeats {
    after: u32,
    period: u32,
}

pub(super) fn as_json(name: &str, size: Size, asked: Calls, verdict: &Verdict) -> String {
    let row = Row {
        name,
        ranks: verdict.ranks,
        calls: verdict.calls,
        size: size.name(),
        verdict: match outcome(asked, verdict) {
            Outcome::Proved => "proved",
            Outcome::Bound => "bound",
            Outcome::Wrong => "wrong",
        },
        tier: verdict.tier().map(|tier| match tier {
            Tier::One => 1,
            Tier::Two => 2,
            Tier::Three => 3,
        }),
        repeats: verdict
            .reuse
            .map(|Reuse { after, period }| Repeats { after, period }),
        executions: verdict.executions,
        states: verdict.states,
        instructions: verdict.instructions,
        bound: verdict.bound.map(|bound| bound.to_string()),
        seconds: verdict.elapsed.as_secs_f64(),
        faults: verdict.faults.iter().map(ToString::to_string).collect(),
    };
    serde_json::to_string(&row).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringwork::check::{Bounds, Program, prove};
    use ringwork::isa::{Compare, Core, Notify, Rank};

    fn line(verdict: Verdict) -> Line {
        let mut line = Line::new("mine", Calls::Number(1));
        line.add(Size::Small, verdict);
        line
    }

    /// Rank 0 adds to a signal, rank 1 looks at it.
    fn looking() -> Program {
        Program::new(2, 1, async |core, seat| {
            let signal = seat.signal(0)?.on(Rank(1))?;
            match seat.me {
                Rank(0) => core.notify(signal, Notify::Add(1)).await,
                _ => core.test(signal, Compare::Ge, 1).await.map(drop),
            }
        })
    }

    #[test]
    fn a_reached_bound_is_neither_a_proof_nor_a_fault() {
        let proved = line(looking().prove());
        let none = Bounds {
            states: 1,
            ..Bounds::default()
        };
        let bounded = line(looking().bounds(none).prove());
        let wrong = line(prove(2, 1, async |core, seat| {
            core.wait(seat.signal(0)?, Compare::Ge, 1).await
        }));
        assert_eq!((proved.exit_code(), proved.word()), (0, "proved (tier 2)"));
        assert_eq!((bounded.exit_code(), bounded.word()), (2, "BOUND REACHED"));
        assert_eq!((wrong.exit_code(), wrong.word()), (1, "WRONG"));
        let code = |lines: &[&Line]| {
            let mut summary = Summary::default();
            lines.iter().for_each(|line| summary.count(line));
            summary.exit_code()
        };
        assert_eq!(
            (
                code(&[&proved]),
                code(&[&proved, &bounded]),
                code(&[&bounded, &wrong])
            ),
            (0, 2, 1)
        );
        assert!(
            bounded
                .to_string()
                .contains("not proved: the bound of 1 states was reached")
        );
        let json = as_json("mine", Size::Small, Calls::Number(1), &bounded.bounded[0].1);
        assert!(json.contains("\"verdict\":\"bound\",\"tier\":null"), "{json}");
    }

    #[test]
    fn a_proof_of_some_calls_is_no_proof_of_any_number() {
        let mut line = Line::new("mine", Calls::Any);
        line.add(Size::Small, prove(2, 3, async |_, _| Ok(())));
        assert_eq!((line.exit_code(), line.word()), (2, "BOUND REACHED"));
        assert!(line.to_string().contains("it did not repeat itself"), "{line}");
    }

    #[test]
    fn numbers_of_ranks_are_shown_as_ranges() {
        assert_eq!(ranges(&[2, 3, 4, 8, 15, 16]), "2-4,8,15-16");
    }
}
