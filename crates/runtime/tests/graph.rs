//! Orchestrations on a node: the order follows from the data, and everything else that a graph can say.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

extern crate ringwork_native as ringwork;

use ringwork_isa::{
    Compare, Core, Error as KernelError, In, InOut, Notify, Out, Result, Shared, Signals, Tile, TileOps,
};
use ringwork_macros::kernel;
use ringwork_runtime::{Device, DomainSpec, Error, Node, Rank};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};
use std::time::Duration;

/// y = x + by
#[kernel]
async fn add<C: Core>(core: &C, x: In<i32>, y: Out<i32>, by: i32) -> Result<()> {
    let tile = core.load(x).await?;
    core.store(y, &Tile::new(tile.values().iter().map(|v| v + by).collect()))
        .await
}

/// x = x + by
#[kernel]
async fn increase<C: Core>(core: &C, x: InOut<i32>, by: i32) -> Result<()> {
    let tile = core.load(x).await?;
    core.store(x, &Tile::new(tile.values().iter().map(|v| v + by).collect()))
        .await
}

/// y = a + b
#[kernel]
async fn sum<C: Core>(core: &C, a: In<i32>, b: In<i32>, y: Out<i32>) -> Result<()> {
    let tile = core.add(&core.load(a).await?, &core.load(b).await?).await?;
    core.store(y, &tile).await
}

/// Says how many of these this chip has run before.
#[kernel]
async fn count_off<C: Core>(core: &C, y: Out<i32>) -> Result<()> {
    static COUNT: AtomicI32 = AtomicI32::new(0);
    core.store(y, &Tile::new(vec![COUNT.fetch_add(1, Ordering::Relaxed)]))
        .await
}

#[kernel]
async fn nothing<C: Core>(_core: &C) -> Result<()> {
    Ok(())
}

/// Says where it runs.
#[kernel]
async fn sign<C: Core>(core: &C, y: Out<i32>) -> Result<()> {
    core.store(y, &Tile::new(vec![i32::try_from(core.device().0).unwrap_or(-1)]))
        .await
}

/// Puts a value into the next rank's part, late.
#[kernel]
async fn put_late<C: Core>(core: &C, slot: Shared<i32>, value: i32) -> Result<()> {
    std::thread::sleep(Duration::from_millis(5)); // so that who does not wait for it is too early
    let next = Rank((slot.me().0 + 1) % slot.ranks());
    core.store(slot.on(next)?, &Tile::new(vec![value])).await
}

/// Waits for the signal inside the kernel.
#[kernel]
async fn wait_inside<C: Core>(core: &C, row: Signals) -> Result<()> {
    core.wait(row.at(0)?, Compare::Ge, 1).await
}

/// Tells a rank.
#[kernel]
async fn tell<C: Core>(core: &C, row: Signals, rank: Rank, by: i32) -> Result<()> {
    core.notify(row.at(0)?.on(rank)?, Notify::Add(by)).await
}

