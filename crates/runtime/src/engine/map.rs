//! The access map: who touches which bytes of which buffer, and what a new access conflicts with.
//!
//! Every live access is one entry. Entries of a buffer are sorted by what they do (write or read) and by
//! size class: an entry of class `c` is at most `2^c` bytes from end to end, so it begins in the same or the
//! previous block of `2^c` bytes as anything it overlaps. Entries are chained by a hash of (buffer, what,
//! class, block); a query looks at the few blocks that can matter, or walks the whole class if that is
//! shorter. So the cost of an access does not depend on how many others are live.
//!
//! # Invariants
//! - **MAP-1 (complete).** An access that conflicts with a live one either finds it, or finds a later write
//!   that conflicts with both: an entry leaves the index when its task is done or when one later write
//!   covers all of it.
//! - **MAP-2 (exact).** What a query finds does overlap ([`View::overlaps`]).
//! - **MAP-3 (flat).** Entries and buffer records are recycled: memory follows the largest number of live
//!   accesses, not the number ever made.
//! - **MAP-4 (deterministic).** Nothing iterates over a hash table.

use super::ids::{BufferId, NONE};
use super::view::View;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// What a new access waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Conflict {
    /// Whose access it is.
    pub(crate) owner: u32,
    /// Whether its data is needed (read after write), or only its order.
    pub(crate) data: bool,
}

/// A live access. One cache line.
#[derive(Clone, Copy, Debug)]
struct Entry {
    view: View,
    owner: u32,
    /// Index of the buffer's record.
    record: u32,
    /// Neighbours in the hash chain. The first has no `chain_prev`.
    chain_prev: u32,
    chain_next: u32,
    /// Neighbours in the class list. The first has no `list_prev`.
    list_prev: u32,
    list_next: u32,
    /// The next access of the same task, or the next free entry.
    task_next: u32,
    /// Log2 of the size class.
    class: u8,
    /// Whether it writes.
    writes: bool,
    /// Whether it can be found.
    indexed: bool,
}

/// The entries of one buffer that are of one size class and all write, or all only read.
#[derive(Clone, Copy, Debug)]
struct ClassList {
    class: u8,
    writes: bool,
    head: u32,
    count: u32,
}

/// A buffer that live tasks touch.
#[derive(Clone, Debug)]
struct Record {
    buffer: BufferId,
    /// Entries that refer to it, indexed or not.
    entries: u32,
    lists: Vec<ClassList>,
}

/// Multiplies and folds: good enough for numbers, the same everywhere.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Mix(u64);

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(byte.into());
        }
    }
    fn write_u64(&mut self, word: u64) {
        self.0 = mix(self.0 ^ word);
    }
}

/// Both halves of a product with an odd constant, folded together.
fn mix(word: u64) -> u64 {
    let product = u128::from(word ^ 0x9e37_79b9_7f4a_7c15) * 0xd6e8_feb8_6659_fd93;
    #[allow(clippy::cast_possible_truncation, reason = "folding the halves is the point")]
    {
        (product as u64) ^ ((product >> 64) as u64)
    }
}

/// A hash table that is looked up and never iterated over (MAP-4).
pub(crate) type Lookup<K, V> = HashMap<K, V, BuildHasherDefault<Mix>>;

/// Walking a class list of at most this many is cheaper than hashing blocks.
const SHORT_LIST: u64 = 4;

/// See the [module](self).
#[derive(Clone, Debug)]
pub(crate) struct AccessMap {
    entries: Vec<Entry>,
    free_entry: u32,
    records: Vec<Record>,
    free_records: Vec<u32>,
    by_buffer: Lookup<u64, u32>,
    /// First entry of each hash chain; the length is a power of two.
    chains: Vec<u32>,
    live: usize,
}

impl AccessMap {
    pub(crate) fn new() -> AccessMap {
        AccessMap {
            entries: Vec::new(),
            free_entry: NONE,
            records: Vec::new(),
            free_records: Vec::new(),
            by_buffer: Lookup::default(),
            chains: vec![NONE; 64],
            live: 0,
        }
    }

    /// Live entries, found or not.
    pub(crate) fn len(&self) -> usize {
        self.live
    }

