//! A host and a kernel that is already running: order, back-pressure, stops, and the death of either side.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

extern crate ringwork_native as ringwork;

use ringwork_isa::{Core, Error as KernelError, HostPort, Received, Result, Shared, Signals};
use ringwork_macros::kernel;
use ringwork_runtime::{
    Device, Error, KernelPort, Node, Orchestrator, Platform, Response, Simulation, TaskId,
};
use ringwork_sim::Topology;
use rustix::process::{Pid, Signal, kill_process};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const A: Device = Device(0);

/// Sends every request back; an error for one that begins with 255; fails at one that begins with 254.
#[kernel]
async fn echo<C: Core>(core: &C, slots: Shared<u8>, headers: Shared<i32>, cells: Signals) -> Result<()> {
    let mut port = HostPort::open(core, slots, headers, cells).await?;
    loop {
        let (code, request) = match port.recv(core).await? {
            Received::Data(request) => (None, request),
            Received::Error(code, request) => (Some(code), request),
            Received::Stop => break,
        };
        let first = core.load(request.payload()).await?.values().first().copied();
        if first == Some(254) {
            return Err(KernelError::failed("it is 254"));
        }
        let reply = port.reserve(core, request.payload().len()).await?;
        core.copy(reply.place(), request.payload()).await?;
        match code.or((first == Some(255)).then_some(7)) {
            Some(code) => port.send_error(core, code, reply).await?,
            None => port.send(core, reply).await?,
        }
        port.release(core, request).await?;
    }
    port.stop(core).await
}

/// Takes four requests, gives them back last first, and answers with the number of the last.
#[kernel]
async fn backwards<C: Core>(core: &C, slots: Shared<u8>, headers: Shared<i32>, cells: Signals) -> Result<()> {
    let mut port = HostPort::open(core, slots, headers, cells).await?;
    loop {
        let mut held = Vec::new();
        while held.len() < 4 {
            match port.recv(core).await? {
                Received::Data(request) => held.push(request),
                _ => return port.stop(core).await,
            }
        }
        let last = held.last().map_or(0, |request| request.number());
        while let Some(request) = held.pop() {
            port.release(core, request).await?;
        }
        let reply = port.reserve(core, 1).await?;
        let number = ringwork_isa::Tile::new(vec![u8::try_from(last % 256).unwrap_or(0)]);
        core.store(reply.place(), &number).await?;
        port.send(core, reply).await?;
    }
}

fn native() -> Node {
    Node::builder().devices([0]).launch().unwrap()
}

fn both() -> [Node; 2] {
    let ring = Simulation::new(Topology::preset("ring-2").unwrap());
    let sim = Node::builder().devices([0]).platform(Platform::Sim(ring));
    [native(), sim.launch().unwrap()]
}

fn start(orch: &mut Orchestrator<'_>, port: &KernelPort<u8>) -> ringwork_runtime::Result<TaskId> {
    orch.submit(A, echo::task(port.slots(), port.headers(), port.cells()))
}

