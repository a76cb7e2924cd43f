//! One program, run to its end: in a session of its own, with a deadline, leaving no process behind.

use super::error::{Error, Result};
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsString;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Ctrl-C was pressed.
static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// How often we look whether a program has ended. Seldom: looking takes a core from it.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How long a program may take to end once it is asked to.
const GRACE: Duration = Duration::from_secs(3);

/// From now on Ctrl-C ends the running program and makes [`Job::run`] say so.
pub(crate) fn watch_for_interrupts() {
    // If it cannot be installed, Ctrl-C ends this process at once, and the running program stays.
    let _ = ctrlc::set_handler(|| INTERRUPTED.store(true, Ordering::Relaxed));
}

/// How the scheduler treats a program: the same for everyone in one comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Priority {
    /// `fifo` while ranks fit the cores and `boost` when they do not, as root; else `normal`
    Auto,
    /// As any program
    Normal,
    /// Before all ordinary programs (SCHED_FIFO 1): not for more ranks than cores
    Fifo,
    /// Nice -20, for the whole session (autogroup)
    Boost,
}

impl Priority {
    /// What `auto` means here.
    pub(crate) fn resolve(self, ranks: u32, cores: usize) -> Priority {
        match self {
            Priority::Auto if !rustix::process::geteuid().is_root() => Priority::Normal,
            Priority::Auto if ranks as usize <= cores => Priority::Fifo,
            Priority::Auto => Priority::Boost,
            given => given,
        }
    }

    /// What comes before the program on its command line. A new session gives it an autogroup of its
    /// own, and gives us a way to find all that it started.
    fn prefix(self) -> &'static [&'static str] {
        const BOOST: &str = "echo -20 > /proc/self/autogroup 2>/dev/null; exec nice -n -20 \"$@\"";
        match self {
            Priority::Auto | Priority::Normal => &["setsid"],
            Priority::Fifo => &["setsid", "chrt", "-f", "1"],
            Priority::Boost => &["setsid", "sh", "-c", BOOST, "sh"],
        }
    }
}

/// A command line with its environment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Job {
    pub(crate) words: Vec<OsString>,
    pub(crate) env: Vec<(&'static str, OsString)>,
}

impl Job {
    /// A program and its arguments.
    pub(crate) fn new<W: Into<OsString>>(words: impl IntoIterator<Item = W>) -> Job {
        Job {
            words: words.into_iter().map(Into::into).collect(),
            env: Vec::new(),
        }
    }

    /// With more arguments.
    pub(crate) fn and<W: Into<OsString>>(mut self, words: impl IntoIterator<Item = W>) -> Job {
        self.words.extend(words.into_iter().map(Into::into));
        self
    }

    /// With a variable set.
    pub(crate) fn with(mut self, name: &'static str, value: impl Into<OsString>) -> Job {
        self.env.push((name, value.into()));
        self
    }

    fn program(&self) -> String {
        self.words
            .first()
            .map(|word| word.to_string_lossy().into_owned())
            .unwrap_or_default()
    }

    /// Runs it and returns what it printed. Files it needs meanwhile are made in `scratch`.
    ///
    /// # Errors
    /// It cannot be started, fails, outlasts `limit`, or Ctrl-C is pressed. It is gone in each case.
    pub(crate) fn run(&self, scratch: &Path, priority: Priority, limit: Duration) -> Result<String> {
        let (out_path, err_path) = (scratch.join("stdout"), scratch.join("stderr"));
        let out = File::create(&out_path).map_err(Error::file(&out_path))?;
        let err = File::create(&err_path).map_err(Error::file(&err_path))?;
        let prefix = priority.prefix();
        let child = Command::new(prefix[0])
            .args(&prefix[1..])
            .args(&self.words)
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(err)
            .spawn()
            .map_err(|source| Error::Start {
                program: prefix[0].to_owned(),
                source,
            })?;
        let ended = Session { child }.wait(limit);
        let read = |path: &Path| fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        let failed = |how: String| {
            let said = read(&err_path).unwrap_or_default();
            Err(Error::Failed {
                program: self.program(),
                how,
                said,
            })
        };
        match ended? {
            None => failed(format!("did not end within {} s and was ended", limit.as_secs())),
            Some(status) if !status.success() => failed(format!("ended with {status}")),
            Some(_) => read(&out_path).map_err(Error::file(&out_path)),
        }
    }
}

/// A running program and all that it started.
#[derive(Debug)]
struct Session {
    child: Child,
}

