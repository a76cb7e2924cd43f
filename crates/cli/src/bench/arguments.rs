//! What `ringwork bench` takes: the flags of nccl-tests, and ours.

use super::collective::Collectives;
use crate::launch::Pin;
use crate::units::{parse_bytes, parse_time};
use clap::{Args, ValueEnum};
use ringwork::collectives::catalogue;
use ringwork::communicator::choices;
use ringwork::isa::{Algorithm, Collective, Dtype, ReduceOp};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// What `ringwork bench` takes.
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Times are medians in microseconds. In modes oop and inp a call's time is from the moment the last rank left the \
call before to the moment the last rank leaves this one; in mode use it is from the first rank's entry to the last \
rank's exit, and every call works on input that was just written and its whole result is read.

Sizes are nccl-tests': bytes per rank for all_reduce, broadcast and reduce; all ranks' bytes for the others. \
algbw = size / time; busbw = algbw x 2(n-1)/n for all_reduce, x (n-1)/n for the others, x 1 for broadcast and reduce.

Exits with 1 if any value is wrong.

Examples:
  ringwork bench all_reduce -g 2 -b 8 -e 64M -f 2
  ringwork bench all_reduce -g 2 --modes inp,use --plot all_reduce.html
  ringwork bench all_reduce -b 4K -e 4M --algo all
  ringwork bench all -g 4 -e 1M --csv=all.csv
  ringwork launch -n 2 -- ringwork bench barrier")]
pub(crate) struct BenchArguments {
    /// all_reduce, all_gather, reduce_scatter, broadcast, reduce, all_to_all, gather, scatter, barrier; or all
    pub(crate) op: Collectives,
    /// Ranks, each a process [default: 2, or those of the job this is part of]
    #[arg(short = 'g', long = "ranks", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) ranks: Option<u32>,
    /// Smallest size: 8, 4K, 64M
    #[arg(short = 'b', long, value_name = "SIZE", default_value = "8", value_parser = parse_bytes)]
    pub(crate) min_bytes: usize,
    /// Largest size
    #[arg(short = 'e', long, value_name = "SIZE", default_value = "64M", value_parser = parse_bytes)]
    pub(crate) max_bytes: usize,
    /// Each size is this many times the one before
    #[arg(short = 'f', long, value_name = "FACTOR", default_value_t = 4, value_parser = clap::value_parser!(u32).range(2..))]
    pub(crate) step_factor: u32,
    /// Timed calls per size [default: as many as fit --target, 7 to 20000]
    #[arg(short = 'n', long, value_name = "CALLS", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) iters: Option<u32>,
    /// Calls before, not timed [default: 50 up to 64K, then 3]
    #[arg(short = 'w', long, value_name = "CALLS")]
    pub(crate) warmup_iters: Option<u32>,
    /// Check every value of the result: 1 or 0
    #[arg(short = 'c', long, value_name = "0|1", default_value_t = 1, value_parser = clap::value_parser!(u8).range(0..=1))]
    pub(crate) check: u8,
    #[arg(short = 'o', long = "redop", help = format!("Reduction: {}, or all", ReduceOp::names()), value_name = "OP", default_value = "sum")]
    pub(crate) redops: Choice<ReduceOp>,
    #[arg(short = 'd', long = "datatype", help = format!("Element type: {}, or all", Dtype::names()), value_name = "TYPE", default_value = "f32")]
    pub(crate) dtypes: Choice<Dtype>,
    /// Root: a rank; all, one after the other; or a new one for every call, so that calls cannot overlap
    #[arg(short = 'r', long, default_value = "rotate")]
    pub(crate) root: Roots,
    /// Whose exit ends a call: 0 rank 0's, 1 the average, 2 the first, 3 the last
    #[arg(short = 'a', long, value_name = "0..3", default_value_t = 3, value_parser = clap::value_parser!(u8).range(0..=3))]
    pub(crate) average: u8,
    /// oop: two buffers, inp: one buffer, use: with fresh input, reading the result
    #[arg(long, value_delimiter = ',', default_value = "oop,inp")]
    pub(crate) modes: Vec<Mode>,
    /// Data in the communicator's window in every mode [default: only in inp and use]
    #[arg(long, conflicts_with = "own")]
    pub(crate) window: bool,
    /// Data in each process's own memory in every mode
    #[arg(long)]
    pub(crate) own: bool,
    /// How to do it: of all_reduce packet, onephase, twophase, staged-ring, window-pull, window-push; of
    /// all_gather, reduce_scatter, broadcast, all_to_all packet, staged, window-pull; or all, to compare
    /// [default: what the library chooses]
    #[arg(long, value_name = "NAME")]
    pub(crate) algo: Option<Algorithms>,
    /// Time to spend on the timed calls of one size
    #[arg(long, value_name = "T", default_value = "50ms", value_parser = parse_time)]
    pub(crate) target: Duration,
    /// Show percentiles of the times
    #[arg(short = 'I', long)]
    pub(crate) percentiles: bool,
    /// One JSON object, to the output or to a file
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "-")]
    pub(crate) json: Option<PathBuf>,
    /// Lines for comparison with other libraries, to the output or added to a file
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "-")]
    pub(crate) csv: Option<PathBuf>,
    /// Draw latency and bandwidth into FILE.svg or FILE.html
    #[arg(long, value_name = "FILE")]
    pub(crate) plot: Option<PathBuf>,
    /// Which cores ranks run on
    #[arg(long, default_value = "auto")]
    pub(crate) pin: Pin,
    /// Be one rank of a job that torchrun, mpirun or srun started
    #[arg(long)]
    pub(crate) join: bool,
    /// What the launcher measured: start, meeting and end of all ranks.
    #[arg(long, hide = true)]
    pub(crate) launch_ms: Option<f64>,
    /// Spoil one value on the last rank before values are checked: proves that the check sees it.
    #[arg(long, hide = true)]
    pub(crate) spoil: bool,
    /// Only meet and end: what the launcher measures.
    #[arg(long, hide = true)]
    pub(crate) only_meet: bool,
}

