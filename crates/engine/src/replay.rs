//! Replays: a captured graph run with real buffers, without inferring anything again.
//!
//! A replay takes one slot for itself and one for each task of its graph. Its own stands for all of it in
//! the access index (GRAPH-2): it waits like any task, lets the graph's roots go when it would start, and is
//! done when they all are. Edges inside are read from the graph, which all replays share.

use crate::engine::Engine;
use crate::error::{Error, Outcome};
use crate::graph::Graph;
use crate::ids::{Arena, BufferId, NONE, Sort, TaskId};
use crate::slots::{Placed, State};
use crate::spec::{Access, Place, Placement};
use std::sync::Arc;

/// What a parameter of a graph is in one replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Binding {
    /// The buffer.
    pub buffer: BufferId,
    /// Where the parameter's byte 0 lies in it.
    pub offset: u64,
}

impl From<BufferId> for Binding {
    fn from(buffer: BufferId) -> Binding {
        Binding { buffer, offset: 0 }
    }
}

/// How to replay a graph.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bindings {
    /// One for each parameter.
    pub parameters: Vec<Binding>,
    /// Tasks that must be done before any of the graph's starts.
    pub after: Vec<TaskId>,
}

/// A replay in flight.
#[derive(Debug)]
pub(crate) struct ReplayState<P> {
    graph: Option<Arc<Graph<P>>>,
    /// Its own slot.
    pub(crate) task: u32,
    /// The slot of each node; of those that are done, nothing is said.
    pub(crate) slots: Vec<u32>,
    /// Nodes that are not done.
    left: u32,
    blocks: Vec<Placement>,
}

impl<P> ReplayState<P> {
    fn graph(&self) -> &Graph<P> {
        self.graph.as_deref().expect("a replay in flight has a graph")
    }

    pub(crate) fn payload(&self, node: u32) -> Option<&P> {
        self.graph().nodes.get(node as usize).map(|node| &node.payload)
    }

    /// Slots of those that come after a node.
    pub(crate) fn successors(&self, node: u32) -> impl Iterator<Item = u32> + '_ {
        let after = self.graph().successors_of(node).iter();
        after.map(|&(to, _)| self.slots[to as usize])
    }

    /// Slots of those that need a node's data.
    pub(crate) fn data_successors(&self, node: u32) -> impl Iterator<Item = u32> + '_ {
        let needs = self.graph().successors_of(node).iter().filter(|(_, data)| *data);
        needs.map(|&(to, _)| self.slots[to as usize])
    }
}

impl<P, E> Engine<P, E> {
    /// Takes in all tasks of a graph, with buffers bound to its parameters. The handle stands for all of it.
    ///
    /// # Errors
    /// What is wrong with the bindings, or where its tasks cannot run; [`Error::RingStuck`] if the graph has
    /// more tasks than there are slots, or intermediates than there is memory. Nothing has changed then.
    pub fn replay(&mut self, graph: &Arc<Graph<P>>, with: &Bindings) -> Result<Outcome<TaskId>, Error> {
        self.check_running()?;
        let outside = self.bind(graph, with)?;
        for &task in &with.after {
            self.slots.find(task)?;
        }
        let needed = graph.nodes.len() as u64 + 1;
        if u64::from(self.slots.used()) + needed > self.slots.capacity().into() {
            let fill = self.slots_full(needed)?;
            return Ok(Outcome::Full { fill, payload: () });
        }
        let index = self.new_replay(graph);
        match self.fill_replay(index, graph) {
            Ok(Outcome::Accepted(())) => {}
            stopped => {
                self.undo_replay(index);
                let Outcome::Full { fill, payload } = stopped? else {
                    unreachable!("accepted was handled")
                };
                return Ok(Outcome::Full { fill, payload });
            }
        }
        let own = self.replays[index as usize].task;
        self.touch_all(own, &outside);
        for &task in &with.after {
            if let Ok(Some(before)) = self.slots.find(task) {
                self.connect(before, own, true);
            }
        }
        let task = self.slots.id(own);
        if self.slots[own].pending == 0 {
            self.activate(own);
            self.retire_finished();
        }
        Ok(Outcome::Accepted(task))
    }

