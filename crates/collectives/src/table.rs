//! The table of choices: the fastest algorithm for a collective, by size and by ranks per core.

use crate::catalogue;
use ringwork_isa::{Algorithm, Collective};
use std::fmt;

/// One row of a table: the algorithm for calls up to these limits. `None` is no limit.
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

/// Which algorithm to use: that of the first row that fits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    rows: Vec<Row>,
}

/// The most rows.
const MAX_ROWS: usize = 4096;

/// The ranks and cores that a row of the built-in table applies to.
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
    /// The fastest algorithms measured on two cores; the `README.md` of this crate has the measurements.
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
        // With packets and in one phase every rank reads the data of all ranks, which costs most with many ranks. A
        // push in the window needs two meetings instead of one; with a core for each rank it is soon faster anyway.
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
            // With several ranks per core a meeting is the main cost: staged needs one per chunk, packet broadcast
            // one in 64.
            if operation == Collective::Broadcast {
                row(operation, Seats::ANY, Some(32 << 10), Algorithm::Packet);
                row(operation, Seats::ANY, Some(1 << 20), Algorithm::Staged);
            } else {
                if operation == Collective::AllToAll {
                    // More data than one packet per rank takes more chunks, each with a meeting.
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
    /// A table of these rows. The first row that fits a call is used.
    ///
    /// # Errors
    /// If there are too many, or one names an algorithm that is not exact, or that its collective does not have.
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

    /// These rows, then those of another table.
    #[must_use]
    pub fn then(mut self, other: Table) -> Table {
        self.rows.extend(other.rows);
        self
    }
}

/// As an item of `choices` in a `ccl.yaml`.
impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{collective: {}", self.collective)?;
        if let Some(ranks) = self.ranks {
            write!(f, ", ranks: {ranks}")?;
        }
        if let Some(per_core) = self.ranks_per_core {
            write!(f, ", ranks_per_core: {per_core}")?;
        }
        if let Some(bytes) = self.bytes {
            write!(f, ", bytes: {}", with_unit(bytes))?;
        }
        write!(f, ", algorithm: {}}}", self.algorithm)
    }
}

impl Row {
    /// Whether this row is valid in a table.
    ///
    /// # Errors
    /// If its collective has no such algorithm, or the algorithm is not exact.
    pub fn check(&self) -> Result<(), String> {
        let (collective, algorithm) = (self.collective, self.algorithm);
        catalogue::named(collective, algorithm.name())?;
        if collective.reduces() && !algorithm.is_exact() {
            return Err(format!(
                "`{algorithm}` is not exact, so no table chooses it; ask for it with RINGWORK_ALGO={collective}={algorithm}"
            ));
        }
        Ok(())
    }

    /// Whether the row covers this number of ranks.
    #[must_use]
    pub fn seats(&self, ranks: u64, per_core: u64) -> bool {
        self.ranks.is_none_or(|most| ranks <= most) && self.ranks_per_core.is_none_or(|most| per_core <= most)
    }

    /// Whether the row covers this call.
    #[must_use]
    pub fn fits(&self, collective: Collective, ranks: u64, per_core: u64, bytes: u64) -> bool {
        self.collective == collective
            && self.seats(ranks, per_core)
            && self.bytes.is_none_or(|most| bytes <= most)
    }
}

/// Bytes as people write them: `4 KiB`.
fn with_unit(bytes: u64) -> String {
    for (shift, unit) in [(30, "GiB"), (20, "MiB"), (10, "KiB")] {
        if bytes != 0 && bytes.is_multiple_of(1 << shift) {
            return format!("{} {unit}", bytes >> shift);
        }
    }
    format!("{bytes} B")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_written_with_units_and_without_what_it_does_not_say() {
        let mut row = Row {
            collective: Collective::AllReduce,
            ranks: Some(2),
            ranks_per_core: None,
            bytes: Some(4 << 10),
            algorithm: Algorithm::Packet,
        };
        let text = "{collective: all_reduce, ranks: 2, bytes: 4 KiB, algorithm: packet}";
        assert_eq!(row.to_string(), text);
        row.bytes = Some(1025);
        assert!(row.to_string().contains("bytes: 1025 B"));
    }

    #[test]
    fn a_table_chooses_nothing_that_is_not_exact_or_not_there() {
        let row = |collective, algorithm| Row {
            collective,
            ranks: None,
            ranks_per_core: None,
            bytes: None,
            algorithm,
        };
        let error = |collective, algorithm| Table::new(vec![row(collective, algorithm)]).unwrap_err();
        assert!(error(Collective::AllReduce, Algorithm::Ring).contains("not exact"));
        assert!(error(Collective::AllReduce, Algorithm::Staged).contains("use one of packet"));
    }
}
