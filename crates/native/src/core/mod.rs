//! `NativeCore`: the instruction set on this host's processors and shared memory.
//!
//! Nothing suspends: an instruction is done when its future was polled once, and a wait blocks inside the poll. The
//! compiler flattens the state machine, so a kernel here is like a plain function.

mod blocks;
mod calls;
mod instructions;
mod lent;
mod lines;
mod moves;
mod neighbours;
mod observer;
mod packets;
mod store_policy;
mod waits;

use crate::cell::{Cell, Patience};
use crate::cpu_tuning::PrefetchPolicy;
use crate::segment::{Attached, Layout};
use crate::trace::progress::{Activity, Begin, Begun, Doing};
use calls::{CallUnderWay, Calls};
use lent::Lent;
pub use lent::{LentBytes, LentBytesMut};
use lines::Lines;
pub use neighbours::Neighbours;
pub(crate) use observer::NOTICE;
pub use observer::{LongWaitObserver, WaitObserver};
use ringwork_isa::{Arg, Attribution, Device, Error, ErrorKind, Rank, Result, Segment, Signal, Span};
use ringwork_registry::KernelEntry;
use std::cell::OnceCell;
use std::future::Future;
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use store_policy::StorePolicy;
use waits::{Awaited, Name};

/// The segment of [`NativeCore::scratch`].
pub const SCRATCH: Segment = Segment(u32::MAX - 2);

type At = &'static Location<'static>;

/// The number of polls before a wait reads the clock. A peer in step arrives within this time, and every nanosecond
/// until that is noticed adds to the latency. If ranks share a core one poll is enough, because the peer needs this
/// core.
fn eager_looks(patience: Patience) -> u32 {
    if patience.spin.is_zero() { 1 } else { 256 }
}

/// Shorter instructions are not recorded: they end before the clock could be read twice.
const WORTH_SEEING_BYTES: usize = 16 << 10;

/// A core of this host. Holds the segments that its kernels may touch.
#[derive(Debug)]
pub struct NativeCore {
    device: Device,
    /// Sorted by number.
    segments: Vec<(Segment, Arc<Attached>)>,
    patience: Patience,
    eager_looks: u32,
    /// Whether a packet was put since the last poll for one.
    has_put: std::cell::Cell<bool>,
    prefetching: PrefetchPolicy,
    /// Lines to prefetch for writing after the peers' packets were read.
    next_lines: std::cell::Cell<Lines>,
    wait_limit: Duration,
    activity: Option<Activity>,
    /// The index of the segment in which a signal was last notified, for the record.
    notified: std::cell::Cell<usize>,
    /// Counts instructions, for the thread that supervises this core.
    beats: Option<Arc<AtomicU64>>,
    /// The memory of the intermediates of graphs built here.
    scratch: OnceCell<Arc<Attached>>,
    lent: Lent,
    store_policy: StorePolicy,
    attribution: Attribution,
    call: CallUnderWay,
    /// Where each rank publishes the call that it is in.
    calls: Option<Calls>,
    neighbours: Option<Neighbours>,
    observer: Option<Arc<dyn WaitObserver>>,
    long_waits: Option<Arc<dyn LongWaitObserver>>,
}

/// How a core behaves while it waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// How long a wait polls before it sleeps.
    pub patience: Patience,
    /// The longest that any single wait may take.
    pub limit: Duration,
}

impl NativeCore {
    /// A core of `device` that has no memory yet.
    #[must_use]
    pub fn new(device: Device, waiting: Waiting) -> NativeCore {
        let Waiting { patience, limit } = waiting;
        NativeCore {
            device,
            segments: Vec::new(),
            patience,
            eager_looks: eager_looks(patience),
            has_put: std::cell::Cell::new(false),
            prefetching: PrefetchPolicy::of_this_processor(),
            next_lines: std::cell::Cell::default(),
            wait_limit: limit,
            activity: None,
            notified: std::cell::Cell::new(0),
            beats: None,
            scratch: OnceCell::new(),
            lent: Lent::default(),
            store_policy: StorePolicy::default(),
            attribution: Attribution::default(),
            call: CallUnderWay::default(),
            calls: None,
            neighbours: None,
            observer: None,
            long_waits: None,
        }
    }

    pub(crate) fn with_activity(self, activity: Activity) -> NativeCore {
        NativeCore {
            activity: Some(activity),
            ..self
        }
    }

