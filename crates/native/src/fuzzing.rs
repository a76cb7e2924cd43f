//! Bytes from nowhere, into everything that reads what another process wrote.
//!
//! Each function takes any bytes at all and panics only if a promise is broken: garbage is an error that
//! names the field, never a panic, an access outside, or a hang. The fuzz targets in `fuzz/` and the
//! property tests below drive the same functions.

use crate::cell::Cell;
use crate::channel::{MAX_MESSAGE_BYTES, Receiver, Ring, Sender};
use crate::memory::{Memory, PAGE_BYTES};
use crate::process::bootstrap_socket::{Handover, Hello, Report, decode, encode};
use crate::process::mailbox::{Reply, Request};
use crate::segment::{Alarm, Attached, Layout};
use crate::trace::progress::{PROGRESS_BYTES, read_progress, read_records};
use ringwork_isa::{Dtype, Rank, SIGNAL_STRIDE_BYTES, Segment, Signals, Span};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::sync::Arc;

/// Takes numbers off the front of bytes; zeros when they are used up.
struct Garbage<'a>(&'a [u8]);

impl Garbage<'_> {
    fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let (front, rest) = self.0.split_at(N.min(self.0.len()));
        self.0 = rest;
        let mut bytes = [0; N];
        bytes[..front.len()].copy_from_slice(front);
        bytes
    }

    fn u8(&mut self) -> u8 {
        let [byte] = self.bytes();
        byte
    }

    fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.bytes())
    }

    fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.bytes())
    }

    /// A number that is often one of those that matter.
    fn offset(&mut self) -> u64 {
        match self.u8() {
            0 => self.u64(),
            1 => u64::from(self.u8()) * SIGNAL_STRIDE_BYTES,
            2 => u64::from(self.u8()) * PAGE_BYTES,
            3 => u64::MAX - u64::from(self.u8()),
            small => u64::from(small),
        }
    }
}

/// A message that decodes says the same when it is sent on; one that does not is an error with a length.
fn message<M: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(bytes: &[u8]) {
    match decode::<M>(bytes, "the fuzzer") {
        Ok(message) => {
            let again = encode(&message, "the fuzzer").expect("what was decoded can be encoded");
            let same = decode::<M>(&again, "the fuzzer").expect("what was encoded can be decoded");
            // By text: NaN is not equal to itself.
            assert_eq!(format!("{message:?}"), format!("{same:?}"));
        }
        Err(error) => assert!(
            error
                .to_string()
                .contains(&format!("a message of {} bytes from the fuzzer", bytes.len())),
            "{error}"
        ),
    }
}

/// What host and chip say through the mailbox.
pub fn mailbox_messages(bytes: &[u8]) {
    message::<Request>(bytes);
    message::<Reply>(bytes);
    if let Ok(Reply::Ran {
        outcome: Err(failure),
        ..
    }) = decode::<Reply>(bytes, "the fuzzer")
    {
        assert!(failure.to_string().len() <= 64 * bytes.len() + 1024);
    }
}

/// What host and chip say before there is a mailbox.
pub fn bootstrap_messages(bytes: &[u8]) {
    message::<Hello>(bytes);
    message::<Report>(bytes);
    message::<u64>(bytes);
    message::<Handover>(bytes);
    if let Ok(Handover { layout, .. }) = decode::<Handover>(bytes, "the fuzzer") {
        match layout.checked() {
            Ok(layout) => assert!(layout.bytes() > layout.data_offset() + layout.data_bytes() - 1),
            Err(error) => assert!(
                error.to_string().contains("a segment's layout: field `"),
                "{error}"
            ),
        }
    }
}

/// The same through a socket, in packets cut anywhere.
#[cfg(not(miri))]
pub fn bootstrap_packets(bytes: &[u8]) {
    let (host, fd) =
        crate::process::bootstrap_socket::Wire::pair("the fuzzer".into()).expect("sockets exist");
    let mut garbage = Garbage(bytes);
    for _ in 0..4 {
        let len = usize::from(garbage.u8()).min(garbage.0.len());
        let (packet, rest) = garbage.0.split_at(len);
        garbage.0 = rest;
        rustix::io::write(&fd, packet).expect("small packets fit a socket");
    }
    drop(fd);
    while let Ok(Some((_, descriptor))) = host.recv::<Report>(None) {
        assert!(descriptor.is_none());
    }
}

/// A segment with any layout and any page 0: its header, its alarm, and what can be reached in it.
pub fn segment(bytes: &[u8]) {
    let mut garbage = Garbage(bytes);
    let layout = Layout {
        segment: Segment(garbage.u32()),
        ranks: u32::from(garbage.u8() % 5),
        cells: u32::from(garbage.u8() % 33),
        header_bytes: PAGE_BYTES,
        stride: garbage.offset(),
        nonce: garbage.u64(),
    };
    let Ok(layout) = layout.checked() else { return };
    if layout.bytes() > 1 << 20 {
        return;
    }
    let segment = Attached::on_heap(layout).expect("a small segment fits the heap");
    assert!(segment.check_header().is_ok());
    handles_of(&segment, &mut garbage);
    segment.overwrite_header(garbage.0);
    if let Err(error) = segment.check_header() {
        let text = error.to_string();
        assert!(
            text.contains("the header of segment") && text.contains(": field `"),
            "{text}"
        );
    }
    alarm(&segment);
    segment.reset();
    assert_eq!(segment.alarm(), None);
}

