//! Queues between neighbours for one call: how many, of which size, in which memory, and the kernel over them.

use super::call::Call;
use super::way::Way;
use ringwork::collectives::network::{self, NetworkAlgorithm};
use ringwork::isa::{Element, In, Out, Queues, Rank, ReduceOp, Result, Segment, Shared, Signals, Span};
use ringwork::registry::SteppedKernel;
use ringwork::sim::{SegmentSpec, SimCore, Topology};
use std::rc::Rc;

const SLOTS: Segment = Segment(2);
const CELL_BYTES: u64 = ringwork::isa::SIGNAL_STRIDE_BYTES;

/// A tree cuts its half of the data into so many pieces, enough for its levels to overlap, if they are of so many bytes
/// at least, and slots are not said to be of some size.
const TREE_PIECES: usize = 32;
const TREE_PIECE_BYTES: usize = 16 << 10;

/// What is said of queues; the rest is chosen so that everything goes at once, if the memory has room for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct QueueSettings {
    /// Slots of a queue.
    pub(crate) slots: Option<u32>,
    /// Bytes of a slot.
    pub(crate) slot: Option<u64>,
    /// The memory they are in, by number.
    pub(crate) memory: Option<usize>,
}

/// The queues of every rank: first their signals, then their slots.
pub(super) struct Neighbours {
    algorithm: NetworkAlgorithm,
    sizes: Rc<[u32]>,
    ranks: u32,
    ports: u32,
    depth: u32,
    slot_len: usize,
    memory: usize,
    element_bytes: usize,
}

impl Neighbours {
    /// Queues for a call whose data takes so many bytes on every rank.
    ///
    /// # Errors
    /// If the algorithm cannot be done with these ranks.
    pub(super) fn new(
        call: &Call,
        algorithm: NetworkAlgorithm,
        topology: &Topology,
        data_bytes: u64,
    ) -> std::result::Result<Neighbours, String> {
        let sizes = Way::Queues(algorithm).grid(topology, call.ranks)?;
        let of_chip = topology.chip.queues.as_ref().map_or(0, |queues| queues.memory);
        let memory = call.queues.memory.unwrap_or(of_chip);
        let mut queues = Neighbours {
            algorithm,
            ranks: call.ranks,
            ports: algorithm.ports(&sizes),
            depth: call.queues.slots.unwrap_or(usual_slots(algorithm)),
            slot_len: 1,
            memory,
            element_bytes: call.dtype.bytes(),
            sizes: sizes.into(),
        };
        let data_bytes = if memory == call.memory { data_bytes } else { 0 };
        let capacity = topology
            .chip
            .memories
            .get(memory)
            .map_or(u64::MAX, |memory| memory.capacity);
        let room = capacity.saturating_sub(data_bytes.saturating_add(queues.cells_bytes() + CELL_BYTES));
        let bytes = call.queues.slot.unwrap_or_else(|| {
            let longest = longest_message(algorithm, &queues.sizes, call.bytes / queues.element_bytes);
            let longest = match algorithm {
                NetworkAlgorithm::DoubleTree => piece(longest, queues.element_bytes),
                _ => longest,
            };
            let fits = room / (u64::from(queues.ports) * u64::from(queues.depth));
            fits.min((longest * queues.element_bytes) as u64)
        });
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        queues.slot_len = (bytes / queues.element_bytes).max(1);
        Ok(queues)
    }

    fn cells(&self) -> u32 {
        self.ports.saturating_mul(3 * self.depth + 2)
    }

    fn elements(&self) -> usize {
        (self.ports as usize * self.depth as usize).saturating_mul(self.slot_len)
    }

    fn cells_bytes(&self) -> u64 {
        u64::from(self.cells()) * CELL_BYTES
    }

    fn stride(&self) -> u64 {
        let slots = (self.elements() as u64).saturating_mul(self.element_bytes as u64);
        let slots = slots.div_ceil(CELL_BYTES).saturating_mul(CELL_BYTES);
        self.cells_bytes().saturating_add(slots)
    }

    pub(super) fn spec(&self) -> SegmentSpec {
        SegmentSpec {
            segment: SLOTS,
            members: (0..self.ranks).collect(),
            bytes: self.stride().saturating_mul(u64::from(self.ranks)),
            memory: self.memory,
        }
    }

    fn queues<T: Element>(&self, me: u32) -> Result<Queues> {
        let stride = self.stride();
        let cells = Signals {
            segment: SLOTS,
            base: 0,
            stride,
            count: self.cells(),
            me: Rank(me),
            ranks: self.ranks,
        };
        let slots = Shared::of_span(Span {
            segment: SLOTS,
            base: self.cells_bytes(),
            stride,
            me: Rank(me),
            rank: Rank(me),
            ranks: self.ranks,
            dtype: T::DTYPE,
            start: 0,
            len: self.elements() as u64,
        });
        Queues::new(slots, cells, self.ports, self.depth)
    }

    /// The kernel of one rank.
    ///
    /// # Errors
    /// If the settings of the queues cannot be.
    pub(super) fn kernel<T: Element>(
        &self,
        me: u32,
        x: In<T>,
        y: Out<T>,
    ) -> Result<impl FnOnce(SimCore) -> SteppedKernel + use<T>> {
        let queues = self.queues::<T>(me)?;
        let (sizes, how) = (Rc::clone(&self.sizes), (ReduceOp::Sum, self.algorithm));
        Ok(move |core: SimCore| {
            let kernel =
                async move { network::all_reduce(&core, queues, &sizes, x.erase(), y.erase(), how).await };
            Box::pin(kernel) as SteppedKernel
        })
    }
}

/// Slots of a queue unless it is said how many: as many as let an algorithm go on without waiting for credits.
fn usual_slots(algorithm: NetworkAlgorithm) -> u32 {
    match algorithm {
        NetworkAlgorithm::Centre => 1,
        NetworkAlgorithm::DoubleTree => 8,
        _ => 2,
    }
}

/// Elements of the pieces that a tree cuts its half into.
fn piece(half: usize, element_bytes: usize) -> usize {
    half.div_ceil(TREE_PIECES)
        .max(half.min(TREE_PIECE_BYTES / element_bytes))
}

/// Elements of the longest message, if everything goes at once.
fn longest_message(algorithm: NetworkAlgorithm, sizes: &[u32], count: usize) -> usize {
    let sides = || sizes.iter().map(|size| *size as usize).filter(|size| *size > 1);
    let shortest = sides().min().unwrap_or(1);
    match algorithm {
        NetworkAlgorithm::Direct => count.div_ceil(sizes.iter().map(|size| *size as usize).product()),
        NetworkAlgorithm::HalvingDoubling | NetworkAlgorithm::Centre => count,
        NetworkAlgorithm::DoubleTree => count.div_ceil(2),
        NetworkAlgorithm::Hierarchical => count.div_ceil(shortest),
        NetworkAlgorithm::Torus => count.div_ceil(2 * sides().count().max(1)).div_ceil(shortest),
    }
}
