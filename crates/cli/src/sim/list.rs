//! `ringwork sim list`: several collectives on one machine, side by side or one after another.
//!
//! ```yaml
//! topology: h100-nodes-2          # or --topology
//! timing_only: yes
//! calls:
//!   - {name: tp, op: all_reduce, size: 16 MiB, algorithm: ring, groups: [0-7, 8-15]}
//!   - {name: dp, op: all_reduce, size: 64 MiB, algorithm: direct, ranks: "0,8"}
//!   - {name: end, op: all_gather, size: 1 MiB, algorithm: direct, after: [tp, dp]}
//! ```

use super::algorithms::misfit_of;
use super::call::{Call, Failure, QueueSettings, Run, turn_until_done};
use super::{Refused, stop};
use crate::bench::table::time;
use crate::devices::DeviceList;
use crate::output::say;
use crate::units::short_bytes;
use crate::{EXIT_INTERRUPTED, machine, timeline};
use clap::Args;
use ringwork::check::Detector;
use ringwork::collectives::catalogue;
use ringwork::isa::{Collective, Dtype};
use ringwork::runtime::Interrupter;
use ringwork::sim::yaml::{ConfigError, Problem, Reader, Table, Tree};
use ringwork::sim::{Machine, TaskId, Topology};
use serde_json::json;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::rc::Rc;

#[derive(Debug, Args)]
#[command(after_help = "\
Keys of the list: topology, timing_only, calls. Keys of a call: name, op, size, algorithm, ranks or groups, dtype, after.

A call begins on each rank when the calls that it comes `after` are over there; on a rank that has no part in them, when they \
are over everywhere. `alone` is what the call takes when it has the machine for itself.

Example:
  ringwork sim list step.yaml --topology h100-nodes-2 --trace step.html")]
pub(crate) struct ListArguments {
    /// The calls
    list: PathBuf,
    /// The machine: a preset (`ringwork topo list`) or a file [default: what the list says]
    #[arg(short, long, value_name = "FILE|PRESET")]
    topology: Option<String>,
    /// Look for races too: two accesses that no signal orders, whenever they happened
    #[arg(long)]
    races: bool,
    /// Write a timeline, with a row for every link: .html (to look at) or .json (for Perfetto)
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// As one JSON object
    #[arg(long)]
    json: bool,
}

const KEYS: [&str; 3] = ["topology", "timing_only", "calls"];
const CALL_KEYS: [&str; 8] = [
    "name",
    "op",
    "size",
    "algorithm",
    "ranks",
    "groups",
    "dtype",
    "after",
];

/// One line of the list.
struct Planned {
    name: String,
    call: Call,
    /// Each group makes the call by itself.
    groups: Vec<Vec<u32>>,
    /// Calls that come before it, by number.
    after: Vec<usize>,
}

/// When a call began and ended, and what it takes alone.
struct Outcome {
    start_ps: u64,
    end_ps: u64,
    alone_ps: u64,
}

impl Outcome {
    fn took_ps(&self) -> u64 {
        self.end_ps - self.start_ps
    }
}

pub(super) fn run(arguments: &ListArguments) -> Result<ExitCode, Refused> {
    if let Some(path) = &arguments.trace {
        timeline::check(path)?;
    }
    let file = arguments.list.display().to_string();
    let text =
        ringwork::native::read_config_file(&arguments.list).map_err(|error| format!("{file}: {error}"))?;
    let tree = Tree::parse(&file, &text).map_err(|error| error.to_string())?;
    let (topology, planned) = read(&tree, arguments).map_err(|error| error.to_string())?;
    let stop = stop()?;
    match simulate(arguments, &topology, &planned, &stop) {
        Ok((outcomes, traced)) => {
            if arguments.json {
                say!("{}", as_json(&topology, &planned, &outcomes));
            } else {
                say!("{}", as_text(&file, &topology, &planned, &outcomes));
            }
            if let (Some(path), Some(mut traced)) = (&arguments.trace, traced) {
                traced.title = format!("{file} on {}", topology.name);
                timeline::write(path, &traced, arguments.json).map_err(Refused::Failed)?;
            }
            Ok(ExitCode::SUCCESS)
        }
        Err(Failure::Interrupted) => Ok(ExitCode::from(EXIT_INTERRUPTED)),
        Err(Failure::Because(why)) => Err(Refused::Failed(why)),
    }
}

fn rule(reader: &Reader<'_>, why: impl Into<String>) -> ConfigError {
    reader.error(Problem::Rule(why.into()))
}