    /// Another core of the same chip, for another thread: with the same memory, and a counter of the instructions
    /// that it has begun. `core` is its number in the record, from 1; only one thread at a time may use it.
    #[must_use]
    pub fn sibling(&self, core: u8) -> (NativeCore, Arc<AtomicU64>) {
        let beats = Arc::<AtomicU64>::default();
        let waiting = Waiting {
            patience: self.patience,
            limit: self.wait_limit,
        };
        let sibling = NativeCore {
            segments: self.segments.clone(),
            activity: self.activity.as_ref().and_then(|activity| activity.of_core(core)),
            beats: Some(beats.clone()),
            scratch: self.scratch.clone(),
            calls: self.calls.clone(),
            ..NativeCore::new(self.device, waiting)
        };
        (sibling, beats)
    }

    /// Reports progress of this chip for a core of it that runs on another thread.
    pub fn say_again(&self) {
        if let Some(activity) = &self.activity {
            activity.again();
        }
    }

    /// The time, in [ticks](crate::trace::tsc_clock), if this core records what it does.
    #[inline]
    #[must_use]
    pub fn clock(&self) -> Option<u64> {
        self.activity.as_ref().and_then(Activity::clock)
    }

    /// Records that a task begins here. Pass the result to [`end_task`](NativeCore::end_task).
    pub fn begin_task(&self, kernel: &'static KernelEntry, begin: Begin) -> Option<Begun> {
        self.activity.as_ref()?.begin_task(kernel.name, begin)
    }

    /// Records the end of a task; returns the time, if the task was recorded.
    pub fn end_task(&self, begun: Option<Begun>, failed: bool) -> Option<u64> {
        self.activity.as_ref()?.end_task(&begun?, failed)
    }

    /// Whether cores are free for more threads than this one.
    #[must_use]
    pub fn has_free_cores(&self) -> bool {
        self.patience == Patience::for_sharing(1, 1)
    }

    /// Memory that only this core and its siblings use. It is created at the first call and keeps that size.
    ///
    /// # Errors
    /// If there is no memory for it.
    pub fn scratch(&self, bytes: u64) -> crate::Result<Layout> {
        if let Some(scratch) = self.scratch.get() {
            return Ok(scratch.layout());
        }
        let made = Arc::new(Attached::on_heap(Layout::private(SCRATCH, bytes)?)?);
        Ok(self.scratch.get_or_init(|| made).layout())
    }

    /// Lets kernels on this core use a segment.
    pub fn attach(&mut self, segment: Arc<Attached>) {
        let id = segment.layout().segment;
        match self.segments.binary_search_by_key(&id, |(id, _)| *id) {
            Ok(at) => self.segments[at].1 = segment,
            Err(at) => self.segments.insert(at, (id, segment)),
        }
    }

    /// Forgets a segment; returns whether it was there.
    pub fn detach(&mut self, segment: Segment) -> bool {
        let found = self.segments.binary_search_by_key(&segment, |(id, _)| *id);
        found.map(|at| self.segments.remove(at)).is_ok()
    }

    /// Forgets the segments that nobody else has a handle to.
    pub fn detach_unused(&mut self) {
        self.segments
            .retain(|(_, segment)| Arc::strong_count(segment) > 1);
    }

    /// The longest that any single wait may take from now on.
    pub fn set_wait_limit(&mut self, limit: Duration) {
        self.wait_limit = limit;
    }

    /// Sets which ranks share this core. They have the same rank numbers in every domain of this core.
    pub fn set_neighbours(&mut self, neighbours: Option<Neighbours>) {
        self.neighbours = neighbours;
    }

    /// Sets the observer of long waits.
    pub fn set_wait_observer(&mut self, observer: Option<Arc<dyn WaitObserver>>) {
        self.observer = observer;
    }

    /// Tells `observer` of waits that last for seconds, from now on.
    pub fn set_long_wait_observer(&mut self, observer: Option<Arc<dyn LongWaitObserver>>) {
        self.long_waits = observer;
    }

