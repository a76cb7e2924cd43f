//! One window: which cells belong to which row of signals, and where each buffer begins.

use crate::{BUFFER_ALIGN_BYTES, Layout, LayoutError, MAX_SIGNALS};
use ringwork_isa::{Dtype, Segment};

/// Hands out the places of a window, one behind the other. See the [crate] for an example.
#[derive(Clone, Copy, Debug, Default)]
pub struct WindowBuilder {
    cells: u32,
    data_bytes: u64,
}

/// A row of signals: the same cells of every window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CellRow {
    /// Its first cell.
    pub first: u32,
    /// How many there are.
    pub count: u32,
}

/// Where a buffer lies in every window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferPlace {
    /// Bytes from the start of the window's data.
    pub offset: u64,
    /// Type of its elements.
    pub dtype: Dtype,
    /// Number of its elements.
    pub count: usize,
}

impl BufferPlace {
    /// The same bytes as elements of another type: as many as fit.
    #[must_use]
    #[inline]
    pub fn cast(self, dtype: Dtype) -> BufferPlace {
        let count = if dtype == self.dtype {
            self.count
        } else {
            self.bytes() / dtype.bytes()
        };
        BufferPlace { dtype, count, ..self }
    }

    /// Bytes of its elements.
    #[must_use]
    #[inline]
    pub const fn bytes(&self) -> usize {
        self.count.saturating_mul(self.dtype.bytes())
    }
}

impl WindowBuilder {
    /// A row of `count` signals.
    ///
    /// # Errors
    /// [`LayoutError::TooManySignals`].
    pub fn row(&mut self, count: u32) -> Result<CellRow, LayoutError> {
        let first = self.cells;
        let cells = first.checked_add(count).filter(|cells| *cells <= MAX_SIGNALS);
        self.cells = cells.ok_or(LayoutError::TooManySignals)?;
        Ok(CellRow { first, count })
    }

    /// A buffer of `count` elements.
    ///
    /// # Errors
    /// [`LayoutError::TooLong`].
    pub fn buffer(&mut self, dtype: Dtype, count: usize) -> Result<BufferPlace, LayoutError> {
        let offset = self.data_bytes;
        let end = count.checked_mul(dtype.bytes()).and_then(|bytes| {
            let end = offset.checked_add(bytes as u64)?;
            end.checked_next_multiple_of(BUFFER_ALIGN_BYTES)
        });
        self.data_bytes = end.ok_or(LayoutError::TooLong { dtype, count })?;
        Ok(BufferPlace { offset, dtype, count })
    }

    /// Cells so far.
    #[must_use]
    pub fn cells(&self) -> u32 {
        self.cells
    }

    /// Bytes of all buffers so far, with what lies between them.
    #[must_use]
    pub fn data_bytes(&self) -> u64 {
        self.data_bytes
    }

    /// Such windows for `ranks` ranks, in memory that processes map: [`Layout::windows`].
    ///
    /// # Errors
    /// [`LayoutError::TooLarge`], or [`LayoutError::Impossible`] if there are too many ranks.
    pub fn layout(&self, segment: Segment, ranks: u32) -> Result<Layout, LayoutError> {
        Layout::windows(segment, ranks, self.cells, self.data_bytes)
    }

    /// Such windows for `ranks` ranks of a described machine: [`Layout::packed`].
    #[must_use]
    pub fn packed(&self, segment: Segment, ranks: u32) -> Layout {
        Layout::packed(segment, ranks, self.cells, self.data_bytes)
    }
}
