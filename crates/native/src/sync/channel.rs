//! A one-way channel between two processes: a ring of bytes in shared memory that carries messages.
//!
//! The sender owns `head` (bytes ever sent), the receiver owns `tail` (bytes ever taken); both are cells,
//! so either side can sleep until the other moves. Each keeps its own position privately and never reads
//! it back, so a corrupted counter is noticed instead of believed. A message is its length in four bytes
//! and then itself; one that is longer than the ring flows through it in pieces.
//!
//! # Invariants
//! - **CHAN-1 (one writer).** `head` and the data are written by the sender only, `tail` by the receiver
//!   only.
//! - **CHAN-2 (payload first).** Bytes are in place before `head` counts them, and copied out before `tail`
//!   gives their room back.
//! - **CHAN-3 (validated).** `head - tail <= capacity` and `length <= MAX_MESSAGE_BYTES` are checked at every read; a
//!   violation is an error naming the field.

use crate::cell::{Cell, Ended, Patience};
use ringwork_isa::{Error, Result};
use std::time::Instant;

/// The longest message. Errors are cut to fit well within it.
pub const MAX_MESSAGE_BYTES: u32 = 16 << 20;

const LENGTH_BYTES: usize = 4;

/// The shared part of a channel, wherever it lies.
pub trait Ring {
    /// Bytes ever sent.
    fn head(&self) -> &Cell;
    /// Bytes ever taken.
    fn tail(&self) -> &Cell;
    /// Size of the data area: a power of two, at most 2^30.
    fn capacity(&self) -> u32;
    /// Copies bytes into the data area at `at`; they do not wrap.
    fn put(&self, at: u32, bytes: &[u8]);
    /// Copies bytes out of the data area at `at`; they do not wrap.
    fn get(&self, at: u32, bytes: &mut [u8]);
    /// The name of the other end, for errors.
    fn peer(&self) -> String;
}

/// Bytes between two counters that wrap, if they fit the ring (CHAN-3).
fn used<R: Ring>(ring: &R, head: u32, tail: u32, field: &'static str) -> Result<u32> {
    let used = head.wrapping_sub(tail);
    if used <= ring.capacity() {
        return Ok(used);
    }
    let (got, wanted) = if field == "head" {
        (head, tail)
    } else {
        (tail, head)
    };
    Err(Error::corrupt(
        format!("the channel with {}", ring.peer()),
        field,
        got,
        format!("within {} bytes of {wanted}", ring.capacity()),
    ))
}

/// The pieces of `len` bytes at a position of the ring: `(offset in ring, range of the bytes)`.
fn pieces(position: u32, capacity: u32, len: u32) -> [(u32, std::ops::Range<usize>); 2] {
    let at = position & (capacity - 1);
    let first = len.min(capacity - at);
    [(at, 0..first as usize), (0, first as usize..len as usize)]
}

/// The sending end.
#[derive(Debug)]
pub struct Sender<R> {
    ring: R,
    head: u32,
}

impl<R: Ring> Sender<R> {
    /// The sending end of a fresh ring.
    pub fn new(ring: R) -> Sender<R> {
        Sender { ring, head: 0 }
    }

    fn room(&self) -> Result<u32> {
        let tail = self.ring.tail().load().cast_unsigned();
        Ok(self.ring.capacity() - used(&self.ring, self.head, tail, "tail")?)
    }

