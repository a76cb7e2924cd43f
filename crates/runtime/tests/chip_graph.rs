//! A chip's own graph: the same orchestration built three ways, on threads and off, failing and not.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

extern crate ringwork_runtime as ringwork;

use ringwork_isa::{Core, Error as KernelError, In, InOut, Out, Result, Task, Tile};
use ringwork_macros::{kernel, orchestration};
use ringwork_runtime::chip::explicit;
use ringwork_runtime::{ChipOrchestrator, CoreKind, Device, Error, Node};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

const CHIP: Device = Device(0);
const WIDTH: usize = 8;
const PLACES: usize = 12;

/// y = 3a + 5b + k
#[kernel]
async fn mix<C: Core>(core: &C, a: In<i32>, b: In<i32>, y: Out<i32>, k: i32) -> Result<()> {
    let (a, b) = (core.load(a).await?, core.load(b).await?);
    let pairs = a.values().iter().zip(b.values());
    core.store(y, &Tile::new(pairs.map(|(a, b)| mixed(*a, *b, k)).collect()))
        .await
}

fn mixed(a: i32, b: i32, k: i32) -> i32 {
    a.wrapping_mul(3).wrapping_add(b.wrapping_mul(5)).wrapping_add(k)
}

/// Waits until as many have come as were told to, on whatever threads they are.
#[kernel]
async fn meet<C: Core>(_core: &C, y: Out<i32>, how_many: u32) -> Result<()> {
    static COME: AtomicU32 = AtomicU32::new(0);
    let _ = y;
    COME.fetch_add(1, Ordering::SeqCst);
    while COME.load(Ordering::SeqCst) < how_many {
        std::thread::yield_now();
    }
    Ok(())
}

/// Takes its time, making progress.
#[kernel]
async fn dawdle<C: Core>(core: &C, x: InOut<i32>, ms: u32) -> Result<()> {
    for _ in 0..ms {
        let tile = core.load(x).await?;
        std::thread::sleep(Duration::from_millis(1));
        core.store(x, &tile).await?;
    }
    Ok(())
}

#[kernel]
async fn refuse<C: Core>(_core: &C, _y: Out<i32>, panics: bool) -> Result<()> {
    assert!(!panics, "the kernel lost its temper");
    Err(KernelError::failed("not today"))
}

/// Which places a task reads and writes: the first eight are slices of x, the others intermediates.
struct Planned {
    a: usize,
    b: usize,
    y: usize,
    k: i32,
}

/// A program from a seed: the same on host and chip.
fn plan(seed: u64, tasks: u64) -> Vec<Planned> {
    let mut state = seed;
    let mut below = |end: usize| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % end
    };
    (0..tasks)
        .map(|_| Planned {
            a: below(PLACES),
            b: below(PLACES),
            y: below(PLACES),
            k: i32::try_from(below(100)).unwrap(),
        })
        .collect()
}

/// The program on the chip; a chain orders it from beginning to end, whatever its tasks touch.
#[orchestration]
fn program(
    orch: &mut ChipOrchestrator<'_>,
    x: InOut<i32>,
    seed: u64,
    tasks: u64,
    chained: bool,
) -> Result<()> {
    let mut places: Vec<InOut<i32>> = Vec::new();
    for at in 0..8 {
        places.push(x.slice(at * WIDTH..(at + 1) * WIDTH)?);
    }
    let mut last = None;
    for k in 8..12 {
        let place = orch.intermediate::<i32>(WIDTH)?;
        let first = orch.after(last.filter(|_| chained));
        last = Some(first.submit(CoreKind::Vector, mix::task(places[0], places[0], place, k))?);
        places.push(place);
    }
    for (index, Planned { a, b, y, k }) in plan(seed, tasks).into_iter().enumerate() {
        let on = if k % 5 == 0 {
            CoreKind::Matrix
        } else {
            CoreKind::Vector
        };
        let priority = if k % 7 == 0 { 3 } else { 0 };
        // Every tenth through an intermediate of its own, in a scope of its own.
        last = Some(if index % 10 == 9 {
            orch.scope(|orch| {
                let own = orch.intermediate::<i32>(WIDTH)?;
                let before = orch.after(last.filter(|_| chained)).priority(priority);
                let first = before.submit(on, mix::task(places[a], places[b], own, k))?;
                let after = orch.after(chained.then_some(first));
                after.submit(on, mix::task(own, own, places[y], k))
            })?
        } else {
            let before = orch.after(last.filter(|_| chained)).priority(priority);
            before.submit(on, mix::task(places[a], places[b], places[y], k))?
        });
    }
    Ok(())
}