    /// Adds an access of `owner` and appends to `found` what it conflicts with: overlapping writes, and
    /// overlapping reads if it writes. `first` is the head of the owner's list of accesses.
    pub(crate) fn touch(
        &mut self,
        owner: u32,
        (buffer, view): (BufferId, View),
        (reads, writes): (bool, bool),
        first: &mut u32,
        found: &mut Vec<Conflict>,
    ) {
        let record = self.record_of(buffer);
        let finds = (reads || writes) && !view.is_empty();
        if finds {
            self.conflicts(record, owner, &view, reads, writes, found);
        }
        let index = self.new_entry(Entry {
            view,
            owner,
            record,
            chain_prev: NONE,
            chain_next: NONE,
            list_prev: NONE,
            list_next: NONE,
            task_next: *first,
            class: class_of(&view),
            writes,
            indexed: false,
        });
        *first = index;
        if finds {
            self.link(index);
        }
    }

    /// Forgets the accesses of a task, from `first` on, telling `each` which buffers they were to.
    pub(crate) fn forget(&mut self, first: u32, mut each: impl FnMut(BufferId)) {
        let mut index = first;
        while index != NONE {
            let entry = self.entries[index as usize];
            if entry.indexed {
                self.unlink(index);
            }
            let record = &mut self.records[entry.record as usize];
            each(record.buffer);
            record.entries -= 1;
            if record.entries == 0 {
                record.lists.clear();
                self.by_buffer.remove(&record.buffer.bits());
                self.free_records.push(entry.record);
            }
            self.entries[index as usize].task_next = self.free_entry;
            self.free_entry = index;
            self.live -= 1;
            index = entry.task_next;
        }
    }

    /// The record of a buffer, with one more entry.
    fn record_of(&mut self, buffer: BufferId) -> u32 {
        if let Some(&record) = self.by_buffer.get(&buffer.bits()) {
            self.records[record as usize].entries += 1;
            return record;
        }
        let record = if let Some(record) = self.free_records.pop() {
            self.records[record as usize].buffer = buffer;
            record
        } else {
            self.records.push(Record {
                buffer,
                entries: 0,
                lists: Vec::new(),
            });
            index_of(self.records.len() - 1)
        };
        self.records[record as usize].entries = 1;
        self.by_buffer.insert(buffer.bits(), record);
        record
    }

    fn new_entry(&mut self, entry: Entry) -> u32 {
        self.live += 1;
        if self.free_entry == NONE {
            self.entries.push(entry);
            if self.entries.len() > self.chains.len() {
                self.grow_chains();
            }
            return index_of(self.entries.len() - 1);
        }
        let index = self.free_entry;
        self.free_entry = self.entries[index as usize].task_next;
        self.entries[index as usize] = entry;
        index
    }

    /// Finds what a new access conflicts with, and drops what it covers (MAP-1).
    fn conflicts(
        &mut self,
        record: u32,
        owner: u32,
        view: &View,
        reads: bool,
        writes: bool,
        found: &mut Vec<Conflict>,
    ) {
        for at in 0..self.records[record as usize].lists.len() {
            let list = self.records[record as usize].lists[at];
            if list.count == 0 || !(list.writes || writes) {
                continue;
            }
            let mut check = |map: &mut AccessMap, index: u32| {
                let entry = &map.entries[index as usize];
                if !entry.view.overlaps(view) {
                    return;
                }
                if entry.owner != owner {
                    found.push(Conflict {
                        owner: entry.owner,
                        data: reads && entry.writes,
                    });
                }
                if writes && view.covers(&entry.view) {
                    map.unlink(index);
                }
            };
            let first_block = (view.start() >> list.class).saturating_sub(1);
            let last_block = (view.end() - 1) >> list.class;
            if last_block - first_block + SHORT_LIST >= u64::from(list.count) {
                let mut index = list.head;
                while index != NONE {
                    let next = self.entries[index as usize].list_next;
                    check(self, index);
                    index = next;
                }
                continue;
            }
            for block in first_block..=last_block {
                let mut index = self.chains[self.chain(record, &list, block)];
                while index != NONE {
                    let entry = &self.entries[index as usize];
                    let next = entry.chain_next;
                    if entry.record == record
                        && entry.class == list.class
                        && entry.writes == list.writes
                        && entry.view.start() >> list.class == block
                    {
                        check(self, index);
                    }
                    index = next;
                }
            }
        }
    }

