//! Blocks as arguments: tasks on columns that are apart do not wait for each other, on every platform.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

extern crate ringwork_runtime as ringwork;

use ringwork_isa::{
    Block, Compare, Core, Error as KernelError, In, InOut, Notify, Out, Result, Signals, TileOps,
};
use ringwork_macros::{kernel, orchestration};
use ringwork_runtime::{
    ChipOrchestrator, CoreKind, Device, DomainSpec, Error, Node, Platform, Rank, Simulation, Tensor,
};
use ringwork_sim::Topology;

const CHIP: Device = Device(0);

/// x = x + by
#[kernel]
async fn increase<C: Core>(core: &C, x: Block<InOut<i32>>, by: i32) -> Result<()> {
    let tile = core.load(x).await?;
    let by = core.full(1, 1, by).await?;
    core.store(x, &core.add(&tile, &by).await?).await
}

/// y = x, for any element type
#[kernel]
async fn carry<C: Core, T: ringwork_isa::Element>(core: &C, x: Block<In<T>>, y: Block<Out<T>>) -> Result<()> {
    core.copy(y, x).await
}

#[kernel]
async fn refuse<C: Core>(_core: &C, _x: Block<InOut<i32>>) -> Result<()> {
    Err(KernelError::failed("not today"))
}

#[kernel]
async fn tell<C: Core>(core: &C, go: Signals) -> Result<()> {
    core.notify(go.at(0)?.on(Rank(0))?, Notify::Add(1)).await
}

/// Turns the halves of a 2 x 4 matrix around, by way of an intermediate.
#[orchestration]
fn turn(orch: &mut ChipOrchestrator<'_>, x: In<i32>, y: Out<i32>) -> Result<()> {
    let (x, y) = (x.shaped(2, 4)?, y.shaped(2, 4)?);
    let half = orch.intermediate::<i32>(4)?.shaped(2, 2)?;
    orch.submit(CoreKind::Vector, carry::task(x.columns(0..2)?, half))?;
    orch.submit(CoreKind::Vector, carry::task(x.columns(2..4)?, y.columns(0..2)?))?;
    orch.submit(CoreKind::Vector, carry::task(half, y.columns(2..4)?))?;
    Ok(())
}

fn on_every_platform(test: impl Fn(&Node)) {
    let machine = Topology::from_yaml(
        "test",
        "network: {kind: ring, size: 2, bandwidth: 50 GB/s, latency: 500 ns}",
    );
    let simulated = Platform::Sim(Simulation::new(machine.unwrap()));
    test(&Node::builder().devices(0..2).launch().unwrap());
    test(
        &Node::builder()
            .devices(0..2)
            .platform(simulated)
            .launch()
            .unwrap(),
    );
}

fn matrix(node: &Node) -> Tensor<i32> {
    node.tensor(CHIP, &[0; 12]).unwrap()
}

#[test]
fn tasks_on_columns_that_are_apart_are_apart_and_others_wait() {
    on_every_platform(|node| {
        let x = matrix(node);
        let all = x.shaped(3, 4).unwrap();
        let columns = |range| all.columns(range).unwrap();
        let spec = DomainSpec::new("pair", node.devices()).signals("go", 1);
        let go = node.open_domain(&spec).unwrap().signals("go").unwrap();
        let end = node.run(|orch| {
            // It fails when all are submitted: a submission after a failure is refused.
            orch.when(go.cell(Rank(0), 0)?, Compare::Ge, 1)
                .submit(CHIP, refuse::task(columns(0..2)))?;
            orch.submit(CHIP, increase::task(columns(2..4), 1))?; // beside it
            orch.submit(CHIP, increase::task(columns(1..3), 10))?; // on a column of both
            orch.submit(CHIP, increase::task(columns(0..1).rows(2..3)?, 20))?; // inside the first
            orch.submit(CHIP, increase::task(columns(3..4), 100))?; // beside it too
            orch.submit(Device(1), tell::task(&go))
        });
        let Err(Error::Task(failure)) = end else {
            panic!("{end:?}");
        };
        assert_eq!(failure.cancelled, ["kernel `increase` on chip 0"; 2]);
        assert_eq!(x.read().unwrap(), [[0, 0, 1, 101]; 3].concat());
    });
}

