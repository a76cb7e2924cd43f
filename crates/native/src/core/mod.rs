//! `NativeCore`: the instruction set on this host's processors and shared memory.
//!
//! Nothing suspends: an instruction has happened when its future was polled once, and a wait blocks inside
//! the poll. The compiler flattens the rest, so a kernel here is what it would be as a plain function.

mod lent;
mod packets;

use crate::activity::{Activity, Doing};
use crate::arith;
use crate::cell::{Cell, Ended, Looking, Patience};
use crate::segment::{Alarm, Attached};
use lent::{Lent, Source};
use ringwork_isa::{
    Arg, Attribution, CanRead, CanWrite, Compare, Core, Device, Element, Error, Fingerprint, Float,
    MAX_RANKS, Notify, Rank, ReduceOp, Region, Result, Segment, Shared, Signal, Signals, Sources, Span, Tile,
    Waited, Work,
};
use std::future::Future;
use std::panic::Location;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

type At = &'static Location<'static>;

/// A core of this host. Holds the segments that its kernels may touch.
#[derive(Debug)]
pub struct NativeCore {
    device: Device,
    /// Sorted by number.
    segments: Vec<(Segment, Arc<Attached>)>,
    patience: Patience,
    wait_limit: Duration,
    activity: Option<Activity>,
    lent: Lent,
    attribution: Attribution,
    /// The collective call under way, and the same as it lies in shared memory.
    call: std::cell::Cell<Option<(Fingerprint, [u64; 2])>>,
    /// Where every rank says which call it is in.
    calls: Option<Signals>,
}

