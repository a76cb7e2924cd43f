//! The access index: which tasks touch which bytes of which buffer, and what a new access conflicts with.
//!
//! Every live access is one entry. The entries of a buffer are kept in lists by what they do (write, or only
//! read) and by the [`Grid`] that suits their view. Those of a list that has grown long are also chained by a
//! hash of (buffer, list, cell): a query looks at the few cells that can matter, or walks the list if that is
//! shorter. So the cost of an access hardly depends on how many others are live.
//!
//! # Invariants
//! - **INDEX-1 (complete).** An access that conflicts with a live one either finds it, or finds a later write
//!   that conflicts with both: an entry leaves the index when its task is done or when one later write
//!   covers all of it.
//! - **INDEX-2 (exact).** What a query finds does overlap ([`View::overlaps`]).
//! - **INDEX-3 (flat).** Entries and buffer records are recycled: memory follows the largest number of live
//!   accesses, not the number ever made.
//! - **INDEX-4 (deterministic).** Nothing iterates over a hash table.

use crate::ids::{BufferId, NONE};
use crate::spatial_grid::{Cell, Grid};
use crate::view::View;
use rustc_hash::FxBuildHasher;
use std::hash::BuildHasher;

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
    /// The entry before it in its hash chain, or `FIRST` and the number of the chain; `NONE` if its list is
    /// not chained.
    chain_prev: u32,
    chain_next: u32,
    /// Neighbours in its list. The first has no `list_prev`.
    list_prev: u32,
    list_next: u32,
    /// The next access of the same task, or the next free entry.
    task_next: u32,
    /// Which of the record's lists it is in.
    list: u16,
    /// Whether it writes.
    writes: bool,
    /// Whether it is in a list and can be found.
    indexed: bool,
}

/// Marks the first entry of a chain; there are fewer chains than this.
const FIRST: u32 = 1 << 31;

/// The entries of one buffer that suit one grid and all write, or all only read.
#[derive(Clone, Copy, Debug)]
struct List {
    grid: Grid,
    writes: bool,
    head: u32,
    count: u32,
    /// Whether its entries are in hash chains; from when it is long until it is empty.
    chained: bool,
}

/// A buffer that live tasks touch.
#[derive(Clone, Debug)]
struct Record {
    buffer: BufferId,
    /// Entries that refer to it, indexed or not.
    entries: u32,
    lists: Vec<List>,
}

/// A hash table that is looked up and never iterated over (INDEX-4).
pub(crate) type Lookup<K, V> = rustc_hash::FxHashMap<K, V>;

/// Walking a list of this many is cheaper than hashing a cell.
const SHORT_LIST: u64 = 4;
/// A list that grows longer than this is chained.
const LONG_LIST: u32 = 12;
/// With this many lists, views of yet another shape are kept by their bounds (of which there are few).
const MANY_LISTS: usize = 64;

/// See the [module](self).
#[derive(Clone, Debug)]
pub(crate) struct AccessIndex {
    entries: Vec<Entry>,
    free_entry: u32,
    records: Vec<Record>,
    free_records: Vec<u32>,
    by_buffer: Lookup<u64, u32>,
    /// First entry of each hash chain; the length is a power of two, at least twice the entries.
    chains: Vec<u32>,
    live: usize,
}

impl AccessIndex {
    pub(crate) fn new() -> AccessIndex {
        AccessIndex {
            entries: Vec::new(),
            free_entry: NONE,
            records: Vec::new(),
            free_records: Vec::new(),
            by_buffer: Lookup::default(),
            chains: vec![NONE; 64],
            live: 0,
        }
    }

