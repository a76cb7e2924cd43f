//! The progress word of a chip: the instruction that it executes now, for a host that gets no answer.
//!
//! Before every instruction a core writes one word: which instruction, at which line. Beside it lies the
//! [record](crate::trace::ring) of what it has done.
//!
//! # Invariants
//! - **ACT-1 (one writer).** Only the chip writes; the host reads and believes nothing it cannot check.

use crate::memory::Memory;
use crate::trace::interned_strings::{InternedStrings, STRINGS_BYTES, read_string};
use crate::trace::ring::{RECORD_BYTES, Record, Recorder, read_record, task_bits};
use crate::trace::tsc_clock;
use std::cell::Cell;
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::Ordering;

const COUNT_AT: u64 = 0;
const NOW_AT: u64 = 8;
const STRINGS_AT: u64 = 64;
const RECORD_AT: u64 = STRINGS_AT + STRINGS_BYTES;

/// Bytes the area takes.
pub(crate) const PROGRESS_BYTES: u64 = RECORD_AT + RECORD_BYTES;

/// The kinds of instruction, for display.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
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
    Task,
}

const NAMES: [&str; 10] = [
    "idle", "copy", "reduce", "load", "store", "vector", "notify", "wait", "matmul", "task",
];

/// The name of an instruction that a chip wrote down.
pub(crate) fn name(doing: u64) -> Option<&'static str> {
    usize::try_from(doing).ok().and_then(|i| NAMES.get(i)).copied()
}

/// Lines that are looked up without a lock.
const NEAR: usize = 64;

/// A core's side.
#[derive(Debug)]
pub(crate) struct Activity {
    memory: Arc<Memory>,
    base: u64,
    count: Cell<u64>,
    /// The line that was said last.
    line: Cell<u32>,
    /// InternedStrings met lately, by address.
    near: [Cell<(usize, u32)>; NEAR],
    texts: Arc<InternedStrings>,
    recorder: Option<Recorder>,
}

/// What is known of a task that begins.
#[derive(Clone, Copy, Debug)]
pub struct Begin {
    /// The core of its chip; 0 is the chip itself.
    pub core: u8,
    /// Its number.
    pub number: u64,
    /// The task of the same chip that it waited for last, if that is known.
    pub after: Option<u64>,
    /// When, if the clock has been read for it already.
    pub at: Option<u64>,
}

/// A task that was begun, to be handed to `Activity::end_task`.
#[derive(Debug)]
#[must_use = "a task that is begun is ended"]
pub struct Begun {
    start: u64,
    text: u32,
    number: u64,
    after: Option<u64>,
    /// The task that it was begun inside of.
    outer: Option<(u8, u32)>,
}

impl Activity {
    /// Of a chip's first core. Without `record` there is only the progress word, and no ring.
    pub(crate) fn new(memory: Arc<Memory>, base: u64, record: bool) -> Activity {
        let texts = Arc::new(InternedStrings::new(memory.clone(), base + STRINGS_AT));
        let recorder = record.then(|| Recorder::new(memory.clone(), base + RECORD_AT, 0));
        Activity::with(memory, base, texts, recorder)
    }

    fn with(
        memory: Arc<Memory>,
        base: u64,
        texts: Arc<InternedStrings>,
        recorder: Option<Recorder>,
    ) -> Activity {
        Activity {
            memory,
            base,
            count: Cell::new(0),
            line: Cell::new(0),
            near: [const { Cell::new((0, 0)) }; NEAR],
            texts,
            recorder,
        }
    }

    /// Records what another core of the same chip does, on a thread of its own. The chip's activity word stays
    /// its first core's.
    pub(crate) fn of_core(&self, core: u8) -> Option<Activity> {
        self.recorder.as_ref()?;
        let recorder = Recorder::new(self.memory.clone(), self.base + RECORD_AT, core);
        let (memory, texts) = (self.memory.clone(), self.texts.clone());
        Some(Activity::with(memory, u64::MAX, texts, Some(recorder)))
    }

    /// Writes the next instruction and its line of the kernel.
    pub(crate) fn say(&self, doing: Doing, at: &'static Location<'static>) {
        let line = self.text(std::ptr::from_ref(at) as usize, || {
            format!("{}:{}", at.file(), at.line())
        });
        self.line.set(line);
        self.store(doing, line);
    }

    /// Counts progress of the instruction that was written last.
    pub(crate) fn again(&self) {
        self.count.set(self.count.get() + 1);
        if let Some(word) = self.word(COUNT_AT) {
            word.store(self.count.get(), Ordering::Release);
        }
    }

    /// Says that no task runs.
    pub(crate) fn rest(&self) {
        self.store(Doing::Idle, 0);
    }

    fn word(&self, at: u64) -> Option<&std::sync::atomic::AtomicU64> {
        self.memory.word(self.base.checked_add(at)?)
    }