/// How a core behaves while it waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// How long it looks before it sleeps.
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
            wait_limit: limit,
            activity: None,
            lent: Lent::default(),
            attribution: Attribution::default(),
            call: std::cell::Cell::new(None),
            calls: None,
        }
    }

    pub(crate) fn with_activity(self, activity: Activity) -> NativeCore {
        NativeCore {
            activity: Some(activity),
            ..self
        }
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

    /// Runs a kernel to its end.
    ///
    /// # Errors
    /// The kernel's own; or that it awaited something that is not an instruction.
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

    fn say(&self, doing: Doing, at: At) {
        if let Some(activity) = &self.activity {
            activity.say(doing, at);
        }
    }

    /// The domains that a task with these arguments uses.
    pub(crate) fn domains<'a>(&'a self, args: &'a [Arg]) -> impl Iterator<Item = &'a Attached> {
        let segments = args.iter().filter_map(|arg| self.segment(arg.segment()?));
        segments.filter(|segment| segment.layout().ranks > 0)
    }

    fn segment(&self, id: Segment) -> Option<&Attached> {
        let at = self.segments.binary_search_by_key(&id, |(id, _)| *id).ok()?;
        Some(&self.segments[at].1)
    }

    fn resolve(&self, span: &Span, writing: bool, at: At) -> Result<*mut u8> {
        let found = match self.lent.resolve(span, writing) {
            Some(lent) => lent,
            None => self
                .segment(span.segment)
                .and_then(|segment| segment.resolve(span)),
        };
        found.ok_or_else(|| {
            let bytes = span.byte_range().unwrap_or(0..0);
            Error::NotMapped {
                segment: span.segment,
                start: bytes.start,
                end: bytes.end,
                site: at.into(),
            }
        })
    }

    fn signal(&self, signal: &Signal, at: At) -> Result<(&Attached, &Cell)> {
        let found = self.segment(signal.segment());
        found
            .and_then(|segment| Some((segment, segment.signal(signal)?)))
            .ok_or_else(|| {
                let start = signal.offset().unwrap_or(0);
                Error::NotMapped {
                    segment: signal.segment(),
                    start,
                    end: start,
                    site: at.into(),
                }
            })
    }

    fn copy_now(&self, dst: Span, src: Span, at: At) -> Result<()> {
        self.say(Doing::Copy, at);
        check_length("the source", src.len, dst.len, at)?;
        let (to, from) = (
            self.resolve(&dst, true, at)?,
            self.resolve(&src, false, at)?.cast_const(),
        );
        let bytes = span_bytes(&dst);
        if check_overlap(to, from, bytes, 0, at)? || bytes == 0 {
            return Ok(());
        }
        // SAFETY: both were resolved to `bytes` bytes of attached segments, which live as long as self, and
        // do not overlap. Other processes may write them meanwhile: see `arith`.
        unsafe { lent::copy(to, &src, from, bytes) };
        Ok(())
    }

    fn reduce_now<T: Element>(
        &self,
        dst: Span,
        sources: &impl Sources<T>,
        op: ReduceOp,
        at: At,
    ) -> Result<()> {
        self.say(Doing::Reduce, at);
        let count = sources.count();
        if count == 0 || count > MAX_RANKS as usize {
            let message = match count {
                0 => "a reduction needs at least one source".to_owned(),
                _ => format!("a reduction takes at most {MAX_RANKS} sources, not {count}"),
            };
            return Err(Error::Failed {
                message,
                site: at.into(),
            });
        }
        let to = self.resolve(&dst, true, at)?;
        let mut from = [std::ptr::null(); MAX_RANKS as usize];
        let mut kept = Vec::new();
        for (i, slot) in from[..count].iter_mut().enumerate() {
            let source = sources.source(i);
            check_length("a source", source.len, dst.len, at)?;
            *slot = self.resolve(&source, false, at)?.cast_const();
            check_overlap(to, *slot, span_bytes(&dst), i, at)?;
            // SAFETY: it was just resolved to as many bytes as `dst` has.
            let (readable, copy) = unsafe { Source::of(&source, *slot, span_bytes(&dst)) };
            *slot = readable;
            kept.extend(copy);
        }
        // SAFETY: every pointer was resolved to `dst.len` aligned elements of attached segments, which live
        // as long as self; `to` is one of the sources or overlaps none. Other processes may write them
        // meanwhile: see `arith`.
        unsafe { arith::reduce(T::DTYPE, op, to, &from[..count], dst_len(&dst)) };
        Ok(())
    }

    fn load_now<T: Element>(&self, src: Span, at: At) -> Result<Tile<T>> {
        self.say(Doing::Load, at);
        let from = self.resolve(&src, false, at)?;
        let mut values = vec![T::zeroed(); dst_len(&src)];
        // SAFETY: resolved as in `copy_now`; `values` is private and as long, and any bytes are a valid T.
        unsafe { lent::copy(values.as_mut_ptr().cast(), &src, from, span_bytes(&src)) };
        Ok(Tile::new(values))
    }

    fn store_now<T: Element>(&self, dst: Span, tile: &Tile<T>, at: At) -> Result<()> {
        self.say(Doing::Store, at);
        check_length("the tile", tile.values().len() as u64, dst.len, at)?;
        let to = self.resolve(&dst, true, at)?;
        arith::readable(tile.values(), |from| {
            // SAFETY: resolved as in `copy_now`; the tile is private and as long.
            unsafe { arith::copy(to, from, span_bytes(&dst)) }
        });
        Ok(())
    }

    fn notify_now(&self, signal: Signal, how: Notify, at: At) -> Result<()> {
        self.say(Doing::Notify, at);
        let (_, cell) = self.signal(&signal, at)?;
        if let Some((call, words)) = self.call.get() {
            cell.note(call.sequence(), words);
        }
        match how {
            Notify::Set(value) => cell.set(value),
            Notify::Add(amount) => cell.add(amount),
        }
        Ok(())
    }

    #[inline]
    fn wait_now(&self, signal: Signal, compare: Compare, operand: i32, at: At) -> Result<i32> {
        let (segment, cell) = self.signal(&signal, at)?;
        let mut value = cell.load();
        if !compare.holds(value, operand) {
            value = self.wait_long(&signal, (segment, cell), (compare, operand), at)?;
        }
        match self.call.get() {
            Some((call, words)) if cell.noted(call.sequence()) != words => {
                Err(self
                    .mismatch_with(signal.rank(), cell.noted(call.sequence()))
                    .unwrap_or_else(|| {
                        // A note of another call in its place: the peer is out of step.
                        let message = format!("rank {} is not in {call}", signal.rank());
                        Error::Failed {
                            message,
                            site: at.into(),
                        }
                    }))
            }
            _ => Ok(value),
        }
    }

    #[cold]
    fn wait_long(
        &self,
        signal: &Signal,
        (segment, cell): (&Attached, &Cell),
        (compare, operand): (Compare, i32),
        at: At,
    ) -> Result<i32> {
        self.say(Doing::Wait, at);
        let deadline = Instant::now().checked_add(self.wait_limit);
        let satisfied = |value| compare.holds(value, operand);
        let exit = |looking| self.exit(segment, signal, looking);
        let ended = match cell.wait(self.patience, deadline, satisfied, exit) {
            Ok(value) => return Ok(value),
            Err(ended) => ended,
        };
        let waited = Waited::new(signal, cell.load(), (compare, operand), at);
        Err(match (ended, segment.alarm()) {
            (Ended::Exit(Exit::Mismatch(error)), _) => *error,
            (
                Ended::Exit(Exit::Alarm),
                Some(Alarm {
                    dead: Some(rank),
                    reason,
                }),
            ) => Error::PeerDied {
                rank,
                cause: reason,
                waited,
            },
            (Ended::Exit(Exit::Alarm), Some(Alarm { dead: None, reason })) => {
                Error::Aborted { reason, waited }
            }
            _ => Error::Deadline {
                after_ms: u64::try_from(self.wait_limit.as_millis()).unwrap_or(u64::MAX),
                waited,
            },
        })
    }

    /// Why to give up waiting for a signal, if there is a reason.
    fn exit(&self, segment: &Attached, signal: &Signal, looking: Looking) -> Option<Exit> {
        if segment.alarmed() {
            return Some(Exit::Alarm);
        }
        match looking {
            Looking::Awake => None,
            Looking::BeforeSleep => self
                .mismatch(signal.rank())
                .map(|error| Exit::Mismatch(Box::new(error))),
        }
    }

    /// Whether `peer` says that it is in another call of the same number.
    fn mismatch(&self, peer: Rank) -> Option<Error> {
        let (call, _) = self.call.get()?;
        let signal = self.calls?.at(0).ok()?.on(peer).ok()?;
        let cell = self.segment(signal.segment())?.signal(&signal)?;
        self.mismatch_with(peer, cell.noted(call.sequence()))
    }

    fn mismatch_with(&self, peer: Rank, words: [u64; 2]) -> Option<Error> {
        let (call, mine) = self.call.get()?;
        let theirs = Fingerprint::from_words(words)?;
        let other_kind = theirs.operation().is_between_two();
        if words == mine || theirs.sequence() != call.sequence() || other_kind {
            return None;
        }
        let me = self.calls.map_or(Rank(0), |row| row.me);
        Some(Error::Mismatch {
            me,
            mine: call.to_string(),
            peer,
            theirs: theirs.to_string(),
        })
    }

    /// Where ranks say which collective call they are in: a cell of each that nothing else touches.
    pub fn set_calls(&mut self, calls: Signals) {
        self.calls = Some(calls);
    }

    /// Says which collective call the instructions until the next `enter` or `leave` belong to. Signals are
    /// marked with it, and waiting compares: ranks that disagree get [`Error::Mismatch`].
    pub fn enter(&self, call: Fingerprint) {
        let words = call.words();
        self.call.set(Some((call, words)));
        if let Some(cell) = self.my_call() {
            cell.note(call.sequence(), words);
            cell.mark(call.sequence());
        }
    }

    /// Says what this rank does, for the diagnosis of others, without marking signals with it.
    pub fn announce(&self, call: Fingerprint) {
        if let Some(cell) = self.my_call() {
            cell.note(call.sequence(), call.words());
            cell.mark(call.sequence());
        }
    }

    /// Says that the call is over.
    pub fn leave(&self) {
        self.call.set(None);
    }

    /// How far `peer`'s counters in this row are behind mine, all together.
    #[must_use]
    pub fn lag(&self, row: Signals, peer: Rank) -> i64 {
        let value = |index: u32, rank: Rank| {
            let signal = row.at(index).ok()?.on(rank).ok()?;
            Some(self.segment(signal.segment())?.signal(&signal)?.load())
        };
        let behind = |index| Some(i64::from(value(index, row.me)?.wrapping_sub(value(index, peer)?)));
        (0..row.count).filter_map(behind).sum()
    }

    fn my_call(&self) -> Option<&Cell> {
        let mine = self.calls?.at(0).ok()?;
        self.segment(mine.segment())?.signal(&mine)
    }

    /// The last call that a rank began, if it has begun any.
    #[must_use]
    pub fn last_call(&self, rank: Rank) -> Option<Fingerprint> {
        let signal = self.calls?.at(0).ok()?.on(rank).ok()?;
        let cell = self.segment(signal.segment())?.signal(&signal)?;
        let sequence = cell.load().cast_unsigned();
        Fingerprint::from_words(cell.noted(sequence))
    }
}

