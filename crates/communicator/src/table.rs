//! The table of choices: which way an operation is done fastest, by size and by how the ranks sit on the cores.

use ringwork_collectives::catalogue::{self, Entry, Needs};
use ringwork_isa::{Algorithm, Collective};
use std::fmt::{self, Write};

/// The algorithm of a collective that a user names, if a communicator can use it.
///
/// # Errors
/// What there is instead.
pub(crate) fn named(collective: Collective, name: &str) -> Result<Algorithm, String> {
    catalogue::one_of(choices(collective), name).map_err(|instead| match catalogue::named(collective, name) {
        Ok(entry) => format!(
            "`{}` sends messages between neighbours, which a communicator on one host does not; {collective} has {instead}",
            entry.algorithm
        ),
        Err(_) => format!("{collective} has {instead}"),
    })
}

/// The algorithms of a collective that a communicator can use.
pub fn choices(collective: Collective) -> impl Iterator<Item = Algorithm> {
    catalogue::of(collective)
        .filter(|entry| usable(entry))
        .map(|entry| entry.algorithm)
}

/// Whether a communicator has what an entry needs. A barrier has no data to choose by.
fn usable(entry: &Entry) -> bool {
    entry.needs != Needs::Queues && entry.collective != Collective::Barrier
}

/// The collectives between whose algorithms there is a choice.
pub fn choosable() -> impl Iterator<Item = Collective> {
    Collective::ALL
        .into_iter()
        .filter(|collective| choices(*collective).nth(1).is_some())
}

/// The collective that a user names.
///
/// # Errors
/// What there is instead.
pub(crate) fn choosable_named(name: &str) -> Result<Collective, String> {
    choosable()
        .find(|collective| collective.name() == name)
        .ok_or_else(|| {
            let names: Vec<_> = choosable().map(Collective::name).collect();
            format!(
                "there is no choice for `{}`; there is for {}",
                name.escape_debug(),
                names.join(", ")
            )
        })
}

/// One line of a table: the way to take up to these numbers. `None` is any number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// The collective.
    pub collective: Collective,
    /// The most ranks.
    pub ranks: Option<u64>,
    /// The most ranks per core.
    pub ranks_per_core: Option<u64>,
    /// The most bytes: of the data for all_reduce and broadcast, of all ranks' data together for all_gather,
    /// reduce_scatter and all_to_all.
    pub bytes: Option<u64>,
    /// How to do it.
    pub algorithm: Algorithm,
}

/// Which way to take: the first row that fits.
///
/// As text it is a line per row, `operation ranks ranks-per-core bytes way`, each number the most that the row is
/// for, with `K`, `M` or `G` for 1024 and so on, or `*` for any. What follows a `#` is for people.
///
/// ```
/// use ringwork_communicator::Table;
/// let table = Table::parse("all_reduce 2 1 2K packet # one hop\nall_reduce * * * twophase").unwrap();
/// assert_eq!(Table::parse(&table.to_text()), Ok(table));
/// assert!(Table::parse("all_reduce 2 1 2K quantum").unwrap_err().contains("line 1"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    rows: Vec<Row>,
}

/// The longest text of a table, and the most rows.
const MAX_TEXT_BYTES: usize = 1 << 20;
const MAX_ROWS: usize = 4096;

/// What a row of the built-in table is for.
#[derive(Clone, Copy)]
struct Seats {
    ranks: Option<u64>,
    per_core: Option<u64>,
}

impl Seats {
    const ANY: Seats = Seats {
        ranks: None,
        per_core: None,
    };
    const A_CORE_EACH: Seats = Seats {
        ranks: None,
        per_core: Some(1),
    };
    const TWO_WITH_A_CORE_EACH: Seats = Seats {
        ranks: Some(2),
        per_core: Some(1),
    };

    fn ranks(most: u64) -> Seats {
        Seats {
            ranks: Some(most),
            ..Seats::ANY
        }
    }
}

