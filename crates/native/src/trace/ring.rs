//! The record of a chip: what it did and when, in rings of shared memory, always on.
//!
//! Each core of a chip has a ring of fixed size; new entries replace the oldest. Times are
//! [ticks](crate::trace::tsc_clock), the same on all chips. The host reads whenever it likes, also after the chip has died.
//!
//! # Invariants
//! - **REC-1 (one writer).** A ring is written by one thread at a time, which never waits for a reader.
//! - **REC-2 (whole or not at all).** An entry is counted after it is complete, and overwritten only after as many
//!   others as the ring has were counted: a reader that has copied the ring looks at the count again and leaves out
//!   what may have been overwritten meanwhile.
//! - **REC-3 (nothing believed).** What makes no sense is left out; a reader's work is bounded by the size of the
//!   rings whatever is in them.
//!
//! # Memory ordering
//! The release store of the count pairs with the acquire of its first reading; the release fence before an entry is
//! written, with the acquire fence before the second.
//!
//! # Cost
//! A task is two readings of the clock, four words beside it at its begin and a cache line's half at its end. The clock
//! is most of that, so a time that was read for something else is used again.

use crate::memory::Memory;
use crate::trace::interned_strings::read_string;
use crate::trace::progress::{self, Doing};
use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// The chip itself, and the cores that its own graphs run on.
pub(crate) const CORES: u8 = 4;

/// An entry: start, end, what, detail. Two to a cache line.
type Words = [AtomicU64; 4];
const ENTRY_BYTES: u64 = size_of::<Words>() as u64;
/// Entries of the chip itself; a power of two, as is the next.
const FIRST_ENTRIES: u64 = 4096;
/// Entries of each core beside it.
const OTHER_ENTRIES: u64 = 512;
const _: () = assert!(FIRST_ENTRIES.is_power_of_two() && OTHER_ENTRIES.is_power_of_two());

/// How many entries were written; of the task under way its start (0 if there is none), its word, its number.
type Header = [AtomicU64; 8];
const HEADER_BYTES: u64 = size_of::<Header>() as u64;

/// Bytes of all rings.
pub(crate) const RECORD_BYTES: u64 =
    CORES as u64 * HEADER_BYTES + ENTRY_BYTES * (FIRST_ENTRIES + (CORES as u64 - 1) * OTHER_ENTRIES);

/// A ring's place in the record.
#[derive(Clone, Copy, Debug)]
struct Ring {
    base: u64,
    entries: u64,
}

impl Ring {
    fn of(core: u8) -> Ring {
        let before = u64::from(core.min(CORES - 1));
        let entries_before = match before {
            0 => 0,
            n => FIRST_ENTRIES + (n - 1) * OTHER_ENTRIES,
        };
        Ring {
            base: before * HEADER_BYTES + entries_before * ENTRY_BYTES,
            entries: if before == 0 { FIRST_ENTRIES } else { OTHER_ENTRIES },
        }
    }

    fn at(self, index: u64) -> u64 {
        self.base + HEADER_BYTES + (index & (self.entries - 1)) * ENTRY_BYTES
    }
}

/// The first word of an entry's contents: what, on which core, the text, and 32 bits more.
fn word(doing: Doing, core: u8, text: u32, more: u32) -> u64 {
    u64::from(doing as u8) << 56 | u64::from(core) << 48 | u64::from(text & 0xffff) << 32 | u64::from(more)
}

/// A core's side.
#[derive(Debug)]
pub(crate) struct Recorder {
    memory: Arc<Memory>,
    base: u64,
    ring: Ring,
    count: Cell<u64>,
    /// The core that what is recorded ran on.
    core: Cell<u8>,
    /// Tasks inside each other.
    depth: Cell<u32>,
}

impl Recorder {
    /// Goes on with a core's ring, which nobody else writes any more (REC-1).
    pub(crate) fn new(memory: Arc<Memory>, base: u64, core: u8) -> Recorder {
        let ring = Ring::of(core);
        let header = memory.words(base + ring.base);
        let count = header.map_or(0, |[count, ..]: &Header| count.load(Ordering::Relaxed));
        Recorder {
            memory,
            base,
            ring,
            count: Cell::new(count),
            core: Cell::new(core),
            depth: Cell::new(0),
        }
    }

    fn header(&self) -> Option<&Header> {
        self.memory.words(self.base + self.ring.base)
    }

    /// Writes an entry over the oldest.
    pub(crate) fn put(&self, doing: Doing, text: u32, (start, end): (u64, u64), (detail, more): (u64, u32)) {
        let index = self.count.get();
        let entry: Option<&Words> = self.memory.words(self.base + self.ring.at(index));
        let (Some(entry), Some([count, ..])) = (entry, self.header()) else {
            return;
        };
        let what = word(doing, self.core.get(), text, more);
        // SYNC: pairs with the fence in `read_ring` (REC-2): a reader that sees a word of this entry sees the count of all before it.
        fence(Ordering::Release);
        for (word, value) in entry.iter().zip([start, end, what, detail]) {
            word.store(value, Ordering::Relaxed);
        }
        self.count.set(index.wrapping_add(1));
        // SYNC: pairs with the first load in `read_ring` (REC-2).
        count.store(index.wrapping_add(1), Ordering::Release);
    }