fn data(response: Response<u8>) -> Vec<u8> {
    match response {
        Response::Data(message) => message.read().unwrap(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn requests_come_back_in_order_and_a_full_queue_is_no_error() {
    for node in both() {
        let mut port = node.open_port::<u8>(A, 4, 3).unwrap();
        node.run(|orch| {
            start(orch, &port)?;
            // Nobody receives: 4 answers fill one queue, and the kernel holds the fifth request until there is room.
            for number in 0..8 {
                port.send(&[number, 1, 2])?;
            }
            assert!(!port.try_send(&[8])?);
            for number in 0..8 {
                assert_eq!(data(port.recv()?), [number, 1, 2]);
            }
            for number in 8..100 {
                port.send(&[number])?;
                assert_eq!(data(port.recv()?), [number]);
            }
            port.stop()?;
            assert!(matches!(port.recv()?, Response::Stop));
            assert!(matches!(port.recv()?, Response::Stop));
            assert!(port.send(&[1]).is_err());
            Ok(())
        })
        .unwrap();
    }
}

#[test]
fn errors_go_both_ways_with_what_they_say() {
    for node in both() {
        let mut port = node.open_port::<u8>(A, 2, 8).unwrap();
        node.run(|orch| {
            start(orch, &port)?;
            port.send(&[255, 9])?;
            assert!(matches!(port.recv()?, Response::Error(7, message) if message.read()? == [255, 9]));
            port.send_error(-3, b"why")?;
            assert!(matches!(port.recv()?, Response::Error(-3, message) if message.read()? == b"why"));
            assert!(matches!(
                port.send(&[0; 9]),
                Err(Error::Length {
                    have: 8,
                    asked: 9,
                    ..
                })
            ));
            port.stop()
        })
        .unwrap();
    }
}

#[test]
fn slots_given_back_in_any_order_are_free_in_order() {
    for node in both() {
        let mut port = node.open_port::<u8>(A, 4, 1).unwrap();
        node.run(|orch| {
            orch.submit(A, backwards::task(port.slots(), port.headers(), port.cells()))?;
            for round in 0..20u8 {
                for _ in 0..4 {
                    port.send(&[0])?;
                }
                assert_eq!(data(port.recv()?), [round * 4 + 3]);
            }
            port.stop()
        })
        .unwrap();
        // The same on the host's side: all four answers held, the oldest last to go.
        let mut port = node.open_port::<u8>(A, 4, 1).unwrap();
        node.run(|orch| {
            start(orch, &port)?;
            let mut held = Vec::new();
            for number in 0..4 {
                port.send(&[number])?;
                held.push(port.recv()?);
            }
            let oldest = held.remove(0);
            drop(held);
            assert_eq!(data(oldest), [0]);
            for number in 4..12 {
                port.send(&[number])?;
                assert_eq!(data(port.recv()?), [number]);
            }
            port.stop()
        })
        .unwrap();
    }
}

#[test]
fn a_chip_killed_while_the_host_waits_is_named_and_what_it_had_sent_can_be_read() {
    let node = native();
    let mut port = node.open_port::<u8>(A, 4, 1).unwrap();
    let pid = Pid::from_raw(node.pid(A).unwrap().cast_signed()).unwrap();
    let mut heard = None;
    let error = node.run(|orch| {
        start(orch, &port)?;
        port.send(&[1])?;
        port.send(&[2])?;
        assert_eq!(data(port.recv()?), [1]);
        assert_eq!(data(port.recv()?), [2]);
        kill_process(pid, Signal::KILL).unwrap();
        heard = Some(port.recv().unwrap_err());
        Ok(())
    });
    assert!(error.unwrap_err().to_string().contains("SIGKILL"));
    let heard = heard.unwrap();
    assert!(matches!(heard, Error::PortDead { device: A, .. }), "{heard}");
    assert!(heard.to_string().contains("SIGKILL"), "{heard}");
}

#[test]
fn a_kernel_that_fails_while_the_host_waits_ends_the_wait_and_is_the_error_of_the_run() {
    for node in both() {
        let mut port = node.open_port::<u8>(A, 4, 1).unwrap();
        let mut heard = None;
        let error = node.run(|orch| {
            start(orch, &port)?;
            port.send(&[5])?;
            port.send(&[254])?;
            // What was sent before the end is still there.
            assert_eq!(data(port.recv()?), [5]);
            heard = Some(port.recv().unwrap_err());
            Ok(())
        });
        assert!(error.unwrap_err().to_string().contains("it is 254"));
        assert!(matches!(heard, Some(Error::PortDead { .. })), "{heard:?}");
        assert!(matches!(port.send(&[1]), Err(Error::PortDead { .. })));
        drop(port);
        let mut port = node.open_port::<u8>(A, 4, 1).unwrap();
        node.run(|orch| {
            start(orch, &port)?;
            port.send(&[6])?;
            assert_eq!(data(port.recv()?), [6]);
            port.stop()
        })
        .unwrap();
    }
}

#[test]
fn a_host_that_drops_its_end_ends_the_kernel_with_the_reason() {
    for node in both() {
        let error = node.run(|orch| {
            let mut port = node.open_port::<u8>(A, 4, 1)?;
            start(orch, &port)?;
            port.send(&[1])?;
            assert_eq!(data(port.recv()?), [1]);
            Ok(())
        });
        let error = error.unwrap_err().to_string();
        assert!(
            error.contains("dropped its end") && error.contains("echo"),
            "{error}"
        );
    }
}

#[test]
fn who_waits_for_a_kernel_that_nobody_feeds_is_told() {
    let node = Node::builder()
        .devices([0])
        .wait_limit(Duration::from_millis(100));
    let node = node.launch().unwrap();
    let mut port = node.open_port::<u8>(A, 1, 1).unwrap();
    assert!(matches!(port.recv(), Err(Error::PortDead { .. })));
    let error = node.run(|orch| {
        start(orch, &port)?;
        // Silence is no end: the kernel waits on beyond its own limit, and so may the host.
        assert!(matches!(port.recv(), Err(Error::PortSilent { .. })));
        assert!(matches!(port.recv(), Err(Error::PortSilent { .. })));
        port.send(&[3])?;
        assert_eq!(data(port.recv()?), [3]);
        Ok(()) // without a stop: nobody will come any more, and the kernel's limit counts
    });
    assert!(error.unwrap_err().to_string().contains("echo"));
}

const B: Device = Device(1);
const C: Device = Device(2);

fn three(limit: Duration) -> Node {
    let node = Node::builder().devices([0, 1, 2]).wait_limit(limit);
    node.launch().unwrap()
}

fn signal(node: &Node, device: Device, signal: Signal) {
    let pid = Pid::from_raw(node.pid(device).unwrap().cast_signed()).unwrap();
    kill_process(pid, signal).unwrap();
}

fn start_on(
    orch: &mut Orchestrator<'_>,
    device: Device,
    port: &KernelPort<u8>,
) -> ringwork_runtime::Result<TaskId> {
    orch.submit(device, echo::task(port.slots(), port.headers(), port.cells()))
}

/// Longer than any test may take, so that a wait that lasts until its limit is found out.
const LONG: Duration = Duration::from_secs(60);

#[test]
fn a_chip_that_dies_is_named_at_once_while_the_host_waits_for_the_port_of_another() {
    let node = three(LONG);
    let begun = Instant::now();
    let mut port = node.open_port::<u8>(B, 4, 1).unwrap();
    let other = node.open_port::<u8>(A, 4, 1).unwrap();
    let mut heard = None;
    let error = node.run(|orch| {
        start_on(orch, A, &other)?;
        start_on(orch, B, &port)?;
        signal(&node, A, Signal::KILL);
        // Chip 1 is well, and has nothing to say.
        heard = Some(port.recv().unwrap_err().to_string());
        Ok(())
    });
    let error = error.unwrap_err().to_string();
    assert!(error.contains("chip 0") && error.contains("SIGKILL"), "{error}");
    let heard = heard.unwrap();
    assert!(heard.contains("chip 0") && heard.contains("SIGKILL"), "{heard}");
    assert!(begun.elapsed() < LONG / 2, "{:?}", begun.elapsed());
}

#[test]
fn a_submission_after_a_death_fails_at_once_although_kernels_wait_at_ports() {
    let node = three(LONG);
    let begun = Instant::now();
    let ports = [A, B, C].map(|device| node.open_port::<u8>(device, 4, 1).unwrap());
    let [mut a, b, c] = ports;
    let error = node.run(|orch| {
        start_on(orch, A, &a)?;
        start_on(orch, B, &b)?;
        signal(&node, A, Signal::KILL);
        assert!(a.recv().is_err());
        start_on(orch, C, &c).map(drop)
    });
    let error = error.unwrap_err().to_string();
    assert!(error.contains("chip 0") && error.contains("SIGKILL"), "{error}");
    assert!(begun.elapsed() < LONG / 2, "{:?}", begun.elapsed());
}

#[test]
fn a_stopped_chip_is_named_at_the_limit_by_the_host_that_waits_for_its_port() {
    let limit = Duration::from_secs(1);
    let node = three(limit);
    let ports = [A, B, C].map(|device| node.open_port::<u8>(device, 4, 1).unwrap());
    let [a, mut b, c] = ports;
    let mut begun = Instant::now();
    let error = node.run(|orch| {
        start_on(orch, A, &a)?;
        start_on(orch, B, &b)?;
        start_on(orch, C, &c)?;
        signal(&node, B, Signal::STOP);
        begun = Instant::now();
        b.recv().map(drop)
    });
    let (took, error) = (begun.elapsed(), error.unwrap_err().to_string());
    assert!(
        error.contains("port to chip 1") && error.contains("chip 1 is stopped"),
        "{error}"
    );
    assert!(!error.contains("chip 0") && !error.contains("chip 2"), "{error}");
    assert!(took >= limit && took < limit * 10, "{took:?}");
}

#[test]
fn a_wait_that_lasts_is_told_of_once_before_its_limit() {
    let heard: Arc<Mutex<Vec<String>>> = Arc::default();
    let listener = heard.clone();
    let node = Node::builder()
        .devices([0, 1])
        .wait_limit(Duration::from_secs(5))
        .on_long_wait(move |what| listener.lock().unwrap().push(what.to_owned()));
    let node = node.launch().unwrap();
    let mut port = node.open_port::<u8>(B, 4, 1).unwrap();
    let error = node.run(|orch| {
        start_on(orch, B, &port)?;
        signal(&node, B, Signal::STOP);
        port.recv().map(drop)
    });
    assert!(error.is_err());
    let heard = heard.lock().unwrap();
    assert_eq!(heard.len(), 1, "{heard:?}");
    assert!(
        heard[0].starts_with("node has waited 3 s: chip 1, kernel `echo`, in: "),
        "{heard:?}"
    );
    assert!(heard[0].contains("; chip 1 is stopped, "), "{heard:?}");
}

#[test]
fn an_orchestration_that_fails_ends_the_kernels_at_its_ports_and_is_the_error() {
    let node = three(LONG);
    let begun = Instant::now();
    let mut port = node.open_port::<u8>(A, 4, 1).unwrap();
    let error = node.run(|orch| {
        start(orch, &port)?;
        orch.domain(&ringwork_runtime::DomainSpec::new("no", [Device(9)]))
            .map(drop)
    });
    let error = error.unwrap_err().to_string();
    assert!(error.contains('9') && !error.contains("echo"), "{error}");
    assert!(begun.elapsed() < LONG / 2, "{:?}", begun.elapsed());
    // The port is as good as new.
    node.run(|orch| {
        start(orch, &port)?;
        port.send(&[6])?;
        assert_eq!(data(port.recv()?), [6]);
        port.stop()
    })
    .unwrap();
}
