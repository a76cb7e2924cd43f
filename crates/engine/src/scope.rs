//! Scopes: intermediate tensors live until their scope has ended and the tasks that use them are done.
//!
//! # Invariants
//! - **SCOPE-1 (life).** An intermediate's bytes are given back exactly once: when its scope has ended and no
//!   live task touches it, whichever comes last.
//! - **SCOPE-2 (no stale handle).** A buffer handle carries a generation; after release it names nothing.

use crate::arena::ByteRing;
use crate::error::{Error, Fill, Outcome, Ring};
use crate::ids::{Arena, BufferId, NONE, Sort};
use crate::spec::Placement;

/// Scopes that may be open at once, beside the run itself.
pub const MAX_SCOPES: usize = 64;

#[derive(Clone, Copy, Debug)]
struct Intermediate {
    generation: u32,
    arena: u32,
    offset: u64,
    /// As asked for.
    bytes: u64,
    /// Live tasks that touch it.
    users: u32,
    /// Whether its scope is open.
    open: bool,
    /// Whether it exists.
    alive: bool,
    /// The one allocated before it in the same scope.
    next_in_scope: u32,
}

/// The arenas, and what lives in them.
#[derive(Clone, Debug)]
pub(crate) struct Scopes {
    arenas: Vec<ByteRing>,
    /// Bytes of each arena that only the end of a scope can release.
    held_bytes: Vec<u64>,
    intermediates: Vec<Intermediate>,
    free: Vec<u32>,
    /// The last intermediate of each open scope; the first is the run's own.
    open: Vec<u32>,
}

impl Scopes {
    pub(crate) fn new(arena_bytes: &[u64]) -> Scopes {
        Scopes {
            arenas: arena_bytes.iter().map(|&bytes| ByteRing::new(bytes)).collect(),
            held_bytes: vec![0; arena_bytes.len()],
            intermediates: Vec::new(),
            free: Vec::new(),
            open: vec![NONE],
        }
    }

    pub(crate) fn depth(&self) -> usize {
        self.open.len() - 1
    }

    pub(crate) fn begin(&mut self) -> Result<(), Error> {
        if self.depth() == MAX_SCOPES {
            return Err(Error::TooDeep { max: MAX_SCOPES });
        }
        self.open.push(NONE);
        Ok(())
    }

    pub(crate) fn end(&mut self) -> Result<(), Error> {
        if self.depth() == 0 {
            return Err(Error::NoScope);
        }
        let last = self.open.pop().unwrap_or(NONE);
        self.close(last);
        Ok(())
    }

    /// Ends every scope, and the run's own.
    pub(crate) fn end_all(&mut self) {
        while let Some(last) = self.open.pop() {
            self.close(last);
        }
        self.open.push(NONE);
    }

    fn close(&mut self, last: u32) {
        let mut index = last;
        while index != NONE {
            let one = &mut self.intermediates[index as usize];
            one.open = false;
            self.held_bytes[one.arena as usize] -= Arena::bytes_taken(one.bytes);
            let next = one.next_in_scope;
            if one.users == 0 {
                self.release(index);
            }
            index = next;
        }
    }

    /// A block outside any scope; `idle` says that no task is left that could release memory.
    pub(crate) fn allocate_block(
        &mut self,
        arena: Arena,
        bytes: u64,
        idle: bool,
    ) -> Result<Outcome<u64>, Error> {
        let Some(ring) = self.arenas.get_mut(arena.0 as usize) else {
            return Err(Error::NoSuchArena { arena });
        };
        let needed = Arena::bytes_taken(bytes);
        if let Some(offset) = ring.allocate(needed) {
            return Ok(Outcome::Accepted(offset));
        }
        let held = self.held_bytes[arena.0 as usize];
        let fill = Fill {
            ring: Ring::Memory(arena),
            used: ring.used(),
            in_open_scopes: held,
            capacity: ring.capacity(),
            needed,
        };
        if idle || needed.saturating_add(held) > ring.capacity() {
            return Err(Error::RingStuck { fill });
        }
        Ok(Outcome::Full { fill, payload: () })
    }

    pub(crate) fn release_block(&mut self, arena: Arena, offset: u64, bytes: u64) {
        self.arenas[arena.0 as usize].release(offset, Arena::bytes_taken(bytes));
    }

    /// An intermediate of the innermost scope.
    pub(crate) fn allocate(
        &mut self,
        arena: Arena,
        bytes: u64,
        idle: bool,
    ) -> Result<Outcome<BufferId>, Error> {
        let offset = match self.allocate_block(arena, bytes, idle)? {
            Outcome::Accepted(offset) => offset,
            Outcome::Full { fill, payload } => return Ok(Outcome::Full { fill, payload }),
        };
        self.held_bytes[arena.0 as usize] += Arena::bytes_taken(bytes);
        let scope = self.open.last_mut().expect("the run's own scope is open");
        let mut one = Intermediate {
            generation: 0,
            arena: arena.0,
            offset,
            bytes,
            users: 0,
            open: true,
            alive: true,
            next_in_scope: *scope,
        };
        let index = if let Some(index) = self.free.pop() {
            one.generation = self.intermediates[index as usize].generation.wrapping_add(1);
            self.intermediates[index as usize] = one;
            index
        } else {
            self.intermediates.push(one);
            u32::try_from(self.intermediates.len() - 1).expect("fewer than 2^32 intermediates")
        };
        *scope = index;
        Ok(Outcome::Accepted(BufferId::intermediate(one.generation, index)))
    }

    /// The intermediate that a buffer names, if it is alive (SCOPE-2).
    fn find(&self, buffer: BufferId) -> Option<u32> {
        let Sort::Intermediate(index) = buffer.sort() else {
            return None;
        };
        let one = self.intermediates.get(index as usize)?;
        (one.alive && BufferId::intermediate(one.generation, index) == buffer).then_some(index)
    }

    /// Where a live intermediate is.
    pub(crate) fn placement(&self, buffer: BufferId) -> Option<Placement> {
        let one = &self.intermediates[self.find(buffer)? as usize];
        Some(Placement {
            arena: Arena(one.arena),
            offset: one.offset,
            bytes: one.bytes,
        })
    }

    /// One more task uses it.
    pub(crate) fn retain(&mut self, buffer: BufferId) {
        if let Sort::Intermediate(index) = buffer.sort() {
            self.intermediates[index as usize].users += 1;
        }
    }

    /// One task fewer uses it.
    pub(crate) fn drop_user(&mut self, buffer: BufferId) {
        if let Sort::Intermediate(index) = buffer.sort() {
            let one = &mut self.intermediates[index as usize];
            one.users -= 1;
            if one.users == 0 && !one.open {
                self.release(index);
            }
        }
    }

    fn release(&mut self, index: u32) {
        let one = &mut self.intermediates[index as usize];
        one.alive = false;
        let (arena, offset, bytes) = (Arena(one.arena), one.offset, one.bytes);
        self.free.push(index);
        self.release_block(arena, offset, bytes);
    }

    /// Whether nothing is allocated.
    pub(crate) fn is_empty(&self) -> bool {
        self.arenas.iter().all(|arena| arena.used() == 0)
    }
}
