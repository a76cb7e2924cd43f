//! The bootstrap channel: a socket between a host and one chip that carries messages with descriptors.
//!
//! It exists before any memory is shared, so it is how a chip learns what to map, reports each step of its
//! bring-up, and says what went wrong if it must. Messages may be longer than a packet.

use crate::error::{Error, Result};
use crate::segment::{Attached, Layout, truncated};
use ringwork_isa::Device;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// What a host tells a chip first.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Hello {
    /// Protocol and layout of everything shared: both sides must be the same build.
    pub(crate) version: u64,
    pub(crate) device: Device,
    /// The host process, to notice that it died before the chip could ask to die with it.
    pub(crate) host_pid: u32,
    pub(crate) mailbox_nonce: u64,
    pub(crate) spin_ns: u64,
    pub(crate) yields: u32,
    pub(crate) wait_limit_ms: u64,
    /// Whether to record what it does.
    pub(crate) record: bool,
    /// Segments that follow, each in a packet of its own: what to map before reporting ready.
    pub(crate) segments: u32,
}

/// A segment that is handed over; its descriptor is in the same packet.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Handover {
    pub(crate) layout: Layout,
    /// What it is for, in words.
    pub(crate) what: String,
}

impl Handover {
    /// This segment, and what it is for: cut, so that it fits a packet.
    pub(crate) fn of(segment: &Attached, what: &str) -> Handover {
        Handover {
            layout: segment.layout(),
            what: truncated(what, 1024).into(),
        }
    }
}

/// What a chip tells its host while it comes up.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Report {
    /// It begins this step.
    Step(String),
    /// It serves its mailbox from now on.
    Ready,
    /// It cannot go on.
    Failed { step: String, message: String },
}

/// The most that one packet carries; longer messages are several.
const PACKET_BYTES: usize = 32 << 10;
/// The longest message.
const MAX_MESSAGE_BYTES: usize = 16 << 20;
const LAST: u8 = 0;
const MORE: u8 = 1;

/// One end of a bootstrap channel.
#[derive(Debug)]
pub(crate) struct Wire {
    socket: OwnedFd,
    /// The process at the other end.
    peer: String,
}

impl Wire {
    /// A connected pair: the host's end, and the descriptor for the chip's.
    pub(crate) fn pair(peer: String) -> Result<(Wire, OwnedFd)> {
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let (ours, theirs) = rustix::net::socketpair(family, kind, SocketFlags::CLOEXEC, None)
            .map_err(Error::system("creating a bootstrap channel"))?;
        Ok((Wire { socket: ours, peer }, theirs))
    }

    /// The end that this process was given.
    pub(crate) fn from_fd(socket: OwnedFd, peer: String) -> Wire {
        Wire { socket, peer }
    }

    /// Sends a message, waiting for room.
    pub(crate) fn send(&self, message: &impl Serialize, descriptor: Option<BorrowedFd<'_>>) -> Result<()> {
        let bytes = encode(message, &self.peer)?;
        let mut pieces = bytes.chunks(PACKET_BYTES).peekable();
        let mut descriptor = descriptor;
        while let Some(piece) = pieces.next() {
            let flag = if pieces.peek().is_some() { MORE } else { LAST };
            self.send_packet(flag, piece, descriptor.take(), SendFlags::empty())
                .map_err(Error::system(format!("sending to {}", self.peer)))?;
        }
        Ok(())
    }

    /// Sends a message that fits a packet if there is room for it now; returns whether it did.
    pub(crate) fn try_send(
        &self,
        message: &impl Serialize,
        descriptor: Option<BorrowedFd<'_>>,
    ) -> Result<bool> {
        let bytes = encode(message, &self.peer)?;
        if bytes.len() > PACKET_BYTES {
            let (len, from, why) = (bytes.len(), "this process".into(), "too long for a packet".into());
            return Err(Error::BadMessage { from, len, why });
        }
        match self.send_packet(LAST, &bytes, descriptor, SendFlags::DONTWAIT) {
            Ok(()) => Ok(true),
            // No room for the packet, or too many descriptors on their way.
            Err(Errno::AGAIN | Errno::TOOMANYREFS) => Ok(false),
            Err(error) => Err(Error::system(format!("sending to {}", self.peer))(error)),
        }
    }

