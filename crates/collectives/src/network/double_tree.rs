//! Double binary tree: two trees, each with half of the data, in pieces that follow each other.
//!
//! In a single tree half of the members are leaves, which send once and receive once while others work. Here two
//! trees over the same members carry half of the data each, and no member is an inner node of both. So all members
//! send and receive about as much as in a ring, with the depth of a tree. (Sanders, Speck, Träff: Two-tree algorithms
//! for full bandwidth broadcast, reduction and scan, 2009.)
//!
//! A piece goes up one level in each exchange and then down one level in each, while others follow it.

use super::moves::Moves;
use ringwork_isa::{Port, Queues, Rank, Result};

/// Ports of a tree: up, and to two children.
pub(super) const TREE_PORTS: u32 = 3;

/// My place in one of the trees.
#[derive(Clone, Debug)]
pub(super) struct Branch {
    /// Levels between me and the root, and those of the whole tree.
    depth: usize,
    height: usize,
    above: Option<Port>,
    below: [Option<Port>; 2],
}

impl Branch {
    /// Tree 1 counts members from the other end, or from one further if their number is odd, so that an inner member
    /// of one tree is a leaf of the other.
    pub(super) fn new(queues: Queues, tree: u32) -> Result<Branch> {
        let (me, ranks) = (queues.rank().0, queues.ranks());
        let even = ranks.is_multiple_of(2);
        let place = match (tree, even) {
            (0, _) => me,
            (_, true) => ranks - 1 - me,
            (_, false) => (me + ranks - 1) % ranks,
        };
        let member = |place: u32| match (tree, even) {
            (0, _) => Rank(place),
            (_, true) => Rank(ranks - 1 - place),
            (_, false) => Rank((place + 1) % ranks),
        };
        let first = tree * TREE_PORTS;
        let (above, children) = family(place, ranks);
        let which = |parent: u32| family(parent, ranks).1.iter().position(|c| *c == Some(place));
        let above = match above {
            Some(parent) => {
                let child = u32::try_from(which(parent).unwrap_or(0)).unwrap_or(0);
                Some(queues.port(first, member(parent), first + 1 + child)?)
            }
            None => None,
        };
        let mut below = [None; 2];
        for (slot, (index, child)) in below.iter_mut().zip((0u32..).zip(children)) {
            if let Some(child) = child {
                *slot = Some(queues.port(first + 1 + index, member(child), first)?);
            }
        }
        Ok(Branch {
            depth: depth(place, ranks),
            height: height(ranks),
            above,
            below,
        })
    }

    pub(super) fn moves(&self, exchange: usize, moves: &mut Moves) -> Result<()> {
        let below = self.below.into_iter().flatten();
        if exchange < self.height {
            // From the level `depth` to the one above it.
            let depth = self.height - exchange;
            if self.depth == depth
                && let Some(above) = self.above
            {
                moves.send(Ok(above), 0..1)?;
            }
            if self.depth + 1 == depth {
                moves.adds = Some(0);
                for port in below {
                    moves.receive(Ok(port), 0..1)?;
                }
            }
            return Ok(());
        }
        let depth = exchange - self.height;
        if self.depth == depth {
            for port in below {
                moves.send(Ok(port), 0..1)?;
            }
        } else if self.depth == depth + 1
            && let Some(above) = self.above
        {
            moves.receive(Ok(above), 0..1)?;
        }
        Ok(())
    }
}

/// Levels between a place and the root.
fn depth(place: u32, count: u32) -> usize {
    let mut at = place;
    let mut depth = 0;
    while let (Some(parent), _) = family(at, count) {
        (at, depth) = (parent, depth + 1);
    }
    depth
}

/// Levels of a tree below its root.
pub(super) fn height(count: u32) -> usize {
    // Place 1 is a leaf at the deepest level.
    if count > 1 { depth(1, count) } else { 0 }
}

/// The parent and the children of a place in a binary tree over `0..count`: odd places are leaves, 0 is the root.
///
/// A place `p` with lowest set bit `b` is in the middle of a subtree of `2b - 1` places. A place past the end is
/// replaced by its nearest descendant that exists.
fn family(place: u32, count: u32) -> (Option<u32>, [Option<u32>; 2]) {
    if place == 0 {
        let top = count.next_power_of_two() / 2;
        return (None, [(count > 1).then_some(top), None]);
    }
    let bit = place & place.wrapping_neg();
    let mut parent = (place ^ bit) | bit << 1;
    if parent >= count {
        parent = place ^ bit;
    }
    let lower = (bit > 1).then(|| place - bit / 2);
    let mut step = bit / 2;
    let upper = loop {
        match step {
            0 => break None,
            step if place + step < count => break Some(place + step),
            _ => step /= 2,
        }
    };
    (Some(parent), [lower, upper])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_are_trees_and_agree_with_each_other() {
        for count in 1..200u32 {
            for place in 0..count {
                let (above, below) = family(place, count);
                for child in below.into_iter().flatten() {
                    assert!(child < count);
                    assert_eq!(family(child, count).0, Some(place), "{child} of {count}");
                }
                let mut at = place;
                let mut depth = 0;
                while let Some(parent) = family(at, count).0 {
                    let children = family(parent, count).1;
                    assert!(children.contains(&Some(at)), "{at} under {parent} of {count}");
                    at = parent;
                    depth += 1;
                    assert!(
                        depth <= 1 + count.next_power_of_two().ilog2(),
                        "{place} of {count} is too deep"
                    );
                }
                assert_eq!(at, 0, "{place} of {count}");
                assert_eq!(above.is_none(), place == 0);
            }
        }
    }
}
