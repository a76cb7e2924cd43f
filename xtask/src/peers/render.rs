//! The table for a terminal and for a page.

use super::placement::Placement;
use super::sample::Op;
use super::size;
use super::table::{Pair, Row, Table, Timing};
use std::fmt::Write;

/// Fewer runs than this, on either side, and a ratio is marked as thin.
const THIN: usize = 3;

/// Columns of cells; a dash where there is nothing.
const HEADINGS: [&str; 10] = [
    "size",
    "mode",
    "near: best peer",
    "us",
    "ours",
    "ratio",
    "far: best peer",
    "us",
    "ours",
    "ratio",
];

/// For a terminal.
pub(crate) fn text(table: &Table) -> String {
    let mut out = String::new();
    for (title, rows) in parts(table) {
        let cells: Vec<_> = rows.iter().map(|row| cells(row)).collect();
        let width = |i: usize| {
            cells
                .iter()
                .map(|row| row[i].len())
                .chain([HEADINGS[i].len()])
                .max()
                .unwrap_or(0)
        };
        let widths: [usize; 10] = std::array::from_fn(width);
        let mut line = |row: [&str; 10]| {
            let padded = row
                .iter()
                .zip(widths)
                .map(|(cell, width)| format!("{cell:>width$}"));
            let _ = writeln!(out, "{}", padded.collect::<Vec<_>>().join("  ").trim_end());
        };
        line([""; 10]);
        line([title.as_str(), "", "", "", "", "", "", "", "", ""].map(|cell| cell));
        line(HEADINGS);
        cells
            .iter()
            .for_each(|row| line(row.each_ref().map(String::as_str)));
    }
    let _ = write!(out, "\n{}\n", summary(table));
    out
}

/// For a page. Headings are of the third level.
pub(crate) fn markdown(table: &Table) -> String {
    let mut out = String::new();
    for (title, rows) in parts(table) {
        let _ = write!(
            out,
            "### {title}\n\n| {} |\n|---:|---|---|---:|---:|---:|---|---:|---:|---:|\n",
            HEADINGS.join(" | ")
        );
        for row in rows {
            let _ = writeln!(out, "| {} |", cells(row).join(" | "));
        }
        out.push('\n');
    }
    let _ = writeln!(out, "{}", summary(table));
    out
}

/// What became of the samples, in one sentence or two.
pub(crate) fn summary(table: &Table) -> String {
    let tally = table.tally;
    let mut text = format!(
        "{} samples near, {} far; {} dropped because the cores moved meanwhile, were threads of one core, or the probe could not tell",
        tally.near, tally.far, tally.unplaced
    );
    if tally.wrong > 0 {
        let _ = write!(
            text,
            "; {} dropped because a result was wrong ({} of them ours)",
            tally.wrong, tally.wrong_ours
        );
    }
    let _ = write!(text, ". `~` marks a ratio with fewer than {THIN} runs on a side.");
    text
}

/// The rows of each number of ranks and operation, in the order of [`Op::ALL`].
fn parts(table: &Table) -> Vec<(String, Vec<&Row>)> {
    let mut ranks: Vec<u32> = table.rows.iter().map(|row| row.ranks).collect();
    ranks.dedup();
    let all = ranks.into_iter().flat_map(|ranks| Op::ALL.map(|op| (ranks, op)));
    let part = |(ranks, op)| {
        let rows: Vec<&Row> = table
            .rows
            .iter()
            .filter(|row| (row.ranks, row.op) == (ranks, op))
            .collect();
        (!rows.is_empty()).then(|| (format!("{op}, {ranks} ranks"), rows))
    };
    all.filter_map(part).collect()
}

fn cells(row: &Row) -> [String; 10] {
    let [a, b, c, d] = pair_cells(row.at(Placement::Near));
    let [e, f, g, h] = pair_cells(row.at(Placement::Far));
    [
        size::show(row.bytes),
        row.mode.to_string(),
        a,
        b,
        c,
        d,
        e,
        f,
        g,
        h,
    ]
}

