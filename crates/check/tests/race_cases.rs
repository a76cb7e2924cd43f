//! The public cases that race checkers are measured by: the verdict of each, and both sides of each race.
//!
//! The programs are in `race_cases.txt`. Each is also checked with the ranks exchanged, twice in a row, with a packet
//! or a message in place of each notify and wait, and, where two statements race, with ranges that overlap by one
//! element and with ranges that only touch.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod support;

use ringwork_check::{Fault, Side, Verdict};
use std::collections::BTreeSet;
use std::fmt;
use support::{prove, word};

/// A program, and what is wrong with it.
#[derive(Clone, Debug)]
struct Case {
    names: String,
    /// Statements of each rank, without marks.
    ranks: Vec<Vec<String>>,
    /// Rank and number of the statements that conflict.
    marked: BTreeSet<(usize, usize)>,
    wanted: &'static str,
}

impl Case {
    fn new(names: &str, program: &str) -> Case {
        let mut marked = BTreeSet::new();
        let mut statement = |rank, number, text: &str| {
            let plain = text.trim().trim_start_matches(['!', '?']);
            if plain != text.trim() {
                marked.insert((rank, number));
            }
            plain.to_owned()
        };
        let ranks = program.split("||").enumerate().map(|(rank, all)| {
            let all = all.split(';').filter(|text| !text.trim().is_empty());
            all.enumerate()
                .map(|(number, text)| statement(rank, number, text))
                .collect()
        });
        let ranks = ranks.collect();
        let wanted = match (program.contains('!'), program.contains('?')) {
            (true, _) => "race",
            (_, true) => "misuse",
            _ => "ok",
        };
        Case {
            names: names.trim().to_owned(),
            ranks,
            marked,
            wanted,
        }
    }

    fn program(&self) -> String {
        let ranks = self.ranks.iter().map(|all| all.join("; "));
        ranks.collect::<Vec<_>>().join(" || ")
    }

    /// What the verdict has wrong: the kind of fault, or its sides.
    fn difference(&self, verdict: &Verdict) -> Option<String> {
        if word(verdict) != self.wanted {
            return Some(format!("should be {}", self.wanted));
        }
        let longest = self.ranks.iter().map(Vec::len).max().unwrap_or(1);
        let mut seen = BTreeSet::new();
        for fault in &verdict.faults {
            let sides = match fault {
                Fault::Race(race) => vec![&race.first, &race.second],
                Fault::Misuse { sides, .. } => sides.iter().collect(),
                _ => return Some("another fault".into()),
            };
            let [first, second] = sides[..] else {
                return Some("a fault has two sides".into());
            };
            if (first.rank, first.call) == (second.rank, second.call) {
                return Some("the two sides are one statement".into());
            }
            for side in [first, second] {
                let at = (side.rank as usize, side.call as usize % longest);
                if !self.marked.contains(&at) {
                    return Some(format!("{side} is not a side"));
                }
                if !self.is_named(at, side) {
                    return Some(format!("{side} is not `{}`", self.ranks[at.0][at.1]));
                }
                seen.insert(at);
            }
        }
        (self.marked.len() == 2 && seen != self.marked).then(|| "a side is missing".into())
    }

    /// Whether a side has the instruction and a line of its statement.
    fn is_named(&self, (rank, number): (usize, usize), side: &Side) -> bool {
        let words: Vec<&str> = self.ranks[rank][number].split(' ').collect();
        let verb = words.iter().find(|word| !["deep", "via"].contains(word));
        // A statement is reported with its own line, a collective with the line of the instruction inside it.
        let (instruction, file) = match *verb.unwrap() {
            "begin" => ("copy_async", "support/mod.rs"),
            "set" | "add" => ("notify", "support/mod.rs"),
            "sum" => ("reduce", "one_phase.rs"),
            verb => (verb, "support/mod.rs"),
        };
        side.instruction == instruction && side.site.file.ends_with(file) && side.site.line > 0
    }

    /// Rank `r` becomes rank `r + 1`.
    fn with_ranks_exchanged(&self) -> Case {
        let count = self.ranks.len();
        let next = |rank: &str| (rank.parse::<usize>().unwrap() + 1) % count;
        let rename = |statement: &String| {
            let words = statement.split(' ').enumerate().map(|(index, word)| {
                let is_peer = index == 1
                    && ["send ", "recv ", "get "]
                        .iter()
                        .any(|verb| statement.starts_with(verb));
                match word.split_once('@') {
                    Some((name, rank)) => format!("{name}@{}", next(rank)),
                    None if is_peer => next(word).to_string(),
                    None => word.to_owned(),
                }
            });
            words.collect::<Vec<_>>().join(" ")
        };
        let mut ranks: Vec<Vec<String>> = self
            .ranks
            .iter()
            .map(|all| all.iter().map(rename).collect())
            .collect();
        ranks.rotate_right(1);
        let marked = self
            .marked
            .iter()
            .map(|(rank, number)| ((rank + 1) % count, *number));
        Case {
            ranks,
            marked: marked.collect(),
            ..self.clone()
        }
    }

    /// With another way of telling a rank that data has come, if each signal is set once.
    fn with_notifies_as(&self, [tell, hear]: [&str; 2]) -> Option<Case> {
        let mut other = self.clone();
        let mut told = Vec::new();
        for (rank, all) in self.ranks.iter().enumerate() {
            for (number, statement) in all.iter().enumerate() {
                let words: Vec<&str> = statement.split(' ').collect();
                let ["set", signal, "1"] = words[..] else { continue };
                let (name, to) = signal.split_once('@')?;
                let reader = to.parse::<usize>().ok()?;
                let wait = format!("wait {name} >= 1");
                let heard = self.ranks[reader].iter().position(|one| *one == wait)?;
                other.ranks[rank][number] = tell.replace("PEER", to);
                other.ranks[reader][heard] = hear.replace("PEER", &rank.to_string());
                told.push(rank);
            }
        }
        let is_once = told.iter().collect::<BTreeSet<_>>().len() == told.len();
        (!told.is_empty() && is_once).then_some(other)
    }

