//! The windows of all ranks in one segment: how many, how far apart, and handles into them.

use crate::{
    BUFFER_ALIGN_BYTES, BufferPlace, CellRow, LayoutError, MAX_BYTES, MAX_SIGNALS, PAGE_BYTES, cell_bytes,
};
use ringwork_isa::{Element, MAX_RANKS, Rank, Region, SIGNAL_STRIDE_BYTES, Segment, Shared, Signals, Span};
use serde::{Deserialize, Serialize};

/// How much further than a whole number of pages the windows of two ranks are from each other.
///
/// At a distance of whole pages the same place of all windows would fall into the same eight lines of a first-level cache,
/// and eight ranks or more would evict each other. With this it falls into another sixteenth of the cache for each of 16
/// ranks. The distance is not 256 bytes: the processor would take a store for one to the address that is loaded right after
/// it, from another window at the same place of a page.
const SKEW_BYTES: u64 = 5 * 256;
const _: () = assert!(SKEW_BYTES < PAGE_BYTES && SKEW_BYTES.is_multiple_of(SIGNAL_STRIDE_BYTES));

/// What a segment is: whose windows it holds, or whose private memory, and where they are. Travels to a chip beside the
/// descriptor of the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layout {
    /// The number of the segment.
    pub segment: Segment,
    /// Ranks with a window in it; 0 if it is private memory.
    pub ranks: u32,
    /// Signal cells per rank.
    pub cells: u32,
    /// Bytes before the first window.
    pub header_bytes: u64,
    /// Bytes from one rank's window to the next one's: its cells, its data, and a little more.
    pub stride: u64,
    /// A number that no other segment has, given to it when its memory is made; 0 before.
    pub nonce: u64,
}

/// Layouts.
impl Layout {
    /// The windows of a domain in memory that processes map: `cells` cells and `data_bytes` for each rank, behind a page
    /// for the header.
    ///
    /// # Errors
    /// [`LayoutError::TooLarge`] if there is too much data, [`LayoutError::Impossible`] if another number is too large.
    pub fn windows(segment: Segment, ranks: u32, cells: u32, data_bytes: u64) -> Result<Layout, LayoutError> {
        Layout::described(segment, ranks, cells, data_bytes)?.checked()
    }

    /// The same windows where no process maps them: as many ranks as the machine's description has.
    ///
    /// # Errors
    /// [`LayoutError::TooLarge`].
    pub fn described(
        segment: Segment,
        ranks: u32,
        cells: u32,
        data_bytes: u64,
    ) -> Result<Layout, LayoutError> {
        let window = page_align(data_bytes.saturating_add(cell_bytes(cells)));
        let stride = window.saturating_add(SKEW_BYTES);
        check_size("a window for every rank", ranks, stride)?;
        Ok(Layout {
            segment,
            ranks,
            cells,
            header_bytes: PAGE_BYTES,
            stride,
            nonce: 0,
        })
    }

    /// Windows one right behind the other, without a header: for the memory of a described machine.
    #[must_use]
    pub fn packed(segment: Segment, ranks: u32, cells: u32, data_bytes: u64) -> Layout {
        let data_bytes = data_bytes.checked_next_multiple_of(BUFFER_ALIGN_BYTES);
        Layout {
            segment,
            ranks,
            cells,
            header_bytes: 0,
            stride: data_bytes.unwrap_or(u64::MAX).saturating_add(cell_bytes(cells)),
            nonce: 0,
        }
    }

    /// Private memory of one chip.
    ///
    /// # Errors
    /// [`LayoutError::TooLarge`].
    pub fn private(segment: Segment, data_bytes: u64) -> Result<Layout, LayoutError> {
        let stride = page_align(data_bytes);
        check_size("a tensor", 1, stride)?;
        Layout {
            segment,
            ranks: 0,
            cells: 0,
            header_bytes: PAGE_BYTES,
            stride,
            nonce: 0,
        }
        .checked()
    }

