//! Processes, and what they say to each other.
//!
//! There are two kinds of program. In the first a host program starts its chips and sends them tasks: the host's side
//! is [`chip_processes`], the chip's side is [`chip`]. In the second every rank runs the same program: [`ranks`] starts
//! them, and in [`spmd`] they meet.

pub(crate) mod bootstrap_socket;
pub(crate) mod bring_up;
pub mod chip;
pub(crate) mod chip_processes;
pub(crate) mod death_watch;
pub(crate) mod file_size_limit;
pub(crate) mod mailbox;
pub mod ranks;
pub mod spmd;
pub(crate) mod stopped;
