//! The ways to all-reduce over a network, as a choice a user can name.

use super::{Lanes, by_dimensions, centre, direct, double_tree, halving_doubling};
use ringwork_isa::{Core, In, Out, Queues, ReduceOp, Result};
use std::fmt;
use std::str::FromStr;

/// How an all-reduce over queues between neighbours is done.
///
/// ```
/// use ringwork_collectives::network::NetworkAlgorithm;
/// assert_eq!("double-tree".parse(), Ok(NetworkAlgorithm::DoubleTree));
/// assert_eq!(NetworkAlgorithm::Torus.ports(&[4, 4]), 4);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NetworkAlgorithm {
    /// Each part to the member that adds it: [`direct`](super::direct()).
    Direct,
    /// Partners at distances 1, 2, 4, ...: [`halving_doubling`](super::halving_doubling()).
    HalvingDoubling,
    /// Up two trees and down again: [`double_tree`](super::double_tree()).
    DoubleTree,
    /// Inside a group, then between groups; a ring in each dimension:
    /// [`by_dimensions`](super::by_dimensions()), one lane.
    Hierarchical,
    /// The same with all ports busy: [`by_dimensions`](super::by_dimensions()), all lanes.
    Torus,
    /// To the centre of a grid and back: [`centre`](super::centre()).
    Centre,
}

impl NetworkAlgorithm {
    /// Every algorithm, in the order they are listed to users.
    pub const ALL: [NetworkAlgorithm; 6] = [
        NetworkAlgorithm::Direct,
        NetworkAlgorithm::HalvingDoubling,
        NetworkAlgorithm::DoubleTree,
        NetworkAlgorithm::Hierarchical,
        NetworkAlgorithm::Torus,
        NetworkAlgorithm::Centre,
    ];

    /// The name a user types.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            NetworkAlgorithm::Direct => "direct",
            NetworkAlgorithm::HalvingDoubling => "halving-doubling",
            NetworkAlgorithm::DoubleTree => "double-tree",
            NetworkAlgorithm::Hierarchical => "hierarchical",
            NetworkAlgorithm::Torus => "torus",
            NetworkAlgorithm::Centre => "centre",
        }
    }

    /// Whether every element is accumulated in rank order and rounded once.
    #[must_use]
    pub const fn is_exact(self) -> bool {
        matches!(self, NetworkAlgorithm::Direct)
    }

    /// Ports that each member of a grid of these sizes needs.
    #[must_use]
    pub fn ports(self, sizes: &[u32]) -> u32 {
        let ranks: u32 = sizes.iter().product();
        match self {
            NetworkAlgorithm::Direct => ranks.max(1),
            NetworkAlgorithm::HalvingDoubling => ranks.max(1).ilog2() + 1,
            NetworkAlgorithm::DoubleTree => 6,
            NetworkAlgorithm::Hierarchical | NetworkAlgorithm::Torus | NetworkAlgorithm::Centre => {
                u32::try_from(2 * sizes.len().max(1)).unwrap_or(u32::MAX)
            }
        }
    }
}

/// `y[i]` becomes `x[i]` reduced over all members of a grid, on every one of them, by the algorithm asked for.
///
/// `sizes` are those of the grid's dimensions, innermost first; algorithms that know no dimensions see only their
/// product.
///
/// # Errors
/// As the algorithm's own function.
pub async fn all_reduce<C: Core>(
    core: &C,
    queues: Queues,
    sizes: &[u32],
    x: In,
    y: Out,
    (op, algorithm): (ReduceOp, NetworkAlgorithm),
) -> Result<()> {
    match algorithm {
        NetworkAlgorithm::Direct => direct(core, queues, x, y, op).await,
        NetworkAlgorithm::HalvingDoubling => halving_doubling(core, queues, x, y, op).await,
        NetworkAlgorithm::DoubleTree => double_tree(core, queues, x, y, op).await,
        NetworkAlgorithm::Hierarchical => by_dimensions(core, queues, sizes, Lanes::One, x, y, op).await,
        NetworkAlgorithm::Torus => by_dimensions(core, queues, sizes, Lanes::All, x, y, op).await,
        NetworkAlgorithm::Centre => centre(core, queues, sizes, x, y, op).await,
    }
}

impl fmt::Display for NetworkAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for NetworkAlgorithm {
    type Err = String;
    fn from_str(name: &str) -> std::result::Result<Self, String> {
        let names = NetworkAlgorithm::ALL.map(NetworkAlgorithm::name);
        let found = NetworkAlgorithm::ALL.into_iter().find(|a| a.name() == name);
        found.ok_or_else(|| {
            let list = names.join(", ");
            format!("`{}` is not an algorithm; use one of {list}", name.escape_debug())
        })
    }
}