    /// The memory that a replay's intermediates are carved from.
    #[must_use]
    pub fn blocks(&self, replay: TaskId) -> &[Placement] {
        let slot = self.slots.find(replay).ok().flatten();
        let state = slot.and_then(|slot| self.replays.get(self.slots[slot].replay as usize));
        state.map_or(&[], |state| &state.blocks)
    }

    /// A live task's place in the graph that it is replayed from, if it is.
    #[must_use]
    #[inline]
    pub fn node_of(&self, task: TaskId) -> Option<u32> {
        let slot = self.slots.find(task).ok()??;
        Some(self.slots[slot].node).filter(|node| *node != NONE)
    }

    /// What the graph touches, with the bindings put in.
    fn bind(&self, graph: &Graph<P>, with: &Bindings) -> Result<Vec<Access>, Error> {
        let wanted = graph.parameter_bytes.len();
        if with.parameters.len() != wanted {
            let got = with.parameters.len();
            return Err(Error::WrongBindings { got, wanted });
        }
        let mut bound = Vec::with_capacity(graph.outside.len());
        for access in &graph.outside {
            let mut real = *access;
            if let Sort::Parameter(index) = access.buffer.sort() {
                let binding = with.parameters[index as usize];
                real.buffer = binding.buffer;
                real.view = access.view.shifted(binding.offset)?;
            }
            match real.buffer.sort() {
                Sort::Plain => {}
                Sort::Intermediate(_) => {
                    let Some(Placement { bytes, .. }) = self.placement(real.buffer) else {
                        return Err(Error::NoSuchBuffer { buffer: real.buffer });
                    };
                    let Access { buffer, view, .. } = real;
                    if view.end() > bytes {
                        return Err(Error::OutOfBounds { buffer, view, bytes });
                    }
                }
                _ => {
                    let capturing = false;
                    let buffer = real.buffer;
                    return Err(Error::WrongSort { buffer, capturing });
                }
            }
            for (earlier, name) in bound.iter().zip(&graph.outside) {
                let earlier: &Access = earlier;
                let conflict = earlier.kind.writes() || real.kind.writes();
                if conflict
                    && name.buffer != access.buffer
                    && earlier.buffer == real.buffer
                    && earlier.view.overlaps(&real.view)
                {
                    let (a, b) = (name.buffer, access.buffer);
                    return Err(Error::Aliased { a, b });
                }
            }
            bound.push(real);
        }
        Ok(bound)
    }

    /// A replay with its own slot, and nothing in it.
    fn new_replay(&mut self, graph: &Arc<Graph<P>>) -> u32 {
        let index = self.free_replays.pop().unwrap_or_else(|| {
            self.replays.push(ReplayState {
                graph: None,
                task: NONE,
                slots: Vec::new(),
                left: 0,
                blocks: Vec::new(),
            });
            u32::try_from(self.replays.len() - 1).expect("no more replays than slots")
        });
        let own = self
            .slots
            .allocate(Placed::Replay, 0, None)
            .expect("a slot is free");
        self.slots[own].replay = index;
        self.slots[own].node = NONE;
        let replay = &mut self.replays[index as usize];
        replay.graph = Some(Arc::clone(graph));
        replay.task = own;
        index
    }

    /// Memory and slots for a replay; stops where something is missing.
    fn fill_replay(&mut self, index: u32, graph: &Graph<P>) -> Result<Outcome<()>, Error> {
        let idle = self.slots.used() == 1;
        for &(arena, bytes) in &graph.blocks {
            match self.scopes.allocate_block(arena, bytes, idle)? {
                Outcome::Accepted(offset) => {
                    self.replays[index as usize]
                        .blocks
                        .push(Placement { arena, offset, bytes })
                }
                Outcome::Full { fill, payload } => return Ok(Outcome::Full { fill, payload }),
            }
        }
        let mut slots = std::mem::take(&mut self.replays[index as usize].slots);
        let filled = self.fill_nodes(index, graph, &mut slots);
        self.replays[index as usize].left = u32::try_from(slots.len()).unwrap_or(NONE);
        self.replays[index as usize].slots = slots;
        filled.map(Outcome::Accepted)
    }

