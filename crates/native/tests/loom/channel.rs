//! The channel over a ring whose bytes loom watches: one writer (CHAN-1), payload first (CHAN-2).

use super::{PATIENCE, explore};
use loom::cell::UnsafeCell;
use loom::thread;
use ringwork_native::cell::Cell;
use ringwork_native::channel::{Receiver, Ring, Sender};
use std::sync::Arc;

struct Watched {
    head: Cell,
    tail: Cell,
    data: Vec<UnsafeCell<u8>>,
}

#[derive(Clone)]
struct WatchedRing(Arc<Watched>);

impl WatchedRing {
    fn new(capacity: u32) -> WatchedRing {
        WatchedRing(Arc::new(Watched {
            head: Cell::default(),
            tail: Cell::default(),
            data: (0..capacity).map(|_| UnsafeCell::new(0)).collect(),
        }))
    }
}

impl Ring for WatchedRing {
    fn head(&self) -> &Cell {
        &self.0.head
    }
    fn tail(&self) -> &Cell {
        &self.0.tail
    }
    fn capacity(&self) -> u32 {
        u32::try_from(self.0.data.len()).unwrap()
    }
    fn put(&self, at: u32, bytes: &[u8]) {
        for (cell, byte) in self.0.data[at as usize..].iter().zip(bytes) {
            // SAFETY: loom checks that no other thread is at it.
            cell.with_mut(|into| unsafe { *into = *byte });
        }
    }
    fn get(&self, at: u32, bytes: &mut [u8]) {
        for (cell, byte) in self.0.data[at as usize..].iter().zip(bytes) {
            // SAFETY: loom checks that no other thread writes it.
            *byte = cell.with(|from| unsafe { *from });
        }
    }
    fn peer(&self) -> String {
        "the model".into()
    }
}

/// Sends messages through a ring of `capacity`, and checks that they arrive whole and in order.
fn carries(preemptions: usize, capacity: u32, messages: &'static [&'static [u8]]) {
    explore(preemptions, move || {
        let ring = WatchedRing::new(capacity);
        let mut sender = Sender::new(ring.clone());
        let sending = thread::spawn(move || {
            for message in messages {
                sender.send(message, PATIENCE, || {}).unwrap();
            }
        });
        let mut receiver = Receiver::new(ring);
        for message in messages {
            let got = receiver.recv(PATIENCE, None, || {}).unwrap().unwrap();
            assert_eq!(got, *message);
        }
        assert_eq!(receiver.poll(), Ok(None));
        sending.join().unwrap();
    });
}

#[test]
fn a_message_arrives_whole() {
    carries(4, 8, &[&[1, 2]]);
}

#[test]
fn messages_that_wrap_around_the_ring_arrive_whole_and_in_order() {
    carries(2, 8, &[&[1], &[2, 3], &[4]]);
}

#[test]
fn a_message_longer_than_the_ring_flows_through_it() {
    carries(4, 4, &[&[1, 2, 3]]);
}

#[test]
fn a_message_many_times_longer_than_the_ring_flows_through_it() {
    carries(2, 2, &[&[1, 2]]);
}

#[test]
fn try_send_sends_all_or_nothing() {
    explore(3, || {
        let ring = WatchedRing::new(8);
        let mut sender = Sender::new(ring.clone());
        let sending = thread::spawn(move || {
            assert_eq!(sender.try_send(&[1, 1]), Ok(true));
            sender.try_send(&[2, 2]).unwrap()
        });
        let mut receiver = Receiver::new(ring);
        assert_eq!(receiver.recv(PATIENCE, None, || {}).unwrap(), Some(vec![1, 1]));
        let early = receiver.poll().unwrap();
        let sent = sending.join().unwrap();
        let second = early.or_else(|| receiver.poll().unwrap());
        assert_eq!(second, sent.then(|| vec![2, 2]));
    });
}

/// As a chip replies: into its own ring, then a strike of the bell that all chips share.
#[test]
fn a_host_that_sleeps_on_the_bell_misses_no_reply() {
    explore(2, || {
        let bell = Arc::<Cell>::default();
        let mut receivers = Vec::new();
        for chip in 0..2 {
            let (ring, bell) = (WatchedRing::new(8), bell.clone());
            receivers.push(Receiver::new(ring.clone()));
            thread::spawn(move || {
                let mut outbox = Sender::new(ring);
                outbox.send(&[chip], PATIENCE, || bell.add(1)).unwrap();
            });
        }
        let (mut heard, mut replies) = (0, Vec::new());
        while replies.len() < 2 {
            heard = bell
                .wait(PATIENCE, None, |strikes| strikes != heard, |_| None::<()>)
                .unwrap();
            for receiver in &mut receivers {
                replies.extend(receiver.poll().unwrap());
            }
        }
        replies.sort();
        assert_eq!(replies, [[0], [1]]);
    });
}

// Broken on purpose.

#[test]
#[should_panic(expected = "Causality violation")]
fn broken_a_sender_that_counts_bytes_before_they_are_in_place_races() {
    explore(4, || {
        let ring = WatchedRing::new(8);
        let hasty = ring.clone();
        let sending = thread::spawn(move || {
            hasty.head().set(5);
            hasty.put(0, &[1, 0, 0, 0, 7]);
        });
        let _ = Receiver::new(ring).recv(PATIENCE, None, || {});
        sending.join().unwrap();
    });
}

#[test]
#[should_panic(expected = "Causality violation")]
fn broken_a_receiver_that_gives_room_back_before_it_has_copied_races() {
    explore(4, || {
        let ring = WatchedRing::new(8);
        let mut sender = Sender::new(ring.clone());
        let sending = thread::spawn(move || {
            sender.send(&[1, 2, 3, 4], PATIENCE, || {}).unwrap();
            sender.send(&[5], PATIENCE, || {}).unwrap();
        });
        ring.head()
            .wait(PATIENCE, None, |head| head == 8, |_| None::<()>)
            .unwrap();
        ring.tail().set(8);
        ring.get(0, &mut [0; 8]);
        sending.join().unwrap();
    });
}
