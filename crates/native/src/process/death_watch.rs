//! The watcher: a thread that starts the chips, notices their ends, and tells everybody.
//!
//! A chip asks the kernel to be killed with its parent, and the kernel takes the *thread* that started it
//! for the parent: so the thread that starts chips must live as long as they may.
//!
//! # Invariants
//! - **WATCH-1 (death is a fact).** A chip's end is read from its pidfd and reaped once; it is recorded
//!   before any alarm is raised, alarms before the bell is struck.
//! - **WATCH-2 (by descriptor).** Signals are sent by pidfd, never by number, so they cannot hit a stranger.

use crate::error::{Error, Result};
use crate::process::bootstrap_socket::{Wire, poll_for};
use crate::process::chip::{CHIP_VARIABLE, process_name};
use crate::process::mailbox::Bell;
use crate::segment::{Alarm, Attached};
use ringwork_isa::{Device, Rank};
use rustix::event::{EventfdFlags, PollFd, PollFlags};
use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions};
use std::fmt;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How a chip's process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// By itself, with this code; -1 if somebody else in this process reaped it, so that nobody knows.
    Exited(i32),
    /// By this signal.
    Killed(i32),
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            End::Exited(-1) => f.write_str("it is gone; how it ended is not known"),
            End::Exited(code) => write!(f, "it exited with code {code}"),
            End::Killed(number) => match Signal::from_named_raw(number) {
                Some(Signal::SEGV) => write!(f, "it segfaulted (SIGSEGV)"),
                Some(Signal::BUS) => write!(f, "it touched memory that is not there (SIGBUS)"),
                Some(signal) => write!(f, "it was killed by {}", signal_name(signal)),
                None => write!(f, "it was killed by signal {number}"),
            },
        }
    }
}

/// Such as `SIGKILL`; those without a name of their own by number.
fn signal_name(signal: Signal) -> String {
    let name = match signal {
        Signal::HUP => "SIGHUP",
        Signal::INT => "SIGINT",
        Signal::QUIT => "SIGQUIT",
        Signal::ILL => "SIGILL",
        Signal::TRAP => "SIGTRAP",
        Signal::ABORT => "SIGABRT",
        Signal::FPE => "SIGFPE",
        Signal::KILL => "SIGKILL",
        Signal::USR1 => "SIGUSR1",
        Signal::USR2 => "SIGUSR2",
        Signal::PIPE => "SIGPIPE",
        Signal::ALARM => "SIGALRM",
        Signal::TERM => "SIGTERM",
        Signal::XCPU => "SIGXCPU",
        Signal::XFSZ => "SIGXFSZ",
        Signal::VTALARM => "SIGVTALRM",
        Signal::PROF => "SIGPROF",
        Signal::IO => "SIGIO",
        Signal::POWER => "SIGPWR",
        Signal::SYS => "SIGSYS",
        other => return format!("signal {}", other.as_raw()),
    };
    name.into()
}

/// A started process.
#[derive(Debug)]
struct Process {
    pid: Pid,
    pidfd: OwnedFd,
}

/// A domain whose members must hear of deaths.
struct Listener {
    segment: Weak<Attached>,
    members: Members,
}

/// The members of a domain that are chips of one fleet: a run of ranks, since a domain may reach over fleets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Members {
    /// The rank of the first.
    pub first: u32,
    /// The chips, by position in the fleet, in rank order.
    pub chips: Vec<usize>,
}

impl Members {
    /// All members of a domain of one fleet.
    #[must_use]
    pub fn all(chips: impl Into<Vec<usize>>) -> Members {
        let chips = chips.into();
        Members { first: 0, chips }
    }

    /// The rank of a chip, if it is one of them.
    #[must_use]
    pub fn rank_of(&self, chip: usize) -> Option<Rank> {
        let place = self.chips.iter().position(|member| *member == chip)?;
        self.first.checked_add(u32::try_from(place).ok()?).map(Rank)
    }

