//! Small programs as text, for tables of cases.
//!
//! The programs of the ranks are separated by `||`, their statements by `;`. A name is a place in the own window; `x@1` is the
//! same place in the window of rank 1. `f g h d` are signals, all other single letters are buffers of four elements, and
//! `x[1..3]` is a part of one. Every statement is a call of its own, so that a report names it by its number.
//!
//! | statement | instruction |
//! |---|---|
//! | `store x`, `load x`, `copy x y` | to `x`; of `x`; to `x` from `y` |
//! | `begin x y`, `join`, `join x` | `copy_async` to `x` from `y`; joins all that are under way, or those to `x`. The last statement joins all |
//! | `set f 1`, `add f 1` | `notify` |
//! | `wait f >= 1`, `poll f >= 1` | `wait`; a loop of `test` |
//! | `if f >= 1 load x` | the statement only if the `test` holds |
//! | `peek f x` | the value of `f`, stored to `x` |
//! | `put 1 x`, `get 0 1 x` | a packet of epoch 1 from `x`; the packet of rank 0 and epoch 1 to `x` |
//! | `send 1`, `recv 0` | a message to rank 1; the next message of rank 0 |
//! | `meet` | the barrier of all ranks |
//! | `sum y x`, `pull w` | an all-reduce of all ranks from `x` to `y`; one in the window, in place |
//! | `deep STATEMENT`, `via STATEMENT` | the statement within three helpers; in a closure |
//! | `fail x 0 y 0` | an error if the first element of `x` is 0 and that of `y` is 0 |
#![allow(clippy::unwrap_used, dead_code, reason = "helpers of tests")]

use ringwork_check::{Fault, Program, Seat, Verdict};
use ringwork_collectives::Team;
use ringwork_collectives::all_reduce::one_phase;
use ringwork_collectives::window::{self, Spread};
use ringwork_isa::stepped::SteppedCore;
use ringwork_isa::{
    Barrier, Compare, Copying, Core, Epoch, Error, Notify, Packets, Port, Queues, Rank, ReduceOp, Region,
    Result, Shared, Signal, Tile,
};
use std::cell::RefCell;

const ELEMENTS: usize = 4;
/// Elements from one buffer to the next: parts may go past the four.
const PITCH: usize = 16;
/// Bytes before the buffers: packets, and slots of queues from [`SLOTS`] on.
const BUFFERS: u64 = 4096;
const SLOTS: u64 = 2048;
const SCRATCH: u64 = 32 << 10;
/// Signals behind those of the barrier, the packets and `f g h d`.
const TEAM_CELLS: u32 = 8;
const QUEUE_CELLS: u32 = 16;

/// What a program does wrong, as tables say it.
pub(crate) fn word(verdict: &Verdict) -> &'static str {
    match verdict.faults.first() {
        None if verdict.is_bounded() => "bound",
        None => "ok",
        Some(Fault::Race(_)) => "race",
        Some(Fault::Deadlock(_)) => "deadlock",
        Some(Fault::Misuse { .. }) => "misuse",
        Some(Fault::Failed { .. }) => "reached",
        Some(Fault::Wrong { .. }) => "wrong",
    }
}

/// Copies of one rank that are under way, each with the place that it writes.
type UnderWay = Vec<(String, Copying)>;

/// A program that is written as text.
#[derive(Debug)]
pub(crate) struct Text {
    ranks: Vec<Vec<String>>,
    under_way: Vec<RefCell<UnderWay>>,
}

impl Text {
    pub(crate) fn new(text: &str) -> Text {
        let ranks: Vec<Vec<String>> = text.split("||").map(statements).collect();
        let under_way = ranks.iter().map(|_| RefCell::default()).collect();
        Text { ranks, under_way }
    }

    pub(crate) fn ranks(&self) -> u32 {
        u32::try_from(self.ranks.len()).unwrap()
    }

    /// Statements of the rank that has most.
    pub(crate) fn longest(&self) -> usize {
        self.ranks.iter().map(Vec::len).max().unwrap()
    }