fn pair_cells(pair: &Pair) -> [String; 4] {
    let dash = || "-".to_owned();
    let (name, best) = match &pair.best {
        Some((name, timing)) => (name.clone(), Some(timing)),
        None => (dash(), None),
    };
    let show = |timing: Option<&Timing>| timing.map_or_else(dash, |timing| digits(timing.median_us));
    let thin = [best, pair.ours.as_ref()]
        .into_iter()
        .flatten()
        .any(|timing| timing.runs < THIN);
    let ratio = pair.ratio().map_or_else(dash, |ratio| {
        format!("{}{ratio:.2}x", if thin { "~" } else { "" })
    });
    [name, show(best), show(pair.ours.as_ref()), ratio]
}

/// Three digits that mean something.
fn digits(us: f64) -> String {
    match us {
        _ if us < 10.0 => format!("{us:.2}"),
        _ if us < 100.0 => format!("{us:.1}"),
        _ => format!("{us:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::placement::Thresholds;
    use super::super::sample::{Mode, Sample};
    use super::super::table::tests::sample;
    use super::super::table::{OURS, compare};
    use super::*;

    fn table() -> Table {
        let of = |peer: &str, median_us| Sample {
            peer: peer.into(),
            median_us,
            ..sample()
        };
        let mut samples = vec![
            of("impi", 1.5),
            of("impi", 1.5),
            of("impi", 1.5),
            of("mpich4", 2.0),
        ];
        samples.extend(vec![of(OURS, 0.5); 3]);
        samples.push(Sample {
            hop_before_ns: 240.0,
            hop_after_ns: 240.0,
            ..of("impi", 123.4)
        });
        samples.push(Sample {
            hop_after_ns: 240.0,
            ..sample()
        });
        samples.push(Sample {
            op: Op::Barrier,
            mode: Mode::Oop,
            bytes: 0,
            ..sample()
        });
        compare(&samples, &Thresholds::default())
    }

    #[test]
    fn the_page_shows_best_peer_ours_and_ratio_for_near_and_far() {
        let page = markdown(&table());
        assert!(page.contains("### all_reduce, 2 ranks\n"), "{page}");
        assert!(
            page.contains("| 1 KiB | inp | impi | 1.50 | 0.50 | 3.00x | impi | 123 | - | - |\n"),
            "{page}"
        );
        assert!(
            page.contains("| - | oop | mpich4 | 1.00 | - | - | - | - | - | - |\n"),
            "{page}"
        );
        assert!(
            page.contains("8 samples near, 1 far; 1 dropped because the cores moved"),
            "{page}"
        );
    }

    #[test]
    fn the_terminal_shows_the_same_cells_in_columns() {
        let page = text(&table());
        let row = page.lines().find(|line| line.contains("1 KiB")).unwrap();
        let cells: Vec<&str> = row.split_whitespace().collect();
        assert_eq!(
            cells,
            [
                "1", "KiB", "inp", "impi", "1.50", "0.50", "3.00x", "impi", "123", "-", "-"
            ]
        );
    }

    #[test]
    fn a_ratio_of_few_runs_is_marked() {
        let of = |peer: &str| Sample {
            peer: peer.into(),
            ..sample()
        };
        let page = markdown(&compare(
            &[of("a"), of("a"), of("a"), of(OURS)],
            &Thresholds::default(),
        ));
        assert!(page.contains("~1.00x"), "{page}");
    }

    #[test]
    fn operations_come_in_the_order_people_ask_for_them() {
        let page = markdown(&table());
        assert!(page.find("### all_reduce").unwrap() < page.find("### barrier").unwrap());
    }

    #[test]
    fn numbers_have_three_digits() {
        assert_eq!(
            [0.123, 9.87, 12.34, 99.94, 12345.6].map(digits),
            ["0.12", "9.87", "12.3", "99.9", "12346"]
        );
    }
}