    /// A task begins on `core`; returns what was under way around it.
    pub(crate) fn begin(&self, core: u8, text: u32, start: u64, number: u64) -> Option<(u8, u32)> {
        let outer = (self.core.replace(core), self.depth.get());
        self.depth.set(outer.1 + 1);
        if outer.1 == 0
            && let Some([_, start_word, what_word, number_word, ..]) = self.header()
        {
            // SYNC: the start is written last; pairs with the loads in `read_under_way`.
            number_word.store(number, Ordering::Release);
            what_word.store(word(Doing::Task, core, text, 0), Ordering::Release);
            start_word.store(start, Ordering::Release);
        }
        (outer.1 > 0).then_some(outer)
    }

    /// It has ended; so have those inside it that did not say so.
    pub(crate) fn end(&self, outer: Option<(u8, u32)>) {
        let (core, depth) = outer.unwrap_or((0, 0));
        self.core.set(core);
        self.depth.set(depth);
        if depth == 0
            && let Some([_, start, ..]) = self.header()
        {
            // SYNC: as in `begin`.
            start.store(0, Ordering::Release);
        }
    }
}

/// What a chip has recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// What it did, each core's in the order it ended. Older entries are gone.
    pub entries: Vec<Entry>,
    /// The task that it was in when this was read, if any.
    pub under_way: Option<UnderWay>,
}

/// Something that a chip did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What.
    pub what: What,
    /// On which core; 0 is the chip itself.
    pub core: u8,
    /// When it began, in [ticks](crate::trace::tsc_clock).
    pub start: u64,
    /// When it ended.
    pub end: u64,
    /// A task's name; otherwise the line of the kernel. Empty if the chip has met too many.
    pub text: String,
}

/// What kind of thing was done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// A task.
    Task {
        /// The number that it was sent with; of a chip's own graph, the task's number there.
        number: u64,
        /// In a chip's own graph: the task whose end let it go.
        after: Option<u64>,
        /// Whether it failed.
        failed: bool,
    },
    /// A wait that was not over at once.
    Wait {
        /// The signal's cell: the same number on all chips.
        cell: u64,
        /// Whose signal.
        rank: u32,
        /// Which of its signals; of a queue, the port.
        index: u32,
        /// Whether it is a queue's.
        queue: bool,
    },
    /// A notify.
    Notify {
        /// The signal's cell.
        cell: u64,
    },
    /// An instruction that moved or computed much.
    Work {
        /// Which.
        name: &'static str,
        /// How much.
        bytes: u64,
    },
}

/// A task that has begun.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnderWay {
    /// The number that it was sent with.
    pub number: u64,
    /// When it began.
    pub start: u64,
    /// Its name.
    pub text: String,
}

/// How a wait's 32 bits name its signal.
pub(crate) fn signal_name(rank: u32, index: u32, queue: bool) -> u32 {
    (rank & 0xff) << 24 | u32::from(queue) << 23 | index & INDEX
}

const INDEX: u32 = (1 << 23) - 1;

/// A task's 32 bits: whether it failed, and how far before it the task is that it waited for; 0 for none, or one
/// that is too far.
pub(crate) fn task_bits(number: u64, after: Option<u64>, failed: bool) -> u32 {
    let distance = after.and_then(|after| u32::try_from(number.checked_sub(after)?).ok());
    distance.filter(|distance| *distance < 1 << 31).unwrap_or(0) << 1 | u32::from(failed)
}

/// Reads everything that makes sense (REC-3).
pub(crate) fn read_record(memory: &Memory, base: u64, texts: u64) -> Record {
    let mut known: HashMap<u64, String> = HashMap::new();
    let mut text = |number: u64| {
        let text = known.entry(number);
        text.or_insert_with(|| read_string(memory, texts, number).unwrap_or_default())
            .clone()
    };
    let mut record = Record::default();
    for core in 0..CORES {
        for [start, end, what, detail] in read_ring(memory, base, Ring::of(core)) {
            if let Some(kind) = kind(what, detail)
                && start <= end
            {
                record.entries.push(Entry {
                    what: kind,
                    core: core_of(what),
                    start,
                    end,
                    text: text(what >> 32 & 0xffff),
                });
            }
        }
    }
    record.under_way = read_under_way(memory, base, &mut text);
    record
}

fn read_under_way(memory: &Memory, base: u64, text: &mut impl FnMut(u64) -> String) -> Option<UnderWay> {
    let [_, start_word, what, number, ..]: &Header = memory.words(base)?;
    // SYNC: pairs with the stores in `begin` and `end`: the same start before and after is one task's.
    let load = |word: &AtomicU64| word.load(Ordering::Acquire);
    let (start, what, number) = (load(start_word), load(what), load(number));
    (start != 0 && load(start_word) == start).then(|| UnderWay {
        number,
        start,
        text: text(what >> 32 & 0xffff),
    })
}

