//! What chips record of themselves, as a timeline and in reports of failures.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

extern crate ringwork_runtime as ringwork;

use ringwork_isa::{Compare, Core, InOut, Notify, Result, Signals};
use ringwork_macros::{kernel, orchestration};
use ringwork_runtime::{
    ChipOrchestrator, CoreKind, Device, DomainSpec, Error, Node, Platform, Rank, Simulation,
};
use ringwork_sim::Topology;
use ringwork_sim::timeline::{Kind, Timeline};

#[kernel]
async fn touch<C: Core>(core: &C, x: InOut<i32>) -> Result<()> {
    let tile = core.load(x).await?;
    core.store(x, &tile).await
}

/// Says that it is about to wait, and waits.
#[kernel]
async fn wait_for_it<C: Core>(core: &C, row: Signals) -> Result<()> {
    core.notify(row.at(1)?, Notify::Set(1)).await?;
    core.wait(row.at(0)?, Compare::Ge, 1).await
}

/// Lets rank 1 go on.
#[kernel]
async fn let_go<C: Core>(core: &C, row: Signals) -> Result<()> {
    core.notify(row.at(0)?.on(Rank(1))?, Notify::Set(1)).await
}

/// Returns when a process sleeps: one that was about to wait does.
fn until_asleep(pid: u32) -> std::io::Result<()> {
    loop {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
        if stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('S')) {
            return Ok(());
        }
        std::thread::yield_now();
    }
}

#[kernel]
async fn refuse<C: Core>(_core: &C) -> Result<()> {
    Err(ringwork_isa::Error::failed("no"))
}

fn tasks<'a>(timeline: &'a Timeline, label: &str) -> Vec<&'a ringwork_sim::timeline::Slice> {
    let slices = timeline.slices.iter();
    slices
        .filter(|slice| slice.kind == Kind::Task && slice.label == label)
        .collect()
}

#[test]
fn tasks_are_slices_and_what_waited_for_what_is_an_arrow() {
    let node = Node::builder().devices(0..2).launch().unwrap();
    let x = node.tensor(Device(0), &[1, 2, 3]).unwrap();
    node.run(|orch| {
        orch.submit(Device(0), touch::task(&x))?;
        let held = x.clone();
        orch.updates(&x)
            .host_task("look", move || held.read().map(drop))?;
        orch.submit(Device(0), touch::task(&x))
    })
    .unwrap();
    let timeline = node.clock().timeline().unwrap();
    assert_eq!(timeline.rows, ["chip 0", "chip 1", "host"]);
    let (touched, looked) = (tasks(&timeline, "touch"), tasks(&timeline, "look"));
    assert_eq!((touched.len(), looked.len()), (2, 1));
    let arrows: Vec<_> = timeline
        .arrows
        .iter()
        .map(|arrow| (arrow.from, arrow.to))
        .collect();
    assert_eq!(
        arrows,
        [
            ((0, touched[0].end_ps), (2, looked[0].start_ps)),
            ((2, looked[0].end_ps), (0, touched[1].start_ps)),
        ]
    );
    let path = timeline.critical_path();
    assert_eq!(path.first().unwrap().0, 0);
    assert!(path.iter().any(|(row, ..)| *row == 2), "{path:?}");
    node.close();
    assert_eq!(
        node.clock().timeline().unwrap().slices.len(),
        timeline.slices.len()
    );
}

#[test]
fn a_notify_points_to_the_end_of_the_wait_that_it_ended() {
    let node = Node::builder().devices(0..2).launch().unwrap();
    let spec = DomainSpec::new("pair", [Device(0), Device(1)]).signals("row", 2);
    let domain = node.open_domain(&spec).unwrap();
    let row = domain.signals("row").unwrap();
    let pid = node.pid(Device(1)).unwrap();
    node.run(|orch| {
        orch.submit(Device(1), wait_for_it::task(&row))?;
        let about_to = row.cell(Rank(1), 1)?;
        let asleep = orch
            .when(about_to, Compare::Ge, 1)
            .host_task("look", move || until_asleep(pid))?;
        orch.after(asleep).submit(Device(0), let_go::task(&row))
    })
    .unwrap();
    let timeline = node.clock().timeline().unwrap();
    let waits: Vec<_> = timeline
        .slices
        .iter()
        .filter(|slice| slice.kind == Kind::Wait)
        .collect();
    assert_eq!(waits.len(), 1, "{waits:?}");
    let wait = waits[0];
    assert_eq!(wait.row, 1);
    assert!(
        wait.label
            .starts_with("signal \"row\"[0] of rank 1 (timeline.rs:"),
        "{}",
        wait.label
    );
    let arrow = timeline
        .arrows
        .iter()
        .find(|arrow| arrow.to == (1, wait.end_ps))
        .unwrap();
    assert_eq!(arrow.from.0, 0);
    assert!(arrow.from.1 >= wait.start_ps && arrow.from.1 <= wait.end_ps);
}

