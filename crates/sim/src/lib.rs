#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod bound;
mod compute;
mod machine;
mod net;
mod picture;
mod queue;
mod show;
mod time;
mod topology;

pub use bound::{BelowBound, Bound, lower_bound};
pub use compute::{Systolic, roofline_ps};
pub use machine::{Machine, Options, Outcome, SegmentSpec, SimCore, SimError, Stuck, StuckOn, TaskId};
pub use net::{
    Attach, ExplicitLink, Fabric, Flow, Level, LinkClass, MAX_LINKS, MAX_PLACES, MAX_PROTOCOLS, Network,
    Protocol, Sent, Shape, Step, Switching,
};
pub use queue::EventQueue;
pub use ringwork_timeline as timeline;
pub use ringwork_timeline::ShowPs;
pub use ringwork_yaml as yaml;
pub use time::{PS_PER_SECOND, Ps, Rate};
pub use topology::{Chip, Dma, Impossible, Memory, PRESETS, Queues, Topology, Unit, preset_yaml};