    /// Which chain holds the entries that begin in a block.
    fn chain(&self, record: u32, list: &ClassList, block: u64) -> usize {
        let key = u64::from(record) << 32 | u64::from(list.class) << 1 | u64::from(list.writes);
        #[allow(clippy::cast_possible_truncation, reason = "masked to the table")]
        let hash = mix(key ^ block.rotate_left(40)) as usize;
        hash & (self.chains.len() - 1)
    }

    /// Makes an entry findable.
    fn link(&mut self, index: u32) {
        let entry = self.entries[index as usize];
        let lists = &mut self.records[entry.record as usize].lists;
        let at = lists
            .iter()
            .position(|list| list.class == entry.class && list.writes == entry.writes)
            .unwrap_or_else(|| {
                lists.push(ClassList {
                    class: entry.class,
                    writes: entry.writes,
                    head: NONE,
                    count: 0,
                });
                lists.len() - 1
            });
        let list = &mut lists[at];
        let list_next = std::mem::replace(&mut list.head, index);
        list.count += 1;
        let list = *list;
        if list_next != NONE {
            self.entries[list_next as usize].list_prev = index;
        }
        self.entries[index as usize].list_next = list_next;
        self.entries[index as usize].indexed = true;
        let chain = self.chain(entry.record, &list, entry.view.start() >> entry.class);
        self.push_on_chain(chain, index);
    }

    fn push_on_chain(&mut self, chain: usize, index: u32) {
        let next = std::mem::replace(&mut self.chains[chain], index);
        if next != NONE {
            self.entries[next as usize].chain_prev = index;
        }
        let entry = &mut self.entries[index as usize];
        entry.chain_prev = NONE;
        entry.chain_next = next;
    }

    /// Makes an entry unfindable; its owner still has it.
    fn unlink(&mut self, index: u32) {
        let entry = self.entries[index as usize];
        let lists = &mut self.records[entry.record as usize].lists;
        let at = lists
            .iter()
            .position(|list| list.class == entry.class && list.writes == entry.writes);
        let list = &mut lists[at.expect("an indexed entry is in a list")];
        list.count -= 1;
        if entry.list_prev == NONE {
            list.head = entry.list_next;
        }
        let list = *list;
        if entry.list_prev != NONE {
            self.entries[entry.list_prev as usize].list_next = entry.list_next;
        }
        if entry.list_next != NONE {
            self.entries[entry.list_next as usize].list_prev = entry.list_prev;
        }
        if entry.chain_prev == NONE {
            let chain = self.chain(entry.record, &list, entry.view.start() >> entry.class);
            self.chains[chain] = entry.chain_next;
        } else {
            self.entries[entry.chain_prev as usize].chain_next = entry.chain_next;
        }
        if entry.chain_next != NONE {
            self.entries[entry.chain_next as usize].chain_prev = entry.chain_prev;
        }
        let entry = &mut self.entries[index as usize];
        entry.indexed = false;
        entry.list_prev = NONE;
    }

    /// Doubles the hash table; every indexed entry moves to its new chain.
    fn grow_chains(&mut self) {
        self.chains = vec![NONE; self.chains.len() * 2];
        for index in 0..self.entries.len() {
            let entry = self.entries[index];
            if entry.indexed {
                let list = ClassList {
                    class: entry.class,
                    writes: entry.writes,
                    head: NONE,
                    count: 0,
                };
                let chain = self.chain(entry.record, &list, entry.view.start() >> entry.class);
                self.push_on_chain(chain, index_of(index));
            }
        }
    }
}

/// Log2 of the size class of a view, in steps of two so that there are few classes.
fn class_of(view: &View) -> u8 {
    let bytes = view.end() - view.start();
    let log2 = 64 - bytes.saturating_sub(1).leading_zeros();
    // At most 64, but a shift of 64 is not defined: 63 serves views of up to the whole space.
    #[allow(clippy::cast_possible_truncation, reason = "at most 63")]
    {
        log2.next_multiple_of(2).min(63) as u8
    }
}

/// Indices fit in 32 bits: there are fewer than 2^30 tasks, and a task's accesses are counted in `submit`.
fn index_of(index: usize) -> u32 {
    u32::try_from(index).expect("fewer than 2^32 live accesses")
}