    /// Puts as many bytes as fit, and returns how many.
    fn put_some(&mut self, bytes: &[u8]) -> Result<usize> {
        let len = self.room()?.min(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
        if len > 0 {
            for (at, range) in pieces(self.head, self.ring.capacity(), len) {
                self.ring.put(at, &bytes[range]);
            }
            self.head = self.head.wrapping_add(len);
            // SYNC: publishes the bytes (CHAN-2); pairs with the load of `head` in `Receiver::poll`.
            self.ring.head().set(self.head.cast_signed());
        }
        Ok(len as usize)
    }

    /// Sends a message if there is room for all of it now; returns whether it did.
    ///
    /// # Errors
    /// If it can never fit, or the other side's counter is impossible.
    pub fn try_send(&mut self, message: &[u8]) -> Result<bool> {
        let frame = frame(message)?;
        if frame.len() as u64 > self.ring.capacity().into() {
            return Err(Error::failed(format!(
                "a message of {} bytes does not fit the ring of {} to {}; pass fewer arguments",
                message.len(),
                self.ring.capacity(),
                self.ring.peer()
            )));
        }
        if (self.room()? as usize) < frame.len() {
            return Ok(false);
        }
        self.put_some(&frame)?;
        Ok(true)
    }

    /// Sends a message of any length, waiting for room; calls `published` whenever some of it is on its way.
    ///
    /// # Errors
    /// If the other side's counter is impossible.
    pub fn send(&mut self, message: &[u8], patience: Patience, mut published: impl FnMut()) -> Result<()> {
        let frame = frame(message)?;
        let mut sent = 0;
        loop {
            let some = self.put_some(&frame[sent..])?;
            sent += some;
            if some > 0 {
                published();
            }
            if sent == frame.len() {
                return Ok(());
            }
            let full = self.head.wrapping_sub(self.ring.capacity());
            let moved = |tail: i32| tail.cast_unsigned() != full;
            // Only room, or the death of this process with its parent, ends this wait.
            let _ = self.ring.tail().wait(patience, None, moved, |_| None::<()>);
        }
    }
}

fn frame(message: &[u8]) -> Result<Vec<u8>> {
    let len = u32::try_from(message.len())
        .ok()
        .filter(|len| *len <= MAX_MESSAGE_BYTES)
        .ok_or_else(|| {
            Error::failed(format!(
                "a message of {} bytes exceeds {MAX_MESSAGE_BYTES}",
                message.len()
            ))
        })?;
    let mut frame = Vec::with_capacity(message.len() + LENGTH_BYTES);
    frame.extend_from_slice(&len.to_le_bytes());
    frame.extend_from_slice(message);
    Ok(frame)
}

/// The receiving end.
#[derive(Debug)]
pub struct Receiver<R> {
    ring: R,
    tail: u32,
    /// The part of the next message that has arrived.
    partial: Vec<u8>,
}

impl<R: Ring> Receiver<R> {
    /// The receiving end of a fresh ring.
    pub fn new(ring: R) -> Receiver<R> {
        Receiver {
            ring,
            tail: 0,
            partial: Vec::new(),
        }
    }

    /// The next message, if all of it is here.
    ///
    /// # Errors
    /// If the other side's counter or the message's length is impossible.
    pub fn poll(&mut self) -> Result<Option<Vec<u8>>> {
        self.poll_when(|| {})
    }

    /// The same; calls `arriving` when the first byte is seen, before it is taken.
    fn poll_when(&mut self, mut arriving: impl FnMut()) -> Result<Option<Vec<u8>>> {
        loop {
            let wanted = self.wanted()?;
            if wanted == 0 {
                return Ok(Some(std::mem::take(&mut self.partial).split_off(LENGTH_BYTES)));
            }
            // SYNC: pairs with the change of `head` in `Sender::put_some` (CHAN-2).
            let head = self.ring.head().load().cast_unsigned();
            let here = used(&self.ring, head, self.tail, "head")?;
            if here == 0 {
                return Ok(None);
            }
            if self.partial.is_empty() {
                arriving();
            }
            let len = here.min(u32::try_from(wanted).unwrap_or(u32::MAX));
            let old = self.partial.len();
            self.partial.resize(old + len as usize, 0);
            for (at, range) in pieces(self.tail, self.ring.capacity(), len) {
                self.ring.get(at, &mut self.partial[old..][range]);
            }
            self.tail = self.tail.wrapping_add(len);
            // SYNC: gives the room back (CHAN-2); pairs with the load of `tail` in `Sender::room`.
            self.ring.tail().set(self.tail.cast_signed());
        }
    }

    /// Bytes still missing from the next message: of its length first, then of its content.
    fn wanted(&self) -> Result<usize> {
        let Some(length) = self.partial.first_chunk::<LENGTH_BYTES>() else {
            return Ok(LENGTH_BYTES - self.partial.len());
        };
        let length = u32::from_le_bytes(*length);
        if length > MAX_MESSAGE_BYTES {
            let what = format!("a message from {}", self.ring.peer());
            return Err(Error::corrupt(
                what,
                "length",
                length,
                format!("at most {MAX_MESSAGE_BYTES}"),
            ));
        }
        Ok(LENGTH_BYTES + length as usize - self.partial.len())
    }

