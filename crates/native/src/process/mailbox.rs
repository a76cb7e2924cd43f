//! The mailbox of a chip: tasks and control in, completions and errors out.
//!
//! Shared memory with a channel each way, the chip's activity, and a header that says it is this chip's.
//! Beside it, one *bell* for all chips of a host: a cell that a chip strikes when it has put something into
//! its mailbox, so that the host can sleep on one thing.

use crate::cell::Cell;
use crate::channel::Ring;
use crate::error::{Error, Result};
use crate::memory::{Memory, PAGE_BYTES, create_sealed};
use crate::segment::Layout;
use crate::trace::progress::{LastSeen, PROGRESS_BYTES, read_progress, read_records};
use crate::trace::ring::{Record, UnderWay};
use ringwork_isa::{Arg, KernelId, Rank, Segment, Site, signature_hash};
use ringwork_registry::UnknownKernel;
use serde::{Deserialize, Serialize};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// What a host asks of a chip.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Request {
    /// Run a kernel.
    Run {
        task: u64,
        kernel: KernelId,
        args: Vec<Arg>,
    },
    /// Take the segment whose descriptor is next on the bootstrap channel.
    Map { layout: Layout },
    /// Forget a segment.
    Unmap { segment: Segment },
    /// Finish.
    Stop,
}

/// What a chip answers.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Reply {
    /// A kernel ended.
    Ran {
        task: u64,
        outcome: std::result::Result<(), Failure>,
    },
    /// A segment could not be taken.
    NotMapped { segment: Segment, message: String },
}

/// How a kernel ended badly in a chip that lives on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum Failure {
    /// It returned an error.
    #[error("{0}")]
    Returned(ringwork_isa::Error),
    /// It panicked.
    #[error("the kernel panicked at {site}: {message}")]
    Panicked {
        /// The panic's message.
        message: String,
        /// Where.
        site: Site,
    },
    /// It was not begun: a domain that it uses was given up before.
    #[error("not begun: {why}")]
    NotBegun {
        /// The member whose death that was.
        dead: Option<Rank>,
        /// Why.
        why: String,
    },
    /// The chip does not know it.
    #[error("{0}")]
    Unknown(UnknownKernel),
}

/// Hash of everything that both sides must agree on.
pub(crate) const VERSION: u64 = signature_hash(concat!(
    "ringwork mailbox v2 ",
    env!("CARGO_PKG_VERSION"),
    " Run Map Unmap Stop; Ran NotMapped"
));

const MAGIC: u64 = u64::from_le_bytes(*b"RINGMAIL");
const RING_BYTES: u32 = 64 << 10;
const TO_CHIP: u64 = PAGE_BYTES;
const FROM_CHIP: u64 = TO_CHIP + PAGE_BYTES + RING_BYTES as u64;
const ACTIVITY: u64 = FROM_CHIP + PAGE_BYTES + RING_BYTES as u64;
const MAILBOX_BYTES: u64 = (ACTIVITY + PROGRESS_BYTES).next_multiple_of(PAGE_BYTES);

/// How long a chip that has answered may take to write that down; it may have lost its processor.
const RECORDING: Duration = Duration::from_millis(20);

const MAGIC_AT: u64 = 0;
const VERSION_AT: u64 = 8;
const NONCE_AT: u64 = 16;

/// A mapped mailbox.
#[derive(Clone, Debug)]
pub(crate) struct Mailbox {
    memory: Arc<Memory>,
}

impl Mailbox {
    /// Makes one, to be handed to a chip.
    pub(crate) fn create(nonce: u64) -> Result<(Mailbox, OwnedFd)> {
        let fd = create_sealed("a mailbox", MAILBOX_BYTES)?;
        let mailbox = Mailbox {
            memory: Arc::new(Memory::map(&fd, MAILBOX_BYTES)?),
        };
        for (offset, _, value) in header(nonce) {
            if let Some(word) = mailbox.memory.word(offset) {
                word.store(value, Ordering::Release);
            }
        }
        Ok((mailbox, fd))
    }

    /// Attaches to the one a host made.
    pub(crate) fn open(fd: BorrowedFd<'_>, nonce: u64) -> Result<Mailbox> {
        let memory = Arc::new(Memory::map(fd, MAILBOX_BYTES)?);
        for (offset, name, wanted) in header(nonce) {
            let got = memory.word(offset).map_or(0, |word| word.load(Ordering::Acquire));
            if got != wanted {
                let (got, wanted) = (format!("{got:#x}"), format!("{wanted:#x}"));
                return Err(ringwork_isa::Error::corrupt("the mailbox's header", name, got, wanted).into());
            }
        }
        Ok(Mailbox { memory })
    }

