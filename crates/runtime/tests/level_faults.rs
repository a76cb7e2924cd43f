//! Faults with graphs in flight under workers of level 4, 5 and 6: real processes that fail, fall, hang and are
//! killed; who is named, what still finishes, what is left.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test that prints what it measured"
)]
extern crate ringwork_runtime as ringwork;

mod support;

use ringwork_isa::{Compare, Core, Error as KernelError, InOut, Notify, Rank, Result, Shared, Signals, Tile};
use ringwork_macros::{kernel, orchestration};
use ringwork_runtime::{
    ChipOrchestrator, CoreKind, Device, DomainSpec, Error, Level, Node, NodeBuilder, Pod, Worker,
};
use ringwork_testkit::Rng;
use ringwork_testkit::harness::{self, Test};
use ringwork_testkit::process::{Process, children};
use rustix::process::Signal;
use std::process::ExitCode;
use std::time::Duration;
use support::roles::{self, Moment};

fn main() -> ExitCode {
    roles::play_also("tower", hold_a_tower).unwrap_or_else(|| harness::main(TESTS))
}

const TESTS: &[Test] = &[
    (
        "a_kernel_that_fails_in_whatever_way_is_named_from_the_top_and_the_rest_finishes",
        fails_below,
    ),
    (
        "a_chip_stopped_below_is_ended_and_named_from_the_top",
        stopped_below,
    ),
    (
        "an_interrupt_at_the_top_ends_everything_below",
        interrupted_at_the_top,
    ),
    ("a_tower_whose_top_is_killed_leaves_nothing", top_killed),
    (
        "a_failure_on_one_node_frees_those_who_wait_for_it_on_another",
        failed_across,
    ),
    (
        "a_chip_killed_on_one_node_frees_those_who_wait_for_it_on_another",
        killed_across,
    ),
    (
        "a_chip_stopped_on_one_node_is_named_by_those_who_wait_for_it_on_another",
        stopped_across,
    ),
];

/// x = x + 1.
#[kernel]
async fn step<C: Core>(core: &C, x: InOut<i32>) -> Result<()> {
    let tile = core.load(x).await?;
    core.store(x, &Tile::new(vec![tile.values()[0] + 1])).await
}

/// Ways to fall, and what the error says of each.
const WAYS: [(&str, &str); 6] = [
    ("returns", "not today"),
    ("panics", "oh no"),
    ("exits", "it exited with code 3"),
    ("segfaults", "it segfaulted (SIGSEGV)"),
    ("is killed", "it was killed by SIGKILL"),
    ("loops", "no progress for"),
];

/// Falls, in one of the [`WAYS`].
#[kernel]
async fn fall<C: Core>(_core: &C, _x: InOut<i32>, way: u32) -> Result<()> {
    let die = |signal| rustix::process::kill_process(rustix::process::getpid(), signal);
    match way {
        0 => return Err(KernelError::failed("not today")),
        1 => panic!("oh no"),
        2 => std::process::exit(3),
        3 => die(Signal::SEGV).unwrap(),
        4 => die(Signal::KILL).unwrap(),
        _ => {}
    }
    loop {
        std::hint::spin_loop();
    }
}

/// Waits for what never comes.
#[kernel]
async fn wait_inside<C: Core>(core: &C, row: Signals) -> Result<()> {
    core.wait(row.at(0)?, Compare::Ge, 1).await
}

/// Adds up every rank's number, round after round; a rank that is told to, fails in one of them.
#[kernel]
async fn meet<C: Core>(core: &C, x: Shared<i32>, row: Signals, rounds: i32, bad: i32) -> Result<()> {
    let (mine, me) = (row.at(0)?, x.rank());
    for round in 1..=rounds {
        if bad == round {
            return Err(KernelError::failed("not in this round"));
        }
        for rank in (0..row.ranks()).map(Rank) {
            core.notify(mine.on(rank)?, Notify::Add(1)).await?;
        }
        let all = i32::try_from(row.ranks()).unwrap_or(0);
        core.wait(mine, Compare::Ge, round * all).await?;
    }
    let value = i32::try_from(me.0).unwrap_or(0);
    core.store(x, &Tile::new(vec![value])).await
}

