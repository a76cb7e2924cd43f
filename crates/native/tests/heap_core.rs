//! `NativeCore` with one thread per rank: the conformance suite, and what only `native` has: deadlines,
//! alarms that come while somebody waits.
//!
//! On heap memory, which Miri can run, and on sealed memory, which is what ships.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use ringwork_conformance::{DATA_BYTES, Machine, SIGNALS, Seat};
use ringwork_isa::{Compare, Core, Device, Error, ErrorKind, Notify, Rank, Result, Segment};
use ringwork_native::cell::Patience;
use ringwork_native::segment::{Alarm, Attached, Layout};
use ringwork_native::{NativeCore, Waiting};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The windows of a domain, and a thread for each rank.
struct Threads(Arc<Attached>);

impl Threads {
    fn over(ranks: u32, make: impl FnOnce(Layout) -> ringwork_native::Result<Attached>) -> Threads {
        let layout = Layout::windows(Segment(3), ranks, SIGNALS, DATA_BYTES).unwrap();
        Threads(Arc::new(make(layout).unwrap()))
    }

    fn seat(&self, rank: u32) -> Seat {
        Seat {
            me: Rank(rank),
            layout: self.0.layout(),
        }
    }

    fn core(&self, rank: u32, limit: Duration) -> NativeCore {
        let patience = Patience {
            spin: Duration::ZERO,
            yields: 1,
        };
        let mut core = NativeCore::new(Device(rank), Waiting { patience, limit });
        core.attach(self.0.clone());
        core
    }

    fn run<K>(&self, kernel: K) -> Vec<Result<()>>
    where
        K: AsyncFn(&NativeCore, Seat) -> Result<()> + Sync,
    {
        let one = |rank| {
            let (core, seat) = (self.core(rank, Duration::from_secs(60)), self.seat(rank));
            core.run(kernel(&core, seat))
        };
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..self.0.layout().ranks)
                .map(|rank| scope.spawn(move || one(rank)))
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    }
}

macro_rules! machine {
    ($name:ident, $make:expr) => {
        struct $name(Threads);

        impl Machine for $name {
            type Core = NativeCore;

            fn new(ranks: u32) -> Self {
                $name(Threads::over(ranks, $make))
            }
            fn layout(&self) -> Layout {
                self.0.0.layout()
            }
            fn run<K>(&self, kernel: K) -> Vec<Result<()>>
            where
                K: AsyncFn(&NativeCore, Seat) -> Result<()> + Clone + Send + Sync + 'static,
            {
                self.0.run(kernel)
            }
            fn alarm(&self, dead: Option<Rank>, reason: &str) {
                let reason = reason.into();
                self.0.0.raise(&Alarm { dead, reason });
            }
        }
    };
}

mod heap {
    use super::*;
    machine!(OnHeap, Attached::on_heap);
    ringwork_conformance::suite!(OnHeap);
}

#[cfg(not(miri))]
mod sealed {
    use super::*;
    machine!(InSealedMemory, |layout| Attached::create("a test", layout));
    ringwork_conformance::suite!(InSealedMemory);
}

const NEVER: Duration = Duration::from_secs(60);

/// Rank 0 of two waits for a signal that never comes, with this limit; `meanwhile` happens on another
/// thread.
fn wait_for_rank_1(limit: Duration, meanwhile: impl FnOnce(&Attached) + Send) -> (Error, u32, Duration) {
    let threads = Threads::over(2, Attached::on_heap);
    let (core, seat) = (threads.core(0, limit), threads.seat(0));
    std::thread::scope(|scope| {
        scope.spawn(|| meanwhile(&threads.0));
        let signal = seat.signal(1).on(Rank(1)).unwrap();
        let (start, line) = (Instant::now(), line!() + 1);
        let kernel = async { core.wait(signal, Compare::Ge, 7).await };
        (core.run(kernel).unwrap_err(), line, start.elapsed())
    })
}

