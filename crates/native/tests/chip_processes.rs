//! Real chip processes: started, asked, broken in every way, and gone afterwards.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

extern crate ringwork_native as ringwork;

use ringwork_isa::*;
use ringwork_layout::CellRow;
use ringwork_macros::kernel;
use ringwork_native::cell::Patience;
use ringwork_native::segment::{Attached, Layout};
use ringwork_native::{
    ChipProcesses, Error as NativeError, Event, Failure, InitialSegment, Launch, Members, Program, Waiting,
};
use std::sync::Arc;
use std::time::{Duration, Instant};

#[kernel]
async fn meet<C: Core>(core: &C, barrier: Barrier) -> Result<()> {
    barrier.arrive_and_wait(core).await
}

#[kernel]
async fn refuse<C: Core>(_core: &C, words: u64) -> Result<()> {
    Err(Error::failed("no ".repeat(usize::try_from(words).unwrap_or(0))))
}

#[kernel]
async fn panic<C: Core>(_core: &C) -> Result<()> {
    panic!("the kernel lost its temper")
}

#[kernel]
async fn exit<C: Core>(_core: &C) -> Result<()> {
    std::process::exit(3)
}

#[kernel]
async fn abort<C: Core>(_core: &C) -> Result<()> {
    std::process::abort()
}

/// Overwrites the counters of this chip's own inbox, each with another value, as a process gone wild might. The mailbox is
/// the largest shared memory of a chip that has no segments.
#[kernel]
async fn garble_inbox<C: Core>(_core: &C) -> Result<()> {
    use std::io::{Seek, SeekFrom, Write};
    let maps = std::fs::read_to_string("/proc/self/maps").map_err(|_| Error::failed("no maps"))?;
    let largest = maps
        .lines()
        .filter(|line| line.contains("memfd:ringwork"))
        .filter_map(|line| {
            let (from, rest) = line.split_once('-')?;
            let from = u64::from_str_radix(from, 16).ok()?;
            let to = u64::from_str_radix(rest.split_once(' ')?.0, 16).ok()?;
            Some((to - from, from))
        })
        .max()
        .ok_or_else(|| Error::failed("no mailbox"))?;
    let mut memory = std::fs::OpenOptions::new()
        .write(true)
        .open("/proc/self/mem")
        .map_err(|_| Error::failed("no memory"))?;
    memory
        .seek(SeekFrom::Start(largest.1 + 4096))
        .and_then(|_| memory.write_all(&std::array::from_fn::<u8, 1024, _>(|at| at.to_le_bytes()[0])))
        .map_err(|error| Error::failed(error.to_string()))
}

fn barrier(layout: &Layout, me: u32) -> Arg {
    let row = CellRow { first: 0, count: 1 };
    Arg::Barrier(Barrier::new(layout.signals(Rank(me), row)))
}

fn launch(devices: u32, segments: Vec<InitialSegment>) -> ChipProcesses {
    let launch = Launch {
        devices: (0..devices).map(Device).collect(),
        program: Program::default(),
        segments,
        deadline: Duration::from_secs(30),
        record: true,
        waiting: Waiting {
            patience: Patience::for_sharing(devices as usize, 2),
            limit: Duration::from_secs(30),
        },
    };
    ChipProcesses::launch(launch, &mut |_, _, _| {}).unwrap()
}

fn next(processes: &mut ChipProcesses) -> Event {
    loop {
        if let Some(event) = processes.events().into_iter().next() {
            return event;
        }
        processes.wait(None);
    }
}

fn task(kernel: Task, args: Vec<Arg>) -> Task {
    Task { args, ..kernel }
}

#[test]
fn chips_come_up_meet_and_go() {
    let layout = Layout::windows(Segment(1), 2, 1, 100).unwrap();
    let windows = Arc::new(Attached::create("a test", layout).unwrap());
    let initial = InitialSegment {
        segment: windows,
        what: "window \"pair\"".into(),
        chips: vec![0, 1],
    };
    let mut processes = launch(2, vec![initial]);
    let pids: Vec<u32> = (0..2).map(|chip| processes.pid(chip).unwrap()).collect();
    for round in 0..100 {
        for chip in 0..2u32 {
            let kernel = meet::task(Meeting(layout, chip));
            assert!(processes.submit(chip as usize, round, &kernel).unwrap());
        }
        let mut done = 0;
        while done < 2 {
            processes.wait(None);
            for event in processes.events() {
                assert!(
                    matches!(event, Event::Ran { outcome: Ok(()), task, .. } if task == round),
                    "{event:?}"
                );
                done += 1;
            }
        }
    }
    processes.close();
    processes.close();
    for pid in pids {
        assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
    }
}

#[test]
fn a_domain_with_a_dead_member_keeps_its_alarm() {
    let windows = |segment| {
        let layout = Layout::windows(Segment(segment), 2, 1, 100).unwrap();
        Arc::new(Attached::create("a test", layout).unwrap())
    };
    let (pair, others) = (windows(1), windows(2));
    let mut processes = launch(3, vec![]);
    processes
        .map(&pair, "window \"pair\"", &Members::all([0, 1]))
        .unwrap();
    processes
        .map(&others, "window \"others\"", &Members::all([0, 2]))
        .unwrap();
    processes.submit(1, 1, &exit::task()).unwrap();
    assert!(matches!(next(&mut processes), Event::Ended { chip: 1, .. }));
    let alarm = pair.alarm().unwrap();
    assert_eq!(
        (alarm.dead, alarm.reason.as_str()),
        (Some(Rank(1)), "it exited with code 3")
    );
    assert!(!others.alarmed());
    processes.reset(&pair, &Members::all([0, 1]));
    assert!(pair.alarmed(), "its member is still dead");
    others.raise(&alarm);
    processes.reset(&others, &Members::all([0, 2]));
    assert!(!others.alarmed());
}

