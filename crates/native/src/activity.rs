//! What a chip is doing, where its host can see it: for the day it stops answering.
//!
//! Before every instruction a core writes one word: which instruction, at which line. Lines are written as
//! text once, when first met, so that a host can read them without sharing the chip's addresses.
//!
//! # Invariants
//! - **ACT-1 (one writer).** Only the chip writes; the host reads and believes nothing it cannot check.

use crate::memory::Memory;
use crate::segment::truncated;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::Ordering;

const COUNT_AT: u64 = 0;
const NOW_AT: u64 = 8;
const LINES_AT: u64 = 64;
const LINE_LEN: usize = 128;
const LINE_BYTES: u64 = LINE_LEN as u64;
const LINE_CAPACITY: u32 = 255;

/// Bytes the area takes.
pub(crate) const ACTIVITY_BYTES: u64 = LINES_AT + LINE_BYTES * LINE_CAPACITY as u64 + LINE_BYTES;

/// What kinds of instruction there are, for display.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Doing {
    Idle,
    Copy,
    Reduce,
    Load,
    Store,
    Vector,
    Notify,
    Wait,
    Matmul,
}

const NAMES: [&str; 9] = [
    "idle", "copy", "reduce", "load", "store", "vector", "notify", "wait", "matmul",
];

/// The chip's side.
#[derive(Debug)]
pub(crate) struct Activity {
    memory: Arc<Memory>,
    base: u64,
    count: Cell<u64>,
    last: Cell<(usize, u32)>,
    lines: RefCell<HashMap<usize, u32>>,
}

impl Activity {
    pub(crate) fn new(memory: Arc<Memory>, base: u64) -> Activity {
        let (count, last) = (Cell::new(0), Cell::new((0, 0)));
        Activity {
            memory,
            base,
            count,
            last,
            lines: RefCell::default(),
        }
    }

    /// Says what is done next, at which line of the kernel.
    pub(crate) fn say(&self, doing: Doing, at: &'static Location<'static>) {
        let key = std::ptr::from_ref(at) as usize;
        let (last_key, last_line) = self.last.get();
        let line = if key == last_key {
            last_line
        } else {
            self.line(key, at)
        };
        self.last.set((key, line));
        self.store(doing, line);
    }

    /// Says that what was said last goes on.
    pub(crate) fn again(&self) {
        self.count.set(self.count.get() + 1);
        if let Some(word) = self.memory.word(self.base + COUNT_AT) {
            word.store(self.count.get(), Ordering::Release);
        }
    }

    /// Says that no task runs.
    pub(crate) fn rest(&self) {
        self.store(Doing::Idle, 0);
    }

    fn store(&self, doing: Doing, line: u32) {
        self.count.set(self.count.get() + 1);
        for (at, value) in [
            (NOW_AT, u64::from(doing as u32) << 32 | u64::from(line)),
            (COUNT_AT, self.count.get()),
        ] {
            if let Some(word) = self.memory.word(self.base + at) {
                // SYNC: publishes the line's text; pairs with the load in `read_activity`.
                word.store(value, Ordering::Release);
            }
        }
    }

    /// The number of a line, from 1; 0 once the table is full.
    fn line(&self, key: usize, at: &'static Location<'static>) -> u32 {
        let mut lines = self.lines.borrow_mut();
        let next = u32::try_from(lines.len()).unwrap_or(u32::MAX).saturating_add(1);
        *lines.entry(key).or_insert_with(|| {
            if next > LINE_CAPACITY {
                return 0;
            }
            let text = format!("{}:{}", at.file(), at.line());
            // The end of a path says more than its beginning.
            let tail = &text[text.ceil_char_boundary(text.len().saturating_sub(LINE_LEN - 1))..];
            let mut entry = [0; LINE_LEN];
            entry[0] = u8::try_from(tail.len()).unwrap_or(0);
            entry[1..=tail.len()].copy_from_slice(tail.as_bytes());
            let _ = self
                .memory
                .write(self.base + LINES_AT + LINE_BYTES * u64::from(next), &entry);
            next
        })
    }
}

/// What the host reads: how many instructions were begun, and the last of them in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastSeen {
    /// Instructions begun since the chip came up: if it does not grow, the chip makes no progress.
    pub count: u64,
    /// Such as `wait at src/kernel.rs:12`.
    pub what: String,
}

pub(crate) fn read_activity(memory: &Memory, base: u64) -> LastSeen {
    // SYNC: pairs with the stores in `Activity::store`.
    let load = |at| {
        memory
            .word(base + at)
            .map_or(0, |word| word.load(Ordering::Acquire))
    };
    let (count, now) = (load(COUNT_AT), load(NOW_AT));
    let doing = usize::try_from(now >> 32)
        .ok()
        .and_then(|i| NAMES.get(i))
        .unwrap_or(&"something unknown");
    let line = (now & u64::from(u32::MAX)).min(LINE_CAPACITY.into());
    let mut entry = [0; LINE_LEN];
    let _ = memory.read(base + LINES_AT + LINE_BYTES * line, &mut entry);
    let len = usize::from(entry[0]).min(entry.len() - 1);
    let site = String::from_utf8_lossy(&entry[1..=len]).into_owned();
    let what = if line == 0 {
        (*doing).to_owned()
    } else {
        format!("{doing} at {}", truncated(&site, 127))
    };
    LastSeen { count, what }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_host_reads_the_instruction_and_the_line() {
        let memory = Arc::new(Memory::heap(ACTIVITY_BYTES).unwrap());
        let activity = Activity::new(memory.clone(), 0);
        assert_eq!(
            read_activity(&memory, 0),
            LastSeen {
                count: 0,
                what: "idle".into()
            }
        );
        let here = Location::caller();
        activity.say(Doing::Wait, here);
        activity.say(Doing::Copy, here);
        let seen = read_activity(&memory, 0);
        assert_eq!(seen.count, 2);
        assert_eq!(seen.what, format!("copy at {}:{}", here.file(), here.line()));
        activity.rest();
        assert_eq!(read_activity(&memory, 0).what, "idle");
    }

    proptest! {
        #[test]
        fn garbage_reads_as_some_text(count: u64, now: u64, noise in prop::collection::vec(any::<u8>(), 512)) {
            let memory = Memory::heap(ACTIVITY_BYTES).unwrap();
            prop_assert!(memory.write(LINES_AT, &noise));
            memory.word(COUNT_AT).unwrap().store(count, Ordering::Relaxed);
            memory.word(NOW_AT).unwrap().store(now, Ordering::Relaxed);
            prop_assert!(!read_activity(&memory, 0).what.is_empty());
        }
    }
}
