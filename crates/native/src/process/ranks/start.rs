//! Starting one rank.

use super::{Job, NOTICES_VARIABLE, Pin, RANK_VARIABLE, RENDEZVOUS_VARIABLE, SIZE_VARIABLE};
use crate::error::{Error, Result};
use crate::process::death_watch::End;
use crate::process::file_size_limit;
use crate::process::stopped::is_stopped;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions};
use rustix::thread::CpuSet;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, IsTerminal};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::{ChildStderr, ChildStdout, Command, Stdio};

/// A started rank.
#[derive(Debug)]
pub(super) struct Process {
    pid: Pid,
    pub(super) pidfd: OwnedFd,
    /// It leads a process group of its own, so that what it starts ends with it.
    leads: bool,
    pub(super) end: Option<End>,
}

/// Its output, if that is not the launcher's own.
pub(super) type Pipes = (Option<ChildStdout>, Option<ChildStderr>);

/// A text that no other job has.
pub(super) fn rendezvous() -> String {
    // Keyed with random bits of the operating system, newly for every call.
    let random = RandomState::new().hash_one(std::time::SystemTime::now());
    format!("{}-{random:016x}", std::process::id())
}

impl Process {
    pub(super) fn start(
        job: &Job,
        rank: u32,
        rendezvous: &str,
        cores: Option<CpuSet>,
        notices: Option<&OwnedFd>,
    ) -> Result<(Process, Pipes)> {
        let mut command = Command::new(&job.program);
        command
            .args(&job.arguments)
            .envs(job.variables.iter().map(|(name, value)| (name, value)))
            .env(RANK_VARIABLE, rank.to_string())
            .env(SIZE_VARIABLE, job.size.to_string())
            .env(RENDEZVOUS_VARIABLE, rendezvous);
        match notices {
            Some(notices) => command.env(NOTICES_VARIABLE, notices.as_raw_fd().to_string()),
            None => command.env_remove(NOTICES_VARIABLE),
        };
        if rank > 0 {
            command.stdin(Stdio::null());
        }
        if job.tag_output {
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
        }
        // A process that reads from a terminal must stay in the terminal's foreground group.
        let leads = rank > 0 || !io::stdin().is_terminal();
        if leads {
            command.process_group(0);
        }
        prepare(
            &mut command,
            cores,
            job.pin == Pin::Auto,
            notices.map(AsRawFd::as_raw_fd),
        );
        let doing = || format!("starting rank {rank}, `{}`", job.program.to_string_lossy());
        // Asked for between fork and exec, where an error could not say which call it was.
        rustix::process::parent_process_death_signal()
            .map_err(Error::system(format!("{}: prctl(PR_SET_PDEATHSIG)", doing())))?;
        let mut child = command
            .spawn()
            .map_err(|source| not_started(job, source, doing()))?;
        // The child is ours and not reaped, so its number cannot have been reused.
        let pid = Pid::from_child(&child);
        let opened = rustix::process::pidfd_open(pid, PidfdFlags::empty());
        let pidfd = opened.map_err(|error| {
            // Without a pidfd it cannot be watched, so it must not run.
            let _ = child.kill().and_then(|()| child.wait());
            Error::system(format!("{}: pidfd_open", doing()))(error)
        })?;
        let pipes = (child.stdout.take(), child.stderr.take());
        let process = Process {
            pid,
            pidfd,
            leads,
            end: None,
        };
        Ok((process, pipes))
    }

    /// Whether it lives and is stopped by a signal.
    pub(super) fn is_stopped(&self) -> bool {
        self.end.is_none() && is_stopped(self.pid.as_raw_nonzero().get().cast_unsigned())
    }

    /// Sends a signal to it and to what it started, unless it has been reaped (RANK-3).
    pub(super) fn signal(&self, signal: Signal) {
        if self.end.is_some() {
            return;
        }
        // The one failure is that it has just ended, which is what was wanted.
        let _ = rustix::process::pidfd_send_signal(&self.pidfd, signal);
        if self.leads {
            let _ = rustix::process::kill_process_group(self.pid, signal);
        }
    }

    /// Takes its end, if it has ended, and kills what it left behind.
    pub(super) fn reap(&mut self) -> Option<End> {
        let look = |options| rustix::process::waitid(WaitId::PidFd(self.pidfd.as_fd()), options);
        let ended = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
        if let Ok(None) = look(ended | WaitIdOptions::NOWAIT) {
            return None;
        }
        self.signal(Signal::KILL);
        let end = match look(ended) {
            Ok(Some(status)) => match (status.exit_status(), status.terminating_signal()) {
                (_, Some(signal)) => End::Killed(signal),
                (code, None) => End::Exited(code.unwrap_or(-1)),
            },
            // Somebody else in this process reaped it: all that is known is that it is gone.
            Ok(None) | Err(_) => End::Exited(-1),
        };
        self.end = Some(end);
        self.end
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.end.is_none() {
            self.signal(Signal::KILL);
            let _ = rustix::process::waitid(WaitId::PidFd(self.pidfd.as_fd()), WaitIdOptions::EXITED);
        }
    }
}

/// The error of a start. Of the calls between fork and exec only exec itself fails in the first three ways.
fn not_started(job: &Job, source: io::Error, doing: String) -> Error {
    match source.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NOENT | Errno::ACCESS | Errno::NOEXEC) => Error::Program {
            program: job.program.to_string_lossy().into_owned(),
            source,
        },
        Some(Errno::PERM | Errno::INVAL) if job.pin == Pin::Core => {
            Error::system(format!("{doing}, bound to a core (--pin core)"))(source)
        }
        _ => Error::system(doing)(source),
    }
}

/// RANK-1, the cores, and the signals as a program expects them. Cores that nobody asked for may be refused.
fn prepare(command: &mut Command, cores: Option<CpuSet>, unasked: bool, notices: Option<RawFd>) {
    let launcher = Pid::from_raw(std::process::id().cast_signed());
    let before_exec = move || {
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        // It may have died before that was asked for: nobody would then end this process.
        if rustix::process::getppid() != launcher {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        file_size_limit::kills_again();
        if let Some(notices) = notices {
            // SAFETY: the launcher has it open until `spawn` returns, and this is a copy of its descriptors.
            let inherited = unsafe { BorrowedFd::borrow_raw(notices) };
            rustix::io::fcntl_setfd(inherited, rustix::io::FdFlags::empty())?;
        }
        if let Some(cores) = &cores {
            let pinned = rustix::thread::sched_setaffinity(None, cores);
            if !unasked {
                pinned?;
            }
        }
        Ok(())
    };
    // SAFETY: between fork and exec only system calls on data that was made before the fork: no allocation,
    // no lock. (`ErrorKind` becomes an `io::Error` without allocating.)
    unsafe { command.pre_exec(before_exec) };
}