/// An alarm that was overwritten is read as some alarm or none; after a new one, one stands.
fn alarm(segment: &Attached) {
    let said = |alarm: Option<Alarm>| {
        if let Some(Alarm { dead, reason }) = alarm {
            assert!(dead.is_none_or(|rank| rank.0 < segment.layout().ranks));
            assert!(reason.len() as u64 <= 3 * PAGE_BYTES);
        }
    };
    assert_eq!(segment.alarmed(), segment.alarm().is_some());
    said(segment.alarm());
    segment.raise(&Alarm {
        dead: Some(Rank(0)),
        reason: "x".repeat(5000),
    });
    assert!(segment.alarmed(), "an alarm was swallowed");
    said(segment.alarm());
}

/// Handles of any kind against a segment of two ranks.
pub fn handles(bytes: &[u8]) {
    let layout = Layout::windows(Segment(3), 2, 2, 2 * PAGE_BYTES).expect("a layout that can be");
    let segment = Attached::on_heap(layout).expect("a small segment fits the heap");
    handles_of(&segment, &mut Garbage(bytes));
}

/// Whatever a handle says, it reaches data of the rank it names, a cell, or nothing (SEG-3).
fn handles_of(segment: &Attached, garbage: &mut Garbage<'_>) {
    let layout = segment.layout();
    let span = Span {
        segment: layout.segment,
        base: garbage.offset(),
        stride: garbage.offset(),
        me: Rank(garbage.u32()),
        rank: Rank(garbage.u8().into()),
        ranks: garbage.u32(),
        dtype: Dtype::ALL[usize::from(garbage.u8()) % Dtype::ALL.len()],
        start: garbage.offset(),
        len: garbage.offset(),
    };
    let at = |pointer: *const u8| segment.offset_of(pointer);
    if let Some(pointer) = segment.resolve(&span) {
        let len = span.len * span.dtype.bytes() as u64;
        let first = layout.data_offset() + u64::from(span.rank.0) * layout.stride;
        assert!(at(pointer) >= first && at(pointer) + len <= first + layout.data_bytes());
        assert!((pointer as usize).is_multiple_of(span.dtype.bytes()));
    }
    let row = Signals {
        segment: layout.segment,
        base: garbage.offset(),
        stride: garbage.offset(),
        count: garbage.u32(),
        me: Rank(garbage.u8().into()),
        ranks: garbage.u32(),
    };
    let found = row.at(garbage.u8().into()).ok();
    if let Some(cell) = found.and_then(|signal| segment.signal(&signal)) {
        let in_window = (at(std::ptr::from_ref(cell).cast()) - PAGE_BYTES) % layout.stride;
        assert!(in_window < u64::from(layout.cells) * SIGNAL_STRIDE_BYTES);
        assert!(in_window.is_multiple_of(SIGNAL_STRIDE_BYTES));
    }
}

const RING_BYTES: u32 = 64;

/// A small ring on the heap.
#[derive(Clone, Debug)]
struct SmallRing(Arc<Memory>);

impl Ring for SmallRing {
    fn head(&self) -> &Cell {
        self.0.cell(0).expect("inside")
    }
    fn tail(&self) -> &Cell {
        self.0.cell(SIGNAL_STRIDE_BYTES).expect("inside")
    }
    fn capacity(&self) -> u32 {
        RING_BYTES
    }
    fn put(&self, at: u32, bytes: &[u8]) {
        assert!(self.0.write(2 * SIGNAL_STRIDE_BYTES + u64::from(at), bytes));
    }
    fn get(&self, at: u32, bytes: &mut [u8]) {
        assert!(self.0.read(2 * SIGNAL_STRIDE_BYTES + u64::from(at), bytes));
    }
    fn peer(&self) -> String {
        "the fuzzer".into()
    }
}

/// Both ends of a ring while somebody writes into its counters and its data.
pub fn ring(bytes: &[u8]) {
    let memory = Memory::heap(2 * SIGNAL_STRIDE_BYTES + u64::from(RING_BYTES)).expect("a small ring");
    let ring = SmallRing(Arc::new(memory));
    let (mut sender, mut receiver) = (Sender::new(ring.clone()), Receiver::new(ring.clone()));
    let mut garbage = Garbage(bytes);
    while !garbage.0.is_empty() {
        match garbage.u8() % 7 {
            0 => ring.head().set(garbage.u32().cast_signed()),
            1 => ring.tail().set(garbage.u32().cast_signed()),
            2 => ring.head().add(garbage.u8().into()),
            3 => ring.put(0, &garbage.bytes::<{ RING_BYTES as usize }>()),
            4 => {
                let message = vec![garbage.u8(); usize::from(garbage.u8() % 64)];
                if let Err(error) = sender.try_send(&message) {
                    let text = error.to_string();
                    assert!(
                        text.contains("field `tail`") || text.contains("does not fit"),
                        "{text}"
                    );
                }
            }
            _ => match receiver.poll() {
                Ok(message) => assert!(message.is_none_or(|m| m.len() <= MAX_MESSAGE_BYTES as usize)),
                Err(error) => {
                    let text = error.to_string();
                    assert!(
                        text.contains("field `head`") || text.contains("field `length`"),
                        "{text}"
                    );
                }
            },
        }
    }
}

