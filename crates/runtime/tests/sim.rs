//! A node on a described machine: the same programs, the same errors, and time to the picosecond.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

extern crate ringwork_native as ringwork;

#[path = "support/kernels.rs"]
mod kernels;

use kernels::{increment, meet_or_fail, shift};
use ringwork_isa::{
    Barrier, Compare, Core, ErrorKind, Float, In, Notify, Out, Result, Shared, Signals, TileOps, bf16,
};
use ringwork_macros::kernel;
use ringwork_runtime::{Cause, Device, DomainSpec, Error, Failure, Node, Platform, Rank, Simulation};
use ringwork_sim::Topology;
use ringwork_sim::timeline::Kind;
use std::time::Duration;

/// y = factor * sqrt(x): floats in, another type of floats out.
#[kernel]
async fn root<C: Core, T: Float, U: Float>(core: &C, x: In<T>, y: Out<U>, factor: f32) -> Result<()> {
    let root = core.sqrt(&core.load(x).await?).await?;
    let root = core.cast::<T, U>(&root).await?;
    core.store(y, &core.scale(&root, factor.into(), 0.0).await?).await
}

#[kernel]
async fn meet_or_panic<C: Core>(core: &C, meet: Barrier, bad: u32) -> Result<()> {
    assert!(meet.rank().0 != bad, "rank {bad} lost its temper");
    meet.arrive_and_wait(core).await
}

/// Ends the program that it runs in.
#[kernel]
async fn exit<C: Core>(_core: &C, code: i32) -> Result<()> {
    std::process::exit(code)
}

/// Waits for a signal that nobody raises.
#[kernel]
async fn wait_in_vain<C: Core>(core: &C, steps: Signals) -> Result<()> {
    core.wait(steps.at(0)?, Compare::Ge, 3).await
}

/// Polls for ever.
#[kernel]
async fn poll_for_ever<C: Core>(core: &C, steps: Signals) -> Result<()> {
    while !core.test(steps.at(0)?, Compare::Ge, 1).await? {}
    Ok(())
}

/// Never comes back to its core.
#[kernel]
async fn spin_outside<C: Core>(_core: &C, meet: Barrier) -> Result<()> {
    while meet.rank().0 == 0 {
        std::hint::spin_loop();
    }
    Ok(())
}

#[kernel]
async fn put<C: Core>(core: &C, x: In<i32>, slot: Shared<i32>, steps: Signals) -> Result<()> {
    let next = Rank((slot.me().0 + 1) % slot.ranks());
    core.copy(slot.on(next)?, x).await?;
    core.notify(steps.at(0)?.on(next)?, Notify::Add(1)).await?;
    core.wait(steps.at(0)?, Compare::Ge, 1).await
}

/// Raises the next chip's signal three times, each time after as many copies to it.
#[kernel]
async fn raise_slowly<C: Core>(core: &C, slot: Shared<i32>, steps: Signals, copies: u32) -> Result<()> {
    let next = Rank((slot.me().0 + 1) % slot.ranks());
    for _ in 0..3 {
        for _ in 0..copies {
            core.copy(slot.on(next)?, slot).await?;
        }
        core.notify(steps.at(0)?.on(next)?, Notify::Add(1)).await?;
    }
    Ok(())
}

fn on(topology: &str) -> Platform {
    Platform::Sim(Simulation::new(Topology::preset(topology).unwrap()).trace(true))
}

fn node(topology: &str, devices: u32) -> Node {
    Node::builder()
        .devices(0..devices)
        .platform(on(topology))
        .launch()
        .unwrap()
}

fn domain(node: &Node) -> ringwork_runtime::Domain {
    let spec = DomainSpec::new("tp", node.devices())
        .buffer::<i32>("slot", 1000)
        .barrier("meet")
        .signals("steps", 1);
    node.open_domain(&spec).unwrap()
}

fn now_ps(node: &Node) -> u64 {
    node.clock().simulated().unwrap().now_ps
}

fn failure(error: Error) -> Box<ringwork_runtime::TaskFailure> {
    match error {
        Error::Task(failure) => failure,
        other => panic!("{other:?}"),
    }
}

