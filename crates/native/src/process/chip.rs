//! A chip's process: a program that was started to be a chip, and serves its mailbox.
//!
//! The host starts a program with an environment variable set and the bootstrap channel as standard input; unless told
//! otherwise that program is the host's own, `/proc/self/exe`. With the feature `before-main` (a default of the crate
//! `ringwork`) a function that runs before `main` sees the variable and never returns: so a chip works the same from a
//! program's main, from a test binary, from an example. A program that is nothing but a chip calls [`main`] instead.
//!
//! # Invariants
//! - **CHIP-1 (programs only).** A shared library never makes its process a chip: its initialisers run when it is loaded,
//!   in a process that has threads and belongs to somebody else, such as an interpreter.

use crate::cell::Patience;
use crate::channel::{Receiver, Sender};
use crate::core::{NativeCore, Waiting};
use crate::error::{Error, Result};
use crate::process::bootstrap_socket::{Handover, Hello, Report, Wire, decode, encode};
use crate::process::mailbox::{Bell, Failure, MailRing, Mailbox, Reply, Request, VERSION, capped};
use crate::segment::{Alarm, Attached, Layout};
use crate::trace::progress::{Activity, Begin, Begun};
use ringwork_isa::{Arg, Core, Device, KernelId, Param, Site};
use ringwork_registry::{self as registry, KernelEntry};
use rustix::process::Signal;
use std::cell::RefCell;
use std::os::fd::{AsFd, OwnedFd};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

/// Set in a chip's environment.
pub(crate) const CHIP_VARIABLE: &str = "RINGWORK_CHIP";

/// Exit code of a chip whose bring-up failed; its reason went through the bootstrap channel.
const EXIT_BOOTSTRAP: i32 = 70;

/// Exit code of a program that is only good as a chip and was started as something else.
const EXIT_USAGE: i32 = 2;

#[cfg(feature = "before-main")]
#[used]
#[cfg_attr(target_os = "linux", unsafe(link_section = ".init_array"))]
static BEFORE_MAIN: extern "C" fn() = before_main;

#[cfg(feature = "before-main")]
extern "C" fn before_main() {
    if !cfg!(miri) && was_started_as_chip() && is_in_the_program(before_main as *const () as usize) {
        be_a_chip();
    }
}

/// The `main` of a program that is nothing but a chip: name it in [`Program`](crate::Program).
///
/// Call it first, before there is another thread. With the argument `--kernels` it writes what kernels the program has,
/// as JSON; otherwise, if no host started it, it says so.
///
/// ```text
/// fn main() {
///     ringwork::native::chip::main()
/// }
/// ```
#[allow(clippy::print_stdout, clippy::print_stderr, reason = "it is a program")]
pub fn main() -> ! {
    if was_started_as_chip() {
        be_a_chip();
    }
    if std::env::args().nth(1).as_deref() == Some("--kernels") {
        println!("{}", kernels_as_json());
        std::process::exit(0);
    }
    eprintln!(
        "this program is a chip: a ringwork node starts it; `--kernels` lists the {} kernels that it has",
        registry::KERNELS.len()
    );
    std::process::exit(EXIT_USAGE)
}

