//! The litmus table of `docs/memory-model.md` on the shipped signal cell: the rows that need nothing but stores, loads, notifies
//! and waits. Data lies in bytes that loom watches.
//!
//! A row that is `ok` must hold in every interleaving; a race must be a causality violation in one, a deadlock a deadlock.

use super::explore;
use super::small_core::SmallCore;
use ringwork_isa::{Compare, Core, Notify, Rank, Result, Shared, Signal, Tile};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

const PAGE: &str = include_str!("../../../../docs/memory-model.md");

/// A statement of the table, as `crates/check/tests/support` describes them.
#[derive(Clone, Debug)]
enum Statement {
    Store(Place),
    Load(Place),
    Notify(Place, Notify),
    Wait(Place, Compare, i32),
    If(Place, Compare, i32, Box<Statement>),
}

/// A buffer or a signal, by its letter, and whose, if it is said.
type Place = (char, Option<u32>);

fn place(text: &str) -> Option<Place> {
    let (name, rank) = match text.split_once('@') {
        Some((name, rank)) => (name, Some(rank.parse().ok()?)),
        None => (text, None),
    };
    // Parts of buffers are of data alone.
    (name.len() == 1).then(|| (name.chars().next().unwrap(), rank))
}

fn statement(text: &str) -> Option<Statement> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let compare = |text| match text {
        ">=" => Some(Compare::Ge),
        "==" => Some(Compare::Eq),
        _ => None,
    };
    Some(match words[..] {
        ["store", to] => Statement::Store(place(to)?),
        ["load", from] => Statement::Load(place(from)?),
        ["set", of, value] => Statement::Notify(place(of)?, Notify::Set(value.parse().ok()?)),
        ["add", of, value] => Statement::Notify(place(of)?, Notify::Add(value.parse().ok()?)),
        ["wait", of, how, value] => Statement::Wait(place(of)?, compare(how)?, value.parse().ok()?),
        ["if", of, how, value, ..] => {
            let then = Box::new(statement(&words[4..].join(" "))?);
            Statement::If(place(of)?, compare(how)?, value.parse().ok()?, then)
        }
        _ => return None,
    })
}

type Row = (&'static str, Vec<Vec<Statement>>, &'static str);

/// Name, programs of the ranks and verdict of the rows that can be run here.
fn rows() -> Vec<Row> {
    let table = PAGE.split("## Litmus tests").nth(1).unwrap();
    let lines = table.lines().filter(|line| line.starts_with("| ")).skip(1);
    let row = |line: &'static str| -> Option<Row> {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        let program = cells[1].trim_matches('`').replace("\\|", "|");
        let of_rank = |text: &str| -> Option<Vec<Statement>> {
            let all = text.split(';').map(str::trim).filter(|one| !one.is_empty());
            all.map(statement).collect()
        };
        let ranks: Option<Vec<_>> = program.split("||").map(of_rank).collect();
        Some((cells[0], ranks?, cells[2].trim_matches('*')))
    };
    lines.filter_map(row).collect()
}

/// Bytes of data of each rank, one for each letter.
const LETTERS: &str = "xyz";

async fn execute<C: Core>(core: &C, data: Shared<u8>, signal: Signal, one: &Statement) -> Result<()> {
    let buffer = |(name, rank): Place| -> Result<Shared<u8>> {
        let at = LETTERS.find(name).unwrap();
        let mine = data.slice(at..at + 1)?;
        rank.map_or(Ok(mine), |rank| mine.on(Rank(rank)))
    };
    // These rows use one signal of each rank.
    let cell = |(_, rank): Place| rank.map_or(Ok(signal), |rank| signal.on(Rank(rank)));
    match one {
        Statement::Store(to) => core.store(buffer(*to)?, &Tile::new(vec![7])).await,
        Statement::Load(from) => core.load(buffer(*from)?).await.map(drop),
        Statement::Notify(of, how) => core.notify(cell(*of)?, *how).await,
        Statement::Wait(of, how, value) => core.wait(cell(*of)?, *how, *value).await,
        Statement::If(of, how, value, then) => {
            if core.test(cell(*of)?, *how, *value).await? {
                return Box::pin(execute(core, data, signal, then)).await;
            }
            Ok(())
        }
    }
}

fn run(programs: &[Vec<Statement>]) {
    let ranks = u32::try_from(programs.len()).unwrap();
    let programs: Arc<[Vec<Statement>]> = programs.into();
    explore(if ranks > 2 { 2 } else { 3 }, move || {
        let core = Arc::new(SmallCore::new(ranks, LETTERS.len()));
        let programs = programs.clone();
        let run = move |core: &SmallCore, me: u32| {
            for one in &programs[me as usize] {
                let (data, signal) = (core.scratch(me), core.signals(me).at(0).unwrap());
                let end =
                    pin!(execute(core, data, signal, one)).poll(&mut Context::from_waker(Waker::noop()));
                assert_eq!(end, Poll::Ready(Ok(())));
            }
        };
        let others: Vec<_> = (1..ranks)
            .map(|me| {
                let (core, run) = (core.clone(), run.clone());
                loom::thread::spawn(move || run(&core, me))
            })
            .collect();
        run(&core, 0);
        for other in others {
            other.join().unwrap();
        }
    });
}

fn seen(programs: &[Vec<Statement>]) -> String {
    let Err(panic) = catch_unwind(AssertUnwindSafe(|| run(programs))) else {
        return "ok".into();
    };
    let text = match panic.downcast_ref::<String>() {
        Some(text) => text.as_str(),
        None => panic.downcast_ref::<&str>().copied().unwrap_or_default(),
    };
    match text {
        _ if text.contains("Causality violation") => "race".into(),
        _ if text.contains("deadlock") => "deadlock".into(),
        other => other.into(),
    }
}

#[test]
fn every_row_of_stores_loads_notifies_and_waits_has_the_verdict_of_the_table() {
    let rows = rows();
    assert!(rows.len() >= 16, "{} rows", rows.len());
    let mut wrong = Vec::new();
    for (name, programs, wanted) in rows {
        let seen = seen(&programs);
        // A cell does not know its writers.
        if seen != wanted && wanted != "misuse" {
            wrong.push(format!("{name} should be {wanted}: {seen}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
