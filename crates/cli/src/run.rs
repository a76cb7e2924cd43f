//! `ringwork run`: an example, verified.

use crate::devices::DeviceList;
use crate::examples::{self, Choice, Example};
use crate::job::{Job, Times, exact_ranks};
use crate::output::{announce, complain, print_error_text, print_text, say};
use crate::sim::ccl;
use crate::{EXIT_INTERRUPTED, interrupt, machine, report, timeline};
use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use ringwork::ccl::Ccl;
use ringwork::collectives::catalogue::{self, Entry};
use ringwork::isa::nearest;
use ringwork::native::memory::available_bytes;
use ringwork::prelude::Dtype;
use ringwork::runtime::{Checking, Platform, Simulation};
use std::cell::RefCell;
use std::path::PathBuf;
use std::process::ExitCode;

/// What `ringwork run` takes.
#[derive(Debug, Args)]
pub(crate) struct RunArguments {
    /// The example; `ringwork examples` lists them
    name: String,
    /// Where it runs
    #[arg(short, long, default_value = "native")]
    platform: Where,
    /// The machine to simulate: a preset (`ringwork topo list`) or a file [default: ring-N, as large as the
    /// devices need]
    #[arg(short, long, value_name = "FILE|PRESET")]
    topology: Option<String>,
    /// With -p sim: look for races too
    #[arg(long)]
    races: bool,
    /// Write what ran where and when: .html to look at, .json for Perfetto; also of a run that failed
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// The chips: 0-3 or 0,2,5
    #[arg(short, long)]
    devices: Option<DeviceList>,
    #[arg(long, value_name = "NAME", help = algorithm_help())]
    algo: Option<String>,
    /// Take the algorithm, the number of ranks and elements and their type from this file, if they are not said here
    #[arg(long, value_name = "ccl.yaml")]
    ccl: Option<PathBuf>,
    /// Elements per rank [default: 256]
    #[arg(long)]
    count: Option<usize>,
    #[arg(long, help = format!("Type of the elements: {} [default: f32, or what the example has]", Dtype::names()))]
    dtype: Option<Dtype>,
    /// How often to do it, verifying every time
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// One JSON object instead of text
    #[arg(long)]
    json: bool,
}