/// All kernels of this program: `[{"name": .., "signature": .., "params": [{"name": .., "tag": ..}]}]`.
fn kernels_as_json() -> String {
    // Names are paths and identifiers of Rust: there is nothing to escape.
    let param = |param: &Param| format!(r#"{{"name": "{}", "tag": "{:?}"}}"#, param.name, param.tag);
    let kernel = |entry: &KernelEntry| {
        let params: Vec<_> = entry.params.iter().map(param).collect();
        let (name, params) = (entry.name, params.join(", "));
        // As text: a double has too few digits for it.
        format!(
            r#"{{"name": "{name}", "signature": "{:016x}", "params": [{params}]}}"#,
            entry.signature
        )
    };
    let kernels: Vec<_> = registry::KERNELS.iter().map(kernel).collect();
    format!("[{}]", kernels.join(",\n "))
}

fn was_started_as_chip() -> bool {
    std::env::var_os(CHIP_VARIABLE).is_some()
}

/// Whether this address is in the executable of this process, and not in a library (CHIP-1).
#[cfg_attr(
    not(feature = "before-main"),
    allow(dead_code, reason = "only asked before main")
)]
fn is_in_the_program(address: usize) -> bool {
    let (Ok(program), Ok(maps)) = (
        std::fs::read_link("/proc/self/exe"),
        std::fs::read_to_string("/proc/self/maps"),
    ) else {
        return false;
    };
    // Such as `55d0c0a3f000-55d0c0a6b000 r-xp 0002c000 08:02 1234    /usr/bin/program`.
    let holds = |line: &&str| {
        let (from, to) = line
            .split_once(' ')
            .and_then(|(range, _)| range.split_once('-'))?;
        let (from, to) = (usize::from_str_radix(from, 16), usize::from_str_radix(to, 16));
        Some((from.ok()?..to.ok()?).contains(&address))
    };
    let line = maps.lines().find(|line| holds(line).unwrap_or(false));
    let path = line.and_then(|line| line.find('/').map(|start| &line[start..]));
    path.is_some_and(|path| std::path::Path::new(path) == program)
}

fn be_a_chip() -> ! {
    if !stdin_is_a_channel() {
        let text = "ringwork: RINGWORK_CHIP is set, but this process was not started as a chip; unset the variable\n";
        // Nobody is there to return an error to. If standard error is closed, the exit code must do.
        let _ = rustix::io::write(std::io::stderr(), text.as_bytes());
        std::process::exit(EXIT_BOOTSTRAP);
    }
    // What a kernel starts is not a chip.
    if has_one_thread() {
        // SAFETY: there is only this thread, so nobody reads the environment meanwhile.
        unsafe { std::env::remove_var(CHIP_VARIABLE) };
    }
    std::process::exit(match live() {
        Ok(()) => 0,
        Err(()) => EXIT_BOOTSTRAP,
    });
}

fn has_one_thread() -> bool {
    std::fs::read_dir("/proc/self/task").is_ok_and(|threads| threads.count() == 1)
}

fn live() -> std::result::Result<(), ()> {
    let wire = take_stdin().map_err(drop)?;
    let step = RefCell::new(String::from("join"));
    let report = |name: String| {
        *step.borrow_mut() = name.clone();
        wire.send(&Report::Step(name), None)
    };
    let ready = Chip::bring_up(&wire, &report).and_then(|chip| {
        wire.send(&Report::Ready, None)?;
        Ok(chip)
    });
    match ready {
        Ok(mut chip) => chip.serve(&wire).map_err(|error| {
            let (step, message) = ("serve".into(), error.in_full());
            // The host reads it when it notices the end of this process.
            let _ = wire.try_send(&Report::Failed { step, message }, None);
        }),
        Err(error) => {
            let message = error.in_full();
            // If even this cannot be sent, the host is gone or sees the exit code.
            let _ = wire.send(
                &Report::Failed {
                    step: step.take(),
                    message,
                },
                None,
            );
            Err(())
        }
    }
}

/// Whether standard input is a socket of the kind that a host gives its chips.
fn stdin_is_a_channel() -> bool {
    let kind = rustix::net::sockopt::socket_type(std::io::stdin());
    kind == Ok(rustix::net::SocketType::SEQPACKET)
}

/// The bootstrap channel came as standard input; kernels get an empty one.
fn take_stdin() -> Result<Wire> {
    let channel = std::io::stdin()
        .as_fd()
        .try_clone_to_owned()
        .map_err(Error::system("taking the bootstrap channel"))?;
    let null = std::fs::File::open("/dev/null").map_err(Error::system("opening /dev/null"))?;
    rustix::stdio::dup2_stdin(&null).map_err(Error::system("replacing standard input"))?;
    Ok(Wire::from_fd(channel, "the host".into()))
}

/// How a task ended.
type Outcome = std::result::Result<(), Failure>;

struct Chip {
    core: NativeCore,
    inbox: Receiver<MailRing>,
    outbox: Sender<MailRing>,
    bell: Bell,
    patience: Patience,
}