/// Everything that the list asks for, checked before anything is simulated.
fn read(tree: &Tree, arguments: &ListArguments) -> Result<(Topology, Vec<Planned>), ConfigError> {
    let top = tree.reader().table(&KEYS)?;
    let topology = match (&arguments.topology, top.get("topology")) {
        (Some(name), _) => machine::load(name).map_err(|why| rule(&top.reader, why))?,
        (None, Some(reader)) => machine::load(reader.text()?).map_err(|why| rule(&reader, why))?,
        (None, None) => {
            return Err(top.reader.error(Problem::Missing(
                "topology",
                "topology: h100x8` or `--topology h100x8".into(),
            )));
        }
    };
    let yes_no = [("true", true), ("yes", true), ("false", false), ("no", false)];
    let timing_only = top
        .get("timing_only")
        .map_or(Ok(false), |reader| reader.word(&yes_no))?;
    let calls = top.need(
        "calls",
        "[{name: tp, op: all_reduce, size: 1 MiB, algorithm: ring}]",
    )?;
    let mut planned: Vec<Planned> = Vec::new();
    for item in calls.list()? {
        let one = read_call(&item, &topology, &planned)?;
        planned.push(Planned {
            call: Call {
                timing_only,
                races: arguments.races,
                trace: arguments.trace.is_some(),
                ..one.call
            },
            ..one
        });
    }
    if planned.is_empty() {
        return Err(rule(&calls, "there is no call in the list; add one"));
    }
    Ok((topology, planned))
}

fn read_call(item: &Reader<'_>, topology: &Topology, before: &[Planned]) -> Result<Planned, ConfigError> {
    let table = item.table(&CALL_KEYS)?;
    let name = table.need("name", "tp")?;
    if before
        .iter()
        .any(|one| one.name == name.text().unwrap_or_default())
    {
        return Err(rule(
            &name,
            "there is a call of this name before; rename one of them",
        ));
    }
    let op = table.need("op", "all_reduce")?;
    let collective: Collective = op.text()?.parse().map_err(|why: String| rule(&op, why))?;
    let algorithm = table.need("algorithm", "ring")?;
    let entry = catalogue::named(collective, algorithm.text()?).map_err(|why| rule(&algorithm, why))?;
    let groups = read_groups(&table, topology)?;
    let ranks = u32::try_from(groups.first().map_or(0, Vec::len)).unwrap_or(u32::MAX);
    for group in &groups {
        if let Some(why) = misfit_of(entry, topology, group) {
            let name = entry.algorithm;
            return Err(rule(
                &algorithm,
                format!("`{name}` cannot run on these ranks: {why}"),
            ));
        }
    }
    let dtype = match table.get("dtype") {
        None => Dtype::F32,
        Some(reader) => reader
            .text()?
            .parse::<Dtype>()
            .map_err(|why| rule(&reader, why.to_string()))?,
    };
    let size = table.need("size", "1 MiB")?;
    let bytes = usize::try_from(size.bytes()?).unwrap_or(usize::MAX);
    let Some(bytes) = collective.whole(bytes, dtype.bytes(), ranks as usize) else {
        return Err(rule(
            &size,
            format!("{collective} of {bytes} B cannot be dealt out to {ranks} ranks; use a larger size"),
        ));
    };
    let mut after = Vec::new();
    if let Some(list) = table.get("after") {
        let each = if list.is_list() { list.list()? } else { vec![list] };
        for one in each {
            let wanted = one.text()?;
            let found = before.iter().position(|call| call.name == wanted);
            let why = || format!("there is no call `{wanted}` before this one; calls come in order");
            after.push(found.ok_or_else(|| rule(&one, why()))?);
        }
    }
    Ok(Planned {
        name: name.text()?.to_owned(),
        call: Call {
            entry,
            ranks,
            bytes,
            dtype,
            scratch: None,
            memory: 0,
            queues: QueueSettings::default(),
            timing_only: false,
            prove: false,
            races: false,
            trace: false,
        },
        groups,
        after,
    })
}

