//! The chip processes of one host program, from bring-up to the last one reaped.
//!
//! The host side of everything: it starts chips and waits until all are ready, hands them memory, sends
//! them tasks, collects what they answer, and ends them. It decides nothing about order: that is the
//! scheduler's.

use crate::cell::{Ended, Patience};
use crate::channel::{Receiver, Sender};
use crate::core::Waiting;
use crate::error::{Error, Result};
use crate::process::bootstrap_socket::{Handover, Wire, decode, encode};
use crate::process::bring_up::{BringUp, OnStep, greet};
use crate::process::death_watch::{End, Members, Program, Start, Watch, Watcher, channels};
use crate::process::mailbox::{Bell, Failure, MailRing, Mailbox, Reply, Request};
use crate::segment::{Alarm, Attached};
use crate::trace::progress::LastSeen;
use crate::trace::ring::Record;
use ringwork_isa::{Device, Segment, Task};
use rustix::process::Signal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::{Duration, Instant};

/// What the chip processes are started with.
#[derive(Debug)]
pub struct Launch {
    /// The chips, by device.
    pub devices: Vec<Device>,
    /// The program they run: this one.
    pub program: Program,
    /// Memory they have from the start.
    pub segments: Vec<InitialSegment>,
    /// How long all of them may take to come up.
    pub deadline: Duration,
    /// How kernels wait.
    pub waiting: Waiting,
    /// Whether chips record what they do.
    pub record: bool,
}

/// A segment that chips map while they come up.
#[derive(Clone, Debug)]
pub struct InitialSegment {
    /// The memory.
    pub segment: Arc<Attached>,
    /// What it is for, such as `window "tp"`.
    pub what: String,
    /// The chips that map it, by position; in rank order if it is a domain's windows.
    pub chips: Vec<usize>,
}

/// Something that happened.
#[derive(Debug)]
pub enum Event {
    /// A task ended.
    Ran {
        /// On which chip, by position.
        chip: usize,
        /// Which task.
        task: u64,
        /// How.
        outcome: std::result::Result<(), Failure>,
    },
    /// A chip could not map a segment that was handed to it.
    NotMapped {
        /// Which chip, by position.
        chip: usize,
        /// Which segment.
        segment: Segment,
        /// Its own words.
        message: String,
    },
    /// A chip's process ended, or its mailbox turned to garbage and it was ended.
    Ended {
        /// Which chip, by position.
        chip: usize,
        /// How.
        cause: String,
    },
}

#[derive(Debug)]
struct Chip {
    device: Device,
    wire: Wire,
    mailbox: Mailbox,
    outbox: Sender<MailRing>,
    inbox: Receiver<MailRing>,
    /// Its end was reported as an event.
    reported: bool,
    /// The last task that it has answered for; it answers in the order of their numbers.
    answered: u64,
}

/// The running chip processes of a host program.
#[derive(Debug)]
pub struct ChipProcesses {
    chips: Vec<Chip>,
    waiter: Waiter,
    /// Events that were not yet asked for.
    unread: Vec<Event>,
    waiting: Waiting,
    // Last, so that chips are gone before what they share is unmapped.
    watcher: Watcher,
}

/// How long chips get to stop when asked, and again when told.
const GRACE: Duration = Duration::from_millis(500);

/// How often to look whether a chip has made room: taking something strikes no bell.
const ROOM_LOOK: Duration = Duration::from_millis(1);