    /// The second of two statements that race touches this part of what both touch.
    fn with_range(&self, part: &str) -> Option<Case> {
        let places = |(rank, number): &(usize, usize)| -> BTreeSet<(char, String)> {
            let words = self.ranks[*rank][*number].split(' ').skip(1);
            let place = |word: &str| {
                let (name, owner) = word
                    .split_once('@')
                    .map_or((word, rank.to_string()), |(name, owner)| (name, owner.to_owned()));
                (name.len() == 1).then(|| (name.chars().next().unwrap(), owner))
            };
            words.filter_map(place).collect()
        };
        let [first, second] = self.marked.iter().collect::<Vec<_>>()[..] else {
            return None;
        };
        let both: BTreeSet<_> = places(first).intersection(&places(second)).cloned().collect();
        if both.is_empty() || self.wanted != "race" {
            return None;
        }
        let mut other = self.clone();
        let (rank, number) = *second;
        let words = self.ranks[rank][number].split(' ').map(|word| {
            let (name, owner) = word.split_once('@').unwrap_or((word, ""));
            let is_both = both.iter().any(|(place, of)| {
                name == place.to_string() && (of == owner || owner.is_empty() && *of == rank.to_string())
            });
            match (is_both, owner) {
                (false, _) => word.to_owned(),
                (true, "") => format!("{name}{part}"),
                (true, owner) => format!("{name}{part}@{owner}"),
            }
        });
        other.ranks[rank][number] = words.collect::<Vec<_>>().join(" ");
        Some(other)
    }
}

/// Verdicts that were right and wrong.
#[derive(Debug, Default)]
struct Score {
    true_positives: usize,
    false_positives: usize,
    true_negatives: usize,
    false_negatives: usize,
}

impl Score {
    fn count(&mut self, wanted: &str, got: &str, times: usize) {
        *match (wanted == "ok", got == "ok") {
            (false, false) => &mut self.true_positives,
            (true, false) => &mut self.false_positives,
            (true, true) => &mut self.true_negatives,
            (false, true) => &mut self.false_negatives,
        } += times;
    }
}

impl fmt::Display for Score {
    #[expect(clippy::cast_precision_loss, reason = "a few hundred cases")]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let found = self.true_positives as f64;
        let precision = found / (self.true_positives + self.false_positives) as f64;
        let recall = found / (self.true_positives + self.false_negatives) as f64;
        write!(
            f,
            "true positives {}, false positives {}, true negatives {}, false negatives {}: precision {precision:.3}, recall {recall:.3}",
            self.true_positives, self.false_positives, self.true_negatives, self.false_negatives
        )
    }
}

fn cases() -> Vec<Case> {
    let lines = include_str!("race_cases.txt").lines();
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let (names, program) = line.split_once('|').unwrap();
            Case::new(names, program)
        })
        .collect()
}

/// Checks cases; says what is wrong, and counts.
fn check(cases: &[Case], score: &mut Score, times: u32) -> Vec<String> {
    let mut wrong = Vec::new();
    for case in cases {
        let verdict = prove(&case.program(), times);
        score.count(case.wanted, word(&verdict), case.names.split(' ').count());
        if let Some(difference) = case.difference(&verdict) {
            wrong.push(format!(
                "{}: {}\n{difference}: {verdict}\n",
                case.names,
                case.program()
            ));
        }
    }
    wrong
}

#[test]
fn every_case_has_its_verdict_and_both_sides() {
    let cases = cases();
    let names: Vec<&str> = cases.iter().flat_map(|case| case.names.split(' ')).collect();
    let of = |letter| names.iter().filter(|name| name.starts_with(letter)).count();
    assert_eq!((of('S'), of('G'), of('M')), (74, 73, 66));
    assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), 213);
    let mut score = Score::default();
    let wrong = check(&cases, &mut score, 1);
    println!("213 cases: {score}");
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn every_case_has_the_same_verdict_in_its_other_forms() {
    let cases = cases();
    let mut forms: Vec<Case> = cases.iter().map(Case::with_ranks_exchanged).collect();
    for how in [["put 1 p", "get PEER 1 q"], ["send PEER", "recv PEER"]] {
        let told = cases.iter().filter_map(|case| case.with_notifies_as(how));
        forms.extend(told.collect::<Vec<_>>());
    }
    forms.extend(cases.iter().filter_map(|case| case.with_range("[3..7]")));
    let apart = cases.iter().filter_map(|case| case.with_range("[4..8]"));
    forms.extend(apart.map(|case| Case {
        marked: BTreeSet::new(),
        wanted: "ok",
        ..case
    }));
    let mut score = Score::default();
    let mut wrong = check(&forms, &mut score, 1);
    // Twice in a row: what one run leaves behind may race with the next one, so that only the races are the same.
    let again: Vec<Case> = cases.into_iter().filter(|case| case.wanted == "race").collect();
    for case in &again {
        let verdict = prove(&case.program(), 2);
        score.count(case.wanted, word(&verdict), 1);
        if word(&verdict) != case.wanted {
            wrong.push(format!("{}, twice: {}\n{verdict}", case.names, case.program()));
        }
    }
    println!("{} other forms: {score}", forms.len() + again.len());
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}
