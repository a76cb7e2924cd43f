//! Workers, domains and orchestration.
#![forbid(unsafe_code)]

pub mod engine;
