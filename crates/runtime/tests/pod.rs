//! Workers above the node: order, failures with their whole path, levels, the end.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

extern crate ringwork_native as ringwork;

use ringwork_isa::{Core, Error as KernelError, InOut, Result, Tile};
use ringwork_macros::kernel;
use ringwork_runtime::{
    Device, DomainSpec, Error, Level, Node, NodeBuilder, Platform, Pod, Program, Rank, Simulation, Worker,
};
use std::sync::atomic::{AtomicU32, Ordering};

/// x = x + by, unless it is 13.
#[kernel]
async fn increase<C: Core>(core: &C, x: InOut<i32>, by: i32) -> Result<()> {
    let tile = core.load(x).await?;
    if tile.values()[0] == 13 {
        return Err(KernelError::failed("unlucky"));
    }
    core.store(x, &Tile::new(tile.values().iter().map(|v| v + by).collect()))
        .await
}

fn builder(name: &str) -> NodeBuilder {
    Node::builder().name(name).devices(0..2)
}

fn pod(name: &str) -> Pod {
    Pod::launch(name, [builder("a"), builder("b")]).unwrap()
}

/// Adds `by` on a chip of a node to a value, there and back.
fn on_chip(node: &Node, value: i32, by: i32) -> ringwork_runtime::Result<i32> {
    let x = node.tensor(Device(1), &[value])?;
    node.run(|orch| orch.submit(Device(1), increase::task(&x, by)))?;
    Ok(x.read()?[0])
}

#[test]
fn the_order_of_tasks_on_different_nodes_follows_from_the_pods_memory() {
    let pod = pod("pod");
    assert_eq!(pod.level(), Level::Pod);
    for round in 0..20 {
        let (x, y) = (pod.tensor(vec![round * 100]), pod.tensor(vec![0]));
        pod.run(|orch| {
            for step in 0..6 {
                let (x, y) = (&x, &y);
                let (from, to) = if step % 2 == 0 { (x, y) } else { (y, x) };
                orch.reads(from).writes(to).submit(step % 2, "hop", move |node| {
                    to.write(vec![on_chip(node, from.read()[0], 1)?]);
                    Ok(())
                })?;
            }
            orch.reads(&x).writes(&y).host_task("double", || {
                y.write(vec![2 * x.read()[0]]);
                Ok::<(), String>(())
            })
        })
        .unwrap();
        assert_eq!(y.read(), [2 * (round * 100 + 6)]);
    }
}

#[test]
fn an_orchestrator_that_outlives_its_run_is_refused() {
    let pod = pod("pod");
    let mut kept = None;
    pod.run(|orch| {
        let done = orch.submit(0, "done", |_| Ok(()))?;
        kept = Some(orch.after(done).priority(1));
        Ok(())
    })
    .unwrap();
    let late = kept.unwrap().submit(0, "late", |_| Ok(()));
    let why = late.unwrap_err().to_string();
    assert_eq!(
        why,
        "configuration: `run`: the run of this orchestrator is over; submit in another"
    );
}

#[test]
fn nodes_work_at_the_same_time() {
    let pod = pod("pod");
    let come = AtomicU32::new(0);
    pod.run(|orch| {
        for child in 0..2 {
            let come = &come;
            orch.submit(child, "meet", move |_| {
                come.fetch_add(1, Ordering::SeqCst);
                while come.load(Ordering::SeqCst) < 2 {
                    std::thread::yield_now();
                }
                Ok(())
            })?;
        }
        Ok(())
    })
    .unwrap();
}

#[test]
fn an_error_names_every_worker_down_to_the_kernels_line_and_the_rest_finishes() {
    let cluster = Pod::over("super", [pod("left"), pod("right")]).unwrap();
    assert_eq!(cluster.level(), Level::Supernode);
    let (x, y) = (cluster.tensor(vec![13]), cluster.tensor(vec![0]));
    let error = cluster
        .run(|orch| {
            let (x, y) = (&x, &y);
            orch.reads(x).writes(y).submit(1, "first", move |pod: &Pod| {
                let inner = pod.tensor(vec![0]);
                pod.run(|orch| {
                    orch.writes(&inner).submit(1, "inside", |node| {
                        inner.write(vec![on_chip(node, x.read()[0], 1)?]);
                        Ok(())
                    })
                })?;
                y.write(inner.read());
                Ok(())
            })?;
            orch.reads(y)
                .submit(0, "second", |_| panic!("it needs what failed"))?;
            orch.submit(0, "beside", |pod: &Pod| {
                on_chip(&pod.children()[0], 1, 1).map(drop)
            })
        })
        .unwrap_err();
    let text = error.to_string();
    assert!(
        text.starts_with("super, right, b, chip 1, kernel `increase`: "),
        "{text}"
    );
    assert!(
        text.contains("tests/pod.rs:") && text.contains("unlucky"),
        "{text}"
    );
    assert!(!text.contains("it needs what failed"), "{text}");
    // And the next run is clean.
    cluster
        .run(|orch| {
            orch.submit(1, "again", |pod: &Pod| {
                on_chip(&pod.children()[1], 1, 1).map(drop)
            })
        })
        .unwrap();
}

