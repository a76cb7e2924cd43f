//! A chip's own graph on a described machine: the same results all three ways, and time of its cores.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

extern crate ringwork_runtime as ringwork;

use ringwork_isa::{Core, Error as KernelError, In, InOut, Out, Result, Tile, TileOps};
use ringwork_macros::{kernel, orchestration};
use ringwork_runtime::chip::explicit;
use ringwork_runtime::{ChipOrchestrator, CoreKind, Device, Node, Platform, Simulation};
use ringwork_sim::Topology;
use ringwork_sim::timeline::{Kind, Timeline};

const CHIP: Device = Device(1);

/// y = x + 1
#[kernel]
async fn one_more<C: Core>(core: &C, x: In<f32>, y: Out<f32>) -> Result<()> {
    let x = core.load(x).await?;
    let ones = Tile::new(vec![1.0; x.len()]);
    core.store(y, &core.add(&x, &ones).await?).await
}

/// y = a square matrix times itself
#[kernel]
async fn square<C: Core>(core: &C, x: In<f32>, y: Out<f32>, side: u32) -> Result<()> {
    let matrix = core.load(x).await?.shaped(side as usize, side as usize)?;
    core.store(y, &core.matmul(&matrix, &matrix).await?).await
}

#[kernel]
async fn refuse<C: Core>(_core: &C, _x: InOut<f32>, panics: bool) -> Result<()> {
    assert!(!panics, "the kernel lost its temper");
    Err(KernelError::failed("not today"))
}

/// A product and two sums beside each other, then a sum of each; y = x * x + 1, z = x + 3.
#[orchestration]
fn beside(orch: &mut ChipOrchestrator<'_>, x: In<f32>, y: Out<f32>, z: Out<f32>, side: u32) -> Result<()> {
    let product = orch.intermediate::<f32>(x.len())?;
    let (first, second) = (
        orch.intermediate::<f32>(x.len())?,
        orch.intermediate::<f32>(x.len())?,
    );
    let squared = orch.submit(CoreKind::Matrix, square::task(x, product, side))?;
    let summed = orch.submit(CoreKind::Vector, one_more::task(x, first))?;
    let summed = orch
        .after([summed])
        .submit(CoreKind::Vector, one_more::task(first, second))?;
    orch.after([summed])
        .submit(CoreKind::Vector, one_more::task(second, z))?;
    orch.after([squared])
        .submit(CoreKind::Vector, one_more::task(product, y))?;
    Ok(())
}

#[orchestration]
fn failing(orch: &mut ChipOrchestrator<'_>, x: InOut<f32>, how: u32) -> Result<()> {
    assert!(how != 2, "the orchestration lost its temper");
    orch.submit(CoreKind::Vector, refuse::task(x, how == 1))?;
    orch.submit(CoreKind::Vector, one_more::task(x, x))?;
    Ok(())
}

/// 1 ns to launch; a byte combined takes 1 ns, an operation of the matrix engine 1 ns.
const MACHINE: &str = "
network: {kind: ring, size: 2, bandwidth: 50 GB/s, latency: 500 ns}
chip: {vector: 1 GB/s, matrix: 1 Gflop/s, launch: 1 ns}
";

fn node() -> Node {
    let machine = Topology::from_yaml("test", MACHINE).unwrap();
    Node::builder()
        .devices(0..2)
        .platform(Platform::Sim(Simulation::new(machine).trace(true)))
        .launch()
        .unwrap()
}

const SIDE: usize = 4;
const SIDE_U32: u32 = 4;
const LEN: usize = SIDE * SIDE;

/// The three ways, one after the other: what came out, when it ended, and what is known of it.
fn three_ways() -> (Vec<[Vec<f32>; 2]>, u64, Timeline) {
    let node = node();
    let x: Vec<f32> = (0..LEN).map(|i| i as f32 - 7.0).collect();
    let other = node.zeros::<f32>(CHIP, LEN).unwrap();
    let x = node.tensor(CHIP, &x).unwrap();
    let y: Vec<_> = (0..6).map(|_| node.zeros::<f32>(CHIP, LEN).unwrap()).collect();
    let task = |at: usize| beside::task(&x, &y[at], &y[at + 1], SIDE_U32);
    let captured = node
        .capture(CHIP, &beside::task(&other, &y[0], &y[1], SIDE_U32))
        .unwrap();
    node.run(|orch| {
        orch.submit(CHIP, task(0))?;
        orch.submit(CHIP, explicit(task(2)))?;
        orch.submit(CHIP, captured.replay(&task(4))?)
    })
    .unwrap();
    let results = y
        .chunks(2)
        .map(|pair| [pair[0].read().unwrap(), pair[1].read().unwrap()]);
    let clock = node.clock();
    (
        results.collect(),
        clock.simulated().unwrap().now_ps,
        clock.timeline().unwrap(),
    )
}