/// The entries of a ring, oldest first, without those that may have been overwritten meanwhile.
fn read_ring(memory: &Memory, base: u64, ring: Ring) -> Vec<[u64; 4]> {
    let header: Option<&Header> = memory.words(base + ring.base);
    let Some([count, ..]) = header else {
        return Vec::new();
    };
    // SYNC: pairs with the store of the count in `put` (REC-2).
    let before = count.load(Ordering::Acquire);
    // The one that the writer may be at now is not among them.
    let indices = before.saturating_sub(ring.entries - 1)..before;
    let entry = |index| {
        let words: Option<&Words> = memory.words(base + ring.at(index));
        words.map(|words| words.each_ref().map(|word| word.load(Ordering::Relaxed)))
    };
    let mut entries: Vec<_> = indices.clone().filter_map(entry).collect();
    // SYNC: pairs with the fence in `put` (REC-2).
    fence(Ordering::Acquire);
    let overwritten = count
        .load(Ordering::Relaxed)
        .saturating_sub(ring.entries - 1)
        .saturating_sub(indices.start);
    entries.drain(
        ..usize::try_from(overwritten)
            .unwrap_or(usize::MAX)
            .min(entries.len()),
    );
    entries
}

fn core_of(what: u64) -> u8 {
    // Eight bits, by the mask.
    u8::try_from(what >> 48 & 0xff).unwrap_or(0).min(CORES - 1)
}

fn kind(what: u64, detail: u64) -> Option<What> {
    const IDLE: u64 = Doing::Idle as u64;
    const TASK: u64 = Doing::Task as u64;
    const WAIT: u64 = Doing::Wait as u64;
    const NOTIFY: u64 = Doing::Notify as u64;
    let more = u32::try_from(what & u64::from(u32::MAX)).unwrap_or(0);
    match what >> 56 {
        IDLE => None,
        TASK => Some(What::Task {
            number: detail,
            after: (more >> 1 != 0).then(|| detail.wrapping_sub(u64::from(more >> 1))),
            failed: more & 1 != 0,
        }),
        WAIT => Some(What::Wait {
            cell: detail,
            rank: more >> 24,
            index: more & INDEX,
            queue: more & (INDEX + 1) != 0,
        }),
        NOTIFY => Some(What::Notify { cell: detail }),
        other => progress::name(other).map(|name| What::Work { name, bytes: detail }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn memory() -> Arc<Memory> {
        Arc::new(Memory::heap(RECORD_BYTES + crate::trace::interned_strings::STRINGS_BYTES).unwrap())
    }

    #[test]
    fn rings_lie_side_by_side_and_fill_the_record() {
        let mut end = 0;
        for core in 0..CORES {
            let ring = Ring::of(core);
            assert_eq!(ring.base, end);
            end = ring.at(ring.entries - 1) + ENTRY_BYTES;
        }
        assert_eq!(end, RECORD_BYTES);
    }

    #[test]
    fn what_is_new_takes_the_place_of_what_is_oldest() {
        let memory = memory();
        let recorder = Recorder::new(memory.clone(), 0, 1);
        for i in 0..OTHER_ENTRIES + 10 {
            recorder.put(Doing::Copy, 0, (i, i + 1), (i, 0));
        }
        let record = read_record(&memory, 0, RECORD_BYTES);
        let starts: Vec<_> = record.entries.iter().map(|entry| entry.start).collect();
        let newest = 11..OTHER_ENTRIES + 10;
        assert_eq!(starts, newest.collect::<Vec<_>>());
    }

    #[test]
    fn a_reader_beside_a_writer_sees_whole_entries_only() {
        let memory = memory();
        let (writers, stop) = (
            memory.clone(),
            Arc::new(std::sync::atomic::AtomicBool::new(false)),
        );
        let stopped = stop.clone();
        let writer = std::thread::spawn(move || {
            let recorder = Recorder::new(writers, 0, 3);
            let mut i = 0;
            while !stopped.load(Ordering::Relaxed) {
                i += 1;
                recorder.put(Doing::Copy, 0, (i, i), (i, 0));
            }
        });
        let rounds = if cfg!(miri) { 2 } else { 200 };
        for _ in 0..rounds {
            for entry in read_record(&memory, 0, RECORD_BYTES).entries {
                let What::Work { bytes, .. } = entry.what else {
                    panic!("{entry:?}")
                };
                assert_eq!((entry.start, entry.end), (bytes, bytes));
            }
        }
        stop.store(true, Ordering::Relaxed);
        writer.join().unwrap();
    }

    proptest! {
        #[test]
        fn garbage_is_read_in_bounded_time(count: u64, words in prop::collection::vec(any::<u64>(), 64)) {
            let memory = memory();
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            for core in 0..CORES {
                let ring = Ring::of(core);
                memory.word(ring.base).unwrap().store(count, Ordering::Relaxed);
                prop_assert!(memory.write(ring.at(0), &bytes));
            }
            for entry in read_record(&memory, 0, RECORD_BYTES).entries {
                prop_assert!(entry.start <= entry.end && entry.core < CORES);
            }
        }
    }
}