    fn send_packet(
        &self,
        flag: u8,
        piece: &[u8],
        descriptor: Option<BorrowedFd<'_>>,
        how: SendFlags,
    ) -> rustix::io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let rights = descriptor.map(|fd| [fd]);
        if let Some(rights) = &rights {
            control.push(SendAncillaryMessage::ScmRights(rights));
        }
        let flag = [flag];
        let parts = [IoSlice::new(&flag), IoSlice::new(piece)];
        rustix::io::retry_on_intr(|| {
            rustix::net::sendmsg(&self.socket, &parts, &mut control, SendFlags::NOSIGNAL | how)
        })
        .map(drop)
    }

    /// The next message and the descriptor that came with it; `Ok(None)` if the other end is closed.
    pub(crate) fn recv<M: DeserializeOwned>(
        &self,
        deadline: Option<Instant>,
    ) -> Result<Option<(M, Option<OwnedFd>)>> {
        let begun = Instant::now();
        let mut bytes = Vec::new();
        let mut descriptor = None;
        loop {
            self.wait_readable(begun, deadline)?;
            let mut packet = vec![0; PACKET_BYTES + 1];
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let len = rustix::io::retry_on_intr(|| {
                let mut parts = [IoSliceMut::new(&mut packet)];
                rustix::net::recvmsg(&self.socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC)
            });
            let len = match len {
                // The kernel had no number for the descriptor that came along, and dropped it.
                Ok(received) if received.flags.contains(ReturnFlags::CTRUNC) => {
                    let doing = format!("receiving memory from {} (raise `ulimit -n`)", self.peer);
                    return Err(Error::system(doing)(Errno::MFILE));
                }
                Ok(received) => received.bytes,
                // The other end went without reading all that it was sent. What it sent itself is still
                // here, and is read first; the kernel says this only once.
                Err(Errno::CONNRESET) => continue,
                Err(error) => return Err(Error::system(format!("receiving from {}", self.peer))(error)),
            };
            for message in control.drain() {
                if let RecvAncillaryMessage::ScmRights(mut rights) = message {
                    descriptor = descriptor.or_else(|| rights.next());
                }
            }
            let [flag, piece @ ..] = &packet[..len] else {
                return Ok(None);
            };
            bytes.extend_from_slice(piece);
            if bytes.len() > MAX_MESSAGE_BYTES || !matches!(*flag, LAST | MORE) {
                let what = format!("a bootstrap message from {}", self.peer);
                let (field, got) = if *flag > MORE {
                    ("flag", u64::from(*flag))
                } else {
                    ("length", bytes.len() as u64)
                };
                return Err(ringwork_isa::Error::corrupt(
                    what,
                    field,
                    got,
                    "a whole message of at most 16 MiB",
                )
                .into());
            }
            if *flag == LAST {
                return Ok(Some((decode(&bytes, &self.peer)?, descriptor)));
            }
        }
    }

    fn wait_readable(&self, begun: Instant, deadline: Option<Instant>) -> Result<()> {
        loop {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            let ready = poll_for(&mut [PollFd::new(&self.socket, PollFlags::IN)], left)?;
            if ready {
                return Ok(());
            }
            if left.is_some_and(|left| left.is_zero()) {
                let what = format!("waiting for {}", self.peer);
                let limit = deadline.map(|deadline| deadline.saturating_duration_since(begun));
                let limit_ms = limit.unwrap_or_default().as_millis();
                return Err(Error::Deadline { what, limit_ms });
            }
        }
    }
}

