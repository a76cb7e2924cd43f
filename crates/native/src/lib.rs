//! One host: sealed shared memory, signals, mailboxes, chip processes.

pub mod arith;