    fn fill_nodes(&mut self, index: u32, graph: &Graph<P>, slots: &mut Vec<u32>) -> Result<(), Error> {
        for (number, node) in (0..).zip(&graph.nodes) {
            let placed = self.ready.check(&node.place)?;
            let slot = self
                .slots
                .allocate(placed, node.priority, None)
                .expect("a slot is free");
            let kept = &mut self.slots[slot];
            kept.replay = index;
            kept.node = number;
            // Roots wait for the replay to begin.
            kept.pending = node.pending.max(1);
            slots.push(slot);
            if let Place::Group(members) = &node.place {
                self.slots.extra_mut(slot).members.extend_from_slice(members);
            }
            if node.when.is_empty() && node.until.is_empty() {
                continue;
            }
            let extra = self.slots.extra_mut(slot);
            extra.when.extend_from_slice(&node.when);
            extra.until.extend_from_slice(&node.until);
            for condition in extra.when.clone() {
                self.slots[slot].pending += u32::from(self.watches.wait(slot, condition));
            }
        }
        Ok(())
    }

    /// Takes back a replay that could not be filled.
    fn undo_replay(&mut self, index: u32) {
        for slot in self.live_nodes(index) {
            if let Some(extra) = self.slots.extra(slot) {
                self.watches.cancel(slot, &extra.when);
            }
            self.slots.release(slot);
        }
        self.slots.release(self.replays[index as usize].task);
        self.end_replay(index);
    }

    /// Slots of the nodes that are not done.
    pub(crate) fn live_nodes(&self, index: u32) -> Vec<u32> {
        let slots = (0..).zip(&self.replays[index as usize].slots);
        let own = |&(node, &slot): &(u32, &u32)| {
            let kept = &self.slots[slot];
            kept.state != State::Free && kept.replay == index && kept.node == node
        };
        slots.filter(own).map(|(_, &slot)| slot).collect()
    }

    /// A replay waits for nothing any more: its roots go.
    pub(crate) fn begin_replay(&mut self, slot: u32) {
        if self.slots[slot].state != State::Cancelled {
            self.slots[slot].state = State::Running;
        }
        let index = self.slots[slot].replay as usize;
        if self.replays[index].left == 0 {
            self.finished.push(slot);
            return;
        }
        for at in 0..self.replays[index].graph().roots.len() {
            let root = self.replays[index].graph().roots[at];
            self.arrive(self.replays[index].slots[root as usize]);
        }
    }

    /// A task of a replay is over: those after it in the graph may go; the last one ends the replay.
    #[inline]
    pub(crate) fn node_done(&mut self, index: u32, node: u32) {
        let index = index as usize;
        for at in 0..self.replays[index].graph().successors_of(node).len() {
            let (to, _) = self.replays[index].graph().successors_of(node)[at];
            self.arrive(self.replays[index].slots[to as usize]);
        }
        let replay = &mut self.replays[index];
        replay.left -= 1;
        if replay.left == 0 {
            self.finished.push(replay.task);
        }
    }

    /// Gives back what a replay had; its slots are given back already.
    pub(crate) fn end_replay(&mut self, index: u32) {
        let replay = &mut self.replays[index as usize];
        for Placement { arena, offset, bytes } in replay.blocks.drain(..) {
            self.scopes.release_block(arena, offset, bytes);
        }
        replay.graph = None;
        replay.slots.clear();
        self.free_replays.push(index);
    }

    /// Slots that wait for this one by the edges of a graph.
    pub(crate) fn replay_waiters(&self, slot: u32) -> Vec<u32> {
        let kept = &self.slots[slot];
        let Some(replay) = self.replays.get(kept.replay as usize) else {
            return Vec::new();
        };
        let slot_of = |&node: &u32| replay.slots[node as usize];
        if kept.placed != Placed::Replay {
            let after = replay.graph().successors_of(kept.node).iter();
            return after.map(|(to, _)| slot_of(to)).chain([replay.task]).collect();
        }
        match kept.state {
            State::Waiting | State::Cancelled => replay.graph().roots.iter().map(slot_of).collect(),
            _ => Vec::new(),
        }
    }
}

/// Arenas that a graph needs memory in, and how much.
impl<P> Graph<P> {
    /// Bytes that a replay takes from each arena it uses.
    #[must_use]
    pub fn arena_bytes(&self) -> &[(Arena, u64)] {
        &self.blocks
    }
}