impl ChipProcesses {
    /// Starts the chips and waits until every one is ready.
    ///
    /// `on_step` hears of every step of every chip as it begins: `(chip, process id, step)`.
    ///
    /// # Errors
    /// The first failure: which chip, at which step, in its own words. All others are killed and reaped.
    pub fn launch(launch: Launch, on_step: OnStep<'_>) -> Result<ChipProcesses> {
        let (bell, bell_fd) = Bell::create()?;
        let (wires, theirs) = channels(&launch.devices)?;
        let mut chips = Vec::with_capacity(wires.len());
        for (index, (device, wire)) in launch.devices.iter().zip(wires).enumerate() {
            let nonce = u64::from(std::process::id()) << 32 | index as u64;
            let (mailbox, mailbox_fd) = Mailbox::create(nonce)?;
            greet(&wire, (*device, index, nonce), &launch, (&mailbox_fd, &bell_fd))?;
            let name = format!("chip {device}");
            let outbox = Sender::new(mailbox.to_chip(&name));
            let inbox = Receiver::new(mailbox.of_chip(&name));
            chips.push(Chip {
                device: *device,
                wire,
                mailbox,
                outbox,
                inbox,
                reported: false,
                answered: 0,
            });
        }
        let program = launch.program.path.clone();
        let start = Start {
            program: launch.program,
            chips: theirs,
        };
        let watcher = Watcher::start(start, bell.clone())?;
        for initial in launch
            .segments
            .iter()
            .filter(|initial| initial.segment.layout().ranks > 0)
        {
            let members = Members::all(&*initial.chips);
            watcher.watch.listen(&initial.segment, &members);
        }
        let processes = ChipProcesses {
            chips,
            waiter: Waiter {
                bell,
                heard: Arc::default(),
                interrupted: Arc::default(),
                patience: launch.waiting.patience,
            },
            unread: Vec::new(),
            waiting: launch.waiting,
            watcher,
        };
        // On failure the drop of `processes` kills and reaps all.
        let wires = processes.chips.iter().map(|chip| (chip.device, &chip.wire));
        BringUp::new(wires, &launch.segments, &processes.watcher.watch, &program)
            .wait(launch.deadline, on_step)?;
        Ok(processes)
    }

