//! The simulated platform.
#![forbid(unsafe_code)]

mod machine;
mod net;
mod queue;
mod time;
pub mod timeline;
mod topology;

pub use machine::{Machine, Options, Outcome, SegmentSpec, SimCore, SimError, Stuck, StuckOn, TaskId};
pub use net::*;
pub use queue::EventQueue;
pub use time::{PS_PER_SECOND, Ps, Rate, ShowPs};
pub use topology::*;
