//! How long chips take to come up and go, and a task to be submitted, sent and done through the engine.
//!
//! ```text
//! cargo bench -p ringwork-runtime --bench node
//! ```
#![allow(clippy::print_stdout, reason = "a benchmark prints")]

extern crate ringwork_runtime as ringwork;

use ringwork_isa::{Core, Device, InOut, Result, Task, TileOps};
use ringwork_macros::{kernel, orchestration};
use ringwork_runtime::chip::explicit;
use ringwork_runtime::{Captured, ChipOrchestrator, CoreKind, Node, Orchestrator, Tensor};
use std::time::{Duration, Instant};

#[kernel]
async fn nothing<C: Core>(_core: &C) -> Result<()> {
    Ok(())
}

#[kernel]
async fn touch<C: Core>(_core: &C, _x: InOut<i32>, _y: InOut<i32>) -> Result<()> {
    Ok(())
}

/// A chain on a chip's cores, so that nothing but building and ordering it is measured.
#[orchestration]
fn chain(orch: &mut ChipOrchestrator<'_>, x: InOut<i32>, y: InOut<i32>, tasks: u32) -> Result<()> {
    let mut last = None;
    for _ in 0..tasks {
        last = Some(orch.after(last).submit(CoreKind::Vector, touch::task(x, y))?);
    }
    Ok(())
}

#[kernel]
async fn sum<C: Core>(core: &C, x: InOut<f32>) -> Result<()> {
    let x_tile = core.load(x).await?;
    core.store(x, &core.add(&x_tile, &x_tile).await?).await
}

/// A chain of tasks that compute a little.
#[orchestration]
fn sums(orch: &mut ChipOrchestrator<'_>, x: InOut<f32>, tasks: u32) -> Result<()> {
    (0..tasks).try_for_each(|_| orch.submit(CoreKind::Vector, sum::task(x)).map(drop))
}

fn percentiles(name: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    let at = |part: usize| times[(times.len() - 1) * part / 100].as_secs_f64() * 1e6;
    println!(
        "{name:<44} p10 {:>9.1} us   p50 {:>9.1} us   p99 {:>9.1} us",
        at(10),
        at(50),
        at(99)
    );
}

fn bring_up(chips: u32) {
    let (mut up, mut down) = (Vec::new(), Vec::new());
    for _ in 0..50 {
        let start = Instant::now();
        let node = Node::builder().devices(0..chips).launch().expect("launch");
        up.push(start.elapsed());
        let start = Instant::now();
        node.close();
        down.push(start.elapsed());
    }
    percentiles(&format!("bring-up of {chips} chips"), up);
    percentiles(&format!("teardown of {chips} chips"), down);
}

fn round_trips() {
    let node = Node::builder().devices(0..1).launch().expect("launch");
    let mut times = Vec::new();
    node.run(|orch| {
        for _ in 0..20_000 {
            let start = Instant::now();
            orch.submit(Device(0), nothing::task())?;
            orch.wait()?;
            times.push(start.elapsed());
        }
        Ok(())
    })
    .expect("run");
    percentiles("round trip of an empty task, one at a time", times);
}

fn rate(name: &str, tasks: u32, start: Instant) {
    let rate = f64::from(tasks) / start.elapsed().as_secs_f64();
    println!("{name:<44} {rate:>9.0} tasks/s");
}

/// A group of all chips, which starts when all are free: one at a time.
fn groups(chips: u32) {
    let node = Node::builder().devices(0..chips).launch().expect("launch");
    let mut times = Vec::new();
    node.run(|orch| {
        for _ in 0..5000 {
            let start = Instant::now();
            orch.group((0..chips).map(Device), |_| Ok(nothing::task()))?;
            orch.wait()?;
            times.push(start.elapsed());
        }
        Ok(())
    })
    .expect("run");
    percentiles(&format!("round trip of an empty group of {chips}"), times);
}

fn throughput(chips: u32) {
    let node = Node::builder().devices(0..chips).launch().expect("launch");
    let tasks = 200_000;
    let start = Instant::now();
    node.run(|orch| {
        for i in 0..tasks {
            orch.submit(Device(i % chips), nothing::task())?;
        }
        Ok(())
    })
    .expect("run");
    rate(&format!("empty tasks to {chips} chips"), tasks, start);
    let start = Instant::now();
    node.run(|orch| (0..tasks).try_for_each(|_| orch.anywhere(nothing::task()).map(drop)))
        .expect("run");
    rate(&format!("empty tasks to any of {chips} chips"), tasks, start);
    // 8 chains on each chip, every task with two memory arguments and two edges.
    let memory: Vec<Vec<_>> = (0..chips)
        .map(|chip| {
            let tensor = |_| node.zeros::<i32>(Device(chip), 64).expect("memory");
            (0..16).map(tensor).collect()
        })
        .collect();
    let start = Instant::now();
    node.run(|orch| {
        for i in 0..tasks {
            let (chip, pair) = (i % chips, (i / chips % 8) as usize);
            let mine = &memory[chip as usize];
            let task = touch::task(&mine[pair], &mine[8 + pair]);
            orch.submit(Device(chip), task)?;
        }
        Ok(())
    })
    .expect("run");
    rate(&format!("tasks in chains to {chips} chips"), tasks, start);
}

