//! `ringwork sim`: what a collective would take on a machine that is only described.

mod call;
mod ccl;
mod row;
mod sweep;

use crate::bench::plot::{self, Plot};
use crate::bench::{Collective, Collectives};
use crate::output::{append, begin_lines, say, write_new};
use crate::units::{parse_bytes, short_bytes};
use crate::{EXIT_INTERRUPTED, interrupt, machine};
use call::{Call, Failure};
use ccl::{Ccl, WorldSize, place_ranks};
use clap::{Args, Subcommand};
use indicatif::ProgressBar;
use ringwork::collectives::Algorithm;
use ringwork::isa::Dtype;
use ringwork::runtime::Interrupter;
use ringwork::sim::{ShowPs, Topology};
use row::{Row, Stretch};
use serde_json::json;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

/// What `ringwork sim` takes.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Sizes are nccl-tests': bytes per rank for all_reduce, broadcast and reduce; all ranks' bytes for the others. \
`of bound` is the least that any algorithm could take, in percent of the time predicted. Every value of every rank \
is checked unless --timing-only; no prediction may be below the bound.

Rows are printed as they are known; Ctrl-C keeps them.

Examples:
  ringwork sim all_reduce --topology h100x8
  ringwork sim all_reduce --topology torus-8x8x8 --algo ring -b 1M -e 1G --timing-only
  ringwork sim all --topology mine.yaml --ccl ccl.yaml --plot curves.html
  ringwork sim sweep bandwidths.yaml --csv=rows.csv"
)]
pub(crate) struct SimArguments {
    #[command(subcommand)]
    command: Option<SimCommand>,
    /// all_reduce, all_gather, reduce_scatter, broadcast, reduce, all_to_all, gather, scatter; or all
    op: Option<Collectives>,
    /// The machine: a preset (`ringwork topo list`) or a file
    #[arg(short, long, value_name = "FILE|PRESET")]
    topology: Option<String>,
    /// Which algorithm runs which collective, with its parameters
    #[arg(long, value_name = "FILE")]
    ccl: Option<PathBuf>,
    /// Smallest size: 8, 4K, 64M [default: 1K]
    #[arg(short = 'b', long, value_name = "SIZE", value_parser = parse_bytes)]
    min_bytes: Option<usize>,
    /// Largest size [default: 1M]
    #[arg(short = 'e', long, value_name = "SIZE", value_parser = parse_bytes)]
    max_bytes: Option<usize>,
    /// Each size is this many times the one before
    #[arg(short = 'f', long, value_name = "FACTOR", default_value_t = 4, value_parser = clap::value_parser!(u32).range(2..))]
    step_factor: u32,
    /// How to all-reduce: onephase, twophase, ring, bidirectional-ring; or all, to compare
    /// [default: what --ccl says, else all]
    #[arg(long, value_name = "NAME")]
    algo: Option<Algorithms>,
    /// How many ranks take part [default: what --ccl says, else all of the machine]
    #[arg(short = 'g', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    ranks: Option<u32>,
    /// Element type: f32, f16, bf16, f64, i8, u8, i32, i64 [default: what --ccl says, else f32]
    #[arg(short = 'd', long, value_name = "TYPE")]
    dtype: Option<Dtype>,
    /// Bytes of scratch per rank; more than fits moves in chunks [default: as much as everything takes at once]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    scratch: Option<usize>,
    /// Compute time alone: memory has sizes and no bytes, and nothing is verified
    #[arg(long)]
    timing_only: bool,
    #[command(flatten)]
    output: OutputArguments,
}

#[derive(Debug, Subcommand)]
enum SimCommand {
    /// Vary a machine and sizes, on all cores
    Sweep(sweep::SweepArguments),
}

/// Where results go besides the table.
#[derive(Clone, Debug, Args)]
struct OutputArguments {
    /// One JSON object, to the output or to a file
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "-")]
    json: Option<PathBuf>,
    /// A line per row as soon as it is known, to the output or added to a file
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "-")]
    csv: Option<PathBuf>,
    /// Draw the curves into FILE.html or FILE.svg
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
}