impl Chip {
    fn bring_up(wire: &Wire, report: &dyn Fn(String) -> Result<()>) -> Result<Chip> {
        report("join".into())?;
        let (hello, mailbox_fd) = expect::<Hello>(wire)?;
        join(&hello)?;
        quiet_panics();

        report("map mailbox".into())?;
        let mailbox = Mailbox::open(descriptor(mailbox_fd)?.as_fd(), hello.mailbox_nonce)?;
        let (VERSION, bell_fd) = expect::<u64>(wire)? else {
            return Err(ringwork_isa::Error::corrupt("the bell", "version", "another", VERSION).into());
        };
        let bell = Bell::open(descriptor(bell_fd)?.as_fd())?;

        let patience = Patience {
            spin: Duration::from_nanos(hello.spin_ns),
            yields: hello.yields,
        };
        let waiting = Waiting {
            patience,
            limit: Duration::from_millis(hello.wait_limit_ms),
        };
        let (memory, base) = mailbox.activity();
        let mut core =
            NativeCore::new(hello.device, waiting).with_activity(Activity::new(memory, base, hello.record));
        for _ in 0..hello.segments {
            let (Handover { layout, what }, fd) = expect(wire)?;
            report(format!("map {what}"))?;
            core.attach(Arc::new(Attached::open(descriptor(fd)?, layout)?));
        }
        report("report".into())?;
        let (inbox, outbox) = (mailbox.to_chip("the host"), mailbox.of_chip("the host"));
        Ok(Chip {
            core,
            inbox: Receiver::new(inbox),
            outbox: Sender::new(outbox),
            bell,
            patience,
        })
    }

    fn serve(&mut self, wire: &Wire) -> Result<()> {
        loop {
            let (core, mut taken_up) = (&self.core, None);
            let arriving = || taken_up = core.clock();
            let Some(bytes) = self.inbox.recv(self.patience, None, arriving)? else {
                continue;
            };
            match decode(&bytes, "the host")? {
                Request::Run { task, kernel, args } => {
                    let (outcome, begun) = self.run((task, taken_up), &kernel, &args);
                    self.reply(&Reply::Ran { task, outcome }, begun)?;
                }
                Request::Map { layout } => {
                    if let Err(error) = self.map(wire, layout) {
                        let reply = Reply::NotMapped {
                            segment: layout.segment,
                            message: error.in_full(),
                        };
                        self.reply(&reply, None)?;
                    }
                }
                Request::Unmap { segment } => drop(self.core.detach(segment)),
                Request::Stop => return Ok(()),
            }
        }
    }

    /// Runs a task, which was taken up at a time. One that went well has ended when its answer is given.
    ///
    /// If it fails, the domains it uses are given up before anything else is begun: its partners must not meet this
    /// chip again before they know.
    fn run(&self, task: (u64, Option<u64>), kernel: &KernelId, args: &[Arg]) -> (Outcome, Option<Begun>) {
        if let Some(Alarm { dead, reason }) = self.core.domains(args).find_map(Attached::alarm) {
            let why = match dead {
                Some(rank) => format!("rank {rank} died ({reason})"),
                None => format!("aborted because {reason}"),
            };
            return (Err(Failure::NotBegun { dead, why }), None);
        }
        let entry = match registry::find(kernel) {
            Ok(entry) => entry,
            Err(unknown) => return (self.give_up(unknown.into(), kernel, args), None),
        };
        let (number, at) = task;
        let begun = self.core.begin_task(
            entry,
            Begin {
                core: 0,
                number,
                after: None,
                at,
            },
        );
        match run_kernel(entry, &self.core, args) {
            Ok(()) => (Ok(()), begun),
            Err(failure) => {
                self.core.end_task(begun, true);
                (self.give_up(failure, kernel, args), None)
            }
        }
    }

    /// Gives up the domains that a failed task uses.
    fn give_up(&self, failure: Failure, kernel: &KernelId, args: &[Arg]) -> Outcome {
        let reason = format!("chip {}, kernel `{kernel}` failed: {failure}", self.core.device());
        let alarm = Alarm { dead: None, reason };
        self.core.domains(args).for_each(|domain| domain.raise(&alarm));
        Err(failure)
    }

