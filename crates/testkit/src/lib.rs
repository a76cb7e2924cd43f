//! What the tests and benchmarks of several crates share: random numbers, processes, directories, latencies.
//!
//! Depends on no crate of ours, so that every one of them can use it.
#![forbid(unsafe_code)]

mod folder;
pub mod harness;
mod latencies;
pub mod process;
mod rng;

pub use folder::Folder;
pub use latencies::Latencies;
pub use rng::Rng;

/// Whether the long form of the tests is asked for: `RINGWORK_LONG=1`.
#[must_use]
pub fn long() -> bool {
    std::env::var_os("RINGWORK_LONG").is_some_and(|value| value != "0" && !value.is_empty())
}
