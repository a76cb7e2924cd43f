//! All unsafe code of this crate: memory and the lock of the interpreter, and the addresses that torch gives.
//!
//! The rest of the crate denies `unsafe_code`. The invariants PY-1 to PY-4 are those of the crate.
#![allow(unsafe_code)]

mod addresses;
pub(crate) mod arrays;
pub(crate) mod dlpack;
mod export;
pub(crate) mod forks;
pub(crate) mod lock;