/// Why a wait is given up.
#[derive(Debug)]
enum Exit {
    /// The domain's alarm was raised.
    Alarm,
    /// The peer is in another call.
    Mismatch(Box<Error>),
}

/// Elements of a span that was resolved, so they fit memory.
fn dst_len(span: &Span) -> usize {
    usize::try_from(span.len).unwrap_or(0)
}

/// Bytes of a span that was resolved, so they fit memory.
fn span_bytes(span: &Span) -> usize {
    dst_len(span).saturating_mul(span.dtype.bytes())
}

fn check_length(what: &'static str, got: u64, wanted: u64, at: At) -> Result<()> {
    if got == wanted {
        Ok(())
    } else {
        Err(Error::LengthMismatch {
            what: what.into(),
            got,
            wanted,
            site: at.into(),
        })
    }
}

/// Whether the two are the same place.
fn check_overlap(to: *mut u8, from: *const u8, bytes: usize, index: usize, at: At) -> Result<bool> {
    let (a, b) = (to as usize, from as usize);
    if a == b || a + bytes <= b || b + bytes <= a {
        return Ok(a == b);
    }
    Err(Error::Overlap {
        source_index: u32::try_from(index).unwrap_or(u32::MAX),
        site: at.into(),
    })
}

impl Core for NativeCore {
    fn device(&self) -> Device {
        self.device
    }