/// The ranks that make a call: all, some, or several groups of equal size.
fn read_groups(table: &Table<'_>, topology: &Topology) -> Result<Vec<Vec<u32>>, ConfigError> {
    let group = |reader: &Reader<'_>| -> Result<Vec<u32>, ConfigError> {
        let texts = if reader.is_list() {
            let each = reader.list()?;
            each.iter()
                .map(|one| one.text().map(str::to_owned))
                .collect::<Result<Vec<_>, _>>()?
        } else {
            vec![reader.text()?.to_owned()]
        };
        let DeviceList(ranks) = texts
            .join(",")
            .parse::<DeviceList>()
            .map_err(|why| rule(reader, why))?;
        match ranks.iter().find(|rank| **rank >= topology.ranks()) {
            None => Ok(ranks),
            Some(rank) => Err(rule(
                reader,
                format!(
                    "there is no rank {rank} on `{}`, which has {}, from 0",
                    topology.name,
                    topology.ranks()
                ),
            )),
        }
    };
    match (table.get("ranks"), table.get("groups")) {
        (None, None) => Ok(vec![(0..topology.ranks()).collect()]),
        (Some(ranks), None) => Ok(vec![group(&ranks)?]),
        (Some(ranks), Some(_)) => Err(rule(
            &ranks,
            "`ranks` and `groups` both say who takes part; remove one of them",
        )),
        (None, Some(groups)) => {
            let all: Vec<Vec<u32>> = groups.list()?.iter().map(group).collect::<Result<_, _>>()?;
            if all.is_empty() || all.iter().any(|one| one.len() != all[0].len()) {
                return Err(rule(
                    &groups,
                    "groups must be as large as each other; make a call of its own of the odd one",
                ));
            }
            let mut ranks: Vec<u32> = all.iter().flatten().copied().collect();
            ranks.sort_unstable();
            if let Some(pair) = ranks.windows(2).find(|pair| pair[0] == pair[1]) {
                return Err(rule(
                    &groups,
                    format!("rank {} is in two groups; remove it from one", pair[0]),
                ));
            }
            Ok(all)
        }
    }
}

/// One rank's part of a call, and what it waits for.
struct Part {
    run: usize,
    rank: u32,
    /// Parts that have to be over before it begins.
    waits: usize,
    /// Parts that wait for this one.
    next: Vec<usize>,
}

type Traced = Option<ringwork::sim::timeline::Timeline>;

fn simulate(
    arguments: &ListArguments,
    topology: &Topology,
    planned: &[Planned],
    stop: &Interrupter,
) -> Result<(Vec<Outcome>, Traced), Failure> {
    let first = planned[0].call.options();
    let machine = Machine::new(topology, first);
    let detector = arguments.races.then(|| Rc::new(RefCell::new(Detector::new())));
    let (mut runs, mut of_call) = (Vec::new(), Vec::new());
    for (index, one) in planned.iter().enumerate() {
        for group in &one.groups {
            let number = u32::try_from(runs.len()).unwrap_or(u32::MAX);
            let members = group.clone();
            let run = Run::beside(
                &one.call,
                topology,
                machine.clone(),
                members,
                number,
                detector.clone(),
            )?;
            run.write_inputs()?;
            runs.push(run);
            of_call.push(index);
        }
    }
    let mut parts = parts(planned);
    let mut tasks: BTreeMap<TaskId, usize> = BTreeMap::new();
    let mut times = vec![(u64::MAX, 0u64); planned.len()];
    let begin = |parts: &[Part], at: usize, tasks: &mut BTreeMap<TaskId, usize>| -> Result<(), Failure> {
        let task = runs[parts[at].run].start(parts[at].rank)?;
        tasks.insert(task, at);
        Ok(())
    };
    for at in 0..parts.len() {
        if parts[at].waits == 0 {
            begin(&parts, at, &mut tasks)?;
        }
    }
    turn_until_done(&machine, stop, &|_, _| {}, &mut || {
        for task in machine.take_ended() {
            let (Some(at), Some(outcome)) = (tasks.remove(&task), machine.outcome(task)) else {
                continue;
            };
            let launched = outcome.start_ps.saturating_sub(topology.chip.launch_ps);
            let of = &mut times[of_call[parts[at].run]];
            *of = (of.0.min(launched), of.1.max(outcome.end_ps));
            for next in std::mem::take(&mut parts[at].next) {
                parts[next].waits -= 1;
                if parts[next].waits == 0 {
                    begin(&parts, next, &mut tasks)?;
                }
            }
        }
        Ok(())
    })?;
    for run in &runs {
        run.verify()?;
    }
    let traced = arguments.trace.is_some().then(|| machine.timeline_with_links());
    let mut outcomes = Vec::new();
    for (one, (start_ps, end_ps)) in planned.iter().zip(times) {
        outcomes.push(Outcome {
            start_ps,
            end_ps,
            alone_ps: alone(one, topology, stop)?,
        });
    }
    Ok((outcomes, traced))
}

