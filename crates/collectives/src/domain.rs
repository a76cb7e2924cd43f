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

use crate::Team;
use crate::catalogue::{self, Call, Entry, Needs, Resources};
use crate::network::{self, Outline};
use ringwork_isa::{
    Algorithm, Barrier, Collective, Core, Dtype, Error, In, MAX_GRID_SIDES, MAX_RANKS, Out, Queues, Rank,
    ReduceOp, Region, Result, SIGNAL_STRIDE_BYTES, Shared, Signals, Span, TeamMemory, TeamParts,
};
use ringwork_layout::{BufferPlace, CellRow, Layout, LayoutError, WindowBuilder};

/// The facts of a call that decide how much memory an algorithm needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Demand {
    /// Members of the domain.
    pub ranks: u32,
    /// Type of the elements.
    pub dtype: Dtype,
    /// The size of the largest call, in elements.
    pub elements: usize,
    /// The sides of the grid that the members form; if they form no grid, their number.
    pub grid: Vec<u32>,
    /// Bytes of scratch. The default stages everything at once.
    pub scratch_bytes: Option<u64>,
    /// Slots of each queue. The default lets the algorithm run without waiting for credits.
    pub slots: Option<u32>,
    /// Bytes of a slot. The default is the length of the longest message.
    pub slot_bytes: Option<u64>,
    /// The most bytes for queues, if the slot size is not given.
    pub room_bytes: u64,
    /// The bytes that a link carries in the time of its latency: what pieces are cut by, if the slot size is not given.
    pub latency_bytes: u64,
    /// What goes along each side of the grid, for algorithms that go side by side.
    pub by_side: Vec<Algorithm>,
}

/// Where the memory of a team lies in every window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Places {
    cells: CellRow,
    data: BufferPlace,
    parts: TeamParts,
}

/// The least and the most payload bytes of a packet, and the most of all packets of a rank.
const LEAST_PACKET_BYTES: usize = 1 << 10;
const MOST_PACKET_BYTES: usize = 4 << 10;
const PACKETS_BYTES: usize = 32 << 10;
/// A slot of fewer bytes would carry more signals than data.
const LEAST_SLOT_BYTES: usize = 256;
/// What fits the caches of a host: the pieces that are cut where no links are known.
const USUAL_LATENCY_BYTES: u64 = 256 << 10;

/// Payload bytes of each packet in a team of `ranks`.
#[must_use]
pub fn packet_bytes(ranks: u32) -> usize {
    let each = PACKETS_BYTES / (ranks.max(1) as usize).next_power_of_two();
    each.clamp(LEAST_PACKET_BYTES, MOST_PACKET_BYTES)
}

impl Demand {
    /// For calls of at most `elements`; the defaults stage everything at once.
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
            latency_bytes: USUAL_LATENCY_BYTES,
            by_side: Vec::new(),
        }
    }

    /// Adds the memory that an entry needs to a window.
    ///
    /// # Errors
    /// If it is too much for a window.
    pub fn declare(&self, entry: &Entry, window: &mut WindowBuilder) -> Declared {
        match entry.needs {
            Needs::Queues => self.declare_queues(entry, window),
            Needs::Packets => self.declare_team(self.least_scratch(), true, window),
            Needs::Scratch => self.declare_team(self.scratch(), false, window),
            Needs::Window => self.declare_team(self.least_scratch(), false, window),
        }
    }

    /// Adds the memory that all algorithms without queues need to a window.
    ///
    /// # Errors
    /// As [`declare`](Demand::declare).
    pub fn declare_all(&self, window: &mut WindowBuilder) -> Declared {
        self.declare_team(self.scratch(), self.ranks <= MAX_RANKS, window)
    }

    /// The least bytes of scratch that an algorithm can work with. Less is rounded up to it.
    #[must_use]
    pub fn least_scratch_bytes(&self) -> u64 {
        (self.least_scratch() * self.dtype.bytes()) as u64
    }

    /// The fewest elements of scratch for any operation: one for each member in both halves.
    fn least_scratch(&self) -> usize {
        2 * self.ranks as usize
    }

    fn scratch(&self) -> usize {
        let elements = match self.scratch_bytes {
            None => self.elements.saturating_mul(2),
            Some(bytes) => usize::try_from(bytes).unwrap_or(usize::MAX) / self.dtype.bytes(),
        };
        elements.max(self.least_scratch())
    }

    fn declare_team(&self, scratch: usize, packets: bool, window: &mut WindowBuilder) -> Declared {
        let words = match packets {
            true => Team::packet_words(self.ranks as usize, packet_bytes(self.ranks)),
            false => 0,
        };
        // Packets are whole cache lines, so they hold whole elements of every type.
        let packets = words * size_of::<i64>() / self.dtype.bytes();
        Ok(Places {
            cells: window.row(1 + Team::STEP_CELLS)?,
            data: window.buffer(self.dtype, packets.saturating_add(scratch))?,
            parts: TeamParts::Scratch {
                packet_words: words as u64,
            },
        })
    }

    fn declare_queues(&self, entry: &Entry, window: &mut WindowBuilder) -> Declared {
        let Entry {
            collective,
            algorithm,
            ..
        } = *entry;
        let outline = Outline::new(collective, algorithm, self.ranks, &self.grid, &self.by_side);
        let ports = outline.ports;
        let depth = self
            .slots
            .unwrap_or_else(|| network::usual_slots(algorithm, &outline));
        let count = u64::from(ports).saturating_mul(depth.into());
        let size = self.dtype.bytes();
        let slot_bytes = self.slot_bytes.unwrap_or_else(|| {
            let longest = match algorithm {
                Algorithm::Centre => self.elements,
                _ => network::usual_message(&outline, self.elements, size, self.latency_bytes),
            };
            let wanted = longest.saturating_mul(size).max(LEAST_SLOT_BYTES);
            (self.room_bytes / count.max(1)).min(wanted as u64)
        });
        let slot_len = (usize::try_from(slot_bytes).unwrap_or(usize::MAX) / size).max(1);
        let elements = usize::try_from(count)
            .unwrap_or(usize::MAX)
            .saturating_mul(slot_len);
        let mut grid = [0; MAX_GRID_SIDES];
        for (side, given) in grid.iter_mut().zip(&self.grid) {
            *side = *given;
        }
        Ok(Places {
            cells: window.row(Queues::cells(ports, depth))?,
            data: window.buffer(self.dtype, elements)?,
            parts: TeamParts::Queues { ports, depth, grid },
        })
    }
}