    /// Itself, if processes can map such a segment: to be asked of every layout that comes from elsewhere.
    ///
    /// # Errors
    /// [`LayoutError::Impossible`]: the field that cannot be so.
    pub fn checked(self) -> Result<Layout, LayoutError> {
        let refused = |field, got: u64, wanted| Err(LayoutError::Impossible { field, got, wanted });
        if self.ranks > MAX_RANKS {
            return refused("ranks", self.ranks.into(), format!("at most {MAX_RANKS}"));
        }
        if self.cells > MAX_SIGNALS {
            return refused("signals", self.cells.into(), format!("at most {MAX_SIGNALS}"));
        }
        if self.header_bytes != PAGE_BYTES {
            return refused("header", self.header_bytes, format!("{PAGE_BYTES}"));
        }
        if !self.stride.is_multiple_of(SIGNAL_STRIDE_BYTES)
            || self.window_bytes() == 0
            || self.stride > largest_stride(self.ranks)
            || self.window_bytes() < cell_bytes(self.cells)
        {
            let limit = largest_stride(self.ranks);
            let wanted = format!("whole cells, a window of whole pages inside, at most {limit}");
            return refused("stride", self.stride, wanted);
        }
        Ok(self)
    }
}

/// Sizes and offsets.
impl Layout {
    /// Bytes of the whole segment, header included.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let windows = self.stride.saturating_mul(self.ranks.max(1).into());
        match self.header_bytes {
            0 => windows,
            header => page_align(header.saturating_add(windows)),
        }
    }

    /// Byte offset of the data of rank 0; its signal cells come before it.
    #[must_use]
    #[inline(always)]
    pub fn data_offset(&self) -> u64 {
        self.header_bytes + cell_bytes(self.cells)
    }

    /// Bytes of data per rank.
    #[must_use]
    #[inline(always)]
    pub fn data_bytes(&self) -> u64 {
        self.window_bytes() - cell_bytes(self.cells)
    }

    /// Bytes of a window, cells and data: whole pages if it is mapped.
    #[must_use]
    #[inline(always)]
    pub fn window_bytes(&self) -> u64 {
        match self.header_bytes {
            0 => self.stride,
            _ => self.stride & !(PAGE_BYTES - 1),
        }
    }

    /// Byte offset of a rank's window: of its first cell.
    #[must_use]
    pub fn window_offset(&self, rank: Rank) -> u64 {
        self.header_bytes + self.stride * u64::from(rank.0)
    }

    /// Byte offset of `bytes` bytes, `offset` into a rank's data; `None` if they are not all inside it.
    #[must_use]
    pub fn data_at(&self, rank: Rank, offset: u64, bytes: u64) -> Option<u64> {
        if rank.0 >= self.ranks.max(1) || offset.checked_add(bytes)? > self.data_bytes() {
            return None;
        }
        Some(self.window_offset(rank) + cell_bytes(self.cells) + offset)
    }
}

/// Handles.
impl Layout {
    /// A row of signals, held by `me`.
    #[must_use]
    #[inline]
    pub fn signals(&self, me: Rank, row: CellRow) -> Signals {
        Signals {
            segment: self.segment,
            base: self.header_bytes + cell_bytes(row.first),
            stride: self.stride,
            count: row.count,
            me,
            ranks: self.ranks,
        }
    }

    /// A buffer of every window: `me`'s own, and through it everybody's.
    #[must_use]
    #[inline]
    pub fn span(&self, me: Rank, buffer: BufferPlace) -> Span {
        Span {
            segment: self.segment,
            base: self.data_offset().wrapping_add(buffer.offset),
            stride: self.stride,
            me,
            rank: me,
            ranks: self.ranks,
            dtype: buffer.dtype,
            start: 0,
            len: buffer.count as u64,
        }
    }

    /// The same with its types. A buffer of another type is seen as elements of type `T`: as many as its bytes hold.
    #[must_use]
    #[inline]
    pub fn region<T: Element>(&self, me: Rank, buffer: BufferPlace) -> Shared<T> {
        Region::from_span(self.span(me, buffer.cast(T::DTYPE))).expect("it was cast to the type of T")
    }

    /// A buffer of private memory: it has no ranks.
    #[must_use]
    pub fn private_span(&self, buffer: BufferPlace) -> Span {
        Span {
            stride: 0,
            ranks: 1,
            ..self.span(Rank(0), buffer)
        }
    }
}

/// The most bytes that each of so many ranks may have.
fn largest_stride(ranks: u32) -> u64 {
    MAX_BYTES / u64::from(ranks.max(1))
}

fn check_size(what: &'static str, ranks: u32, stride: u64) -> Result<(), LayoutError> {
    if stride <= largest_stride(ranks) {
        return Ok(());
    }
    let need_bytes = stride.saturating_mul(ranks.max(1).into());
    Err(LayoutError::TooLarge { what, need_bytes })
}

fn page_align(bytes: u64) -> u64 {
    let pages = bytes.max(1).checked_next_multiple_of(PAGE_BYTES);
    pages.unwrap_or(u64::MAX)
}
