//! `ringwork launch`: the same program on every rank.

use crate::output::{EXIT_BROKEN_PIPE, EXIT_OUTPUT, announce, complain, reader_is_gone};
use crate::units::parse_time;
use clap::{Args, ValueEnum};
use ringwork::native::ranks::{self, Job, Outcome, Stop};
use ringwork::native::{End, Error};
use std::ffi::OsString;
use std::io::ErrorKind;
use std::process::ExitCode;
use std::time::Duration;

/// What `ringwork launch` takes.
#[derive(Debug, Args)]
#[command(after_help = "\
Each rank finds RINGWORK_RANK, RINGWORK_SIZE and RINGWORK_RENDEZVOUS in its environment; \
`Communicator::from_env()` reads them. Rank 0 reads this command's input, the others none.

The exit code is that of the first rank that fails (128 + signal if it was killed); 74 if tagged output cannot be \
written, 124 after --timeout, 127 if there is no such program, 130 after Ctrl-C. With --keep-going it is that of a \
rank that exits with an error, and 0 if ranks were killed and all others exit with 0.

Examples:
  ringwork launch -n 4 -- ./train --epochs 3
  ringwork launch -n 2 --tag-output --timeout 10m -- python train.py")]
pub(crate) struct LaunchArguments {
    /// How many ranks
    #[arg(short = 'n', long = "ranks", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    ranks: u32,
    /// Begin every line of output with its rank: `[2] `
    #[arg(long)]
    tag_output: bool,
    /// Which cores ranks run on
    #[arg(long, default_value = "auto")]
    pin: Pin,
    /// End everything after this long: 30, 500ms, 2m
    #[arg(long, value_name = "T", value_parser = parse_time)]
    timeout: Option<Duration>,
    /// Time between asking ranks to end and killing them
    #[arg(long, value_name = "T", value_parser = parse_time, default_value = "2s")]
    grace: Duration,
    /// When a rank dies, let the others go on: for programs that shrink
    #[arg(long)]
    keep_going: bool,
    /// The program and its arguments
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "PROGRAM"
    )]
    command: Vec<OsString>,
}

/// How ranks are bound to cores.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Pin {
    /// Each to a core of its own if there are enough; several to a core if every core gets as many; else not at all
    Auto,
    /// Not at all
    None,
    /// One after the other, several to a core if need be
    Core,
}

impl From<Pin> for ranks::Pin {
    fn from(pin: Pin) -> ranks::Pin {
        match pin {
            Pin::Auto => ranks::Pin::Auto,
            Pin::None => ranks::Pin::None,
            Pin::Core => ranks::Pin::Core,
        }
    }
}

pub(crate) fn run(arguments: LaunchArguments) -> ExitCode {
    let mut command = arguments.command.into_iter();
    let Some(program) = command.next() else {
        return ExitCode::from(2);
    };
    let mut job = Job::new(program, arguments.ranks);
    job.arguments = command.collect();
    job.pin = arguments.pin.into();
    job.tag_output = arguments.tag_output;
    job.limit = arguments.timeout;
    job.grace = arguments.grace;
    job.keep_going = arguments.keep_going;
    job.on_wait = Some(say_wait);
    supervise(&job)
}

/// Runs a job to its end, saying what went wrong; Ctrl-C and SIGTERM end it.
pub(crate) fn supervise(job: &Job) -> ExitCode {
    let outcome = Stop::new().and_then(|stop| {
        let on_signal = stop.clone();
        // If it cannot be installed, Ctrl-C kills this process, and the ranks with it: as clean, less polite.
        let _ = ctrlc::set_handler(move || on_signal.stop());
        ranks::run(job, &stop, &mut |outcome| say(job, outcome))
    });
    match outcome {
        Ok(outcome) => ExitCode::from(u8::try_from(outcome.exit_code()).unwrap_or(u8::MAX)),
        Err(error) => {
            complain(cannot_start(job, &error));
            ExitCode::from(match kind(&error) {
                _ if matches!(error, Error::Output { .. }) => EXIT_OUTPUT,
                Some(ErrorKind::NotFound) => 127,
                Some(ErrorKind::PermissionDenied) => 126,
                _ => 1,
            })
        }
    }
}

/// Says what a rank waits for.
pub(crate) fn say_wait(what: &str) {
    announce("ringwork", what);
}

/// Says how a job went wrong.
pub(crate) fn say(job: &Job, outcome: Outcome) {
    // `ringwork bench | head`: the rank that prints has ended because nobody reads, which is no failure.
    let reads = End::Exited(EXIT_BROKEN_PIPE.into());
    if matches!(outcome, Outcome::Failed { rank: 0, end, .. } if end == reads) && reader_is_gone() {
        return;
    }
    let others = match job.size {
        1 => String::new(),
        _ if job.keep_going => "; the others go on".into(),
        2 => "; ending the other rank".into(),
        size => format!("; ending the other {}", size - 1),
    };
    let what = match outcome {
        Outcome::Done => return,
        Outcome::Failed { rank, end, stopped } => {
            let stopped = stopped.map_or_else(String::new, |rank| {
                format!("; rank {rank} is stopped by a signal and answers nobody")
            });
            format!("rank {rank} failed: {end}{stopped}{others}")
        }
        Outcome::Stopped => "interrupted; ending every rank (again to kill)".into(),
        Outcome::Overdue => {
            let limit = job.limit.unwrap_or_default().as_secs_f64();
            format!("not done after {limit} s (--timeout); ending every rank")
        }
    };
    announce("ringwork", what);
}

/// Why the program cannot be executed, if that is the error.
fn kind(error: &Error) -> Option<ErrorKind> {
    match error {
        Error::Program { source, .. } => Some(source.kind()),
        _ => None,
    }
}

fn cannot_start(job: &Job, error: &Error) -> String {
    let program = job.program.to_string_lossy();
    match kind(error) {
        Some(ErrorKind::NotFound) if program.contains('/') => {
            format!("there is no program `{program}` (or the interpreter in its first line is missing)")
        }
        Some(ErrorKind::NotFound) => {
            format!("there is no program `{program}` in PATH; a program in this directory is `./{program}`")
        }
        Some(ErrorKind::PermissionDenied) => {
            format!("`{program}` cannot be executed; `chmod +x` it, or name its interpreter before it")
        }
        _ => error.to_string(),
    }
}