    /// The chip with this rank, if it is one of them.
    #[must_use]
    pub fn chip_of(&self, rank: Rank) -> Option<usize> {
        let place = usize::try_from(rank.0.checked_sub(self.first)?).ok()?;
        self.chips.get(place).copied()
    }
}

#[derive(Default)]
struct State {
    ends: Vec<Option<End>>,
    listeners: Vec<Listener>,
}

impl State {
    fn alarm(&self, members: &Members) -> Option<Alarm> {
        let mut chips = members.chips.iter();
        let (chip, end) = chips.find_map(|&chip| Some((chip, self.ends[chip]?)))?;
        Some(died(members.rank_of(chip)?, end))
    }
}

fn died(rank: Rank, end: End) -> Alarm {
    Alarm {
        dead: Some(rank),
        reason: end.to_string(),
    }
}

/// What the watcher and its host share.
pub(crate) struct Watch {
    state: Mutex<State>,
    ended: Condvar,
    processes: Mutex<Vec<Option<Arc<Process>>>>,
    bell: Bell,
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").finish_non_exhaustive()
    }
}

/// What to start: the program, and for each chip its device and end of the bootstrap channel.
pub(crate) struct Start {
    pub(crate) program: Program,
    pub(crate) chips: Vec<ChipEnd>,
}

/// The program that a chip runs. It must be this program: kernels are found by identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// The executable.
    pub path: std::path::PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
}

impl Default for Program {
    /// This program itself, whatever has happened to its file.
    fn default() -> Program {
        Program {
            path: "/proc/self/exe".into(),
            arguments: Vec::new(),
        }
    }
}

/// The running watcher.
#[derive(Debug)]
pub(crate) struct Watcher {
    pub(crate) watch: Arc<Watch>,
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Watcher {
    /// Starts the thread, and on it the chips; returns when all are started or one cannot be.
    pub(crate) fn start(start: Start, bell: Bell) -> Result<Watcher> {
        let count = start.chips.len();
        let state = State {
            ends: vec![None; count],
            listeners: Vec::new(),
        };
        let processes = Mutex::new((0..count).map(|_| None).collect());
        let watch = Arc::new(Watch {
            state: Mutex::new(state),
            ended: Condvar::new(),
            processes,
            bell,
        });
        let stop =
            rustix::event::eventfd(0, EventfdFlags::CLOEXEC).map_err(Error::system("creating an eventfd"))?;
        let (stop, (started, all_started)) = (Arc::new(stop), mpsc::channel());
        let (shared, stopping) = (watch.clone(), stop.clone());
        let thread = std::thread::Builder::new()
            .name("ringwork-watcher".into())
            .spawn(move || {
                let outcome = shared.start_all(start);
                let failed = outcome.is_err();
                let _ = started.send(outcome);
                shared.look_after(&stopping, failed);
            })
            .map_err(Error::system("starting the watcher thread"))?;
        let watcher = Watcher {
            watch,
            stop,
            thread: Some(thread),
        };
        // On failure the drop below kills and reaps whatever was started.
        all_started.recv().unwrap_or_else(|_| {
            Err(Error::Gone {
                who: "the watcher".into(),
                cause: "it panicked".into(),
            })
        })?;
        Ok(watcher)
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.watch.kill_all(Signal::KILL);
        self.watch.wait_all(None);
        // The thread sleeps until a chip ends or this. If it could not be woken it ends with the process.
        let woken = rustix::io::write(&*self.stop, &1u64.to_ne_bytes());
        if woken.is_ok()
            && let Some(thread) = self.thread.take()
        {
            let _ = thread.join();
        }
    }
}

impl Watch {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn processes(&self) -> MutexGuard<'_, Vec<Option<Arc<Process>>>> {
        self.processes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn start_all(&self, start: Start) -> Result<()> {
        for (chip, (device, channel)) in start.chips.into_iter().enumerate() {
            let child = Command::new(&start.program.path)
                .arg0(process_name(device))
                .args(&start.program.arguments)
                .env(CHIP_VARIABLE, device.to_string())
                .stdin(Stdio::from(channel))
                // Ctrl-C goes to the host alone, which then ends its chips in order.
                .process_group(0)
                .spawn();
            let failed = |cause: String| Error::Bootstrap {
                device,
                step: "start".into(),
                cause,
            };
            let mut child =
                child.map_err(|error| failed(format!("{}: {error}", start.program.path.display())))?;
            // The child is ours and not reaped, so its number cannot have been reused.
            let pid = Pid::from_child(&child);
            let pidfd = rustix::process::pidfd_open(pid, PidfdFlags::empty()).map_err(|error| {
                // Nobody can watch it, so it must not be there.
                let _ = child.kill().and_then(|()| child.wait());
                failed(format!("pidfd_open: {error}"))
            })?;
            self.processes()[chip] = Some(Arc::new(Process { pid, pidfd }));
        }
        Ok(())
    }

