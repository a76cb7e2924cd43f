//! What a segment is, before there is memory for it: ranks, signals and bytes, and whether they can be.

use super::{LAYOUT, MAGIC, MAX_SIGNALS, at};
use crate::error::{Error, Result};
use crate::memory::{MAX_BYTES, PAGE_BYTES, available_bytes};
use ringwork_isa::{MAX_RANKS, SIGNAL_STRIDE_BYTES, Segment};
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicU64, Ordering};

/// How much further than a whole number of pages the windows of two ranks are from each other. The same place of all windows
/// would fall on the same eight lines of a first-level cache else, and of eight ranks or more each would drive out the others';
/// so it falls on another sixteenth of it for each of 16. Not on the next one: a store would be taken for one to what is loaded
/// right after it, from another window at the same place of a page.
const SKEW_BYTES: u64 = 5 * 256;
const _: () = assert!(SKEW_BYTES < PAGE_BYTES && SKEW_BYTES.is_multiple_of(SIGNAL_STRIDE_BYTES));

/// What a segment is. Travels to a chip beside the descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layout {
    /// Its number.
    pub segment: Segment,
    /// Ranks with a window in it; 0 if it is private memory.
    pub ranks: u32,
    /// Signal cells per rank.
    pub signals: u32,
    /// Bytes from one rank's window to the next one's: its cells, its data, and a little more.
    pub stride: u64,
    /// A number that no other segment has.
    pub nonce: u64,
}

impl Layout {
    /// The windows of a domain: `signals` cells and `data_bytes` for each rank.
    ///
    /// # Errors
    /// If a number is beyond what can be.
    pub fn windows(segment: Segment, ranks: u32, signals: u32, data_bytes: u64) -> Result<Layout> {
        Layout::described(segment, ranks, signals, data_bytes)?.checked()
    }

    /// The windows of a domain that no process maps: as many ranks as are described.
    ///
    /// # Errors
    /// If it is larger than can be.
    pub fn described(segment: Segment, ranks: u32, signals: u32, data_bytes: u64) -> Result<Layout> {
        let window = page_align(data_bytes.saturating_add(u64::from(signals) * SIGNAL_STRIDE_BYTES));
        let stride = window.saturating_add(SKEW_BYTES);
        check_size("a window for every rank", ranks, stride)?;
        Ok(Layout {
            segment,
            ranks,
            signals,
            stride,
            nonce: fresh_nonce(),
        })
    }

    /// Private memory of one chip.
    ///
    /// # Errors
    /// If it is larger than can be.
    pub fn private(segment: Segment, data_bytes: u64) -> Result<Layout> {
        check_size("a tensor", 1, page_align(data_bytes))?;
        Layout {
            segment,
            ranks: 0,
            signals: 0,
            stride: page_align(data_bytes),
            nonce: fresh_nonce(),
        }
        .checked()
    }

    /// Refuses numbers that cannot be, wherever they come from.
    pub(crate) fn checked(self) -> Result<Layout> {
        let field = |name, got: u64, wanted: String| {
            Err(Error::Invalid(ringwork_isa::Error::corrupt(
                "a segment's layout",
                name,
                got,
                wanted,
            )))
        };
        if self.ranks > MAX_RANKS {
            return field("ranks", self.ranks.into(), format!("at most {MAX_RANKS}"));
        }
        if self.signals > MAX_SIGNALS {
            return field("signals", self.signals.into(), format!("at most {MAX_SIGNALS}"));
        }
        if !self.stride.is_multiple_of(SIGNAL_STRIDE_BYTES)
            || self.window_bytes() == 0
            || self.stride > largest_stride(self.ranks)
            || self.window_bytes() < u64::from(self.signals) * SIGNAL_STRIDE_BYTES
        {
            let limit = largest_stride(self.ranks);
            return field(
                "stride",
                self.stride,
                format!("whole cells, a window of whole pages inside, at most {limit}"),
            );
        }
        Ok(self)
    }

    /// All of its bytes, header included.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        page_align(PAGE_BYTES + self.stride * u64::from(self.ranks.max(1)))
    }

    /// Byte offset of the data of rank 0; signal cells come before it.
    #[must_use]
    #[inline(always)]
    pub fn data_offset(&self) -> u64 {
        PAGE_BYTES + u64::from(self.signals) * SIGNAL_STRIDE_BYTES
    }

    /// Bytes of data per rank.
    #[must_use]
    #[inline(always)]
    pub fn data_bytes(&self) -> u64 {
        self.window_bytes() - u64::from(self.signals) * SIGNAL_STRIDE_BYTES
    }

    /// Bytes of a window: whole pages.
    #[inline(always)]
    pub(super) fn window_bytes(&self) -> u64 {
        self.stride & !(PAGE_BYTES - 1)
    }

    pub(super) fn words(&self) -> [(u64, &'static str, u64); 7] {
        [
            (at::MAGIC, "magic", MAGIC),
            (at::LAYOUT, "layout", LAYOUT),
            (at::NONCE, "nonce", self.nonce),
            (at::SEGMENT, "segment", self.segment.0.into()),
            (at::RANKS, "ranks", self.ranks.into()),
            (at::SIGNALS, "signals", self.signals.into()),
            (at::STRIDE, "stride", self.stride),
        ]
    }
}

/// The most that each of so many ranks may have.
fn largest_stride(ranks: u32) -> u64 {
    MAX_BYTES / u64::from(ranks.max(1))
}

/// Refuses what is asked for and cannot be, in the words of someone who asked for memory.
fn check_size(what: &str, ranks: u32, stride: u64) -> Result<()> {
    if stride <= largest_stride(ranks) {
        return Ok(());
    }
    Err(Error::OutOfMemory {
        what: what.into(),
        need_bytes: stride.saturating_mul(ranks.max(1).into()),
        have_bytes: available_bytes().min(MAX_BYTES),
    })
}

fn page_align(bytes: u64) -> u64 {
    bytes
        .max(1)
        .checked_next_multiple_of(PAGE_BYTES)
        .unwrap_or(u64::MAX)
}

fn fresh_nonce() -> u64 {
    static COUNT: AtomicU64 = AtomicU64::new(1);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    u64::from(std::process::id()) << 32 ^ count
}
