//! How fast the bare engine is, on one core: `cargo bench -p ringwork-runtime --bench engine`.
//!
//! Each line is the best of several rounds. `--quick` makes the rounds short, `--only NAME` runs one part.
#![allow(clippy::print_stdout, reason = "a benchmark prints")]
#![allow(clippy::unwrap_used, reason = "a benchmark may stop")]

use ringwork_engine::{
    AccessKind, Arena, Binding, Bindings, BufferId, Capture, Config, Engine, Executor, Graph, Kind, Outcome,
    Place, SignalId, Spec, View,
};
use ringwork_isa::Compare;
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

const TILE_BYTES: u64 = 4096;
const ANY: Place = Place::Any(Kind(0));

/// Numbers that look random, the same every time.
struct Dice(u64);
impl Dice {
    fn roll(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % below
    }
}

fn engine(slots: u32) -> Engine<u64> {
    Engine::new(&Config::new().slots(slots).executors(Kind(0), 16)).unwrap()
}

/// How tiles are laid out in memory.
#[derive(Clone, Copy)]
enum Layout {
    /// Each a buffer of its own.
    Buffers,
    /// Ranges of one buffer.
    Ranges,
    /// Blocks of one matrix, 32 side by side.
    Blocks,
}

fn tile(layout: Layout, index: u64) -> (BufferId, View) {
    match layout {
        Layout::Buffers => (BufferId::new(index), View::range(0..TILE_BYTES)),
        Layout::Ranges => (
            BufferId::new(0),
            View::range(index * TILE_BYTES..(index + 1) * TILE_BYTES),
        ),
        Layout::Blocks => {
            let (row, column) = (index / 32, index % 32);
            let pitch = 32 * 64;
            let start = row * 64 * pitch + column * 64;
            (BufferId::new(0), View::strided(start, 64, 64, pitch).unwrap())
        }
    }
}

/// Fills a spec with the next task: changes one tile, reads another.
fn next_task(spec: &mut Spec, layout: Layout, tiles: u64, dice: &mut Dice) {
    spec.clear();
    let (buffer, view) = tile(layout, dice.roll(tiles));
    spec.touch(buffer, view, AccessKind::InOut);
    let (buffer, view) = tile(layout, dice.roll(tiles));
    spec.touch(buffer, view, AccessKind::Input);
}

/// Runs what is ready, one task per executor.
fn step(engine: &mut Engine<u64>) -> u64 {
    let mut started = [None; 16];
    let mut count = 0;
    while let Some(dispatch) = engine.ready() {
        started[count] = Some(dispatch);
        count += 1;
    }
    for dispatch in started.iter().flatten() {
        black_box(engine.payload(dispatch.task));
        if dispatch.members == 1 {
            engine.complete(dispatch.task, dispatch.executor).unwrap();
            continue;
        }
        for member in engine.members(dispatch.task).to_vec() {
            engine.complete(dispatch.task, member).unwrap();
        }
    }
    count as u64
}

/// Submits and completes `tasks`, with the ring as full as it gets.
fn pump(engine: &mut Engine<u64>, tasks: u64, layout: Layout, tiles: u64) {
    let mut spec = Spec::new(ANY);
    let mut dice = Dice(88_172_645_463_325_252);
    let mut sent = 0;
    next_task(&mut spec, layout, tiles, &mut dice);
    while sent < tasks {
        match engine.submit(&spec, sent).unwrap() {
            Outcome::Accepted(_) => {
                sent += 1;
                next_task(&mut spec, layout, tiles, &mut dice);
            }
            Outcome::Full { .. } => {
                step(engine);
            }
        }
    }
    while engine.live() > 0 {
        step(engine);
    }
}

fn best(rounds: u32, mut run: impl FnMut() -> Duration) -> Duration {
    (0..rounds).map(|_| run()).min().unwrap()
}

fn throughput(rounds: u32) {
    let tasks = 20_000;
    for (name, layout, tiles, slots) in [
        ("192 buffers, 256 slots", Layout::Buffers, 192, 256),
        ("192 ranges of one buffer, 256 slots", Layout::Ranges, 192, 256),
        ("192 blocks of one matrix, 256 slots", Layout::Blocks, 192, 256),
        ("3,072 buffers, 4,096 slots", Layout::Buffers, 3072, 4096),
        (
            "3,072 ranges of one buffer, 4,096 slots",
            Layout::Ranges,
            3072,
            4096,
        ),
        (
            "3,072 blocks of one matrix, 4,096 slots",
            Layout::Blocks,
            3072,
            4096,
        ),
    ] {
        let mut engine = engine(slots);
        let took = best(rounds, || {
            let start = Instant::now();
            pump(&mut engine, tasks, layout, tiles);
            start.elapsed()
        });
        let edges = engine.edges_made() as f64 / (u64::from(rounds) * tasks) as f64;
        let rate = tasks as f64 / took.as_secs_f64() / 1e6;
        let each = took.as_nanos() as f64 / tasks as f64;
        println!(
            "throughput  {name:<42} {rate:6.2} M tasks/s  {each:6.0} ns/task  {edges:.2} dependencies/task"
        );
    }
}

/// A graph of 1,000 tasks over 4 parameters, submitted to whatever takes it.
fn thousand(mut submit: impl FnMut(&Spec, u64), buffer: impl Fn(u32) -> BufferId) {
    let mut spec = Spec::new(ANY);
    let mut dice = Dice(2_463_534_242);
    for index in 0..1000 {
        spec.clear();
        let tiles = [dice.roll(64), dice.roll(64), dice.roll(64)];
        for (tile, kind) in tiles
            .into_iter()
            .zip([AccessKind::Input, AccessKind::Input, AccessKind::InOut])
        {
            let start = tile / 4 * TILE_BYTES;
            let which = u32::try_from(tile % 4).unwrap();
            spec.touch(buffer(which), View::range(start..start + TILE_BYTES), kind);
        }
        submit(&spec, index);
    }
}

