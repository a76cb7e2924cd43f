//! Algorithms for networks, on simulated machines: their data, and their times against closed forms and published
//! points.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod ancestor;
mod domain;
mod goals;
mod networks;
