//! Finding the way: by arithmetic where the machine has dimensions, by Dijkstra where it has not.

use super::dim;
use super::fabric::{Fabric, Router};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

/// The links that leave (or, backwards, reach) each vertex: working ones only.
#[derive(Clone, Debug)]
pub(crate) struct Adjacency {
    first: Vec<u32>,
    links: Vec<u32>,
}

impl Adjacency {
    pub(crate) fn new(fabric: &Fabric, backwards: bool) -> Adjacency {
        let side = |(from, to): (u32, u32)| if backwards { to } else { from } as usize;
        let mut first = vec![0u32; fabric.vertices() as usize + 1];
        let working = || fabric.links().filter(|link| fabric.works(*link));
        for ends in working().filter_map(|link| fabric.ends(link)) {
            first[side(ends) + 1] += 1;
        }
        for vertex in 1..first.len() {
            first[vertex] += first[vertex - 1];
        }
        let mut next = first.clone();
        let mut links = vec![0u32; first.last().copied().unwrap_or(0) as usize];
        for link in working() {
            if let Some(ends) = fabric.ends(link) {
                let slot = &mut next[side(ends)];
                links[*slot as usize] = link;
                *slot += 1;
            }
        }
        Adjacency { first, links }
    }

    pub(crate) fn out(&self, vertex: u32) -> &[u32] {
        let range = self.first[vertex as usize] as usize..self.first[vertex as usize + 1] as usize;
        &self.links[range]
    }
}

/// Shortest-path trees kept at once: a machine of 65,536 places then needs at most 64 MiB for them.
const MAX_TREES: usize = 256;

/// Finds routes, and remembers those that had to be searched for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Routes {
    adjacency: Option<Adjacency>,
    /// By source: the link by which each vertex is reached.
    trees: BTreeMap<u32, Vec<u32>>,
    /// Sources in the order their trees were made; the oldest goes first.
    order: VecDeque<u32>,
}

impl Routes {
    /// Appends the links from place `src` to place `dst`. `false` if there is no way.
    pub(crate) fn find(&mut self, fabric: &Fabric, src: u32, dst: u32, out: &mut Vec<u32>) -> bool {
        if src == dst {
            return true;
        }
        let start = out.len();
        match &fabric.router {
            Router::Dimensions(dims) => {
                dim::route(dims, src, dst, out);
                if out[start..].iter().all(|link| fabric.works(*link)) {
                    return true;
                }
                out.truncate(start); // a link on the usual way failed: go round it
            }
            Router::Shortest(table) => {
                if let Some(route) = table.get(&(src, dst)) {
                    out.extend_from_slice(route);
                    return true;
                }
            }
        }
        self.search(fabric, src, dst, out)
    }

    fn search(&mut self, fabric: &Fabric, src: u32, dst: u32, out: &mut Vec<u32>) -> bool {
        if !self.trees.contains_key(&src) {
            let adjacency = self
                .adjacency
                .get_or_insert_with(|| Adjacency::new(fabric, false));
            let tree = shortest_tree(fabric, adjacency, src);
            if self.order.len() >= MAX_TREES
                && let Some(oldest) = self.order.pop_front()
            {
                self.trees.remove(&oldest);
            }
            self.trees.insert(src, tree);
            self.order.push_back(src);
        }
        let tree = &self.trees[&src];
        let (start, mut at) = (out.len(), dst);
        while at != src {
            let link = tree[at as usize];
            let Some((from, _)) = fabric.ends(link) else {
                out.truncate(start);
                return false;
            };
            out.push(link);
            at = from;
        }
        out[start..].reverse();
        true
    }
}

/// For each vertex the last link of its shortest way from `src`; `u32::MAX` where there is none.
fn shortest_tree(fabric: &Fabric, adjacency: &Adjacency, src: u32) -> Vec<u32> {
    dijkstra(fabric, adjacency, src).0
}

/// The least latency from `src` to each vertex; `u64::MAX` where there is no way.
pub(crate) fn latencies_from(fabric: &Fabric, src: u32) -> Vec<u64> {
    let adjacency = Adjacency::new(fabric, false);
    dijkstra(fabric, &adjacency, src)
        .1
        .into_iter()
        .map(|(latency, _)| latency)
        .collect()
}

/// Last links, and (latency, links) from `src`.
fn dijkstra(fabric: &Fabric, adjacency: &Adjacency, src: u32) -> (Vec<u32>, Vec<(u64, u32)>) {
    let mut reached_by = vec![u32::MAX; fabric.vertices() as usize];
    let mut best = vec![(u64::MAX, u32::MAX); fabric.vertices() as usize];
    best[src as usize] = (0, 0);
    let mut heap = BinaryHeap::from([Reverse((0u64, 0u32, src))]);
    while let Some(Reverse((latency, hops, vertex))) = heap.pop() {
        if best[vertex as usize] != (latency, hops) {
            continue;
        }
        for link in adjacency.out(vertex) {
            let (Some((_, to)), Some(class)) = (fabric.ends(*link), fabric.class(*link)) else {
                continue;
            };
            let next = (latency.saturating_add(class.latency_ps), hops + 1);
            if next < best[to as usize] {
                best[to as usize] = next;
                reached_by[to as usize] = *link;
                heap.push(Reverse((next.0, next.1, to)));
            }
        }
    }
    (reached_by, best)
}