    /// Runs a kernel to its end.
    ///
    /// # Errors
    /// The kernel's own; or that it awaited something that is not an instruction.
    #[inline(always)]
    pub fn run(&self, kernel: impl Future<Output = Result<()>>) -> Result<()> {
        let end = match std::pin::pin!(kernel).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(result) => result,
            Poll::Pending => Err(Error::failed(
                "the kernel awaited something that is not an instruction of its core",
            )),
        };
        if let Some(activity) = &self.activity {
            activity.rest();
        }
        end
    }

    #[inline(always)]
    fn say(&self, doing: Doing, at: At) {
        if let Some(activity) = &self.activity {
            activity.say(doing, at);
        }
        if let Some(beats) = &self.beats {
            beats.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Runs the instruction that was announced last, and records it if it is large enough.
    #[inline(always)]
    fn timed<R>(&self, doing: Doing, bytes: usize, work: impl FnOnce() -> R) -> R {
        match &self.activity {
            Some(activity) if bytes >= WORTH_SEEING_BYTES => activity.timed(doing, bytes as u64, work),
            _ => work(),
        }
    }

    /// Records a notify that is about to happen. The cell is looked up here and not when the instruction is issued,
    /// because only chips record.
    #[cold]
    fn record_notify(&self, activity: &Activity, cell: &Cell) {
        activity.notifies(|| {
            let number = |(_, segment): &(Segment, Arc<Attached>)| segment.cell_number(cell);
            let hint = self.notified.get();
            if let Some(found) = self.segments.get(hint).and_then(number) {
                return found;
            }
            let mut all = self.segments.iter().enumerate();
            let found = all.find_map(|(at, segment)| Some((at, number(segment)?)));
            found.map_or(u64::MAX, |(at, number)| {
                self.notified.set(at);
                number
            })
        });
    }

    /// The domains that a task with these arguments uses.
    pub(crate) fn domains<'a>(&'a self, args: &'a [Arg]) -> impl Iterator<Item = &'a Attached> {
        let segments = args.iter().filter_map(|arg| self.segment(arg.segment()?));
        segments.filter(|segment| segment.layout().ranks > 0)
    }

    #[inline(always)]
    fn segment(&self, id: Segment) -> Option<&Attached> {
        // Most cores have few segments, for which a linear search is faster.
        let mut few = self.segments.iter().take(4);
        loop {
            match few.next() {
                Some((known, found)) if *known == id => return Some(found),
                Some(_) => {}
                None => return self.segment_of_many(id),
            }
        }
    }

    #[cold]
    fn segment_of_many(&self, id: Segment) -> Option<&Attached> {
        match self.segments.binary_search_by_key(&id, |(id, _)| *id) {
            Ok(at) => Some(&self.segments[at].1),
            Err(_) if id == SCRATCH => self.scratch.get().map(|scratch| &**scratch),
            Err(_) => None,
        }
    }

    #[inline(always)]
    fn resolve(&self, span: &Span, writing: bool, at: At) -> Result<*mut u8> {
        let found = if lent::is_lent(span) {
            self.lent.resolve(span, writing)
        } else {
            self.segment(span.segment)
                .and_then(|segment| segment.resolve(span))
        };
        found.ok_or_else(|| not_mapped(span.segment, span.byte_range(), at))
    }

    #[inline(always)]
    fn signal(&self, signal: &Signal, at: At) -> Result<Awaited<'_>> {
        self.signal_on(signal, signal.rank(), at)
    }

    /// The same signal of another rank. No new handle is made: it would be written to memory and read back in pieces,
    /// see `instructions.rs`.
    #[inline(always)]
    fn signal_on(&self, signal: &Signal, rank: Rank, at: At) -> Result<Awaited<'_>> {
        let found = self.segment(signal.segment());
        found
            .and_then(|segment| {
                Some(Awaited {
                    segment,
                    cell: segment.signal_on(signal, rank)?,
                    name: Name::of(signal, rank),
                })
            })
            .ok_or_else(|| not_mapped(signal.segment(), signal.offset().map(|start| start..start), at))
    }
}

#[cold]
#[inline(never)]
fn not_mapped(segment: Segment, bytes: Option<std::ops::Range<u64>>, at: At) -> Error {
    let bytes = bytes.unwrap_or(0..0);
    ErrorKind::NotMapped {
        segment,
        start: bytes.start,
        end: bytes.end,
        site: at.into(),
    }
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A core without memory, for tests that need none.
    pub(super) fn core() -> NativeCore {
        let patience = Patience::for_sharing(1, 1);
        NativeCore::new(
            Device(0),
            Waiting {
                patience,
                limit: Duration::from_secs(10),
            },
        )
    }
}
