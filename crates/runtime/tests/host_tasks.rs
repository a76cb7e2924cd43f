//! Host tasks: closures with a turn in the graph, beside the orchestration and beside each other.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

extern crate ringwork_native as ringwork;

use ringwork_isa::{Core, InOut, Result, Tile};
use ringwork_macros::kernel;
use ringwork_runtime::{Device, Error, Node};
use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier, Mutex};

/// x = x + by
#[kernel]
async fn increase<C: Core>(core: &C, x: InOut<i32>, by: i32) -> Result<()> {
    let tile = core.load(x).await?;
    core.store(x, &Tile::new(tile.values().iter().map(|v| v + by).collect()))
        .await
}

#[kernel]
async fn nothing<C: Core>(_core: &C) -> Result<()> {
    Ok(())
}

const A: Device = Device(0);
const B: Device = Device(1);

fn node(devices: u32) -> Node {
    Node::builder().devices(0..devices).launch().unwrap()
}

#[test]
fn a_host_task_takes_its_turn_between_chips() {
    let node = node(2);
    let (x, y) = (node.tensor(A, &[1, 2]).unwrap(), node.zeros::<i32>(B, 2).unwrap());
    let seen = Arc::new(Mutex::new(Vec::new()));
    for _ in 0..50 {
        x.write(&[1, 2]).unwrap();
        let (from, to, note) = (x.clone(), y.clone(), seen.clone());
        node.run(|orch| {
            orch.submit(A, increase::task(&x, 10))?;
            orch.reads(&x).writes(&y).host_task("carry", move || {
                let values = from.read()?;
                note.lock().unwrap().push(values.clone());
                to.write(&values)
            })?;
            orch.submit(A, increase::task(&x, 100))?;
            orch.submit(B, increase::task(&y, 1000))
        })
        .unwrap();
        assert_eq!(x.read().unwrap(), [111, 112]);
        assert_eq!(y.read().unwrap(), [1011, 1012]);
    }
    assert_eq!(*seen.lock().unwrap(), vec![vec![11, 12]; 50]);
}

#[test]
fn a_host_task_that_fails_or_panics_is_named_and_what_needs_it_does_not_run() {
    let node = node(1);
    let (x, y) = (node.tensor(A, &[1]).unwrap(), node.tensor(A, &[5]).unwrap());
    let dropped = Arc::new(());
    for panics in [false, true] {
        let held = dropped.clone();
        let error = node.run(|orch| {
            orch.writes(&x).host_task("feed", move || {
                assert!(!panics, "out of food");
                Err("no food")
            })?;
            orch.submit(A, increase::task(&x, 1))?;
            orch.reads(&x).host_task("never", move || {
                drop(held);
                Ok::<(), String>(())
            })?;
            orch.submit(A, increase::task(&y, 1))
        });
        let text = error.unwrap_err().to_string();
        let words = if panics {
            "it panicked: out of food"
        } else {
            "no food"
        };
        assert_eq!(text, format!("node, host closure `feed`: {words}"));
        assert_eq!(x.read().unwrap(), [1]);
        assert_eq!(Arc::strong_count(&dropped), 1, "a cancelled closure is dropped");
    }
    assert_eq!(y.read().unwrap(), [7], "what does not need it ran");
}

#[test]
fn a_run_inside_a_host_task_is_refused_not_waited_for() {
    let node = Arc::new(node(1));
    let inner = node.clone();
    node.run(|orch| {
        let first = orch.submit(A, nothing::task())?;
        orch.after(first)
            .host_task("inner", move || match inner.run(|_| Ok(())) {
                Err(Error::Config { .. }) => Ok(()),
                other => Err(format!("{other:?}")),
            })
    })
    .unwrap();
}

#[test]
fn the_orchestration_and_the_chips_go_on_beside_a_host_task() {
    let node = node(1);
    let x = node.tensor(A, &[0]).unwrap();
    let (tell, told) = channel::<i32>();
    node.run(|orch| {
        // It ends only after the orchestration has seen a task done that was submitted behind it.
        orch.priority(0)
            .host_task("hear", move || told.recv().map(drop))?;
        let before = Arc::new(Mutex::new(None));
        let (note, memory) = (before.clone(), x.clone());
        let done = orch.submit(A, increase::task(&x, 1))?;
        orch.after(done).host_task("see", move || {
            *note.lock().unwrap() = Some(memory.read()?[0]);
            Ok::<(), Error>(())
        })?;
        let seen = loop {
            // The graph moves on threads and chips; submitting lets what has come be taken in.
            orch.submit(A, increase::task(&x, 0))?;
            if let Some(seen) = before.lock().unwrap().take() {
                break seen;
            }
        };
        tell.send(seen).unwrap();
        Ok(())
    })
    .unwrap();
    assert_eq!(x.read().unwrap(), [1]);
}

#[test]
fn host_tasks_that_have_nothing_in_common_run_beside_each_other() {
    let node = node(1);
    let all = Arc::new(Barrier::new(4));
    for _ in 0..20 {
        node.run(|orch| {
            for name in ["one", "two", "three", "four"] {
                let all = all.clone();
                orch.host_task(name, move || {
                    all.wait();
                    Ok::<(), String>(())
                })?;
            }
            Ok(())
        })
        .unwrap();
    }
    let timeline = node.clock().timeline().unwrap();
    assert_eq!(timeline.rows, ["chip 0", "host", "host 1", "host 2", "host 3"]);
}

#[test]
fn host_tasks_that_touch_the_same_take_turns() {
    let node = node(1);
    let x = node.tensor(A, &[0]).unwrap();
    node.run(|orch| {
        for i in 0..50 {
            let held = x.clone();
            orch.updates(&x)
                .host_task("add", move || held.write(&[held.read()?[0] * 3 % 1000 + i]))?;
        }
        Ok(())
    })
    .unwrap();
    assert_eq!(x.read().unwrap(), [(0..50).fold(0, |x, i| x * 3 % 1000 + i)]);
}

#[test]
fn an_interrupted_run_waits_for_the_host_task_that_has_begun() {
    let node = node(1);
    let interrupter = node.interrupter();
    let (tell, told) = channel::<()>();
    let ended = Arc::new(Mutex::new(false));
    let (note, never) = (ended.clone(), ended.clone());
    let error = node
        .run(|orch| {
            let begun = orch.host_task("long", move || {
                tell.send(()).map_err(|error| error.to_string())?;
                while !interrupter.is_interrupted() {
                    interrupter.interrupt();
                }
                *note.lock().unwrap() = true;
                Ok::<(), String>(())
            })?;
            orch.after(begun).host_task("after", move || {
                assert!(!*never.lock().unwrap(), "it was cancelled");
                Ok::<(), String>(())
            })?;
            told.recv().unwrap();
            Ok(())
        })
        .unwrap_err();
    assert!(matches!(error, Error::Interrupted), "{error}");
    assert!(*ended.lock().unwrap());
}
