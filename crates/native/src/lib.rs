//! One host: sealed shared memory, signals, mailboxes, chip processes.
extern crate self as ringwork;
mod activity;
mod arith;
pub mod cell;
pub mod channel;
mod core;
mod error;
pub mod memory;
pub mod registry;
pub mod segment;
mod sync;
pub use activity::LastSeen;
pub use core::{NativeCore, Waiting};
pub use error::{Error, Result};

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