    fn map(&mut self, wire: &Wire, layout: Layout) -> Result<()> {
        let (handover, fd) = expect::<Handover>(wire)?;
        let attached = Attached::open(descriptor(fd)?, handover.layout)?;
        if handover.layout != layout {
            let (got, wanted) = (handover.layout.segment, layout.segment);
            return Err(ringwork_isa::Error::corrupt("a handed over segment", "segment", got, wanted).into());
        }
        self.core.attach(Arc::new(attached));
        Ok(())
    }

    /// Answers, and ends the task that was begun: while the answer is on its way, so that nobody waits for the record.
    fn reply(&mut self, reply: &Reply, mut begun: Option<Begun>) -> Result<()> {
        let bytes = encode(reply, "the host")?;
        let (core, bell) = (&self.core, &self.bell);
        self.outbox.send(&bytes, self.patience, || {
            bell.strike(|| {
                core.end_task(begun.take(), false);
            });
        })?;
        Ok(())
    }
}

fn run_kernel(entry: &'static KernelEntry, core: &NativeCore, args: &[Arg]) -> Outcome {
    std::panic::catch_unwind(AssertUnwindSafe(|| (entry.run)(core, args)))
        .unwrap_or_else(|_| Err(ringwork_isa::Error::failed("")))
        .map_err(|error| match take_panic() {
            Some((message, site)) => Failure::Panicked {
                message: capped(&message),
                site,
            },
            None => Failure::Returned(error),
        })
}

fn expect<M: serde::de::DeserializeOwned>(wire: &Wire) -> Result<(M, Option<OwnedFd>)> {
    wire.recv(None)?.ok_or_else(|| Error::Gone {
        who: "the host".into(),
        cause: "it closed the bootstrap channel".into(),
    })
}

fn descriptor(fd: Option<OwnedFd>) -> Result<OwnedFd> {
    fd.ok_or_else(|| {
        ringwork_isa::Error::corrupt("a bootstrap message", "descriptor", "missing", "one descriptor").into()
    })
}

/// Ties this process's life to its host's, and gives up what it does not need.
fn join(hello: &Hello) -> Result<()> {
    if hello.version != VERSION {
        let (got, wanted) = (format!("{:#x}", hello.version), format!("{VERSION:#x}"));
        return Err(ringwork_isa::Error::corrupt("the host's hello", "version", got, wanted).into());
    }
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(Error::system("asking to die with the host"))?;
    // The host may have died before the line above took effect.
    let parent = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get().cast_unsigned());
    if parent != Some(hello.host_pid) {
        let cause = "it died while this chip was starting".into();
        return Err(Error::Gone {
            who: "the host".into(),
            cause,
        });
    }
    rustix::thread::set_no_new_privs(true).map_err(Error::system("giving up new privileges"))?;
    // The name that `ps` and `top` show; a comfort, not a need.
    let name = format!("chip {}", hello.device);
    let _ = std::ffi::CString::new(name).map(|name| rustix::thread::set_name(&name));
    Ok(())
}

thread_local! {
    static LAST_PANIC: RefCell<Option<(String, Site)>> = const { RefCell::new(None) };
}

/// Panics of kernels are reported to the host, in full, instead of printed here.
fn quiet_panics() {
    std::panic::set_hook(Box::new(|info| {
        let text = info
            .payload_as_str()
            .unwrap_or("a panic without a message")
            .to_owned();
        let site = info.location().map_or(
            Site {
                file: "unknown".into(),
                line: 0,
            },
            |at| Site {
                file: at.file().to_owned().into(),
                line: at.line(),
            },
        );
        LAST_PANIC.with_borrow_mut(|last| *last = Some((text, site)));
    }));
}

fn take_panic() -> Option<(String, Site)> {
    LAST_PANIC.take()
}

/// The device number of a chip, for names of processes.
pub(crate) fn process_name(device: Device) -> String {
    format!("ringwork-chip-{device}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_of_the_program_is_told_from_code_of_a_library() {
        assert!(is_in_the_program(has_one_thread as *const () as usize));
        let library = std::fs::read_to_string("/proc/self/maps").unwrap();
        let library = library.lines().find(|line| line.contains("libc.so")).unwrap();
        let start = usize::from_str_radix(library.split('-').next().unwrap(), 16).unwrap();
        assert!(!is_in_the_program(start));
        assert!(!is_in_the_program(0));
    }
}
