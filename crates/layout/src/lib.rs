//! What lies where in a window, and the handles to it.
//!
//! A segment holds one window for each rank of a domain. All windows are alike: signal cells, then buffers.
//!
//! ```text
//!  header      window of rank 0                  window of rank 1
//! |.......|   | cells | buffer | buffer | ... |  | cells | buffer | ...
//! 0           header_bytes                       header_bytes + stride
//! ```
//!
//! A [`WindowBuilder`] hands out the places of rows of signals and of buffers, one behind the other. A [`Layout`] says
//! where the windows are, and turns places into the [`Signals`](ringwork_isa::Signals) and
//! [`Span`](ringwork_isa::Span)s of one rank:
//!
//! ```
//! use ringwork_isa::{Dtype, Rank, Segment};
//! use ringwork_layout::WindowBuilder;
//!
//! let mut window = WindowBuilder::default();
//! let meet = window.row(1)?;
//! let scratch = window.buffer(Dtype::F32, 512)?;
//! let layout = window.layout(Segment(1), 4)?;
//!
//! let scratch = layout.region::<f32>(Rank(2), scratch);
//! assert_eq!(scratch.on(Rank(3))?.len(), 512);
//! assert_eq!(layout.signals(Rank(2), meet).ranks(), 4);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! This crate computes numbers. It holds no memory, and does not check that a handle is inside: cores do that at every
//! instruction.
//!
//! # Invariants
//! - **LAY-1 (apart).** Places of one builder do not overlap, in one window or in two.
//! - **LAY-2 (aligned).** Cells lie at multiples of their own size, buffers at multiples of [`BUFFER_ALIGN_BYTES`].
//! - **LAY-3 (inside).** Every place is behind the header and inside [`Layout::bytes`].
#![forbid(unsafe_code)]

mod bytes;
mod error;
mod segment;
mod window;

pub use bytes::Bytes;
pub use error::LayoutError;
pub use segment::Layout;
pub use window::{BufferPlace, CellRow, WindowBuilder};

use ringwork_isa::SIGNAL_STRIDE_BYTES;

/// Memory that is mapped comes in multiples of this.
pub const PAGE_BYTES: u64 = 4096;

/// The most bytes that a segment may have: 1 TiB.
pub const MAX_BYTES: u64 = 1 << 40;

/// The most signal cells that a rank may have.
pub const MAX_SIGNALS: u32 = 1 << 16;

/// Buffers begin at multiples of this, so that no two share a cache line.
pub const BUFFER_ALIGN_BYTES: u64 = 128;
const _: () = assert!(SIGNAL_STRIDE_BYTES.is_multiple_of(BUFFER_ALIGN_BYTES));

/// Bytes of so many signal cells.
const fn cell_bytes(cells: u32) -> u64 {
    cells as u64 * SIGNAL_STRIDE_BYTES
}