/// The page where a chip says what it does.
pub fn activity(bytes: &[u8]) {
    let memory = Memory::heap(PROGRESS_BYTES).expect("a small page");
    let len = bytes.len().min(usize::try_from(PROGRESS_BYTES).unwrap_or(0));
    assert!(memory.write(0, &bytes[..len]));
    let seen = read_progress(&memory, 0);
    assert!(!seen.what.is_empty() && seen.what.len() < 1024);
    let record = read_records(&memory, 0);
    assert!(record.entries.iter().all(|entry| entry.start <= entry.end));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::mailbox::Failure;
    use proptest::prelude::*;
    use ringwork_isa::{Arg, Barrier, Device, KernelId, ReduceOp, Value};
    use ringwork_layout::{BufferPlace, CellRow};

    fn bytes(at_most: usize) -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(any::<u8>(), 0..at_most)
    }

    /// Messages as they are really sent.
    fn real_messages() -> Vec<Vec<u8>> {
        let layout = Layout::windows(Segment(1), 4, 3, 5000).unwrap();
        let place = BufferPlace {
            offset: 0,
            dtype: Dtype::BF16,
            count: 999,
        };
        let span = layout.span(Rank(1), place);
        let signals = layout.signals(Rank(1), CellRow { first: 0, count: 3 });
        let run = Request::Run {
            task: 1 << 40,
            kernel: KernelId {
                name: "crate::kernel".into(),
                signature: u64::MAX,
            },
            args: vec![
                Arg::Memory(span),
                Arg::Window(span),
                Arg::Signals(signals),
                Arg::Barrier(Barrier::new(signals)),
                Arg::Value(Value::F64(f64::NAN)),
                Arg::Value(Value::Op(ReduceOp::Max)),
            ],
        };
        let failed = Reply::Ran {
            task: 7,
            outcome: Err(Failure::Returned(ringwork_isa::Error::failed("no"))),
        };
        let hello = Hello {
            version: 1,
            device: Device(2),
            host_pid: 3,
            mailbox_nonce: 4,
            spin_ns: 5,
            yields: 6,
            wait_limit_ms: 7,
            record: true,
            segments: 8,
        };
        let handover = Handover {
            layout,
            what: "the windows of tp".into(),
        };
        let report = Report::Failed {
            step: "map".into(),
            message: "no".into(),
        };
        vec![
            encode(&run, "").unwrap(),
            encode(&Request::Map { layout }, "").unwrap(),
            encode(&failed, "").unwrap(),
            encode(&hello, "").unwrap(),
            encode(&handover, "").unwrap(),
            encode(&report, "").unwrap(),
        ]
    }

    /// Real messages with some bytes changed and the end cut off.
    fn damaged() -> impl Strategy<Value = Vec<u8>> {
        let damage = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4);
        (
            prop::sample::select(real_messages()),
            damage,
            any::<prop::sample::Index>(),
            any::<bool>(),
        )
            .prop_map(|(mut message, damage, end, cut)| {
                for (at, byte) in damage {
                    let at = at.index(message.len());
                    message[at] = byte;
                }
                if cut {
                    message.truncate(end.index(message.len() + 1));
                }
                message
            })
    }

    #[test]
    fn real_messages_survive() {
        for message in real_messages() {
            mailbox_messages(&message);
            bootstrap_messages(&message);
        }
    }

    proptest! {
        #[test]
        fn garbage_messages_are_errors(bytes in prop_oneof![bytes(300), damaged()]) {
            mailbox_messages(&bytes);
            bootstrap_messages(&bytes);
        }

        #[test]
        #[cfg(not(miri))]
        fn garbage_packets_are_errors(bytes in prop_oneof![bytes(300), damaged()]) {
            bootstrap_packets(&bytes);
        }

        #[test]
        fn a_garbled_segment_is_an_error_naming_the_field(bytes in bytes(400)) {
            segment(&bytes);
        }

        #[test]
        fn a_garbled_handle_reaches_nothing_else(bytes in bytes(80)) {
            handles(&bytes);
        }

        #[test]
        fn a_garbled_ring_is_an_error_naming_the_field(bytes in bytes(400)) {
            ring(&bytes);
        }

        #[test]
        fn a_garbled_activity_reads_as_some_text(bytes in bytes(1000)) {
            activity(&bytes);
        }
    }
}
