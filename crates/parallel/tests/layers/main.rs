//! All layers, forward and backward, over every kind of group, against a dense reference in f64.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    missing_docs,
    unreachable_pub,
    reason = "a test that panics has failed"
)]

mod chips;
mod model;
mod ranks;
mod reference;
mod refusals;
