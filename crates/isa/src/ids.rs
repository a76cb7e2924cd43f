//! Small numbers with a meaning: device, rank, level, segment.

use serde::{Deserialize, Serialize};
use std::fmt;

/// The most ranks a domain may have.
pub const MAX_RANKS: u32 = 64;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        pub struct $name(pub u32);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id! {
    /// Which accelerator of a host: the number given to `-d`.
    Device
}
id! {
    /// A member's place in a domain: dense, from 0, in the order the members were given.
    Rank
}
id! {
    /// A piece of memory that was mapped as a whole: a domain's windows, or one allocation on a chip.
    Segment
}

/// Where a worker sits in the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Level {
    /// One core of a die.
    Core = 0,
    /// One die of a chip.
    Die = 1,
    /// One accelerator.
    Chip = 2,
    /// The chips of one host.
    Node = 3,
    /// Nodes that share a rack's network.
    Pod = 4,
    /// Pods behind one fabric.
    Supernode = 5,
    /// Everything.
    Cluster = 6,
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Level::Core => "core",
            Level::Die => "die",
            Level::Chip => "chip",
            Level::Node => "node",
            Level::Pod => "pod",
            Level::Supernode => "supernode",
            Level::Cluster => "cluster",
        };
        write!(f, "{name} (level {})", *self as u8)
    }
}