#[kernel]
async fn refuse<C: Core>(_core: &C, _y: Out<i32>) -> Result<()> {
    Err(KernelError::failed("no"))
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

/// A host closure that is done when it is told to be, and what tells it.
fn gate() -> (
    impl FnOnce(),
    impl FnOnce() -> std::result::Result<(), String> + Send + 'static,
) {
    let (open, opened) = std::sync::mpsc::channel::<()>();
    let open = move || open.send(()).unwrap();
    (open, move || opened.recv().map_err(|gone| gone.to_string()))
}

fn node(devices: u32) -> Node {
    Node::builder().devices(0..devices).launch().unwrap()
}

const A: Device = Device(0);
const B: Device = Device(1);

#[test]
fn order_follows_from_the_bytes_that_tasks_touch_on_any_chip() {
    let node = node(2);
    let spec = DomainSpec::new("pair", node.devices()).buffer::<i32>("slot", 4);
    let slot = node.open_domain(&spec).unwrap().buffer::<i32>("slot").unwrap();
    let (first, second) = (slot.on(Rank(0)).unwrap(), slot.on(Rank(1)).unwrap());
    for round in 0..200 {
        first.write(&[round; 4]).unwrap();
        node.run(|orch| {
            // Back and forth between the chips, each reading what the other wrote.
            for _ in 0..5 {
                orch.submit(B, add::task(&first, &second, 1))?;
                orch.submit(A, add::task(&second, &first, 10))?;
            }
            Ok(())
        })
        .unwrap();
        assert_eq!(first.read().unwrap(), [round + 55; 4]);
        assert_eq!(second.read().unwrap(), [round + 45; 4]);
    }
}

#[test]
fn a_reader_stands_before_the_next_writer_and_slices_are_apart() {
    let node = node(1);
    let (x, y) = (node.tensor(A, &[1, 2]).unwrap(), node.zeros::<i32>(A, 2).unwrap());
    let (left, right) = (x.slice(0..1).unwrap(), x.slice(1..2).unwrap());
    node.run(|orch| {
        orch.submit(A, add::task(&x, &y, 0))?;
        orch.submit(A, increase::task(&left, 5))?;
        orch.submit(A, increase::task(&right, 7))?;
        orch.submit(A, increase::task(&x, 100))
    })
    .unwrap();
    assert_eq!(y.read().unwrap(), [1, 2]);
    assert_eq!(x.read().unwrap(), [106, 109]);
}

#[test]
fn an_explicit_edge_orders_what_the_arguments_do_not_say() {
    let node = node(2);
    let spec = DomainSpec::new("pair", node.devices()).buffer::<i32>("slot", 1);
    let slot = node.open_domain(&spec).unwrap().buffer::<i32>("slot").unwrap();
    let y = node.zeros::<i32>(B, 1).unwrap();
    for value in 1..20 {
        node.run(|orch| {
            let put = orch.submit(A, put_late::task(&slot, value))?;
            orch.after(put).submit(B, add::task(&slot, &y, 0))
        })
        .unwrap();
        assert_eq!(y.read().unwrap(), [value]);
    }
}

#[test]
fn conditions_hold_for_every_task_of_their_orchestrator_and_for_no_other() {
    let node = node(2);
    let (x, y) = (node.zeros::<i32>(A, 1).unwrap(), node.zeros::<i32>(B, 1).unwrap());
    let (open, gate) = gate();
    let opened = Arc::new(AtomicBool::new(false));
    let free = opened.clone();
    node.run(|orch| {
        let gate = orch.host_task("gate", gate)?;
        let gated = orch.after([gate]);
        let tasks = [
            gated.submit(A, increase::task(&x, 1))?,
            gated.priority(1).submit(B, increase::task(&y, 1))?,
        ];
        for _ in tasks {
            let opened = opened.clone();
            gated.host_task("gated", move || {
                let open = opened.load(Ordering::SeqCst);
                open.then_some(()).ok_or("it did not wait for the gate")
            })?;
        }
        // Not gated: it would wait for ever otherwise.
        let (done, heard) = std::sync::mpsc::channel();
        orch.host_task("free", move || done.send(()))?;
        heard.recv().unwrap();
        free.store(true, Ordering::SeqCst);
        open();
        orch.after(tasks).host_task("both", || Ok::<(), String>(()))
    })
    .unwrap();
    assert_eq!((x.read().unwrap(), y.read().unwrap()), (vec![1], vec![1]));
}

#[test]
fn the_important_go_first_and_then_the_old() {
    let node = node(1);
    let y: Vec<_> = (0..20).map(|_| node.zeros::<i32>(A, 1).unwrap()).collect();
    let (open, gate) = gate();
    node.run(|orch| {
        let gate = orch.host_task("gate", gate)?;
        for (i, y) in y.iter().enumerate() {
            let priority = match i {
                15 => 5,
                4 | 17 => 2,
                _ => -1,
            };
            orch.after(gate)
                .priority(priority)
                .submit(A, count_off::task(y))?;
        }
        open();
        Ok(())
    })
    .unwrap();
    let order: Vec<i32> = y.iter().map(|y| y.read().unwrap()[0]).collect();
    let first = order.iter().min().copied().unwrap();
    let mut went: Vec<usize> = (0..y.len()).collect();
    went.sort_by_key(|task| order[*task]);
    let rest = (0..y.len()).filter(|task| ![15, 4, 17].contains(task));
    let wanted: Vec<usize> = [15, 4, 17].into_iter().chain(rest).collect();
    assert_eq!(went, wanted, "from {first}: {order:?}");
}

#[test]
fn a_task_for_any_chip_does_not_stand_behind_a_chip_that_waits() {
    let node = node(2);
    let spec = DomainSpec::new("pair", node.devices())
        .buffer::<i32>("slot", 16)
        .signals("go", 1);
    let pair = node.open_domain(&spec).unwrap();
    let (slot, go) = (pair.buffer::<i32>("slot").unwrap(), pair.signals("go").unwrap());
    node.run(|orch| {
        orch.submit(A, wait_inside::task(&go))?;
        for i in 0..16 {
            orch.anywhere(sign::task(&slot.slice(i..i + 1)?.on(Rank(0))?))?;
        }
        orch.reads(&slot.on(Rank(0))?)
            .submit(B, tell::task(&go, Rank(0), 1))
    })
    .unwrap();
    assert_eq!(slot.read(Rank(0)).unwrap(), [1; 16]);
    let refused = node
        .run(|orch| orch.anywhere(sign::task(&slot)))
        .unwrap_err()
        .to_string();
    assert!(
        refused.contains("`y` is a per-chip view of window \"pair\""),
        "{refused}"
    );
}

#[test]
fn a_task_for_any_chip_goes_where_its_memory_is() {
    let node = node(3);
    let y = node.zeros::<i32>(B, 1).unwrap();
    node.run(|orch| orch.anywhere(sign::task(&y))).unwrap();
    assert_eq!(y.read().unwrap(), [1]);
    let spec = DomainSpec::new("some", [1, 2].map(Device)).buffer::<i32>("slot", 8);
    let slot = node.open_domain(&spec).unwrap().buffer::<i32>("slot").unwrap();
    node.run(|orch| {
        for i in 0..8 {
            orch.anywhere(sign::task(&slot.slice(i..i + 1)?.on(Rank(1))?))?;
        }
        Ok(())
    })
    .unwrap();
    let mut who = slot.read(Rank(1)).unwrap();
    who.sort_unstable();
    assert_eq!(who, [1, 1, 1, 1, 2, 2, 2, 2]);
}

#[test]
fn intermediates_pass_data_and_their_memory_goes_round() {
    // 64 intermediates of 1 KiB would not fit 8 KiB all at once: scopes let them go, and submission waits.
    let node = Node::builder()
        .devices(0..2)
        .intermediate_bytes(8 << 10)
        .launch()
        .unwrap();
    let x = node.tensor(B, &[1; 256]).unwrap();
    let y = node.zeros::<i32>(B, 256).unwrap();
    let late = node
        .run(|orch| {
            let mut kept = None;
            for _ in 0..64 {
                orch.scope(|orch| {
                    let t = orch.intermediate::<i32>(B, 256)?;
                    orch.submit(B, add::task(&x, t, 2))?;
                    orch.scope(|orch| {
                        let u = orch.intermediate::<i32>(B, 256)?;
                        orch.submit(B, add::task(t, u, 3))?;
                        orch.submit(B, sum::task(t, u, &y))
                    })?;
                    orch.submit(B, add::task(&y, &x, -8))?;
                    kept = Some(t);
                    Ok(())
                })?;
            }
            let t = kept.unwrap();
            Ok(orch.submit(B, add::task(&x, t, 0)).unwrap_err().to_string())
        })
        .unwrap();
    assert_eq!(y.read().unwrap(), [9; 256]);
    assert_eq!(x.read().unwrap(), [1; 256]);
    assert_eq!(
        late,
        "an intermediate whose scope has ended was released; open it again before using it"
    );
}

#[test]
fn a_ring_that_can_never_hold_it_says_what_to_raise() {
    let node = Node::builder()
        .devices(0..1)
        .intermediate_bytes(4 << 10)
        .launch()
        .unwrap();
    let error = node
        .run(|orch| {
            for _ in 0..5 {
                orch.intermediate::<i32>(A, 256)?;
            }
            Ok(())
        })
        .unwrap_err()
        .to_string();
    assert_eq!(
        error,
        "node: intermediate memory of arena 0: 1024 needed, 4096 of 4096 used, 4096 of them by open scopes; \
         nothing under way can release enough: raise NodeBuilder::intermediate_bytes, or end scopes sooner"
    );
    // The next run has it all again.
    node.run(|orch| orch.intermediate::<i32>(A, 1024).map(drop))
        .unwrap();
}

#[test]
fn few_slots_press_back_and_lose_nothing() {
    let node = Node::builder().devices(0..2).task_slots(3).launch().unwrap();
    let x = [node.tensor(A, &[0]).unwrap(), node.tensor(B, &[0]).unwrap()];
    let calls = Arc::new(AtomicU32::new(0));
    node.run(|orch| {
        for i in 0..300 {
            orch.submit(Device(i % 2), increase::task(&x[i as usize % 2], 1))?;
            let calls = calls.clone();
            orch.reads(&x[i as usize % 2]).host_task("count", move || {
                calls.fetch_add(1, Ordering::Relaxed);
                Ok::<(), String>(())
            })?;
        }
        Ok(())
    })
    .unwrap();
    assert_eq!(x[0].read().unwrap(), [150]);
    assert_eq!(x[1].read().unwrap(), [150]);
    assert_eq!(calls.load(Ordering::Relaxed), 300);
}

#[test]
fn a_task_starts_when_its_signal_has_come_and_its_chip_is_free_until_then() {
    let node = node(2);
    let spec = DomainSpec::new("pair", node.devices()).signals("go", 1);
    let go = node.open_domain(&spec).unwrap().signals("go").unwrap();
    let (x, y) = (node.tensor(A, &[0]).unwrap(), node.zeros::<i32>(A, 1).unwrap());
    for round in 1..=20 {
        node.run(|orch| {
            let cell = go.cell(Rank(0), 0)?;
            // Waits for 3 * round, and the chip it will run on is the one that tells.
            orch.when(cell, Compare::Ge, 3 * round)
                .submit(A, add::task(&x, &y, 1))?;
            for _ in 0..3 {
                orch.submit(A, tell::task(&go, Rank(0), 1))?;
            }
            Ok(())
        })
        .unwrap();
        assert_eq!(y.read().unwrap(), [1]);
    }
}

#[test]
fn a_task_is_done_when_its_signal_says_so() {
    let node = node(2);
    let spec = DomainSpec::new("pair", node.devices())
        .buffer::<i32>("slot", 1)
        .signals("done", 1);
    let pair = node.open_domain(&spec).unwrap();
    let (slot, done) = (pair.buffer::<i32>("slot").unwrap(), pair.signals("done").unwrap());
    let y = node.zeros::<i32>(B, 1).unwrap();
    let x = node.tensor(A, &[0]).unwrap();
    for value in 1..20 {
        node.run(|orch| {
            // Counts as done when chip 0 has put its value there and said so; the reader waits for that.
            let cell = done.cell(Rank(1), 0)?;
            orch.until(cell, Compare::Ge, value)
                .writes(&slot)
                .submit(B, nothing::task())?;
            orch.submit(B, add::task(&slot, &y, 0))?;
            orch.submit(A, dawdle::task(&x, 2u32))?;
            let put = orch.submit(A, put_late::task(&slot, value))?;
            orch.after(put).submit(A, tell::task(&done, Rank(1), 1))
        })
        .unwrap();
        assert_eq!(y.read().unwrap(), [value]);
    }
}

#[test]
fn a_signal_that_nobody_can_raise_is_reported_at_once_with_the_chain() {
    let node = node(2);
    let spec = DomainSpec::new("pair", node.devices()).signals("go", 2);
    let go = node.open_domain(&spec).unwrap().signals("go").unwrap();
    let (x, y) = (node.tensor(A, &[0]).unwrap(), node.tensor(A, &[0]).unwrap());
    let error = node
        .run(|orch| {
            let held = orch.when(go.cell(Rank(1), 1)?, Compare::Ge, 3);
            held.submit(A, add::task(&x, &y, 1))?;
            orch.submit(A, increase::task(&y, 1))
        })
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "node: nothing runs, nothing is ready, 2 tasks are left: kernel `increase` on chip 0 waits for kernel \
         `add` on chip 0 waits for signal \"go\"[1] of rank 1 in window \"pair\" >= 3, it is 0"
    );
    // The next run is clean.
    node.run(|orch| orch.submit(A, increase::task(&y, 1))).unwrap();
    assert_eq!(y.read().unwrap(), [1]);
}