/// What the slowest group takes with the machine for itself.
fn alone(one: &Planned, topology: &Topology, stop: &Interrupter) -> Result<u64, Failure> {
    let call = Call {
        timing_only: true,
        races: false,
        trace: false,
        ..one.call
    };
    let mut most = 0;
    for group in &one.groups {
        let machine = Machine::new(topology, call.options());
        let run = Run::beside(&call, topology, machine.clone(), group.clone(), 0, None)?;
        let tasks: Vec<TaskId> = (0..call.ranks)
            .map(|rank| run.start(rank))
            .collect::<Result<_, _>>()?;
        turn_until_done(&machine, stop, &|_, _| {}, &mut || Ok(()))?;
        let ends = tasks.into_iter().filter_map(|task| machine.outcome(task));
        most = most.max(ends.map(|outcome| outcome.end_ps).max().unwrap_or(0));
    }
    Ok(most)
}

/// Every rank's part of every call, in order.
fn parts(planned: &[Planned]) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    // By call: the number of each machine rank's part.
    let mut of_ranks: Vec<BTreeMap<u32, usize>> = Vec::new();
    let mut run = 0;
    for one in planned {
        let mut mine = BTreeMap::new();
        for group in &one.groups {
            for (rank, chip) in (0..).zip(group) {
                let here: Vec<usize> = one
                    .after
                    .iter()
                    .filter_map(|before| of_ranks[*before].get(chip).copied())
                    .collect();
                let waits_for = if here.is_empty() {
                    one.after
                        .iter()
                        .flat_map(|before| of_ranks[*before].values().copied())
                        .collect()
                } else {
                    here
                };
                let number = parts.len();
                for before in &waits_for {
                    parts[*before].next.push(number);
                }
                mine.insert(*chip, number);
                parts.push(Part {
                    run,
                    rank,
                    waits: waits_for.len(),
                    next: Vec::new(),
                });
            }
            run += 1;
        }
        of_ranks.push(mine);
    }
    parts
}

fn us(ps: u64) -> String {
    time(ps as f64 / 1e6)
}

fn slower(outcome: &Outcome) -> f64 {
    outcome.took_ps() as f64 / outcome.alone_ps.max(1) as f64
}

fn as_text(file: &str, topology: &Topology, planned: &[Planned], outcomes: &[Outcome]) -> String {
    let data = if planned[0].call.timing_only {
        "time alone"
    } else {
        "data verified on every rank"
    };
    let width = planned.iter().map(|one| one.name.len()).max().unwrap_or(0).max(4);
    let mut text = format!(
        "# {file} on {}: {} ranks, {} calls, {data}\n# {:<width$}  {:<14} {:<18} {:>6}  {:>8}  {:>10} {:>10} {:>10} {:>10}  {:>6}\n# {:<width$}  {:<14} {:<18} {:>6}  {:>8}  {:>10} {:>10} {:>10} {:>10}  {:>6}\n",
        topology.name,
        topology.ranks(),
        planned.len(),
        "name",
        "operation",
        "algorithm",
        "ranks",
        "size",
        "start",
        "end",
        "time",
        "alone",
        "slower",
        "",
        "",
        "",
        "",
        "(B)",
        "(us)",
        "(us)",
        "(us)",
        "(us)",
        "(x)",
    );
    for (one, outcome) in planned.iter().zip(outcomes) {
        let ranks = match one.groups.len() {
            1 => one.call.ranks.to_string(),
            groups => format!("{groups}x{}", one.call.ranks),
        };
        text += &format!(
            "  {:<width$}  {:<14} {:<18} {ranks:>6}  {:>8}  {:>10} {:>10} {:>10} {:>10}  {:>6.2}\n",
            one.name,
            one.call.collective().name(),
            one.call.algorithm_name(),
            short_bytes(one.call.bytes),
            us(outcome.start_ps),
            us(outcome.end_ps),
            us(outcome.took_ps()),
            us(outcome.alone_ps),
            slower(outcome),
        );
    }
    let end = outcomes.iter().map(|outcome| outcome.end_ps).max().unwrap_or(0);
    text + &format!("# all of it: {} us", us(end))
}

fn as_json(topology: &Topology, planned: &[Planned], outcomes: &[Outcome]) -> serde_json::Value {
    let calls: Vec<_> = planned
        .iter()
        .zip(outcomes)
        .map(|(one, outcome)| {
            json!({
                "name": one.name,
                "op": one.call.collective().name(),
                "algo": one.call.algorithm_name(),
                "groups": one.groups,
                "bytes": one.call.bytes,
                "dtype": one.call.dtype.name(),
                "start_ps": outcome.start_ps,
                "end_ps": outcome.end_ps,
                "alone_ps": outcome.alone_ps,
            })
        })
        .collect();
    json!({
        "topology": topology.name,
        "ranks": topology.ranks(),
        "verified": !planned[0].call.timing_only,
        "calls": calls,
    })
}
