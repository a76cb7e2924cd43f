//! What can go wrong inside a kernel, with the facts in it.

use crate::{Compare, Device, Dtype, QueueEnd, QueueSignal, Rank, Segment, Signal, Span, queue};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::fmt;
use std::panic::Location;

/// The result of an instruction or a kernel.
pub type Result<T> = std::result::Result<T, Error>;

/// A line of a kernel's source.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Site {
    /// The source file, as the compiler names it.
    pub file: Cow<'static, str>,
    /// The line, from 1.
    pub line: u32,
}

impl Site {
    /// The line that called the function which calls this.
    #[track_caller]
    #[must_use]
    pub fn caller() -> Site {
        Location::caller().into()
    }
}

impl From<&'static Location<'static>> for Site {
    fn from(location: &'static Location<'static>) -> Site {
        Site {
            file: Cow::Borrowed(location.file()),
            line: location.line(),
        }
    }
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// A wait that did not end well: who waited, where, for what.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waited {
    /// Who waited, if it has a rank where it waited.
    pub me: Rank,
    /// Whose signal it was.
    pub on: Rank,
    /// Which signal of that rank.
    pub signal: u32,
    /// The value it had.
    pub value: i32,
    /// How it was compared.
    pub compare: Compare,
    /// The value that was needed.
    pub needed: i32,
    /// If the signal belongs to a queue, what it is for there; then `on` is the rank at the other end, and `signal` the
    /// port.
    pub queue: Option<QueueSignal>,
    /// The kernel's line.
    pub site: Site,
}

impl Waited {
    /// A wait for this signal.
    pub fn new(
        signal: &Signal,
        value: i32,
        (compare, needed): (Compare, i32),
        site: impl Into<Site>,
    ) -> Waited {
        let end = signal.queue();
        Waited {
            me: signal.holder(),
            on: end.map_or(signal.rank(), |end| end.peer),
            signal: end.map_or(signal.index(), |end| end.port),
            value,
            compare,
            needed,
            queue: end.map(|end| end.signal),
            site: site.into(),
        }
    }
}

impl fmt::Display for Waited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(signal) = self.queue {
            write!(f, "rank {} waited at {} ", self.me, self.site)?;
            let end = QueueEnd {
                signal,
                port: self.signal,
                peer: self.on,
            };
            return queue::describe(f, end, self.value, self.needed);
        }
        write!(
            f,
            "rank {} waited at {} for signal {} of rank {} to be {} {}, it is {}",
            self.me, self.site, self.signal, self.on, self.compare, self.needed, self.value
        )
    }
}

/// Why an instruction or a kernel failed; what exactly is its [`kind`](Error::kind).
///
/// One word: what goes well has nothing to carry, and between two stores to memory that others wait for that is felt.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Error(Box<ErrorKind>);

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl std::error::Error for Error {}

impl From<ErrorKind> for Error {
    #[cold]
    #[inline(never)]
    fn from(kind: ErrorKind) -> Error {
        Error(Box::new(kind))
    }
}

