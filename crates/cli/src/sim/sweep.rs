//! `ringwork sim sweep`: one collective over many machines and sizes, one simulation per core.
//!
//! ```yaml
//! op: all_reduce
//! topology: ring-8              # a preset or a file, or a list of them
//! ccl: ccl.yaml                 # optional
//! sizes: [64 KiB, 1 MiB]        # unless ccl says
//! algorithms: [ring, twophase]  # or all
//! timing_only: yes
//! vary:                         # every combination
//!   network.bandwidth: [50 GB/s, 100 GB/s]
//!   stragglers: [[], [{rank: 0, speed: 0.5}]]
//! ```

use super::algorithms::Algorithms;
use super::call::{Call, Failure};
use super::ccl;
use super::question::{Asked, LeftOut, Question};
use super::report::{OutputArguments, Report, bound_name, curve_name, curves, page_table, title};
use super::row::{self, Row};
use super::{Refused, stop};
use crate::bench::Collectives;
use crate::bench::plot::{self, Plot};
use crate::output::{say, write_new};
use crate::{EXIT_INTERRUPTED, machine};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use ringwork::ccl::{Ccl, WorldSize};
use ringwork::runtime::Interrupter;
use ringwork::sim::Topology;
use ringwork::sim::yaml::{Reader, Table, Tree};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

#[derive(Debug, Args)]
pub(crate) struct SweepArguments {
    /// What to vary
    spec: PathBuf,
    /// Simulations at a time [default: one per core]
    #[arg(short = 'j', long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    jobs: Option<u16>,
    #[command(flatten)]
    output: OutputArguments,
}

const KEYS: [&str; 10] = [
    "op",
    "topology",
    "ccl",
    "sizes",
    "algorithms",
    "ranks",
    "dtype",
    "scratch",
    "timing_only",
    "vary",
];

/// More than anybody reads; keeps a slip from taking the day.
const MAX_ROWS: usize = 100_000;

pub(crate) fn run(arguments: &SweepArguments) -> Result<ExitCode, Refused> {
    arguments.output.check()?;
    let file = arguments.spec.display().to_string();
    let text =
        ringwork::native::read_config_file(&arguments.spec).map_err(|error| format!("{file}: {error}"))?;
    let (questions, left_out) = questions(&file, &text)?;
    let stop = stop()?;
    let mut report = Report::new(&arguments.output, left_out)?;
    if report.for_people() {
        report.say_left_out(None);
        say!("# {file}: {} rows\n{}", questions.len(), head(&questions));
    }
    let jobs = arguments.jobs.map_or_else(
        || std::thread::available_parallelism().map_or(1, usize::from),
        usize::from,
    );
    let failure = answer_all(&questions, jobs, &stop, &mut report)?;
    report.end(failure.is_some())?;
    match failure {
        None => Ok(ExitCode::SUCCESS),
        Some(Failure::Interrupted) => Ok(ExitCode::from(EXIT_INTERRUPTED)),
        Some(Failure::Because(why)) => Err(Refused::Failed(why)),
    }
}

/// Asks all questions on `jobs` threads. Rows come out in the order of the questions; the first failure ends
/// it, after everything that was known came out.
fn answer_all(
    questions: &[Question],
    jobs: usize,
    stop: &Interrupter,
    report: &mut Report<'_>,
) -> Result<Option<Failure>, Refused> {
    let bar = bar(questions.len());
    let next = AtomicUsize::new(0);
    let (answers, inbox) = channel();
    std::thread::scope(|scope| {
        for _ in 0..jobs.min(questions.len()) {
            let answers: Sender<_> = answers.clone();
            let next = &next;
            scope.spawn(move || {
                while let index = next.fetch_add(1, Ordering::Relaxed)
                    && let Some(question) = questions.get(index)
                {
                    let answer = question.ask(stop, &|_, _| {});
                    let failed = answer.is_err();
                    if answers.send((index, answer)).is_err() || failed {
                        break;
                    }
                }
            });
        }
        drop(answers);
        let outcome = collect(&inbox, &bar, stop, &next, report);
        bar.finish_and_clear();
        outcome
    })
}