/// A chip's own graph of 1,000 tasks in a chain, each way, and the same tasks sent one by one by the host.
fn chip_graphs(only: Option<&str>) {
    const TASKS: u32 = 1000;
    let wanted = |way: &str| only.is_none_or(|only| only == way);
    let chip = Device(0);
    let node = Node::builder().devices(0..1).launch().expect("launch");
    let (x, y) = [(); 2]
        .map(|()| node.zeros::<i32>(chip, 64).expect("memory"))
        .into();
    let task = || chain::task(&x, &y, TASKS);
    let captured = node.capture(chip, &task()).expect("capture");
    let ways = [
        ("inferred", task()),
        ("explicit", explicit(task())),
        ("captured", captured.replay(&task()).expect("replay")),
    ];
    let timed = |way: &str, run: &dyn Fn()| {
        let mut times = Vec::new();
        for _ in 0..200 {
            let start = Instant::now();
            run();
            times.push(start.elapsed());
        }
        percentiles(&format!("a chip's graph of {TASKS} tasks, {way}"), times);
    };
    for (way, task) in ways.into_iter().filter(|(way, _)| wanted(way)) {
        timed(way, &|| {
            node.run(|orch| orch.submit(chip, task.clone())).expect("run");
        });
    }
    if wanted("resubmitted") {
        timed("captured and shipped again", &|| {
            let captured = node.capture(chip, &task()).expect("capture");
            let task = captured.replay(&task()).expect("replay");
            node.run(|orch| orch.submit(chip, task)).expect("run");
        });
        timed("resubmitted by the host", &|| {
            node.run(|orch| (0..TASKS).try_for_each(|_| orch.submit(chip, touch::task(&x, &y)).map(drop)))
                .expect("run");
        });
    }
}

/// A node with one chip, and what it is measured with.
struct Measured {
    node: Node,
    /// A chip's graph of empty tasks: built there, captured; one of tasks that compute, captured.
    graphs: [Task; 3],
    /// Memory of those.
    _kept: (Vec<Tensor<i32>>, Tensor<f32>, [Captured; 2]),
}

const GRAPH_TASKS: u32 = 1000;
const ADDING_TASKS: u32 = 200;
const ADDED: usize = 4096;

impl Measured {
    fn new(record: bool) -> Measured {
        let chip = Device(0);
        let node = Node::builder().devices(0..1).record(record).launch();
        let node = node.expect("launch");
        let empty: Vec<_> = (0..2).map(|_| node.zeros(chip, 64).expect("memory")).collect();
        let numbers = node.zeros::<f32>(chip, ADDED).expect("memory");
        let built = chain::task(&empty[0], &empty[1], GRAPH_TASKS);
        let adding = sums::task(&numbers, ADDING_TASKS);
        let captured = [&built, &adding].map(|task| node.capture(chip, task).expect("capture"));
        let graphs = [
            built.clone(),
            captured[0].replay(&built).expect("replay"),
            captured[1].replay(&adding).expect("replay"),
        ];
        Measured {
            node,
            graphs,
            _kept: (empty, numbers, captured),
        }
    }

    /// Runs what is measured once; returns how many tasks that were.
    fn turn(&self, what: usize) -> u32 {
        let (chip, tasks) = (
            Device(0),
            [2000, 5000, GRAPH_TASKS, GRAPH_TASKS, ADDING_TASKS][what],
        );
        let run = |orch: &mut Orchestrator<'_>| match what {
            0 => (0..tasks).try_for_each(|_| {
                orch.submit(chip, nothing::task())?;
                orch.wait()
            }),
            1 => (0..tasks).try_for_each(|_| orch.submit(chip, nothing::task()).map(drop)),
            _ => orch.submit(chip, self.graphs[what - 2].clone()).map(drop),
        };
        self.node.run(run).expect("run");
        tasks
    }
}

