//! The messages of one call between ranks of several hosts.
//!
//! Every message begins with the fingerprint of its call, so that ranks that disagree learn it (COMM-1). A wait ends when
//! the message is there, when an alarm is raised on this host, or at the deadline (COMM-2).

use super::Hosts;
use crate::error::{Error, Result};
use ringwork_isa::{Error as CoreError, ErrorKind, Fingerprint, Rank};
use ringwork_mpi::{Buffer, Error as MpiError, Moving, Receiving, Sending, World};
use std::time::{Duration, Instant};

/// Bytes of a fingerprint.
const HEADER_BYTES: usize = 16;
/// The most bytes of data in one message of MPI, whose counts are of 31 bits.
const MOST_BYTES: usize = 1 << 28;

/// The messages of one call.
#[derive(Debug)]
pub(crate) struct Messages<'a> {
    hosts: &'a Hosts,
    world: &'static World,
    call: Fingerprint,
    tag: u32,
    sending: Vec<(u32, Sending)>,
}

/// Data that another rank sends.
#[derive(Debug)]
pub(crate) struct Incoming {
    from: u32,
    bytes: usize,
    pieces: Vec<Receiving>,
}

/// Data that has come.
#[derive(Debug)]
pub(crate) struct Arrived {
    data: Buffer,
    skip: usize,
}

impl Arrived {
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.data.bytes()[self.skip..]
    }
}

