//! One host: sealed shared memory, signals, mailboxes, chip processes, and `NativeCore`.
//!
//! The layer above `isa`, and the only one with unsafe code. It contains no policy: what runs where
//! and in which order is decided above. `docs/safety.md` says how shared memory is kept from breaking
//! Rust's rules.

pub mod arith;
mod config_file;
mod core;
mod cpu_tuning;
mod error;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
pub mod host_probe;
pub mod memory;
mod process;
mod sync;
pub mod trace;

pub use config_file::{MAX_CONFIG_BYTES, read_config_file};
pub use core::{
    LentBytes, LentBytesMut, LongWaitObserver, NativeCore, Neighbours, SCRATCH, WaitObserver, Waiting,
};
pub use error::{Error, Result};
#[doc(no_inline)]
pub use memory::segment;
pub use process::chip_processes::{ChipProcesses, Event, InitialSegment, Interrupter, Launch, Waiter};
pub use process::death_watch::{End, Members, Program};
pub use process::file_size_limit::fail_beyond_file_size_limit;
pub use process::mailbox::Failure;
pub use process::stopped::is_stopped;
pub use process::{chip, ranks, spmd};
pub use sync::{cell, channel, flag};

/// What the code written by `#[kernel]` refers to: the registry, and the type of core that kernels run on.
#[doc(hidden)]
pub mod __kernel {
    pub use crate::core::NativeCore;
    pub use ringwork_registry::__kernel::*;
}
