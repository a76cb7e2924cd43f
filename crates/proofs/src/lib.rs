//! Proofs of the collectives: every algorithm of the catalogue as a program to be checked, and the mutants of each.
//!
//! It sits on `check` and `collectives` and contains neither an algorithm nor a detector.
//!
//! # Example
//! ```
//! use ringwork_proofs::{Size, workloads};
//!
//! let ring = workloads().into_iter().find(|one| one.name == "all_reduce/ring").unwrap();
//! ring.program(3, 2, Size::Pieces)?.prove().expect_proved();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod deaths;
pub mod mutants;
mod workloads;

pub use deaths::{Death, Told};
pub use workloads::{MOST_CALLS, Size, Workload, workloads};
