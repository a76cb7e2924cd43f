//! Collectives on data that already lies in a window: nothing is staged, nothing is copied twice.
//!
//! Each works on a window buffer of the same size on every rank and needs only the domain's barrier. That
//! may be the barrier of a [`Team`](crate::Team); the calls then mix with the team's operations (they take
//! several epochs each, which TEAM-3 allows because they leave the scratch alone). Without scratch there
//! are no chunks, and no limit on the size.
//!
//! # Invariants
//! - **WIN-1 (meet on entry).** A rank reads a peer's data only after that peer has called.
//! - **WIN-2 (meet on exit).** A call returns when no other rank reads or writes my data any more, so it may be
//!   changed at once. Algorithms with a second meeting have it for this reason; the data is not double-buffered.
//! - **WIN-3 (disjoint).** Between two meetings, no other rank touches what a rank writes.
//!
//! All are exact (COL-1).

mod all_gather;
mod all_reduce;
mod broadcast;
mod pull;
mod reduce_scatter;

pub use all_gather::all_gather;
pub use all_reduce::{Spread, all_reduce};
pub use broadcast::broadcast;
pub use pull::{all_gather_into, all_to_all_into};
pub use reduce_scatter::reduce_scatter;
