//! Choosing a way: what the user asked for, else what the table says.

use super::error::{Error, Result};
use super::table::{CHOOSABLE, Table, Way, choosable};
use ringwork_isa::Operation;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::Arc;

/// What the user has said about choosing: the same on every rank, or calls will not fit together.
#[derive(Clone, Debug, Default)]
pub(super) struct Rules {
    table: Table,
    /// Where the table comes from, in words.
    origin: String,
    asked: Vec<(Operation, Way)>,
    /// Whether to say on stderr what was chosen, and why.
    debug: bool,
}

impl Rules {
    /// From the variables `RINGWORK_ALGO`, `RINGWORK_TUNE` and `RINGWORK_DEBUG`.
    pub(super) fn read(get: impl Fn(&str) -> Option<String>) -> Result<Rules> {
        let given = |name: &str| get(name).filter(|value| !value.is_empty());
        let bad = |name: &str, value: &str, problem: String| Error::BadEnvironment {
            name: name.into(),
            value: value.into(),
            problem,
        };
        let mut rules = Rules {
            origin: "the built-in table".into(),
            debug: given("RINGWORK_DEBUG").is_some_and(|value| value != "0"),
            ..Rules::default()
        };
        if let Some(path) = given("RINGWORK_TUNE") {
            let read = std::fs::read_to_string(&path).map_err(|error| error.to_string());
            let table = read.and_then(|text| Table::parse(&text));
            rules.table = table.map_err(|problem| bad("RINGWORK_TUNE", &path, problem))?;
            rules.origin = path;
        }
        if let Some(asked) = given("RINGWORK_ALGO") {
            for pair in asked.split(',').filter(|pair| !pair.trim().is_empty()) {
                let read = || {
                    let (operation, way) = pair
                        .split_once('=')
                        .ok_or("write operation=algorithm, separated by commas")?;
                    let operation = choosable(operation.trim())?;
                    Ok::<_, String>((operation, Way::named(operation, way.trim())?))
                };
                let read = read().map_err(|problem| bad("RINGWORK_ALGO", &asked, problem))?;
                rules.asked.retain(|(operation, _)| *operation != read.0);
                rules.asked.push(read);
            }
        }
        Ok(rules)
    }
}

/// The rules for one communicator, ready to look up.
#[derive(Debug)]
pub(super) struct Chooser {
    rules: Arc<Rules>,
    me: u32,
    ranks: u32,
    per_core: u32,
    /// For each of `CHOOSABLE`: the most bytes, the way, and the row it is from, counted from 1.
    columns: [Vec<(u64, Way, usize)>; CHOOSABLE.len()],
    /// What was said already.
    said: RefCell<BTreeSet<(usize, Way, u32)>>,
}

impl Chooser {
    pub(super) fn new(rules: Arc<Rules>, me: u32, ranks: u32, cores: usize) -> Chooser {
        let per_core = u32::try_from((ranks as usize).div_ceil(cores.max(1))).unwrap_or(u32::MAX);
        let column = |operation| {
            let rows = (1..).zip(rules.table.rows());
            rows.filter(|(_, row)| row.operation == operation && row.seats(ranks.into(), per_core.into()))
                .map(|(number, row)| (row.bytes.unwrap_or(u64::MAX), row.way, number))
                .collect()
        };
        Chooser {
            columns: CHOOSABLE.map(column),
            rules,
            me,
            ranks,
            per_core,
            said: RefCell::default(),
        }
    }

    /// The way to do `operation` with `bytes` of data that is in the window or not.
    ///
    /// Exact unless the user asked otherwise.
    pub(super) fn choose(&self, operation: Operation, bytes: u64, in_window: bool) -> Way {
        let index = CHOOSABLE.iter().position(|known| *known == operation);
        let asked = self.rules.asked.iter().find(|(known, _)| *known == operation);
        let asked = asked
            .map(|(_, way)| *way)
            .filter(|way| in_window || !way.needs_window());
        let row = || {
            let column = self.columns[index?].iter();
            column
                .copied()
                .find(|(most, way, _)| bytes <= *most && (in_window || !way.needs_window()))
        };
        let (way, from) = match (asked, row()) {
            (Some(way), _) => (way, 0),
            (None, Some((_, way, number))) => (way, number),
            (None, None) if operation == Operation::AllReduce => (Way::TwoPhase, usize::MAX),
            (None, None) => (Way::Staged, usize::MAX),
        };
        if self.rules.debug {
            self.say(operation, bytes, in_window, (way, from));
        }
        way
    }