#[test]
fn all_three_ways_give_the_same_and_cores_work_beside_each_other() {
    let (results, end_ps, timeline) = three_ways();
    let x = |row: usize, column: usize| (row * SIDE + column) as f32 - 7.0;
    for [y, z] in &results {
        for row in 0..SIDE {
            for column in 0..SIDE {
                let product: f32 = (0..SIDE).map(|k| x(row, k) * x(k, column)).sum();
                assert_eq!(y[row * SIDE + column], product + 1.0);
                assert_eq!(z[row * SIDE + column], x(row, column) + 3.0);
            }
        }
    }
    // 64 bytes a sum: three of them beside 2 x 64 operations of the product; the fourth shares the vector engine with
    // the last of these.
    let graph_ps = 1_000 + (3 + 1) * 64_000;
    assert_eq!(end_ps, 3 * graph_ps);
    let graphs = timeline.slices.iter().filter(|slice| slice.label == "beside");
    assert_eq!(graphs.count(), 3);
    for (row, least) in [
        ("chip 1", 3),
        ("chip 1, matrix core", 3),
        ("chip 1, vector core 0", 3),
        ("chip 1, vector core 1", 1),
    ] {
        let place = timeline.rows.iter().position(|name| name == row);
        let place = place.unwrap_or_else(|| panic!("{row}: {:?}", timeline.rows));
        let on_row =
            |slice: &&ringwork_sim::timeline::Slice| slice.row as usize == place && slice.kind == Kind::Task;
        assert!(timeline.slices.iter().filter(on_row).count() >= least, "{row}");
    }
    // What waited for a task has an arrow from its end; what the graph began with has none.
    let inner = timeline.slices.iter().filter(|slice| {
        let row = &timeline.rows[slice.row as usize];
        slice.kind == Kind::Task && row.contains("core")
    });
    for slice in inner {
        let arrow = timeline
            .arrows
            .iter()
            .find(|arrow| arrow.to == (slice.row, slice.start_ps));
        let begins = timeline
            .slices
            .iter()
            .any(|graph| graph.label == "beside" && graph.start_ps == slice.start_ps);
        assert_eq!(arrow.is_none(), begins, "{slice:?}");
        if let Some(arrow) = arrow {
            let ended = |before: &ringwork_sim::timeline::Slice| arrow.from == (before.row, before.end_ps);
            assert!(timeline.slices.iter().any(ended), "{slice:?}");
        }
    }
}

#[test]
fn a_graph_takes_the_same_way_every_time() {
    let ((first, at, once), (second, again_at, again)) = (three_ways(), three_ways());
    assert_eq!((first, at), (second, again_at));
    assert_eq!(once.chrome_json(), again.chrome_json());
}

#[test]
fn a_task_that_fails_or_panics_is_named_with_its_graph_and_the_node_goes_on() {
    let node = node();
    let x = node.tensor(CHIP, &[1.0f32]).unwrap();
    for (how, words) in [
        (0, "not today"),
        (1, "lost its temper"),
        (2, "orchestration lost its temper"),
    ] {
        let error = node
            .run(|orch| orch.submit(CHIP, failing::task(&x, how)))
            .unwrap_err();
        let error = error.to_string();
        assert!(error.starts_with("node, chip 1, kernel `failing`"), "{error}");
        assert!(error.contains(words), "{error}");
        assert!(error.contains("sim_graph.rs:"), "{error}");
        assert_eq!(x.read().unwrap(), [1.0]);
    }
    let y = node.zeros::<f32>(CHIP, 1).unwrap();
    node.run(|orch| orch.submit(CHIP, one_more::task(&x, &y)))
        .unwrap();
    assert_eq!(y.read().unwrap(), [2.0]);
}

/// x + rounds, by way of a large intermediate for each step, which all together are more than a chip has.
#[orchestration]
fn by_way_of(orch: &mut ChipOrchestrator<'_>, x: InOut<f32>, rounds: u32, len: u32) -> Result<()> {
    for _ in 0..rounds {
        orch.scope(|orch| {
            let far = orch.intermediate::<f32>(len as usize)?;
            let first = far.slice(0..x.len())?;
            orch.submit(CoreKind::Vector, one_more::task(x, first))?;
            orch.submit(CoreKind::Vector, keep::task(first, x))
        })?;
    }
    Ok(())
}

/// y = x
#[kernel]
async fn keep<C: Core>(core: &C, x: In<f32>, y: Out<f32>) -> Result<()> {
    core.copy(y, x).await
}

#[test]
fn a_graph_that_needs_more_than_the_chip_has_waits_for_room_and_ends_the_same() {
    let node = node();
    let x = node.zeros::<f32>(CHIP, 4).unwrap();
    // 4 MiB each: four fit. Then more tasks than there are slots.
    for (rounds, len) in [(12, 1 << 20), (2500, 4)] {
        x.write(&[0.0, 1.0, 2.0, 3.0]).unwrap();
        node.run(|orch| orch.submit(CHIP, by_way_of::task(&x, rounds, len)))
            .unwrap();
        let added = rounds as f32;
        assert_eq!(x.read().unwrap(), [added, added + 1.0, added + 2.0, added + 3.0]);
    }
}

#[test]
fn what_a_chip_never_has_room_for_is_refused_as_on_a_real_one() {
    let simulated = node();
    let real = Node::builder().devices(0..2).launch().unwrap();
    let too_much = [&simulated, &real].map(|node| {
        let x = node.zeros::<f32>(CHIP, 4).unwrap();
        let task = by_way_of::task(&x, 12, 1 << 20);
        let captured = node.capture(CHIP, &task).unwrap();
        [by_way_of::task(&x, 1, 8 << 20), captured.replay(&task).unwrap()]
            .map(|task| node.run(|orch| orch.submit(CHIP, task)).unwrap_err().to_string())
    });
    assert_eq!(too_much[0], too_much[1]);
    let [[one, all], _] = too_much;
    for (error, needed) in [(one, "33554432 needed"), (all, "50331648 needed")] {
        assert!(error.contains(needed), "{error}");
        assert!(error.contains("use smaller intermediates"), "{error}");
    }
}