    /// Waits for ends until all have ended and the host says stop.
    fn look_after(&self, stop: &OwnedFd, start_failed: bool) {
        if start_failed {
            let started: Vec<bool> = self.processes().iter().map(Option::is_some).collect();
            for (chip, _) in started.iter().enumerate().filter(|(_, started)| !**started) {
                self.record(chip, End::Exited(0));
            }
        }
        loop {
            let alive = self.alive();
            let mut fds = vec![PollFd::new(stop, PollFlags::IN)];
            fds.extend(
                alive
                    .iter()
                    .map(|(_, process)| PollFd::new(&process.pidfd, PollFlags::IN)),
            );
            if !matches!(poll_for(&mut fds, None), Ok(true)) {
                continue;
            }
            let stopping = !fds[0].revents().is_empty();
            let ready: Vec<bool> = fds[1..].iter().map(|fd| !fd.revents().is_empty()).collect();
            for ((chip, process), _) in alive.iter().zip(ready).filter(|(_, ready)| *ready) {
                self.reap(*chip, process);
            }
            if stopping && self.alive().is_empty() {
                return;
            }
        }
    }

    fn alive(&self) -> Vec<(usize, Arc<Process>)> {
        let state = self.state();
        let processes = self.processes();
        let alive = processes
            .iter()
            .enumerate()
            .filter(|(chip, _)| state.ends[*chip].is_none());
        alive
            .filter_map(|(chip, process)| Some((chip, process.clone()?)))
            .collect()
    }

    fn reap(&self, chip: usize, process: &Process) {
        let status = rustix::process::waitid(WaitId::PidFd(process.pidfd.as_fd()), WaitIdOptions::EXITED);
        let end = match status {
            Ok(Some(status)) => match (status.exit_status(), status.terminating_signal()) {
                (Some(code), _) => End::Exited(code),
                (None, Some(signal)) => End::Killed(signal),
                (None, None) => return,
            },
            Ok(None) => return,
            // Somebody else in this process reaped it: all that is known is that it is gone.
            Err(_) => End::Exited(-1),
        };
        self.record(chip, end);
    }

    fn record(&self, chip: usize, end: End) {
        let mut state = self.state();
        state.ends[chip] = Some(end);
        state
            .listeners
            .retain(|listener| listener.segment.strong_count() > 0);
        for listener in &state.listeners {
            let rank = listener.members.rank_of(chip);
            if let (Some(rank), Some(segment)) = (rank, listener.segment.upgrade()) {
                segment.raise(&died(rank, end));
            }
        }
        drop(state);
        self.ended.notify_all();
        self.bell.strike(|| {});
    }

