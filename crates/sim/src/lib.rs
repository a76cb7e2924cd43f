//! The simulated platform.
#![forbid(unsafe_code)]

mod net;
mod queue;
mod time;
mod topology;

pub use net::*;
pub use queue::EventQueue;
pub use time::{PS_PER_SECOND, Ps, Rate, ShowPs};
pub use topology::*;