fn collect(
    inbox: &Receiver<(usize, Result<Row, Failure>)>,
    bar: &ProgressBar,
    stop: &Interrupter,
    next: &AtomicUsize,
    report: &mut Report<'_>,
) -> Result<Option<Failure>, Refused> {
    let (mut early, mut expected, mut failure) = (BTreeMap::new(), 0, None);
    for (index, answer) in inbox {
        bar.inc(1);
        match answer {
            Ok(row) => drop(early.insert(index, row)),
            Err(why) => {
                // Nobody begins anything new; what is under way is given up.
                next.store(usize::MAX / 2, Ordering::Relaxed);
                stop.interrupt();
                if !matches!(failure, Some(Failure::Because(_))) {
                    failure = Some(why);
                }
            }
        }
        while let Some(row) = early.remove(&expected) {
            bar.suspend(|| report.add_varied(row))?;
            expected += 1;
        }
    }
    // Of an interrupted sweep also those whose predecessors are missing.
    for (_, row) in early {
        bar.suspend(|| report.add_varied(row))?;
    }
    Ok(failure)
}

fn bar(rows: usize) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:40} {pos} of {len}, {eta} left");
    ProgressBar::new(rows as u64).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

impl Report<'_> {
    fn add_varied(&mut self, row: Row) -> Result<(), Refused> {
        if self.for_people() {
            let line = row::line(&row);
            let about = format!("{} x{}", row.topology, row.call.ranks);
            say!("{line:<118}  {about}  {}", row.variation());
        }
        self.keep(row)
    }

    fn end(&self, incomplete: bool) -> Result<(), Refused> {
        if self.for_people() {
            self.say_without_rate();
        }
        if self.for_people() && incomplete {
            say!("# not all: {} rows", self.rows.len());
        }
        self.write_json(incomplete, &[])?;
        if let Some(path) = &self.output.plot {
            let html = path.extension().is_some_and(|end| end == "html");
            write_new(path, &varied_curves(&self.rows).draw(html)).map_err(Refused::Failed)?;
            if self.for_people() {
                say!("# drawn in {}", path.display());
            }
        }
        Ok(())
    }
}

fn head(questions: &[Question]) -> String {
    let head = row::head();
    let mut lines = head.lines();
    let (names, units) = (lines.next().unwrap_or(""), lines.next().unwrap_or(""));
    let data = if questions.iter().any(|question| question.call.timing_only) {
        "time alone"
    } else {
        "data verified on every rank"
    };
    format!("{names:<118}  machine\n{units:<118}  ({data})")
}

/// Curves over sizes; or, of one size, over the numbers that vary.
fn varied_curves(rows: &[Row]) -> Plot {
    let one_size = rows.iter().all(|row| row.call.bytes == rows[0].call.bytes);
    let over_ranks = rows.iter().any(|row| row.call.ranks != rows[0].call.ranks);
    let key = rows
        .first()
        .and_then(|row| row.varied.iter().rposition(|(_, value)| number(value).is_some()));
    if !one_size || !over_ranks && key.is_none() {
        return curves(rows);
    }
    let across = match key {
        _ if over_ranks => "ranks".to_owned(),
        Some(key) => rows[0].varied[key].0.clone(),
        None => String::new(),
    };
    let (mut times, mut bandwidths) = (Vec::new(), Vec::new());
    for row in rows {
        let mut rest = row.clone();
        let x = match key {
            _ if over_ranks => {
                rest.varied.retain(|(_, value)| number(value).is_none());
                Some(f64::from(row.call.ranks))
            }
            Some(key) => number(&rest.varied.remove(key).1),
            None => None,
        };
        if let Some(x) = x {
            let name = curve_name(&rest);
            plot::add(&mut times, &name, (x, row.time_us()));
            plot::add(&mut bandwidths, &name, (x, row.busbw()));
            let bound = bound_name(&rest);
            plot::add_bound(&mut times, &bound, (x, row.bound_us()));
            plot::add_bound(&mut bandwidths, &bound, (x, row.bound_busbw()));
        }
    }
    Plot {
        title: title(rows),
        charts: [("time (us)", times), ("bus bandwidth (GB/s)", bandwidths)],
        across,
        table: page_table(rows),
    }
}

