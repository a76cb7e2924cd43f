//! Bring-up: from started processes to chips that serve their mailboxes, as the host sees it.
//!
//! # Invariants
//! - **UP-1 (all or none).** It ends well only if every chip is ready and none has died since; the first
//!   failure ends it.
//! - **UP-2 (no blocking send).** Memory is handed over as the chips make room for it: there may be more
//!   of it than a socket holds, and a chip may have stopped.

use crate::core::Waiting;
use crate::error::{Error, Result};
use crate::process::bootstrap_socket::{Handover, Hello, Report, Wire, poll_for};
use crate::process::chip_processes::{InitialSegment, Launch};
use crate::process::death_watch::Watch;
use crate::process::mailbox::VERSION;
use ringwork_isa::Device;
use rustix::event::{PollFd, PollFlags};
use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

/// How long a chip may take to its first word: starting a program takes milliseconds. A program that is not a chip at all
/// may say nothing for ever.
const FIRST_WORD: Duration = Duration::from_secs(5);

/// How long the end of a process may come after the end of its channel.
const END_AFTER_CHANNEL: Duration = Duration::from_millis(500);

/// Hears of every step of every chip as it begins: device, process id, step.
pub(crate) type OnStep<'a> = &'a mut dyn FnMut(Device, u32, &str);

/// Writes what a chip is told first into its channel, before it is started.
pub(crate) fn greet(
    wire: &Wire,
    (device, index, nonce): (Device, usize, u64),
    launch: &Launch,
    (mailbox, bell): (&OwnedFd, &OwnedFd),
) -> Result<()> {
    let Waiting { patience, limit } = launch.waiting;
    let segments = of_chip(&launch.segments, index).count();
    let hello = Hello {
        version: VERSION,
        device,
        host_pid: std::process::id(),
        mailbox_nonce: nonce,
        spin_ns: u64::try_from(patience.spin.as_nanos()).unwrap_or(u64::MAX),
        yields: patience.yields,
        wait_limit_ms: u64::try_from(limit.as_millis()).unwrap_or(u64::MAX),
        record: launch.record,
        segments: u32::try_from(segments).unwrap_or(u32::MAX),
    };
    wire.send(&hello, Some(mailbox.as_fd()))?;
    wire.send(&VERSION, Some(bell.as_fd()))
}

fn of_chip(segments: &[InitialSegment], chip: usize) -> impl Iterator<Item = &InitialSegment> {
    segments
        .iter()
        .filter(move |initial| initial.chips.contains(&chip))
}

/// A chip that comes up.
struct Newcomer<'a> {
    device: Device,
    wire: &'a Wire,
    /// The step it has begun.
    step: String,
    ready: bool,
    /// Whether it has said anything.
    heard: bool,
    /// What it has still to be given.
    unsent: VecDeque<&'a InitialSegment>,
}

/// All chips of a host program that come up.
pub(crate) struct BringUp<'a> {
    newcomers: Vec<Newcomer<'a>>,
    watch: &'a Watch,
    /// What the chips run.
    program: &'a Path,
}

impl<'a> BringUp<'a> {
    pub(crate) fn new(
        chips: impl Iterator<Item = (Device, &'a Wire)>,
        segments: &'a [InitialSegment],
        watch: &'a Watch,
        program: &'a Path,
    ) -> BringUp<'a> {
        let newcomer = |(index, (device, wire))| Newcomer {
            device,
            wire,
            step: "start".into(),
            ready: false,
            heard: false,
            unsent: of_chip(segments, index).collect(),
        };
        BringUp {
            newcomers: chips.enumerate().map(newcomer).collect(),
            watch,
            program,
        }
    }

    /// Waits until every chip is ready (UP-1).
    pub(crate) fn wait(mut self, limit: Duration, on_step: OnStep<'_>) -> Result<()> {
        let start = Instant::now();
        let deadline = start + limit;
        loop {
            self.hand_over();
            let silent = self.newcomers.iter().find(|chip| !chip.heard);
            let late = silent.or_else(|| self.newcomers.iter().find(|chip| !chip.ready));
            let until = silent.map_or(deadline, |_| deadline.min(start + FIRST_WORD));
            let left = late.map_or(Duration::ZERO, |_| {
                until.saturating_duration_since(Instant::now())
            });
            let mut fds: Vec<_> = self.newcomers.iter().map(Newcomer::poll_fd).collect();
            let any = poll_for(&mut fds, Some(left))?;
            match late {
                None if !any => return Ok(()),
                Some(chip) if !any && left.is_zero() && until < deadline => {
                    return Err(chip.failed(self.silence()));
                }
                Some(chip) if !any && left.is_zero() => {
                    let limit = limit.as_millis();
                    let cause = format!("nothing heard for {limit} ms; raise the bring-up deadline");
                    return Err(chip.failed(cause));
                }
                _ => {}
            }
            let heard: Vec<bool> = fds
                .iter()
                .map(|fd| !(fd.revents() - PollFlags::OUT).is_empty())
                .collect();
            for (chip, _) in heard.into_iter().enumerate().filter(|(_, heard)| *heard) {
                self.hear(chip, deadline, on_step)?;
            }
        }
    }

    /// Why a chip that says nothing is given up.
    fn silence(&self) -> String {
        format!(
            "it said nothing for {} s; is `{}` a program with ringwork's chip in it (feature `before-main`, or \
             `native::chip::main`), and can it run here?",
            FIRST_WORD.as_secs(),
            self.program.display()
        )
    }

    /// Sends what there is room for (UP-2).
    fn hand_over(&mut self) {
        for chip in &mut self.newcomers {
            while let Some(initial) = chip.unsent.front() {
                let handover = Handover::of(&initial.segment, &initial.what);
                // One that cannot be sent to any more has died, which its channel and its pidfd will say.
                if !matches!(chip.wire.try_send(&handover, initial.segment.fd()), Ok(true)) {
                    break;
                }
                chip.unsent.pop_front();
            }
        }
    }

    /// Takes one report of a chip.
    fn hear(&mut self, index: usize, deadline: Instant, on_step: OnStep<'_>) -> Result<()> {
        let chip = &mut self.newcomers[index];
        chip.heard = true;
        match chip.wire.recv(Some(deadline)) {
            Ok(Some((Report::Ready, _))) => {
                chip.ready = true;
                Ok(())
            }
            Ok(Some((Report::Step(name), _))) => {
                chip.step = name;
                on_step(chip.device, self.watch.pid(index).unwrap_or(0), &chip.step);
                Ok(())
            }
            Ok(Some((Report::Failed { step, message }, _))) => {
                chip.step = step;
                Err(chip.failed(message))
            }
            Ok(None) => {
                let end = self.watch.wait_one(index, END_AFTER_CHANNEL);
                let cause = end.map(|end| end.to_string());
                Err(chip.failed(cause.unwrap_or_else(|| "it closed its bootstrap channel".into())))
            }
            Err(error) => Err(chip.failed(error.to_string())),
        }
    }
}

impl Newcomer<'_> {
    fn poll_fd(&self) -> PollFd<'_> {
        let room = if self.unsent.is_empty() {
            PollFlags::empty()
        } else {
            PollFlags::OUT
        };
        PollFd::new(self.wire, PollFlags::IN | room)
    }

    fn failed(&self, cause: String) -> Error {
        Error::Bootstrap {
            device: self.device,
            step: self.step.clone(),
            cause,
        }
    }
}