/// A chain on the chip's cores, ending in one that falls.
#[orchestration]
fn falling(orch: &mut ChipOrchestrator<'_>, x: InOut<i32>, way: u32) -> Result<()> {
    for _ in 0..20 {
        orch.submit(CoreKind::Vector, step::task(x))?;
    }
    orch.submit(CoreKind::Vector, fall::task(x, way))?;
    Ok(())
}

const CHAIN: i32 = 40;

/// How long a chip may make no progress, where that is to be seen; long enough for a machine that is busy.
const SHORT: Duration = Duration::from_secs(3);
const LONG: Duration = Duration::from_secs(60);

fn builder(name: &str, limit: Duration) -> NodeBuilder {
    Node::builder().name(name).devices(0..2).wait_limit(limit)
}

fn pod(limit: Duration) -> Pod {
    Pod::launch("pod", [builder("a", limit), builder("b", limit)]).unwrap()
}

type Supernode = Pod<Pod>;
type Cluster = Pod<Supernode>;

fn supernode(limit: Duration) -> Supernode {
    Pod::over("super", [pod(limit)]).unwrap()
}

fn cluster(limit: Duration) -> Cluster {
    Pod::over("cluster", [supernode(limit)]).unwrap()
}

/// Something with nodes below it, whichever level it is.
trait Tower: Worker {
    /// Runs this on each node at once, every level with its own engine.
    fn on_nodes(
        &self,
        work: &(dyn Fn(&Node) -> ringwork_runtime::Result<()> + Sync),
    ) -> ringwork_runtime::Result<()>;
}

impl Tower for Node {
    fn on_nodes(
        &self,
        work: &(dyn Fn(&Node) -> ringwork_runtime::Result<()> + Sync),
    ) -> ringwork_runtime::Result<()> {
        work(self)
    }
}

impl<C: Tower> Tower for Pod<C> {
    fn on_nodes(
        &self,
        work: &(dyn Fn(&Node) -> ringwork_runtime::Result<()> + Sync),
    ) -> ringwork_runtime::Result<()> {
        self.run(|orch| {
            for child in 0..self.children().len() {
                orch.submit(child, "below", move |child| child.on_nodes(work))?;
            }
            Ok(())
        })
    }
}

/// A chain on each chip, and on chip 1 of node `b` something that falls in the midst of its chain, alone or in a graph
/// of the chip's own; a group, a task that waits for a signal and a host closure that need it.
fn graph(node: &Node, way: Option<u32>, own: bool) -> ringwork_runtime::Result<i32> {
    let [x, y] = [0, 1].map(|chip| node.zeros::<i32>(Device(chip), 1).unwrap());
    let spec = DomainSpec::new("pair", node.devices()).signals("row", 1);
    let row = node.open_domain(&spec)?.signals("row")?;
    let way = way.filter(|_| node.name() == "b");
    let outcome = node.run(|orch| {
        for i in 0..CHAIN {
            orch.submit(Device(0), step::task(&x))?;
            match way {
                Some(way) if i == CHAIN / 2 && own => orch.submit(Device(1), falling::task(&y, way))?,
                Some(way) if i == CHAIN / 2 => orch.submit(Device(1), fall::task(&y, way))?,
                _ => orch.submit(Device(1), step::task(&y))?,
            };
        }
        if way.is_some() {
            orch.reads(&y)
                .group(node.devices(), |_| Ok(wait_inside::task(&row)))?;
            // Who waits for a signal is overdue as soon as who loops is stuck: one of them at a time.
            if way != Some(5) {
                let cell = row.cell(Rank(0), 0)?;
                orch.when(cell, Compare::Ge, 1)
                    .submit(Device(0), step::task(&x))?;
            }
            orch.reads(&y)
                .host_task("never", || Err("it needs what failed"))?;
        }
        Ok(())
    });
    outcome.map(|_| x.read().unwrap()[0] + y.read().unwrap()[0])
}

fn fails_below(_: &mut Rng) {
    let node = |limit| builder("b", limit).launch().unwrap();
    falls_on(node, Level::Node, "");
    falls_on(pod, Level::Pod, "pod, ");
    falls_on(supernode, Level::Supernode, "super, pod, ");
    falls_on(cluster, Level::Cluster, "cluster, super, pod, ");
}

