//! The event queue: what happens next, by time, and at equal times in the order it was asked for.
//!
//! A discrete-event simulation never asks for the past, so the queue is a *radix heap*: bucket `k` holds
//! the events whose time first differs from the clock in bit `k - 1`. Popping an event moves a bucket
//! down when the clock reaches it; an event moves at most 64 times in its life, in practice a few. (Ahuja,
//! Mehlhorn, Orlin, Tarjan: Faster algorithms for the shortest path problem, 1990.)
//!
//! ```
//! use ringwork_sim::EventQueue;
//! let mut queue = EventQueue::new();
//! queue.push(30, 'c');
//! queue.push(10, 'a');
//! queue.push(10, 'b');
//! assert_eq!(queue.pop(), Some((10, 'a')));
//! assert_eq!(queue.pop(), Some((10, 'b')));
//! assert_eq!(queue.pop(), Some((30, 'c')));
//! assert_eq!(queue.pop(), None);
//! ```
//!
//! # Invariants
//! - **EVQ-1 (order).** Events leave by (time, order of push). Equal times always share a bucket, buckets
//!   are appended to and moved in order, so no sequence number is needed to keep it.
//! - **EVQ-2 (no past).** An event pushed for a time before the last popped one happens at that time.

use std::collections::VecDeque;

const BUCKETS: usize = 65;

/// Events by time; see the module's page.
#[derive(Clone, Debug)]
pub struct EventQueue<E> {
    /// Events at exactly `now`.
    due: VecDeque<E>,
    /// Bucket `k` (from 1): events whose time first differs from `now` in bit `k - 1`.
    later: Vec<Vec<(u64, E)>>,
    /// Bit `k - 1` is set if bucket `k` holds something.
    filled: u64,
    /// The time of the last event popped.
    now: u64,
    len: usize,
    popped: u64,
}

impl<E> Default for EventQueue<E> {
    fn default() -> Self {
        Self::new()
    }
}

impl<E> EventQueue<E> {
    /// An empty queue, its clock at 0.
    #[must_use]
    pub fn new() -> Self {
        EventQueue {
            due: VecDeque::new(),
            later: std::iter::repeat_with(Vec::new).take(BUCKETS).collect(),
            filled: 0,
            now: 0,
            len: 0,
            popped: 0,
        }
    }

    /// The time of the last event popped.
    #[must_use]
    pub fn now(&self) -> u64 {
        self.now
    }

    /// Events waiting.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether none is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Events popped so far.
    #[must_use]
    pub fn popped(&self) -> u64 {
        self.popped
    }

    /// Asks for an event at `time`.
    #[inline]
    pub fn push(&mut self, time: u64, event: E) {
        self.len += 1;
        let differs = time ^ self.now;
        if time <= self.now {
            self.due.push_back(event);
            return;
        }
        let bucket = 64 - differs.leading_zeros() as usize;
        self.filled |= 1 << (bucket - 1);
        self.later[bucket].push((time, event));
    }

    /// The next event and its time, to which the clock moves.
    #[inline]
    pub fn pop(&mut self) -> Option<(u64, E)> {
        if self.due.is_empty() {
            self.advance()?;
        }
        let event = self.due.pop_front()?;
        self.len -= 1;
        self.popped += 1;
        Some((self.now, event))
    }

    /// Moves the clock to the next event and its bucket's events to where they now belong.
    fn advance(&mut self) -> Option<()> {
        if self.filled == 0 {
            return None;
        }
        let bucket = self.filled.trailing_zeros() as usize + 1;
        self.filled &= !(1 << (bucket - 1));
        let mut moved = std::mem::take(&mut self.later[bucket]);
        self.now = moved.iter().map(|(time, _)| *time).min()?;
        for (time, event) in moved.drain(..) {
            let differs = time ^ self.now;
            if differs == 0 {
                self.due.push_back(event);
            } else {
                let lower = 64 - differs.leading_zeros() as usize;
                self.filled |= 1 << (lower - 1);
                self.later[lower].push((time, event));
            }
        }
        // The bucket keeps its room: a run's buckets stop allocating once they have grown.
        self.later[bucket] = moved;
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::cmp::Reverse;
    use std::collections::BinaryHeap;

    proptest! {
        #[test]
        fn it_agrees_with_a_binary_heap_of_time_and_sequence(ops in prop::collection::vec((any::<bool>(), 0u64..5000), 1..400), shift in 0u32..40) {
            let (mut queue, mut heap, mut sequence) = (EventQueue::new(), BinaryHeap::new(), 0u64);
            for (push, delay) in ops {
                if push {
                    let time = queue.now() + (delay << shift);
                    queue.push(time, sequence);
                    heap.push(Reverse((time, sequence)));
                    sequence += 1;
                } else {
                    prop_assert_eq!(queue.pop(), heap.pop().map(|Reverse(next)| next));
                }
                prop_assert_eq!(queue.len(), heap.len());
            }
            while let Some(Reverse(next)) = heap.pop() {
                prop_assert_eq!(queue.pop(), Some(next));
            }
            prop_assert!(queue.is_empty());
        }
    }

    #[test]
    fn the_past_happens_now() {
        let mut queue = EventQueue::new();
        queue.push(100, 1);
        assert_eq!(queue.pop(), Some((100, 1)));
        queue.push(7, 2);
        assert_eq!(queue.pop(), Some((100, 2)));
    }
}