    /// What the host sends.
    pub(crate) fn to_chip(&self, peer: &str) -> MailRing {
        MailRing {
            memory: self.memory.clone(),
            base: TO_CHIP,
            peer: peer.into(),
        }
    }

    /// What the chip sends.
    pub(crate) fn of_chip(&self, peer: &str) -> MailRing {
        MailRing {
            memory: self.memory.clone(),
            base: FROM_CHIP,
            peer: peer.into(),
        }
    }

    /// Where the chip's trace is.
    pub(crate) fn activity(&self) -> (Arc<Memory>, u64) {
        (self.memory.clone(), ACTIVITY)
    }

    pub(crate) fn last_seen(&self) -> LastSeen {
        read_progress(&self.memory, ACTIVITY)
    }

    /// What the chip has recorded, and everything up to task `answered`: a chip answers first and records then, which
    /// is over at once while it `lives`.
    pub(crate) fn record(&self, answered: u64, lives: bool) -> Record {
        let patience = Instant::now() + RECORDING;
        loop {
            let mut record = read_records(&self.memory, ACTIVITY);
            let behind = |task: &UnderWay| task.number <= answered;
            if !record.under_way.as_ref().is_some_and(behind) {
                return record;
            }
            if !lives || Instant::now() > patience {
                record.under_way = None;
                return record;
            }
            std::thread::yield_now();
        }
    }
}

fn header(nonce: u64) -> [(u64, &'static str, u64); 3] {
    [
        (MAGIC_AT, "magic", MAGIC),
        (VERSION_AT, "version", VERSION),
        (NONCE_AT, "nonce", nonce),
    ]
}

/// One direction of a mailbox: a page with the two counters, then the data.
#[derive(Debug)]
pub(crate) struct MailRing {
    memory: Arc<Memory>,
    base: u64,
    peer: String,
}

impl Ring for MailRing {
    fn head(&self) -> &Cell {
        self.memory.cell(self.base).expect("rings lie inside the mailbox")
    }
    fn tail(&self) -> &Cell {
        self.memory
            .cell(self.base + 128)
            .expect("rings lie inside the mailbox")
    }
    fn capacity(&self) -> u32 {
        RING_BYTES
    }
    fn put(&self, at: u32, bytes: &[u8]) {
        let _ = self.memory.write(self.base + PAGE_BYTES + u64::from(at), bytes);
    }
    fn get(&self, at: u32, bytes: &mut [u8]) {
        let _ = self.memory.read(self.base + PAGE_BYTES + u64::from(at), bytes);
    }
    fn peer(&self) -> String {
        self.peer.clone()
    }
}

/// What a host sleeps on. Strikes count up; what they mean is in the mailboxes.
#[derive(Clone, Debug)]
pub(crate) struct Bell {
    memory: Arc<Memory>,
}

impl Bell {
    pub(crate) fn create() -> Result<(Bell, OwnedFd)> {
        let fd = create_sealed("a bell", PAGE_BYTES)?;
        Ok((Bell::open(fd.as_fd())?, fd))
    }

    pub(crate) fn open(fd: BorrowedFd<'_>) -> Result<Bell> {
        Ok(Bell {
            memory: Arc::new(Memory::map(fd, PAGE_BYTES)?),
        })
    }

    pub(crate) fn cell(&self) -> &Cell {
        self.memory.cell(0).expect("a bell is a page")
    }

    /// Strikes, and does something while that is heard.
    pub(crate) fn strike(&self, meanwhile: impl FnOnce()) {
        self.cell().add_then(1, meanwhile);
    }
}

impl From<UnknownKernel> for Failure {
    fn from(unknown: UnknownKernel) -> Failure {
        Failure::Unknown(unknown)
    }
}

/// An error that keeps the other side's words whole, or cut at a megabyte.
pub(crate) fn capped(text: &str) -> String {
    let limit = 1 << 20;
    if text.len() <= limit {
        text.to_owned()
    } else {
        format!("{} ... (cut)", crate::segment::truncated(text, limit))
    }
}

impl Error {
    /// The error's words and those of everything under it.
    pub(crate) fn in_full(&self) -> String {
        capped(&self.to_string())
    }
}
