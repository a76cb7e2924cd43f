//! The trace of a chip, in memory that its host can read, also after the chip has died.
//!
//! `progress` is the word that says what a core executes now; `ring` keeps what it has done, with times of the
//! [`tsc_clock`]; both name lines and tasks by the numbers of `interned_strings`.

mod interned_strings;
pub(crate) mod progress;
pub(crate) mod ring;
pub mod tsc_clock;

pub use progress::{Begin, Begun, LastSeen};
pub use ring::{Entry, Record, UnderWay, What};
