//! The algorithms: the ways to do a collective, by name.
//!
//! This is the only list of their names. What each needs of a domain, which collectives it does and its kernel are in the
//! catalogue of the crate `collectives`; ranks must choose alike, so the name is part of a call's
//! [`Fingerprint`](crate::Fingerprint).

use crate::{Arg, Argument, Parameter, Tag, Value};
use std::fmt;
use std::str::FromStr;

/// How a collective is done. One name may stand for the same idea in several collectives.
///
/// ```
/// use ringwork_isa::Algorithm;
/// assert_eq!("twophase".parse(), Ok(Algorithm::TwoPhase));
/// assert!(Algorithm::TwoPhase.is_exact() && !Algorithm::Ring.is_exact());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Algorithm {
    /// By packets, for small data: payload and flag travel together.
    Packet,
    /// All-reduce in one phase: everybody stages and reduces everybody.
    OnePhase,
    /// All-reduce in two phases: reduce-scatter, then all-gather, through the scratch.
    TwoPhase,
    /// By messages: around a ring.
    Ring,
    /// By messages: around a ring, half of the data each way.
    BidirectionalRing,
    /// Around a ring, through the scratch.
    StagedRing,
    /// Through the scratch, for collectives with one such algorithm.
    Staged,
    /// In the window, everybody pulls. Only for data that is there.
    WindowPull,
    /// In the window, everybody pushes. Only for data that is there.
    WindowPush,
    /// [`WindowPull`](Algorithm::WindowPull) from an input that is not part of the output.
    WindowInput,
    /// By messages: straight between every two members that have something for each other.
    Direct,
    /// By messages: partners at distances 1, 2, 4, ...
    HalvingDoubling,
    /// By messages: up two trees and down again.
    DoubleTree,
    /// By messages: from each member to the next.
    Chain,
    /// By messages: a binomial tree.
    Tree,
    /// By messages: each part to a member of its own, and from there to all; or the other way round.
    ScatterGather,
    /// By messages: one partner after the other.
    Pairwise,
    /// By messages: inside a group, then between groups; a ring in each dimension.
    Hierarchical,
    /// By messages: the same with all ports busy.
    Torus,
    /// By messages: to the centre of a grid and back.
    Centre,
}

impl Algorithm {
    /// Every algorithm, in the order they are listed to users.
    pub const ALL: [Algorithm; 20] = [
        Algorithm::Packet,
        Algorithm::OnePhase,
        Algorithm::TwoPhase,
        Algorithm::Ring,
        Algorithm::BidirectionalRing,
        Algorithm::StagedRing,
        Algorithm::Staged,
        Algorithm::WindowPull,
        Algorithm::WindowPush,
        Algorithm::WindowInput,
        Algorithm::Direct,
        Algorithm::HalvingDoubling,
        Algorithm::DoubleTree,
        Algorithm::Chain,
        Algorithm::Tree,
        Algorithm::ScatterGather,
        Algorithm::Pairwise,
        Algorithm::Hierarchical,
        Algorithm::Torus,
        Algorithm::Centre,
    ];

    /// The name a user types.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Algorithm::Packet => "packet",
            Algorithm::OnePhase => "onephase",
            Algorithm::TwoPhase => "twophase",
            Algorithm::Ring => "ring",
            Algorithm::BidirectionalRing => "bidirectional-ring",
            Algorithm::StagedRing => "staged-ring",
            Algorithm::Staged => "staged",
            Algorithm::WindowPull => "window-pull",
            Algorithm::WindowPush => "window-push",
            Algorithm::WindowInput => "window-input",
            Algorithm::Direct => "direct",
            Algorithm::HalvingDoubling => "halving-doubling",
            Algorithm::DoubleTree => "double-tree",
            Algorithm::Chain => "chain",
            Algorithm::Tree => "tree",
            Algorithm::ScatterGather => "scatter-gather",
            Algorithm::Pairwise => "pairwise",
            Algorithm::Hierarchical => "hierarchical",
            Algorithm::Torus => "torus",
            Algorithm::Centre => "centre",
        }
    }

    /// Whether every element is accumulated in rank order and rounded once, so that the result has the same bits as that of
    /// every other exact algorithm.
    #[must_use]
    pub const fn is_exact(self) -> bool {
        !matches!(
            self,
            Algorithm::Ring
                | Algorithm::BidirectionalRing
                | Algorithm::StagedRing
                | Algorithm::HalvingDoubling
                | Algorithm::DoubleTree
                | Algorithm::Chain
                | Algorithm::Tree
                | Algorithm::Hierarchical
                | Algorithm::Torus
                | Algorithm::Centre
        )
    }

    /// Whether the data must be in the window.
    #[must_use]
    pub const fn needs_window(self) -> bool {
        matches!(
            self,
            Algorithm::WindowPull | Algorithm::WindowPush | Algorithm::WindowInput
        )
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Algorithm {
    type Err = String;

    /// By our name, or by one that others have for the same.
    fn from_str(name: &str) -> Result<Algorithm, String> {
        let known = match name {
            "one-shot" => "onephase",
            "two-shot" => "twophase",
            "window" => "window-pull",
            name => name,
        };
        let found = Algorithm::ALL.into_iter().find(|one| one.name() == known);
        found.ok_or_else(|| {
            let meant = crate::nearest(name, Algorithm::ALL.map(Algorithm::name));
            let meant = meant.map(|meant| format!("; did you mean `{meant}`?"));
            let name = name.escape_debug();
            format!("there is no algorithm `{name}`{}", meant.unwrap_or_default())
        })
    }
}

impl Parameter for Algorithm {
    const TAG: Tag = Tag::Value;
    fn type_name() -> String {
        "Algorithm".into()
    }
    fn from_arg(arg: &Arg) -> Result<Self, String> {
        let Arg::Value(Value::U64(index)) = arg else {
            return Err(Self::type_name());
        };
        let found = usize::try_from(*index)
            .ok()
            .and_then(|index| Algorithm::ALL.get(index));
        found.copied().ok_or_else(Self::type_name)
    }
}

impl Argument<Algorithm> for Algorithm {
    fn to_arg(&self) -> Arg {
        Arg::Value((*self as usize).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parse_back() {
        for algorithm in Algorithm::ALL {
            assert_eq!(algorithm.to_string().parse(), Ok(algorithm));
        }
        assert_eq!("two-shot".parse(), Ok(Algorithm::TwoPhase));
        assert!("rign".parse::<Algorithm>().unwrap_err().contains("`rign`"));
    }
}