/// The result of declaring memory.
type Declared = std::result::Result<Places, LayoutError>;

impl Places {
    /// The memory of member `me` in windows with this layout: the argument of a kernel.
    #[must_use]
    pub fn memory(&self, layout: &Layout, me: Rank) -> TeamMemory {
        TeamMemory {
            cells: layout.signals(me, self.cells),
            data: layout.span(me, self.data),
            parts: self.parts,
        }
    }

    /// The handles of member `me` in windows with this layout.
    ///
    /// # Errors
    /// If queues cannot be of that depth.
    pub fn bind(&self, layout: &Layout, me: Rank) -> Result<Resources> {
        resources(self.memory(layout, me))
    }
}

/// The handles to the memory of a team.
///
/// # Errors
/// If there are fewer cells or less data than its parts need.
#[track_caller]
pub fn resources(memory: TeamMemory) -> Result<Resources> {
    let TeamMemory { cells, data, parts } = memory;
    match parts {
        TeamParts::Queues { ports, depth, .. } => {
            Queues::new(Region::of_span(data), cells, ports, depth).map(Resources::Queues)
        }
        TeamParts::Scratch { packet_words } => team(cells, data, packet_words).map(Resources::Team),
    }
}

#[track_caller]
fn team(cells: Signals, data: Span, packet_words: u64) -> Result<Team> {
    let packets = packet_words.saturating_mul(size_of::<i64>() as u64) / data.dtype.bytes() as u64;
    let Some(scratch) = data.len.checked_sub(packets).filter(|_| cells.count > 0) else {
        return Err(Error::failed("a team's memory is smaller than its parts"));
    };
    let scratch: Shared = Region::of_span(Span {
        start: data.start + packets,
        len: scratch,
        ..data
    });
    let steps = Signals {
        base: cells.base + SIGNAL_STRIDE_BYTES,
        count: cells.count - 1,
        ..cells
    };
    let team = Team::new(scratch, Barrier::new(Signals { count: 1, ..cells }), steps)?;
    if packet_words == 0 {
        return Ok(team);
    }
    let packets: Shared = Region::of_span(Span { len: packets, ..data });
    team.with_packets(packets.viewed_as(Dtype::I64).typed()?)
}

/// Runs one member's part of a collective in the memory of its team: the body of a submitted kernel.
///
/// # Errors
/// If the collective has no such algorithm; else as [`catalogue::run`].
pub async fn run_in<C: Core>(
    core: &C,
    memory: TeamMemory,
    (collective, algorithm): (Collective, Algorithm),
    (x, y): (In, Out),
    op: ReduceOp,
    root: Rank,
) -> Result<()> {
    let entry = catalogue::find(collective, algorithm)
        .ok_or_else(|| Error::failed(format!("{collective} has no algorithm `{algorithm}`")))?;
    entry.reduces_by(op, x.dtype()).map_err(Error::failed)?;
    let (ranks, mut grid) = (memory.data.ranks, [0; MAX_GRID_SIDES]);
    if let TeamParts::Queues { grid: sides, .. } = memory.parts {
        grid = sides;
    }
    let sides = grid.iter().take_while(|side| **side > 0).count();
    let call = Call {
        x,
        y,
        op,
        root,
        workers: ranks,
        grid: &grid[..sides],
        by_side: &[],
    };
    catalogue::run(core, entry, resources(memory)?, call).await
}