#[test]
fn overlapping_blocks_are_ordered_as_they_were_submitted() {
    on_every_platform(|node| {
        let (x, y) = (matrix(node), matrix(node));
        let (x_all, y_all) = (x.shaped(3, 4).unwrap(), y.shaped(4, 3).unwrap());
        node.run(|orch| {
            for _ in 0..10 {
                orch.submit(CHIP, increase::task(x_all.columns(1..3)?, 1))?;
                orch.submit(
                    CHIP,
                    carry::task(x_all.columns(2..4)?.rows(0..2)?, y_all.rows(0..2)?.columns(0..2)?),
                )?;
                orch.submit(
                    CHIP,
                    carry::task(y_all.rows(0..2)?.columns(0..1)?, x_all.rows(0..2)?.columns(3..4)?),
                )?;
            }
            Ok(())
        })
        .unwrap();
        assert_eq!(x.read().unwrap(), [0, 10, 10, 10, 0, 10, 10, 10, 0, 10, 10, 0]);
        assert_eq!(y.read().unwrap()[..6], [10, 9, 0, 10, 9, 0]);
    });
}

#[test]
fn buffers_and_intermediates_have_blocks_too() {
    on_every_platform(|node| {
        let spec = DomainSpec::new("pair", node.devices()).buffer::<i32>("x", 6);
        let x = node.open_domain(&spec).unwrap().buffer::<i32>("x").unwrap();
        x.write(Rank(1), &[1, 2, 3, 4, 5, 6]).unwrap();
        let all = x.shaped(2, 3).unwrap();
        node.run(|orch| {
            let between = orch.intermediate::<i32>(Device(1), 4)?.shaped(2, 2)?;
            orch.submit(Device(1), carry::task::<i32>(all.columns(1..3)?, between))?;
            orch.submit(Device(1), carry::task::<i32>(between, all.columns(0..2)?))
        })
        .unwrap();
        assert_eq!(x.read(Rank(1)).unwrap(), [2, 3, 3, 5, 6, 6]);
        assert_eq!(x.read(Rank(0)).unwrap(), [0; 6]);
    });
}

#[test]
fn a_chips_own_graph_takes_blocks_of_its_memory() {
    on_every_platform(|node| {
        let x = node.tensor(CHIP, &[1, 2, 3, 4, 5, 6, 7, 8]).unwrap();
        let y = [0; 2].map(|_| node.zeros::<i32>(CHIP, 8).unwrap());
        let captured = node.capture(CHIP, &turn::task(&x, &y[0])).unwrap();
        node.run(|orch| {
            orch.submit(CHIP, turn::task(&x, &y[0]))?;
            orch.submit(CHIP, captured.replay(&turn::task(&y[0], &y[1]))?)
        })
        .unwrap();
        assert_eq!(y[0].read().unwrap(), [3, 4, 1, 2, 7, 8, 5, 6]);
        assert_eq!(y[1].read().unwrap(), [1, 2, 3, 4, 5, 6, 7, 8]);
    });
}

#[test]
fn blocks_that_there_are_not_are_refused_on_the_host() {
    let node = Node::builder().devices(0..1).launch().unwrap();
    let x = matrix(&node);
    let text = |end: std::result::Result<Block<Tensor<i32>>, Error>| end.unwrap_err().to_string();
    assert_eq!(
        text(x.shaped(3, 5)),
        "a tensor on device 0 has 12 elements; 15 were given or asked for"
    );
    assert_eq!(
        text(x.shaped(3, 4).unwrap().columns(3..6)),
        "columns 3..6 are outside the 4 of a tensor on device 0"
    );
}