impl Default for Table {
    /// What was measured on two cores; see `docs/performance.md`.
    fn default() -> Table {
        let mut rows = Vec::new();
        let mut row = |collective, seats: Seats, bytes: Option<u64>, algorithm| {
            rows.push(Row {
                collective,
                ranks: seats.ranks,
                ranks_per_core: seats.per_core,
                bytes,
                algorithm,
            });
        };
        // In packets and in one phase everybody reads everything: with more ranks the reading is what costs. Pushing in the
        // window meets twice where these meet once; with a core for each rank that is soon worth it.
        row(
            Collective::AllReduce,
            Seats::ranks(2),
            Some(1 << 10),
            Algorithm::Packet,
        );
        row(
            Collective::AllReduce,
            Seats::ranks(2),
            None,
            Algorithm::WindowPush,
        );
        for (ranks, bytes) in [(4, 4 << 10), (16, 2 << 10), (64, 256)] {
            row(
                Collective::AllReduce,
                Seats::ranks(ranks),
                Some(bytes),
                Algorithm::Packet,
            );
        }
        row(
            Collective::AllReduce,
            Seats::TWO_WITH_A_CORE_EACH,
            None,
            Algorithm::TwoPhase,
        );
        row(
            Collective::AllReduce,
            Seats::ranks(16),
            Some(8 << 10),
            Algorithm::OnePhase,
        );
        row(Collective::AllReduce, Seats::ANY, None, Algorithm::WindowPush);
        row(Collective::AllReduce, Seats::ANY, None, Algorithm::TwoPhase);
        for operation in [
            Collective::AllGather,
            Collective::ReduceScatter,
            Collective::Broadcast,
            Collective::AllToAll,
        ] {
            row(operation, Seats::ANY, Some(2 << 10), Algorithm::Packet);
            row(operation, Seats::A_CORE_EACH, None, Algorithm::WindowPull);
            row(
                operation,
                Seats::TWO_WITH_A_CORE_EACH,
                Some(4 << 10),
                Algorithm::Packet,
            );
            row(operation, Seats::TWO_WITH_A_CORE_EACH, None, Algorithm::Staged);
            // Who shares a core pays most for meeting; staging needs it less, and packets of a broadcast hardly ever.
            if operation == Collective::Broadcast {
                row(operation, Seats::ANY, Some(32 << 10), Algorithm::Packet);
                row(operation, Seats::ANY, Some(1 << 20), Algorithm::Staged);
            } else {
                if operation == Collective::AllToAll {
                    // More than a packet to each is chunks more, and each of them a meeting.
                    row(operation, Seats::ranks(4), Some(8 << 10), Algorithm::Packet);
                    row(operation, Seats::ranks(4), Some(256 << 10), Algorithm::Staged);
                }
                row(operation, Seats::ANY, Some(16 << 10), Algorithm::Packet);
            }
            row(operation, Seats::ANY, None, Algorithm::WindowPull);
            row(operation, Seats::ANY, None, Algorithm::Staged);
        }
        Table { rows }
    }
}

impl Table {
    /// A table of these rows, the first that fits counting.
    ///
    /// # Errors
    /// If a row names a way that is not exact, or that the operation does not have.
    pub fn new(rows: Vec<Row>) -> Result<Table, String> {
        if rows.len() > MAX_ROWS {
            return Err(format!("{} rows; at most {MAX_ROWS}", rows.len()));
        }
        rows.iter().try_for_each(Row::check)?;
        Ok(Table { rows })
    }