/// What can go wrong, with the facts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A range does not lie inside its region.
    #[error(
        "{site}: {what} {start}..{end} are outside a region of {len}; make the buffer larger or split the transfer"
    )]
    OutOfBounds {
        /// What was asked for: elements, rows or columns.
        what: Cow<'static, str>,
        /// The first one asked for.
        start: u64,
        /// One past the last one asked for.
        end: u64,
        /// How many there are.
        len: u64,
        /// The kernel's line.
        site: Site,
    },
    /// Two regions that must be equally long are not.
    #[error("{site}: {what} has {got} elements where {wanted} are needed")]
    LengthMismatch {
        /// Which operand.
        what: Cow<'static, str>,
        /// Its elements.
        got: u64,
        /// The elements needed.
        wanted: u64,
        /// The kernel's line.
        site: Site,
    },
    /// Two regions that must have the same element type do not.
    #[error("{site}: {what} has elements of type {got} where {wanted} is needed")]
    DtypeMismatch {
        /// Which operand.
        what: Cow<'static, str>,
        /// Its element type.
        got: Dtype,
        /// The element type needed.
        wanted: Dtype,
        /// The kernel's line.
        site: Site,
    },
    /// A tile has another shape than an instruction needs.
    #[error("{site}: {what} is {}x{} where {}x{} is needed", .got[0], .got[1], .wanted[0], .wanted[1])]
    ShapeMismatch {
        /// Which operand.
        what: Cow<'static, str>,
        /// Its rows and columns.
        got: [u64; 2],
        /// The rows and columns needed.
        wanted: [u64; 2],
        /// The kernel's line.
        site: Site,
    },
    /// A rank that the domain does not have.
    #[error("{site}: there is no rank {rank} in a domain of {ranks}")]
    NoSuchRank {
        /// The rank asked for.
        rank: Rank,
        /// How many there are.
        ranks: u32,
        /// The kernel's line.
        site: Site,
    },
    /// A region, barrier or signal that is not where it says it is.
    #[error(
        "{site}: segment {segment} is not mapped here at bytes {start}..{end}; the handle is stale or belongs to another chip"
    )]
    NotMapped {
        /// The segment named by the handle.
        segment: Segment,
        /// First byte.
        start: u64,
        /// One past the last byte.
        end: u64,
        /// The kernel's line.
        site: Site,
    },
    /// A destination overlaps a source in a way that has no meaning.
    #[error(
        "{site}: the destination overlaps source {source_index} without being the same place; use disjoint regions"
    )]
    Overlap {
        /// Which source, from 0.
        source_index: u32,
        /// The kernel's line.
        site: Site,
    },
    /// A member of the domain died while this rank waited.
    #[error("rank {rank} died ({cause}); {waited}")]
    PeerDied {
        /// The dead rank.
        rank: Rank,
        /// How it ended.
        cause: String,
        /// What was waited for.
        waited: Waited,
    },
    /// A member that this rank waited for has left the domain.
    #[error("rank {rank} has left; {waited}")]
    PeerLeft {
        /// Who left.
        rank: Rank,
        /// What was waited for.
        waited: Waited,
    },
    /// The domain was aborted while this rank waited.
    #[error("aborted because {reason}; {waited}")]
    Aborted {
        /// Why.
        reason: String,
        /// What was waited for.
        waited: Waited,
    },
    /// The signal did not come in time.
    #[error("nothing came in {after_ms} ms; {waited}")]
    Deadline {
        /// How long it waited.
        after_ms: u64,
        /// What was waited for.
        waited: Waited,
    },
    /// Nothing can happen any more, and kernels still wait. Only a platform that knows everything can tell.
    #[error("deadlock: nothing can happen any more{}", waiting_chips(.waiting))]
    Deadlock {
        /// Every chip that waits, and for what.
        waiting: Vec<(Device, Waited)>,
    },
    /// Two ranks called different collectives.
    #[error(
        "rank {me} called {mine}, rank {peer} called {theirs}; every rank must call the same, in the same order"
    )]
    Mismatch {
        /// Who noticed.
        me: Rank,
        /// Its call.
        mine: String,
        /// The other.
        peer: Rank,
        /// Its call.
        theirs: String,
    },
    /// A kernel said no.
    #[error("{site}: {message}")]
    Failed {
        /// The kernel's words.
        message: String,
        /// The kernel's line.
        site: Site,
    },
    /// A kernel's argument is not what its signature says.
    #[error("argument {index} (`{name}`) of kernel `{kernel}`: expected {expected}, got {got}")]
    BadArgument {
        /// The kernel.
        kernel: Cow<'static, str>,
        /// Which argument, from 0.
        index: usize,
        /// Its name.
        name: Cow<'static, str>,
        /// What the signature says.
        expected: String,
        /// What came.
        got: String,
    },
    /// Memory that several processes share holds something impossible.
    #[error("{what}: field `{field}` is {got}, which cannot be ({wanted}); the memory was overwritten")]
    Corrupt {
        /// Which structure.
        what: Cow<'static, str>,
        /// Which field of it.
        field: Cow<'static, str>,
        /// What it holds.
        got: String,
        /// What it may hold.
        wanted: String,
    },
}

/// Who waits for what; the first few of them.
fn waiting_chips(waiting: &[(Device, Waited)]) -> String {
    const SHOWN: usize = 8;
    let mut text = String::new();
    for (device, waited) in waiting.iter().take(SHOWN) {
        text.push_str(&format!("\n  chip {device}: {waited}"));
    }
    if waiting.len() > SHOWN {
        text.push_str(&format!("\n  and {} more", waiting.len() - SHOWN));
    }
    text
}

impl Error {
    /// What went wrong.
    #[must_use]
    pub fn kind(&self) -> &ErrorKind {
        &self.0
    }