    /// Whether no task has an access here.
    pub(crate) fn is_empty(&self) -> bool {
        self.live == 0
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
            list: 0,
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
            if self.entries.len() * 2 > self.chains.len() {
                self.grow_chains();
            }
            return index_of(self.entries.len() - 1);
        }
        let index = self.free_entry;
        self.free_entry = self.entries[index as usize].task_next;
        self.entries[index as usize] = entry;
        index
    }

    /// Finds what a new access conflicts with, and drops what it covers (INDEX-1).
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
            let mut check = |map: &mut AccessIndex, index: u32| {
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
                if writes && entry.indexed && view.covers(&entry.view) {
                    map.unlink(index);
                }
            };
            let cells = list.chained.then(|| list.grid.cells(view));
            let cells = cells.filter(|cells| cells.count() + SHORT_LIST < u64::from(list.count));
            let Some(cells) = cells else {
                let mut index = list.head;
                while index != NONE {
                    let next = self.entries[index as usize].list_next;
                    check(self, index);
                    index = next;
                }
                continue;
            };
            for row in cells.rows {
                for column in cells.columns.clone() {
                    let mut index = self.chains[self.chain(record, at, (row, column))];
                    while index != NONE {
                        let entry = &self.entries[index as usize];
                        let next = entry.chain_next;
                        // Two cells may share a chain: seeing an entry twice does no harm.
                        if entry.record == record && usize::from(entry.list) == at {
                            check(self, index);
                        }
                        index = next;
                    }
                }
            }
        }
    }

    /// Which chain holds the entries of a cell.
    fn chain(&self, record: u32, list: usize, cell: Cell) -> usize {
        #[allow(clippy::cast_possible_truncation, reason = "masked to the table")]
        let hash = FxBuildHasher.hash_one((record, list, cell)) as usize;
        hash & (self.chains.len() - 1)
    }

    /// Makes an entry findable.
    fn link(&mut self, index: u32) {
        let Entry {
            record, view, writes, ..
        } = self.entries[index as usize];
        let lists = &mut self.records[record as usize].lists;
        let at = place_in(lists, &view, writes);
        let list = &mut lists[at];
        let list_next = std::mem::replace(&mut list.head, index);
        list.count += 1;
        let home = list.grid.keep(&view);
        let (chained, long) = (list.chained, list.count > LONG_LIST);
        if list_next != NONE {
            self.entries[list_next as usize].list_prev = index;
        }
        let entry = &mut self.entries[index as usize];
        entry.list_next = list_next;
        entry.list_prev = NONE;
        entry.list = u16::try_from(at).expect("few lists");
        entry.indexed = true;
        if chained {
            let chain = self.chain(record, at, home);
            self.push_on_chain(chain, index);
        } else if long {
            self.chain_list(record, at);
        }
    }

    /// Puts every entry of a list in its hash chain.
    #[cold]
    fn chain_list(&mut self, record: u32, at: usize) {
        let list = &mut self.records[record as usize].lists[at];
        list.chained = true;
        let list = *list;
        let mut index = list.head;
        while index != NONE {
            let entry = &self.entries[index as usize];
            let next = entry.list_next;
            let chain = self.chain(record, at, list.grid.home(&entry.view));
            self.push_on_chain(chain, index);
            index = next;
        }
    }

    fn push_on_chain(&mut self, chain: usize, index: u32) {
        let next = std::mem::replace(&mut self.chains[chain], index);
        if next != NONE {
            self.entries[next as usize].chain_prev = index;
        }
        let entry = &mut self.entries[index as usize];
        entry.chain_prev = FIRST | index_of(chain);
        entry.chain_next = next;
    }

    /// Makes an entry unfindable; its owner still has it.
    fn unlink(&mut self, index: u32) {
        let entry = self.entries[index as usize];
        let list = &mut self.records[entry.record as usize].lists[usize::from(entry.list)];
        list.count -= 1;
        list.chained &= list.count > 0;
        if entry.list_prev == NONE {
            list.head = entry.list_next;
        } else {
            self.entries[entry.list_prev as usize].list_next = entry.list_next;
        }
        if entry.list_next != NONE {
            self.entries[entry.list_next as usize].list_prev = entry.list_prev;
        }
        self.entries[index as usize].indexed = false;
        if entry.chain_prev == NONE {
            return;
        }
        self.entries[index as usize].chain_prev = NONE;
        if entry.chain_prev & FIRST != 0 {
            self.chains[(entry.chain_prev & !FIRST) as usize] = entry.chain_next;
        } else {
            self.entries[entry.chain_prev as usize].chain_next = entry.chain_next;
        }
        if entry.chain_next != NONE {
            self.entries[entry.chain_next as usize].chain_prev = entry.chain_prev;
        }
    }

    /// Doubles the hash table; every chained entry moves to its new chain.
    fn grow_chains(&mut self) {
        self.chains = vec![NONE; self.chains.len() * 2];
        for index in 0..self.entries.len() {
            let entry = self.entries[index];
            if entry.indexed && entry.chain_prev != NONE {
                let list = &self.records[entry.record as usize].lists[usize::from(entry.list)];
                let home = list.grid.home(&entry.view);
                let chain = self.chain(entry.record, entry.list.into(), home);
                self.push_on_chain(chain, index_of(index));
            }
        }
    }
}

/// The list for a view, made if there is none.
fn place_in(lists: &mut Vec<List>, view: &View, writes: bool) -> usize {
    let mut grid = Grid::of(view);
    let find = |lists: &[List], grid: Grid| {
        let mut lists = lists.iter();
        lists.position(|list| list.writes == writes && list.grid.same(&grid))
    };
    if let Some(at) = find(lists, grid) {
        return at;
    }
    if lists.len() >= MANY_LISTS {
        grid = Grid::of_bounds(view);
        if let Some(at) = find(lists, grid) {
            return at;
        }
    }
    lists.push(List {
        grid,
        writes,
        head: NONE,
        count: 0,
        chained: false,
    });
    lists.len() - 1
}

/// Indices fit in 31 bits: there are fewer than 2^30 tasks, and few accesses of each are live at once.
fn index_of(index: usize) -> u32 {
    let index = u32::try_from(index).ok();
    index
        .filter(|&index| index < FIRST)
        .expect("fewer than 2^31 live accesses")
}
