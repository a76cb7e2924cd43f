//! Double binary tree: two trees, each with half of the data, in pieces that follow each other.
//!
//! In a single tree half of the members are leaves, which send once and receive once while others work. Here two
//! trees over the same members carry half of the data each, and no member is an inner node of both. So all members
//! send and receive about as much as in a ring, with the depth of a tree. (Sanders, Speck, Träff: Two-tree algorithms
//! for full bandwidth broadcast, reduction and scan, 2009.)
//!
//! Pieces go up one after the other; a member receives the result of a piece from above while later ones are still on
//! their way up. How much this overlaps depends on the slots of a queue: with one slot it does not overlap.
//!
//! # Invariants
//! - **TREE-1 (turns).** In turn `t` a member sends piece `t` up the tree in which it is an inner node, and piece
//!   `t + ahead` up the one in which it is a leaf. Then it takes piece `t - behind` from above and passes it down.
//!   `ahead`, and the distance between a member and the one above it, are less than the slots of a queue: so a slot
//!   that is needed in turn `t` was freed in an earlier turn. (Leaves are ahead so that one tree does not wait for
//!   the other; each level is behind the one above so that a turn does not wait for the whole tree.)
//! - **TREE-2 (leaves first).** On the way up a member first does the steps that wait for no other member; on the way
//!   down, first the steps that others wait for. So within a turn waits go along one tree only, and end.
//!
//! Not exact: sums are rounded at every step.

use super::{check, combine, refuse_average};
use crate::chunk::chunks;
use ringwork_isa::{AnyTile, Core, In, Out, Port, Queues, Rank, ReduceOp, Result};

/// Ports of a tree: up, and to two children.
const TREE_PORTS: u32 = 3;

/// `y[i]` becomes `x[i]` reduced over all members, on every one of them, up two trees and down again.
///
/// Six ports, three for each tree: to the member above, and to the two below. Pieces are as large as a slot.
///
/// # Errors
/// If `x` and `y` are not equally long, there are too few ports, `op` is an average, or as [`Core::wait`].
pub async fn double_tree<C: Core>(core: &C, queues: Queues, x: In, y: Out, op: ReduceOp) -> Result<()> {
    check(&queues, x, y, 2 * TREE_PORTS, 1)?;
    refuse_average(op)?;
    let trees = [Branch::new(queues, 0)?, Branch::new(queues, 1)?];
    // The tree that I am a leaf of, then the other (TREE-2).
    let order = if trees[0].is_leaf() { [0, 1] } else { [1, 0] };
    let middle = x.len().div_ceil(2);
    let halves = [(0, middle), (middle, x.len())];
    let pieces = halves.map(|(start, end)| {
        let shifted = |piece: std::ops::Range<usize>| piece.start + start..piece.end + start;
        chunks(end - start, queues.slot_len())
            .map(shifted)
            .collect::<Vec<_>>()
    });
    let count = pieces[0].len();
    let ahead = queues.depth() as usize - 1;
    let longest = trees[0].behind.max(trees[1].behind);
    for turn in 0..count + longest {
        for which in order {
            let tree = &trees[which];
            let first = match turn {
                0 => 0,
                _ if tree.is_leaf() => turn + ahead,
                _ => turn,
            };
            let last = if tree.is_leaf() { turn + ahead } else { turn };
            for piece in pieces[which].iter().take(last + 1).skip(first) {
                let mine = core.load(x.slice(piece.clone())?).await?;
                if let Some(result) = tree.up(core, mine, op).await? {
                    tree.down(core, &result).await?;
                    core.store(y.slice(piece.clone())?, &result).await?;
                }
            }
        }
        for which in order.into_iter().rev() {
            let tree = &trees[which];
            let late = turn.checked_sub(tree.behind);
            if let (Some(piece), Some(above)) = (late.and_then(|late| pieces[which].get(late)), tree.above) {
                let result = core.recv(above, piece.len()).await?;
                tree.down(core, &result).await?;
                core.store(y.slice(piece.clone())?, &result).await?;
            }
        }
    }
    Ok(())
}

/// My place in one of the trees.
struct Branch {
    /// After how many turns of its own upward path a piece is received from above.
    behind: usize,
    above: Option<Port>,
    below: [Option<Port>; 2],
}

impl Branch {
    /// Tree 1 counts members from the other end, or from one further if their number is odd, so that an inner member
    /// of one tree is a leaf of the other.
    fn new(queues: Queues, tree: u32) -> Result<Branch> {
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
        let mut distance = 0;
        let mut at = place;
        while let (Some(parent), _) = family(at, ranks) {
            (at, distance) = (parent, distance + 1);
        }
        Ok(Branch {
            behind: distance * (queues.depth() as usize - 1),
            above,
            below,
        })
    }

    fn is_leaf(&self) -> bool {
        self.below.iter().all(Option::is_none)
    }

    /// Adds the pieces from below to mine and sends the sum up; at the top, the sum is the result.
    async fn up<C: Core>(&self, core: &C, mine: AnyTile, op: ReduceOp) -> Result<Option<AnyTile>> {
        let mut tile = mine;
        for port in self.below.into_iter().flatten() {
            let theirs = core.recv(port, tile.len()).await?;
            tile = combine(core, &tile, &theirs, op).await?;
        }
        match self.above {
            Some(above) => core.send(above, &tile).await.map(|()| None),
            None => Ok(Some(tile)),
        }
    }

    async fn down<C: Core>(&self, core: &C, result: &AnyTile) -> Result<()> {
        for port in self.below.into_iter().flatten() {
            core.send(port, result).await?;
        }
        Ok(())
    }
}

/// The parent and the children of a place in a binary tree over `0..count`: odd places are leaves, 0 is the root.
///
/// A place `p` with lowest set bit `b` is in the middle of a subtree of `2b - 1` places. Places past the end are
/// replaced by the nearest one below them that is there.
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