    /// Raises an alarm in `segment` when one of its members ends, or at once if one has.
    pub(crate) fn listen(&self, segment: &Arc<Attached>, members: &Members) {
        let mut state = self.state();
        if let Some(alarm) = state.alarm(members) {
            segment.raise(&alarm);
        }
        state
            .listeners
            .retain(|listener| listener.segment.strong_count() > 0);
        state.listeners.push(Listener {
            segment: Arc::downgrade(segment),
            members: members.clone(),
        });
    }

    /// Why a domain cannot be used, if one of these members has ended.
    pub(crate) fn alarm(&self, members: &Members) -> Option<Alarm> {
        self.state().alarm(members)
    }

    /// Makes a domain fresh unless a member has ended: then its alarm stays. Under the lock, so that an end
    /// comes either before, and is seen here, or after, and raises the alarm again.
    pub(crate) fn reset(&self, segment: &Attached, members: &Members) {
        let state = self.state();
        if state.alarm(members).is_none() {
            segment.reset();
        }
    }

    pub(crate) fn end(&self, chip: usize) -> Option<End> {
        self.state().ends.get(chip).copied().flatten()
    }

    pub(crate) fn pid(&self, chip: usize) -> Option<u32> {
        let processes = self.processes();
        processes
            .get(chip)?
            .as_ref()
            .map(|process| process.pid.as_raw_nonzero().get().cast_unsigned())
    }

    /// Sends a signal to a chip that has not ended (WATCH-2).
    pub(crate) fn kill(&self, chip: usize, signal: Signal) {
        let process = self.processes().get(chip).cloned().flatten();
        if let (None, Some(process)) = (self.end(chip), process) {
            // The one failure is that it has just ended, which is what was wanted.
            let _ = rustix::process::pidfd_send_signal(&process.pidfd, signal);
        }
    }

    pub(crate) fn kill_all(&self, signal: Signal) {
        for (chip, _) in self.alive() {
            self.kill(chip, signal);
        }
    }

    /// Waits until all have ended, or for so long; returns whether they have.
    pub(crate) fn wait_all(&self, at_most: Option<Duration>) -> bool {
        self.wait_until(at_most, |ends| ends.iter().all(Option::is_some))
    }

    /// Waits until one chip has ended, or for so long; returns how it did.
    pub(crate) fn wait_one(&self, chip: usize, at_most: Duration) -> Option<End> {
        self.wait_until(Some(at_most), |ends| ends[chip].is_some());
        self.end(chip)
    }

    fn wait_until(&self, at_most: Option<Duration>, done: impl Fn(&[Option<End>]) -> bool) -> bool {
        let deadline = at_most.map(|limit| Instant::now() + limit);
        let mut state = self.state();
        while !done(&state.ends) {
            let left = match deadline {
                None => Duration::from_secs(60),
                Some(deadline) => match deadline.checked_duration_since(Instant::now()) {
                    None => return false,
                    Some(left) => left,
                },
            };
            state = self
                .ended
                .wait_timeout(state, left)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        true
    }
}

/// The chip's end of a bootstrap channel.
type ChipEnd = (Device, OwnedFd);

/// Both ends of the bootstrap channels, made before anything starts.
pub(crate) fn channels(devices: &[Device]) -> Result<(Vec<Wire>, Vec<ChipEnd>)> {
    let mut ours = Vec::with_capacity(devices.len());
    let mut theirs = Vec::with_capacity(devices.len());
    for device in devices {
        let (wire, fd) = Wire::pair(format!("chip {device}"))?;
        ours.push(wire);
        theirs.push((*device, fd));
    }
    Ok((ours, theirs))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_signal_that_ends_a_process_has_its_name() {
        let said = |number| End::Killed(number).to_string();
        assert_eq!(said(9), "it was killed by SIGKILL");
        assert_eq!(said(13), "it was killed by SIGPIPE");
        assert_eq!(said(25), "it was killed by SIGXFSZ");
        assert_eq!(said(31), "it was killed by SIGSYS");
        for number in 1..=64 {
            assert!(!said(number).contains('"'), "{}", said(number));
        }
    }
}
