//! Networks: what links there are, which way bytes go, and when they get there.

mod dim;
mod fabric;
mod flow;
mod protocol;
mod route;
mod shape;
#[cfg(test)]
mod tests;

pub(crate) use fabric::Router;
pub use fabric::{ExplicitLink, Fabric, MAX_LINKS, MAX_PLACES};
pub use flow::{Flow, Network, Sent, Step, Switching};
pub use protocol::{LinkClass, MAX_PROTOCOLS, Protocol};
pub(crate) use route::latencies_from;
pub use shape::{Attach, Level, Shape};
