//! Captured graphs: the same submissions, recorded once, to be replayed many times.
//!
//! A [`Capture`] takes what an [`Engine`](crate::Engine) takes and infers the same edges, but runs nothing.
//! Buffers that change from replay to replay are [parameters](BufferId::parameter). The [`Graph`] that comes
//! out is immutable; [`Engine::replay`](crate::Engine::replay) runs it with real buffers bound to them.
//!
//! # Invariants
//! - **GRAPH-1 (same order).** A replay runs its tasks in an order that the same submissions would allow.
//! - **GRAPH-2 (one task outside).** To everything outside, a replay is one task that touches all that its
//!   tasks touch, view by view: its tasks start when nothing conflicting is left, and what conflicts with
//!   any of them waits for all of them.
//! - **GRAPH-3 (own memory).** Each intermediate of a graph has a place of its own for the whole replay.

use crate::access_index::{AccessIndex, Conflict};
use crate::error::{Error, Outcome};
use crate::ids::{Arena, BufferId, NONE, Sort, TaskId};
use crate::scope::MAX_SCOPES;
use crate::spec::{Access, AccessKind, Condition, Place, Placement, Spec, reads_first};
use crate::view::View;

/// A task of a graph.
#[derive(Clone, Debug)]
pub(crate) struct Node<P> {
    pub(crate) place: Place,
    pub(crate) priority: i8,
    /// Edges to it.
    pub(crate) pending: u32,
    /// Where its successors begin; they end where the next node's begin.
    pub(crate) first_successor: u32,
    pub(crate) when: Vec<Condition>,
    pub(crate) until: Vec<Condition>,
    pub(crate) payload: P,
}

/// An intermediate of a graph: where it lies in the graph's block of an arena.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Carved {
    /// Index among the blocks.
    pub(crate) block: u32,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
}

/// Tasks and their order, ready to be replayed.
#[derive(Clone, Debug)]
pub struct Graph<P> {
    pub(crate) nodes: Vec<Node<P>>,
    /// (node, whether it needs the data), for each node in turn.
    pub(crate) successors: Vec<(u32, bool)>,
    /// Nodes without an edge to them.
    pub(crate) roots: Vec<u32>,
    /// What the graph touches, seen from outside.
    pub(crate) outside: Vec<Access>,
    /// Bytes that each parameter is used up to.
    pub(crate) parameter_bytes: Vec<u64>,
    pub(crate) blocks: Vec<(Arena, u64)>,
    pub(crate) carved: Vec<Carved>,
}

impl<P> Graph<P> {
    /// How many tasks it has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether it has no task.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// How many edges it has.
    #[must_use]
    pub fn edges(&self) -> usize {
        self.successors.len()
    }

    /// The bytes that each parameter is used up to.
    #[must_use]
    pub fn parameter_bytes(&self) -> &[u64] {
        &self.parameter_bytes
    }

    /// What it touches, seen from outside: few views, however many tasks.
    #[must_use]
    pub fn outside(&self) -> &[Access] {
        &self.outside
    }

    /// What was submitted, in the order of submission.
    pub fn payloads(&self) -> impl Iterator<Item = &P> {
        self.nodes.iter().map(|node| &node.payload)
    }

    /// Where an intermediate of the graph is in a replay that has these [blocks](crate::Engine::blocks).
    #[must_use]
    pub fn place_of(&self, intermediate: u32, blocks: &[Placement]) -> Option<Placement> {
        let carved = self.carved.get(intermediate as usize)?;
        let block = blocks.get(carved.block as usize)?;
        Some(Placement {
            arena: block.arena,
            offset: block.offset + carved.offset,
            bytes: carved.bytes,
        })
    }

    pub(crate) fn successors_of(&self, node: u32) -> &[(u32, bool)] {
        let from = self.nodes[node as usize].first_successor as usize;
        let next = self.nodes.get(node as usize + 1);
        let until = next.map_or(self.successors.len(), |next| next.first_successor as usize);
        &self.successors[from..until]
    }
}

