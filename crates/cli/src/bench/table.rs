//! The table for people: nccl-tests' columns, a group for each mode.

use super::arguments::{BenchArguments, Mode, Roots};
use super::measure::Question;
use super::row::Row;
use crate::narrow::Narrow;
use ringwork::isa::{Algorithm, Dtype};
use std::fmt::Write;

/// Prints lines; knows which columns there are.
#[derive(Debug)]
pub(crate) struct Table {
    narrow: Narrow,
    modes: Vec<Mode>,
    percentiles: bool,
    algorithms: bool,
}

impl Table {
    pub(crate) fn new(arguments: &BenchArguments) -> Table {
        let mut table = Table {
            narrow: Narrow::for_output(0, &[]),
            modes: arguments.modes.clone(),
            percentiles: arguments.percentiles,
            algorithms: arguments.algo.is_some(),
        };
        // The columns after the size: count, type, redop, root, and a gap. Of each mode the algorithm's bandwidth follows from
        // the size and the time.
        let (groups, width) = (54 + if table.algorithms { 20 } else { 0 }, table.group_width());
        let algbw = |mode: usize| {
            let end = groups + (mode + 1) * width - 16;
            end - 8..end
        };
        let mut may_go = vec![42..50, 34..42, 13..27, 27..34, 50..54];
        may_go.extend((0..table.modes.len()).map(algbw));
        const CORES: usize = 12;
        table.narrow = Narrow::for_output(groups + table.modes.len() * width + CORES, &may_go);
        table
    }

    fn group_width(&self) -> usize {
        // time algbw busbw #wrong, then min p90 p99 max
        10 + 8 + 8 + 8 + if self.percentiles { 4 * 10 } else { 0 }
    }

    /// The three lines above the rows.
    pub(crate) fn head(&self) -> String {
        let (mut above, mut names, mut units) = (String::new(), String::new(), String::new());
        let _ = write!(above, "#{:52}", "");
        let _ = write!(
            names,
            "#{:>12} {:>13} {:>6} {:>7} {:>7}    ",
            "size", "count", "type", "redop", "root"
        );
        let _ = write!(
            units,
            "#{:>12} {:>13} {:>6} {:>7} {:>7}    ",
            "(B)", "(elements)", "", "", ""
        );
        if self.algorithms {
            let _ = write!(above, "{:20}", "");
            let _ = write!(names, "{:20}", "algorithm");
            let _ = write!(units, "{:20}", "");
        }
        for mode in &self.modes {
            // At the right, over columns that stay on a narrow terminal.
            let _ = write!(above, "{:>width$}", mode.title(), width = self.group_width());
            let _ = write!(names, "{:>10}", "time");
            let _ = write!(units, "{:>10}", "(us)");
            if self.percentiles {
                let _ = write!(names, "{:>10}{:>10}{:>10}{:>10}", "min", "p90", "p99", "max");
                let _ = write!(units, "{:>10}{:>10}{:>10}{:>10}", "(us)", "(us)", "(us)", "(us)");
            }
            let _ = write!(names, "{:>8}{:>8}{:>8}", "algbw", "busbw", "#wrong");
            let _ = write!(units, "{:>8}{:>8}{:>8}", "(GB/s)", "(GB/s)", "");
        }
        let _ = write!(names, "  cores");
        let lines = format!("{}\n{}\n{}", above.trim_end(), names, units.trim_end());
        self.narrow.lines(&lines)
    }

    /// One line: the same question in every mode.
    pub(crate) fn line(&self, question: &Question, dtype: Dtype, rows: &[Option<Row>]) -> String {
        let collective = question.collective;
        let redop = if collective.reduces() {
            question.op.name()
        } else {
            "none"
        };
        let root = match question.root {
            Roots::One(root) if collective.has_root() => root.to_string(),
            _ if collective.has_root() => "rotate".into(),
            _ => "-1".into(),
        };
        let count = question.bytes / dtype.bytes();
        let mut line = format!(
            " {:>12} {count:>13} {:>6} {redop:>7} {root:>7}    ",
            question.bytes,
            dtype.name()
        );
        if self.algorithms {
            let name = question.way.map_or("auto", Algorithm::name);
            let _ = write!(line, "{name:20}");
        }
        for row in rows {
            line.push_str(&self.group(row.as_ref()));
        }
        // The row in which the cores were moved about says so.
        let placements: Vec<String> = rows.iter().flatten().map(Row::placement).collect();
        let clear = |what: &str| placements.iter().all(|placement| placement.starts_with(what));
        if let Some(first) = placements.first() {
            let said = if clear("near") || clear("far") {
                first.clone()
            } else {
                placements.join(", ")
            };
            let _ = write!(line, "  {said}");
        }
        self.narrow.lines(line.trim_end())
    }

    fn group(&self, row: Option<&Row>) -> String {
        let Some(row) = row else {
            let mut none = format!("{:>10}", "N/A");
            if self.percentiles {
                let _ = write!(none, "{:>10}{:>10}{:>10}{:>10}", "", "", "", "");
            }
            let _ = write!(none, "{:>8}{:>8}{:>8}", "N/A", "N/A", "N/A");
            return none;
        };
        let stats = row.stats;
        let mut group = format!("{:>10}", time(stats.p50));
        if self.percentiles {
            for us in [stats.min, stats.p90, stats.p99, stats.max] {
                let _ = write!(group, "{:>10}", time(us));
            }
        }
        let wrong = row.wrong.map_or_else(|| "N/A".into(), |wrong| wrong.to_string());
        let _ = write!(group, "{:>8.2}{:>8.2}{wrong:>8}", row.algbw(), row.busbw());
        group
    }

    /// The lines below the rows.
    pub(crate) fn foot(&self, rows: &[Row]) -> String {
        let wrong = rows.iter().filter_map(|row| row.wrong).sum::<i64>();
        let verdict = if wrong == 0 { "OK" } else { "FAILED" };
        let with_bytes: Vec<f64> = rows
            .iter()
            .filter(|row| row.question.bytes > 0)
            .map(Row::busbw)
            .collect();
        let average = with_bytes.iter().fold(0.0, |sum, one| sum + one) / with_bytes.len().max(1) as f64;
        format!("# Out of bounds values : {wrong} {verdict}\n# Avg bus bandwidth    : {average:.3} GB/s\n#")
    }
}

/// Microseconds, in four digits or so.
pub(crate) fn time(us: f64) -> String {
    match us {
        0.0..10.0 => format!("{us:.3}"),
        10.0..100.0 => format!("{us:.2}"),
        100.0..1000.0 => format!("{us:.1}"),
        _ => format!("{us:.0}"),
    }
}