/// The catalogue has the names, so that none is missing here.
fn algorithm_help() -> String {
    format!(
        "How its collective is done, of what its collective has: {}; `ringwork examples --json` lists what each example can do",
        crate::sim::algorithm_names().join(", ")
    )
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Where {
    /// One process per chip on this host
    Native,
    /// A described machine, in virtual time
    Sim,
    /// No machine and no time: proves that there is no race, deadlock or misused signal, or says where it is
    Check,
}

/// The most elements an example makes per rank: 1 Gi.
const MAX_COUNT: usize = 1 << 30;

pub(crate) fn run(arguments: &RunArguments) -> ExitCode {
    let Some(example) = examples::ALL
        .iter()
        .find(|example| example.name == arguments.name)
    else {
        let near = nearest(&arguments.name, examples::ALL.iter().map(|example| example.name));
        let hint = near.map_or_else(
            || "`ringwork examples` lists them".into(),
            |near| format!("did you mean `{near}`?"),
        );
        return refuse(&format!("there is no example `{}`; {hint}", arguments.name));
    };
    let settings = match Settings::resolve(example, arguments) {
        Ok(settings) => settings,
        Err(why) => return refuse(&why),
    };
    let (entry, count, dtype) = (settings.entry, settings.count, settings.dtype);
    let mut devices = settings.devices;
    if devices.len() < example.min_devices {
        return refuse(&format!(
            "`{}` needs at least {} devices; use -d",
            example.name, example.min_devices
        ));
    }
    if !example.dtypes.contains(&dtype) {
        let have: Vec<_> = example.dtypes.iter().map(ToString::to_string).collect();
        return refuse(&format!(
            "`{}` has no {}; use --dtype {}",
            example.name,
            dtype,
            have.join(" or ")
        ));
    }
    if let Some(max) = example.max_devices.filter(|max| *max < devices.len()) {
        let unused: Vec<_> = devices.drain(max..).map(|device| device.to_string()).collect();
        let unused = unused.join(", ");
        announce(
            "note",
            format_args!(
                "`{}` uses {max} of these devices; not started: {unused}",
                example.name
            ),
        );
    }
    let platform = match platform(arguments, dtype, &devices) {
        Ok(platform) => platform,
        Err(why) => return refuse(&why),
    };
    let grid = grid(&platform, &devices);
    if let (Choice::Of(_), Err(why)) = (example.choice, entry.fits(ranks(&devices), grid.as_deref())) {
        return refuse(&why);
    }
    let job = Job {
        platform,
        devices,
        count,
        dtype,
        entry,
        grid,
        rounds: arguments.rounds,
        bar: bar(arguments),
        times: RefCell::new(Times::default()),
    };
    interrupt::install();
    let code = execute(example, &job, arguments.json);
    match write_trace(arguments, &job) {
        Ok(()) => code,
        Err(why) => {
            complain(&why);
            ExitCode::FAILURE
        }
    }
}

/// What the command line and the file together ask for.
struct Settings {
    entry: &'static Entry,
    devices: Vec<u32>,
    count: usize,
    dtype: Dtype,
}

impl Settings {
    fn resolve(example: &Example, arguments: &RunArguments) -> Result<Settings, String> {
        let explain = |why: String| format!("`{}`: {why}", example.name);
        let ccl = match (&arguments.ccl, example.choice.collective()) {
            (Some(_), None) => return Err(explain("there is no collective in it; leave --ccl out".into())),
            (Some(path), Some(_)) => ccl::load(path)?,
            (None, _) => Ccl::default(),
        };
        // The file may say how large the call is only for an algorithm, and the algorithm only for a size: what it says by
        // name comes first.
        let usual = example.choice.entry(arguments.algo.as_deref()).map_err(explain)?;
        let collective = usual.collective;
        let by_name = ccl.named(collective).or(ccl.default_algorithm());
        let of = (collective, by_name.unwrap_or(usual.algorithm));
        let devices: Vec<u32> = match (&arguments.devices, ccl.world_size(of)) {
            (Some(list), _) => list.0.clone(),
            (None, Some(size)) => (0..size.ranks).collect(),
            (None, None) => (0..example.default_devices).collect(),
        };
        let count = arguments.count.or(ccl.n_elem(of)).unwrap_or(256);
        if count > MAX_COUNT {
            return Err(format!("--count {count} is more than {MAX_COUNT}; ask for less"));
        }
        let all: Dtype = match example.dtypes.contains(&Dtype::F32) {
            true => Dtype::F32,
            false => example.dtypes[0],
        };
        let dtype = arguments.dtype.or(ccl.dtype(of)).unwrap_or(all);
        let bytes = count.saturating_mul(dtype.bytes()) as u64;
        let chosen = ccl.algorithm(collective, ranks(&devices), bytes);
        let entry = match (&arguments.algo, chosen) {
            (None, Some(chosen)) if catalogue::find(collective, chosen).is_some() => {
                example.choice.entry(Some(chosen.name())).map_err(explain)?
            }
            _ => usual,
        };
        Ok(Settings {
            entry,
            devices,
            count,
            dtype,
        })
    }
}

/// Where the example runs, or why it cannot.
fn platform(arguments: &RunArguments, dtype: Dtype, devices: &[u32]) -> Result<Platform, String> {
    if let Some(path) = &arguments.trace {
        timeline::check(path)?;
    }
    if arguments.races && arguments.platform != Where::Sim {
        return Err(match arguments.platform {
            Where::Check => "-p check looks for races in any case; leave --races out".into(),
            _ => "--races needs a platform that sees every access: add -p sim, or use -p check".into(),
        });
    }
    if arguments.platform == Where::Check {
        return checker(arguments, dtype, devices);
    }
    if arguments.platform == Where::Native {
        let most = Platform::Native.max_ranks();
        if devices.len() > most as usize {
            return Err(format!(
                "more than {most} devices; -p sim takes as many as its machine has"
            ));
        }
        return match &arguments.topology {
            None => Ok(Platform::Native),
            Some(_) => Err("--topology is a machine to simulate; add -p sim".into()),
        };
    }
    let exact = exact_ranks(dtype);
    if devices.len() > exact {
        return Err(format!(
            "sums of more than {exact} ranks are not exact in {dtype}, so they cannot be verified; use --dtype f64 or i64"
        ));
    }
    let largest = devices.iter().max().copied().unwrap_or(0);
    let name = arguments
        .topology
        .clone()
        .unwrap_or_else(|| format!("ring-{}", (largest + 1).max(2)));
    let topology = machine::load(&name)?;
    Ok(Platform::Sim(
        Simulation::new(topology)
            .trace(arguments.trace.is_some())
            .races(arguments.races),
    ))
}

/// The checker, or why an example cannot run on it.
fn checker(arguments: &RunArguments, dtype: Dtype, devices: &[u32]) -> Result<Platform, String> {
    if arguments.topology.is_some() {
        return Err("--topology is a machine to simulate; -p check has none, use -p sim".into());
    }
    if arguments.trace.is_some() {
        return Err("--trace is of a platform with a clock; use -p native or -p sim".into());
    }
    let checker = Platform::Check(Checking::new());
    let most = exact_ranks(dtype).min(checker.max_ranks() as usize);
    if devices.len() > most {
        return Err(format!(
            "-p check takes at most {most} devices of {dtype}; use fewer"
        ));
    }
    Ok(checker)
}

fn ranks(devices: &[u32]) -> u32 {
    u32::try_from(devices.len()).unwrap_or(u32::MAX)
}

/// The sides of the grid that the devices form. On a host everything is equally near, so that any grid will do: the
/// one with the most even sides.
fn grid(platform: &Platform, devices: &[u32]) -> Option<Vec<u32>> {
    let ranks = ranks(devices);
    if let Platform::Sim(simulation) = platform {
        let in_order = devices.iter().copied().eq(0..ranks);
        return in_order.then(|| simulation.topology().grid(ranks)).flatten();
    }
    let rows = (1..=ranks).rfind(|rows| rows * rows <= ranks && ranks.is_multiple_of(*rows))?;
    Some(vec![ranks / rows, rows])
}

fn write_trace(arguments: &RunArguments, job: &Job) -> Result<(), String> {
    let Some(path) = &arguments.trace else {
        return Ok(());
    };
    let Some(mut traced) = job.times.borrow().timeline() else {
        return Ok(());
    };
    traced.title = format!("{} on {}", arguments.name, traced.title);
    timeline::write(path, &traced, arguments.json)
}

fn execute(example: &Example, job: &Job, json: bool) -> ExitCode {
    let outcome = check_memory(example, job).and_then(|()| (example.run)(job));
    job.bar.finish_and_clear();
    match outcome {
        Ok(checks) => {
            if json {
                say!("{}", report::json(example, job, &checks));
            } else {
                print_text(&report::lines(example, job, &checks));
                print_text(&report::checked_lines(job));
            }
            match job.checked() {
                _ if !report::verified(&checks) => ExitCode::FAILURE,
                Some(checked) if matches!(job.platform, Platform::Check(_)) => {
                    ExitCode::from(checked.exit_code())
                }
                _ => ExitCode::SUCCESS,
            }
        }
        Err(error) => {
            if json {
                say!("{}", report::json_error(example, job, &error));
            }
            if error.is_interrupted() {
                print_error_text("interrupted; every chip was ended in order\n");
                return ExitCode::from(EXIT_INTERRUPTED);
            }
            complain(&error);
            if let Some(recent) = error.recent() {
                print_error_text(&format!("what each chip did last:\n{recent}\n"));
            }
            let code = job.checked().map_or(1, |checked| checked.exit_code());
            // A run that failed is not a proof, whatever was checked before.
            ExitCode::from(code.max(1))
        }
    }
}

/// Refuses what this machine has no memory for, before anything is taken.
fn check_memory(example: &Example, job: &Job) -> ringwork::Result<()> {
    let ranks = job.devices.len();
    let elements = job
        .count
        .saturating_mul((example.counts_per_chip)(ranks))
        .saturating_mul(ranks);
    let need_bytes = (elements as u64).saturating_mul(job.dtype.bytes() as u64);
    let have_bytes = available_bytes();
    if need_bytes <= have_bytes {
        return Ok(());
    }
    let plural = if ranks == 1 { "" } else { "s" };
    let what = format!(
        "`{}` with --count {} on {ranks} device{plural}",
        example.name, job.count
    );
    Err(ringwork::native::Error::OutOfMemory {
        what,
        need_bytes,
        have_bytes,
    }
    .into())
}

fn bar(arguments: &RunArguments) -> ProgressBar {
    if arguments.rounds == 1 || arguments.json {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:40} round {pos} of {len}, {eta} left");
    ProgressBar::new(arguments.rounds.into())
        .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

fn refuse(why: &str) -> ExitCode {
    complain(why);
    ExitCode::from(2)
}