    fn store(&self, doing: Doing, line: u32) {
        self.count.set(self.count.get() + 1);
        for (at, value) in [
            (NOW_AT, u64::from(doing as u8) << 32 | u64::from(line)),
            (COUNT_AT, self.count.get()),
        ] {
            if let Some(word) = self.word(at) {
                // SYNC: publishes the line's text; pairs with the load in `read_progress`.
                word.store(value, Ordering::Release);
            }
        }
    }

    /// The number of the text that belongs to an address.
    fn text(&self, key: usize, text: impl FnOnce() -> String) -> u32 {
        let near = &self.near[key / 8 % NEAR];
        let (known, number) = near.get();
        if known == key {
            return number;
        }
        let number = self.texts.number(key, text);
        near.set((key, number));
        number
    }

    /// Runs `work` for the instruction that was written last, and records how long it took.
    pub(crate) fn timed<R>(&self, doing: Doing, bytes: u64, work: impl FnOnce() -> R) -> R {
        let Some(recorder) = &self.recorder else {
            return work();
        };
        let start = tsc_clock::about_now();
        let done = work();
        recorder.put(
            doing,
            self.line.get(),
            (start, tsc_clock::about_now()),
            (bytes, 0),
        );
        done
    }

    /// As [`timed`](Activity::timed), for a wait: `cell` is what is waited for, `name` what to call it.
    pub(crate) fn waited<R>(&self, (cell, name): (u64, u32), wait: impl FnOnce() -> R) -> R {
        let Some(recorder) = &self.recorder else {
            return wait();
        };
        let start = tsc_clock::about_now();
        let done = wait();
        recorder.put(
            Doing::Wait,
            self.line.get(),
            (start, tsc_clock::about_now()),
            (cell, name),
        );
        done
    }

    /// Records a notify that is about to happen.
    pub(crate) fn notifies(&self, cell: impl FnOnce() -> u64) {
        if let Some(recorder) = &self.recorder {
            let now = tsc_clock::about_now();
            recorder.put(Doing::Notify, self.line.get(), (now, now), (cell(), 0));
        }
    }

    /// The time, if anything is recorded.
    #[inline]
    pub(crate) fn clock(&self) -> Option<u64> {
        self.recorder.as_ref().map(|_| tsc_clock::about_now())
    }

    /// A task begins.
    pub(crate) fn begin_task(&self, name: &'static str, begin: Begin) -> Option<Begun> {
        let Begin {
            core,
            number,
            after,
            at,
        } = begin;
        let text = self.text(name.as_ptr() as usize, || {
            name.rsplit("::").next().unwrap_or(name).to_owned()
        });
        // Until its first instruction all that can be said of it is its name.
        self.store(Doing::Task, text);
        let recorder = self.recorder.as_ref()?;
        let start = at.unwrap_or_else(tsc_clock::about_now);
        let outer = recorder.begin(core, text, start, number);
        Some(Begun {
            start,
            text,
            number,
            after,
            outer,
        })
    }

    /// It has ended; returns when.
    pub(crate) fn end_task(&self, begun: &Begun, failed: bool) -> Option<u64> {
        let recorder = self.recorder.as_ref()?;
        let end = tsc_clock::about_now();
        let more = task_bits(begun.number, begun.after, failed);
        recorder.put(Doing::Task, begun.text, (begun.start, end), (begun.number, more));
        recorder.end(begun.outer);
        Some(end)
    }
}

/// The host's view: how many instructions were begun, and the last of them in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastSeen {
    /// Instructions begun since the chip came up: if it does not grow, the chip makes no progress.
    pub count: u64,
    /// Such as `wait at src/kernel.rs:12`.
    pub what: String,
}

pub(crate) fn read_progress(memory: &Memory, base: u64) -> LastSeen {
    // SYNC: pairs with the stores in `Activity::store`.
    let load = |at| {
        memory
            .word(base + at)
            .map_or(0, |word| word.load(Ordering::Acquire))
    };
    let (count, now) = (load(COUNT_AT), load(NOW_AT));
    let doing = name(now >> 32).unwrap_or("something unknown");
    let what = match read_string(memory, base + STRINGS_AT, now & u64::from(u32::MAX)) {
        None => doing.to_owned(),
        Some(kernel) if now >> 32 == Doing::Task as u64 => {
            format!("kernel `{kernel}`, before its first instruction")
        }
        Some(site) => format!("{doing} at {site}"),
    };
    LastSeen { count, what }
}

