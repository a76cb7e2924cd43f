//! Edges: for each task, the tasks that wait for it. Singly linked lists in one recycled arena.

use crate::ids::NONE;

/// Marks an edge along which data flows; slots are below 2^30.
const DATA: u32 = 1 << 31;

#[derive(Clone, Copy, Debug)]
struct Edge {
    /// The waiting slot, and whether it needs the data.
    to: u32,
    next: u32,
}

/// See the [module](self).
#[derive(Clone, Debug)]
pub(crate) struct Edges {
    edges: Vec<Edge>,
    free: u32,
}

impl Edges {
    pub(crate) fn new() -> Edges {
        Edges {
            edges: Vec::new(),
            free: NONE,
        }
    }

    /// Puts `to` at the head of a list, and returns the edge.
    pub(crate) fn push(&mut self, head: &mut u32, to: u32, data: bool) -> u32 {
        let edge = Edge {
            to: if data { to | DATA } else { to },
            next: *head,
        };
        let index = if self.free == NONE {
            self.edges.push(edge);
            u32::try_from(self.edges.len() - 1).expect("fewer than 2^32 live edges")
        } else {
            let index = self.free;
            self.free = self.edges[index as usize].next;
            self.edges[index as usize] = edge;
            index
        };
        *head = index;
        index
    }

    /// Data flows along this edge too.
    pub(crate) fn mark_data(&mut self, edge: u32) {
        self.edges[edge as usize].to |= DATA;
    }

    /// Takes the first edge off a list: the waiting task, and the rest.
    pub(crate) fn pop(&mut self, head: u32) -> Option<(u32, u32)> {
        if head == NONE {
            return None;
        }
        let Edge { to, next } = self.edges[head as usize];
        self.edges[head as usize].next = self.free;
        self.free = head;
        Some((to & !DATA, next))
    }

    /// The waiting tasks, and whether each needs the data.
    pub(crate) fn iter(&self, head: u32) -> impl Iterator<Item = (u32, bool)> {
        let mut at = head;
        std::iter::from_fn(move || {
            let edge = self.edges.get(at as usize)?;
            at = edge.next;
            Some((edge.to & !DATA, edge.to & DATA != 0))
        })
    }
}