/// The number that a value begins with: 50 of `50 GB/s`.
fn number(value: &str) -> Option<f64> {
    let end = value
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(value.len());
    value[..end].parse().ok().filter(|number| *number > 0.0)
}

fn text(error: ringwork::sim::yaml::ConfigError) -> String {
    error.to_string()
}

/// Every combination that a spec asks for, each checked before any is simulated.
fn questions(file: &str, text_of_file: &str) -> Result<(Vec<Question>, Vec<LeftOut>), String> {
    let tree = Tree::parse(file, text_of_file).map_err(text)?;
    let top = tree.reader().table(&KEYS).map_err(text)?;
    let op = top.need("op", "all_reduce").map_err(text)?;
    let ops: Collectives = parsed(&op)?;
    let ccl = match top.get("ccl") {
        None => Ccl::default(),
        Some(reader) => {
            let path = reader.text().map_err(text)?;
            ccl::load(Path::new(path)).map_err(|why| format!("{}: ccl: {why}", reader.place()))?
        }
    };
    let sizes = match top.get("sizes") {
        None => None,
        Some(reader) => Some(
            many(&reader)?
                .iter()
                .map(|size| size.bytes().map_err(text))
                .collect::<Result<Vec<u64>, String>>()?,
        ),
    };
    let algorithms = top.get("algorithms").map(|reader| ways(&reader)).transpose()?;
    let ranks = match top.get("ranks") {
        None => vec![None],
        Some(reader) => many(&reader)?
            .iter()
            .map(|one| {
                let (ranks, from) = (one.count(1, 1 << 32).map_err(text)?, one.place());
                Ok(Some(WorldSize { ranks, from }))
            })
            .collect::<Result<Vec<_>, String>>()?,
    };
    let mut asked = Asked {
        algorithms: algorithms.as_ref(),
        ranks: None,
        dtype: top.get("dtype").map(|reader| parsed(&reader)).transpose()?,
        scratch: top
            .get("scratch")
            .map(|reader| reader.bytes().map_err(text))
            .transpose()?,
        timing_only: top.get("timing_only").map_or(Ok(false), |reader| yes(&reader))?,
        prove: false,
        ccl: &ccl,
    };
    let (mut questions, mut left_out) = (Vec::new(), Vec::new());
    for (machine, varied) in machines(&top)? {
        for size in &ranks {
            asked.ranks.clone_from(size);
            for collective in ops.0.iter().copied() {
                let calls = asked.calls(collective, &machine, &mut left_out)?;
                let most = sizes.as_ref().map_or(1, Vec::len);
                for (index, (call, topology)) in (0..most).flat_map(|i| calls.iter().map(move |c| (i, c))) {
                    let configured = ccl
                        .n_elem((call.collective(), call.entry.algorithm))
                        .map(|elements| (elements * call.dtype.bytes()) as u64);
                    let bytes = match (&sizes, configured) {
                        (Some(sizes), _) => sizes[index],
                        (None, Some(bytes)) => bytes,
                        (None, None) => {
                            let missing = top.need("sizes", "[64 KiB, 1 MiB]");
                            return Err(missing.err().map_or_else(String::new, text));
                        }
                    };
                    let asked = usize::try_from(bytes).unwrap_or(usize::MAX);
                    let whole = collective.whole(asked, call.dtype.bytes(), call.ranks as usize);
                    let whole = whole.ok_or_else(|| {
                        let (place, ranks) = (op.place(), call.ranks);
                        format!("{place}: {collective} of {bytes} B cannot be dealt out to {ranks} ranks")
                    })?;
                    questions.push(Question {
                        call: Call {
                            bytes: whole,
                            ..*call
                        },
                        topology: topology.clone(),
                        varied: varied.clone(),
                    });
                }
            }
            if questions.len() > MAX_ROWS {
                return Err(format!("{file}: more than {MAX_ROWS} rows; vary less"));
            }
        }
    }
    // Calls that were left out are listed in the report.
    if questions.is_empty() && left_out.is_empty() {
        return Err(format!(
            "{file}: nothing to simulate: `topology`, `sizes`, `ranks` or a list in `vary` is empty; give it a value"
        ));
    }
    Ok((questions, left_out))
}

