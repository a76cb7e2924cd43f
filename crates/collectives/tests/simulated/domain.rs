//! A domain on a simulated machine: inputs, outputs, scratch, signals, queues.

use ringwork_isa::{Element, Rank, Region, Result, Segment, Shared, Signals, Span};
use ringwork_sim::{Machine, Options, SegmentSpec, SimCore, Topology};
use std::future::Future;

const DATA: Segment = Segment(1);
const SLOTS: Segment = Segment(2);

/// What the domain is made of.
#[derive(Clone, Copy)]
pub(crate) struct Spec {
    /// Elements of the input and of the output.
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

fn member<T: Element>(spec: Spec, me: u32, ranks: u32) -> Member<T> {
    let size = T::DTYPE.bytes() as u64;
    let (data, slots) = strides::<T>(spec);
    let region = |segment: Segment, stride: u64, base: u64, len: usize| {
        let span = Span {
            segment,
            base,
            stride,
            me: Rank(me),
            rank: Rank(me),
            ranks,
            dtype: T::DTYPE,
            start: 0,
            len: len as u64,
        };
        Region::from_span(span).unwrap()
    };
    let cells = u64::from(spec.cells) * 128;
    let each = spec.count as u64 * size;
    Member {
        x: region(DATA, data, 0, spec.count),
        y: region(DATA, data, each, spec.count),
        slots: region(SLOTS, slots, cells, spec.slots),
        cells: Signals {
            segment: SLOTS,
            base: 0,
            stride: slots,
            count: spec.cells,
            me: Rank(me),
            ranks,
        },
    }
}

fn strides<T: Element>(spec: Spec) -> (u64, u64) {
    let size = T::DTYPE.bytes() as u64;
    (
        2 * spec.count as u64 * size,
        u64::from(spec.cells) * 128 + spec.slots as u64 * size,
    )
}

/// The input of a member: small numbers, so that sums are exact in every order.
pub(crate) fn input<T: Element>(member: usize, index: usize) -> T {
    T::from_i64((member as i64 * 31 + index as i64 * 7) % 23 - 11)
}

/// Runs a kernel on the given ranks of a machine; checks that every output is the sum if data is kept. The
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
    let (data, slots) = strides::<T>(spec);
    for (segment, stride, memory) in [(DATA, data, spec.memories.0), (SLOTS, slots, spec.memories.1)] {
        let bytes = stride * u64::from(ranks);
        let members = members.to_vec();
        machine
            .define(SegmentSpec {
                segment,
                members,
                bytes,
                memory,
            })
            .unwrap();
    }
    let size = T::DTYPE.bytes() as u64;
    let at = |member: usize, part: u64| data * member as u64 + part * spec.count as u64 * size;
    for member in 0..members.len() {
        let values: Vec<T> = (0..spec.count).map(|i| input(member, i)).collect();
        machine
            .write(DATA, at(member, 0), bytemuck::cast_slice(&values))
            .unwrap();
    }
    let mut tasks = Vec::new();
    for (me, rank) in (0..ranks).zip(members) {
        let member = member::<T>(spec, me, ranks);
        tasks.push(
            machine
                .spawn(*rank, "all_reduce", |core| kernel(core, member))
                .unwrap(),
        );
    }
    if let Err(error) = machine.run() {
        panic!("{error}");
    }
    if !timing_only {
        for member in 0..members.len() {
            let bytes = machine
                .read(DATA, at(member, 1), spec.count * T::DTYPE.bytes())
                .unwrap();
            let got: Vec<T> = bytemuck::pod_collect_to_vec(&bytes);
            for (i, got) in got.into_iter().enumerate() {
                let sum: f64 = (0..members.len()).map(|m| input::<T>(m, i).to_f64()).sum();
                assert_eq!(got.to_f64(), sum, "member {member}, element {i}");
            }
        }
    }
    let ends = tasks
        .into_iter()
        .map(|task| machine.outcome(task).unwrap().end_ps);
    ends.max().unwrap_or(0)
}
