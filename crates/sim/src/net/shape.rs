//! Shapes: how one level of a machine is wired, before any link exists.

use super::protocol::LinkClass;
use crate::time::Rate;

/// How the members of one level are joined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Each to the next, and the last to the first. Two make one link, not two.
    Ring(u32),
    /// Each to the next.
    Line(u32),
    /// A grid, without wrap-around; the last dimension varies fastest.
    Mesh(Vec<u32>),
    /// A grid whose every row is a ring.
    Torus(Vec<u32>),
    /// Each to each, by private links.
    Full(u32),
    /// Each to one switch.
    Switch {
        /// Members.
        size: u32,
        /// What the switch passes in all; without limit if it is non-blocking.
        core: Rate,
    },
    /// Switches over switches. `down[i]` members under each switch of level `i`, and `up[i]` links from
    /// it to the level above.
    FatTree {
        /// Fan-out of each level, from the members up.
        down: Vec<u32>,
        /// Parallel links upward from each switch, one entry fewer.
        up: Vec<u32>,
    },
}

impl Shape {
    /// Members; saturates.
    #[must_use]
    pub fn size(&self) -> u64 {
        let product = |dims: &[u32]| dims.iter().fold(1u64, |all, d| all.saturating_mul(u64::from(*d)));
        match self {
            Shape::Ring(n) | Shape::Line(n) | Shape::Full(n) | Shape::Switch { size: n, .. } => u64::from(*n),
            Shape::Mesh(dims) | Shape::Torus(dims) => product(dims),
            Shape::FatTree { down, .. } => product(down),
        }
    }

    /// Links this shape makes among its members; saturates.
    #[must_use]
    pub fn links(&self) -> u64 {
        let n = self.size();
        match self {
            Shape::Full(_) => n.saturating_mul(n.saturating_sub(1)),
            Shape::Mesh(dims) | Shape::Torus(dims) => n.saturating_mul(2 * dims.len() as u64),
            Shape::FatTree { down, up } => {
                let mut all = n.saturating_mul(2);
                let mut covered = 1u64;
                for (fan, lanes) in down.iter().zip(up) {
                    covered = covered.saturating_mul(u64::from(*fan)).max(1);
                    all = all.saturating_add((n / covered).saturating_mul(2 * u64::from(*lanes)));
                }
                all
            }
            _ => n.saturating_mul(2),
        }
    }

    /// The shape in words: `torus 4x4x4`.
    #[must_use]
    pub fn describe(&self) -> String {
        let by = |dims: &[u32]| dims.iter().map(u32::to_string).collect::<Vec<_>>().join("x");
        match self {
            Shape::Ring(n) => format!("ring of {n}"),
            Shape::Line(n) => format!("line of {n}"),
            Shape::Mesh(dims) => format!("mesh {}", by(dims)),
            Shape::Torus(dims) => format!("torus {}", by(dims)),
            Shape::Full(n) => format!("full mesh of {n}"),
            Shape::Switch { size, core } if core.is_unlimited() => format!("non-blocking switch of {size}"),
            Shape::Switch { size, core } => format!("blocking switch of {size}, {core} in all"),
            Shape::FatTree { down, up } => {
                format!(
                    "fat tree, {} down, {} up",
                    by(down),
                    if up.is_empty() { "0".into() } else { by(up) }
                )
            }
        }
    }
}

/// Which members of the level inside have a port to this level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attach {
    /// Every one of them: rails.
    Each,
    /// This one only; the others pass through it.
    Gateway(u32),
}

/// One level of a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Level {
    /// What it is called: `pod`, `node`, `cube`.
    pub name: String,
    /// How its members are joined.
    pub shape: Shape,
    /// By what. The latency is from member to member: through a switch, half of it on each side.
    pub link: LinkClass,
    /// Whether a ring runs one way only.
    pub one_way: bool,
    /// The members with a port to it.
    pub attach: Attach,
}
