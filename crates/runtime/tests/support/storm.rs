//! Kills at random moments, and what everybody must then say.

use super::team::Reducers;
use ringwork_isa::ErrorKind;
use ringwork_runtime::{Cause, Device, Error, Failure, Node, TaskFailure};
use ringwork_testkit::Rng;
use ringwork_testkit::process::{Process, children, open_files};
use rustix::process::Signal;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const KILLED: &str = "it was killed by SIGKILL";

/// A node whose chips are killed one after the other; spare ones take their places.
#[derive(Debug)]
pub struct Victims {
    node: Node,
    alive: Vec<Device>,
}

impl Victims {
    pub fn launch(chips: usize) -> Victims {
        let devices = 0..u32::try_from(chips).unwrap();
        let node = Node::builder().devices(devices).launch().unwrap();
        let alive = node.devices();
        Victims { node, alive }
    }

    pub fn alive(&self) -> usize {
        self.alive.len()
    }

    /// Kills one of `chips` chips that all-reduce; returns how long it took from the kill, or from the start of
    /// the runs if it was dead by then, until `run` had heard of it from every survivor and returned. Nothing if
    /// it died so early that there was no memory to run on: then nobody waited for it.
    ///
    /// # Panics
    /// If anybody says anything but the truth about it.
    pub fn kill_one(&mut self, chips: usize, rng: &mut Rng) -> Option<Duration> {
        // In any order, so that ranks are not devices.
        for i in (1..self.alive.len()).rev() {
            self.alive.swap(i, rng.below(i + 1));
        }
        let members = &self.alive[..chips];
        let victim = members[rng.below(chips)];
        let process = Process::open(self.node.pid(victim).unwrap()).unwrap();
        // One in four dies while memory is still handed out.
        let (early, moment) = (rng.below(4) == 0, Duration::from_micros(rng.below(3000) as u64));
        let working = AtomicBool::new(early);
        let (took, error, rank) = std::thread::scope(|scope| {
            let killer = scope.spawn(|| {
                while !working.load(Ordering::Acquire) {
                    std::thread::yield_now();
                }
                // Not to make anything pass: this is the random moment.
                std::thread::sleep(moment);
                let now = Instant::now();
                process.signal(Signal::KILL);
                now
            });
            let opened = Reducers::open(&self.node, members, 1 + rng.below(5000));
            working.store(true, Ordering::Release);
            let reducers = match opened {
                Ok(reducers) => reducers,
                Err(error) => return (None, error, usize::MAX),
            };
            let begun_at = Instant::now();
            let error = reducers.reduce_forever(&self.node, rng);
            let known_at = Instant::now();
            let killed_at = killer.join().unwrap();
            assert!(known_at >= killed_at, "failed before the kill: {error}");
            let took = known_at - killed_at.max(begun_at);
            (Some(took), error, reducers.rank_of(victim))
        });
        judge(&error, victim, rank);
        self.alive.retain(|chip| *chip != victim);
        took
    }
}

/// The error must name the dead chip, what it did and how it died; and every survivor the dead rank.
fn judge(error: &Error, victim: Device, rank: usize) {
    match error {
        // It died between two runs.
        Error::Gone { device, cause } => assert_eq!((*device, cause.as_str()), (victim, KILLED)),
        Error::Task(failure) => {
            let TaskFailure {
                device,
                kernel,
                cause,
                others,
                ..
            } = &**failure;
            assert_eq!((*device, kernel.as_str()), (victim, "all_reduce"), "{error}");
            assert!(
                matches!(cause, Cause::Ended { how, .. } if how == KILLED),
                "{error}"
            );
            for (device, cause) in others {
                let told = match cause {
                    Cause::Kernel(Failure::Returned(error)) => match error.kind() {
                        ErrorKind::PeerDied {
                            rank: dead, cause, ..
                        } => *device != victim && dead.0 as usize == rank && cause == KILLED,
                        _ => false,
                    },
                    // What was queued behind it, there and here.
                    Cause::Kernel(Failure::NotBegun {
                        dead: Some(dead),
                        why,
                    }) => *device != victim && dead.0 as usize == rank && why.contains(KILLED),
                    Cause::NotBegun { .. } => *device == victim,
                    _ => false,
                };
                assert!(told, "chip {device} was told: {cause}");
            }
        }
        other => panic!("{other:?}"),
    }
}

/// Nothing of this process is left but what was there before.
pub fn assert_clean(files_before: usize) {
    assert_eq!(children(), [0; 0], "children were left");
    assert_eq!(open_files(), files_before, "descriptors were left");
}

/// A whole session with all that can happen in one: bring-up, memory, runs, a kernel's error, a death.
pub fn session(chips: usize) {
    let mut rng = Rng::from_environment();
    for round in 0..3 {
        let mut victims = Victims::launch(chips);
        let reducers = Reducers::open(&victims.node, &victims.alive, 100).unwrap();
        reducers
            .reduce(&victims.node, ringwork_collectives::Algorithm::StagedRing, 2)
            .unwrap();
        assert!(reducers.verified().unwrap());
        victims.kill_one(chips, &mut rng);
        if round == 1 {
            victims.node.close();
        }
    }
}
