//! A machine with one domain over all its ranks, what a test asks of it, and small collectives to run on it.
#![allow(
    dead_code,
    unreachable_pub,
    unused_imports,
    missing_docs,
    missing_debug_implementations,
    clippy::unwrap_used,
    reason = "each test uses some of it"
)]

mod algorithms;

pub use algorithms::*;

use ringwork_isa::{
    Compare, Contributions, Core, Counted, Dtype, Element, Notify, Rank, Result, Segment, Shared, Signal,
    Signals, Wrong,
};
use ringwork_layout::{BufferPlace, CellRow, Layout, WindowBuilder};
use ringwork_sim::{Machine, Options, SegmentSpec, SimCore, Topology};
use std::future::Future;

/// What every rank of a test has: a buffer, scratch, and signals.
#[derive(Clone, Copy)]
pub struct Domain<T> {
    pub me: usize,
    pub n: usize,
    pub buffer: Shared<T>,
    pub scratch: Shared<T>,
    pub signals: Signals,
}

const SIGNALS: u32 = 512;

impl<T: Element> Domain<T> {
    /// Where the signals, a buffer and scratch of so many elements are.
    pub fn places(n: usize, count: usize, scratch: usize) -> (Layout, CellRow, [BufferPlace; 2]) {
        let mut window = WindowBuilder::default();
        let row = window.row(SIGNALS).unwrap();
        let buffers = [count, scratch].map(|count| window.buffer(T::DTYPE, count).unwrap());
        (window.packed(Segment(1), u32::try_from(n).unwrap()), row, buffers)
    }

    pub fn new(me: usize, n: usize, count: usize, scratch: usize) -> Domain<T> {
        let (layout, row, buffers) = Domain::<T>::places(n, count, scratch);
        let rank = Rank(u32::try_from(me).unwrap());
        let [buffer, scratch] = buffers.map(|place| layout.region(rank, place));
        Domain {
            me,
            n,
            buffer,
            scratch,
            signals: layout.signals(rank, row),
        }
    }

    pub fn signal(&self, index: usize) -> Signal {
        self.signals.at(u32::try_from(index).unwrap()).unwrap()
    }

    pub fn rank(&self, rank: usize) -> Rank {
        Rank(u32::try_from(rank % self.n).unwrap())
    }

    /// Puts `src` at the same place of `dst` on a peer, and adds one to its signal.
    pub async fn send<C: Core>(
        &self,
        core: &C,
        to: usize,
        dst: Shared<T>,
        src: Shared<T>,
        signal: usize,
    ) -> Result<()> {
        core.copy(dst.on(self.rank(to))?, src).await?;
        core.notify(self.signal(signal).on(self.rank(to))?, Notify::Add(1))
            .await
    }

    pub async fn recv<C: Core>(&self, core: &C, signal: usize, count: usize) -> Result<()> {
        core.wait(self.signal(signal), Compare::Ge, i32::try_from(count).unwrap())
            .await
            .map(drop)
    }
}

/// A machine with a domain over all its ranks.
pub fn machine_with<T: Element>(
    topology: &Topology,
    options: Options,
    count: usize,
    scratch: usize,
) -> Machine {
    let machine = Machine::new(topology, options);
    let ranks = machine.ranks();
    let spec = SegmentSpec {
        segment: Segment(1),
        members: (0..ranks).collect(),
        bytes: Domain::<T>::places(ranks as usize, count, scratch).0.bytes(),
        memory: 0,
    };
    machine.define(spec).unwrap();
    machine
}

/// Where the buffer of a rank begins.
fn buffer_at<T: Element>(rank: u32, count: usize, scratch: usize) -> u64 {
    let (layout, _, [buffer, _]) = Domain::<T>::places(rank as usize + 1, count, scratch);
    layout.data_at(Rank(rank), buffer.offset, 0).unwrap()
}

/// Runs a kernel on every rank of such a machine.
fn run_all<T: Element, F, Fut>(machine: &Machine, count: usize, scratch: usize, kernel: F)
where
    F: Fn(SimCore, Domain<T>) -> Fut,
    Fut: Future<Output = Result<()>> + 'static,
{
    let n = machine.ranks();
    for rank in 0..n {
        let domain = Domain::<T>::new(rank as usize, n as usize, count, scratch);
        machine.spawn(rank, "test", |core| kernel(core, domain)).unwrap();
    }
    machine.run().unwrap();
}

