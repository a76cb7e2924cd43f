//! `ringwork bench`: an nccl-tests for CPUs.
//!
//! The program that a user starts launches itself again as ranks, with the same arguments; a rank finds itself in
//! its environment, measures with the others, and rank 0 prints.

mod arguments;
mod collective;
mod measure;
pub(crate) mod plot;
mod row;
mod stats;
pub(crate) mod table;
pub(crate) mod verify;

pub(crate) use arguments::{BenchArguments, Mode, Roots};
pub(crate) use collective::{Collectives, bus_factor};
pub(crate) use measure::{Bench, Question};

use crate::launch;
use crate::output::{EXIT_BROKEN_PIPE, append, begin_lines, complain, reader_is_gone, say, write_new};
use indicatif::{ProgressBar, ProgressStyle};
use plot::of_rows;
use ringwork::communicator::{Communicator, Error};
use ringwork::isa::{Algorithm, Collective, Dtype, ReduceOp, with_dtype};
use ringwork::native::ranks::{self, Job, Outcome, RANK_VARIABLE, Stop};
use row::{CSV_HEADER, Row};
use serde_json::json;
use std::process::ExitCode;
use std::time::Instant;
use table::Table;

pub(crate) fn run(arguments: &BenchArguments) -> ExitCode {
    if let Err(why) = arguments.check() {
        complain(&why);
        return ExitCode::from(2);
    }
    if arguments.join || std::env::var_os(RANK_VARIABLE).is_some() {
        return match measure_all(arguments) {
            Ok(code) => code,
            // Rank 0 has ended because nobody reads its output, and so does this one.
            Err(_) if reader_is_gone() => ExitCode::from(EXIT_BROKEN_PIPE),
            Err(error) => {
                complain(&error);
                ExitCode::FAILURE
            }
        };
    }
    if let Err(error) = Communicator::check_env() {
        complain(&error);
        return ExitCode::from(2);
    }
    let mut job = ranks_of_this(arguments);
    match launch_ms(&job) {
        Ok(ms) => {
            job.arguments.push("--launch-ms".into());
            job.arguments.push(ms.to_string().into());
            launch::supervise(&job)
        }
        Err(code) => code,
    }
}

/// This program with the same arguments, as ranks.
pub(crate) fn ranks_of_this(arguments: &BenchArguments) -> Job {
    let mut job = Job::new("/proc/self/exe", arguments.ranks.unwrap_or(2));
    job.arguments = std::env::args_os().skip(1).collect();
    job.pin = arguments.pin.into();
    job.on_wait = Some(launch::say_wait);
    job
}

/// How long ranks take from being started until the last has met the others, ended and is reaped: the median of
/// five. The exit code if a rank fails meanwhile, which has then been said.
fn launch_ms(job: &Job) -> Result<f64, ExitCode> {
    let mut job = job.clone();
    job.arguments.push("--only-meet".into());
    let mut times = [0.0; 5];
    for time in &mut times {
        let start = Instant::now();
        let outcome = Stop::new().and_then(|stop| ranks::run(&job, &stop, &mut |how| launch::say(&job, how)));
        match outcome {
            Ok(Outcome::Done) => *time = start.elapsed().as_secs_f64() * 1e3,
            Ok(failed) => {
                return Err(ExitCode::from(
                    u8::try_from(failed.exit_code()).unwrap_or(u8::MAX),
                ));
            }
            Err(error) => {
                complain(&error);
                return Err(ExitCode::FAILURE);
            }
        }
    }
    times.sort_unstable_by(f64::total_cmp);
    Ok(times[times.len() / 2])
}

/// What one rank does.
fn measure_all(arguments: &BenchArguments) -> Result<ExitCode, String> {
    let comm = Communicator::from_env().map_err(text)?;
    if arguments.only_meet {
        comm.barrier().map_err(text)?;
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(ranks) = arguments.ranks
        && ranks != comm.size()
    {
        return Err(format!(
            "-g {ranks}, but this job has {} ranks; leave -g out",
            comm.size()
        ));
    }
    if let Roots::One(root) = arguments.root
        && root >= comm.size()
    {
        return Err(format!("-r {root}: there are {} ranks, from 0", comm.size()));
    }
    let questions = questions(arguments, comm.size());
    let mut report = Report::new(arguments, &comm, questions.len())?;
    let mut bench = Bench::new(&comm, arguments).map_err(text)?;
    for (question, dtype) in questions {
        report.begin(&question);
        let mut rows = Vec::new();
        for mode in &arguments.modes {
            let question = Question {
                mode: *mode,
                ..question
            };
            let answer = with_dtype!(dtype, T => bench.ask::<T>(question)).map_err(text)?;
            rows.push(answer.and_then(|answer| Row::new(question, &answer, dtype, comm.size())));
        }
        report.line(&question, dtype, rows)?;
    }
    // Said before the others are let go, or their errors about this rank would come first.
    let code = report.finish().unwrap_or_else(|error| {
        complain(&error);
        ExitCode::FAILURE
    });
    comm.barrier().map_err(text)?;
    Ok(code)
}

fn text(error: Error) -> String {
    error.to_string()
}

/// Everything to measure, in order; each in all modes.
fn questions(arguments: &BenchArguments, ranks: u32) -> Vec<(Question, Dtype)> {
    let mut all = Vec::new();
    for collective in &arguments.op.0 {
        let sums = [ReduceOp::Sum];
        let ops: &[ReduceOp] = if collective.reduces() {
            &arguments.redops.0
        } else {
            &sums
        };
        let roots = match arguments.root {
            Roots::All if collective.has_root() => (0..ranks).map(Roots::One).collect(),
            root => vec![root],
        };
        let ways = arguments.algo.map_or_else(Vec::new, |ways| ways.of(*collective));
        let ways: Vec<Option<Algorithm>> = match ways.is_empty() {
            true => vec![None],
            false => ways.into_iter().map(Some).collect(),
        };
        let none = [Dtype::U8];
        let dtypes: &[Dtype] = if *collective == Collective::Barrier {
            &none
        } else {
            &arguments.dtypes.0
        };
        let sizes = if *collective == Collective::Barrier {
            vec![0]
        } else {
            arguments.sizes()
        };
        for dtype in dtypes {
            for op in ops {
                for root in &roots {
                    let whole = sizes
                        .iter()
                        .filter_map(|bytes| collective.whole(*bytes, dtype.bytes(), ranks as usize));
                    for bytes in whole {
                        for way in &ways {
                            let question = Question {
                                collective: *collective,
                                op: *op,
                                root: *root,
                                way: *way,
                                mode: Mode::Oop,
                                bytes,
                            };
                            all.push((question, *dtype));
                        }
                    }
                }
            }
        }
    }
    all
}

/// What rank 0 shows while the ranks measure; on other ranks it is silent.
struct Report<'a> {
    arguments: &'a BenchArguments,
    speaks: bool,
    ranks: u32,
    table: Table,
    bar: ProgressBar,
    rows: Vec<Row>,
    last: Option<Collective>,
}

