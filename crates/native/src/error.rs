//! What can go wrong between a host program and its chips.

use crate::memory::available_bytes;
use ringwork_isa::{Device, Segment};
use ringwork_layout::{Bytes, LayoutError, MAX_BYTES};
use std::io;

/// The result of an operation of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why an operation of this crate failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The machine has less memory free than is asked for.
    #[error(
        "{what} needs {} of memory and {} are free; ask for less or free some",
        Bytes(*need_bytes),
        Bytes(*have_bytes)
    )]
    OutOfMemory {
        /// What the memory was for.
        what: String,
        /// Bytes asked for.
        need_bytes: u64,
        /// Bytes that are free.
        have_bytes: u64,
    },
    /// The operating system said no.
    #[error("{doing}: {source}{}", cure(source))]
    System {
        /// What was being done.
        doing: String,
        /// What it said.
        source: io::Error,
    },
    /// A program cannot be executed: it does not exist, or is not executable.
    #[error("`{program}` cannot be executed: {source}")]
    Program {
        /// The program.
        program: String,
        /// What the system said.
        source: io::Error,
    },
    /// Shared memory, a mailbox or a bootstrap message holds something impossible.
    #[error(transparent)]
    Invalid(#[from] ringwork_isa::Error),
    /// A message that cannot be decoded.
    #[error(
        "a message of {len} bytes from {from} cannot be decoded ({why}); both sides must be the same build"
    )]
    BadMessage {
        /// The sender.
        from: String,
        /// Its length.
        len: usize,
        /// What the decoder said.
        why: String,
    },
    /// The other side is gone.
    #[error("{who} is gone: {cause}")]
    Gone {
        /// Who.
        who: String,
        /// How it ended.
        cause: String,
    },
    /// A chip is gone.
    #[error("chip {device} is gone: {cause}")]
    ChipGone {
        /// Which.
        device: Device,
        /// How it ended.
        cause: String,
    },
    /// The host was interrupted while it waited.
    #[error("interrupted")]
    Interrupted,
    /// Nothing happened in time.
    #[error("{what} took longer than {limit_ms} ms")]
    Deadline {
        /// What was waited for.
        what: String,
        /// The limit.
        limit_ms: u128,
    },
    /// A chip did not come up.
    #[error("chip {device} bootstrap failed at \"{step}\": {cause}")]
    Bootstrap {
        /// Which chip.
        device: Device,
        /// At which step.
        step: String,
        /// Its own words, or how it died.
        cause: String,
    },
    /// What ranks printed could not be passed on.
    #[error("output cannot be written: {source}")]
    Output {
        /// Why.
        source: io::Error,
    },
    /// A handle to memory that a chip does not have.
    #[error(
        "segment {segment} is not mapped on chip {device}; the handle is stale or belongs to another chip"
    )]
    NoSegment {
        /// The segment.
        segment: Segment,
        /// The chip.
        device: Device,
    },
}

/// What to do about an error of the operating system, if that is known.
fn cure(source: &io::Error) -> &'static str {
    match source.raw_os_error().map(rustix::io::Errno::from_raw_os_error) {
        Some(rustix::io::Errno::MFILE) => "; raise `ulimit -n`",
        _ => "",
    }
}

impl Error {
    /// For `map_err`: the system said no while doing this.
    pub(crate) fn system<E: Into<io::Error>>(doing: impl Into<String>) -> impl FnOnce(E) -> Error {
        let doing = doing.into();
        move |source| Error::System {
            doing,
            source: source.into(),
        }
    }
}

/// Asking for too much is a shortage of memory; other layouts that cannot be are corrupt.
impl From<LayoutError> for Error {
    fn from(error: LayoutError) -> Error {
        match error {
            LayoutError::TooLarge { what, need_bytes } => Error::OutOfMemory {
                what: what.into(),
                need_bytes,
                have_bytes: available_bytes().min(MAX_BYTES),
            },
            LayoutError::Impossible { field, got, wanted } => Error::Invalid(ringwork_isa::Error::corrupt(
                "a segment's layout",
                field,
                got,
                wanted,
            )),
            other => Error::Invalid(ringwork_isa::Error::failed(other.to_string())),
        }
    }
}