/// A tower survives kernels that fail; one that loses a chip is made anew.
fn falls_on<T: Tower>(tower: impl Fn(Duration) -> T, level: Level, path: &str) {
    let top = tower(LONG);
    assert_eq!(top.level(), level);
    for (way, own) in [(0, false), (0, true), (1, false), (1, true)] {
        fall_once(&top, path, way, own);
    }
    top.close();
    for (way, own) in [(2, false), (3, false), (4, false), (4, true), (5, false)] {
        fall_once(&tower(if way == 5 { SHORT } else { LONG }), path, way, own);
    }
}

fn fall_once(top: &impl Tower, path: &str, way: u32, own: bool) {
    let (name, words) = WAYS[way as usize];
    let before = children().len();
    let error = top
        .on_nodes(&|node| graph(node, Some(way), own).map(drop))
        .unwrap_err();
    let text = error.to_string();
    let kernel = if own { "falling" } else { "fall" };
    let wanted = format!("{path}b, chip 1, kernel `{kernel}`: ");
    assert!(text.starts_with(&wanted), "{name}: {text}");
    assert!(text.contains(words), "{name}: {text}");
    if way < 2 {
        assert!(text.contains("tests/level_faults.rs:"), "{name}: {text}");
    }
    assert!(!text.contains("it needs what failed"), "{name}: {text}");
    assert!(
        error.recent().is_some_and(|recent| recent.chips.len() == 2),
        "{name}"
    );
    // A kernel that failed leaves its chip; what has its chips yet works on.
    let lost = usize::from(way >= 2);
    assert_eq!(children().len(), before - lost, "{name}");
    top.on_nodes(&|node| {
        if node.name() == "b" && lost > 0 {
            return Ok(());
        }
        assert_eq!(graph(node, None, own)?, 2 * CHAIN);
        Ok(())
    })
    .unwrap();
}

fn stopped_below(_: &mut Rng) {
    let top = cluster(SHORT);
    let pid = top.nodes().unwrap()[1].pid(Device(0)).unwrap();
    Process::open(pid).unwrap().signal(Signal::STOP);
    let error = top
        .on_nodes(&|node| graph(node, None, false).map(drop))
        .unwrap_err();
    let text = error.to_string();
    assert!(
        text.starts_with("cluster, super, pod, b, chip 0, kernel `step`: no progress for"),
        "{text}"
    );
}

fn interrupted_at_the_top(_: &mut Rng) {
    let top = cluster(LONG);
    let waiting = std::sync::atomic::AtomicU32::new(0);
    let error = std::thread::scope(|scope| {
        scope.spawn(|| {
            while waiting.load(std::sync::atomic::Ordering::SeqCst) < 2 {
                std::thread::yield_now();
            }
            top.interrupt();
        });
        top.on_nodes(&|node| {
            let x = node.zeros::<i32>(Device(1), 1)?;
            let spec = DomainSpec::new("pair", node.devices()).signals("row", 1);
            let row = node.open_domain(&spec)?.signals("row")?;
            node.run(|orch| {
                orch.submit(Device(0), wait_inside::task(&row))?;
                let cell = row.cell(Rank(0), 0)?;
                orch.when(cell, Compare::Ge, 1)
                    .submit(Device(1), step::task(&x))?;
                waiting.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                Ok(())
            })
        })
        .unwrap_err()
    });
    assert!(error.is_interrupted(), "{error}");
    top.close();
    assert_eq!(children(), [0; 0]);
}

/// A role: a cluster whose chips work until somebody ends it.
fn hold_a_tower(say: &dyn Fn(&str)) {
    let top = cluster(LONG);
    say("up");
    loop {
        top.on_nodes(&|node| graph(node, None, false).map(drop)).unwrap();
        say("again");
    }
}

fn top_killed(_: &mut Rng) {
    for lines in 1..=5 {
        let (children, _) = roles::kill_parent("tower", 4, Moment::Lines(lines));
        assert_eq!(children, 4);
    }
}

/// A domain over both nodes of a pod, and one task on all four chips that meet there.
fn meeting(pod: &Pod, rounds: i32, bad: i32) -> ringwork_runtime::Result<()> {
    let spec = DomainSpec::new("all", []).buffer::<i32>("x", 1).signals("row", 1);
    let all = pod.open_domain(&spec)?;
    meet_in(pod, &all, rounds, bad)
}