/// What a chip has recorded, as far as it makes sense.
pub(crate) fn read_records(memory: &Memory, base: u64) -> Record {
    read_record(memory, base + RECORD_AT, base + STRINGS_AT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::ring::What;
    use proptest::prelude::*;

    fn begin(core: u8, number: u64, after: Option<u64>) -> Begin {
        Begin {
            core,
            number,
            after,
            at: None,
        }
    }

    fn area() -> (Arc<Memory>, Activity) {
        let memory = Arc::new(Memory::heap(PROGRESS_BYTES).unwrap());
        let activity = Activity::new(memory.clone(), 0, true);
        (memory, activity)
    }

    #[test]
    fn the_host_reads_the_instruction_and_the_line() {
        let (memory, activity) = area();
        assert_eq!(
            read_progress(&memory, 0),
            LastSeen {
                count: 0,
                what: "idle".into()
            }
        );
        let here = Location::caller();
        activity.say(Doing::Wait, here);
        activity.say(Doing::Copy, here);
        let seen = read_progress(&memory, 0);
        assert_eq!(seen.count, 2);
        assert_eq!(seen.what, format!("copy at {}:{}", here.file(), here.line()));
        activity.rest();
        assert_eq!(read_progress(&memory, 0).what, "idle");
    }

    #[test]
    fn a_kernel_that_has_done_nothing_yet_is_named_also_without_a_record() {
        for record in [true, false] {
            let memory = Arc::new(Memory::heap(PROGRESS_BYTES).unwrap());
            let activity = Activity::new(memory.clone(), 0, record);
            let begun = activity.begin_task("a::b::talk", begin(0, 7, None));
            assert_eq!(
                read_progress(&memory, 0).what,
                "kernel `talk`, before its first instruction"
            );
            activity.say(Doing::Copy, Location::caller());
            assert!(read_progress(&memory, 0).what.starts_with("copy at "));
            begun.map(|begun| activity.end_task(&begun, false));
        }
    }

    #[test]
    fn a_task_and_what_it_did_are_recorded_in_order_and_one_under_way_is_seen() {
        let (memory, activity) = area();
        let begun = activity.begin_task("a::b::add", begin(0, 7, Some(4))).unwrap();
        activity.say(Doing::Copy, Location::caller());
        activity.timed(Doing::Copy, 4096, || ());
        let record = read_records(&memory, 0);
        let under_way = record.under_way.unwrap();
        assert_eq!((under_way.text.as_str(), under_way.number), ("add", 7));
        activity.notifies(|| 3);
        activity.waited((9, 5), || ());
        activity.end_task(&begun, false);
        let record = read_records(&memory, 0);
        assert!(record.under_way.is_none());
        let what: Vec<_> = record.entries.iter().map(|entry| entry.what.clone()).collect();
        assert_eq!(
            what,
            [
                What::Work {
                    name: "copy",
                    bytes: 4096
                },
                What::Notify { cell: 3 },
                What::Wait {
                    cell: 9,
                    rank: 0,
                    index: 5,
                    queue: false
                },
                What::Task {
                    number: 7,
                    after: Some(4),
                    failed: false
                }
            ]
        );
        assert_eq!(record.entries[3].text, "add");
        assert!(record.entries.iter().all(|entry| entry.end >= entry.start));
    }

    #[test]
    fn cores_beside_the_first_go_on_in_rings_of_their_own() {
        let (memory, activity) = area();
        for number in 0..2 {
            let beside = activity.of_core(2).unwrap();
            let begun = beside.begin_task("mul", begin(2, number, None)).unwrap();
            beside.say(Doing::Copy, Location::caller());
            beside.end_task(&begun, true);
        }
        let record = read_records(&memory, 0);
        let found: Vec<_> = record
            .entries
            .iter()
            .map(|entry| (entry.core, &entry.what))
            .collect();
        let task = |number| What::Task {
            number,
            after: None,
            failed: true,
        };
        assert_eq!(found, [(2, &task(0)), (2, &task(1))]);
        assert_eq!(
            read_progress(&memory, 0).count,
            0,
            "the chip's word is its first core's"
        );
    }

    #[test]
    fn nothing_is_recorded_where_that_is_switched_off() {
        let memory = Arc::new(Memory::heap(PROGRESS_BYTES).unwrap());
        let activity = Activity::new(memory.clone(), 0, false);
        assert!(activity.begin_task("add", begin(0, 1, None)).is_none());
        activity.timed(Doing::Copy, 1, || ());
        assert!(read_records(&memory, 0).entries.is_empty());
    }

    proptest! {
        #[test]
        fn garbage_reads_as_some_text(count: u64, now: u64, noise in prop::collection::vec(any::<u8>(), 512)) {
            let memory = Memory::heap(PROGRESS_BYTES).unwrap();
            prop_assert!(memory.write(STRINGS_AT, &noise));
            memory.word(COUNT_AT).unwrap().store(count, Ordering::Relaxed);
            memory.word(NOW_AT).unwrap().store(now, Ordering::Relaxed);
            prop_assert!(!read_progress(&memory, 0).what.is_empty());
        }
    }
}
