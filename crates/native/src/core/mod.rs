//! `NativeCore`: the instruction set on this host's processors and shared memory.
//!
//! Nothing suspends: an instruction has happened when its future was polled once, and a wait blocks inside
//! the poll. The compiler flattens the rest, so a kernel here is what it would be as a plain function.

mod lent;
mod packets;

use crate::activity::{Activity, Begun, Doing};
use crate::arith;
use crate::cell::{Cell, Ended, Looking, Patience};
use crate::record;
use crate::registry::KernelEntry;
use crate::segment::{Alarm, Attached, Layout};
use lent::{Held, Lent, Source};
use ringwork_isa::{
    Arg, Attribution, CanRead, CanWrite, Compare, Core, Device, Element, Error, ErrorKind, Fingerprint,
    Float, MAX_RANKS, Notify, QueueSignal, Rank, ReduceOp, Region, Result, Segment, Shared, Signal, Signals,
    Sources, Span, Tile, Waited, Work,
};
use std::cell::OnceCell;
use std::future::Future;
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// The segment of [`NativeCore::scratch`].
pub const SCRATCH: Segment = Segment(u32::MAX - 2);

type At = &'static Location<'static>;

/// Looks at a signal or a packet before anything else is done about it, the clock included: a peer that is in step
/// comes within that, and every nanosecond of noticing is one of the message.
const EAGER_LOOKS: u32 = 512;

/// Instructions over less are not recorded: they are over before the clock is read twice.
const WORTH_SEEING_BYTES: usize = 16 << 10;

