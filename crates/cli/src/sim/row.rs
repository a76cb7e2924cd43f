//! One prediction, and its forms: a line for people, CSV, JSON.

use super::call::{Call, Prediction};
use crate::bench::bus_factor;
use crate::bench::table::time;
use crate::narrow::Narrow;
use serde_json::{Value, json};
use std::time::Duration;

/// A call, what it would take, and how long that took to find out.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    /// The machine's name, and what was varied of it.
    pub(crate) topology: String,
    pub(crate) varied: Vec<(String, String)>,
    pub(crate) call: Call,
    pub(crate) prediction: Prediction,
    pub(crate) took: Duration,
}

/// The columns of the CSV.
pub(crate) const CSV_HEADER: &str = "topology,varied,op,algorithm,ranks,bytes,dtype,time_us,algbw_GBs,busbw_GBs,\
    bound_us,percent_of_bound,busiest_link,busiest_bytes,busiest_percent,events,verified";

impl Row {
    pub(crate) fn time_us(&self) -> f64 {
        self.prediction.time_ps as f64 / 1e6
    }

    /// GB/s of the size.
    pub(crate) fn algbw(&self) -> f64 {
        match self.prediction.time_ps {
            0 => 0.0,
            ps => self.call.bytes as f64 / (ps as f64 / 1e3),
        }
    }

    pub(crate) fn busbw(&self) -> f64 {
        self.algbw() * bus_factor(self.call.collective(), self.call.ranks)
    }

    /// The least that any algorithm could take.
    pub(crate) fn bound_us(&self) -> f64 {
        self.prediction.bound.total_ps() as f64 / 1e6
    }

    /// The bus bandwidth that no algorithm can exceed.
    pub(crate) fn bound_busbw(&self) -> f64 {
        match self.prediction.bound.total_ps() {
            0 => 0.0,
            ps => self.busbw() * self.prediction.time_ps as f64 / ps as f64,
        }
    }

    /// The least that any algorithm could take, in percent of what this one does.
    pub(crate) fn percent_of_bound(&self) -> f64 {
        match self.prediction.time_ps {
            0 => 100.0,
            ps => 100.0 * self.prediction.bound.total_ps() as f64 / ps as f64,
        }
    }

    /// The busiest link: its name, its bytes, and how much of the time it was busy.
    fn busiest(&self) -> (&str, u64, f64) {
        self.prediction.busiest.as_ref().map_or(("", 0, 0.0), |load| {
            let percent = 100.0 * load.busy_ps as f64 / self.prediction.time_ps.max(1) as f64;
            (load.name.as_str(), load.bytes, percent)
        })
    }

    /// What was varied, on one line.
    pub(crate) fn variation(&self) -> String {
        let parts: Vec<_> = self
            .varied
            .iter()
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        parts.join("; ")
    }

    /// The cells of the line for people, in the order of [`HEADS`].
    pub(crate) fn cells(&self) -> [String; 9] {
        let (link, _, load) = self.busiest();
        let busiest = if link.is_empty() {
            "-".into()
        } else {
            format!("{link} ({load:.0} %)")
        };
        [
            self.call.bytes.to_string(),
            (self.call.bytes / self.call.dtype.bytes()).to_string(),
            self.call.dtype.name().into(),
            self.call.algorithm_name().into(),
            time(self.time_us()),
            format!("{:.2}", self.algbw()),
            format!("{:.2}", self.busbw()),
            format!("{:.1}", self.percent_of_bound()),
            busiest,
        ]
    }

    pub(crate) fn csv(&self) -> String {
        let (link, bytes, load) = self.busiest();
        let quoted = |text: &str| format!("\"{}\"", text.replace('"', "\"\""));
        format!(
            "{},{},{},{},{},{},{},{:.6},{:.3},{:.3},{:.6},{:.2},{},{bytes},{load:.2},{},{}",
            quoted(&self.topology),
            quoted(&self.variation()),
            self.call.collective().name(),
            self.call.algorithm_name(),
            self.call.ranks,
            self.call.bytes,
            self.call.dtype.name(),
            self.time_us(),
            self.algbw(),
            self.busbw(),
            self.bound_us(),
            self.percent_of_bound(),
            quoted(link),
            self.prediction.events,
            match (self.call.prove, self.call.timing_only) {
                (true, _) => "proved",
                (false, true) => "no",
                (false, false) => "yes",
            },
        )
    }

