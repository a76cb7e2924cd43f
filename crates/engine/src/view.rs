//! Views: which bytes of a buffer a task touches, and whether two views share one.
//!
//! A view is `rows` rows of `row_bytes`, `pitch` bytes apart: a range is one row, a column block of a
//! matrix has as many rows as the matrix. The tests on pairs are exact and take constant time
//! (logarithmic where two pitches differ), however many rows there are.
//!
//! # Invariants
//! - **VIEW-1 (canonical).** Rows that touch or overlap are joined on construction, so a view of more than
//!   one row has a gap between any two, and equal sets of this form are equal values.
//! - **VIEW-2 (exact).** [`View::overlaps`] holds if and only if a byte lies in both.
//! - **VIEW-3 (safe).** [`View::covers`] never says yes wrongly; for two different pitches it says no.

use crate::error::Error;
use std::fmt;
use std::ops::Range;

/// Some bytes of a buffer: a range, or evenly spaced rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct View {
    /// First byte of the first row.
    start: u64,
    /// Number of rows; 0 for the empty view.
    rows: u64,
    /// Bytes in each row.
    row_bytes: u64,
    /// Bytes from one row to the next; equal to `row_bytes` if there is one row.
    pitch: u64,
}

impl View {
    /// No bytes at all.
    pub const EMPTY: View = View {
        start: 0,
        rows: 0,
        row_bytes: 0,
        pitch: 0,
    };

    /// The bytes in `range`; none if it is backwards.
    #[must_use]
    pub const fn range(range: Range<u64>) -> View {
        if range.start >= range.end {
            return View::EMPTY;
        }
        let row_bytes = range.end - range.start;
        View {
            start: range.start,
            rows: 1,
            row_bytes,
            pitch: row_bytes,
        }
    }

    /// `rows` rows of `row_bytes`, the first at `start`, each `pitch` bytes after the one before.
    ///
    /// ```
    /// use ringwork_engine::View;
    /// // Two column blocks of a matrix whose rows are 64 bytes long.
    /// let left = View::strided(0, 100, 32, 64)?;
    /// let right = View::strided(32, 100, 32, 64)?;
    /// assert!(!left.overlaps(&right));
    /// assert!(left.overlaps(&View::range(64..65)));
    /// # Ok::<(), ringwork_engine::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::ViewTooLarge`] if it does not end below 2^64.
    pub fn strided(start: u64, rows: u64, row_bytes: u64, pitch: u64) -> Result<View, Error> {
        if rows == 0 || row_bytes == 0 {
            return Ok(View::EMPTY);
        }
        let too_large = Error::ViewTooLarge {
            start,
            rows,
            row_bytes,
            pitch,
        };
        let span = pitch.checked_mul(rows - 1).and_then(|n| n.checked_add(row_bytes));
        let Some(end) = span.and_then(|n| n.checked_add(start)) else {
            return Err(too_large);
        };
        if rows == 1 || pitch <= row_bytes {
            return Ok(View::range(start..end));
        }
        Ok(View {
            start,
            rows,
            row_bytes,
            pitch,
        })
    }

    /// The same bytes of a buffer that begins `by` bytes earlier.
    ///
    /// # Errors
    /// [`Error::ViewTooLarge`] if it does not end below 2^64.
    pub fn shifted(self, by: u64) -> Result<View, Error> {
        match self.end().checked_add(by) {
            Some(_) => Ok(View {
                start: self.start + by,
                ..self
            }),
            None => Err(Error::ViewTooLarge {
                start: self.start,
                rows: self.rows,
                row_bytes: self.row_bytes,
                pitch: self.pitch,
            }),
        }
    }

    /// First byte.
    #[must_use]
    pub const fn start(&self) -> u64 {
        self.start
    }

    /// One past the last byte.
    #[must_use]
    pub const fn end(&self) -> u64 {
        if self.rows == 0 {
            return self.start;
        }
        self.start + (self.rows - 1) * self.pitch + self.row_bytes
    }

    /// How many rows.
    pub(crate) const fn rows(&self) -> u64 {
        self.rows
    }

    /// Bytes in each row.
    pub(crate) const fn row_bytes(&self) -> u64 {
        self.row_bytes
    }

    /// Bytes from one row to the next.
    pub(crate) const fn pitch(&self) -> u64 {
        self.pitch
    }

    /// Whether there are no bytes.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// The bytes of each row, in order.
    pub fn row_ranges(self) -> impl Iterator<Item = Range<u64>> {
        (0..self.rows).map(move |row| {
            let start = self.start + row * self.pitch;
            start..start + self.row_bytes
        })
    }

    /// Whether a byte lies in both (VIEW-2).
    #[inline]
    #[must_use]
    pub fn overlaps(&self, other: &View) -> bool {
        if self.start >= other.end() || other.start >= self.end() || self.rows == 0 || other.rows == 0 {
            return false;
        }
        match (self.rows, other.rows) {
            (1, 1) => true,
            (1, _) => other.meets_range(self.start, self.end()),
            (_, 1) => self.meets_range(other.start, other.end()),
            _ if self.pitch == other.pitch => self.meets_same_pitch(other),
            _ => self.meets_other_pitch(other),
        }
    }

    /// Whether every byte of `other` lies in this view, where that is easily seen (VIEW-3).
    #[inline]
    #[must_use]
    pub fn covers(&self, other: &View) -> bool {
        if other.rows == 0 {
            return true;
        }
        if self.rows == 0 || other.start < self.start || other.end() > self.end() {
            return false;
        }
        if self.rows == 1 {
            return true;
        }
        if other.rows > 1 && self.pitch != other.pitch {
            return false;
        }
        let ahead = other.start - self.start;
        let (row, column) = (ahead / self.pitch, ahead % self.pitch);
        // Rows are apart (VIEW-1): a row of `other` must lie inside one row of ours.
        column + other.row_bytes <= self.row_bytes && row + other.rows <= self.rows
    }

