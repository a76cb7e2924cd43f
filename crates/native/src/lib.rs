//! One host: sealed shared memory, signals, mailboxes, chip processes, and `NativeCore`.
//!
//! The second layer of ringwork, and the only one with unsafe code. It contains no policy: what runs where
//! and in which order is decided above. `docs/safety.md` says how shared memory is kept from breaking
//! Rust's rules.

// The code that `#[kernel]` writes says `::ringwork`, here as everywhere.
extern crate self as ringwork;

mod activity;
pub mod arith;
mod bring_up;
pub mod cell;
pub mod channel;
mod chip;
mod core;
mod error;
mod fleet;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod mailbox;
pub mod memory;
pub mod peers;
pub mod probe;
mod processor;
pub mod ranks;
pub mod record;
pub mod registry;
pub mod segment;
mod sync;
mod texts;
pub mod ticks;
mod watch;
mod wire;

pub use activity::{Begin, Begun, LastSeen};
pub use core::{NativeCore, Neighbours, SCRATCH, Waiting};
pub use error::{Error, Result};
pub use fleet::{Event, Fleet, InitialSegment, Interrupter, Launch, Waiter};
pub use mailbox::Failure;
pub use watch::{End, Members, Program};

/// What the code written by `#[kernel]` refers to.
#[doc(hidden)]
pub mod __kernel {
    pub use crate::core::NativeCore;
    pub use crate::registry::{KERNELS, KernelEntry, SteppedKernel, dtype_of};
    pub use linkme;
    pub use ringwork_isa::stepped::SteppedCore;
    pub use ringwork_isa::{
        Arg, Argument, Element, KernelId, Param, Parameter, Result, Task, decode, signature_hash, with_dtype,
    };
}