/// Runs a kernel on every rank of a machine and returns the machine.
pub fn run_on<T: Element, F, Fut>(
    topology: &Topology,
    options: Options,
    count: usize,
    scratch: usize,
    fill: bool,
    kernel: F,
) -> Machine
where
    F: Fn(SimCore, Domain<T>) -> Fut,
    Fut: Future<Output = Result<()>> + 'static,
{
    let machine = machine_with::<T>(topology, options, count, scratch);
    for rank in (0..machine.ranks()).filter(|_| fill) {
        let values: Vec<T> = (0..count).map(|i| value(rank as usize, i)).collect();
        let (at, bytes) = (
            buffer_at::<T>(rank, count, scratch),
            bytemuck::cast_slice(&values),
        );
        machine.write(Segment(1), at, bytes).unwrap();
    }
    run_all(&machine, count, scratch, kernel);
    machine
}

/// Runs a kernel on every rank of a machine that proves, on inputs of `count` bytes each.
pub fn prove_on<F, Fut>(topology: &Topology, count: usize, scratch: usize, kernel: F) -> Machine
where
    F: Fn(SimCore, Domain<u8>) -> Fut,
    Fut: Future<Output = Result<()>> + 'static,
{
    let options = Options {
        prove: true,
        ..Options::default()
    };
    let machine = machine_with::<u8>(topology, options, count, scratch);
    for rank in 0..machine.ranks() {
        let input = Contributions::input(rank, 0, count as u64);
        let at = buffer_at::<u8>(rank, count, scratch);
        machine.set_origin(Segment(1), at, &input).unwrap();
    }
    run_all(&machine, count, scratch, kernel);
    machine
}

/// Where the buffer of a rank comes from, `count` bytes.
pub fn origin(machine: &Machine, rank: usize, count: usize, scratch: usize) -> Contributions {
    let at = buffer_at::<u8>(u32::try_from(rank).unwrap(), count, scratch);
    machine.origin(Segment(1), at, count as u64).unwrap()
}

/// Where the scratch of a rank comes from.
pub fn scratch_origin(machine: &Machine, rank: usize, count: usize, scratch: usize) -> Contributions {
    let (layout, _, [_, place]) = Domain::<u8>::places(machine.ranks() as usize, count, scratch);
    let (rank, bytes) = (Rank(u32::try_from(rank).unwrap()), place.bytes() as u64);
    let at = layout.data_at(rank, place.offset, bytes).unwrap();
    machine.origin(Segment(1), at, bytes).unwrap()
}

/// What is wrong with a rank's buffer if each byte of it should be all ranks' there.
pub fn not_all(machine: &Machine, rank: usize, count: usize, scratch: usize) -> Vec<Wrong> {
    let wanted = Contributions::of(Counted::once(0..machine.ranks()), 0, count as u64);
    origin(machine, rank, count, scratch).differences(&wanted)
}

pub fn value<T: Element>(rank: usize, index: usize) -> T {
    T::from_i64((rank as i64 * 31 + index as i64 * 7) % 61 - 30)
}

/// The buffer of a rank after a run.
pub fn buffer<T: Element>(machine: &Machine, rank: usize, count: usize, scratch: usize) -> Vec<T> {
    let at = buffer_at::<T>(u32::try_from(rank).unwrap(), count, scratch);
    let bytes = machine.read(Segment(1), at, count * T::DTYPE.bytes()).unwrap();
    bytemuck::pod_collect_to_vec(&bytes)
}

pub fn timed<F, Fut>(topology: &Topology, bytes: usize, scratch: usize, kernel: F) -> u64
where
    F: Fn(SimCore, Domain<u8>) -> Fut,
    Fut: Future<Output = Result<()>> + 'static,
{
    let options = Options {
        timing_only: true,
        ..Options::default()
    };
    run_on(topology, options, bytes, scratch, false, kernel).now_ps()
}

pub fn topology(text: &str) -> Topology {
    Topology::from_yaml("test", text).unwrap()
}

pub const DTYPES: &[Dtype] = &Dtype::ALL;