/// A core of this host. Holds the segments that its kernels may touch.
#[derive(Debug)]
pub struct NativeCore {
    device: Device,
    /// Sorted by number.
    segments: Vec<(Segment, Arc<Attached>)>,
    patience: Patience,
    wait_limit: Duration,
    activity: Option<Activity>,
    /// Where the segment is that a signal was last notified in, for the record.
    notified: std::cell::Cell<usize>,
    /// Counts instructions for whoever runs this core beside its own.
    beats: Option<Arc<AtomicU64>>,
    /// What the intermediates of graphs built here lie in.
    scratch: OnceCell<Arc<Attached>>,
    lent: Lent,
    attribution: Attribution,
    /// The collective call under way, and the same as it lies in shared memory.
    call: std::cell::Cell<Option<(Fingerprint, [u64; 2])>>,
    /// Where every rank says which call it is in.
    calls: Option<Signals>,
    /// Room for packets that were taken, kept from call to call.
    taken: std::cell::RefCell<Vec<u64>>,
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
            notified: std::cell::Cell::new(0),
            beats: None,
            scratch: OnceCell::new(),
            lent: Lent::default(),
            attribution: Attribution::default(),
            call: std::cell::Cell::new(None),
            calls: None,
            taken: std::cell::RefCell::default(),
        }
    }

    pub(crate) fn with_activity(self, activity: Activity) -> NativeCore {
        NativeCore {
            activity: Some(activity),
            ..self
        }
    }

    /// Another core of the same chip, for another thread: with the same memory, and a count of the
    /// instructions it has begun. `core` is its number in the record, from 1; one thread at a time has it.
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
            calls: self.calls,
            ..NativeCore::new(self.device, waiting)
        };
        (sibling, beats)
    }

    /// Says that this chip makes progress, on a core beside this one.
    pub fn say_again(&self) {
        if let Some(activity) = &self.activity {
            activity.again();
        }
    }

    /// Records that a task begins here, on core `core` of its chip; 0 is the chip itself. `after` is the task whose
    /// end let it go, if that is one of the same chip. Then [`end_task`](NativeCore::end_task).
    pub fn begin_task(
        &self,
        kernel: &'static KernelEntry,
        core: u8,
        number: u64,
        after: Option<u64>,
    ) -> Option<Begun> {
        let activity = self.activity.as_ref()?;
        activity.begin_task(kernel.name, core, number, after)
    }

    /// Records that it has ended.
    pub fn end_task(&self, begun: Option<Begun>, failed: bool) {
        if let (Some(activity), Some(begun)) = (&self.activity, begun) {
            activity.end_task(&begun, failed);
        }
    }

    /// Whether cores are free for more threads than this one.
    #[must_use]
    pub fn has_free_cores(&self) -> bool {
        self.patience == Patience::for_sharing(1, 1)
    }

    /// Memory of this core and its siblings alone, made when it is first asked for; always as large as then.
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

    /// Runs a kernel to its end.
    ///
    /// # Errors
    /// The kernel's own; or that it awaited something that is not an instruction.
    #[inline]
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

    /// Does what was said last, and records it if it is worth seeing.
    #[inline(always)]
    fn timed<R>(&self, doing: Doing, bytes: usize, work: impl FnOnce() -> R) -> R {
        match &self.activity {
            Some(activity) if bytes >= WORTH_SEEING_BYTES => activity.timed(doing, bytes as u64, work),
            _ => work(),
        }
    }

    /// Records a notify that is about to happen. Where the cell is, is found here and not when the instruction is
    /// issued, because only chips record.
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
        // Most cores have a few, and then looking at each is faster.
        if let Some((_, found)) = self.segments.iter().take(4).find(|(known, _)| *known == id) {
            return Some(found);
        }
        match self.segments.binary_search_by_key(&id, |(id, _)| *id) {
            Ok(at) => Some(&self.segments[at].1),
            Err(_) if id == SCRATCH => self.scratch.get().map(|scratch| &**scratch),
            Err(_) => None,
        }
    }

    #[inline(always)]
    fn resolve(&self, span: &Span, writing: bool, at: At) -> Result<*mut u8> {
        let found = match self.lent.resolve(span, writing) {
            Some(lent) => lent,
            None => self
                .segment(span.segment)
                .and_then(|segment| segment.resolve(span)),
        };
        found.ok_or_else(|| not_mapped(span.segment, span.byte_range(), at))
    }

    #[inline(always)]
    fn signal(&self, signal: &Signal, at: At) -> Result<Awaited<'_>> {
        let found = self.segment(signal.segment());
        found
            .and_then(|segment| {
                Some(Awaited {
                    segment,
                    cell: segment.signal(signal)?,
                    name: Name::of(signal),
                })
            })
            .ok_or_else(|| not_mapped(signal.segment(), signal.offset().map(|start| start..start), at))
    }

    /// What `copy` needs, found when the instruction is issued.
    #[inline(always)]
    fn moving(&self, dst: &Span, src: &Span, at: At) -> Result<Moving> {
        check_length("the source", src.len, dst.len, at)?;
        Ok(Moving {
            to: self.hold(dst, true, at)?,
            from: self.hold(src, false, at)?,
            bytes: span_bytes(dst),
            copied: lent::must_be_copied(src),
        })
    }

    fn copy_now(&self, moving: &Moving, at: At) -> Result<()> {
        self.say(Doing::Copy, at);
        let (to, from) = (
            self.held(moving.to, at)?,
            self.held(moving.from, at)?.cast_const(),
        );
        let bytes = moving.bytes;
        if check_overlap(to, from, bytes, 0, at)? || bytes == 0 {
            return Ok(());
        }
        // SAFETY: both were resolved to `bytes` bytes of attached segments, which live as long as self, and
        // do not overlap. Other processes may write them meanwhile: see `arith`.
        self.timed(Doing::Copy, bytes, || unsafe {
            lent::copy(to, moving.copied, from, bytes)
        });
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
            return Err(ErrorKind::Failed {
                message,
                site: at.into(),
            }
            .into());
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
        self.timed(Doing::Reduce, span_bytes(&dst).saturating_mul(count), || unsafe {
            arith::reduce(T::DTYPE, op, to, &from[..count], dst_len(&dst))
        });
        Ok(())
    }

    fn load_now<T: Element>(&self, src: Span, at: At) -> Result<Tile<T>> {
        self.say(Doing::Load, at);
        let from = self.resolve(&src, false, at)?;
        let mut values = vec![T::zeroed(); dst_len(&src)];
        // SAFETY: resolved as in `copy_now`; `values` is private and as long, and any bytes are a valid T.
        unsafe {
            lent::copy(
                values.as_mut_ptr().cast(),
                lent::must_be_copied(&src),
                from,
                span_bytes(&src),
            )
        };
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

    #[inline(always)]
    fn notify_now(&self, cell: &Cell, how: Notify, at: At) {
        self.say(Doing::Notify, at);
        if let Some(activity) = &self.activity {
            self.record_notify(activity, cell);
        }
        if let Some((call, words)) = self.call.get() {
            cell.note(call.sequence(), words);
        }
        match how {
            Notify::Set(value) => cell.set(value),
            Notify::Add(amount) => cell.add(amount),
        }
    }

    #[inline(always)]
    fn wait_now(&self, cell: Awaited<'_>, compare: Compare, operand: i32, at: At) -> Result<i32> {
        let mut value = cell.cell.load();
        for _ in 0..EAGER_LOOKS {
            if compare.holds(value, operand) {
                break;
            }
            value = cell.cell.load();
        }
        if !compare.holds(value, operand) {
            value = self.wait_long(cell, (compare, operand), at)?;
        }
        match self.call.get() {
            Some((call, words)) if cell.cell.noted(call.sequence()) != words => {
                Err(self.out_of_step(cell, call, at))
            }
            _ => Ok(value),
        }
    }

    #[cold]
    #[inline(never)]
    fn out_of_step(&self, cell: Awaited<'_>, call: Fingerprint, at: At) -> Error {
        let noted = cell.cell.noted(call.sequence());
        self.mismatch_with(cell.name.on(), noted).unwrap_or_else(|| {
            // A note of another call in its place: the peer is out of step.
            let message = format!("rank {} is not in {call}", cell.name.on());
            ErrorKind::Failed {
                message,
                site: at.into(),
            }
            .into()
        })
    }

    #[cold]
    fn wait_long(&self, awaited: Awaited<'_>, (compare, operand): (Compare, i32), at: At) -> Result<i32> {
        let Awaited { segment, cell, .. } = awaited;
        self.say(Doing::Wait, at);
        let deadline = Instant::now().checked_add(self.wait_limit);
        let satisfied = |value| compare.holds(value, operand);
        let exit = |looking| self.exit(segment, awaited.name.on(), looking);
        let wait = || cell.wait(self.patience, deadline, satisfied, exit);
        let ended = match self.activity.as_ref() {
            None => wait(),
            Some(activity) => {
                let name = awaited.name.recorded();
                activity.waited((segment.cell_number(cell).unwrap_or(u64::MAX), name), wait)
            }
        };
        let ended = match ended {
            Ok(value) => return Ok(value),
            Err(ended) => ended,
        };
        let waited = awaited.name.waited(cell.load(), (compare, operand), at);
        Err(match (ended, segment.alarm()) {
            (Ended::Exit(Exit::Mismatch(error)), _) => *error,
            (
                Ended::Exit(Exit::Alarm),
                Some(Alarm {
                    dead: Some(rank),
                    reason,
                }),
            ) => ErrorKind::PeerDied {
                rank,
                cause: reason,
                waited,
            }
            .into(),
            (Ended::Exit(Exit::Alarm), Some(Alarm { dead: None, reason })) => {
                ErrorKind::Aborted { reason, waited }.into()
            }
            _ => ErrorKind::Deadline {
                after_ms: u64::try_from(self.wait_limit.as_millis()).unwrap_or(u64::MAX),
                waited,
            }
            .into(),
        })
    }

    /// Why to give up waiting for a signal, if there is a reason.
    fn exit(&self, segment: &Attached, on: Rank, looking: Looking) -> Option<Exit> {
        if segment.alarmed() {
            return Some(Exit::Alarm);
        }
        match looking {
            Looking::Awake => None,
            Looking::BeforeSleep => self.mismatch(on).map(|error| Exit::Mismatch(Box::new(error))),
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
        Some(
            ErrorKind::Mismatch {
                me,
                mine: call.to_string(),
                peer,
                theirs: theirs.to_string(),
            }
            .into(),
        )
    }

    /// Where ranks say which collective call they are in: a cell of each that nothing else touches.
    pub fn set_calls(&mut self, calls: Signals) {
        self.calls = Some(calls);
    }

    /// Says which collective call the instructions until the next `enter` or `leave` belong to. Signals are
    /// marked with it, and waiting compares: ranks that disagree get [`ErrorKind::Mismatch`].
    #[inline(always)]
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
    #[inline(always)]
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

    #[inline(always)]
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

/// What it takes to copy: see `notify` for why it is found early and kept in words.
#[derive(Clone, Copy, Debug)]
struct Moving {
    to: Held,
    from: Held,
    bytes: usize,
    /// Whether `from` must be copied by way of private memory.
    copied: bool,
}

/// A signal, found: its cell, and what to call it when it does not come.
#[derive(Clone, Copy, Debug)]
struct Awaited<'a> {
    segment: &'a Attached,
    cell: &'a Cell,
    name: Name,
}

/// Who waits, on whom, and for which of its signals, in one word: see `notify` for why that matters.
#[derive(Clone, Copy, Debug)]
struct Name(u64);

impl Name {
    #[inline(always)]
    fn of(signal: &Signal) -> Name {
        let (on, index, queue) = match signal.queue() {
            None => (signal.rank(), signal.index(), 0),
            Some(end) => (end.peer, end.port, end.signal as u64 + 1),
        };
        // Ranks are below MAX_RANKS where there is a cell, and cells are few.
        let (me, on) = (u64::from(signal.holder().0), u64::from(on.0));
        Name(queue << 61 | (u64::from(index) & 0x1fff_ffff) << 32 | (on & 0xffff) << 16 | me & 0xffff)
    }

    fn on(self) -> Rank {
        Rank((self.0 >> 16 & 0xffff) as u32)
    }

    /// As it is recorded.
    fn recorded(self) -> u32 {
        record::signal_name(
            self.on().0,
            (self.0 >> 32 & 0x1fff_ffff) as u32,
            self.0 >> 61 != 0,
        )
    }

    fn waited(self, value: i32, (compare, needed): (Compare, i32), at: At) -> Waited {
        let queue = (self.0 >> 61).checked_sub(1);
        Waited {
            me: Rank((self.0 & 0xffff) as u32),
            on: self.on(),
            signal: (self.0 >> 32 & 0x1fff_ffff) as u32,
            value,
            compare,
            needed,
            queue: QueueSignal::ALL
                .into_iter()
                .find(|known| Some(*known as u64) == queue),
            site: at.into(),
        }
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

/// Elements of a span that was resolved, so they fit memory.
#[inline]
fn dst_len(span: &Span) -> usize {
    usize::try_from(span.len).unwrap_or(0)
}

/// Bytes of a span that was resolved, so they fit memory.
#[inline]
fn span_bytes(span: &Span) -> usize {
    dst_len(span).saturating_mul(span.dtype.bytes())
}

#[inline]
fn check_length(what: &'static str, got: u64, wanted: u64, at: At) -> Result<()> {
    if got == wanted {
        return Ok(());
    }
    Err(ErrorKind::LengthMismatch {
        what: what.into(),
        got,
        wanted,
        site: at.into(),
    }
    .into())
}

/// Whether the two are the same place.
#[inline]
fn check_overlap(to: *mut u8, from: *const u8, bytes: usize, index: usize, at: At) -> Result<bool> {
    let (a, b) = (to as usize, from as usize);
    if a == b || a + bytes <= b || b + bytes <= a {
        return Ok(a == b);
    }
    Err(ErrorKind::Overlap {
        source_index: u32::try_from(index).unwrap_or(u32::MAX),
        site: at.into(),
    }
    .into())
}

impl Core for NativeCore {
    fn device(&self) -> Device {
        self.device
    }

    fn attribution(&self) -> &Attribution {
        &self.attribution
    }

    #[track_caller]
    #[inline(always)]
    fn copy<T: Element>(
        &self,
        dst: Region<T, impl CanWrite>,
        src: Region<T, impl CanRead>,
    ) -> impl Future<Output = Result<()>> {
        let at = self.attribution.site();
        let moving = self.moving(&dst.span(), &src.span(), at);
        async move { self.copy_now(moving.as_ref().map_err(Clone::clone)?, at) }
    }

    #[track_caller]
    #[inline(always)]
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
        // Not in a closure: the error names this caller's line.
        std::future::ready(Tile::add_product(acc, a, b, arith::product::<T>))
    }

    #[track_caller]
    #[inline(always)]
    fn put_packets<T: Element>(
        &self,
        packets: Shared<i64>,
        src: Region<T, impl CanRead>,
        epoch: i32,
    ) -> impl Future<Output = Result<()>> {
        let at = self.attribution.site();
        let packing = self.packing(&packets, &src.span(), epoch, at);
        async move { self.put_packets_now(packing.as_ref().map_err(Clone::clone)?, at) }
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
    #[inline(always)]
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
        let folding = self.folding((&dst.span(), &mine.span()), &packets, &raised, epoch, at);
        async move { self.fold::<T>(folding.as_ref().map_err(Clone::clone)?, op, &raised, at) }
    }

    // Signals are looked up when the instruction is issued: a handle that is copied into a future is written and
    // read back in other pieces, which the processor does only after all stores before, and that is the time of
    // a whole message when one of them is to a line that another core has.

    #[track_caller]
    #[inline(always)]
    fn notify(&self, signal: Signal, how: Notify) -> impl Future<Output = Result<()>> {
        let at = self.attribution.site();
        let found = self.signal(&signal, at).map(|found| found.cell);
        async move {
            self.notify_now(found?, how, at);
            Ok(())
        }
    }

    #[track_caller]
    #[inline(always)]
    fn wait(&self, signal: Signal, compare: Compare, operand: i32) -> impl Future<Output = Result<i32>> {
        let at = self.attribution.site();
        let found = self.signal(&signal, at);
        async move { self.wait_now(found?, compare, operand, at) }
    }

    #[track_caller]
    #[inline(always)]
    fn peek(&self, signal: Signal) -> impl Future<Output = Result<i32>> {
        let found = self
            .signal(&signal, self.attribution.site())
            .map(|found| found.cell);
        async move { Ok(found?.load()) }
    }

    #[track_caller]
    #[inline(always)]
    fn recall(&self, signal: Signal) -> impl Future<Output = Result<i32>> {
        let found = self
            .signal(&signal, self.attribution.site())
            .map(|found| found.cell);
        async move { Ok(found?.written()) }
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
