//! What can still be used after an error or a death.

use super::*;

pub(super) fn usable_after_an_error(rng: &mut Rng) {
    let devices = [0, 1, 2].map(Device);
    let builder = Node::builder().devices(0..3).domain(spec(&devices, 3000));
    let node = builder.launch().unwrap();
    let tp = node.domain("tp").unwrap();
    let (meet, reducers) = (
        tp.barrier("meet").unwrap(),
        Reducers::on(&node, &tp, 3000).unwrap(),
    );
    for bad in [0, 2, 1u32].repeat(10) {
        // All-reduces are queued behind the kernel that fails: they must neither hide it nor be harmed by it.
        let behind = ringwork_collectives::all_reduce::BY_TEAM
            [rng.below(ringwork_collectives::all_reduce::BY_TEAM.len())];
        let error = node.run(|orch| {
            orch.group(devices, |_| Ok(refuse_on::task(&meet, bad)))?;
            (0..3).try_for_each(|_| reducers.submit(orch, behind))
        });
        let text = error.unwrap_err().to_string();
        let wanted = format!("node, chip {bad}, kernel `refuse_on`: ");
        assert!(text.starts_with(&wanted), "{text}");
        for algorithm in ringwork_collectives::all_reduce::BY_TEAM {
            reducers.reduce(&node, algorithm, 3).unwrap();
            assert!(reducers.verified().unwrap());
        }
    }
}

pub(super) fn usable_after_a_death(_: &mut Rng) {
    let node = node(3);
    let row = DomainSpec::new("all", node.devices()).signals("row", 1);
    let all = node.open_domain(&row).unwrap();
    let signals = all.signals("row").unwrap();
    let victim = process(&node, Device(1));
    let error = node
        .run(|orch| {
            orch.group(node.devices(), |_| Ok(wait_forever::task(&signals)))?;
            victim.signal(Signal::KILL);
            Ok(())
        })
        .unwrap_err();
    let text = error.to_string();
    assert!(
        text.starts_with("node, chip 1, kernel `wait_forever`: it was killed by SIGKILL; "),
        "{text}"
    );
    // What the dead one was a member of is lost, and says so at once.
    let again = node
        .run(|orch| orch.group(node.devices(), |_| Ok(wait_forever::task(&signals))))
        .unwrap_err();
    assert!(
        again
            .to_string()
            .starts_with("device 1 is gone: it was killed by SIGKILL"),
        "{again}"
    );
    let part = node
        .run(|orch| orch.submit(Device(0), wait_forever::task(&signals)))
        .unwrap_err();
    assert!(
        part.to_string()
            .starts_with("device 1 is gone: it was killed by SIGKILL"),
        "{part}"
    );
    let lost = node.open_domain(&row).unwrap_err();
    assert!(
        lost.to_string()
            .starts_with("device 1 is gone: it was killed by SIGKILL"),
        "{lost}"
    );
    // The others are as good as new.
    let reducers = Reducers::open(&node, &[2, 0].map(Device), 100).unwrap();
    reducers.reduce(&node, Algorithm::StagedRing, 5).unwrap();
    assert!(reducers.verified().unwrap());
}

pub(super) fn died_after_its_part(_: &mut Rng) {
    let node = node(3);
    let spec = DomainSpec::new("all", node.devices()).signals("row", 1);
    let signals = node.open_domain(&spec).unwrap().signals("row").unwrap();
    let group = |orch: &mut Orchestrator<'_>| {
        orch.group(node.devices(), |_| Ok(die_afterwards_or_wait::task(&signals)))
    };
    let error = node.run(group).unwrap_err();
    let Error::Task(failure) = &error else {
        panic!("{error:?}")
    };
    let place = (failure.device, failure.kernel.as_str());
    assert_eq!(place, (Device(0), "die_afterwards_or_wait"), "{error}");
    assert!(
        matches!(&failure.cause, Cause::Ended { how, .. } if how == "it was killed by SIGABRT"),
        "{error}"
    );
}

/// 2,000 with RINGWORK_LONG=1.
pub(super) fn many_domains(_: &mut Rng) {
    let node = node(2);
    let mut open = usize::MAX;
    for round in 0..if long() { 2000 } else { 200 } {
        let reducers = Reducers::open(&node, &node.devices(), 100).unwrap();
        reducers.reduce(&node, Algorithm::TwoPhase, 1).unwrap();
        assert!(reducers.verified().unwrap());
        drop(reducers);
        if round == 10 {
            open = open_files();
        }
        // Chips release their part when they take their next mail, so a few may still be open.
        assert!(
            open_files() <= open.saturating_add(8),
            "round {round}: {open} at first"
        );
    }
}