fn meet_in(
    pod: &Pod,
    all: &ringwork_runtime::PodDomain,
    rounds: i32,
    bad: i32,
) -> ringwork_runtime::Result<()> {
    pod.run(|orch| {
        orch.group(0..2, "meet", move |child, node| {
            let part = &all.parts()[child];
            let (x, row) = (part.buffer::<i32>("x")?, part.signals("row")?);
            node.run(|orch| {
                orch.group(node.devices(), |chip| {
                    let bad = if child == 1 && chip == Device(0) { bad } else { 0 };
                    Ok(meet::task(&x, &row, rounds, bad))
                })
            })?;
            Ok(())
        })
    })?;
    for rank in (0..4).map(Rank) {
        let x = all.parts()[0].buffer::<i32>("x")?;
        assert_eq!(x.read(rank)?, [i32::try_from(rank.0).unwrap()]);
    }
    Ok(())
}

fn failed_across(_: &mut Rng) {
    let pod = pod(LONG);
    meeting(&pod, 100, 0).unwrap();
    let spec = DomainSpec::new("all", []).buffer::<i32>("x", 1).signals("row", 1);
    let all = pod.open_domain(&spec).unwrap();
    for bad in [1, 2, 50] {
        let error = meet_in(&pod, &all, 50, bad).unwrap_err();
        // Every rank is told of, those of the other node as well.
        let told: Vec<_> = error.recent().unwrap().chips.iter().collect();
        let told: Vec<_> = told
            .iter()
            .map(|chip| (chip.path.as_str(), chip.device.0))
            .collect();
        assert_eq!(told, [("a", 0), ("a", 1), ("b", 0), ("b", 1)]);
        let error = error.to_string();
        assert!(error.starts_with("pod, b, chip 0, kernel `meet`: "), "{error}");
        assert!(error.contains("not in this round"), "{error}");
        // The domain is fresh again.
        meet_in(&pod, &all, 20, 0).unwrap();
        meet_again(&pod, &all);
        fail_alone(&pod, &all);
        meet_again(&pod, &all);
    }
}

/// A node that fails by itself, outside a run of the pod, leaves the domain to the pod's next run.
fn fail_alone(pod: &Pod, all: &ringwork_runtime::PodDomain) {
    let part = &all.parts()[0];
    let (x, row) = (part.buffer::<i32>("x").unwrap(), part.signals("row").unwrap());
    let task = || meet::task(&x, &row, 1, 1);
    let failed = pod.children()[0].run(|orch| orch.submit(Device(0), task()));
    assert!(failed.unwrap_err().to_string().contains("not in this round"));
    meet_in(pod, all, 5, 0).unwrap();
}

/// Signals only grow, so a second meeting in the same domain needs a fresh one.
fn meet_again(pod: &Pod, all: &ringwork_runtime::PodDomain) {
    let error = meet_in(pod, all, 1, 1).unwrap_err().to_string();
    assert!(error.contains("not in this round"), "{error}");
}

fn killed_across(_: &mut Rng) {
    for victim in [0, 1].map(Device) {
        let pod = pod(LONG);
        let spec = DomainSpec::new("all", []).buffer::<i32>("x", 1).signals("row", 1);
        let all = pod.open_domain(&spec).unwrap();
        let process = Process::open(pod.children()[1].pid(victim).unwrap()).unwrap();
        let killer = std::thread::spawn(move || process.signal(Signal::KILL));
        let error = meet_in(&pod, &all, i32::MAX / 8, 0).unwrap_err().to_string();
        killer.join().unwrap();
        // It may have been dead before its task was sent.
        assert!(error.starts_with("pod, b"), "{error}");
        assert!(error.contains("it was killed by SIGKILL"), "{error}");
        let error = meet_in(&pod, &all, 1, 0).unwrap_err().to_string();
        assert!(error.contains("it was killed by SIGKILL"), "{error}");
        assert!(matches!(pod.open_domain(&spec), Err(Error::Below { .. })));
    }
}

fn stopped_across(_: &mut Rng) {
    let pod = pod(SHORT);
    let spec = DomainSpec::new("all", []).buffer::<i32>("x", 1).signals("row", 1);
    let all = pod.open_domain(&spec).unwrap();
    let victim = pod.children()[1].pid(Device(1)).unwrap();
    Process::open(victim).unwrap().signal(Signal::STOP);
    let error = meet_in(&pod, &all, 100, 0).unwrap_err().to_string();
    assert!(error.contains("b, chip 1"), "{error}");
    assert!(error.contains("stopped"), "{error}");
}
