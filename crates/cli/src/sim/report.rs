//! What is shown and kept while rows come in: the table, files, curves.

use super::Refused;
use super::prove::in_words;
use super::question::{LeftOut, Question};
use super::row::{self, Row, Stretch};
use crate::bench::plot::{self, Plot};
use crate::narrow::Narrow;
use crate::output::{append, begin_lines, say, write_new};
use crate::units::short_bytes;
use clap::Args;
use ringwork::isa::Collective;
use ringwork::sim::Topology;
use serde_json::json;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Where results go besides the table.
#[derive(Clone, Debug, Args)]
pub(super) struct OutputArguments {
    /// One JSON object, to the output or to a file
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "-")]
    pub(super) json: Option<PathBuf>,
    /// A line per row as soon as it is known, to the output or added to a file
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "-")]
    pub(super) csv: Option<PathBuf>,
    /// Draw the curves into FILE.html or FILE.svg
    #[arg(long, value_name = "FILE")]
    pub(super) plot: Option<PathBuf>,
}

impl OutputArguments {
    pub(super) fn check(&self) -> Result<(), String> {
        if let Some(plot) = &self.plot
            && !matches!(
                plot.extension().and_then(|end| end.to_str()),
                Some("svg" | "html")
            )
        {
            let plot = plot.display();
            return Err(format!("--plot {plot}: the name must end in .html or .svg"));
        }
        Ok(())
    }
}

/// What is shown and kept while rows come in.
pub(super) struct Report<'a> {
    pub(super) output: &'a OutputArguments,
    pub(super) rows: Vec<Row>,
    narrow: Narrow,
    /// What of each machine has no rate.
    without_rate: BTreeMap<String, String>,
    left_out: Vec<LeftOut>,
}

impl<'a> Report<'a> {
    pub(super) fn new(output: &'a OutputArguments, left_out: Vec<LeftOut>) -> Result<Report<'a>, Refused> {
        if let Some(csv) = &output.csv {
            begin_lines(csv, row::CSV_HEADER).map_err(Refused::Failed)?;
        }
        Ok(Report {
            output,
            rows: Vec::new(),
            narrow: row::narrow(),
            without_rate: BTreeMap::new(),
            left_out,
        })
    }

    /// Says what a comparison leaves out; of one collective, or of all.
    pub(super) fn say_left_out(&self, of: Option<Collective>) {
        for left_out in &self.left_out {
            if of.is_none_or(|of| of == left_out.collective) {
                say!("# left out: {}: {}", left_out.names().join(", "), left_out.why);
            }
        }
    }

    pub(super) fn for_people(&self) -> bool {
        let machine = |to: &Option<PathBuf>| to.as_ref().is_some_and(|to| to.as_os_str() == "-");
        !machine(&self.output.json) && !machine(&self.output.csv)
    }

    pub(super) fn introduce(&self, Question { call, topology, .. }: &Question) {
        let data = if call.prove {
            "each row proved"
        } else if call.timing_only {
            "time alone"
        } else {
            "data verified on every rank"
        };
        let (name, ranks) = (&topology.name, call.ranks);
        say!("# {} on {name}: {ranks} ranks, {data}", call.collective());
        self.say_left_out(Some(call.collective()));
        say!("{}", self.narrow.lines(&row::head()));
    }

    pub(super) fn say_without_rate(&self) {
        for (machine, free) in &self.without_rate {
            say!("# {machine} has no rate for: {free}; what they do takes no time in these predictions");
        }
    }

    /// What the predictions cannot know of a machine is said once, below its rows.
    pub(super) fn on_machine(&mut self, topology: &Topology) {
        if let Some(free) = topology.free_inside_chips() {
            self.without_rate.insert(topology.name.clone(), free);
        }
    }

    pub(super) fn add(&mut self, row: Row) -> Result<(), Refused> {
        if self.for_people() {
            say!("{}", self.narrow.lines(&row::line(&row)));
            if row.call.prove {
                say!("#   proved: {}", in_words(row.call.collective()));
            }
        }
        self.keep(row)
    }

    pub(super) fn keep(&mut self, row: Row) -> Result<(), Refused> {
        if let Some(csv) = &self.output.csv {
            append(csv, &row.csv()).map_err(Refused::Failed)?;
        }
        self.rows.push(row);
        Ok(())
    }

    /// Which algorithm wins where, and everything that is written at the end.
    pub(super) fn finish(&self, interrupted: bool) -> Result<(), Refused> {
        let mut fastest = Vec::new();
        let mut ops: Vec<Collective> = self.rows.iter().map(|row| row.call.collective()).collect();
        ops.dedup();
        for op in ops {
            let of: Vec<Row> = self
                .rows
                .iter()
                .filter(|row| row.call.collective() == op)
                .cloned()
                .collect();
            if of.iter().any(|row| row.call.entry != of[0].call.entry) {
                fastest.push((op, row::winners(&of)));
            }
        }
        if self.for_people() {
            for (op, stretches) in &fastest {
                say!("# fastest {op}: {}", stretches_in_words(stretches));
            }
            self.say_without_rate();
            if interrupted {
                say!("# not all: {} rows", self.rows.len());
            }
        }
        self.write_json(interrupted, &fastest)?;
        if let Some(path) = &self.output.plot {
            let html = path.extension().is_some_and(|end| end == "html");
            write_new(path, &curves(&self.rows).draw(html)).map_err(Refused::Failed)?;
            if self.for_people() {
                say!("# drawn in {}", path.display());
            }
        }
        Ok(())
    }
}

impl Report<'_> {
    pub(super) fn write_json(
        &self,
        interrupted: bool,
        fastest: &[(Collective, Vec<Stretch>)],
    ) -> Result<(), Refused> {
        if let Some(path) = &self.output.json {
            let stretch =
                |(name, from, to): &Stretch| json!({ "algo": name, "from_bytes": from, "to_bytes": to });
            let left_out = |left_out: &LeftOut| json!({ "op": left_out.collective.name(), "algos": left_out.names(), "why": left_out.why });
            let whole = json!({
                "complete": !interrupted,
                "without_rate": self.without_rate,
                "left_out": self.left_out.iter().map(left_out).collect::<Vec<_>>(),
                "rows": self.rows.iter().map(Row::json).collect::<Vec<_>>(),
                "fastest": fastest
                    .iter()
                    .map(|(op, all)| json!({ "op": op.name(), "sizes": all.iter().map(stretch).collect::<Vec<_>>() }))
                    .collect::<Vec<_>>(),
            });
            write_new(path, &format!("{whole}\n")).map_err(Refused::Failed)?;
        }
        Ok(())
    }
}

