//! Other processes: found in `/proc`, signalled and waited for by pidfd.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, pidfd_open, pidfd_send_signal};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// A process that cannot be confused with a later one of the same number.
#[derive(Debug)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    fd: OwnedFd,
}

impl Process {
    /// The process with this number, if there is one.
    pub fn open(pid: u32) -> Option<Process> {
        let number = Pid::from_raw(i32::try_from(pid).ok()?)?;
        let fd = pidfd_open(number, PidfdFlags::empty()).ok()?;
        Some(Process { pid, fd })
    }

    /// Sends a signal; one that has just ended does not mind.
    pub fn signal(&self, signal: Signal) {
        let _ = pidfd_send_signal(&self.fd, signal);
    }

    /// Waits until it has ended, or for so long; returns whether it has.
    pub fn ended(&self, at_most: Duration) -> bool {
        let deadline = Instant::now() + at_most;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let timeout = Timespec {
                tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: left.subsec_nanos().into(),
            };
            match poll(&mut [PollFd::new(&self.fd, PollFlags::IN)], Some(&timeout)) {
                Ok(0) => return false,
                Ok(_) => return true,
                Err(error) => assert_eq!(error, rustix::io::Errno::INTR),
            }
        }
    }
}

/// The fields of `/proc/PID/stat` from the state on, which is number 0.
fn stat(pid: u32) -> Option<Vec<String>> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = text.rsplit_once(") ")?;
    Some(fields.split_whitespace().map(str::to_owned).collect())
}

/// The children of a process, dead ones that nobody has reaped included.
pub fn children_of(pid: u32) -> Vec<u32> {
    let processes = std::fs::read_dir("/proc").expect("/proc");
    let numbers = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    let parent = pid.to_string();
    numbers
        .filter(|number| stat(*number).is_some_and(|fields| fields.get(1) == Some(&parent)))
        .collect()
}

/// The children of this process.
pub fn children() -> Vec<u32> {
    children_of(std::process::id())
}

/// Processor time that a process has used, in clock ticks.
pub fn cpu_ticks(pid: u32) -> u64 {
    let fields = stat(pid).expect("it lives");
    let ticks = |at: usize| fields[at].parse::<u64>().expect("a number");
    ticks(11) + ticks(12)
}

/// Whether a process is stopped.
pub fn is_stopped(pid: u32) -> bool {
    stat(pid).is_some_and(|fields| fields[0] == "T")
}

/// How many descriptors this process has open.
pub fn open_files() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("/proc").count()
}

/// Runs `body` while processes below this one whose parent dies become children of this one.
pub fn adopting_orphans<R>(body: impl FnOnce() -> R) -> R {
    let me = rustix::process::getpid();
    rustix::process::set_child_subreaper(Some(me)).expect("becoming a subreaper");
    let result = body();
    rustix::process::set_child_subreaper(None).expect("being no subreaper");
    result
}

/// Waits until this process has no child, and reaps them all; returns how many there were.
pub fn reap_all() -> usize {
    let mut reaped = 0;
    loop {
        match rustix::process::wait(WaitOptions::empty()) {
            Ok(_) => reaped += 1,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => {
                assert_eq!(error, rustix::io::Errno::CHILD);
                return reaped;
            }
        }
    }
}