impl Session {
    /// Its end, or `None` if it had to be ended.
    fn wait(mut self, limit: Duration) -> Result<Option<ExitStatus>> {
        match self.wait_until(Instant::now() + limit, true)? {
            Some(status) => Ok(Some(status)),
            None if INTERRUPTED.load(Ordering::Relaxed) => Err(Error::Interrupted),
            None => Ok(None),
        }
    }

    fn wait_until(&mut self, deadline: Instant, until_interrupted: bool) -> Result<Option<ExitStatus>> {
        let started = Instant::now();
        loop {
            let ended = self.child.try_wait();
            if let Some(status) = ended.map_err(|source| Error::Start {
                program: "wait".into(),
                source,
            })? {
                return Ok(Some(status));
            }
            let interrupted = until_interrupted && INTERRUPTED.load(Ordering::Relaxed);
            if Instant::now() >= deadline || interrupted {
                return Ok(None);
            }
            // Short programs are not made to seem long.
            std::thread::sleep(LOOK_EVERY.min(started.elapsed() / 4 + Duration::from_millis(1)));
        }
    }

    /// The processes of the session. The first of them has the session's number.
    fn members(&self) -> impl Iterator<Item = Pid> + use<> {
        let session = self.child.id();
        let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
        processes.filter_map(move |process| {
            let pid = Pid::from_raw(process.file_name().to_str()?.parse().ok()?)?;
            let stat = fs::read_to_string(process.path().join("stat")).ok()?;
            (session_of(&stat) == Some(session) && !has_ended(&stat)).then_some(pid)
        })
    }

    /// Sends `signal` to every process of the session.
    fn signal(&self, signal: Signal) {
        for pid in self.members() {
            let _ = kill_process(pid, signal);
        }
    }
}

impl Drop for Session {
    /// Asks what still runs to end, then ends it.
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(Some(_))) {
            self.signal(Signal::TERM);
            let _ = self.wait_until(Instant::now() + GRACE, false);
        }
        self.signal(Signal::KILL);
        let _ = self.child.wait();
        // What is killed is gone a moment later, and longer on a busy machine.
        let deadline = Instant::now() + GRACE;
        while self.members().next().is_some() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Whether a process has ended and only its parent has not heard of it.
fn has_ended(stat: &str) -> bool {
    stat.rsplit_once(')')
        .is_some_and(|(_, rest)| rest.trim_start().starts_with('Z'))
}

/// The session in a line of `/proc/PID/stat`: the fourth field after the name, which may hold anything.
fn session_of(stat: &str) -> Option<u32> {
    stat.rsplit_once(')')?.1.split_whitespace().nth(3)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::super::scratch::Scratch;
    use super::*;

    fn shell(script: &str, limit: Duration) -> Result<String> {
        let scratch = Scratch::new().unwrap();
        Job::new(["sh", "-c", script])
            .with("GREETING", "hello")
            .run(scratch.path(), Priority::Normal, limit)
    }

    #[test]
    fn what_a_program_prints_is_returned() {
        assert_eq!(
            shell("echo $GREETING", Duration::from_secs(20)).unwrap(),
            "hello\n"
        );
    }

    #[test]
    fn a_failure_says_the_code_and_what_was_said() {
        let error = shell("echo because >&2; exit 3", Duration::from_secs(20))
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("exit status: 3") && error.ends_with("    because"),
            "{error}"
        );
    }

    #[test]
    fn a_program_that_does_not_end_is_ended_with_all_it_started() {
        let scratch = Scratch::new().unwrap();
        let pid_path = scratch.path().join("pid");
        // A grandchild in a process group of its own, as launchers of ranks make them.
        let script = format!("set -m; sleep 1000 & echo $! > {}; wait", pid_path.display());
        let job = Job::new(["sh", "-c", &script]);
        let error = job
            .run(scratch.path(), Priority::Normal, Duration::from_secs(2))
            .unwrap_err();
        assert!(error.to_string().contains("did not end within 2 s"), "{error}");
        let pid = fs::read_to_string(pid_path).unwrap();
        let cmdline = fs::read_to_string(format!("/proc/{}/cmdline", pid.trim())).unwrap_or_default();
        assert_eq!(cmdline, "", "the grandchild still runs");
    }

    #[test]
    fn the_session_is_found_behind_any_name() {
        assert_eq!(session_of("12 (a b) c) S 1 12 7 0 -1"), Some(7));
        assert_eq!(session_of("nonsense"), None);
    }
}