    /// The chips, in order.
    pub fn devices(&self) -> impl ExactSizeIterator<Item = Device> + '_ {
        self.chips.iter().map(|chip| chip.device)
    }

    /// A chip's process id, for people; signals are never sent by it.
    #[must_use]
    pub fn pid(&self, chip: usize) -> Option<u32> {
        self.watcher.watch.pid(chip)
    }

    /// How a chip's process ended, if it has.
    #[must_use]
    pub fn end(&self, chip: usize) -> Option<End> {
        self.watcher.watch.end(chip)
    }

    /// What a chip was last seen doing.
    #[must_use]
    pub fn last_seen(&self, chip: usize) -> LastSeen {
        self.chips[chip].mailbox.last_seen()
    }

    /// What a chip has recorded; also of one that is gone.
    #[must_use]
    pub fn record(&self, chip: usize) -> Record {
        let Chip {
            mailbox, answered, ..
        } = &self.chips[chip];
        mailbox.record(*answered, self.end(chip).is_none())
    }

    /// Hands a segment to chips. Tasks sent afterwards find it. `what` says what it is for.
    ///
    /// If it is a domain's windows, from now on a member's death raises the domain's alarm.
    ///
    /// # Errors
    /// If a chip is gone; then nobody has it. One that cannot map it says so in an [`Event::NotMapped`].
    pub fn map(&mut self, segment: &Arc<Attached>, what: &str, members: &Members) -> Result<()> {
        if segment.layout().ranks > 0 {
            self.watcher.watch.listen(segment, members);
        }
        for (i, &chip) in members.chips.iter().enumerate() {
            if let Err(error) = self.map_on(segment, what, chip) {
                self.unmap(segment.layout().segment, &members.chips[..i]);
                return Err(error);
            }
        }
        Ok(())
    }

    fn map_on(&mut self, segment: &Arc<Attached>, what: &str, chip: usize) -> Result<()> {
        let handover = Handover::of(segment, what);
        self.insist(chip, |processes| {
            processes.chips[chip].wire.try_send(&handover, segment.fd())
        })?;
        let layout = segment.layout();
        self.insist(chip, |processes| {
            processes.try_request(chip, &Request::Map { layout })
        })
    }

    /// Makes the signals of a domain fresh and its alarm quiet, unless a member has ended. Only while no
    /// task uses it, and only if all its members are chips of this host.
    pub fn reset(&self, segment: &Attached, members: &Members) {
        self.watcher.watch.reset(segment, members);
    }

    /// What a domain with these members is told, if one of them has ended.
    #[must_use]
    pub fn alarm(&self, members: &Members) -> Option<Alarm> {
        self.watcher.watch.alarm(members)
    }

    /// Makes chips forget a segment, after the tasks sent before.
    pub fn unmap(&mut self, segment: Segment, chips: &[usize]) {
        for &chip in chips {
            // A chip that is gone has forgotten it already.
            let _ = self.insist(chip, |processes| {
                processes.try_request(chip, &Request::Unmap { segment })
            });
        }
    }

    /// Sends a task to a chip, behind those it has; false if its mailbox is full for now.
    ///
    /// # Errors
    /// If the chip is gone, or the task does not fit a mailbox at all.
    pub fn submit(&mut self, chip: usize, id: u64, task: &Task) -> Result<bool> {
        let request = Request::Run {
            task: id,
            kernel: task.kernel.clone(),
            args: task.args.clone(),
        };
        self.try_request(chip, &request)
    }

    fn try_request(&mut self, chip: usize, request: &Request) -> Result<bool> {
        let Chip { device, outbox, .. } = &mut self.chips[chip];
        if let Some(end) = self.watcher.watch.end(chip) {
            return Err(Error::ChipGone {
                device: *device,
                cause: end.to_string(),
            });
        }
        let bytes = encode(request, &format!("chip {device}"))?;
        Ok(outbox.try_send(&bytes)?)
    }

    /// Attempts until it succeeds: until the chip has made room. Takes replies meanwhile, since the chip
    /// may itself be waiting to reply. One that makes neither room nor progress for the limit is ended.
    fn insist(&mut self, chip: usize, attempt: impl Fn(&mut ChipProcesses) -> Result<bool>) -> Result<()> {
        let (mut count, mut since) = (self.last_seen(chip).count, Instant::now());
        loop {
            match attempt(self) {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(error) => return Err(self.because_it_ended(chip, error)),
            }
            if self.interrupted() {
                return Err(Error::Interrupted);
            }
            self.collect();
            self.wait(Some(Instant::now() + ROOM_LOOK));
            let seen = self.last_seen(chip).count;
            if seen != count {
                (count, since) = (seen, Instant::now());
            } else if since.elapsed() >= self.waiting.limit {
                self.kill(chip);
                let ms = since.elapsed().as_millis();
                return Err(Error::ChipGone {
                    device: self.chips[chip].device,
                    cause: format!("it did not read its mailbox for {ms} ms and was killed"),
                });
            }
        }
    }

    /// Turns the error of a send into the chip's end, if the chip has just died.
    fn because_it_ended(&self, chip: usize, error: Error) -> Error {
        if !matches!(error, Error::System { .. }) {
            return error;
        }
        match self.watcher.watch.wait_one(chip, GRACE) {
            None => error,
            Some(end) => Error::ChipGone {
                device: self.chips[chip].device,
                cause: end.to_string(),
            },
        }
    }

    /// Everything that has happened since the last call.
    pub fn events(&mut self) -> Vec<Event> {
        self.collect();
        std::mem::take(&mut self.unread)
    }

    fn collect(&mut self) {
        let mut events = std::mem::take(&mut self.unread);
        for index in 0..self.chips.len() {
            // Ends are read before mailboxes: so all answers of a chip that has died are taken.
            let end = self.watcher.watch.end(index);
            if let Err(error) = self.take_replies(index, &mut events) {
                // A chip whose mailbox cannot be understood cannot be trusted with memory either.
                self.watcher.watch.kill(index, Signal::KILL);
                self.chips[index].reported = true;
                events.push(Event::Ended {
                    chip: index,
                    cause: error.to_string(),
                });
            } else if let (Some(end), false) = (end, self.chips[index].reported) {
                self.chips[index].reported = true;
                events.push(Event::Ended {
                    chip: index,
                    cause: end.to_string(),
                });
            }
        }
        self.unread = events;
    }

    fn take_replies(&mut self, chip: usize, events: &mut Vec<Event>) -> Result<()> {
        if self.chips[chip].reported {
            return Ok(());
        }
        let Chip {
            device,
            inbox,
            answered,
            ..
        } = &mut self.chips[chip];
        while let Some(bytes) = inbox.poll()? {
            events.push(match decode(&bytes, &format!("chip {device}"))? {
                Reply::Ran { task, outcome } => {
                    *answered = task;
                    Event::Ran { chip, task, outcome }
                }
                Reply::NotMapped { segment, message } => Event::NotMapped {
                    chip,
                    segment,
                    message,
                },
            });
        }
        Ok(())
    }

    /// Sleeps until something has happened since the last call, an interrupt, or the deadline; whether
    /// something has.
    pub fn wait(&mut self, deadline: Option<Instant>) -> bool {
        self.waiter.wait(deadline)
    }

    /// A handle that waits without borrowing these processes, so that others can use them meanwhile.
    #[must_use]
    pub fn waiter(&self) -> Waiter {
        self.waiter.clone()
    }

    /// Whether [`Interrupter::interrupt`] was called.
    #[must_use]
    pub fn interrupted(&self) -> bool {
        self.waiter.interrupted.load(Ordering::SeqCst)
    }

    /// A handle by which another thread can end waits of this host program.
    #[must_use]
    pub fn interrupter(&self) -> Interrupter {
        Interrupter {
            interrupted: self.waiter.interrupted.clone(),
            bell: self.waiter.bell.clone(),
        }
    }

    /// Kills a chip at once: for one that is stuck.
    pub fn kill(&mut self, chip: usize) {
        self.watcher.watch.kill(chip, Signal::KILL);
        self.watcher.watch.wait_one(chip, GRACE);
    }

    /// Ends all chips: asks, then SIGTERM, then SIGKILL; returns when every one is reaped. Idempotent.
    pub fn close(&mut self) {
        for chip in 0..self.chips.len() {
            // One that is gone or has a full mailbox is ended by the steps below.
            let _ = self.try_request(chip, &Request::Stop);
        }
        let watch: &Watch = &self.watcher.watch;
        for signal in [Signal::TERM, Signal::KILL] {
            if watch.wait_all(Some(GRACE)) {
                return;
            }
            watch.kill_all(signal);
        }
        watch.wait_all(None);
    }
}

