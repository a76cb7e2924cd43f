//! The memory that an algorithm needs of a domain: how much, where it lies in the window, and the handles to it.
//!
//! ```
//! use ringwork_collectives::catalogue;
//! use ringwork_collectives::domain::Demand;
//! use ringwork_isa::{Collective, Dtype, Rank, Segment};
//! use ringwork_layout::WindowBuilder;
//!
//! let entry = catalogue::named(Collective::AllReduce, "packet").unwrap();
//! let mut window = WindowBuilder::default();
//! let places = Demand::new(4, Dtype::F32, 1024).declare(entry, &mut window)?;
//! let layout = window.layout(Segment(1), 4)?;
//! let resources = places.bind(&layout, Rank(2))?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use crate::catalogue::{Entry, Needs, Resources};
use crate::{Team, network};
use ringwork_isa::{Algorithm, Barrier, Dtype, Queues, Rank, Region, Result};
use ringwork_layout::{BufferPlace, CellRow, Layout, LayoutError, WindowBuilder};

/// What a call is about, as far as it decides how much memory an algorithm needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Demand {
    /// Members of the domain.
    pub ranks: u32,
    /// Type of the elements.
    pub dtype: Dtype,
    /// The size of the largest call, in elements.
    pub elements: usize,
    /// The sides of the grid that the members form; their number if they form none.
    pub grid: Vec<u32>,
    /// Bytes of scratch, instead of as much as everything takes at once.
    pub scratch_bytes: Option<u64>,
    /// Slots of each queue, instead of as many as let the algorithm go on without waiting for credits.
    pub slots: Option<u32>,
    /// Bytes of a slot, instead of as many as the longest message has.
    pub slot_bytes: Option<u64>,
    /// The most bytes for queues, if slots are not said to be of some size.
    pub room_bytes: u64,
}

/// Where the memory of an algorithm lies in every window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Places {
    /// Of a [`Team`].
    Team {
        /// The barrier's counter.
        meet: CellRow,
        /// The step counters.
        steps: CellRow,
        /// The scratch.
        scratch: BufferPlace,
        /// The packets, if there are any.
        packets: Option<BufferPlace>,
    },
    /// Of queues between neighbours.
    Queues {
        /// Their signals.
        cells: CellRow,
        /// Their slots.
        slots: BufferPlace,
        /// Ports of each member.
        ports: u32,
        /// Slots of each queue.
        depth: u32,
    },
}

/// The least and the most bytes of payload in a packet, and in all of a rank's packets to the others.
const LEAST_PACKET_BYTES: usize = 1 << 10;
const MOST_PACKET_BYTES: usize = 4 << 10;
const PACKETS_BYTES: usize = 32 << 10;

/// Bytes of payload in each packet of a team of `ranks`.
#[must_use]
pub fn packet_bytes(ranks: u32) -> usize {
    let each = PACKETS_BYTES / (ranks.max(1) as usize).next_power_of_two();
    each.clamp(LEAST_PACKET_BYTES, MOST_PACKET_BYTES)
}

impl Demand {
    /// For calls of at most `elements`; the rest is chosen so that everything goes at once.
    #[must_use]
    pub fn new(ranks: u32, dtype: Dtype, elements: usize) -> Demand {
        Demand {
            ranks,
            dtype,
            elements,
            grid: vec![ranks],
            scratch_bytes: None,
            slots: None,
            slot_bytes: None,
            room_bytes: u64::MAX,
        }
    }

    /// Adds to a window what an entry needs.
    ///
    /// # Errors
    /// If it is too much for a window.
    pub fn declare(
        &self,
        entry: &Entry,
        window: &mut WindowBuilder,
    ) -> std::result::Result<Places, LayoutError> {
        match entry.needs {
            Needs::Queues => self.declare_queues(entry.algorithm, window),
            needs => self.declare_team(needs, window),
        }
    }

    fn declare_team(
        &self,
        needs: Needs,
        window: &mut WindowBuilder,
    ) -> std::result::Result<Places, LayoutError> {
        let (meet, steps) = (window.row(1)?, window.row(Team::STEP_CELLS)?);
        let packets = match needs {
            Needs::Packets => {
                let words = Team::packet_words(self.ranks as usize, packet_bytes(self.ranks));
                Some(window.buffer(Dtype::I64, words)?)
            }
            _ => None,
        };
        let size = self.dtype.bytes();
        let least = 2 * self.ranks as usize;
        let scratch = match (needs, self.scratch_bytes) {
            (Needs::Scratch, None) => self.elements.saturating_mul(2).max(least),
            (Needs::Scratch, Some(bytes)) => (usize::try_from(bytes).unwrap_or(usize::MAX) / size).max(least),
            _ => least,
        };
        let scratch = window.buffer(self.dtype, scratch)?;
        Ok(Places::Team {
            meet,
            steps,
            scratch,
            packets,
        })
    }

    fn declare_queues(
        &self,
        algorithm: Algorithm,
        window: &mut WindowBuilder,
    ) -> std::result::Result<Places, LayoutError> {
        let ports = network::ports(algorithm, &self.grid);
        let depth = self.slots.unwrap_or(network::usual_slots(algorithm));
        let count = u64::from(ports).saturating_mul(depth.into());
        let size = self.dtype.bytes();
        let slot_bytes = self.slot_bytes.unwrap_or_else(|| {
            let longest = network::longest_message(algorithm, &self.grid, self.elements, size);
            (self.room_bytes / count.max(1)).min(longest.saturating_mul(size) as u64)
        });
        let slot_len = (usize::try_from(slot_bytes).unwrap_or(usize::MAX) / size).max(1);
        let cells = window.row(Queues::cells(ports, depth))?;
        let elements = usize::try_from(count)
            .unwrap_or(usize::MAX)
            .saturating_mul(slot_len);
        let slots = window.buffer(self.dtype, elements)?;
        Ok(Places::Queues {
            cells,
            slots,
            ports,
            depth,
        })
    }
}

impl Places {
    /// The handles of member `me` in windows that were laid out so.
    ///
    /// # Errors
    /// If queues cannot be of that depth.
    pub fn bind(&self, layout: &Layout, me: Rank) -> Result<Resources> {
        match *self {
            Places::Team {
                meet,
                steps,
                scratch,
                packets,
            } => {
                let meet = Barrier::new(layout.signals(me, meet));
                let scratch = Region::of_span(layout.span(me, scratch));
                let team = Team::new(scratch, meet, layout.signals(me, steps))?;
                Ok(Resources::Team(match packets {
                    Some(packets) => team.with_packets(layout.region(me, packets))?,
                    None => team,
                }))
            }
            Places::Queues {
                cells,
                slots,
                ports,
                depth,
            } => {
                let slots = Region::of_span(layout.span(me, slots));
                let queues = Queues::new(slots, layout.signals(me, cells), ports, depth)?;
                Ok(Resources::Queues(queues))
            }
        }
    }
}
