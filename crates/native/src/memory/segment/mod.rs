//! Segments: pieces of shared memory with a header that says what they are.
//!
//! A segment is either *private*, one allocation on one chip that only its host also sees, or the
//! *windows* of a domain: for each rank the same number of signal cells followed by the same bytes of data.
//!
//! ```text
//! page 0                      rank 0                          rank 1
//! | header | alarm, reason |  | signal cells | buffers ... |  | signal cells | buffers ... |
//! 0                           4096                            4096 + stride
//! ```
//!
//! # Invariants
//! - **SEG-1 (checked).** A process attaches only if every header field is what it was told to expect.
//! - **SEG-2 (fresh).** A segment is zeroed and its header complete before any other process can reach it.
//! - **SEG-3 (data is data).** Regions resolve to buffer bytes only, signals to cell bytes only.
//! - **SEG-4 (one alarm).** The alarm goes from quiet to raised once: it is claimed, the reason is written, it is
//!   published, then every cell is roused. It is cleared only while no task runs.
//! - **SEG-5 (all there).** The memory holds every byte that the layout says, and the layout is one that can be: so what lies inside
//!   the layout needs no comparison with the memory.

mod alarm;
#[cfg(test)]
mod tests;

pub use alarm::Alarm;
pub use ringwork_layout::Layout;

use crate::cell::Cell;
use crate::error::Result;
use crate::memory::{Memory, PAGE_BYTES, create_sealed};
use ringwork_isa::{Rank, SIGNAL_STRIDE_BYTES, Signal, Span, signature_hash};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

const MAGIC: u64 = u64::from_le_bytes(*b"RINGWORK");
const LAYOUT: u64 =
    signature_hash("magic layout nonce segment ranks signals stride alarm reason generation left; v3");

/// Offsets of the words in page 0.
mod at {
    pub(super) const MAGIC: u64 = 0;
    pub(super) const LAYOUT: u64 = 8;
    pub(super) const NONCE: u64 = 16;
    pub(super) const SEGMENT: u64 = 24;
    pub(super) const RANKS: u64 = 32;
    pub(super) const SIGNALS: u64 = 40;
    pub(super) const STRIDE: u64 = 48;
    pub(super) const ALARM: u64 = 128;
    pub(super) const ALARM_RANK: u64 = 136;
    pub(super) const REASON_LEN: u64 = 144;
    pub(super) const GENERATION: u64 = 152;
    pub(super) const LEFT: u64 = 160;
    pub(super) const REASON: u64 = 256;
}
const REASON_LEN: usize = 4096 - 256;
const REASON_BYTES: u64 = REASON_LEN as u64;
const _: () = assert!(at::REASON + REASON_BYTES == PAGE_BYTES);

/// An attached segment.
#[derive(Debug)]
pub struct Attached {
    layout: Layout,
    /// Of the layout, found once, for every instruction asks: where the data of rank 0 lies, how many windows there are, and how
    /// many bytes of each are signal cells.
    data: Range<u64>,
    windows: u32,
    cell_bytes: u64,
    memory: Memory,
    fd: Option<OwnedFd>,
}

impl Attached {
    /// Makes a segment that other processes can be given (SEG-2).
    ///
    /// # Errors
    /// If there is no memory for it.
    pub fn create(what: &str, layout: Layout) -> Result<Attached> {
        let layout = new_segment(layout)?;
        let fd = create_sealed(what, layout.bytes())?;
        let memory = Memory::map(&fd, layout.bytes())?;
        Ok(Attached::of(layout, memory, Some(fd)).with_header())
    }

    /// Makes a segment on the heap, for threads of this process.
    ///
    /// # Errors
    /// If there is no memory for it.
    pub fn on_heap(layout: Layout) -> Result<Attached> {
        let layout = new_segment(layout)?;
        Ok(Attached::of(layout, Memory::heap(layout.bytes())?, None).with_header())
    }

    /// Attaches to a segment that another process made (SEG-1).
    ///
    /// # Errors
    /// Names the field that is not what `layout` says.
    pub fn open(fd: OwnedFd, layout: Layout) -> Result<Attached> {
        let layout = layout.checked()?;
        let attached = Attached::of(layout, Memory::map(&fd, layout.bytes())?, None);
        attached.check_header()?;
        Ok(attached)
    }

