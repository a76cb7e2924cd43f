//! Real processes really killed, stopped and starved: what `docs/reliability.md` promises.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test that prints what it measured"
)]
extern crate ringwork_native as ringwork;

mod support;

use ringwork_collectives::Algorithm;
use ringwork_isa::{Barrier, Compare, Core, Error as KernelError, ErrorKind, In, Result, Signals};
use ringwork_macros::kernel;
use ringwork_runtime::{Cause, Device, DomainSpec, Error, Failure, Node, Orchestrator, Program};
use rustix::fs::inotify::{self, WatchFlags};
use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use support::bring_up;
use support::harness::{self, Test};
use support::latencies::Latencies;
use support::process::{Process, children, cpu_ticks, is_stopped, open_files};
use support::rng::Rng;
use support::roles::{self, Moment};
use support::storm::{Victims, assert_clean};
use support::team::{Reducers, spec};

fn main() -> ExitCode {
    roles::play().unwrap_or_else(|| harness::main(TESTS))
}

const TESTS: &[Test] = &[
    ("every_survivor_of_300_random_kills_names_the_dead", storm),
    (
        "a_kill_at_any_step_of_bring_up_fails_the_launch_and_leaves_nothing",
        kill_at_every_step,
    ),
    ("a_chip_that_fails_in_bring_up_speaks_for_itself", fails_by_itself),
    (
        "a_chip_that_stops_in_bring_up_is_named_at_the_limit",
        stopped_in_bring_up,
    ),
    (
        "a_chip_that_dies_when_it_is_ready_fails_a_launch_that_waits_for_others",
        dies_while_others_start,
    ),
    (
        "descriptors_that_run_out_anywhere_in_bring_up_leave_nothing",
        out_of_descriptors,
    ),
    ("more_domains_than_a_socket_holds_are_handed_over", many_domains),
    ("no_child_survives_its_parent", parent_killed),
    (
        "a_stopped_chip_is_named_with_its_line_and_the_signal_that_is_missing",
        stopped_in_a_run,
    ),
    ("a_chip_that_loops_is_ended_after_the_limit", looping),
    ("a_chip_that_takes_no_mail_cannot_hold_up_its_host", takes_no_mail),
    ("a_kernel_error_leaves_the_domain_usable", usable_after_an_error),
    (
        "the_death_of_a_chip_leaves_the_others_usable",
        usable_after_a_death,
    ),
    (
        "a_partner_that_died_after_its_part_is_the_one_that_is_named",
        died_after_its_part,
    ),
    ("close_ends_once_and_for_all_whenever_it_is_called", closing),
    ("closing_frees_memory_that_handles_still_name", close_frees),
    (
        "nothing_is_ever_written_to_dev_shm_or_the_temp_directory",
        watched_directories,
    ),
    (
        "a_window_larger_than_memory_is_refused_before_any_chip_starts",
        too_large,
    ),
    ("idle_chips_use_no_processor_time", idle),
];

/// Says no on one rank; the others meet.
#[kernel]
async fn refuse_on<C: Core>(core: &C, meet: Barrier, bad: u32) -> Result<()> {
    if meet.rank().0 == bad {
        return Err(KernelError::failed("this rank has had enough"));
    }
    meet.arrive_and_wait(core).await
}

/// Never ends and issues no instruction.
#[kernel]
async fn loop_forever<C: Core>(_core: &C) -> Result<()> {
    loop {
        std::hint::spin_loop();
    }
}

/// Waits for what never comes.
#[kernel]
async fn wait_forever<C: Core>(core: &C, row: Signals) -> Result<()> {
    core.wait(row.at(0)?, Compare::Ge, 1).await.map(drop)
}

/// Rank 0 ends well and dies a little later; the others wait for what never comes.
#[kernel]
async fn die_afterwards_or_wait<C: Core>(core: &C, row: Signals) -> Result<()> {
    if row.rank().0 == 0 {
        std::thread::spawn(|| {
            std::thread::sleep(Duration::from_millis(20)); // whether before or after: the same is expected
            std::process::abort()
        });
        return Ok(());
    }
    core.wait(row.at(0)?, Compare::Ge, 1).await.map(drop)
}

/// Does nothing, with something to carry.
#[kernel]
async fn nothing<C: Core>(_core: &C, _x: In<f32>) -> Result<()> {
    Ok(())
}

fn node(chips: u32) -> Node {
    Node::builder().devices(0..chips).launch().unwrap()
}

fn process(node: &Node, device: Device) -> Process {
    Process::open(node.pid(device).unwrap()).unwrap()
}

