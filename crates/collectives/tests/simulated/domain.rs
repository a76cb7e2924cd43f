//! A domain on a simulated machine: inputs, outputs, scratch, signals, queues.

use ringwork_isa::{Collective, Counts, Element, Rank, Result, Segment, Shared, Signals};
use ringwork_layout::{BufferPlace, CellRow, Layout, WindowBuilder};
use ringwork_sim::{Machine, Options, SegmentSpec, SimCore, Topology};
use std::future::Future;

const DATA: Segment = Segment(1);
const SLOTS: Segment = Segment(2);

/// What the domain is made of.
#[derive(Clone, Copy)]
pub(crate) struct Spec {
    /// What is done, from or to which root, and on how many elements as nccl-tests count them.
    pub(crate) collective: Collective,
    pub(crate) root: u32,
    pub(crate) count: usize,
    /// Elements of the slots of all queues together.
    pub(crate) slots: usize,
    /// Signals of the queues.
    pub(crate) cells: u32,
    /// Which memories: of the data, and of the slots.
    pub(crate) memories: (usize, usize),
}

/// A member's handles.
#[derive(Clone, Copy)]
pub(crate) struct Member<T> {
    pub(crate) x: Shared<T>,
    pub(crate) y: Shared<T>,
    pub(crate) slots: Shared<T>,
    pub(crate) cells: Signals,
}

/// Where everything is: the layout of the data with its input and output, and that of the queues.
struct Places {
    data: (Layout, BufferPlace, BufferPlace),
    queues: (Layout, CellRow, BufferPlace),
}

impl Places {
    fn new<T: Element>(spec: Spec, ranks: u32) -> Places {
        let (mut data, mut queues) = (WindowBuilder::default(), WindowBuilder::default());
        let Counts { send, recv } = spec.collective.counts(spec.count, ranks as usize);
        let (x, y) = (
            data.buffer(T::DTYPE, send).unwrap(),
            data.buffer(T::DTYPE, recv).unwrap(),
        );
        let (cells, slots) = (
            queues.row(spec.cells).unwrap(),
            queues.buffer(T::DTYPE, spec.slots).unwrap(),
        );
        Places {
            data: (data.packed(DATA, ranks), x, y),
            queues: (queues.packed(SLOTS, ranks), cells, slots),
        }
    }

    fn member<T: Element>(&self, me: Rank) -> Member<T> {
        let ((data, x, y), (queues, cells, slots)) = (self.data, self.queues);
        Member {
            x: data.region(me, x),
            y: data.region(me, y),
            slots: queues.region(me, slots),
            cells: queues.signals(me, cells),
        }
    }
}

/// The input of a member: small numbers, so that sums are exact in every order.
pub(crate) fn input<T: Element>(member: usize, index: usize) -> T {
    T::from_i64((member as i64 * 31 + index as i64 * 7) % 23 - 11)
}

/// Runs a kernel on the given ranks of a machine; checks that every output is as promised if data is kept. The
/// picoseconds from the first instruction to the end of the last task.
pub(crate) fn run<T: Element, F, Fut>(
    topology: &Topology,
    members: &[u32],
    spec: Spec,
    timing_only: bool,
    kernel: F,
) -> u64
where
    F: Fn(SimCore, Member<T>) -> Fut,
    Fut: Future<Output = Result<()>> + 'static,
{
    let options = Options {
        timing_only,
        ..Options::default()
    };
    let machine = Machine::new(topology, options);
    let ranks = u32::try_from(members.len()).unwrap();
    let places = Places::new::<T>(spec, ranks);
    let (data, x, y) = places.data;
    for (layout, memory) in [(data, spec.memories.0), (places.queues.0, spec.memories.1)] {
        let (segment, bytes, members) = (layout.segment, layout.bytes(), members.to_vec());
        machine
            .define(SegmentSpec {
                segment,
                members,
                bytes,
                memory,
            })
            .unwrap();
    }
    let at = |member: usize, place: BufferPlace| {
        let me = Rank(u32::try_from(member).unwrap());
        data.data_at(me, place.offset, place.bytes() as u64).unwrap()
    };
    for member in 0..members.len() {
        let values: Vec<T> = (0..x.count).map(|i| input(member, i)).collect();
        machine
            .write(DATA, at(member, x), bytemuck::cast_slice(&values))
            .unwrap();
    }
    let mut tasks = Vec::new();
    for (me, rank) in (0..ranks).zip(members) {
        let member = places.member::<T>(Rank(me));
        tasks.push(
            machine
                .spawn(*rank, spec.collective.name(), |core| kernel(core, member))
                .unwrap(),
        );
    }
    if let Err(error) = machine.run() {
        panic!("{error}");
    }
    if !timing_only {
        for member in 0..members.len() {
            let bytes = machine
                .read(DATA, at(member, y), y.count * T::DTYPE.bytes())
                .unwrap();
            let got: Vec<T> = bytemuck::pod_collect_to_vec(&bytes);
            let me = u32::try_from(member).unwrap();
            for piece in spec.collective.golden(me, ranks, spec.root, spec.count) {
                for (at, i) in (piece.start..).zip(piece.output) {
                    let terms = piece
                        .ranks
                        .clone()
                        .map(|from| input::<T>(from as usize, at).to_f64());
                    let sum: f64 = terms.sum();
                    assert_eq!(got[i].to_f64(), sum, "{} on {me}, element {i}", spec.collective);
                }
            }
        }
    }
    let ends = tasks
        .into_iter()
        .map(|task| machine.outcome(task).unwrap().end_ps);
    ends.max().unwrap_or(0)
}