#[test]
fn a_deadline_names_the_signal_that_never_came() {
    let node = Node::builder()
        .devices(0..2)
        .wait_limit(Duration::from_millis(300))
        .launch()
        .unwrap();
    let spec = DomainSpec::new("pair", node.devices()).signals("go", 1);
    let go = node.open_domain(&spec).unwrap().signals("go").unwrap();
    let (x, y) = (node.tensor(A, &[7]).unwrap(), node.tensor(B, &[0]).unwrap());
    for deferred in [false, true] {
        let error = node
            .run(|orch| {
                let cell = go.cell(Rank(0), 0)?;
                let held = if deferred {
                    orch.until(cell, Compare::Ge, 1)
                } else {
                    orch.when(cell, Compare::Ge, 1)
                };
                held.submit(B, increase::task(&y, 1))?;
                // Somebody is busy, and could still raise it.
                orch.submit(A, dawdle::task(&x, 1500u32))
            })
            .unwrap_err();
        let Error::Overdue {
            task,
            waited_for,
            deferred: was,
            ..
        } = &error
        else {
            panic!("{error}")
        };
        assert_eq!((task.as_str(), *was), ("increase", deferred));
        assert_eq!(
            waited_for,
            "signal \"go\"[0] of rank 0 in window \"pair\" >= 1, it is 0"
        );
    }
    assert_eq!(x.read().unwrap(), [7], "what does not need it finished");
}