#[test]
fn a_dead_chip_is_named_with_its_path_and_the_other_node_goes_on() {
    let pod = pod("pod");
    let pid = pod.children()[1].pid(Device(1)).unwrap();
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    let fd = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).unwrap();
    rustix::process::pidfd_send_signal(&fd, rustix::process::Signal::KILL).unwrap();
    let error = loop {
        // The first may be sent before the host has heard of the death.
        if let Err(error) = pod.run(|orch| orch.submit(1, "use", |node| on_chip(node, 1, 1).map(drop))) {
            break error.to_string();
        }
    };
    assert!(error.starts_with("pod, b"), "{error}");
    assert!(error.contains("it was killed by SIGKILL"), "{error}");
    pod.run(|orch| orch.submit(0, "use", |node| on_chip(node, 1, 1).map(drop)))
        .unwrap();
}

#[test]
fn a_worker_that_cannot_be_is_refused_and_a_launch_that_fails_says_where() {
    let none: [Node; 0] = [];
    assert!(matches!(Pod::over("pod", none), Err(Error::Config { .. })));
    let twice = Pod::launch("pod", [builder("a"), builder("a")])
        .unwrap_err()
        .to_string();
    assert!(twice.contains("two children are called `a`"), "{twice}");
    let never = Program {
        path: "/does/not/exist".into(),
        arguments: vec![],
    };
    let failed = Pod::launch("pod", [builder("a"), builder("b").program(never)]).unwrap_err();
    assert!(failed.to_string().starts_with("pod, b: "), "{failed}");
    let pod = pod("pod");
    let error = pod
        .run(|orch| orch.submit(2, "x", |_| Ok(())))
        .unwrap_err()
        .to_string();
    assert!(error.contains("there is no child 2"), "{error}");
    let panicked = pod
        .run(|orch| orch.submit(0, "fall", |_| panic!("over")))
        .unwrap_err()
        .to_string();
    assert_eq!(panicked, "pod, host closure `fall`: it panicked: over");
}

#[test]
fn closing_a_worker_closes_everything_below() {
    let over = Pod::over("super", [pod("left")]).unwrap();
    let node = &over.children()[0].children()[1];
    let pid = node.pid(Device(0)).unwrap();
    over.close();
    over.close();
    assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
    let error = over
        .run(|orch| orch.submit(0, "late", |pod: &Pod| on_chip(&pod.children()[1], 1, 1).map(drop)))
        .unwrap_err();
    assert_eq!(error.to_string(), "super, left: this worker is closed");
}

#[test]
fn a_domain_over_nodes_has_dense_ranks_and_one_memory() {
    let cluster = Pod::over("super", [pod("left"), pod("right")]).unwrap();
    let spec = DomainSpec::new("all", [])
        .buffer::<i32>("x", 3)
        .signals("row", 1)
        .stage("x", Rank(6), &[1, 2, 3]);
    let all = cluster.open_domain(&spec).unwrap();
    assert_eq!(all.parts().len(), 4);
    for (node, part) in (0..).zip(all.parts()) {
        assert_eq!(part.members(), [Device(0), Device(1)]);
        assert_eq!(part.rank_of(Device(1)), Some(Rank(2 * node + 1)));
        assert_eq!(part.ranks(), 8);
        let x = part.buffer::<i32>("x").unwrap();
        assert_eq!(x.read(Rank(6)).unwrap(), [1, 2, 3]);
        x.write(Rank(node), &[7, 7, i32::try_from(node).unwrap()])
            .unwrap();
    }
    // What one node wrote, another reads; and a chip of it, too.
    let x = all.parts()[3].buffer::<i32>("x").unwrap();
    assert_eq!(x.read(Rank(0)).unwrap(), [7, 7, 0]);
    let last = &cluster.children()[1].children()[1];
    last.run(|orch| orch.submit(Device(0), increase::task(&x.on(Rank(1))?, 10)))
        .unwrap();
    let first = all.parts()[0].buffer::<i32>("x").unwrap();
    assert_eq!(first.read(Rank(1)).unwrap(), [17, 17, 11]);
    // Memory of a node that is made now has another number.
    let own = last.tensor(Device(0), &[5]).unwrap();
    last.run(|orch| orch.submit(Device(0), increase::task(&own, 1)))
        .unwrap();
    assert_eq!((own.read().unwrap()[0], x.read(Rank(6)).unwrap()[0]), (6, 1));
}