/// Records submissions into a [`Graph`].
#[derive(Debug)]
pub struct Capture<P> {
    access_index: AccessIndex,
    nodes: Vec<Node<P>>,
    /// (from, to, data), in the order found.
    edges: Vec<(u32, u32, bool)>,
    reads: Vec<(BufferId, View)>,
    writes: Vec<(BufferId, View)>,
    parameter_bytes: Vec<u64>,
    blocks: Vec<(Arena, u64)>,
    carved: Vec<Carved>,
    depth: usize,
    found: Vec<Conflict>,
}

impl<P> Capture<P> {
    /// An empty capture.
    #[must_use]
    pub fn new() -> Capture<P> {
        Capture {
            access_index: AccessIndex::new(),
            nodes: Vec::new(),
            edges: Vec::new(),
            reads: Vec::new(),
            writes: Vec::new(),
            parameter_bytes: Vec::new(),
            blocks: Vec::new(),
            carved: Vec::new(),
            depth: 0,
            found: Vec::new(),
        }
    }

    /// Records a task. The handle is good for `after` in this capture only.
    ///
    /// # Errors
    /// What is wrong with its accesses or handles. Where it may run is checked when it is replayed.
    pub fn submit(&mut self, spec: &Spec, payload: P) -> Result<Outcome<TaskId, P>, Error> {
        for access in &spec.accesses {
            self.check(access)?;
        }
        for &task in &spec.after {
            self.find(task)?;
        }
        let node = u32::try_from(self.nodes.len()).unwrap_or(NONE);
        let mut head = NONE;
        for access in reads_first(&spec.accesses) {
            self.note_outside(&access);
            let does = (access.kind.reads(), access.kind.writes());
            let what = (access.buffer, access.view);
            self.access_index
                .touch(node, what, does, &mut head, &mut self.found);
        }
        let found = self.found.drain(..);
        self.edges
            .extend(found.map(|before| (before.owner, node, before.data)));
        self.edges
            .extend(spec.after.iter().map(|task| (task.slot, node, true)));
        self.nodes.push(Node {
            place: spec.place.clone(),
            priority: spec.priority,
            pending: 0,
            first_successor: 0,
            when: spec.when.clone(),
            until: spec.until.clone(),
            payload,
        });
        Ok(Outcome::Accepted(TaskId {
            sequence: u64::from(node) + 1,
            slot: node,
        }))
    }

    /// An intermediate of the graph (GRAPH-3). The arena is checked when it is replayed.
    ///
    /// # Errors
    /// [`Error::ViewTooLarge`] if no memory could ever hold what the graph needs.
    pub fn allocate(&mut self, arena: Arena, bytes: u64) -> Result<Outcome<BufferId>, Error> {
        let at = self.blocks.iter().position(|&(known, _)| known == arena);
        let at = at.unwrap_or_else(|| {
            self.blocks.push((arena, 0));
            self.blocks.len() - 1
        });
        let (_, total) = &mut self.blocks[at];
        let offset = *total;
        let Some(end) = offset.checked_add(Arena::bytes_taken(bytes)) else {
            return Err(Error::ViewTooLarge {
                start: offset,
                rows: 1,
                row_bytes: bytes,
                pitch: bytes,
            });
        };
        *total = end;
        let block = u32::try_from(at).unwrap_or(NONE);
        self.carved.push(Carved { block, offset, bytes });
        let index = u32::try_from(self.carved.len() - 1).unwrap_or(NONE);
        Ok(Outcome::Accepted(BufferId::captured(index)))
    }

    /// Opens a scope. Only the nesting is checked (GRAPH-3).
    ///
    /// # Errors
    /// [`Error::TooDeep`] past [`MAX_SCOPES`].
    pub fn begin_scope(&mut self) -> Result<(), Error> {
        if self.depth == MAX_SCOPES {
            return Err(Error::TooDeep { max: MAX_SCOPES });
        }
        self.depth += 1;
        Ok(())
    }

    /// Ends the innermost scope.
    ///
    /// # Errors
    /// [`Error::NoScope`] if none is open.
    pub fn end_scope(&mut self) -> Result<(), Error> {
        self.depth = self.depth.checked_sub(1).ok_or(Error::NoScope)?;
        Ok(())
    }