    /// The kernel's line where it happened, if it belongs to one.
    #[must_use]
    pub fn site(&self) -> Option<&Site> {
        match self.kind() {
            ErrorKind::OutOfBounds { site, .. }
            | ErrorKind::LengthMismatch { site, .. }
            | ErrorKind::DtypeMismatch { site, .. }
            | ErrorKind::ShapeMismatch { site, .. }
            | ErrorKind::NoSuchRank { site, .. }
            | ErrorKind::NotMapped { site, .. }
            | ErrorKind::Overlap { site, .. }
            | ErrorKind::Failed { site, .. } => Some(site),
            ErrorKind::PeerDied { waited, .. }
            | ErrorKind::PeerLeft { waited, .. }
            | ErrorKind::Aborted { waited, .. }
            | ErrorKind::Deadline { waited, .. } => Some(&waited.site),
            ErrorKind::Deadlock { waiting } => waiting.first().map(|(_, waited)| &waited.site),
            ErrorKind::Mismatch { .. } | ErrorKind::BadArgument { .. } | ErrorKind::Corrupt { .. } => None,
        }
    }

    /// Refuses `what`, which was given as `got` elements at `at` where `wanted` are needed.
    ///
    /// # Errors
    /// [`ErrorKind::LengthMismatch`] if the two are not the same.
    #[inline(always)]
    pub fn check_length(
        what: &'static str,
        got: u64,
        wanted: u64,
        at: &'static Location<'static>,
    ) -> Result<()> {
        if got == wanted {
            return Ok(());
        }
        Err(Error::length_mismatch(what, got, wanted, at))
    }

    /// Refuses `what`, an operand at `at` that has another length or element type than `wanted`.
    ///
    /// # Errors
    /// [`ErrorKind::LengthMismatch`] or [`ErrorKind::DtypeMismatch`].
    #[inline(always)]
    pub fn check_operands(
        what: &'static str,
        got: &Span,
        wanted: &Span,
        at: &'static Location<'static>,
    ) -> Result<()> {
        if got.dtype != wanted.dtype {
            return Err(Error::dtype_mismatch(what, got.dtype, wanted.dtype, at));
        }
        Error::check_length(what, got.len, wanted.len, at)
    }

    #[cold]
    #[inline(never)]
    fn dtype_mismatch(
        what: &'static str,
        got: Dtype,
        wanted: Dtype,
        at: &'static Location<'static>,
    ) -> Error {
        ErrorKind::DtypeMismatch {
            what: what.into(),
            got,
            wanted,
            site: at.into(),
        }
        .into()
    }

    #[cold]
    #[inline(never)]
    fn length_mismatch(what: &'static str, got: u64, wanted: u64, at: &'static Location<'static>) -> Error {
        let (what, site) = (what.into(), at.into());
        ErrorKind::LengthMismatch {
            what,
            got,
            wanted,
            site,
        }
        .into()
    }

    /// What is made here is made rarely, and out of the way: whoever checks a bound pays for the check only.
    #[cold]
    #[inline(never)]
    #[track_caller]
    pub(crate) fn out_of_bounds(start: u64, end: u64, len: u64) -> Error {
        Error::outside("elements", start, end, len)
    }

    /// As [`out_of_bounds`](Error::out_of_bounds), of rows or columns.
    #[cold]
    #[inline(never)]
    #[track_caller]
    pub(crate) fn outside(what: &'static str, start: u64, end: u64, len: u64) -> Error {
        ErrorKind::OutOfBounds {
            what: what.into(),
            start,
            end,
            len,
            site: Site::caller(),
        }
        .into()
    }

    #[cold]
    #[inline(never)]
    #[track_caller]
    pub(crate) fn no_such_rank(rank: Rank, ranks: u32) -> Error {
        ErrorKind::NoSuchRank {
            rank,
            ranks,
            site: Site::caller(),
        }
        .into()
    }

    /// An error in the kernel's own words, with the line that made it.
    ///
    /// ```
    /// use ringwork_isa::Error;
    /// let error = Error::failed("expert 9 does not exist");
    /// assert!(error.to_string().ends_with("expert 9 does not exist"));
    /// ```
    #[track_caller]
    pub fn failed(message: impl Into<String>) -> Error {
        ErrorKind::Failed {
            message: message.into(),
            site: Site::caller(),
        }
        .into()
    }

    /// A structure in shared memory that cannot be what it holds.
    pub fn corrupt(
        what: impl Into<Cow<'static, str>>,
        field: impl Into<Cow<'static, str>>,
        got: impl fmt::Display,
        wanted: impl fmt::Display,
    ) -> Error {
        ErrorKind::Corrupt {
            what: what.into(),
            field: field.into(),
            got: got.to_string(),
            wanted: wanted.to_string(),
        }
        .into()
    }
}