type Varied = Vec<(String, String)>;

/// Every machine: each topology with every combination of what varies.
fn machines(top: &Table<'_>) -> Result<Vec<(Topology, Varied)>, String> {
    let mut combinations: Vec<Varied> = vec![Vec::new()];
    if let Some(vary) = top.get("vary") {
        for (key, values) in vary.entries().map_err(text)? {
            let values = values.list().map_err(text)?;
            let combined = combinations.iter().flat_map(|before| {
                values.iter().map(move |value| {
                    let mut varied = before.clone();
                    varied.push((key.to_owned(), value.flow()));
                    varied
                })
            });
            combinations = combined.take(MAX_ROWS + 1).collect();
        }
    }
    let mut machines: Vec<(Topology, Varied)> = Vec::new();
    for reader in many(&top.need("topology", "ring-8").map_err(text)?)? {
        let (file, yaml) = machine::source(reader.text().map_err(text)?)?;
        let tree = Tree::parse(&file, &yaml).map_err(text)?;
        let first = machines.len();
        for varied in &combinations {
            let mut tree = tree.clone();
            for (key, value) in varied {
                tree.set(key, value).map_err(text)?;
            }
            let topology = Topology::from_tree(&file, &tree).map_err(|error| {
                let what: Vec<_> = varied
                    .iter()
                    .map(|(key, value)| format!("{key}={value}"))
                    .collect();
                format!("{error} (with {})", what.join(", "))
            })?;
            machines.push((topology, varied.clone()));
        }
        if let Some(key) = without_effect(&machines[first..]) {
            let at = top.need("vary", "{network.bandwidth: [50 GB/s, 100 GB/s]}");
            let at = at.map(|vary| vary.place()).map_err(text)?;
            return Err(format!(
                "{at}: `{key}` changes nothing on `{file}`: all of its values give the same machine; take it out of `vary`"
            ));
        }
    }
    Ok(machines)
}

/// A place whose values give the same machine, whatever the others are.
fn without_effect(machines: &[(Topology, Varied)]) -> Option<&str> {
    let (_, keys) = machines.first()?;
    let others = |varied: &Varied, index: usize| -> Varied {
        let mut varied = varied.clone();
        varied.remove(index);
        varied
    };
    let (index, _) = keys.iter().enumerate().find(|&(index, _)| {
        let mut seen: BTreeMap<Varied, (&Topology, &String)> = BTreeMap::new();
        let mut several = false;
        let same = machines.iter().all(|(topology, varied)| {
            let value = &varied[index].1;
            match seen.get(&others(varied, index)) {
                None => {
                    seen.insert(others(varied, index), (topology, value));
                    true
                }
                Some((first, known)) => {
                    several |= *known != value;
                    first.behaves_as(topology)
                }
            }
        });
        several && same
    })?;
    Some(&keys[index].0)
}

/// A list, or one alone.
fn many<'a>(reader: &Reader<'a>) -> Result<Vec<Reader<'a>>, String> {
    if reader.is_list() {
        reader.list().map_err(text)
    } else {
        Ok(vec![reader.clone()])
    }
}

fn parsed<T: std::str::FromStr>(reader: &Reader<'_>) -> Result<T, String>
where
    T::Err: std::fmt::Display,
{
    let word = reader.text().map_err(text)?;
    word.parse()
        .map_err(|why: T::Err| format!("{}: {why}", reader.place()))
}

fn ways(reader: &Reader<'_>) -> Result<Algorithms, String> {
    let mut all = Algorithms::default();
    for one in many(reader)? {
        all = all.and(parsed(&one)?);
    }
    Ok(all)
}

fn yes(reader: &Reader<'_>) -> Result<bool, String> {
    match reader.text().map_err(text)? {
        "true" | "yes" => Ok(true),
        "false" | "no" => Ok(false),
        other => Err(format!("{}: `{other}` is neither yes nor no", reader.place())),
    }
}
