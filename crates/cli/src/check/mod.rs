//! `ringwork check`: proves that algorithms have no race, no deadlock and no wrong result, or shows what is wrong.

mod rows;

use crate::output::{complain, say};
use clap::Args;
use indicatif::ProgressBar;
use ringwork::check::{Schedule, Verdict, page};
use ringwork::isa::nearest;
use ringwork::layout::LayoutError;
use ringwork_proofs::{Size, Workload, workloads};
use rows::{Line, Summary, as_json};
use std::collections::BTreeSet;
use std::process::ExitCode;
use std::str::FromStr;
use std::time::Instant;

/// What to check.
#[derive(Debug, Args)]
pub(crate) struct CheckArguments {
    /// An algorithm such as `all_reduce/ring`, the beginning of its name, or `all`
    #[arg(default_value = "all")]
    name: String,
    /// Numbers of ranks
    #[arg(short, long, default_value = "2-16")]
    ranks: Ranks,
    /// Calls that each rank makes one after the other; `any` proves any number of them
    #[arg(long, value_name = "N|any", default_value = "3")]
    calls: Calls,
    /// Only data of this size: small, whole or pieces
    #[arg(long)]
    size: Option<Size>,
    /// Replay the schedule that a report printed, of one algorithm, number of ranks and size
    #[arg(long, conflicts_with = "json")]
    schedule: Option<Schedule>,
    /// One JSON object for each algorithm, number of ranks and size
    #[arg(long)]
    json: bool,
}

/// How often each rank calls the collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Calls {
    Number(u32),
    Any,
}

/// The most calls that are checked one by one.
const MOST_CALLS: u32 = 1000;

impl FromStr for Calls {
    type Err = String;

    fn from_str(text: &str) -> Result<Calls, String> {
        match text.parse() {
            _ if text == "any" => Ok(Calls::Any),
            Ok(calls @ 1..=MOST_CALLS) => Ok(Calls::Number(calls)),
            _ => Err(format!("use a number from 1 to {MOST_CALLS}, or `any`")),
        }
    }
}

/// Numbers of ranks, as `2-4,8`.
#[derive(Clone, Debug)]
struct Ranks(BTreeSet<u32>);

/// The most ranks that are checked at once.
const MOST_RANKS: u32 = 64;

impl FromStr for Ranks {
    type Err = String;

    fn from_str(text: &str) -> Result<Ranks, String> {
        let number = |part: &str| match part.parse() {
            Ok(ranks @ 2..=MOST_RANKS) => Ok(ranks),
            _ => Err(format!(
                "`{part}` is not a number of ranks from 2 to {MOST_RANKS}; use for example 2-4,8"
            )),
        };
        let mut all = BTreeSet::new();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            all.extend(number(first)?..=number(last)?);
        }
        if all.is_empty() {
            return Err(format!("`{text}` has no number of ranks; use for example 2-4,8"));
        }
        Ok(Ranks(all))
    }
}