#[test]
fn each_element_type_of_a_kernel_comes_from_its_own_argument() {
    let node = node("h100x8", 1);
    let chip = node.devices()[0];
    let x = node.tensor(chip, &[4.0, 9.0].map(bf16::from_f32)).unwrap();
    let y = node.zeros::<f64>(chip, 2).unwrap();
    node.run(|orch| orch.submit(chip, root::task(&x, &y, 0.5)))
        .unwrap();
    assert_eq!(y.read().unwrap(), [1.0, 1.5]);
}

#[test]
fn a_task_on_a_chip_changes_its_memory() {
    let node = node("ring-2", 2);
    let x = node.tensor(Device(1), &[1, 2, 3]).unwrap();
    node.run(|orch| {
        orch.submit(Device(1), increment::task(&x))?;
        orch.submit(Device(1), increment::task(&x))
    })
    .unwrap();
    assert_eq!(x.read().unwrap(), [3, 4, 5]);
}

#[test]
fn staged_domains_and_domains_opened_later_move_data_between_chips() {
    let staged = DomainSpec::new("early", [0, 1, 2].map(Device))
        .buffer::<i32>("slot", 2)
        .barrier("meet")
        .stage("slot", Rank(0), &[10, 11])
        .stage("slot", Rank(2), &[30, 31]);
    let node = Node::builder()
        .devices(0..3)
        .platform(on("full-4"))
        .domain(staged)
        .launch()
        .unwrap();
    let early = node.domain("early").unwrap();
    let y: Vec<_> = (0..3)
        .map(|chip| node.zeros::<i32>(Device(chip), 2).unwrap())
        .collect();
    let shift = |domain: &ringwork_runtime::Domain| {
        node.run(|orch| {
            orch.group(domain.members().to_vec(), |chip| {
                let (slot, meet) = (domain.buffer::<i32>("slot")?, domain.barrier("meet")?);
                Ok(shift::task(&y[chip.0 as usize], &slot, &meet))
            })
        })
    };
    shift(&early).unwrap();
    let got: Vec<_> = y.iter().map(|y| y.read().unwrap()).collect();
    assert_eq!(got, [vec![0, 0], vec![30, 31], vec![10, 11]]);
    let late = DomainSpec::new("late", [2, 0].map(Device))
        .buffer::<i32>("slot", 2)
        .barrier("meet")
        .stage("slot", Rank(0), &[7, 8]);
    let late = node.open_domain(&late).unwrap();
    shift(&late).unwrap();
    assert_eq!(y[0].read().unwrap(), [7, 8]);
    assert_eq!(node.contexts()[2].domains[0].rank, Rank(2));
}

/// One put of 4,000 bytes to the next chip of a ring: 500 ns and 4,000 B at 50 GB/s; everybody at once.
#[test]
fn time_is_what_the_machine_says_to_the_picosecond_however_slow_the_host_is() {
    for pause in [false, true] {
        let node = node("ring-4", 4);
        let domain = domain(&node);
        let x: Vec<_> = (0..4)
            .map(|chip| node.tensor(Device(chip), &vec![1; 1000]).unwrap())
            .collect();
        let (slot, steps) = (
            domain.buffer::<i32>("slot").unwrap(),
            domain.signals("steps").unwrap(),
        );
        node.run(|orch| {
            orch.group(node.devices(), |chip| {
                if pause {
                    // A slow orchestration is no slow machine.
                    std::hint::black_box((0..100_000u64).sum::<u64>());
                }
                Ok(put::task(&x[chip.0 as usize], &slot, &steps))
            })
        })
        .unwrap();
        assert_eq!(now_ps(&node), 500_000 + 4_000 * 20);
        let timeline = node.clock().timeline().unwrap();
        let tasks = timeline
            .slices
            .iter()
            .filter(|slice| slice.kind == Kind::Task && slice.label == "put");
        assert_eq!(tasks.count(), 4);
    }
}