/// What the recorder costs: the same with it on and off, in turns, so that both meet the same weather; on several
/// pairs of nodes, since where a process's memory happens to lie makes more of a difference than the recorder.
fn recorder() {
    const PAIRS: usize = 15;
    const TURNS: usize = 25;
    const WHAT: [&str; 5] = [
        "an empty task, one at a time",
        "empty tasks, many at a time",
        "an empty task of a chip's graph, inferred",
        "an empty task of a chip's graph, captured",
        "a task of a chip's graph that adds 4,096",
    ];
    let mut found: [Vec<[f64; 2]>; 5] = Default::default();
    for pair in 0..PAIRS {
        // Which of the two is launched first changes.
        let mut nodes = [pair % 2 == 0, pair % 2 != 0].map(|record| (record, Measured::new(record)));
        nodes.sort_by_key(|(record, _)| !record);
        for (what, found) in found.iter_mut().enumerate() {
            // The fastest of all turns of each: everything else only adds.
            let mut best = [f64::INFINITY; 2];
            for _ in 0..TURNS {
                for ((_, node), best) in nodes.iter().zip(&mut best) {
                    let start = Instant::now();
                    let tasks = node.turn(what);
                    *best = best.min(start.elapsed().as_secs_f64() * 1e9 / f64::from(tasks));
                }
            }
            found.push(best);
        }
    }
    println!("the recorder, {PAIRS} pairs of nodes: median of each, and of the differences the quartiles");
    for (name, pairs) in WHAT.into_iter().zip(found) {
        let sorted = |value: fn(&[f64; 2]) -> f64| {
            let mut values: Vec<f64> = pairs.iter().map(value).collect();
            values.sort_by(f64::total_cmp);
            [1, 2, 3].map(|quarter| values[(values.len() - 1) * quarter / 4])
        };
        let [on, off] = [sorted(|pair| pair[0])[1], sorted(|pair| pair[1])[1]];
        let [low, mid, high] = sorted(|[on, off]| on - off);
        println!(
            "{name:<44} {on:>6.0} ns on {off:>6.0} ns off {mid:>+6.1} ns ({low:+.1} to {high:+.1})  {:+.2} %",
            mid / off * 100.0
        );
    }
}

/// Bytes of a process in memory that are its own: without what it shares, such as the windows.
fn resident_bytes(pid: u32) -> u64 {
    let statm = std::fs::read_to_string(format!("/proc/{pid}/statm")).unwrap_or_default();
    let pages: Vec<u64> = statm
        .split_whitespace()
        .filter_map(|pages| pages.parse().ok())
        .collect();
    pages
        .get(1)
        .unwrap_or(&0)
        .saturating_sub(*pages.get(2).unwrap_or(&0))
        * 4096
}

/// Memory of the host and of a chip over 10 million tasks: the same after the last as after the first million.
fn memory() {
    const SLACK: u64 = 1 << 20;
    let node = Node::builder().devices(0..2).launch().expect("launch");
    let x = [0, 1].map(|chip| node.zeros::<i32>(Device(chip), 64).expect("memory"));
    let y = [0, 1].map(|chip| node.zeros::<i32>(Device(chip), 64).expect("memory"));
    let pids = [std::process::id(), node.pid(Device(0)).expect("a chip")];
    let mut after: Vec<[u64; 2]> = Vec::new();
    for _ in 0..10 {
        node.run(|orch| {
            for i in 0..1_000_000u32 {
                let chip = i % 2;
                orch.submit(Device(chip), touch::task(&x[chip as usize], &y[chip as usize]))?;
            }
            Ok(())
        })
        .expect("run");
        after.push(pids.map(resident_bytes));
    }
    for (which, name) in ["host", "chip"].into_iter().enumerate() {
        let megabytes: Vec<String> = after
            .iter()
            .map(|bytes| format!("{:.1}", bytes[which] as f64 / 1e6))
            .collect();
        println!(
            "{:<44} {} MB",
            format!("memory of the {name} after 1 to 10 M tasks"),
            megabytes.join(" ")
        );
        let grown = after[9][which].saturating_sub(after[0][which]);
        assert!(grown <= SLACK, "the {name} grew by {grown} bytes");
    }
}

fn main() {
    let only = std::env::args()
        .nth(1)
        .filter(|argument| !argument.starts_with('-'));
    let wanted = |name: &str| only.as_deref().is_none_or(|only| only == name);
    if wanted("bring-up") {
        for chips in [1, 2, 4, 8] {
            bring_up(chips);
        }
    }
    if wanted("tasks") {
        round_trips();
        groups(2);
        throughput(1);
        throughput(2);
    }
    if wanted("chip") {
        chip_graphs(
            std::env::args()
                .nth(2)
                .as_deref()
                .filter(|way| !way.starts_with('-')),
        );
    }
    if wanted("recorder") {
        recorder();
    }
    if wanted("memory") {
        memory();
    }
}