pub(crate) fn run(arguments: &CheckArguments) -> ExitCode {
    let chosen = match choose(&arguments.name, workloads()) {
        Ok(chosen) => chosen,
        Err(problem) => {
            complain(problem);
            return ExitCode::FAILURE;
        }
    };
    if let Some(schedule) = &arguments.schedule {
        return replay(&chosen, arguments, schedule);
    }
    let begin = Instant::now();
    let bar = ProgressBar::new(chosen.len() as u64);
    let mut summary = Summary::default();
    for workload in &chosen {
        bar.set_message(workload.name.clone());
        let line = match check(workload, arguments, &mut |size, verdict| {
            if arguments.json {
                let row = as_json(&workload.name, size, arguments.calls, verdict);
                bar.suspend(|| say!("{row}"));
            }
        }) {
            Ok(line) => line,
            Err(error) => {
                complain(format_args!("{}: {error}", workload.name));
                return ExitCode::FAILURE;
            }
        };
        summary.count(&line);
        if !arguments.json {
            bar.suspend(|| say!("{line}"));
            if let Some(verdict) = line.wrong() {
                bar.suspend(|| draw(&workload.name, verdict));
            }
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    if !arguments.json {
        say!("{summary} in {:.1} s", begin.elapsed().as_secs_f64());
    }
    ExitCode::from(summary.exit_code())
}

fn sizes(arguments: &CheckArguments) -> impl Iterator<Item = Size> + use<> {
    let only = arguments.size;
    Size::ALL
        .into_iter()
        .filter(move |size| only.is_none_or(|only| only == *size))
}

/// Runs one execution along a schedule, and says what it does and what is wrong with it.
fn replay(chosen: &[Workload], arguments: &CheckArguments, schedule: &Schedule) -> ExitCode {
    let ranks = Vec::from_iter(arguments.ranks.0.iter().copied());
    let ([workload], [ranks], Some(size), Calls::Number(calls)) =
        (chosen, &ranks[..], arguments.size, arguments.calls)
    else {
        complain(
            "a schedule is of one program; name the algorithm, one number of --ranks, a --size and the number of --calls",
        );
        return ExitCode::FAILURE;
    };
    let program = match workload.program(*ranks, calls, size) {
        Ok(program) => program,
        Err(error) => {
            complain(format_args!("{}: {error}", workload.name));
            return ExitCode::FAILURE;
        }
    };
    match program.replay(schedule) {
        Ok(replay) => {
            for step in &replay.steps {
                say!("{step}  {}", step.signal);
            }
            for fault in &replay.faults {
                say!("{fault}");
            }
            if replay.faults.is_empty() {
                say!("nothing is wrong after {} instructions", replay.steps.len());
            }
            ExitCode::from(u8::from(!replay.faults.is_empty()))
        }
        Err(error) => {
            complain(error);
            ExitCode::FAILURE
        }
    }
}

/// Writes the picture of a fault beside the report.
fn draw(name: &str, verdict: &Verdict) {
    let Some(page) = page(name, verdict) else { return };
    let file = format!("check-{}.html", name.replace('/', "-"));
    match std::fs::write(&file, page) {
        Ok(()) => say!("picture in {file}"),
        Err(error) => complain(format_args!("{file}: {error}")),
    }
}

/// Checks one workload at every number of ranks and size.
fn check(
    workload: &Workload,
    arguments: &CheckArguments,
    each: &mut dyn FnMut(Size, &Verdict),
) -> Result<Line, LayoutError> {
    let mut line = Line::new(&workload.name, arguments.calls);
    for ranks in arguments.ranks.0.iter().copied() {
        if !workload.fits(ranks) {
            continue;
        }
        for size in sizes(arguments) {
            let verdict = match arguments.calls {
                Calls::Number(calls) => workload.program(ranks, calls, size)?.prove(),
                Calls::Any => workload.prove_any_calls(ranks, size)?,
            };
            each(size, &verdict);
            line.add(size, verdict);
        }
    }
    Ok(line)
}

/// The programs of this name, or whose names begin so.
fn choose(name: &str, mut all: Vec<Workload>) -> Result<Vec<Workload>, String> {
    if name == "all" {
        return Ok(all);
    }
    let names: Vec<String> = all.iter().map(|one| one.name.clone()).collect();
    let is_exact = names.iter().any(|known| known == name);
    all.retain(|one| {
        if is_exact {
            one.name == name
        } else {
            one.name.starts_with(name)
        }
    });
    if !all.is_empty() {
        return Ok(all);
    }
    let meant = nearest(name, names.iter().map(String::as_str));
    let meant = meant
        .map(|name| format!("did you mean `{name}`? "))
        .unwrap_or_default();
    Err(format!(
        "there is no algorithm `{}` to check; {meant}use `all` or one of {}",
        name.escape_debug(),
        names.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_found_whole_or_by_its_beginning() {
        let names = |name| -> Vec<String> {
            let chosen = choose(name, workloads()).unwrap();
            chosen.into_iter().map(|one| one.name).collect()
        };
        assert_eq!(names("broadcast/staged"), ["broadcast/staged"]);
        assert!(names("all_reduce").len() > 10 && names("all").len() > names("all_reduce").len());
        let problem = choose("all_reduce/rign", workloads()).unwrap_err();
        assert!(problem.contains("did you mean `all_reduce/ring`?"), "{problem}");
    }

    #[test]
    fn calls_are_a_number_or_any() {
        let parse = |text: &str| text.parse::<Calls>();
        assert_eq!((parse("3"), parse("any")), (Ok(Calls::Number(3)), Ok(Calls::Any)));
        for wrong in ["", "0", "1001", "all"] {
            assert!(parse(wrong).unwrap_err().contains("`any`"), "{wrong}");
        }
    }

    #[test]
    fn ranks_are_numbers_and_ranges() {
        let parse = |text: &str| text.parse::<Ranks>().map(|ranks| Vec::from_iter(ranks.0));
        assert_eq!(parse("8,2-4,3").unwrap(), [2, 3, 4, 8]);
        for wrong in ["", "1", "65", "4-2", "2-", "two"] {
            assert!(parse(wrong).unwrap_err().contains("for example 2-4,8"), "{wrong}");
        }
    }
}