impl BenchArguments {
    /// Refuses what cannot be measured.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.max_bytes < self.min_bytes {
            return Err("the largest size (-e) is below the smallest (-b)".into());
        }
        if self.min_bytes == 0 {
            return Err("-b 0: nothing would be measured; use at least 1".into());
        }
        if let Some(plot) = &self.plot
            && !matches!(
                plot.extension().and_then(|end| end.to_str()),
                Some("svg" | "html")
            )
        {
            return Err(format!(
                "--plot {}: the name must end in .svg or .html",
                plot.display()
            ));
        }
        self.check_algorithms()
    }

    /// Of one operation there must be what is asked for; of all, those that have it.
    fn check_algorithms(&self) -> Result<(), String> {
        let (Some(asked), [only]) = (self.algo, &self.op.0[..]) else {
            return Ok(());
        };
        if !asked.of(*only).is_empty() {
            return Ok(());
        }
        let names: Vec<&str> = choices(*only).map(Algorithm::name).collect();
        Err(match asked {
            Algorithms::One(algorithm) if names.len() > 1 => {
                format!(
                    "--algo {algorithm}: {only} has no such algorithm on one host; use one of {}, all",
                    names.join(", ")
                )
            }
            _ => format!("--algo: there is only one way to do {only}; leave it out"),
        })
    }

    /// The sizes asked for.
    pub(crate) fn sizes(&self) -> Vec<usize> {
        let next = |bytes: &usize| bytes.checked_mul(self.step_factor as usize);
        std::iter::successors(Some(self.min_bytes), next)
            .take_while(|bytes| *bytes <= self.max_bytes)
            .collect()
    }

    /// Whether people read the output.
    pub(crate) fn for_people(&self) -> bool {
        let machine = |to: &Option<PathBuf>| to.as_ref().is_some_and(|to| to.as_os_str() == "-");
        !machine(&self.json) && !machine(&self.csv)
    }
}

/// How calls follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mode {
    /// Two buffers, call after call
    Oop,
    /// One buffer, call after call
    Inp,
    /// Input rewritten before each call, result read inside the timed region
    Use,
}

impl Mode {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Mode::Oop => "oop",
            Mode::Inp => "inp",
            Mode::Use => "use",
        }
    }

    pub(crate) const fn title(self) -> &'static str {
        match self {
            Mode::Oop => "out-of-place",
            Mode::Inp => "in-place",
            Mode::Use => "fresh input, result read",
        }
    }
}

/// One of a kind, or all.
#[derive(Clone, Debug)]
pub(crate) struct Choice<T>(pub(crate) Vec<T>);

macro_rules! choice {
    ($($t:ty),*) => {$(
        impl FromStr for Choice<$t> {
            type Err = String;
            fn from_str(name: &str) -> Result<Self, String> {
                match name {
                    "all" => Ok(Choice(<$t>::ALL.to_vec())),
                    one => one.parse().map(|one| Choice(vec![one])),
                }
            }
        }
    )*};
}
choice!(ReduceOp, Dtype);

/// Which algorithms to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Algorithms {
    One(Algorithm),
    All,
}

impl Algorithms {
    /// Those that a collective has: none if it has no such algorithm, or no choice.
    pub(crate) fn of(self, collective: Collective) -> Vec<Algorithm> {
        let all: Vec<Algorithm> = choices(collective).collect();
        if all.len() < 2 {
            return Vec::new();
        }
        let asked = |one: &Algorithm| self == Algorithms::All || self == Algorithms::One(*one);
        all.into_iter().filter(asked).collect()
    }
}

impl FromStr for Algorithms {
    type Err = String;

    fn from_str(name: &str) -> Result<Algorithms, String> {
        match name {
            "all" => Ok(Algorithms::All),
            one => catalogue::algorithm(one).map(Algorithms::One),
        }
    }
}

/// Which roots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Roots {
    One(u32),
    All,
    Rotate,
}

impl FromStr for Roots {
    type Err = String;

    fn from_str(text: &str) -> Result<Roots, String> {
        match text {
            "all" => Ok(Roots::All),
            "rotate" => Ok(Roots::Rotate),
            rank => rank
                .parse()
                .map(Roots::One)
                .map_err(|_| "use a rank, `all` or `rotate`".into()),
        }
    }
}