#[test]
fn signals_have_the_names_of_their_domain_on_a_simulated_machine_too() {
    let machine = Simulation::new(Topology::preset("ring-2").unwrap()).trace(true);
    let node = Node::builder().devices(0..2).platform(Platform::Sim(machine));
    let node = node.launch().unwrap();
    let spec = DomainSpec::new("pair", node.devices())
        .signals("other", 3)
        .signals("row", 2);
    let domain = node.open_domain(&spec).unwrap();
    let row = domain.signals("row").unwrap();
    node.run(|orch| {
        orch.submit(Device(1), wait_for_it::task(&row))?;
        orch.submit(Device(0), let_go::task(&row))
    })
    .unwrap();
    let timeline = node.clock().timeline().unwrap();
    let waits: Vec<_> = timeline
        .slices
        .iter()
        .filter(|slice| slice.kind == Kind::Wait)
        .collect();
    assert_eq!(waits.len(), 1, "{waits:?}");
    assert_eq!(waits[0].label, "signal \"row\"[0] of rank 1");
}

#[test]
fn a_notify_points_to_the_task_that_it_let_start_and_is_on_the_critical_path() {
    let node = Node::builder().devices(0..2).launch().unwrap();
    let spec = DomainSpec::new("pair", [Device(0), Device(1)]).signals("row", 2);
    let domain = node.open_domain(&spec).unwrap();
    let row = domain.signals("row").unwrap();
    let y = node.tensor(Device(1), &[1]).unwrap();
    node.run(|orch| {
        let told = row.cell(Rank(1), 0)?;
        orch.when(told, Compare::Ge, 1)
            .submit(Device(1), touch::task(&y))?;
        orch.submit(Device(0), let_go::task(&row))
    })
    .unwrap();
    let timeline = node.clock().timeline().unwrap();
    let started = timeline
        .slices
        .iter()
        .find(|slice| slice.label == "touch")
        .unwrap();
    let to = (started.row, started.start_ps);
    let arrow = timeline.arrows.iter().find(|arrow| arrow.to == to).unwrap();
    assert_eq!(arrow.from.0, 0, "the notify was chip 0's");
    let path = timeline.critical_path();
    assert!(path.iter().any(|(row, ..)| *row == 0), "{path:?}");
}

/// A chain of three, and one by itself.
#[orchestration]
fn chain(orch: &mut ChipOrchestrator<'_>, x: InOut<i32>, y: InOut<i32>) -> Result<()> {
    for _ in 0..3 {
        orch.submit(CoreKind::Vector, touch::task(x))?;
    }
    orch.submit(CoreKind::Matrix, touch::task(y))?;
    Ok(())
}

#[test]
fn tasks_of_a_chips_own_graph_point_to_those_they_let_go_however_it_is_built() {
    let node = Node::builder().devices(0..1).launch().unwrap();
    let (x, y) = (
        node.tensor(Device(0), &[1]).unwrap(),
        node.tensor(Device(0), &[1]).unwrap(),
    );
    let task = || chain::task(&x, &y);
    let captured = node.capture(Device(0), &task()).unwrap();
    let replay = captured.replay(&task()).unwrap();
    for task in [task(), replay.clone(), replay] {
        let before = node
            .clock()
            .timeline()
            .map_or(0, |timeline| timeline.arrows.len());
        node.run(|orch| orch.submit(Device(0), task)).unwrap();
        let timeline = node.clock().timeline().unwrap();
        let mut new: Vec<_> = timeline.arrows.iter().collect();
        new.sort_by_key(|arrow| arrow.to.1);
        let new = &new[before..];
        assert_eq!(new.len(), 2, "{new:?}");
        let ends = |arrow: &ringwork_sim::timeline::Arrow| {
            let tasks = tasks(&timeline, "touch");
            let from = tasks.iter().any(|task| (task.row, task.end_ps) == arrow.from);
            let to = tasks
                .iter()
                .any(|task| task.row == arrow.to.0 && (task.start_ps..=task.end_ps).contains(&arrow.to.1));
            from && to
        };
        assert!(new.iter().all(|arrow| ends(arrow)), "{new:?}");
    }
}

#[test]
fn a_failure_says_what_every_chip_did_last_behind_its_one_line() {
    let node = Node::builder().devices(0..2).launch().unwrap();
    let x = node.tensor(Device(1), &[1]).unwrap();
    node.run(|orch| orch.submit(Device(1), touch::task(&x))).unwrap();
    let error = node
        .run(|orch| orch.submit(Device(0), refuse::task()))
        .unwrap_err();
    assert!(matches!(error, Error::Task(_)), "{error}");
    assert_eq!(error.to_string().lines().count(), 1);
    let recent = error.recent().unwrap();
    let last = |chip: usize| recent.chips[chip].lines.last().unwrap().clone();
    assert!(last(0).starts_with("task refuse (failed), "), "{recent}");
    assert!(last(1).starts_with("task touch, "), "{recent}");
    assert!(
        recent.to_string().starts_with("chip 0\n  task refuse"),
        "{recent}"
    );
}

#[test]
fn a_node_that_does_not_record_has_no_timeline() {
    let node = Node::builder().devices(0..1).record(false).launch().unwrap();
    node.run(|orch| orch.submit(Device(0), refuse::task()))
        .unwrap_err();
    assert!(node.clock().timeline().is_none());
}