    /// Does the statement of a rank that is its call.
    pub(crate) async fn call(&self, core: &SteppedCore, seat: Seat) -> Result<()> {
        let me = seat.me.0 as usize;
        let number = seat.call as usize % self.longest();
        if number == 0 {
            // A kernel may be started again from its beginning.
            self.under_way[me].take();
        }
        let mut mine = self.under_way[me].take();
        if let Some(statement) = self.ranks[me].get(number) {
            execute(core, &seat, statement, &mut mine).await?;
        }
        if number + 1 == self.longest() {
            execute(core, &seat, "join", &mut mine).await?;
        }
        self.under_way[me].replace(mine);
        Ok(())
    }
}

/// Checks a program that is written as text, done so often.
pub(crate) fn prove(text: &str, times: u32) -> Verdict {
    let text = Text::new(text);
    let (ranks, longest) = (text.ranks(), u32::try_from(text.longest()).unwrap());
    let kernel = async move |core: &SteppedCore, seat: Seat| text.call(core, seat).await;
    Program::new(ranks, times * longest, kernel).prove()
}

fn statements(text: &str) -> Vec<String> {
    let all = text.split(';').map(str::trim);
    all.filter(|one| !one.is_empty()).map(str::to_owned).collect()
}

async fn execute(core: &SteppedCore, seat: &Seat, statement: &str, under_way: &mut UnderWay) -> Result<()> {
    let words: Vec<&str> = statement.split_whitespace().collect();
    let full = || Tile::new(vec![7; ELEMENTS]);
    match words[..] {
        ["store", to] => {
            let to = buffer(seat, to)?;
            core.store(to, &Tile::new(vec![7; to.len()])).await
        }
        ["load", from] => core.load(buffer(seat, from)?).await.map(drop),
        ["copy", to, from] => core.copy(buffer(seat, to)?, buffer(seat, from)?).await,
        ["begin", to, from] => {
            let copy = core.copy_async(buffer(seat, to)?, buffer(seat, from)?).await?;
            under_way.push((to.to_owned(), copy));
            Ok(())
        }
        ["join", ref only @ ..] => {
            let is_meant = |to: &str| only.iter().all(|letter| to.starts_with(letter));
            for (_, copy) in under_way.extract_if(.., |(to, _)| is_meant(to)) {
                core.join(copy).await?;
            }
            Ok(())
        }
        ["send", peer] => core.send(port(seat, number(peer))?, &full()).await,
        ["recv", peer] => core.recv(port(seat, number(peer))?, ELEMENTS).await.map(drop),
        ["sum", to, from] => {
            let team = team(seat)?;
            let (to, from) = (buffer(seat, to)?.span(), buffer(seat, from)?.span());
            one_phase(
                core,
                team,
                Region::of_span(from),
                Region::of_span(to),
                ReduceOp::Sum,
            )
            .await
        }
        ["pull", data] => {
            let (meet, data) = (Barrier::new(seat.signals(TEAM_CELLS)), buffer(seat, data)?);
            window::all_reduce(core, meet, data.erase(), ReduceOp::Sum, Spread::Pull).await
        }
        ["deep", ..] => outer(core, seat, &words[1..].join(" "), under_way).await,
        ["via", ..] => {
            let rest = words[1..].join(" ");
            let function =
                async |under_way: &mut UnderWay| Box::pin(execute(core, seat, &rest, under_way)).await;
            function(under_way).await
        }
        ["set", to, value] => core.notify(signal(seat, to)?, Notify::Set(number(value))).await,
        ["add", to, value] => core.notify(signal(seat, to)?, Notify::Add(number(value))).await,
        ["wait", of, how, value] => core.wait(signal(seat, of)?, compare(how), number(value)).await,
        ["poll", of, how, value] => {
            while !core.test(signal(seat, of)?, compare(how), number(value)).await? {}
            Ok(())
        }
        ["if", of, how, value, ..] => {
            if core.test(signal(seat, of)?, compare(how), number(value)).await? {
                let rest = words[4..].join(" ");
                return Box::pin(execute(core, seat, &rest, under_way)).await;
            }
            Ok(())
        }
        ["peek", of, to] => {
            let mut seen = full();
            seen.values_mut()[0] = core.peek(signal(seat, of)?).await?;
            core.store(buffer(seat, to)?, &seen).await
        }
        ["put", epoch, from] => {
            let epoch = Epoch::of(number(epoch));
            core.put_packet(&packets(seat)?, buffer(seat, from)?, epoch).await
        }
        ["get", peer, epoch, to] => {
            let (peer, epoch) = (Rank(number(peer).cast_unsigned()), Epoch::of(number(epoch)));
            let to = buffer(seat, to)?;
            core.get_packet(to, &packets(seat)?.on(peer)?, epoch).await
        }
        ["meet"] => seat.barrier().arrive_and_wait(core).await,
        ["fail", a, is_a, b, is_b] => {
            let first = core.load(buffer(seat, a)?).await?.values()[0];
            let second = core.load(buffer(seat, b)?).await?.values()[0];
            match (first, second) == (number(is_a), number(is_b)) {
                true => Err(Error::failed("the outcome is reached")),
                false => Ok(()),
            }
        }
        _ => panic!("`{statement}` is not a statement"),
    }
}