    fn attribution(&self) -> &Attribution {
        &self.attribution
    }

    #[track_caller]
    fn copy<T: Element>(
        &self,
        dst: Region<T, impl CanWrite>,
        src: Region<T, impl CanRead>,
    ) -> impl Future<Output = Result<()>> {
        let at = self.attribution.site();
        async move { self.copy_now(dst.span(), src.span(), at) }
    }

    #[track_caller]
    fn reduce<T: Element>(
        &self,
        dst: Region<T, impl CanWrite>,
        sources: impl Sources<T>,
        op: ReduceOp,
    ) -> impl Future<Output = Result<()>> {
        let at = self.attribution.site();
        async move { self.reduce_now::<T>(dst.span(), &sources, op, at) }
    }

    #[track_caller]
    fn load<T: Element>(&self, src: Region<T, impl CanRead>) -> impl Future<Output = Result<Tile<T>>> {
        let at = self.attribution.site();
        async move { self.load_now(src.span(), at) }
    }

    #[track_caller]
    fn store<T: Element>(
        &self,
        dst: Region<T, impl CanWrite>,
        tile: &Tile<T>,
    ) -> impl Future<Output = Result<()>> {
        let at = self.attribution.site();
        async move { self.store_now(dst.span(), tile, at) }
    }

    #[track_caller]
    fn spend(&self, work: Work) -> impl Future<Output = Result<()>> {
        let at = self.attribution.site();
        async move {
            let doing = match work {
                Work::Vector { .. } => Doing::Vector,
                Work::Matrix { .. } => Doing::Matmul,
            };
            self.say(doing, at);
            Ok(())
        }
    }

    #[track_caller]
    fn matmul_add<T: Float>(
        &self,
        acc: Tile<T::Wide>,
        a: &Tile<T>,
        b: &Tile<T>,
    ) -> impl Future<Output = Result<Tile<T::Wide>>> {
        self.say(Doing::Matmul, self.attribution.site());
        std::future::ready(Tile::add_product(acc, a, b, arith::product::<T>))
    }

    #[track_caller]
    fn put_packets<T: Element>(
        &self,
        packets: Shared<i64>,
        src: Region<T, impl CanRead>,
        epoch: i32,
    ) -> impl Future<Output = Result<()>> {
        let at = self.attribution.site();
        async move { self.put_packets_now(&packets, src.span(), epoch, at) }
    }

    #[track_caller]
    fn get_packets<T: Element>(
        &self,
        dst: Region<T, impl CanWrite>,
        packets: Shared<i64>,
        raised: Signal,
        epoch: i32,
    ) -> impl Future<Output = Result<()>> {
        let at = self.attribution.site();
        async move { self.get_packets_now(dst.span(), &packets, &raised, epoch, at) }
    }

    #[track_caller]
    fn reduce_packets<T: Element>(
        &self,
        dst: Region<T, impl CanWrite>,
        mine: Region<T, impl CanRead>,
        packets: Shared<i64>,
        raised: Signal,
        op: ReduceOp,
        epoch: i32,
    ) -> impl Future<Output = Result<()>> {
        let at = self.attribution.site();
        async move { self.reduce_packets_now::<T>((dst.span(), mine.span()), &packets, &raised, (op, epoch), at) }
    }

    #[track_caller]
    fn notify(&self, signal: Signal, how: Notify) -> impl Future<Output = Result<()>> {
        let at = self.attribution.site();
        async move { self.notify_now(signal, how, at) }
    }

    #[track_caller]
    fn wait(&self, signal: Signal, compare: Compare, operand: i32) -> impl Future<Output = Result<i32>> {
        let at = self.attribution.site();
        async move { self.wait_now(signal, compare, operand, at) }
    }

    #[track_caller]
    fn peek(&self, signal: Signal) -> impl Future<Output = Result<i32>> {
        let at = self.attribution.site();
        async move { Ok(self.signal(&signal, at)?.1.load()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A core without memory, for what needs none.
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
