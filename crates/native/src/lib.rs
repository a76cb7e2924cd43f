//! One host: sealed shared memory, signals, mailboxes, chip processes.
mod arith;
pub mod cell;
pub mod channel;
mod error;
pub mod memory;
pub mod segment;
mod sync;
pub use error::{Error, Result};