    pub(crate) fn json(&self) -> Value {
        let (link, bytes, load) = self.busiest();
        let bound = &self.prediction.bound;
        let varied: serde_json::Map<_, _> = self
            .varied
            .iter()
            .map(|(key, value)| (key.clone(), value.clone().into()))
            .collect();
        json!({
            "topology": self.topology,
            "varied": varied,
            "op": self.call.collective().name(),
            "algo": self.call.algorithm_name(),
            "ranks": self.call.ranks,
            "bytes": self.call.bytes,
            "count": self.call.bytes / self.call.dtype.bytes(),
            "dtype": self.call.dtype.name(),
            "time_ps": self.prediction.time_ps,
            "algbw_gbs": self.algbw(),
            "busbw_gbs": self.busbw(),
            "bound_ps": {
                "total": bound.total_ps(),
                "latency": bound.latency_ps,
                "bandwidth": bound.bandwidth_ps,
                "compute": bound.compute_ps,
            },
            "percent_of_bound": self.percent_of_bound(),
            "busiest": { "link": link, "bytes": bytes, "percent": load },
            "events": self.prediction.events,
            "verified": !self.call.timing_only,
            "proved": self.call.prove,
            "simulated_in_ms": self.took.as_secs_f64() * 1e3,
        })
    }
}

/// Heads of the columns, their units and widths.
const HEADS: [(&str, &str, usize); 9] = [
    ("size", "(B)", 13),
    ("count", "(elements)", 13),
    ("type", "", 6),
    ("algorithm", "", 20),
    ("time", "(us)", 10),
    ("algbw", "(GB/s)", 9),
    ("busbw", "(GB/s)", 9),
    ("of bound", "(%)", 10),
    ("busiest link", "(busy)", 0),
];

/// How lines fit the terminal: count, type, algbw, busbw, percent of the bound and two blanks may go, in this order.
pub(crate) fn narrow() -> Narrow {
    const BUSIEST: usize = 18;
    let at = |column: usize| {
        let gaps = |columns: usize| if columns > 3 { 2 } else { 0 };
        let start: usize = HEADS[..column].iter().map(|head| head.2).sum();
        let start = 1 + start + gaps(column);
        start..start + HEADS[column].2
    };
    let end = at(7).end;
    Narrow::for_output(end + BUSIEST, &[at(1), at(2), at(5), at(6), at(7), 1..3])
}

/// The lines above the rows.
pub(crate) fn head() -> String {
    let line =
        |of: fn(&(&'static str, &'static str, usize)) -> &'static str| columns(HEADS.iter().map(of), '#');
    format!("{}\n{}", line(|head| head.0), line(|head| head.1))
}

/// A row as a line.
pub(crate) fn line(row: &Row) -> String {
    columns(row.cells().iter().map(String::as_str), ' ')
}

fn columns<'a>(cells: impl Iterator<Item = &'a str>, mark: char) -> String {
    let mut line = String::from(mark);
    for (i, (cell, (_, _, width))) in cells.zip(HEADS).enumerate() {
        // Names to the left, numbers to the right.
        if matches!(i, 3 | 8) {
            line.push_str(&format!("  {cell:<width$}"));
        } else {
            line.push_str(&format!("{cell:>width$}"));
        }
    }
    line.trim_end().to_owned()
}

/// An algorithm, and the first and last of the sizes at which it is the fastest.
pub(crate) type Stretch = (String, usize, usize);

/// Which algorithm is fastest at which sizes, for rows of one collective.
pub(crate) fn winners(rows: &[Row]) -> Vec<Stretch> {
    let mut stretches: Vec<Stretch> = Vec::new();
    let mut sizes: Vec<usize> = rows.iter().map(|row| row.call.bytes).collect();
    sizes.sort_unstable();
    sizes.dedup();
    for bytes in sizes {
        let best = rows
            .iter()
            .filter(|row| row.call.bytes == bytes)
            .min_by_key(|row| row.prediction.time_ps);
        let Some(best) = best else { continue };
        let name = best.call.algorithm_name();
        match stretches.last_mut() {
            Some((last, _, to)) if last == name => *to = bytes,
            _ => stretches.push((name.to_owned(), bytes, bytes)),
        }
    }
    stretches
}