impl Drop for ChipProcesses {
    fn drop(&mut self) {
        // After `close` there is no process left to kill.
        self.watcher.watch.kill_all(Signal::KILL);
    }
}

/// What the host program waits with. One thread at a time does; the others may miss what that one has heard.
#[derive(Clone, Debug)]
pub struct Waiter {
    bell: Bell,
    /// Strikes that were heard.
    heard: Arc<AtomicI32>,
    interrupted: Arc<AtomicBool>,
    patience: Patience,
}

impl Waiter {
    /// See [`ChipProcesses::wait`].
    #[must_use]
    pub fn wait(&self, deadline: Option<Instant>) -> bool {
        let heard = self.heard.load(Ordering::Relaxed);
        let exit = |_| self.interrupted.load(Ordering::SeqCst).then_some(());
        match self
            .bell
            .cell()
            .wait(self.patience, deadline, |strikes| strikes != heard, exit)
        {
            Ok(strikes) => {
                self.heard.store(strikes, Ordering::Relaxed);
                true
            }
            Err(Ended::Exit(()) | Ended::Deadline) => false,
        }
    }

    /// Ends the wait: something has happened that is no chip's doing.
    pub fn wake(&self) {
        self.bell.strike(|| {});
    }
}

/// Ends a host's waits from another thread, for Ctrl-C.
#[derive(Clone, Debug)]
pub struct Interrupter {
    interrupted: Arc<AtomicBool>,
    bell: Bell,
}

impl Interrupter {
    /// For a host program whose chips are not processes.
    ///
    /// # Errors
    /// If there is no memory.
    pub fn new() -> Result<Interrupter> {
        Ok(Interrupter {
            interrupted: Arc::default(),
            bell: Bell::create()?.0,
        })
    }

    /// Whether [`interrupt`](Interrupter::interrupt) was called.
    #[must_use]
    pub fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::SeqCst)
    }

    /// Makes every wait of the host return, now and from now on.
    pub fn interrupt(&self) {
        self.interrupted.store(true, Ordering::SeqCst);
        self.bell.cell().rouse();
    }
}
