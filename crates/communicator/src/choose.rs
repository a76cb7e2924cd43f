//! Choosing an algorithm: what the user asked for, else what the table says.

use crate::error::{Error, Result};
#[cfg(feature = "ccl")]
use crate::usable::choosable;
use crate::usable::{choosable_named, named};
use ringwork_collectives::table::Table;
use ringwork_isa::{Algorithm, Collective};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::io::Write;
use std::sync::Arc;

/// The user's settings for choosing. They must be the same on every rank, or the ranks choose differently.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rules {
    /// The rows of the file, if there is one, then those of the built-in table.
    table: Table,
    /// The file, and the number of rows from it.
    file: Option<(String, usize)>,
    asked: Vec<(Collective, Algorithm)>,
    /// Whether to print on stderr what was chosen, and why.
    debug: bool,
}

impl Rules {
    /// From the variables `RINGWORK_ALGO`, `RINGWORK_CCL` and `RINGWORK_DEBUG`.
    pub(crate) fn read(get: impl Fn(&str) -> Option<String>) -> Result<Rules> {
        let given = |name: &str| get(name).filter(|value| !value.is_empty());
        let bad = |name: &str, value: &str, problem: String| Error::BadEnvironment {
            name: name.into(),
            value: value.into(),
            problem,
        };
        let mut rules = Rules {
            debug: given("RINGWORK_DEBUG").is_some_and(|value| value != "0"),
            ..Rules::default()
        };
        if let Some(path) = given("RINGWORK_CCL") {
            rules
                .read_file(&path)
                .map_err(|problem| bad("RINGWORK_CCL", &path, problem))?;
        }
        if let Some(asked) = given("RINGWORK_ALGO") {
            for pair in asked.split(',').filter(|pair| !pair.trim().is_empty()) {
                let read = || {
                    let (operation, way) = pair
                        .split_once('=')
                        .ok_or("write operation=algorithm, separated by commas")?;
                    let operation = choosable_named(operation.trim())?;
                    Ok::<_, String>((operation, named(operation, way.trim())?))
                };
                let read = read().map_err(|problem| bad("RINGWORK_ALGO", &asked, problem))?;
                rules.asked.retain(|(operation, _)| *operation != read.0);
                rules.asked.push(read);
            }
        }
        Ok(rules)
    }

    /// Reads a `ccl.yaml`. An algorithm that it names for a collective is used; its choices come before the built-in
    /// ones.
    #[cfg(feature = "ccl")]
    fn read_file(&mut self, path: &str) -> std::result::Result<(), String> {
        let text = ringwork_native::read_config_file(path.as_ref()).map_err(|error| error.to_string())?;
        let ccl = ringwork_ccl::Ccl::parse(path, &text)?;
        for collective in choosable() {
            let named_there = ccl
                .named(collective)
                .map(|algorithm| named(collective, algorithm.name()));
            let by_default = || {
                ccl.default_algorithm()
                    .and_then(|algorithm| named(collective, algorithm.name()).ok())
            };
            let algorithm = named_there.transpose()?.or_else(by_default);
            self.asked
                .extend(algorithm.map(|algorithm| (collective, algorithm)));
        }
        for row in ccl.table() {
            named(row.collective, row.algorithm.name())?;
        }
        self.file = Some((path.to_owned(), ccl.table().len()));
        self.table = Table::new(ccl.table().to_vec())?.then(Table::default());
        Ok(())
    }

    #[cfg(not(feature = "ccl"))]
    #[allow(clippy::unused_self, reason = "the other form of it needs it")]
    fn read_file(&mut self, _path: &str) -> std::result::Result<(), String> {
        Err("this program was built without the feature `ccl`, which reads such files".into())
    }

    /// The number of the row, from 1.
    fn place(&self, row: usize) -> String {
        match &self.file {
            Some((file, rows)) if row <= *rows => format!("row {row} of {file}"),
            Some((_, rows)) => format!("row {} of the built-in table", row - rows),
            None => format!("row {row} of the built-in table"),
        }
    }

    fn asked(&self, operation: Collective) -> Option<Algorithm> {
        let asked = self.asked.iter().find(|(known, _)| *known == operation);
        asked.map(|(_, way)| *way)
    }
}

fn index_of(operation: Collective) -> Option<usize> {
    Collective::ALL.iter().position(|known| *known == operation)
}