    /// The union with `other`, if that is a view too.
    pub(crate) fn join(&self, other: &View) -> Option<View> {
        let (a, b) = if self.start <= other.start {
            (self, other)
        } else {
            (other, self)
        };
        if a.covers(b) {
            return Some(*a);
        }
        if a.rows == 1 && b.rows == 1 {
            return (b.start <= a.end()).then(|| View::range(a.start..b.end()));
        }
        if a.rows == b.rows && a.pitch == b.pitch && b.start <= a.start + a.row_bytes {
            // Side by side: the same rows, neighbouring columns.
            let row_bytes = (b.start + b.row_bytes).max(a.start + a.row_bytes) - a.start;
            return View::strided(a.start, a.rows, row_bytes, a.pitch).ok();
        }
        if a.row_bytes == b.row_bytes && (a.rows == 1 || b.rows == 1 || a.pitch == b.pitch) {
            // One above the other: the same columns, following rows.
            let pitch = if a.rows > 1 { a.pitch } else { b.pitch };
            let ahead = b.start - a.start;
            if ahead.is_multiple_of(pitch) && ahead / pitch <= a.rows {
                return View::strided(a.start, ahead / pitch + b.rows, a.row_bytes, pitch).ok();
            }
        }
        None
    }

    /// Whether a row meets the bytes `low..high`; the outer bounds are known to.
    fn meets_range(&self, low: u64, high: u64) -> bool {
        let first_end = self.start + self.row_bytes;
        // The first row that ends after `low`.
        let row = if low < first_end {
            0
        } else {
            (low - first_end) / self.pitch + 1
        };
        row < self.rows && self.start + row * self.pitch < high
    }

    /// Rows of equal pitch: the later view's first row lies in some row and column of the earlier one.
    fn meets_same_pitch(&self, other: &View) -> bool {
        let (first, second) = if self.start <= other.start {
            (self, other)
        } else {
            (other, self)
        };
        let ahead = second.start - first.start;
        let (row, column) = (ahead / first.pitch, ahead % first.pitch);
        (column < first.row_bytes && row < first.rows)
            || (column + second.row_bytes > first.pitch && row + 1 < first.rows)
    }

    /// Rows of different pitch: one question about a sequence modulo the other's pitch.
    fn meets_other_pitch(&self, other: &View) -> bool {
        // A row of ours that holds the other's first byte meets it there.
        if self.meets_range(other.start, other.start + 1) {
            return true;
        }
        // Our rows that begin after the other's first byte and before its last row.
        let last_row = other.start + (other.rows - 1) * other.pitch;
        let from = if self.start > other.start {
            0
        } else {
            (other.start - self.start) / self.pitch + 1
        };
        let until = match last_row.checked_sub(self.start) {
            Some(0) | None => 0,
            Some(room) => ((room - 1) / self.pitch + 1).min(self.rows),
        };
        // One that begins in the last row, or straddles its first byte, meets it there.
        if self.meets_range(last_row, last_row + other.row_bytes) {
            return true;
        }
        if from >= until {
            return false;
        }
        // Row i begins `x` after the start of some row of the other, and meets it if x < its bytes, or
        // meets the next one if x > pitch - our bytes: a window of residues, shifted to begin at 0.
        let modulus = u128::from(other.pitch);
        let window = u128::from(self.row_bytes) + u128::from(other.row_bytes) - 1;
        if window >= modulus {
            return true;
        }
        let first = u128::from(self.start + from * self.pitch - other.start) + u128::from(self.row_bytes) - 1;
        let step = u128::from(self.pitch) % modulus;
        first_in_window(first % modulus, step, modulus, window).is_some_and(|n| n < u128::from(until - from))
    }
}

/// The least `n` with `(first + n * step) mod modulus < window`, for `first` and `step` below `modulus`.
fn first_in_window(first: u128, step: u128, modulus: u128, window: u128) -> Option<u128> {
    if first < window {
        return Some(0);
    }
    if step == 0 {
        return None;
    }
    // Since first >= window, this window of residues neither begins at 0 nor wraps.
    least_multiple(step, modulus, modulus - first, modulus - first + window - 1)
}

/// The least `n` with `low <= n * step mod modulus <= high`, for `0 < low <= high < modulus` and
/// `step < modulus`.
///
/// Euclid's algorithm: either a multiple of `step` lies in the range without any wrap, or the number of
/// wraps is the answer to the same question about `modulus mod step`, modulo `step`.
fn least_multiple(step: u128, modulus: u128, low: u128, high: u128) -> Option<u128> {
    if step == 0 {
        return None;
    }
    // Without a wrap: the least multiple at or above `low`, if it is not past `high`.
    let direct = low.div_ceil(step);
    if direct * step <= high {
        return Some(direct);
    }
    // Otherwise no multiple of `step` lies in low..=high, and n * step = turns * modulus + r with r in it:
    // turns * modulus mod step must lie in (-high mod step)..=(-low mod step), which does not wrap since
    // the range holds no multiple.
    let turns = least_multiple(
        modulus % step,
        step,
        (step - high % step) % step,
        (step - low % step) % step,
    )?;
    Some((turns * modulus + low).div_ceil(step))
}

impl fmt::Display for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.rows <= 1 {
            return write!(f, "bytes {}..{}", self.start, self.end());
        }
        write!(
            f,
            "{} rows of {} bytes from {}, {} apart",
            self.rows, self.row_bytes, self.start, self.pitch
        )
    }
}