impl<'a> Messages<'a> {
    pub(crate) fn new(hosts: &'a Hosts, call: Fingerprint, tag: u32) -> Result<Messages<'a>> {
        Ok(Messages {
            hosts,
            world: World::join()?,
            call,
            tag,
            sending: Vec::new(),
        })
    }

    fn process(&self, rank: u32) -> u32 {
        self.hosts.spread.members[rank as usize].process
    }

    /// Begins to send `data` to `to`, which must expect as many bytes.
    pub(crate) fn send(&mut self, to: u32, data: &[u8]) -> Result<()> {
        let process = self.process(to);
        let mut rest = data;
        loop {
            let (piece, after) = rest.split_at(rest.len().min(MOST_BYTES));
            let mut message = Buffer::zeroed(HEADER_BYTES + piece.len());
            let (header, body) = message.bytes_mut().split_at_mut(HEADER_BYTES);
            header.copy_from_slice(bytemuck::cast_slice(&self.call.words()));
            body.copy_from_slice(piece);
            self.sending
                .push((to, self.world.send(message, process, self.tag)?));
            rest = after;
            if rest.is_empty() {
                return Ok(());
            }
        }
    }

    /// Begins to receive `bytes` bytes from `from`.
    pub(crate) fn expect(&self, from: u32, bytes: usize) -> Result<Incoming> {
        let process = self.process(from);
        let (mut pieces, mut rest) = (Vec::new(), bytes);
        loop {
            let piece = rest.min(MOST_BYTES);
            pieces.push(self.world.receive(HEADER_BYTES + piece, process, self.tag)?);
            rest -= piece;
            if rest == 0 {
                break;
            }
        }
        Ok(Incoming { from, bytes, pieces })
    }

    /// Waits for the data.
    pub(crate) fn take(&self, incoming: Incoming) -> Result<Arrived> {
        let (from, wanted) = (incoming.from, incoming.bytes);
        let mut whole: Option<Buffer> = None;
        let (several, mut at) = (incoming.pieces.len() > 1, 0);
        for mut piece in incoming.pieces {
            let arrived = self.hosts.wait(&self.call, from, || {
                piece.test().map_err(|error| match error {
                    MpiError::Call { message, .. } => {
                        self.disagreement(from, &format!("its message cannot be taken ({message})"))
                    }
                    error => error.into(),
                })
            })?;
            self.check_header(from, &arrived)?;
            let arrived = Arrived {
                data: arrived,
                skip: HEADER_BYTES,
            };
            if !several {
                self.check_length(from, arrived.bytes().len(), wanted)?;
                return Ok(arrived);
            }
            let whole = whole.get_or_insert_with(|| Buffer::zeroed(wanted));
            let end = at + arrived.bytes().len();
            self.check_length(from, end.min(wanted), end)?;
            whole.bytes_mut()[at..end].copy_from_slice(arrived.bytes());
            at = end;
        }
        self.check_length(from, at, wanted)?;
        Ok(Arrived {
            data: whole.unwrap_or_default(),
            skip: 0,
        })
    }

    /// Lets messages move until the result is dropped, also while this rank waits for others of its host.
    pub(crate) fn keep_moving(&self) -> Moving {
        self.world.keep_moving()
    }

    /// Waits until everything is sent. Before a call of this host's ranks, unless messages are kept moving: a rank that waits
    /// for its neighbours does nothing for its messages, and the neighbours may wait for those who need them.
    pub(crate) fn finish(&mut self) -> Result<()> {
        for (to, mut sending) in std::mem::take(&mut self.sending) {
            self.hosts
                .wait(&self.call, to, || Ok(sending.test()?.then_some(())))?;
        }
        Ok(())
    }

    fn check_length(&self, from: u32, got: usize, wanted: usize) -> Result<()> {
        if got == wanted {
            return Ok(());
        }
        Err(self.disagreement(from, &format!("it sent {got} bytes and not {wanted}")))
    }

    fn check_header(&self, from: u32, message: &Buffer) -> Result<()> {
        let words = self.call.words();
        let mine: &[u8] = bytemuck::cast_slice(&words);
        let theirs = message.bytes().get(..HEADER_BYTES).unwrap_or_default();
        if theirs == mine {
            return Ok(());
        }
        let word = |at: usize| {
            let bytes = theirs.get(at..at + 8)?;
            bytes.try_into().ok().map(u64::from_ne_bytes)
        };
        let call = word(0)
            .zip(word(8))
            .and_then(|(head, count)| Fingerprint::from_words([head, count]));
        let Some(call) = call else {
            return Err(self.disagreement(from, "it sent what is not a call"));
        };
        let spread = &self.hosts.spread;
        let kind = ErrorKind::Mismatch {
            me: Rank(spread.me),
            mine: self.call.to_string(),
            peer: Rank(from),
            theirs: format!("{call}, on host {}", spread.host_of(from)),
        };
        Err(Error::Collective(kind.into()))
    }

    #[cold]
    fn disagreement(&self, from: u32, what: &str) -> Error {
        let spread = &self.hosts.spread;
        let (me, host, call) = (spread.me, spread.host_of(from), &self.call);
        Error::Collective(CoreError::failed(format!(
            "rank {me} is in {call}, and of rank {from} on host {host}: {what}; every rank must make the same calls in the same \
             order"
        )))
    }
}

/// Looks at a message before the core is yielded, and the time after which looks are less frequent.
const LOOKS: u32 = 100;
const SOON: Duration = Duration::from_millis(2);
const LATE: Duration = Duration::from_secs(1);
/// The interval in which an observer of waits is asked whether to go on.
const LOOK_UP: Duration = Duration::from_millis(100);

impl Hosts {
    /// Waits until `ready`, which is a message from or to `peer`.
    pub(crate) fn wait<T>(
        &self,
        call: &Fingerprint,
        peer: u32,
        mut ready: impl FnMut() -> Result<Option<T>>,
    ) -> Result<T> {
        let (start, mut looks, mut observed) = (Instant::now(), 0u32, LOOK_UP);
        // The others of this host wait for this rank, with the whole limit; so the error that names the peer is the first.
        let limit = self.timeout() * 9 / 10;
        loop {
            if let Some(value) = ready()? {
                return Ok(value);
            }
            looks = looks.saturating_add(1);
            if looks < LOOKS {
                continue;
            }
            self.here.check_alarm(call)?;
            let waited = start.elapsed();
            if looks == LOOKS {
                self.here.observer_hears();
            } else if waited >= observed {
                observed = waited + LOOK_UP;
                self.here.check_interruption(call)?;
            }
            if waited > limit {
                let doing = format!("not known; it is on host {}", self.spread.host_of(peer));
                return Err(Error::Deadline {
                    me: Rank(self.spread.me),
                    call: call.to_string(),
                    after_ms: limit.as_millis(),
                    missing: vec![(Rank(peer), doing)],
                });
            }
            if waited < SOON {
                std::thread::yield_now();
            } else if waited < LATE {
                std::thread::park_timeout(Duration::from_micros(20));
            } else {
                std::thread::park_timeout(Duration::from_micros(200));
            }
        }
    }
}
