//! Where the boxes and switches of a picture are.

use crate::net::Shape;
use crate::topology::Topology;
use std::collections::BTreeMap;

/// Boxes drawn at most; inner levels of larger machines are told in words.
const MAX_BOXES: u64 = 600;

/// From one box of a grid to the next, in boxes.
const GRID_STEP: f64 = 1.6;

/// From one box to the one behind it, to the right and up, in boxes: the one behind shows whole.
const BACK_STEP: f64 = 1.2;

pub(super) type Point = (f64, f64);

pub(super) struct Drawing {
    /// Where each drawn box is.
    pub(super) boxes: Vec<Point>,
    /// Places per box.
    pub(super) inside: u32,
    /// What is inside a box, in words.
    pub(super) hidden: String,
    /// Size of a box.
    pub(super) side: f64,
}

/// Where the members of a shape are, around the origin, a box being `side` wide.
fn arrange(shape: &Shape, side: f64) -> Vec<Point> {
    let count = usize::try_from(shape.size()).unwrap_or(0);
    match shape {
        Shape::Line(_) | Shape::FatTree { .. } => (0..count).map(|i| (i as f64 * side * 1.5, 0.0)).collect(),
        Shape::Mesh(dims) | Shape::Torus(dims) => (0..count).map(|i| grid(i, dims, side)).collect(),
        Shape::Ring(_) | Shape::Full(_) | Shape::Switch { .. } => circle(count, side),
    }
}

fn circle(count: usize, side: f64) -> Vec<Point> {
    if count <= 1 {
        return vec![(0.0, 0.0); count];
    }
    let radius = (side * 1.55 * count as f64 / std::f64::consts::TAU).max(side * 1.3);
    let angle = |i: usize| std::f64::consts::TAU * (i as f64 / count as f64 - 0.25);
    (0..count)
        .map(|i| (radius * angle(i).cos(), radius * angle(i).sin()))
        .collect()
}

/// Where a member of a grid is: the last dimension to the right, the one before it down, a third to the back, which is
/// up and to the right, and further ones as blocks beside each other. Rows and columns are so far apart that nothing of
/// the third dimension lies behind a box or a straight link.
fn grid(index: usize, dims: &[u32], side: f64) -> Point {
    let back = side * BACK_STEP;
    let depth = dims.iter().rev().nth(2).copied().unwrap_or(1);
    let step = side * GRID_STEP + back * f64::from(depth.saturating_sub(1));
    // Rows are a little further apart than columns: else what goes to the back here leads to what comes from there.
    let down = if depth > 1 { step + 0.9 * side } else { step };
    let (mut at, mut extent) = ((0.0, 0.0), [1.0, 1.0]);
    for (dimension, (place, size)) in coordinates(index, dims).into_iter().enumerate() {
        let place = f64::from(place);
        if dimension == 2 {
            at = (at.0 + place * back, at.1 - place * back);
        } else if dimension % 3 == 0 {
            at.0 += place * extent[0] * step;
            extent[0] = extent[0] * f64::from(size) + 0.7;
        } else {
            at.1 += place * extent[1] * down;
            extent[1] = extent[1] * f64::from(size) + 0.7;
        }
    }
    at
}

/// The place of a member in every dimension and the size of that, the dimension that varies fastest first.
pub(super) fn coordinates(index: usize, dims: &[u32]) -> Vec<(u32, u32)> {
    let mut rest = index;
    let place = |size: &u32| {
        let size_here = (*size).max(1) as usize;
        let place = rest % size_here;
        rest /= size_here;
        (u32::try_from(place).unwrap_or(0), *size)
    };
    dims.iter().rev().map(place).collect()
}