/// The same, one by one.
fn reference(x: &[i32], seed: u64, tasks: u64) -> Vec<i32> {
    let mut places: Vec<Vec<i32>> = x.chunks(WIDTH).map(<[i32]>::to_vec).collect();
    let each = |a: &[i32], b: &[i32], k| a.iter().zip(b).map(|(a, b)| mixed(*a, *b, k)).collect::<Vec<_>>();
    for k in 8..12 {
        let first = places[0].clone();
        places.push(each(&first, &first, k));
    }
    for (index, Planned { a, b, y, k }) in plan(seed, tasks).into_iter().enumerate() {
        let own = each(&places[a], &places[b], k);
        places[y] = if index % 10 == 9 { each(&own, &own, k) } else { own };
    }
    places[..8].concat()
}

#[orchestration]
fn meeting(orch: &mut ChipOrchestrator<'_>, y: Out<i32>, z: Out<i32>) -> Result<()> {
    orch.submit(CoreKind::Vector, meet::task(y, 2u32))?;
    orch.submit(CoreKind::Vector, meet::task(z, 2u32))?;
    Ok(())
}

#[orchestration]
fn slow(orch: &mut ChipOrchestrator<'_>, x: InOut<i32>, y: InOut<i32>, ms: u32) -> Result<()> {
    orch.submit(CoreKind::Vector, dawdle::task(x, ms))?;
    orch.submit(CoreKind::Vector, dawdle::task(y, ms))?;
    Ok(())
}

/// Fails alone or beside another; what needs it must not run.
#[orchestration]
fn failing(
    orch: &mut ChipOrchestrator<'_>,
    x: InOut<i32>,
    y: InOut<i32>,
    panics: bool,
    beside: bool,
) -> Result<()> {
    if beside {
        orch.submit(CoreKind::Vector, mix::task(y, y, y, 1))?;
    }
    orch.submit(CoreKind::Vector, refuse::task(x, panics))?;
    orch.submit(CoreKind::Vector, mix::task(x, x, x, 1)).map(drop)
}

#[orchestration]
fn misuse(orch: &mut ChipOrchestrator<'_>, x: InOut<i32>, how: u32) -> Result<()> {
    match how {
        0 => {
            let gone = orch.scope(|orch| orch.intermediate::<i32>(x.len()))?;
            orch.submit(CoreKind::Vector, mix::task(gone, gone, x, 1))
                .map(drop)
        }
        1 => orch.intermediate::<i32>(1 << 30).map(drop),
        _ => nest(orch, 0),
    }
}

fn nest(orch: &mut ChipOrchestrator<'_>, depth: u32) -> Result<()> {
    if depth == 100 {
        return Ok(());
    }
    orch.scope(|orch| nest(orch, depth + 1))
}

fn node() -> Node {
    Node::builder().devices(0..1).launch().unwrap()
}

#[test]
fn whichever_way_a_graph_is_built_it_does_what_its_tasks_would_one_by_one() {
    let node = node();
    let start: Vec<i32> = (0..64).collect();
    let (x, other) = (
        node.tensor(CHIP, &start).unwrap(),
        node.zeros::<i32>(CHIP, 64).unwrap(),
    );
    for seed in 0..60 {
        let tasks = 1 + seed * 3;
        let golden = reference(&start, seed, tasks);
        let task = |chained: bool| program::task(&x, seed, tasks, chained);
        let captured = node
            .capture(CHIP, &program::task(&other, seed, tasks, false))
            .unwrap();
        let ways: [(&str, Task); 3] = [
            ("inferred", task(false)),
            ("explicit", explicit(task(true))),
            ("captured", captured.replay(&task(false)).unwrap()),
        ];
        for (way, task) in ways {
            x.write(&start).unwrap();
            node.run(|orch| orch.submit(CHIP, task)).unwrap();
            assert_eq!(x.read().unwrap(), golden, "{way}, seed {seed}");
        }
    }
    assert_eq!(
        other.read().unwrap(),
        [0; 64],
        "what it was captured with is not touched"
    );
}

#[test]
fn a_captured_graph_is_replayed_with_other_inputs_again_and_again() {
    let node = node();
    let captured = {
        let first = node.zeros::<i32>(CHIP, 64).unwrap();
        node.capture(CHIP, &program::task(&first, 7u64, 50u64, false))
            .unwrap()
    };
    assert_eq!(captured.len(), 4 + 55);
    let x: Vec<_> = (0..5)
        .map(|i| node.tensor(CHIP, &(i..i + 64).collect::<Vec<i32>>()).unwrap())
        .collect();
    let mut golden: Vec<Vec<i32>> = (0..5).map(|i| (i..i + 64).collect()).collect();
    for _ in 0..20 {
        node.run(|orch| {
            x.iter().try_for_each(|x| {
                let task = captured.replay(&program::task(x, 7u64, 50u64, false))?;
                orch.submit(CHIP, task).map(drop)
            })
        })
        .unwrap();
        for (x, golden) in x.iter().zip(&mut golden) {
            *golden = reference(golden, 7, 50);
            assert_eq!(x.read().unwrap(), *golden);
        }
    }
}