/// The signal's second change is seen after twice the copies, which wait for each other: 4,000 B at 50 GB/s and 500 ns.
#[test]
fn what_waits_for_a_signal_goes_on_at_the_very_moment_it_changes() {
    const COPIES: u32 = 1500;
    let second = u64::from(2 * COPIES) * (80_000 + 500_000);
    for done in [false, true] {
        let node = node("ring-3", 3);
        let domain = domain(&node);
        let (slot, steps) = (
            domain.buffer::<i32>("slot").unwrap(),
            domain.signals("steps").unwrap(),
        );
        let x = node.tensor(Device(2), &[0]).unwrap();
        node.run(|orch| {
            orch.submit(Device(0), raise_slowly::task(&slot, &steps, COPIES))?;
            let signal = steps.cell(Rank(1), 0)?;
            if done {
                orch.until(signal, Compare::Ge, 2)
                    .submit(Device(2), increment::task(&x))?;
                orch.submit(Device(2), increment::task(&x))
            } else {
                orch.when(signal, Compare::Ge, 2)
                    .submit(Device(2), increment::task(&x))
            }
        })
        .unwrap();
        let timeline = node.clock().timeline().unwrap();
        let slices = timeline.slices.iter();
        let mut of_chip = slices.filter(|slice| slice.kind == Kind::Task && slice.label == "increment");
        assert_eq!(of_chip.next_back().unwrap().start_ps, second, "done: {done}");
    }
}

#[test]
fn a_chip_runs_its_tasks_one_after_the_other() {
    let node = node("h100x8", 1);
    let x = node.tensor(Device(0), &[0]).unwrap();
    node.run(|orch| (0..3).try_for_each(|_| orch.submit(Device(0), increment::task(&x)).map(drop)))
        .unwrap();
    assert_eq!(now_ps(&node), 3 * 8_400_000, "three launches of 8.4 us");
}

#[test]
fn a_kernel_that_fails_is_named_its_partners_end_and_the_next_run_is_clean() {
    let node = node("ring-4", 4);
    let domain = domain(&node);
    let meet = domain.barrier("meet").unwrap();
    for bad in [2, 1] {
        let run =
            |bad: u32| node.run(|orch| orch.group(node.devices(), |_| Ok(meet_or_fail::task(&meet, bad))));
        let failure = failure(run(bad).unwrap_err());
        assert_eq!(failure.device, Device(bad));
        assert!(
            failure.to_string().contains("this rank has had enough"),
            "{failure}"
        );
        assert_eq!(failure.others.len(), 3);
        for (_, cause) in &failure.others {
            let aborted = match cause {
                Cause::Kernel(Failure::Returned(error)) => matches!(error.kind(), ErrorKind::Aborted { .. }),
                Cause::Kernel(Failure::NotBegun { .. }) => true,
                _ => false,
            };
            assert!(aborted, "{cause:?}");
        }
        run(99).unwrap();
    }
}

#[test]
fn a_panic_is_reported_with_its_line_and_ends_nobody_else() {
    let node = node("ring-3", 3);
    let domain = domain(&node);
    let meet = domain.barrier("meet").unwrap();
    let run = |bad: u32| node.run(|orch| orch.group(node.devices(), |_| Ok(meet_or_panic::task(&meet, bad))));
    let failure = failure(run(1).unwrap_err());
    let text = failure.to_string();
    assert_eq!(failure.device, Device(1));
    assert!(
        text.contains("panicked at") && text.contains("tests/sim.rs:"),
        "{text}"
    );
    assert!(text.contains("rank 1 lost its temper"), "{text}");
    run(99).unwrap();
}

#[test]
fn a_deadlock_is_reported_at_once_with_everyone_who_waits() {
    let node = node("ring-3", 3);
    let domain = domain(&node);
    let steps = domain.signals("steps").unwrap();
    let error = node
        .run(|orch| orch.group(node.devices(), |_| Ok(wait_in_vain::task(&steps))))
        .unwrap_err();
    let text = error.to_string();
    assert!(text.contains("deadlock: nothing can happen any more"), "{text}");
    for chip in 0..3 {
        let line = format!("chip {chip}: rank {chip} waited at crates/runtime/tests/sim.rs:");
        assert!(text.contains(&line), "{text}");
    }
    assert!(
        text.contains("for signal \"steps\"[0] of rank 2 to be >= 3, it is 0"),
        "{text}"
    );
    let x = node.tensor(Device(0), &[1]).unwrap();
    node.run(|orch| orch.submit(Device(0), increment::task(&x)))
        .unwrap();
    assert_eq!(x.read().unwrap(), [2]);
}