fn stretches_in_words(stretches: &[Stretch]) -> String {
    let words = |(name, from, to): &Stretch| {
        if from == to {
            format!("{name} at {}", short_bytes(*from))
        } else {
            format!("{name} from {} to {}", short_bytes(*from), short_bytes(*to))
        }
    };
    let all: Vec<_> = stretches.iter().map(words).collect();
    all.join(", ")
}

/// The curves of rows whose sizes differ.
pub(super) fn curves(rows: &[Row]) -> Plot {
    let (mut times, mut bandwidths) = (Vec::new(), Vec::new());
    for row in rows {
        let (name, x) = (curve_name(row), row.call.bytes as f64);
        plot::add(&mut times, &name, (x, row.time_us()));
        plot::add(&mut bandwidths, &name, (x, row.busbw()));
        plot::add_bound(&mut times, &bound_name(row), (x, row.bound_us()));
        plot::add_bound(&mut bandwidths, &bound_name(row), (x, row.bound_busbw()));
    }
    Plot {
        title: title(rows),
        charts: [("time (us)", times), ("bus bandwidth (GB/s)", bandwidths)],
        across: "size (bytes)".into(),
        table: page_table(rows),
    }
}

pub(super) fn curve_name(row: &Row) -> String {
    let name = format!("{}, {}", row.call.collective(), row.call.algorithm_name());
    if row.varied.is_empty() {
        name
    } else {
        format!("{name}, {}", row.variation())
    }
}

/// What no algorithm of the row's collective can beat on the row's machine.
pub(super) fn bound_name(row: &Row) -> String {
    let name = format!("{}, least possible", row.call.collective());
    if row.varied.is_empty() {
        name
    } else {
        format!("{name}, {}", row.variation())
    }
}

pub(super) fn title(rows: &[Row]) -> String {
    let Some(first) = rows.first() else {
        return "ringwork sim".into();
    };
    let (machine, ranks) = (&first.topology, first.call.ranks);
    if rows.iter().all(|row| row.call.ranks == ranks) {
        format!("{machine}: {ranks} ranks, simulated")
    } else {
        format!("{machine}, varied, simulated")
    }
}

pub(super) fn page_table(rows: &[Row]) -> Vec<Vec<String>> {
    let head = [
        "what",
        "machine",
        "ranks",
        "size",
        "time us",
        "algbw GB/s",
        "busbw GB/s",
        "of bound %",
        "busiest link",
    ];
    let mut table = vec![head.map(String::from).to_vec()];
    for row in rows {
        let [_, _, _, _, time, algbw, busbw, of_bound, busiest] = row.cells();
        table.push(vec![
            curve_name(row),
            row.topology.clone(),
            row.call.ranks.to_string(),
            short_bytes(row.call.bytes),
            time,
            algbw,
            busbw,
            of_bound,
            busiest,
        ]);
    }
    table
}