#[test]
fn a_chip_whose_mailbox_was_overwritten_ends_with_the_field_in_its_own_words() {
    let mut processes = launch(1, vec![]);
    processes.submit(0, 1, &garble_inbox::task()).unwrap();
    // The chip may have ended before the host hears that the kernel ran: both may come at once.
    let mut events = Vec::new();
    while events.len() < 2 {
        events.extend(processes.events());
        if events.len() < 2 {
            processes.wait(None);
        }
    }
    let [Event::Ran { outcome: Ok(()), .. }, Event::Ended { cause, .. }] = &events[..] else {
        panic!("{events:?}")
    };
    assert!(
        cause.contains("exited with code") && cause.contains("field `"),
        "{cause}"
    );
    let refused = processes.submit(0, 2, &exit::task()).unwrap_err().to_string();
    assert!(refused.contains("field `"), "{refused}");
}

struct Meeting(Layout, u32);
impl Argument<Barrier> for Meeting {
    fn to_arg(&self) -> Arg {
        barrier(&self.0, self.1)
    }
}

#[test]
fn five_ways_to_fail_are_five_messages() {
    let mut processes = launch(4, vec![]);
    processes.submit(0, 1, &refuse::task(1u64)).unwrap();
    match next(&mut processes) {
        Event::Ran {
            outcome: Err(Failure::Returned(error)),
            ..
        } => {
            assert!(
                error.to_string().contains("chip_processes.rs") && error.to_string().ends_with("no "),
                "{error}"
            );
        }
        other => panic!("{other:?}"),
    }
    processes.submit(0, 2, &panic::task()).unwrap();
    match next(&mut processes) {
        Event::Ran {
            outcome: Err(failure),
            ..
        } => {
            let text = failure.to_string();
            assert!(
                text.starts_with("the kernel panicked at ") && text.ends_with("lost its temper"),
                "{text}"
            );
        }
        other => panic!("{other:?}"),
    }
    processes.submit(1, 3, &exit::task()).unwrap();
    processes.submit(2, 4, &abort::task()).unwrap();
    let mut causes = Vec::new();
    while causes.len() < 2 {
        for event in processes.events() {
            let Event::Ended { chip, cause } = event else {
                panic!("{event:?}")
            };
            causes.push((chip, cause));
        }
        processes.wait(Some(Instant::now() + Duration::from_millis(10)));
    }
    causes.sort();
    assert_eq!(causes[0], (1, "it exited with code 3".to_owned()));
    assert_eq!(causes[1], (2, "it was killed by SIGABRT".to_owned()));
    let gone = processes.submit(1, 5, &exit::task()).unwrap_err();
    assert_eq!(gone.to_string(), "chip 1 is gone: it exited with code 3");
    // The others still serve.
    processes.submit(3, 6, &refuse::task(200_000u64)).unwrap();
    match next(&mut processes) {
        Event::Ran {
            outcome: Err(failure),
            ..
        } => assert!(failure.to_string().len() > 600_000),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_kernel_that_the_chip_does_not_know_is_an_error_that_says_so() {
    let mut processes = launch(1, vec![]);
    let mut unknown = exit::task();
    unknown.kernel.name = "nowhere::at_all".into();
    processes.submit(0, 1, &unknown).unwrap();
    let Event::Ran {
        outcome: Err(failure),
        ..
    } = next(&mut processes)
    else {
        panic!()
    };
    assert!(
        failure.to_string().contains("`nowhere::at_all` is not linked"),
        "{failure}"
    );
    let mut other = exit::task();
    other.kernel.signature += 1;
    processes.submit(0, 2, &other).unwrap();
    let Event::Ran {
        outcome: Err(failure),
        ..
    } = next(&mut processes)
    else {
        panic!()
    };
    assert!(failure.to_string().contains("rebuild both sides"), "{failure}");
    assert!(matches!(
        processes.submit(
            0,
            3,
            &task(
                exit::task(),
                vec![barrier(&Layout::private(Segment(9), 1).unwrap(), 0); 20_000]
            )
        ),
        Err(NativeError::Invalid(_))
    ));
}

#[test]
fn a_program_that_is_not_there_fails_at_start() {
    let launch = Launch {
        devices: vec![Device(0), Device(7)],
        program: Program {
            path: "/does/not/exist".into(),
            arguments: vec![],
        },
        segments: vec![],
        deadline: Duration::from_secs(30),
        record: true,
        waiting: Waiting {
            patience: Patience::for_sharing(1, 1),
            limit: Duration::from_secs(30),
        },
    };
    let error = ChipProcesses::launch(launch, &mut |_, _, _| {})
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("chip 0 bootstrap failed at \"start\": /does/not/exist"),
        "{error}"
    );
}

#[test]
fn a_program_that_is_no_chip_fails_at_bring_up() {
    let launch = Launch {
        devices: vec![Device(0)],
        program: Program {
            path: "/bin/true".into(),
            arguments: vec![],
        },
        segments: vec![],
        deadline: Duration::from_secs(30),
        record: true,
        waiting: Waiting {
            patience: Patience::for_sharing(1, 1),
            limit: Duration::from_secs(30),
        },
    };
    let error = ChipProcesses::launch(launch, &mut |_, _, _| {})
        .unwrap_err()
        .to_string();
    assert_eq!(
        error,
        "chip 0 bootstrap failed at \"start\": it exited with code 0"
    );
}