#[test]
fn a_domain_of_some_chips_has_them_in_the_order_they_were_named_and_the_others_are_no_members() {
    let pods = Pod::over("super", [pod("left"), pod("right")]).unwrap();
    let spec = DomainSpec::new("some", [])
        .buffer::<i32>("x", 1)
        .stage("x", Rank(0), &[5]);
    // Of the four nodes the last and the first: chip 1 of the one, both of the other, backwards.
    let members = [(3, Device(1)), (0, Device(1)), (0, Device(0))];
    let some = pods.open_domain_of(&spec, members).unwrap();
    assert_eq!(some.parts().len(), 2);
    assert!(some.part(1).is_none() && some.part(2).is_none());
    let (first, last) = (some.part(0).unwrap(), some.part(3).unwrap());
    assert_eq!(last.members(), [Device(1)]);
    assert_eq!(first.members(), [Device(1), Device(0)]);
    assert_eq!(last.rank_of(Device(1)), Some(Rank(0)));
    assert_eq!(last.rank_of(Device(0)), None);
    assert_eq!(first.rank_of(Device(0)), Some(Rank(2)));
    assert_eq!((first.ranks(), last.ranks()), (3, 3));
    // A member of one node adds to what another's has; one that is none is refused.
    let x = first.buffer::<i32>("x").unwrap();
    let node = &pods.children()[0].children()[0];
    node.run(|orch| orch.submit(Device(0), increase::task(&x.on(Rank(0))?, 2)))
        .unwrap();
    assert_eq!(last.buffer::<i32>("x").unwrap().read(Rank(0)).unwrap(), [7]);
    let x = last.buffer::<i32>("x").unwrap();
    let node = &pods.children()[1].children()[1];
    let error = node
        .run(|orch| orch.submit(Device(0), increase::task(&x.on(Rank(0))?, 2)))
        .unwrap_err();
    assert!(matches!(error, Error::NotAMember { .. }), "{error}");

    for (members, why) in [
        (vec![(4, Device(0))], "node 4 of 4; they count from 0"),
        (
            vec![(1, Device(7))],
            "device 7 is not a chip of `b`, which has 0, 1",
        ),
        (
            vec![(1, Device(0)), (1, Device(0))],
            "device 0 of `b` is there twice",
        ),
        (
            vec![(1, Device(0)), (0, Device(0)), (1, Device(1))],
            "the chips of `b` are apart; name them one after the other",
        ),
        (vec![], "0 members"),
    ] {
        let error = pods.open_domain_of(&spec, members).unwrap_err().to_string();
        assert!(error.starts_with("super, its domain: "), "{error}");
        assert!(error.contains(why), "{error}");
    }
}

/// A worker that is somewhere else.
struct Elsewhere;

impl Worker for Elsewhere {
    fn name(&self) -> String {
        "far".into()
    }
    fn level(&self) -> Level {
        Level::Node
    }
    fn close(&self) {}
    fn interrupt(&self) {}
}

#[test]
fn a_domain_that_cannot_be_shared_is_refused_by_name() {
    let spec = DomainSpec::new("all", []).signals("row", 1);
    let far = Pod::over("pod", [Elsewhere])
        .unwrap()
        .open_domain(&spec)
        .unwrap_err();
    assert_eq!(
        far.to_string(),
        "configuration: `worker `far``: its chips cannot map memory of this host; pass data through the worker's tensors"
    );
    let ring = || Platform::Sim(Simulation::new(ringwork_sim::Topology::preset("ring-4").unwrap()));
    let described = Pod::launch("pod", [builder("a"), builder("b").platform(ring())]).unwrap();
    let error = described.open_domain(&spec).unwrap_err().to_string();
    assert!(
        error.contains("the chips of `b` cannot map memory of this host"),
        "{error}"
    );
    let named = DomainSpec::new("all", [Device(0)]).signals("row", 1);
    let error = pod("pod").open_domain(&named).unwrap_err().to_string();
    assert!(error.contains("names no members"), "{error}");
}