    #[cold]
    #[expect(clippy::print_stderr, reason = "RINGWORK_DEBUG asks for it")]
    fn say(&self, operation: Operation, bytes: u64, in_window: bool, (way, from): (Way, usize)) {
        // Once for every choice and power of two: a loop of calls says it once.
        let size = bytes.checked_ilog2().map_or(0, |log| log + 1);
        if !self.said.borrow_mut().insert((operation as usize, way, size)) {
            return;
        }
        let why = match from {
            0 => "RINGWORK_ALGO asks for it".into(),
            usize::MAX => format!("no row of {} fits", self.rules.origin),
            row => format!("row {row} of {}", self.rules.origin),
        };
        let place = if in_window { "in the window" } else { "staged" };
        eprintln!(
            "ringwork: rank {} of {} ({} per core): {} of {bytes} bytes, {place}: {} ({why})",
            self.me,
            self.ranks,
            self.per_core,
            operation.name(),
            way.name(),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chooser(variables: &[(&str, &str)], ranks: u32) -> Chooser {
        let get = |name: &str| {
            let found = variables.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        Chooser::new(Arc::new(Rules::read(get).unwrap()), 0, ranks, 2)
    }

    #[test]
    fn the_built_in_table_takes_packets_then_one_phase_then_two_or_the_window() {
        let two = chooser(&[], 2);
        let staged = |bytes| two.choose(Operation::AllReduce, bytes, false);
        assert_eq!(staged(4), Way::Packet);
        assert_eq!(staged(256), Way::Packet);
        assert_eq!(staged(8 << 10), Way::OnePhase);
        assert_eq!(staged((8 << 10) + 1), Way::TwoPhase);
        let window = |bytes| two.choose(Operation::AllReduce, bytes, true);
        assert_eq!(window(16 << 10), Way::WindowPush);
        assert_eq!(window(1 << 20), Way::WindowPush);
        assert_eq!(
            chooser(&[], 16).choose(Operation::AllReduce, 2 << 10, false),
            Way::TwoPhase
        );
        assert_eq!(two.choose(Operation::Broadcast, 1 << 20, true), Way::WindowPull);
        assert_eq!(two.choose(Operation::Broadcast, 1 << 20, false), Way::Staged);
    }

    #[test]
    fn nothing_but_the_user_chooses_what_is_not_exact() {
        for ranks in [1, 2, 3, 9, 64] {
            let chooser = chooser(&[], ranks);
            for bytes in (0..40).map(|log| 1 << log) {
                for in_window in [false, true] {
                    assert!(chooser.choose(Operation::AllReduce, bytes, in_window).is_exact());
                }
            }
        }
        let asked = chooser(&[("RINGWORK_ALGO", "all_reduce=ring, broadcast=staged")], 4);
        assert_eq!(asked.choose(Operation::AllReduce, 8, true), Way::Ring);
        assert_eq!(asked.choose(Operation::Broadcast, 1 << 30, true), Way::Staged);
        let two_shot = chooser(&[("RINGWORK_ALGO", "all_reduce=two-shot")], 4);
        assert_eq!(two_shot.choose(Operation::AllReduce, 8, false), Way::TwoPhase);
        let window = chooser(&[("RINGWORK_ALGO", "all_reduce=window-push")], 4);
        assert_eq!(window.choose(Operation::AllReduce, 8, true), Way::WindowPush);
        assert_eq!(
            window.choose(Operation::AllReduce, 8, false),
            Way::Packet,
            "it is not there"
        );
    }

    #[test]
    fn what_makes_no_sense_is_named() {
        let error = |name: &str, value: &str| {
            let read = Rules::read(|asked| (asked == name).then(|| value.to_owned()));
            read.unwrap_err().to_string()
        };
        assert!(error("RINGWORK_ALGO", "all_reduce").contains("operation=algorithm"));
        assert!(error("RINGWORK_ALGO", "all_reduce=rign").contains("`rign` is no way"));
        assert!(error("RINGWORK_ALGO", "send=ring").contains("no choice for `send`"));
        assert!(error("RINGWORK_TUNE", "/nowhere/at/all").contains("RINGWORK_TUNE"));
    }
}