#[test]
fn a_kernel_that_polls_for_ever_can_be_interrupted() {
    let node = node("ring-2", 2);
    let domain = domain(&node);
    let steps = domain.signals("steps").unwrap();
    let (interrupter, devices) = (node.interrupter(), node.devices());
    let begun = std::sync::Barrier::new(2);
    let error = std::thread::scope(|scope| {
        scope.spawn(|| {
            begun.wait();
            interrupter.interrupt();
        });
        node.run(|orch| {
            orch.group(devices.iter().copied(), |_| Ok(poll_for_ever::task(&steps)))?;
            begun.wait();
            Ok(())
        })
        .unwrap_err()
    });
    assert!(matches!(error, Error::Interrupted), "{error:?}");
}

#[test]
fn a_kernel_that_never_comes_back_is_given_up_and_the_node_closes() {
    let node = Node::builder()
        .devices(0..2)
        .platform(on("ring-2"))
        .wait_limit(Duration::from_millis(300))
        .launch()
        .unwrap();
    let domain = domain(&node);
    let meet = domain.barrier("meet").unwrap();
    let error = node
        .run(|orch| orch.submit(Device(0), spin_outside::task(&meet)))
        .unwrap_err();
    assert!(error.to_string().contains("no progress"), "{error}");
    node.close();
}

#[test]
fn what_the_machine_cannot_hold_is_refused_with_its_memory_named() {
    let yaml = "network: {kind: ring, size: 2, bandwidth: 1 GB/s, latency: 0}\nchip: {memory: {name: sram, capacity: 64 KiB}}";
    let topology = Topology::from_yaml("small.yaml", yaml).unwrap();
    let builder = Node::builder()
        .devices(0..2)
        .platform(Platform::Sim(Simulation::new(topology)));
    let node = builder.launch().unwrap();
    let kept = node.zeros::<u8>(Device(1), 40_000).unwrap();
    let error = node.zeros::<u8>(Device(1), 40_000).unwrap_err().to_string();
    assert!(
        error.contains("sram of chip 1") && error.contains("64.0 KiB are free"),
        "{error}"
    );
    drop(kept);
    node.zeros::<u8>(Device(1), 40_000).unwrap();
}

#[test]
fn a_device_that_the_machine_does_not_have_is_refused_before_anything_starts() {
    let builder = Node::builder().devices([0, 8]).platform(on("h100x8"));
    let error = builder.launch().unwrap_err().to_string();
    assert_eq!(
        error,
        "configuration: `devices`: there is no device 8 on `h100x8`, which has 8, from 0"
    );
}

#[test]
fn a_released_domain_is_refused_and_a_closed_node_answers_nothing() {
    let node = node("ring-2", 2);
    let domain = domain(&node);
    let meet = domain.barrier("meet").unwrap();
    domain.release();
    let error = node.run(|orch| orch.submit(Device(0), meet_or_fail::task(&meet, 9)));
    assert!(matches!(error, Err(Error::Released { .. })), "{error:?}");
    let clock = node.clock();
    node.close();
    assert_eq!(clock.simulated(), None);
    assert!(matches!(node.run(|_| Ok(())), Err(Error::Closed)));
}

#[test]
fn a_kernel_that_ends_the_program_is_named_on_standard_error() {
    const CHILD: &str = "RINGWORK_TEST_KERNEL_EXITS";
    if std::env::var_os(CHILD).is_some() {
        let node = node("ring-2", 2);
        let _ = node.run(|orch| orch.submit(Device(1), exit::task(3)).map(drop));
        unreachable!("the kernel ended this process");
    }
    let name = "a_kernel_that_ends_the_program_is_named_on_standard_error";
    let ended = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(CHILD, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(3), "{said}");
    assert!(
        said.contains("ringwork: kernel `exit` ended the whole program"),
        "{said}"
    );
}
