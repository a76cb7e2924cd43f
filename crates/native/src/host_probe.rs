//! What this host offers to the native platform: each part is tried, not guessed.

use crate::memory::{Memory, available_bytes, create_sealed};
use crate::sync::primitive::Futex;
use rustix::process::{PidfdFlags, Resource, getrlimit};
use std::time::Duration;

/// One thing that was looked at.
#[derive(Clone, Debug)]
pub struct Finding {
    /// What was looked at.
    pub name: &'static str,
    /// How it is, in words.
    pub value: String,
    /// What that means.
    pub verdict: Verdict,
}

/// What a finding means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// As it should be.
    Fine,
    /// Worth knowing.
    Note,
    /// Nothing runs without it.
    Missing,
}

/// Tries everything that the native platform is built on.
#[must_use]
pub fn probe() -> Vec<Finding> {
    vec![
        kernel(),
        cores(),
        vector(),
        memory(),
        sealed_memory(),
        pidfd(),
        parent_death(),
        futex(),
        executable(),
        files(),
        processes(),
    ]
}

fn finding(name: &'static str, verdict: Verdict, value: impl Into<String>) -> Finding {
    Finding {
        name,
        value: value.into(),
        verdict,
    }
}

fn tried<T, E: std::fmt::Display>(name: &'static str, outcome: Result<T, E>, fine: &str) -> Finding {
    match outcome {
        Ok(_) => finding(name, Verdict::Fine, fine),
        Err(error) => finding(name, Verdict::Missing, error.to_string()),
    }
}

/// Whether a process can ask to die with its parent: asks for what it has already.
fn parent_death() -> Finding {
    let asked = rustix::process::parent_process_death_signal()
        .and_then(rustix::process::set_parent_process_death_signal);
    tried(
        "prctl",
        asked,
        "chips and ranks end with the process that started them",
    )
}

fn kernel() -> Finding {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    finding(
        "kernel",
        Verdict::Fine,
        format!("{} {}", std::env::consts::OS, release.trim()),
    )
}

fn cores() -> Finding {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let value = format!("{cores} for this process; more chips than that share them and yield");
    finding(
        "cores",
        if cores > 1 { Verdict::Fine } else { Verdict::Note },
        value,
    )
}

#[cfg(target_arch = "x86_64")]
fn vector() -> Finding {
    let features = [
        ("avx2", is_x86_feature_detected!("avx2")),
        ("f16c", is_x86_feature_detected!("f16c")),
        ("avx512f", is_x86_feature_detected!("avx512f")),
        ("avx512bw", is_x86_feature_detected!("avx512bw")),
    ];
    let have: Vec<&str> = features
        .iter()
        .filter(|(_, have)| *have)
        .map(|(name, _)| *name)
        .collect();
    let verdict = if features[0].1 {
        Verdict::Fine
    } else {
        Verdict::Note
    };
    finding(
        "vector units",
        verdict,
        if have.is_empty() {
            "none known; sums are slow".into()
        } else {
            have.join(", ")
        },
    )
}

#[cfg(not(target_arch = "x86_64"))]
fn vector() -> Finding {
    finding("vector units", Verdict::Note, std::env::consts::ARCH)
}

fn memory() -> Finding {
    let free = available_bytes();
    let verdict = if free >= 64 << 20 {
        Verdict::Fine
    } else {
        Verdict::Missing
    };
    finding(
        "memory",
        verdict,
        format!(
            "{:.1} GiB free for windows and tensors",
            free as f64 / (1u64 << 30) as f64
        ),
    )
}

fn sealed_memory() -> Finding {
    let outcome = create_sealed("a probe", 4096).and_then(|fd| Memory::map(&fd, 4096));
    tried(
        "sealed memory",
        outcome,
        "memfd with seals works; nothing is ever named in /dev/shm",
    )
}

fn pidfd() -> Finding {
    let outcome = rustix::process::pidfd_open(rustix::process::getpid(), PidfdFlags::empty());
    tried("pidfd", outcome, "deaths are noticed at once")
}

fn futex() -> Finding {
    let futex = Futex::default();
    // With another value than the word has, a working futex returns without sleeping.
    let start = std::time::Instant::now();
    futex.park(futex.ticket().wrapping_add(1), Duration::from_secs(1));
    let works = start.elapsed() < Duration::from_millis(500);
    let (verdict, value) = if works {
        (Verdict::Fine, "waiters can sleep")
    } else {
        (Verdict::Missing, "it sleeps when it must not")
    };
    finding("futex", verdict, value)
}

fn executable() -> Finding {
    tried(
        "own program",
        std::fs::File::open("/proc/self/exe"),
        "chips are this program, started again",
    )
}

fn files() -> Finding {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let verdict = if limit >= 256 {
        Verdict::Fine
    } else {
        Verdict::Note
    };
    finding(
        "open files",
        verdict,
        format!("{limit} allowed; a chip takes 4 and each window or tensor 1"),
    )
}

fn processes() -> Finding {
    let value = match getrlimit(Resource::Nproc).current {
        Some(limit) => format!("{limit} allowed"),
        None => "as many as you like".into(),
    };
    finding("processes", Verdict::Fine, value)
}