#[test]
fn a_failure_cancels_what_needs_it_and_says_so_and_the_rest_finishes() {
    let node = node(2);
    let (x, y) = (node.tensor(A, &[0]).unwrap(), node.zeros::<i32>(A, 1).unwrap());
    let (z, w) = (node.tensor(B, &[0]).unwrap(), node.tensor(B, &[0]).unwrap());
    let ran = Arc::new(AtomicBool::new(false));
    let note = ran.clone();
    // Nothing fails before everything is submitted.
    let (open, gate) = gate();
    let error = node
        .run(|orch| {
            let gate = orch.host_task("gate", gate)?;
            let first = orch.after(gate).submit(A, refuse::task(&x))?;
            orch.submit(A, add::task(&x, &y, 1))?;
            orch.reads(&y).host_task("report", move || {
                note.store(true, Ordering::Relaxed);
                Ok::<(), String>(())
            })?;
            orch.after(first).submit(B, increase::task(&z, 100))?;
            (0..10).try_for_each(|_| orch.after(gate).submit(B, increase::task(&w, 1)).map(drop))?;
            open();
            Ok(())
        })
        .unwrap_err();
    let Error::Task(failure) = &error else {
        panic!("{error}")
    };
    assert_eq!((failure.device, failure.kernel.as_str()), (A, "refuse"));
    assert_eq!(
        failure.cancelled,
        [
            "kernel `add` on chip 0",
            "host task `report`",
            "kernel `increase` on chip 1"
        ]
    );
    let words = "; cancelled with it: kernel `add` on chip 0 and 2 more";
    assert!(error.to_string().ends_with(words), "{error}");
    assert!(!ran.load(Ordering::Relaxed));
    assert_eq!(z.read().unwrap(), [0], "it came after the failed one by an edge");
    assert_eq!(
        w.read().unwrap(),
        [10],
        "it had nothing to do with the failed one"
    );
}