/// The rules of one communicator, prepared for lookup.
#[derive(Debug)]
pub(crate) struct Chooser {
    rules: Arc<Rules>,
    me: u32,
    ranks: u32,
    /// How many of the ranks can run at the same time. The same on every rank.
    cores: u32,
    /// For each of [`Collective::ALL`]: the most bytes, the algorithm, and the number of its row, from 1.
    columns: [Vec<(u64, Algorithm, usize)>; Collective::ALL.len()],
    /// The last choice, for programs that repeat a call.
    last: Cell<Option<(Call, Algorithm)>>,
    /// The choices that have been printed.
    said: RefCell<BTreeSet<(usize, Algorithm, u32)>>,
    /// For each of [`Collective::ALL`]: the algorithm that the program has set.
    asked: [Option<(Algorithm, Why)>; Collective::ALL.len()],
}

/// The facts of a choice: collective, bytes, and whether the data is in the window.
type Call = (Collective, u64, bool);

/// Why an algorithm was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    /// `RINGWORK_ALGO` says so.
    Environment,
    /// The program says so.
    Program,
    /// This row of the table fits first, counted from 1.
    Row(usize),
    /// No row fits.
    Nothing,
}

impl Chooser {
    pub(crate) fn new(rules: Arc<Rules>, me: u32, ranks: u32, cores: usize) -> Chooser {
        let cores = u32::try_from(cores).unwrap_or(u32::MAX).clamp(1, ranks.max(1));
        let per_core = ranks.div_ceil(cores);
        let column = |operation| {
            let rows = (1..).zip(rules.table.rows());
            rows.filter(|(_, row)| row.collective == operation && row.seats(ranks.into(), per_core.into()))
                .map(|(number, row)| (row.bytes.unwrap_or(u64::MAX), row.algorithm, number))
                .collect()
        };
        let asked = |operation| rules.asked(operation).map(|way| (way, Why::Environment));
        Chooser {
            columns: Collective::ALL.map(column),
            asked: Collective::ALL.map(asked),
            rules,
            me,
            ranks,
            cores,
            last: Cell::new(None),
            said: RefCell::default(),
        }
    }

    /// How many of the ranks can run at the same time. The same on every rank.
    pub(crate) fn cores(&self) -> u32 {
        self.cores
    }

    /// The algorithm that the program or the environment asks for, whatever the size.
    pub(crate) fn asked(&self, operation: Collective) -> Option<Algorithm> {
        let asked = index_of(operation).and_then(|index| self.asked[index]);
        asked.map(|(way, _)| way)
    }

    /// Sets the algorithm of `operation`; `None` returns to the rules.
    ///
    /// # Errors
    /// The algorithms that exist instead.
    pub(crate) fn ask(&mut self, operation: Collective, way: Option<Algorithm>) -> Result<()> {
        let wrong = |problem| Error::arguments("set_algorithm", problem);
        choosable_named(operation.name()).map_err(wrong)?;
        self.last.set(None);
        let asked = match way {
            Some(way) => Some((named(operation, way.name()).map_err(wrong)?, Why::Program)),
            None => self.rules.asked(operation).map(|way| (way, Why::Environment)),
        };
        if let Some(index) = index_of(operation) {
            self.asked[index] = asked;
        }
        Ok(())
    }

    /// The algorithm for `operation` with `bytes` of data, in the window or not. Exact unless the user asked
    /// otherwise.
    #[inline]
    pub(crate) fn choose(&self, operation: Collective, bytes: u64, in_window: bool) -> Algorithm {
        let call = (operation, bytes, in_window);
        match self.last.get() {
            Some((last, way)) if last == call => way,
            _ => {
                let way = self.choose_anew(call);
                self.last.set(Some((call, way)));
                way
            }
        }
    }

    #[inline(never)]
    fn choose_anew(&self, (operation, bytes, in_window): Call) -> Algorithm {
        let index = index_of(operation);
        let possible = |way: Algorithm| in_window || !way.needs_window();
        let asked = index
            .and_then(|index| self.asked[index])
            .filter(|(way, _)| possible(*way));
        let row = || {
            let mut column = self.columns[index?].iter();
            let (_, way, number) = column.find(|(most, way, _)| bytes <= *most && possible(*way))?;
            Some((*way, Why::Row(*number)))
        };
        let last = if operation == Collective::AllReduce {
            Algorithm::TwoPhase
        } else {
            Algorithm::Staged
        };
        let (way, why) = asked.or_else(row).unwrap_or((last, Why::Nothing));
        if self.rules.debug {
            self.say(operation, bytes, in_window, (way, why));
        }
        way
    }

