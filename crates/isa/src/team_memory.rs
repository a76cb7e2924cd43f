//! The memory of a team, as one argument of a kernel.

use crate::{Signals, Span};
use serde::{Deserialize, Serialize};

/// The memory that the members of a domain share for their collectives: cells and data, which the crate `collectives`
/// divides up. It is one argument of a kernel, so that submitting a collective takes one line.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TeamMemory {
    /// Its signal cells.
    pub cells: Signals,
    /// Its data.
    pub data: Span,
    /// What it is divided up into.
    pub parts: TeamParts,
}

/// What the memory of a team is divided up into.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TeamParts {
    /// So many words of packets, and scratch behind them.
    Scratch {
        /// 64-bit words; 0 if there are no packets.
        packet_words: u64,
    },
    /// Queues between neighbours.
    Queues {
        /// Ports of each member.
        ports: u32,
        /// Slots of each queue.
        depth: u32,
        /// The sides of the grid that the members form, innermost first, and zeros behind the last.
        grid: [u32; MAX_GRID_SIDES],
    },
}

/// The most sides of a grid that a team can have.
pub const MAX_GRID_SIDES: usize = 4;