fn waited(line: u32) -> String {
    let file = file!();
    format!("rank 0 waited at {file}:{line} for signal 1 of rank 1 to be >= 7, it is 0")
}

#[test]
fn a_deadline_ends_a_wait_and_says_what_was_missing() {
    let limit = Duration::from_millis(20);
    let (error, line, after) = wait_for_rank_1(limit, |_| {});
    assert_eq!(
        error.to_string(),
        format!("nothing came in 20 ms; {}", waited(line))
    );
    assert!(after >= limit, "{after:?}");
}

#[test]
fn a_death_wakes_whoever_waits_and_names_the_dead() {
    let (error, line, after) = wait_for_rank_1(NEVER, |segment| {
        let dead = Some(Rank(1));
        std::thread::sleep(Duration::from_millis(5));
        segment.raise(&Alarm {
            dead,
            reason: "killed by SIGKILL".into(),
        });
    });
    assert_eq!(
        error.to_string(),
        format!("rank 1 died (killed by SIGKILL); {}", waited(line))
    );
    assert!(after < NEVER);
}

#[test]
fn an_abort_wakes_whoever_waits_and_says_why() {
    let (error, line, after) = wait_for_rank_1(NEVER, |segment| {
        segment.raise(&Alarm {
            dead: None,
            reason: "rank 1: expert 9 does not exist".into(),
        });
    });
    assert_eq!(
        error.to_string(),
        format!(
            "aborted because rank 1: expert 9 does not exist; {}",
            waited(line)
        )
    );
    assert!(after < NEVER);
}

#[test]
fn a_limit_too_long_for_the_clock_is_no_limit() {
    let threads = Threads::over(1, Attached::on_heap);
    let (core, seat) = (threads.core(0, Duration::MAX), threads.seat(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let other = threads.core(0, NEVER);
            other
                .run(async { other.notify(seat.signal(0), Notify::Add(1)).await })
                .unwrap();
        });
        core.run(async { core.wait(seat.signal(0), Compare::Ge, 1).await })
            .unwrap();
    });
}

#[test]
fn a_segment_that_was_detached_is_not_mapped() {
    let threads = Threads::over(1, Attached::on_heap);
    let (mut core, seat) = (threads.core(0, NEVER), threads.seat(0));
    let load = async |core: &NativeCore| core.load(seat.buffer::<u8>(0, 1)).await.map(drop);
    assert_eq!(core.run(load(&core)), Ok(()));
    assert!(core.detach(Segment(3)) && !core.detach(Segment(3)));
    assert!(matches!(
        core.run(load(&core)).unwrap_err().kind(),
        ErrorKind::NotMapped {
            segment: Segment(3),
            ..
        }
    ));
}

#[test]
fn a_kernel_that_awaits_something_else_is_an_error_not_a_hang() {
    let threads = Threads::over(1, Attached::on_heap);
    let core = threads.core(0, NEVER);
    let error = core.run(std::future::pending()).unwrap_err();
    assert!(
        error
            .to_string()
            .ends_with("something that is not an instruction of its core"),
        "{error}"
    );
}

#[test]
fn a_signal_that_would_go_down_is_refused_at_its_line_and_keeps_its_value() {
    let threads = Threads::over(1, Attached::on_heap);
    let results = threads.run(async |core: &NativeCore, seat: Seat| {
        let signal = seat.signal(2);
        core.notify(signal, Notify::Set(5)).await?;
        for down in [Notify::Set(4), Notify::Set(0), Notify::Add(-1)] {
            let line = line!() + 1;
            let error = core.notify(signal, down).await.unwrap_err();
            let ErrorKind::SignalDown { value: 5, site, .. } = error.kind() else {
                panic!("{error}")
            };
            assert_eq!((site.file.as_ref(), site.line), (file!(), line));
        }
        assert_eq!(core.peek(signal).await?, 5);
        core.notify(signal, Notify::Set(5)).await
    });
    assert!(results[0].is_ok(), "{results:?}");
}
