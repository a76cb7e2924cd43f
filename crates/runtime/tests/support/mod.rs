//! What the fault tests and the long kill storm share: processes, all-reduces to interrupt, latencies.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::unwrap_used,
    reason = "shared by a test and a benchmark, which both print and use different parts of it"
)]

pub mod bring_up;
pub mod roles;
pub mod storm;
pub mod team;