    /// The rows.
    #[must_use]
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// From text.
    ///
    /// # Errors
    /// The line that is wrong, and how.
    pub fn parse(text: &str) -> Result<Table, String> {
        if text.len() > MAX_TEXT_BYTES {
            return Err(format!("{} bytes; at most {MAX_TEXT_BYTES}", text.len()));
        }
        let mut rows = Vec::new();
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.split('#').next().unwrap_or_default().trim();
            if line.is_empty() {
                continue;
            }
            let row = Row::parse(line).map_err(|problem| format!("line {number}: {problem}"))?;
            rows.push(row);
        }
        Table::new(rows)
    }

    /// As text, to be read again.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut text =
            String::from("# operation  ranks  ranks-per-core  bytes  way: the first row that fits\n");
        for row in &self.rows {
            let _ = writeln!(text, "{row}");
        }
        text
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (ranks, per_core, bytes) = (show(self.ranks), show(self.ranks_per_core), show(self.bytes));
        let (collective, algorithm) = (self.collective, self.algorithm);
        write!(
            f,
            "{collective:<15} {ranks:>5} {per_core:>5} {bytes:>9}  {algorithm}"
        )
    }
}

impl Row {
    fn parse(line: &str) -> Result<Row, String> {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [operation, ranks, ranks_per_core, bytes, way] = fields[..] else {
            let found = fields.len();
            return Err(format!(
                "a row is `operation ranks ranks-per-core bytes way`; this has {found} fields"
            ));
        };
        let collective = choosable_named(operation)?;
        let row = Row {
            collective,
            ranks: number(ranks)?,
            ranks_per_core: number(ranks_per_core)?,
            bytes: number(bytes)?,
            algorithm: named(collective, way)?,
        };
        row.check()?;
        Ok(row)
    }

    fn check(&self) -> Result<(), String> {
        let (collective, algorithm) = (self.collective, self.algorithm);
        named(collective, algorithm.name())?;
        if !algorithm.is_exact() {
            return Err(format!(
                "`{algorithm}` is not exact, so no table chooses it; ask for it with RINGWORK_ALGO={collective}={algorithm}"
            ));
        }
        Ok(())
    }

    /// Whether the row is for that many ranks.
    pub(crate) fn seats(&self, ranks: u64, per_core: u64) -> bool {
        self.ranks.is_none_or(|most| ranks <= most) && self.ranks_per_core.is_none_or(|most| per_core <= most)
    }
}

fn show(number: Option<u64>) -> String {
    let Some(number) = number else {
        return "*".into();
    };
    for (shift, unit) in [(30, "G"), (20, "M"), (10, "K")] {
        if number != 0 && number.is_multiple_of(1 << shift) {
            return format!("{}{unit}", number >> shift);
        }
    }
    number.to_string()
}

fn number(text: &str) -> Result<Option<u64>, String> {
    if text == "*" {
        return Ok(None);
    }
    let (digits, shift) = match text.char_indices().last() {
        Some((at, 'K' | 'k')) => (&text[..at], 10),
        Some((at, 'M' | 'm')) => (&text[..at], 20),
        Some((at, 'G' | 'g')) => (&text[..at], 30),
        _ => (text, 0),
    };
    let number = digits
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(1 << shift));
    number.map(Some).ok_or_else(|| {
        format!(
            "`{}` is no number; use digits with K, M or G, or *",
            text.escape_debug()
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_built_in_table_survives_the_trip_through_text() {
        let table = Table::default();
        assert_eq!(Table::parse(&table.to_text()), Ok(table));
    }

    #[test]
    fn what_makes_no_sense_is_named_with_its_line() {
        let error = |text: &str| Table::parse(text).unwrap_err();
        assert!(error("\nall_reduce 2 1").contains("line 2") && error("a b").contains("2 fields"));
        assert!(error("barrier * * * staged").contains("no choice for `barrier`"));
        assert!(error("all_reduce * * * staged").contains("use one of packet"));
        assert!(error("all_reduce * * * ring").contains("not exact"));
        assert!(error("all_reduce -1 * * packet").contains("`-1` is no number"));
        assert!(error("all_reduce 99999999999999999999G * * packet").contains("no number"));
    }

    proptest! {
        #[test]
        fn no_text_breaks_the_parser(text in "\\PC{0,80}") {
            let _ = Table::parse(&text);
        }

        #[test]
        fn numbers_are_shown_as_they_are_read(value: Option<u64>) {
            prop_assert_eq!(number(&show(value)), Ok(value));
        }
    }
}