fn storm(rng: &mut Rng) {
    let (files, mut latencies) = (open_files(), Latencies::default());
    while latencies.len() < 300 {
        let chips = 2 + rng.below(7);
        let mut victims = Victims::launch(chips + rng.below(4));
        while victims.alive() >= chips {
            if let Some(latency) = victims.kill_one(chips, rng) {
                latencies.push(latency);
            }
        }
        drop(victims);
        assert_clean(files);
    }
    println!("kill to knowledge: {latencies}");
}

fn kill_at_every_step(rng: &mut Rng) {
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

fn fails_by_itself(_: &mut Rng) {
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

fn stopped_in_bring_up(_: &mut Rng) {
    let builder = Node::builder().devices(0..2).program(second_one_stops());
    let error = builder
        .bring_up_limit(Duration::from_millis(300))
        .launch()
        .unwrap_err()
        .to_string();
    let wanted = "chip 1 bootstrap failed at \"start\": nothing heard for 300 ms; ";
    assert!(error.starts_with(wanted), "{error}");
}

fn dies_while_others_start(_: &mut Rng) {
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

fn out_of_descriptors(_: &mut Rng) {
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

fn many_domains(_: &mut Rng) {
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

fn parent_killed(rng: &mut Rng) {
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

fn stopped_in_a_run(rng: &mut Rng) {
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

fn looping(_: &mut Rng) {
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

fn takes_no_mail(_: &mut Rng) {
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
        text.starts_with("device 1 is gone: it took nothing from its host for "),
        "{text}"
    );
    drop(tensors);
    // The other chip is as well as ever.
    let x = node.tensor(Device(0), &[1f32; 4]).unwrap();
    node.run(|orch| orch.submit(Device(0), nothing::task(&x)))
        .unwrap();
}

fn usable_after_an_error(rng: &mut Rng) {
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
        let behind = Algorithm::ALL[rng.below(Algorithm::ALL.len())];
        let error = node.run(|orch| {
            orch.group(devices, |_| Ok(refuse_on::task(&meet, bad)))?;
            (0..3).try_for_each(|_| reducers.submit(orch, behind))
        });
        let text = error.unwrap_err().to_string();
        let wanted = format!("node, chip {bad}, kernel `refuse_on`: ");
        assert!(text.starts_with(&wanted), "{text}");
        for algorithm in Algorithm::ALL {
            reducers.reduce(&node, algorithm, 3).unwrap();
            assert!(reducers.verified().unwrap());
        }
    }
}

fn usable_after_a_death(_: &mut Rng) {
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
    reducers.reduce(&node, Algorithm::Ring, 5).unwrap();
    assert!(reducers.verified().unwrap());
}

fn died_after_its_part(_: &mut Rng) {
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

fn closing(_: &mut Rng) {
    // Twice.
    let twice = node(2);
    let pid = twice.pid(Device(0)).unwrap();
    twice.close();
    twice.close();
    assert!(Process::open(pid).is_none());
    drop(twice);
    // After a failure, and by being dropped in the middle of one.
    for close in [true, false] {
        let node = node(3);
        let signals = DomainSpec::new("all", node.devices()).signals("row", 1);
        let row = node.open_domain(&signals).unwrap().signals("row").unwrap();
        let victim = process(&node, Device(2));
        let failed = node.run(|orch| {
            orch.group(node.devices(), |_| Ok(wait_forever::task(&row)))?;
            victim.signal(Signal::KILL);
            if close { orch.wait() } else { Err(Error::Closed) }
        });
        assert!(failed.is_err());
        if close {
            node.close();
            assert_eq!(children(), [0; 0]);
        }
    }
    // With a stopped chip that cannot be asked.
    let stopped = node(2);
    process(&stopped, Device(1)).signal(Signal::STOP);
    stopped.close();
    assert_eq!(children(), [0; 0]);
    drop(stopped);
    // By another thread, during a run that would take a minute.
    let busy = node(2);
    let signals = DomainSpec::new("all", busy.devices()).signals("row", 1);
    let row = busy.open_domain(&signals).unwrap().signals("row").unwrap();
    let error = std::thread::scope(|scope| {
        let (submitted, all_submitted) = std::sync::mpsc::channel();
        let (busy, row) = (&busy, &row);
        let run = scope.spawn(move || {
            busy.run(|orch| {
                orch.group(busy.devices(), |_| Ok(wait_forever::task(row)))?;
                submitted.send(()).unwrap();
                Ok(())
            })
        });
        all_submitted.recv().unwrap();
        let start = Instant::now();
        busy.close();
        println!("close during a run: {:?}", start.elapsed());
        run.join().unwrap().unwrap_err()
    });
    assert!(matches!(error, Error::Interrupted), "{error}");
    assert_eq!(children(), [0; 0]);
}

fn close_frees(_: &mut Rng) {
    let node = node(1);
    let tensor = node.zeros::<u8>(Device(0), 8 << 20).unwrap();
    assert!(largest_shared_bytes() >= 8 << 20);
    node.close();
    assert!(
        largest_shared_bytes() < 8 << 20,
        "a closed node still holds memory"
    );
    assert!(matches!(tensor.read(), Err(Error::Closed)));
}

/// The largest piece of shared memory that this process has mapped.
fn largest_shared_bytes() -> u64 {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let ours = maps.lines().filter(|line| line.contains("/memfd:ringwork"));
    let bytes = ours.map(|line| {
        let (start, end) = line.split_once(' ').unwrap().0.split_once('-').unwrap();
        u64::from_str_radix(end, 16).unwrap() - u64::from_str_radix(start, 16).unwrap()
    });
    bytes.max().unwrap_or(0)
}

fn watched_directories(_: &mut Rng) {
    // A temp directory of its own, since others use the common one; nobody else can be kept from /dev/shm,
    // so a file there counts only if one is there every time.
    let temp = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(std::process::id().to_string());
    std::fs::create_dir(&temp).unwrap();
    let watch = inotify::init(inotify::CreateFlags::NONBLOCK | inotify::CreateFlags::CLOEXEC).unwrap();
    let what = WatchFlags::CREATE | WatchFlags::MODIFY | WatchFlags::ATTRIB | WatchFlags::MOVED_TO;
    let ours = inotify::add_watch(&watch, &temp, what).unwrap();
    inotify::add_watch(&watch, "/dev/shm", what).unwrap();
    let events = |space: &mut [std::mem::MaybeUninit<u8>]| {
        let mut reader = inotify::Reader::new(&watch, space);
        let mut seen = Vec::new();
        while let Ok(event) = reader.next() {
            assert_ne!(event.wd(), ours, "{event:?} in the temp directory");
            seen.push(format!("{event:?}"));
        }
        seen
    };
    let mut space = [std::mem::MaybeUninit::uninit(); 4096];
    let mut session = || {
        let played = roles::start("session", 4).env("TMPDIR", &temp).status().unwrap();
        assert!(played.success());
        events(&mut space)
    };
    let mut seen = session();
    for _ in 0..4 {
        seen = if seen.is_empty() { seen } else { session() };
    }
    // The watch works: it sees this.
    let file = temp.join("a file");
    std::fs::write(&file, "x").unwrap();
    assert!(
        inotify::Reader::new(&watch, &mut [std::mem::MaybeUninit::uninit(); 4096])
            .next()
            .is_ok()
    );
    std::fs::remove_dir_all(&temp).unwrap();
    assert!(seen.is_empty(), "{seen:?} in /dev/shm");
}

fn too_large(_: &mut Rng) {
    let never = Program {
        path: "/does/not/exist".into(),
        arguments: vec![],
    };
    let big = DomainSpec::new("big", (0..64).map(Device)).window_bytes((16 << 30) - 4096);
    let error = Node::builder()
        .devices(0..64)
        .program(never)
        .domain(big)
        .launch()
        .unwrap_err()
        .to_string();
    let numbers = error.strip_prefix("window \"big\" needs ").expect(&error);
    let (need, have) = numbers.split_once(" bytes of memory and ").expect(&error);
    assert!(
        need.parse::<u64>().unwrap() >= 64 * ((16 << 30) - 4096),
        "{error}"
    );
    let (have, rest) = have.split_once(' ').unwrap();
    assert!(
        have.parse::<u64>().unwrap() > 0 && rest.starts_with("are free"),
        "{error}"
    );
}

fn idle(_: &mut Rng) {
    let node = node(8);
    let reducers = Reducers::open(&node, &node.devices(), 1000).unwrap();
    reducers.reduce(&node, Algorithm::TwoPhase, 10).unwrap();
    let chips: Vec<Process> = node.devices().iter().map(|chip| process(&node, *chip)).collect();
    let ticks = || chips.iter().map(|chip| cpu_ticks(chip.pid)).collect::<Vec<_>>();
    let before = ticks();
    // Time must pass for processor time to be used in it: a second in which no chip may end either.
    assert!(!chips[0].ended(Duration::from_secs(1)));
    for (chip, (before, after)) in before.into_iter().zip(ticks()).enumerate() {
        assert!(
            after - before <= 1,
            "chip {chip} used {} ticks while idle",
            after - before
        );
    }
}