    /// Waits for the next message. Calls `arriving` when the first of it is seen, before it is taken.
    ///
    /// # Errors
    /// As [`poll`](Receiver::poll); `Ok(None)` if the deadline passed.
    pub fn recv(
        &mut self,
        patience: Patience,
        deadline: Option<Instant>,
        mut arriving: impl FnMut(),
    ) -> Result<Option<Vec<u8>>> {
        loop {
            if let Some(message) = self.poll_when(&mut arriving)? {
                return Ok(Some(message));
            }
            let seen = self.tail.cast_signed();
            let moved = |head: i32| head != seen;
            match self.ring.head().wait(patience, deadline, moved, |_| None::<()>) {
                Ok(_) => {}
                Err(Ended::Deadline | Ended::Exit(())) => return Ok(None),
            }
        }
    }
}

#[cfg(not(loom))]
#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{Memory, PAGE_BYTES};
    use proptest::prelude::*;
    use std::sync::Arc;
    use std::time::Duration;

    #[derive(Clone, Debug)]
    struct Heap(Arc<Memory>, u32);

    impl Heap {
        fn new(capacity: u32) -> Heap {
            Heap(
                Arc::new(Memory::heap(PAGE_BYTES + u64::from(capacity)).unwrap()),
                capacity,
            )
        }
    }

    impl Ring for Heap {
        fn head(&self) -> &Cell {
            self.0.cell(0).unwrap()
        }
        fn tail(&self) -> &Cell {
            self.0.cell(128).unwrap()
        }
        fn capacity(&self) -> u32 {
            self.1
        }
        fn put(&self, at: u32, bytes: &[u8]) {
            assert!(self.0.write(PAGE_BYTES + u64::from(at), bytes));
        }
        fn get(&self, at: u32, bytes: &mut [u8]) {
            assert!(self.0.read(PAGE_BYTES + u64::from(at), bytes));
        }
        fn peer(&self) -> String {
            "the test".into()
        }
    }

    const PATIENCE: Patience = Patience {
        spin: Duration::ZERO,
        yields: 1,
    };

    fn byte(i: usize) -> u8 {
        u8::try_from(i % 251).unwrap()
    }

    #[test]
    fn messages_longer_than_the_ring_arrive_whole_and_in_order() {
        let ring = Heap::new(64);
        let (mut sender, mut receiver) = (Sender::new(ring.clone()), Receiver::new(ring));
        let lengths = if cfg!(miri) {
            vec![0, 1, 60, 300]
        } else {
            vec![0, 1, 60, 61, 64, 1000, 5, 100_000]
        };
        let sending = lengths.clone();
        let thread = std::thread::spawn(move || {
            for len in sending {
                let message: Vec<u8> = (0..len).map(byte).collect();
                sender.send(&message, PATIENCE, || {}).unwrap();
            }
        });
        for len in lengths {
            let message = receiver.recv(PATIENCE, None, || {}).unwrap().unwrap();
            assert!(message.iter().enumerate().all(|(i, b)| *b == byte(i)));
            assert_eq!(message.len(), len);
        }
        thread.join().unwrap();
        assert_eq!(receiver.poll(), Ok(None));
    }

    #[test]
    fn a_full_ring_refuses_and_sends_nothing() {
        let ring = Heap::new(64);
        let (mut sender, mut receiver) = (Sender::new(ring.clone()), Receiver::new(ring));
        assert_eq!(sender.try_send(&[1; 40]), Ok(true));
        assert_eq!(sender.try_send(&[2; 40]), Ok(false));
        assert_eq!(receiver.poll(), Ok(Some(vec![1; 40])));
        assert_eq!(sender.try_send(&[2; 40]), Ok(true));
        assert_eq!(receiver.poll(), Ok(Some(vec![2; 40])));
        assert!(
            sender
                .try_send(&[0; 61])
                .unwrap_err()
                .to_string()
                .contains("does not fit")
        );
    }

    proptest! {
        #[test]
        fn garbage_in_the_shared_words_is_an_error_naming_the_field_or_a_message(head: i32, tail: i32, data in prop::collection::vec(any::<u8>(), 64)) {
            let ring = Heap::new(64);
            ring.put(0, &data);
            ring.head().set(head);
            ring.tail().set(tail);
            let mut receiver = Receiver::new(ring.clone());
            if let Err(error) = receiver.poll() {
                let text = error.to_string();
                prop_assert!(text.contains("`head`") || text.contains("`length`"), "{}", text);
            }
            ring.tail().set(tail);
            if let Err(error) = Sender::new(ring).try_send(&[0; 8]) {
                prop_assert!(error.to_string().contains("`tail`"));
            }
        }
    }
}