/// Algorithms that work with what a node's tasks have.
#[derive(Clone, Debug)]
struct Algorithms(Vec<Algorithm>);

impl std::str::FromStr for Algorithms {
    type Err = String;

    fn from_str(name: &str) -> Result<Algorithms, String> {
        match name {
            "all" => Ok(Algorithms::all()),
            one => match one.parse()? {
                Algorithm::Packet => Err("packets are what a communicator uses; choose another".into()),
                one => Ok(Algorithms(vec![one])),
            },
        }
    }
}

impl Algorithms {
    fn all() -> Algorithms {
        let all = Algorithm::ALL.into_iter();
        Algorithms(all.filter(|one| *one != Algorithm::Packet).collect())
    }

    /// The ways to do a collective: those asked for, else what is configured, else all.
    fn ways(asked: Option<&Algorithms>, ccl: &Ccl, collective: Collective) -> Vec<Option<Algorithm>> {
        if collective != Collective::AllReduce {
            return vec![None];
        }
        let chosen = asked
            .cloned()
            .or_else(|| ccl.algorithm(collective).map(|one| Algorithms(vec![one])));
        let Algorithms(ways) = chosen.unwrap_or_else(Algorithms::all);
        ways.into_iter().map(Some).collect()
    }
}

pub(crate) fn run(arguments: &SimArguments) -> ExitCode {
    let done = match &arguments.command {
        Some(SimCommand::Sweep(sweep)) => sweep::run(sweep),
        None => predict(arguments),
    };
    match done {
        Ok(code) => code,
        Err(Refused::Arguments(why)) => {
            eprintln!("error: {why}");
            ExitCode::from(2)
        }
        Err(Refused::Failed(why)) => {
            eprintln!("error: {why}");
            ExitCode::FAILURE
        }
    }
}

/// Why there is no result.
enum Refused {
    /// What was asked for cannot be.
    Arguments(String),
    /// It went wrong.
    Failed(String),
}

impl From<String> for Refused {
    fn from(why: String) -> Refused {
        Refused::Arguments(why)
    }
}

/// One of the calls to make, on its machine.
struct Question {
    call: Call,
    topology: Topology,
    varied: Vec<(String, String)>,
}

impl Question {
    fn ask(&self, stop: &Interrupter, heard: &dyn Fn(u64, u64)) -> Result<Row, Failure> {
        let start = Instant::now();
        let prediction = self.call.simulate(&self.topology, stop, heard)?;
        Ok(Row {
            topology: self.topology.name.clone(),
            varied: self.varied.clone(),
            call: self.call,
            prediction,
            took: start.elapsed(),
        })
    }
}

/// Ctrl-C sets this, and the run ends with what it has.
fn stop() -> Result<Interrupter, Refused> {
    let stop = Interrupter::new().map_err(|error| Refused::Failed(error.to_string()))?;
    interrupt::install();
    interrupt::watch(stop.clone());
    Ok(stop)
}

fn predict(arguments: &SimArguments) -> Result<ExitCode, Refused> {
    let questions = questions(arguments)?;
    let stop = stop()?;
    let mut report = Report::new(&arguments.output)?;
    let mut last = None;
    // Only on a terminal, and only where it takes long enough to be seen.
    let busy = ProgressBar::new_spinner();
    for question in &questions {
        let about = (question.call.collective, question.call.ranks);
        if last != Some(about) && report.for_people() {
            report.introduce(question);
        }
        last = Some(about);
        let answer = question.ask(&stop, &|events, now_ps| {
            let size = short_bytes(question.call.bytes);
            let (name, at) = (question.call.algorithm_name(), ShowPs(now_ps));
            busy.set_message(format!("{name}, {size}: {events} events, {at} so far"));
            busy.tick();
        });
        busy.set_message("");
        match answer {
            Ok(row) => busy.suspend(|| report.add(row))?,
            Err(Failure::Interrupted) => {
                busy.finish_and_clear();
                report.finish(true)?;
                return Ok(ExitCode::from(EXIT_INTERRUPTED));
            }
            Err(Failure::Because(why)) => {
                busy.finish_and_clear();
                report.finish(true)?;
                return Err(Refused::Failed(why));
            }
        }
    }
    busy.finish_and_clear();
    report.finish(false)?;
    Ok(ExitCode::SUCCESS)
}