#[test]
fn tasks_that_have_nothing_in_common_run_at_once() {
    let node = node();
    let (y, z) = (
        node.zeros::<i32>(CHIP, 1).unwrap(),
        node.zeros::<i32>(CHIP, 1).unwrap(),
    );
    node.run(|orch| orch.submit(CHIP, meeting::task(&y, &z))).unwrap();
}

#[test]
fn cores_that_make_progress_beside_each_other_are_not_taken_for_stuck() {
    let limit = Duration::from_millis(100);
    let node = Node::builder().devices(0..1).wait_limit(limit).launch().unwrap();
    let (x, y) = (node.tensor(CHIP, &[1]).unwrap(), node.tensor(CHIP, &[2]).unwrap());
    node.run(|orch| orch.submit(CHIP, slow::task(&x, &y, 1500u32)))
        .unwrap();
}

#[test]
fn a_task_that_fails_is_named_with_its_graph_and_what_needs_it_does_not_run() {
    let node = node();
    for (panics, beside) in [(false, false), (false, true), (true, true), (true, false)] {
        let (x, y) = (node.tensor(CHIP, &[1]).unwrap(), node.tensor(CHIP, &[1]).unwrap());
        let error = node
            .run(|orch| orch.submit(CHIP, failing::task(&x, &y, panics, beside)))
            .unwrap_err()
            .to_string();
        assert!(error.starts_with("node, chip 0, kernel `failing`: "), "{error}");
        assert!(
            error.contains("tests/chip_graph.rs:") || panics && beside,
            "{error}"
        );
        let words = if panics {
            "the kernel lost its temper"
        } else {
            "not today"
        };
        assert!(error.ends_with(words), "{error}");
        assert!(
            panics && !beside || error.contains("its task `refuse`: "),
            "{error}"
        );
        assert_eq!(x.read().unwrap(), [1]);
        assert_eq!(y.read().unwrap(), [if beside { 9 } else { 1 }]);
    }
}

#[test]
fn misuse_is_said_on_the_chip_and_on_the_host() {
    let node = node();
    let x = node.tensor(CHIP, &[1]).unwrap();
    let wanted = [
        "argument 0 of `mix` is an intermediate whose scope has ended",
        "intermediate memory of arena 0: 4294967296 needed, 0 of 16777216 used",
        "scopes nest to 64",
    ];
    for (how, wanted) in (0u32..).zip(wanted) {
        let task = misuse::task(&x, how);
        let on_chip = node
            .run(|orch| orch.submit(CHIP, task.clone()))
            .unwrap_err()
            .to_string();
        assert!(on_chip.contains(wanted), "{on_chip}");
        if how != 1 {
            let on_host = node.capture(CHIP, &task).unwrap_err().to_string();
            assert!(on_host.contains(wanted), "{on_host}");
        }
    }
    // Too much for a chip is found out there.
    let large = node.capture(CHIP, &misuse::task(&x, 1u32)).unwrap();
    let error = node
        .run(|orch| orch.submit(CHIP, large.replay(&misuse::task(&x, 1u32))?))
        .unwrap_err()
        .to_string();
    assert!(error.contains("intermediate memory of arena 0"), "{error}");
}

#[test]
fn a_replay_that_is_not_what_was_captured_is_refused() {
    let node = node();
    let (x, short) = (
        node.zeros::<i32>(CHIP, 64).unwrap(),
        node.zeros::<i32>(CHIP, 32).unwrap(),
    );
    let captured = node.capture(CHIP, &program::task(&x, 1u64, 5u64, false)).unwrap();
    let cases = [
        (
            program::task(&short, 1u64, 5u64, false),
            "`x` is not as it was captured",
        ),
        (
            program::task(&x, 2u64, 5u64, false),
            "`seed` is not as it was captured",
        ),
        (slow::task(&x, &x, 1u32), "the task is `slow`'s"),
    ];
    for (task, wanted) in cases {
        let error = captured.replay(&task).unwrap_err().to_string();
        assert!(error.contains(wanted), "{error}");
    }
    let error = node.capture(CHIP, &mix::task(&x, &x, &x, 1)).unwrap_err();
    assert!(matches!(error, Error::Config { .. }), "{error}");
    assert!(error.to_string().contains("`mix`"), "{error}");
}
