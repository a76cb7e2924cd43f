//! Chips that fail, stop or die while they come up.

use super::*;

pub(super) fn kill_at_every_step(rng: &mut Rng) {
    let files = open_files();
    let steps = bring_up::steps();
    assert_eq!(steps.len(), 3 * 4, "{steps:?}");
    let (mut latencies, mut died_at) = (Latencies::default(), std::collections::BTreeMap::new());
    for (device, step) in steps.iter().cycle().take(10 * steps.len()) {
        match bring_up::kill_at(*device, step) {
            Ok((latency, died)) => {
                latencies.push(latency);
                *died_at.entry(died).or_insert(0) += 1;
            }
            // It was ready before the signal came: then the first use says so.
            Err(node) => {
                let reducers = Reducers::on(&node, &node.domain("tp").unwrap(), 100);
                let error = reducers.map(|reducers| reducers.reduce_forever(&node, rng));
                let error = error.unwrap_or_else(|error| error).to_string();
                let wanted = format!("{device} is gone: it was killed by SIGKILL");
                let kernel = format!("chip {device}, kernel `all_reduce`: it was killed by SIGKILL");
                assert!(error.contains(&wanted) || error.contains(&kernel), "{error}");
                *died_at.entry("ready".into()).or_insert(0) += 1;
            }
        }
        assert_clean(files);
    }
    println!("kill in bring-up to error: {latencies}; died at {died_at:?}");
}

/// This program as a chip, with less of something: `limits` is shell.
fn limited(limits: &str) -> Program {
    let program = std::env::current_exe().unwrap();
    Program {
        path: "/bin/sh".into(),
        arguments: vec!["-c".into(), format!("{limits}; exec {}", program.display())],
    }
}

pub(super) fn fails_by_itself(_: &mut Rng) {
    let files = open_files();
    // The first window does not fit the chip's address space, so that it never takes the second.
    let (big, small) = (
        DomainSpec::new("big", [Device(0)]),
        DomainSpec::new("small", [Device(0)]),
    );
    let builder = Node::builder().devices(0..3).program(limited("ulimit -v 131072"));
    let builder = builder
        .domain(big.window_bytes(256 << 20))
        .domain(small.window_bytes(1));
    let error = builder.launch().unwrap_err().to_string();
    let start = "chip 0 bootstrap failed at \"map window \"big\"\": mapping shared memory: ";
    assert!(error.starts_with(start), "{error}");
    assert_clean(files);
}

/// This program as a chip; but device 1 stops before it has begun.
fn second_one_stops() -> Program {
    limited("if [ $RINGWORK_CHIP = 1 ]; then kill -STOP $$; fi")
}

pub(super) fn stopped_in_bring_up(_: &mut Rng) {
    let builder = Node::builder().devices(0..2).program(second_one_stops());
    let error = builder
        .bring_up_limit(Duration::from_millis(300))
        .launch()
        .unwrap_err()
        .to_string();
    let wanted = "chip 1 bootstrap failed at \"start\": nothing heard for 300 ms; ";
    assert!(error.starts_with(wanted), "{error}");
}

pub(super) fn says_nothing(_: &mut Rng) {
    let files = open_files();
    let silent = Program {
        path: "/bin/sleep".into(),
        arguments: vec!["60".into()],
    };
    let builder = Node::builder().devices(0..2).program(silent);
    let error = builder.launch().unwrap_err().to_string();
    let wanted =
        "chip 0 bootstrap failed at \"start\": it said nothing for 5 s; is `/bin/sleep` a program with ";
    assert!(error.starts_with(wanted), "{error}");
    assert_clean(files);
}

pub(super) fn dies_while_others_start(_: &mut Rng) {
    let kill = |chip: Device, pid: u32, step: &str| {
        if (chip, step) == (Device(0), "report") {
            Process::open(pid).unwrap().signal(Signal::KILL);
        }
    };
    let builder = Node::builder()
        .devices(0..2)
        .program(second_one_stops())
        .on_step(kill);
    let error = builder.launch().unwrap_err().to_string();
    assert_eq!(
        error,
        "chip 0 bootstrap failed at \"report\": it was killed by SIGKILL"
    );
}

pub(super) fn out_of_descriptors(_: &mut Rng) {
    let (files, limit) = (open_files(), getrlimit(Resource::Nofile));
    let mut refused = 0;
    loop {
        let current = Some(files as u64 + refused);
        setrlimit(Resource::Nofile, Rlimit { current, ..limit }).unwrap();
        let outcome = Node::builder()
            .devices(0..3)
            .domain(spec(&[Device(0)], 10))
            .launch();
        setrlimit(Resource::Nofile, limit).unwrap();
        let launched = outcome.map(drop);
        assert_clean(files);
        match launched {
            Ok(()) => break,
            Err(error) => assert!(error.to_string().contains("open files"), "{error}"),
        }
        refused += 1;
    }
    assert!(
        refused > 3,
        "{refused} more descriptors than before were enough for 3 chips"
    );
}