fn questions(arguments: &SimArguments) -> Result<Vec<Question>, Refused> {
    let Some(op) = &arguments.op else {
        return Err("which collective? `ringwork sim all_reduce --topology h100x8`"
            .to_owned()
            .into());
    };
    let Some(name) = &arguments.topology else {
        return Err(
            "on which machine? add --topology FILE|PRESET; `ringwork topo list` lists presets"
                .to_owned()
                .into(),
        );
    };
    arguments.output.check()?;
    let machine = machine::load(name)?;
    let ccl = match &arguments.ccl {
        None => Ccl::default(),
        Some(path) => {
            let file = path.display().to_string();
            let text = std::fs::read_to_string(path).map_err(|error| format!("{file}: {error}"))?;
            Ccl::parse(&file, &text)?
        }
    };
    let mut all = Vec::new();
    for collective in op.0.iter().copied().filter(|one| *one != Collective::Barrier) {
        let mut ways = Vec::new();
        for algorithm in Algorithms::ways(arguments.algo.as_ref(), &ccl, collective) {
            let of = (collective, algorithm);
            let mut topology = machine.clone();
            let size = match arguments.ranks {
                None => ccl.world_size(of, &mut topology)?,
                Some(ranks) => {
                    let size = WorldSize {
                        ranks,
                        from: "--ranks".into(),
                    };
                    place_ranks(&size, &mut topology)?;
                    size
                }
            };
            let dtype = arguments.dtype.or_else(|| ccl.dtype(of)).unwrap_or(Dtype::F32);
            let call = Call {
                collective,
                algorithm,
                ranks: size.ranks,
                bytes: 0,
                dtype,
                scratch: arguments
                    .scratch
                    .map(|bytes| bytes as u64)
                    .or_else(|| ccl.scratch(of)),
                timing_only: arguments.timing_only,
            };
            check_exact(&call)?;
            ways.push((call, topology, sizes(arguments, &ccl, &call)?));
        }
        // Size by size, so that algorithms can be compared while the rest is still being computed.
        let most = ways.iter().map(|(.., sizes)| sizes.len()).max().unwrap_or(0);
        for index in 0..most {
            for (call, topology, sizes) in &ways {
                if let Some(bytes) = sizes.get(index) {
                    all.push(Question {
                        call: Call {
                            bytes: *bytes,
                            ..*call
                        },
                        topology: topology.clone(),
                        varied: Vec::new(),
                    });
                }
            }
        }
    }
    if all.is_empty() {
        return Err(
            "no size that was asked for can be dealt out to that many ranks; use larger ones"
                .to_owned()
                .into(),
        );
    }
    Ok(all)
}

/// Refuses to verify where sums of so many ranks cannot be exact.
fn check_exact(call: &Call) -> Result<(), String> {
    let narrow = matches!(call.dtype, Dtype::BF16 | Dtype::F16 | Dtype::I8 | Dtype::U8);
    if call.ranks > 64 && narrow && !call.timing_only {
        return Err(format!(
            "{} cannot hold exact sums of {} ranks to verify; use --dtype f32 or --timing-only",
            call.dtype, call.ranks
        ));
    }
    Ok(())
}

fn sizes(arguments: &SimArguments, ccl: &Ccl, call: &Call) -> Result<Vec<usize>, String> {
    let configured = ccl
        .n_elem((call.collective, call.algorithm))
        .map(|elements| elements * call.dtype.bytes());
    let (first, last) = match (arguments.min_bytes, arguments.max_bytes, configured) {
        (None, None, Some(bytes)) => (bytes, bytes),
        (None, Some(last), _) => (last.min(1 << 10), last),
        (first, last, _) => {
            let first = first.unwrap_or(1 << 10);
            (first, last.unwrap_or(first.max(1 << 20)))
        }
    };
    if last < first || first == 0 {
        return Err("sizes go from -b to -e; -b must be at least 1 and at most -e".into());
    }
    let factor = arguments.step_factor as usize;
    let all = std::iter::successors(Some(first), |bytes| bytes.checked_mul(factor));
    let whole = |bytes| {
        call.collective
            .whole(bytes, call.dtype.bytes(), call.ranks as usize)
    };
    let mut sizes: Vec<usize> = all.take_while(|bytes| *bytes <= last).filter_map(whole).collect();
    sizes.dedup();
    Ok(sizes)
}