async fn outer(core: &SteppedCore, seat: &Seat, statement: &str, under_way: &mut UnderWay) -> Result<()> {
    inner(core, seat, statement, under_way).await
}

async fn inner(core: &SteppedCore, seat: &Seat, statement: &str, under_way: &mut UnderWay) -> Result<()> {
    Box::pin(execute(core, seat, statement, under_way)).await
}

fn number(text: &str) -> i32 {
    text.parse().unwrap()
}

fn compare(text: &str) -> Compare {
    match text {
        ">=" => Compare::Ge,
        ">" => Compare::Gt,
        "==" => Compare::Eq,
        "!=" => Compare::Ne,
        "<" => Compare::Lt,
        "<=" => Compare::Le,
        _ => panic!("`{text}` does not compare"),
    }
}

fn split(seat: &Seat, text: &str) -> (char, Rank) {
    let (name, rank) = match text.split_once('@') {
        Some((name, rank)) => (name, Rank(rank.parse().unwrap())),
        None => (text, seat.me),
    };
    (name.chars().next().unwrap(), rank)
}

fn signal(seat: &Seat, text: &str) -> Result<Signal> {
    let (name, rank) = split(seat, text);
    let index = "fghd"
        .find(name)
        .unwrap_or_else(|| panic!("`{text}` is not a signal"));
    seat.signal(2 + u32::try_from(index).unwrap())?.on(rank)
}

fn buffer(seat: &Seat, text: &str) -> Result<Shared<i32>> {
    let (text, part) = match text.split_once('[') {
        Some((head, tail)) => {
            let (part, rest) = tail.split_once(']').unwrap();
            let (start, end) = part.split_once("..").unwrap();
            (
                format!("{head}{rest}"),
                start.parse().unwrap()..end.parse().unwrap(),
            )
        }
        None => (text.to_owned(), 0..ELEMENTS),
    };
    let (name, rank) = split(seat, &text);
    assert!(!"fghd".contains(name), "`{text}` is not a buffer");
    let offset = BUFFERS + (PITCH * 4) as u64 * u64::from(u32::from(name));
    let whole = seat.buffer::<i32>(offset, PITCH);
    whole.on(rank)?.slice(part)
}

fn packets(seat: &Seat) -> Result<Packets> {
    let area = seat.buffer::<i64>(0, 256);
    Packets::new(area, (0, 72, 128), 2, seat.signals(0).own(1)?)
}

/// My end of the two queues between me and a peer.
fn port(seat: &Seat, peer: i32) -> Result<Port<i32>> {
    let (peer, depth) = (peer.cast_unsigned(), 2);
    let ranks = seat.layout.ranks;
    let slots = seat.buffer::<i32>(SLOTS, (ranks * depth) as usize * ELEMENTS);
    Queues::new(slots, seat.signals(QUEUE_CELLS), ranks, depth)?.port(peer, Rank(peer), seat.me.0)
}

fn team(seat: &Seat) -> Result<Team> {
    let scratch = seat.buffer::<i32>(SCRATCH, 2 * ELEMENTS * seat.layout.ranks as usize);
    Team::new(
        scratch,
        Barrier::new(seat.signals(TEAM_CELLS)),
        seat.signals(TEAM_CELLS + 1),
    )
}