impl AsFd for Wire {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Polls descriptors; whether any is ready. Interruptions count as not ready.
pub(crate) fn poll_for(fds: &mut [PollFd<'_>], at_most: Option<Duration>) -> Result<bool> {
    let timeout = at_most.map(|limit| Timespec {
        tv_sec: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: limit.subsec_nanos().into(),
    });
    match poll(fds, timeout.as_ref()) {
        Ok(ready) => Ok(ready > 0),
        Err(Errno::INTR) => Ok(false),
        Err(error) => Err(Error::system("polling")(error)),
    }
}

/// A control message as bytes.
pub(crate) fn encode(message: &impl Serialize, peer: &str) -> Result<Vec<u8>> {
    postcard::to_stdvec(message).map_err(|error| Error::BadMessage {
        from: format!("this process to {peer}"),
        len: 0,
        why: error.to_string(),
    })
}

/// A control message from bytes that another process wrote.
pub(crate) fn decode<M: DeserializeOwned>(bytes: &[u8], peer: &str) -> Result<M> {
    let bad = |why: String| Error::BadMessage {
        from: peer.to_owned(),
        len: bytes.len(),
        why,
    };
    match postcard::take_from_bytes(bytes) {
        Ok((message, [])) => Ok(message),
        Ok((_, rest)) => Err(bad(format!("{} bytes too many", rest.len()))),
        Err(error) => Err(bad(error.to_string())),
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use crate::process::mailbox::VERSION;
    use proptest::prelude::*;

    #[test]
    fn long_messages_and_descriptors_arrive_whole() {
        let (host, fd) = Wire::pair("chip".into()).unwrap();
        let chip = Wire::from_fd(fd, "host".into());
        let message = "x".repeat(100_000);
        let failed = Report::Failed {
            step: "map window".into(),
            message: message.clone(),
        };
        let sealed = crate::memory::create_sealed("test", 4096).unwrap();
        chip.send(&failed, Some(sealed.as_fd())).unwrap();
        let (got, descriptor) = host.recv::<Report>(None).unwrap().unwrap();
        assert_eq!(got, failed);
        assert!(crate::memory::Memory::map(descriptor.unwrap(), 4096).is_ok());
        drop(chip);
        assert!(
            host.recv::<Report>(None).unwrap().is_none(),
            "a closed end is not an error"
        );
    }

    #[test]
    fn the_last_words_of_an_end_that_did_not_listen_are_heard() {
        let (host, fd) = Wire::pair("chip".into()).unwrap();
        let chip = Wire::from_fd(fd, "host".into());
        host.send(&VERSION, None).unwrap();
        chip.send(&Report::Ready, None).unwrap();
        drop(chip);
        assert_eq!(host.recv::<Report>(None).unwrap().unwrap().0, Report::Ready);
        assert!(host.recv::<Report>(None).unwrap().is_none());
    }

    #[test]
    fn a_full_channel_refuses_and_takes_more_when_there_is_room() {
        let (host, fd) = Wire::pair("chip".into()).unwrap();
        let chip = Wire::from_fd(fd, "host".into());
        let mut sent = 0u64;
        while host.try_send(&sent, None).unwrap() {
            sent += 1;
        }
        for expected in 0..sent {
            assert_eq!(chip.recv::<u64>(None).unwrap().unwrap().0, expected);
        }
        assert!(host.try_send(&sent, None).unwrap());
        assert!(host.try_send(&"x".repeat(PACKET_BYTES + 1), None).is_err());
    }

    #[test]
    fn silence_ends_at_the_deadline() {
        let (host, _open) = Wire::pair("chip".into()).unwrap();
        assert!(matches!(
            host.recv::<Report>(Some(Instant::now())),
            Err(Error::Deadline { .. })
        ));
    }

    proptest! {
        #[test]
        fn garbage_packets_are_errors_not_panics(packet in prop::collection::vec(any::<u8>(), 1..200)) {
            let (host, fd) = Wire::pair("chip".into()).unwrap();
            rustix::io::write(&fd, &packet).unwrap();
            drop(fd);
            let _ = host.recv::<Report>(None);
            let _ = decode::<Hello>(&packet, "host");
            let _ = decode::<Handover>(&packet, "host");
        }
    }
}