    /// The graph. Edges lead only from earlier to later tasks, so it has no circle.
    #[must_use]
    pub fn finish(mut self) -> Graph<P> {
        // By origin, then target; of equal pairs the one that needs data first, which is the one kept.
        self.edges
            .sort_unstable_by_key(|&(from, to, data)| (from, to, !data));
        self.edges.dedup_by_key(|&mut (from, to, _)| (from, to));
        let mut next = 0;
        for (index, node) in (0..).zip(&mut self.nodes) {
            node.first_successor = u32::try_from(next).unwrap_or(NONE);
            next += self.edges[next..]
                .iter()
                .take_while(|edge| edge.0 == index)
                .count();
        }
        for &(_, to, _) in &self.edges {
            self.nodes[to as usize].pending += 1;
        }
        let roots = (0..).zip(&self.nodes).filter(|(_, node)| node.pending == 0);
        let reads = self.reads.iter().map(|&what| (what, AccessKind::Input));
        let writes = self.writes.iter().map(|&what| (what, AccessKind::OutputExisting));
        Graph {
            roots: roots.map(|(index, _)| index).collect(),
            outside: reads
                .chain(writes)
                .map(|((buffer, view), kind)| Access { buffer, view, kind })
                .collect(),
            successors: self.edges.iter().map(|&(_, to, data)| (to, data)).collect(),
            nodes: self.nodes,
            parameter_bytes: self.parameter_bytes,
            blocks: self.blocks,
            carved: self.carved,
        }
    }

    fn find(&self, task: TaskId) -> Result<u32, Error> {
        let known = (task.slot as usize) < self.nodes.len() && task.sequence == u64::from(task.slot) + 1;
        known.then_some(task.slot).ok_or(Error::UnknownTask { task })
    }

    fn check(&self, &Access { buffer, view, kind }: &Access) -> Result<(), Error> {
        match buffer.sort() {
            Sort::Plain | Sort::Parameter(_) if kind == AccessKind::Output => {
                Err(Error::NotAllocated { buffer })
            }
            Sort::Plain | Sort::Parameter(_) => Ok(()),
            Sort::Intermediate(_) => {
                let capturing = true;
                Err(Error::WrongSort { buffer, capturing })
            }
            Sort::Captured(index) => match self.carved.get(index as usize) {
                None => Err(Error::NoSuchBuffer { buffer }),
                Some(&Carved { bytes, .. }) if view.end() > bytes => {
                    Err(Error::OutOfBounds { buffer, view, bytes })
                }
                Some(_) => Ok(()),
            },
        }
    }

    /// Adds to what the graph touches seen from outside. What it wrote itself it does not read from outside.
    fn note_outside(&mut self, &Access { buffer, view, kind }: &Access) {
        match buffer.sort() {
            Sort::Captured(_) => return,
            Sort::Parameter(index) => {
                let index = index as usize;
                if self.parameter_bytes.len() <= index {
                    self.parameter_bytes.resize(index + 1, 0);
                }
                self.parameter_bytes[index] = self.parameter_bytes[index].max(view.end());
            }
            _ => {}
        }
        let own = |&(written, over): &(BufferId, View)| written == buffer && over.covers(&view);
        if kind.reads() && !self.writes.iter().any(own) {
            join_into(&mut self.reads, buffer, view);
        }
        if kind.writes() {
            join_into(&mut self.writes, buffer, view);
        }
    }
}

impl<P> Default for Capture<P> {
    fn default() -> Capture<P> {
        Capture::new()
    }
}

/// Adds a view to a list, joined with those it makes one view with.
fn join_into(list: &mut Vec<(BufferId, View)>, buffer: BufferId, mut view: View) {
    if view.is_empty() {
        return;
    }
    let mut at = 0;
    while at < list.len() {
        let joined = (list[at].0 == buffer).then(|| list[at].1.join(&view)).flatten();
        if let Some(joined) = joined {
            // Larger now, so it may join with one that was passed over.
            list.swap_remove(at);
            view = joined;
            at = 0;
        } else {
            at += 1;
        }
    }
    list.push((buffer, view));
}