    #[cold]
    fn say(&self, operation: Collective, bytes: u64, in_window: bool, (way, why): (Algorithm, Why)) {
        // Printed once for every choice and power of two, not for each call of a loop.
        let size = bytes.checked_ilog2().map_or(0, |log| log + 1);
        if !self.said.borrow_mut().insert((operation as usize, way, size)) {
            return;
        }
        let why = match why {
            Why::Environment => "RINGWORK_ALGO or RINGWORK_CCL asks for it".into(),
            Why::Program => "the program asks for it".into(),
            Why::Row(row) => self.rules.place(row),
            Why::Nothing => "no row of the table fits".into(),
        };
        let place = if in_window { "in the window" } else { "staged" };
        let line = format!(
            "ringwork: rank {} of {} ({} per core): {} of {bytes} bytes, {place}: {way} ({why})\n",
            self.me,
            self.ranks,
            self.ranks.div_ceil(self.cores),
            operation.name(),
        );
        // One write, because other ranks write to the same place. If stderr is closed, nobody wants the message.
        let _ = std::io::stderr().write_all(line.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringwork_collectives::catalogue;

    fn chooser(variables: &[(&str, &str)], ranks: u32) -> Chooser {
        let get = |name: &str| {
            let found = variables.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        Chooser::new(Arc::new(Rules::read(get).unwrap()), 0, ranks, 2)
    }

    #[test]
    fn the_built_in_table_takes_packets_then_phases_or_the_window() {
        let two = chooser(&[], 2);
        let staged = |bytes| two.choose(Collective::AllReduce, bytes, false);
        assert_eq!(staged(4), Algorithm::Packet);
        assert_eq!(staged(1024), Algorithm::Packet);
        assert_eq!(staged(4 << 10), Algorithm::Packet);
        assert_eq!(staged((4 << 10) + 1), Algorithm::TwoPhase);
        let window = |bytes| two.choose(Collective::AllReduce, bytes, true);
        assert_eq!(window(16 << 10), Algorithm::WindowPush);
        assert_eq!(window(1 << 20), Algorithm::WindowPush);
        let many = chooser(&[], 16);
        for in_window in [false, true] {
            let choose = |bytes| many.choose(Collective::AllReduce, bytes, in_window);
            assert_eq!(choose(2 << 10), Algorithm::Packet);
            assert_eq!(choose(8 << 10), Algorithm::OnePhase);
        }
        assert_eq!(
            many.choose(Collective::AllReduce, 16 << 10, false),
            Algorithm::TwoPhase
        );
        for operation in [
            Collective::AllGather,
            Collective::ReduceScatter,
            Collective::AllToAll,
        ] {
            assert_eq!(two.choose(operation, 4 << 10, false), Algorithm::Packet);
            assert_eq!(two.choose(operation, 8 << 10, false), Algorithm::Staged);
            assert_eq!(many.choose(operation, 8 << 10, false), Algorithm::Packet);
        }
        // Two ranks have a core each; the larger number shares cores.
        assert_eq!(
            two.choose(Collective::Broadcast, 1 << 20, true),
            Algorithm::WindowPull
        );
        assert_eq!(
            two.choose(Collective::Broadcast, 1 << 20, false),
            Algorithm::Staged
        );
        assert_eq!(
            two.choose(Collective::Broadcast, 8 << 10, false),
            Algorithm::Staged
        );
        assert_eq!(
            many.choose(Collective::Broadcast, 32 << 10, true),
            Algorithm::Packet
        );
        assert_eq!(
            many.choose(Collective::Broadcast, 1 << 20, true),
            Algorithm::Staged
        );
        assert_eq!(
            many.choose(Collective::Broadcast, 4 << 20, true),
            Algorithm::WindowPull
        );
        assert_eq!(two.choose(Collective::AllToAll, 1 << 10, true), Algorithm::Packet);
        assert_eq!(
            two.choose(Collective::AllToAll, 8 << 10, true),
            Algorithm::WindowPull
        );
    }

    #[test]
    fn as_many_ranks_run_at_once_as_there_are_cores_for() {
        let at_once = |ranks, cores| Chooser::new(Arc::default(), 0, ranks, cores).cores();
        assert_eq!(
            [at_once(5, 4), at_once(16, 2), at_once(2, 64), at_once(3, 0)],
            [4, 2, 2, 1]
        );
    }

    #[test]
    fn what_is_chosen_is_in_the_catalogue_at_every_size() {
        for ranks in [1, 2, 3, 4, 8, 9, 64] {
            let chooser = chooser(&[], ranks);
            let collectives = Collective::ALL
                .into_iter()
                .filter(|one| *one != Collective::Barrier);
            for (collective, log) in collectives.flat_map(|one| (0..40).map(move |log| (one, log))) {
                for in_window in [false, true] {
                    let way = chooser.choose(collective, 1 << log, in_window);
                    let entry = catalogue::find(collective, way);
                    assert!(entry.is_some(), "{collective} of 2^{log} B by `{way}`");
                }
            }
        }
    }

    #[test]
    fn nothing_but_the_user_chooses_what_is_not_exact() {
        for ranks in [1, 2, 3, 9, 64] {
            let chooser = chooser(&[], ranks);
            for bytes in (0..40).map(|log| 1 << log) {
                for in_window in [false, true] {
                    assert!(chooser.choose(Collective::AllReduce, bytes, in_window).is_exact());
                }
            }
        }
        let asked = chooser(
            &[("RINGWORK_ALGO", "all_reduce=staged-ring, broadcast=staged")],
            4,
        );
        assert_eq!(
            asked.choose(Collective::AllReduce, 8, true),
            Algorithm::StagedRing
        );
        assert_eq!(
            asked.choose(Collective::Broadcast, 1 << 30, true),
            Algorithm::Staged
        );
        let two_shot = chooser(&[("RINGWORK_ALGO", "all_reduce=two-shot")], 4);
        assert_eq!(
            two_shot.choose(Collective::AllReduce, 8, false),
            Algorithm::TwoPhase
        );
        let window = chooser(&[("RINGWORK_ALGO", "all_reduce=window-push")], 4);
        assert_eq!(
            window.choose(Collective::AllReduce, 8, true),
            Algorithm::WindowPush
        );
        assert_eq!(
            window.choose(Collective::AllReduce, 8, false),
            Algorithm::Packet,
            "it is not there"
        );
    }

    #[test]
    fn what_the_program_asks_for_comes_before_what_the_environment_does() {
        let mut chooser = chooser(&[("RINGWORK_ALGO", "broadcast=staged")], 4);
        let large = |chooser: &Chooser, in_window| chooser.choose(Collective::Broadcast, 1 << 20, in_window);
        chooser
            .ask(Collective::Broadcast, Some(Algorithm::WindowPull))
            .unwrap();
        assert_eq!(large(&chooser, true), Algorithm::WindowPull);
        assert_eq!(large(&chooser, false), Algorithm::Staged, "it is not there");
        chooser.ask(Collective::Broadcast, None).unwrap();
        assert_eq!(large(&chooser, true), Algorithm::Staged);
        let refused =
            |chooser: &mut Chooser, operation, way| chooser.ask(operation, way).unwrap_err().to_string();
        let ring = refused(&mut chooser, Collective::Broadcast, Some(Algorithm::StagedRing));
        assert!(
            ring.contains("broadcast has no algorithm `staged-ring`"),
            "{ring}"
        );
        assert!(refused(&mut chooser, Collective::Barrier, None).contains("no choice for `barrier`"));
    }

    #[test]
    fn what_makes_no_sense_is_named() {
        let error = |name: &str, value: &str| {
            let read = Rules::read(|asked| (asked == name).then(|| value.to_owned()));
            read.unwrap_err().to_string()
        };
        assert!(error("RINGWORK_ALGO", "all_reduce").contains("operation=algorithm"));
        assert!(
            error("RINGWORK_ALGO", "all_reduce=staged-rign")
                .contains("all_reduce has no algorithm `staged-rign`; did you mean `staged-ring`?")
        );
        assert!(error("RINGWORK_ALGO", "send=ring").contains("no choice for `send`"));
        assert!(error("RINGWORK_CCL", "/nowhere/at/all").contains("RINGWORK_CCL"));
    }
}
