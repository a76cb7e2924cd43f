//! What a machine promises beyond its times: data, failures, resources, invariants, and the same trace every time.

#[path = "../common/mod.rs"]
mod common;

mod arrivals;
mod data;
mod failures;
mod invariants;
mod resources;
mod same;