    fn of(layout: Layout, memory: Memory, fd: Option<OwnedFd>) -> Attached {
        Attached {
            data: layout.data_offset()..PAGE_BYTES + layout.window_bytes(),
            windows: layout.ranks.max(1),
            cell_bytes: layout.data_offset() - PAGE_BYTES,
            layout,
            memory,
            fd,
        }
    }

    /// Overwrites page 0, as a process gone wild might.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn overwrite_header(&self, bytes: &[u8]) {
        for (offset, byte) in (0..PAGE_BYTES).zip(bytes) {
            assert!(self.memory.write(offset, &[*byte]));
        }
    }

    /// Where in this segment a pointer into it points.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn offset_of(&self, pointer: *const u8) -> u64 {
        let origin = self.memory.pointer(0, 0, 1).expect("every segment has a page 0");
        pointer as u64 - origin as u64
    }

    /// A number for one of this segment's cells, the same in every process; `None` if it is another's.
    pub(crate) fn cell_number(&self, cell: &Cell) -> Option<u64> {
        let origin = self.memory.pointer(0, 0, 1)?;
        let offset = (std::ptr::from_ref(cell) as u64).checked_sub(origin as u64)?;
        let inside = offset < self.layout.bytes();
        inside.then(|| (u64::from(self.layout.segment.0) << 32) | (offset / SIGNAL_STRIDE_BYTES))
    }

    fn with_header(self) -> Attached {
        for (offset, _, value) in header_words(&self.layout) {
            self.header_word(offset).store(value, Ordering::Release);
        }
        self
    }

    pub(crate) fn check_header(&self) -> Result<()> {
        for (offset, name, wanted) in header_words(&self.layout) {
            let got = self.header_word(offset).load(Ordering::Acquire);
            if got != wanted {
                let what = format!("the header of segment {}", self.layout.segment);
                return Err(ringwork_isa::Error::corrupt(
                    what,
                    name,
                    format!("{got:#x}"),
                    format!("{wanted:#x}"),
                )
                .into());
            }
        }
        Ok(())
    }

    /// A word of page 0. Every segment has a page 0, and the offsets are constants inside it.
    #[inline(always)]
    fn header_word(&self, offset: u64) -> &AtomicU64 {
        self.memory.word(offset).expect("header words lie in page 0")
    }

    /// Where its windows are.
    #[must_use]
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// The descriptor to hand to another process; only the maker has one.
    #[must_use]
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.fd.as_ref().map(AsFd::as_fd)
    }

    /// The memory of a region, if it is buffer bytes of this segment (SEG-3).
    #[must_use]
    #[inline(always)]
    pub fn resolve(&self, span: &Span) -> Option<*mut u8> {
        let start = self.in_data(span)?;
        let (rank, stride) = (span.rank.0, self.layout.stride);
        if rank >= self.windows || rank != 0 && span.stride != stride {
            return None;
        }
        let start = start + u64::from(rank) * stride;
        // SAFETY: inside the window of a rank that there is (SEG-5).
        unsafe { self.memory.pointer_inside(start, span.dtype.bytes()) }
    }

    /// Where a region would begin, were it one of this segment's: for hints, which access nothing.
    #[inline(always)]
    pub(crate) fn hint(&self, span: &Span) -> *mut u8 {
        let window = self.layout.stride.wrapping_mul(span.rank.0.into());
        let start = span.start.wrapping_mul(span.dtype.bytes() as u64);
        self.memory
            .hint(window.wrapping_add(span.base).wrapping_add(start))
    }

    /// The memory of a region on rank 0, if it is there on every rank, each a stride of the region's after the one before (SEG-3).
    #[must_use]
    #[inline(always)]
    pub fn resolve_on_all(&self, span: &Span) -> Option<*mut u8> {
        let start = self.in_data(span)?;
        if span.ranks > self.layout.ranks || span.stride != self.layout.stride {
            return None;
        }
        // SAFETY: inside the window of rank 0 (SEG-5).
        unsafe { self.memory.pointer_inside(start, span.dtype.bytes()) }
    }

    /// Where a region begins on rank 0, if it is inside that rank's data.
    #[inline(always)]
    fn in_data(&self, span: &Span) -> Option<u64> {
        let (start, bytes) = span.on_first()?;
        (start >= self.data.start && start + bytes <= self.data.end).then_some(start)
    }

    /// The cell of a signal, if it is one of this segment's (SEG-3).
    #[must_use]
    #[inline(always)]
    pub fn signal(&self, signal: &Signal) -> Option<&Cell> {
        self.signal_on(signal, signal.rank())
    }

    /// The cell of the same signal of a rank.
    #[must_use]
    #[inline(always)]
    pub(crate) fn signal_on(&self, signal: &Signal, rank: Rank) -> Option<&Cell> {
        let (rank, stride) = (rank.0, self.layout.stride);
        let in_window = signal.offset_on_first()?.checked_sub(PAGE_BYTES)?;
        let is_cell = in_window < self.cell_bytes && in_window.is_multiple_of(SIGNAL_STRIDE_BYTES);
        if !is_cell || rank >= self.layout.ranks || rank != 0 && signal.stride() != stride {
            return None;
        }
        // SAFETY: one of the cells of a rank that there is (SEG-5); strides are multiples of a cell's size.
        Some(unsafe {
            self.memory
                .cell_inside(PAGE_BYTES + u64::from(rank) * stride + in_window)
        })
    }

    /// The cell at an offset.
    ///
    /// # Safety
    /// [`signal`](Attached::signal) of this segment has found one there.
    #[must_use]
    #[inline(always)]
    pub(crate) unsafe fn cell_at(&self, offset: u64) -> &Cell {
        // SAFETY: the caller's promise; segments do not shrink.
        unsafe { self.memory.cell_inside(offset) }
    }

    /// Copies bytes into a rank's data; false, having done nothing, if they do not fit.
    #[must_use]
    pub fn write(&self, rank: Rank, offset: u64, bytes: &[u8]) -> bool {
        self.layout
            .data_at(rank, offset, bytes.len() as u64)
            .is_some_and(|at| self.memory.write(at, bytes))
    }

    /// Copies bytes out of a rank's data; false, having done nothing, if they are not all there.
    #[must_use]
    pub fn read(&self, rank: Rank, offset: u64, bytes: &mut [u8]) -> bool {
        self.layout
            .data_at(rank, offset, bytes.len() as u64)
            .is_some_and(|at| self.memory.read(at, bytes))
    }

    /// Makes every waiter in this domain look again, at its signal and at its exits.
    pub fn rouse(&self) {
        for cell in self.cells() {
            cell.rouse();
        }
    }

    fn cells(&self) -> impl Iterator<Item = &Cell> {
        (0..self.layout.ranks).map(Rank).flat_map(move |rank| {
            let first = self.layout.window_offset(rank);
            (0..u64::from(self.layout.cells))
                .filter_map(move |i| self.memory.cell(first + i * SIGNAL_STRIDE_BYTES))
        })
    }
}

/// A layout of a segment that is made now: one that can be mapped, with a number of its own.
fn new_segment(layout: Layout) -> Result<Layout> {
    static COUNT: AtomicU64 = AtomicU64::new(1);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let nonce = u64::from(std::process::id()) << 32 ^ count;
    Ok(Layout {
        nonce,
        ..layout.checked()?
    })
}

/// The words of the header: offset, name for errors, value.
fn header_words(layout: &Layout) -> [(u64, &'static str, u64); 7] {
    [
        (at::MAGIC, "magic", MAGIC),
        (at::LAYOUT, "layout", LAYOUT),
        (at::NONCE, "nonce", layout.nonce),
        (at::SEGMENT, "segment", layout.segment.0.into()),
        (at::RANKS, "ranks", layout.ranks.into()),
        (at::SIGNALS, "signals", layout.cells.into()),
        (at::STRIDE, "stride", layout.stride),
    ]
}

/// The longest prefix of at most `bytes` bytes that is still whole characters.
pub(crate) fn truncated(text: &str, bytes: usize) -> &str {
    &text[..text.floor_char_boundary(bytes)]
}
