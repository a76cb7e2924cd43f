//! Why there is no such layout.

use crate::MAX_SIGNALS;
use ringwork_isa::Dtype;

/// Why there is no such layout.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LayoutError {
    /// A buffer is longer than addresses are.
    #[error("{count} elements of {dtype} are more than any memory")]
    TooLong {
        /// Type of its elements.
        dtype: Dtype,
        /// Number of its elements.
        count: usize,
    },
    /// A window has too many cells.
    #[error("more than {MAX_SIGNALS} signals")]
    TooManySignals,
    /// A segment is larger than one may be.
    #[error("{what} needs {need_bytes} bytes, more than a segment may have; ask for less")]
    TooLarge {
        /// What the memory was for.
        what: &'static str,
        /// Bytes asked for.
        need_bytes: u64,
    },
    /// A number of a layout is impossible, wherever it comes from.
    #[error("a segment's layout: field `{field}` is {got}, expected {wanted}")]
    Impossible {
        /// Its name.
        field: &'static str,
        /// What it is.
        got: u64,
        /// What it may be.
        wanted: String,
    },
}
