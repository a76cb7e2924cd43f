//! The simulated platform.
#![forbid(unsafe_code)]

mod net;
mod queue;
mod time;

pub use net::*;
pub use queue::EventQueue;
pub use time::{PS_PER_SECOND, Ps, Rate, ShowPs};
