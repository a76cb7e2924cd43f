//! Chips that stop, loop or lose their host in the midst of a run.

use super::*;

pub(super) fn many_domains(_: &mut Rng) {
    let mut builder = Node::builder().devices(0..2);
    for i in 0..600 {
        builder =
            builder.domain(DomainSpec::new(format!("domain {i}"), [Device(0), Device(1)]).barrier("meet"));
    }
    let node = builder.launch().unwrap();
    assert_eq!(node.contexts()[1].domains.len(), 600);
    for name in ["domain 0", "domain 599"] {
        let meet = node.domain(name).unwrap().barrier("meet").unwrap();
        node.run(|orch| orch.group(node.devices(), |_| Ok(refuse_on::task(&meet, 9u32))))
            .unwrap();
    }
}

pub(super) fn parent_killed(rng: &mut Rng) {
    let (mut running, mut starting) = (Latencies::default(), Latencies::default());
    for _ in 0..10 {
        let (children, time) = roles::kill_parent("run", 4, Moment::Lines(1));
        assert_eq!(children, 4);
        running.push(time);
    }
    for lines in 1..=12 {
        let (children, time) = roles::kill_parent("bring-up", 4, Moment::Lines(lines));
        assert_eq!(children, 4);
        starting.push(time);
    }
    for _ in 0..20 {
        // Any moment: before, between and after the chips are started.
        let moment = Moment::After(Duration::from_micros(rng.below(30_000) as u64));
        starting.push(roles::kill_parent("bring-up", 4, moment).1);
    }
    println!("parent's death to last child's: running {running}; starting {starting}");
}

pub(super) fn stopped_in_a_run(rng: &mut Rng) {
    let limit = Duration::from_millis(400);
    for stopped in [0, 1, 2, 3].map(Device) {
        let builder = Node::builder().devices(0..4).wait_limit(limit);
        let node = builder.launch().unwrap();
        let reducers = Reducers::open(&node, &node.devices(), 2000).unwrap();
        let victim = process(&node, stopped);
        // Two are stopped before their part, so that everybody waits for them; two at a random moment.
        let before = stopped.0 < 2;
        let moment = Duration::from_micros(rng.below(2000) as u64);
        let (stopped_at, error) = std::thread::scope(|scope| {
            let stopper = scope.spawn(|| {
                std::thread::sleep(if before { Duration::ZERO } else { moment });
                victim.signal(Signal::STOP);
                Instant::now()
            });
            while before && !is_stopped(victim.pid) {
                std::thread::yield_now();
            }
            let error = reducers.reduce_forever(&node, rng);
            (stopper.join().unwrap(), error)
        });
        println!("stop to error, limit {limit:?}: {:?}", stopped_at.elapsed());
        let Error::Task(failure) = &error else {
            panic!("{error:?}")
        };
        match &failure.cause {
            Cause::Kernel(Failure::Returned(returned)) => {
                let ErrorKind::Deadline { waited, .. } = returned.kind() else {
                    panic!("{error:?}")
                };
                assert_ne!(failure.device, stopped, "{error}");
                assert!(waited.needed > waited.value, "{error}");
                assert!(waited.site.file.ends_with(".rs"), "{error}");
                let [(missing, doing)] = &failure.missing[..] else {
                    panic!("{error}")
                };
                assert_eq!(*missing, stopped, "{error}");
                assert!(doing == "idle" || doing.contains(".rs:"), "{error}");
            }
            // Everybody else had what they needed from it.
            Cause::Stuck { last_seen, .. } if !before => {
                assert_eq!(failure.device, stopped, "{error}");
                assert!(last_seen.contains(".rs:"), "{error}");
            }
            _ => panic!("{error:?}"),
        }
        // It was ended; the others go on.
        let others: Vec<Device> = node
            .devices()
            .into_iter()
            .filter(|chip| *chip != stopped)
            .collect();
        let reducers = Reducers::open(&node, &others, 10).unwrap();
        reducers.reduce(&node, Algorithm::TwoPhase, 1).unwrap();
        assert!(reducers.verified().unwrap());
    }
}

pub(super) fn looping(_: &mut Rng) {
    let node = Node::builder()
        .devices(0..2)
        .wait_limit(Duration::from_millis(100))
        .launch()
        .unwrap();
    let x = node.tensor(Device(0), &[1f32; 4]).unwrap();
    let error = node
        .run(|orch| {
            orch.submit(Device(1), loop_forever::task())?;
            orch.submit(Device(0), nothing::task(&x))
        })
        .unwrap_err();
    let Error::Task(failure) = &error else {
        panic!("{error:?}")
    };
    assert_eq!(
        (failure.device, failure.kernel.as_str()),
        (Device(1), "loop_forever")
    );
    assert!(matches!(&failure.cause, Cause::Stuck { .. }), "{error}");
    node.run(|orch| orch.submit(Device(0), nothing::task(&x)))
        .unwrap();
}

pub(super) fn takes_no_mail(_: &mut Rng) {
    let limit = Duration::from_millis(100);
    let launch = || Node::builder().devices(0..2).wait_limit(limit).launch().unwrap();
    // Its mailbox fills with tasks.
    let node = launch();
    let x = node.tensor(Device(1), &[1f32; 4]).unwrap();
    process(&node, Device(1)).signal(Signal::STOP);
    let flood = |orch: &mut Orchestrator<'_>| {
        (0..10_000).try_for_each(|_| orch.submit(Device(1), nothing::task(&x)).map(drop))
    };
    let error = node.run(flood).unwrap_err();
    let Error::Task(failure) = &error else {
        panic!("{error:?}")
    };
    assert!(matches!(&failure.cause, Cause::Stuck { .. }), "{error}");
    assert_eq!((failure.device, failure.kernel.as_str()), (Device(1), "nothing"));
    // Its channel fills with memory.
    let node = launch();
    process(&node, Device(1)).signal(Signal::STOP);
    let mut tensors = Vec::new();
    let error = loop {
        match node.tensor(Device(1), &[1f32; 4]) {
            Ok(tensor) => tensors.push(tensor),
            Err(error) => break error,
        }
        assert!(tensors.len() < 10_000);
    };
    let text = error.to_string();
    assert!(
        text.starts_with("device 1 is gone: it did not read its mailbox for "),
        "{text}"
    );
    drop(tensors);
    // The other chip is as well as ever.
    let x = node.tensor(Device(0), &[1f32; 4]).unwrap();
    node.run(|orch| orch.submit(Device(0), nothing::task(&x)))
        .unwrap();
}