pub(super) fn layout(topology: &Topology) -> Drawing {
    let side = 34.0;
    if topology.levels.is_empty() {
        let count = topology.fabric.places() as usize;
        return Drawing {
            boxes: circle(count, side),
            inside: 1,
            hidden: String::new(),
            side,
        };
    }
    let (mut depth, mut boxes_count) = (0, 1u64);
    while depth < topology.levels.len()
        && (depth == 0 || boxes_count * topology.levels[depth].shape.size() <= MAX_BOXES)
    {
        boxes_count *= topology.levels[depth].shape.size();
        depth += 1;
    }
    let hidden: Vec<String> = topology.levels[depth..]
        .iter()
        .map(|level| format!("{}: {}", level.name, level.shape.describe()))
        .collect();
    // From the inside out: each level's members are as large as what is inside them.
    let (mut points, mut room) = (vec![(0.0, 0.0)], side);
    for level in topology.levels[..depth].iter().rev() {
        let centres = arrange(&level.shape, room);
        let mut all = Vec::with_capacity(centres.len() * points.len());
        for centre in &centres {
            all.extend(points.iter().map(|p| (centre.0 + p.0, centre.1 + p.1)));
        }
        let span = |of: fn(&Point) -> f64| {
            let (low, high) = all
                .iter()
                .map(of)
                .fold((f64::MAX, f64::MIN), |(a, b), v| (a.min(v), b.max(v)));
            high - low
        };
        room = span(|p| p.0).max(span(|p| p.1)) + side * 1.5;
        let middle = |of: fn(&Point) -> f64| all.iter().map(of).sum::<f64>() / all.len().max(1) as f64;
        let (cx, cy) = (middle(|p| p.0), middle(|p| p.1));
        points = all.iter().map(|p| (p.0 - cx, p.1 - cy)).collect();
    }
    let inside = topology.fabric.places() / u32::try_from(points.len()).unwrap_or(1).max(1);
    Drawing {
        boxes: points,
        inside,
        hidden: hidden.join(", "),
        side,
    }
}

/// Where each drawn vertex is: boxes, and switches in the middle of what they join (above, in a fat tree).
pub(super) fn positions(topology: &Topology, drawing: &Drawing) -> BTreeMap<u32, Point> {
    let fabric = &topology.fabric;
    let tree = topology
        .levels
        .iter()
        .any(|level| matches!(level.shape, Shape::FatTree { .. }));
    let mut at: BTreeMap<u32, Point> = BTreeMap::new();
    for place in 0..fabric.places() {
        at.insert(place, drawing.boxes[(place / drawing.inside) as usize]);
    }
    let mut joined: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for (from, to) in fabric.links().filter_map(|link| fabric.ends(link)) {
        if to >= fabric.places() && from < to {
            joined.entry(to).or_default().push(from);
        }
    }
    for (switch, members) in joined {
        let known: Vec<Point> = members
            .iter()
            .filter_map(|member| at.get(member))
            .copied()
            .collect();
        let boxes: std::collections::BTreeSet<u32> = members
            .iter()
            .map(|m| {
                if *m < fabric.places() {
                    m / drawing.inside
                } else {
                    u32::MAX
                }
            })
            .collect();
        if known.is_empty() || (drawing.inside > 1 && boxes.len() == 1 && !boxes.contains(&u32::MAX)) {
            continue; // inside a box
        }
        let n = known.len() as f64;
        let (x, y) = (
            known.iter().map(|p| p.0).sum::<f64>() / n,
            known.iter().map(|p| p.1).sum::<f64>() / n,
        );
        at.insert(switch, if tree { (x, y - 90.0) } else { (x, y) });
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_a_third_dimension_hides_a_box_or_lies_on_a_link() {
        let dims = [4, 3, 5];
        let side = 34.0;
        let at: Vec<Point> = (0..60).map(|i| grid(i, &dims, side)).collect();
        for (i, p) in at.iter().enumerate() {
            for (j, q) in at.iter().enumerate().filter(|(j, _)| *j != i) {
                let (dx, dy) = ((p.0 - q.0).abs(), (p.1 - q.1).abs());
                assert!(dx > side || dy > side, "{i} and {j} overlap");
                // A straight link of either is in its row or its column.
                let [here, there] = [i, j].map(|index| coordinates(index, &dims));
                assert!(dy > side / 2.0 || here[1..] == there[1..], "{i} and {j}: rows");
                let same = here[0] == there[0] && here[2] == there[2];
                assert!(dx > side / 2.0 || same, "{i} and {j}: columns");
            }
        }
    }
}