impl OutputArguments {
    fn check(&self) -> Result<(), String> {
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
struct Report<'a> {
    output: &'a OutputArguments,
    rows: Vec<Row>,
}

impl<'a> Report<'a> {
    fn new(output: &'a OutputArguments) -> Result<Report<'a>, Refused> {
        if let Some(csv) = &output.csv {
            begin_lines(csv, row::CSV_HEADER).map_err(Refused::Failed)?;
        }
        Ok(Report {
            output,
            rows: Vec::new(),
        })
    }

    fn for_people(&self) -> bool {
        let machine = |to: &Option<PathBuf>| to.as_ref().is_some_and(|to| to.as_os_str() == "-");
        !machine(&self.output.json) && !machine(&self.output.csv)
    }

    fn introduce(&self, Question { call, topology, .. }: &Question) {
        let data = if call.timing_only {
            "time alone"
        } else {
            "data verified on every rank"
        };
        let (name, ranks) = (&topology.name, call.ranks);
        say!(
            "# {} on {name}: {ranks} ranks, {data}\n{}",
            call.collective,
            row::head()
        );
    }

    fn add(&mut self, row: Row) -> Result<(), Refused> {
        if self.for_people() {
            say!("{}", row::line(&row));
        }
        self.keep(row)
    }

    fn keep(&mut self, row: Row) -> Result<(), Refused> {
        if let Some(csv) = &self.output.csv {
            append(csv, &row.csv()).map_err(Refused::Failed)?;
        }
        self.rows.push(row);
        Ok(())
    }

    /// Which algorithm wins where, and everything that is written at the end.
    fn finish(&self, interrupted: bool) -> Result<(), Refused> {
        let mut fastest = Vec::new();
        let mut ops: Vec<Collective> = self.rows.iter().map(|row| row.call.collective).collect();
        ops.dedup();
        for op in ops {
            let of: Vec<Row> = self
                .rows
                .iter()
                .filter(|row| row.call.collective == op)
                .cloned()
                .collect();
            if of.iter().any(|row| row.call.algorithm != of[0].call.algorithm) {
                fastest.push((op, row::winners(&of)));
            }
        }
        if self.for_people() {
            for (op, stretches) in &fastest {
                say!("# fastest {op}: {}", stretches_in_words(stretches));
            }
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
    fn write_json(&self, interrupted: bool, fastest: &[(Collective, Vec<Stretch>)]) -> Result<(), Refused> {
        if let Some(path) = &self.output.json {
            let stretch =
                |(name, from, to): &Stretch| json!({ "algo": name, "from_bytes": from, "to_bytes": to });
            let whole = json!({
                "complete": !interrupted,
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
fn curves(rows: &[Row]) -> Plot {
    let (mut times, mut bandwidths) = (Vec::new(), Vec::new());
    for row in rows {
        let (name, x) = (curve_name(row), row.call.bytes as f64);
        plot::add(&mut times, &name, (x, row.time_us()));
        plot::add(&mut bandwidths, &name, (x, row.busbw()));
    }
    Plot {
        title: title(rows),
        charts: [("time (us)", times), ("bus bandwidth (GB/s)", bandwidths)],
        across: "size (bytes)".into(),
        table: page_table(rows),
    }
}

fn curve_name(row: &Row) -> String {
    let name = format!("{}, {}", row.call.collective, row.call.algorithm_name());
    if row.varied.is_empty() {
        name
    } else {
        format!("{name}, {}", row.variation())
    }
}

fn title(rows: &[Row]) -> String {
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

fn page_table(rows: &[Row]) -> Vec<Vec<String>> {
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