impl<'a> Report<'a> {
    fn new(arguments: &'a BenchArguments, comm: &Communicator, steps: usize) -> Result<Report<'a>, String> {
        let report = Report {
            arguments,
            speaks: comm.rank() == 0,
            ranks: comm.size(),
            table: Table::new(arguments),
            bar: bar(arguments, comm.rank() == 0, steps),
            rows: Vec::new(),
            last: None,
        };
        if report.speaks {
            report.introduce()?;
        }
        Ok(report)
    }

    fn introduce(&self) -> Result<(), String> {
        let arguments = self.arguments;
        if let Some(csv) = &arguments.csv {
            begin_lines(csv, CSV_HEADER)?;
        }
        if arguments.for_people() {
            let cores = std::thread::available_parallelism().map_or(1, usize::from);
            let pinned = if cores == 1 { ", each bound to a core" } else { "" };
            say!(
                "# ringwork {} bench: {} ranks{pinned}",
                env!("CARGO_PKG_VERSION"),
                self.ranks
            );
            if let Some(ms) = arguments.launch_ms {
                say!(
                    "# launch + init + finalize of {} ranks: {ms:.1} ms (median of 5)",
                    self.ranks
                );
            }
        }
        Ok(())
    }

    fn begin(&mut self, question: &Question) {
        let collective = question.collective;
        self.bar.set_message(format!(
            "{collective} {}",
            crate::units::short_bytes(question.bytes)
        ));
        if self.last != Some(collective) && self.speaks && self.arguments.for_people() {
            let head = self.table.head();
            self.bar.suspend(|| say!("#\n# {collective}\n{head}"));
        }
        self.last = Some(collective);
    }

    fn line(&mut self, question: &Question, dtype: Dtype, rows: Vec<Option<Row>>) -> Result<(), String> {
        self.bar.inc(1);
        if !self.speaks {
            return Ok(());
        }
        if self.arguments.for_people() {
            let line = self.table.line(question, dtype, &rows);
            self.bar.suspend(|| say!("{line}"));
        }
        for row in rows.into_iter().flatten() {
            if let Some(csv) = &self.arguments.csv {
                append(csv, &row.csv())?;
            }
            self.rows.push(row);
        }
        Ok(())
    }

    fn finish(self) -> Result<ExitCode, String> {
        self.bar.finish_and_clear();
        if !self.speaks {
            return Ok(ExitCode::SUCCESS);
        }
        let wrong: i64 = self.rows.iter().filter_map(|row| row.wrong).sum();
        if self.arguments.for_people() {
            say!("{}", self.table.foot(&self.rows));
        }
        if let Some(path) = &self.arguments.json {
            let rows: Vec<_> = self.rows.iter().map(Row::json).collect();
            let whole = json!({
                "ranks": self.ranks,
                "launch_ms": self.arguments.launch_ms,
                "wrong": wrong,
                "rows": rows,
            });
            write_new(path, &format!("{whole}\n"))?;
        }
        if let Some(path) = &self.arguments.plot {
            let html = path.extension().is_some_and(|end| end == "html");
            write_new(path, &of_rows(&self.rows).draw(html))?;
            if self.arguments.for_people() {
                say!("# drawn in {}", path.display());
            }
        }
        if wrong > 0 {
            complain(format_args!(
                "{wrong} values are wrong; this is a bug in ringwork or a broken machine"
            ));
            return Ok(ExitCode::FAILURE);
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn bar(arguments: &BenchArguments, speaks: bool, steps: usize) -> ProgressBar {
    if !speaks || arguments.op.0.len() == 1 {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:40} {pos} of {len}, {msg}, {eta} left");
    ProgressBar::new(steps as u64).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
