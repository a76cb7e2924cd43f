//! Communicators among real processes.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::print_stdout,
    missing_docs,
    unreachable_pub,
    reason = "a test that panics has failed"
)]

mod basics;
mod choosing;
mod faults;
mod kill_storm;
mod matrix;
mod over_hosts;
mod pending;
mod raw;
mod refusals;
mod sequences;
mod spmd;
mod values;
