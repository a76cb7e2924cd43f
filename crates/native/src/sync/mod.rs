//! Waiting and waking between processes: atomics and futexes, the signal cell, and rings of messages.
//!
//! `README.md` in this folder describes the states of a waiter, the race between them, and the numbers that decide.

mod backoff;
pub mod cell;
pub mod channel;
pub mod flag;
pub(crate) mod primitive;