fn thousand_captured() -> Arc<Graph<u64>> {
    let mut capture = Capture::new();
    thousand(
        |spec, index| {
            capture.submit(spec, index).unwrap();
        },
        BufferId::parameter,
    );
    Arc::new(capture.finish())
}

fn replay(rounds: u32) {
    let graph = thousand_captured();
    let mut engine = engine(2048);
    let drain = |engine: &mut Engine<u64>| {
        let start = Instant::now();
        while engine.live() > 0 {
            step(engine);
        }
        start.elapsed()
    };
    let (mut run_submitted, mut run_replayed) = (Duration::MAX, Duration::MAX);
    let submitted = best(rounds, || {
        let start = Instant::now();
        thousand(
            |spec, index| {
                engine.submit(spec, index).unwrap();
            },
            |which| BufferId::new(which.into()),
        );
        let took = start.elapsed();
        run_submitted = run_submitted.min(drain(&mut engine));
        took
    });
    let mut round = 0;
    let mut bindings = Bindings::default();
    let replayed = best(rounds, || {
        round += 1;
        let start = Instant::now();
        bindings.parameters.clear();
        bindings
            .parameters
            .extend((0..4).map(|p| Binding::from(BufferId::new(round * 4 + p))));
        engine.replay(&graph, &bindings).unwrap();
        let took = start.elapsed();
        run_replayed = run_replayed.min(drain(&mut engine));
        took
    });
    let ratio = |a: Duration, b: Duration| a.as_nanos() as f64 / b.as_nanos() as f64;
    println!(
        "replay      1,000 tasks, {} edges: submit {submitted:?}, replay {replayed:?}: {:.1}x cheaper; running them: {run_submitted:?} and {run_replayed:?}; in all {:.1}x",
        graph.edges(),
        ratio(submitted, replayed),
        ratio(submitted + run_submitted, replayed + run_replayed),
    );
}

/// Bytes of this process that are in memory.
fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok())
        .unwrap_or(0)
}

/// Everything that takes memory, over and over: accesses, scopes, intermediates, groups, signals, replays.
fn mixture(engine: &mut Engine<u64>, graph: &Arc<Graph<u64>>, tasks: u64) {
    let mut dice = Dice(362_436_069);
    let mut spec = Spec::new(ANY);
    let pair = Spec::new(Place::Group(vec![Executor(3), Executor(8)]));
    let mut sent = 0;
    let drain = |engine: &mut Engine<u64>| {
        step(engine);
        for signal in 0..4 {
            engine.signal_changed(SignalId(signal), 1);
        }
    };
    while sent < tasks {
        engine.begin_scope().unwrap();
        let tensor = loop {
            match engine.allocate(Arena(0), 64 + dice.roll(4096)).unwrap() {
                Outcome::Accepted(tensor) => break tensor,
                Outcome::Full { .. } => drain(engine),
            }
        };
        for part in 0..100 {
            next_task(&mut spec, Layout::Ranges, 4096, &mut dice);
            let view = View::range(0..64);
            spec.touch(
                tensor,
                view,
                if part == 0 {
                    AccessKind::Output
                } else {
                    AccessKind::Input
                },
            );
            match part {
                20 => spec = spec.when(SignalId(sent % 4), Compare::Ge, 1),
                40 => spec = spec.until(SignalId(sent % 3), Compare::Ge, 1),
                _ => {}
            }
            let spec = if part % 50 == 49 { &pair } else { &spec };
            while let Outcome::Full { .. } = engine.submit(spec, sent).unwrap() {
                drain(engine);
            }
            sent += 1;
        }
        engine.end_scope().unwrap();
        let parameters = (0..4).map(|p| BufferId::new(sent * 4 + p).into()).collect();
        let with = Bindings {
            parameters,
            ..Bindings::default()
        };
        if dice.roll(20) == 0 {
            while let Outcome::Full { .. } = engine.replay(graph, &with).unwrap() {
                drain(engine);
            }
            sent += graph.len() as u64;
        }
    }
    while engine.live() > 0 {
        drain(engine);
    }
    engine.end_run().unwrap();
}

fn memory(tasks: u64) {
    let config = Config::new().slots(2048).arena(1 << 20).executors(Kind(0), 16);
    let mut engine = Engine::new(&config).unwrap();
    let graph = thousand_captured();
    let start = resident_kib();
    mixture(&mut engine, &graph, tasks / 10);
    let tenth = resident_kib();
    mixture(&mut engine, &graph, tasks - tasks / 10);
    println!(
        "memory      {start} KiB before, {tenth} KiB after {} tasks of all sorts, {} KiB after {tasks}",
        tasks / 10,
        resident_kib()
    );
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let quick = args.iter().any(|arg| arg == "--quick" || arg == "--test");
    let only = args
        .iter()
        .position(|arg| arg == "--only")
        .and_then(|at| args.get(at + 1));
    let wanted = |name: &str| only.is_none_or(|only| only == name);
    let tasks = if quick { 100_000 } else { 2_000_000 };
    if wanted("memory") {
        memory(5 * tasks);
    }
    if wanted("throughput") {
        throughput(if quick { 2 } else { 100 });
    }
    if wanted("replay") {
        replay(if quick { 20 } else { 500 });
    }
}
