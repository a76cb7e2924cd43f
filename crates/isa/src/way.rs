//! The ways to do a collective, where there is a choice: what ranks must choose alike.

use crate::Operation;
use std::fmt;

/// A way to do a collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Way {
    /// By packets, for small data.
    Packet,
    /// All-reduce in one phase.
    OnePhase,
    /// All-reduce in two phases.
    TwoPhase,
    /// All-reduce around a ring. Not exact: only when asked for.
    Ring,
    /// All-reduce around a ring both ways. Not exact: only when asked for.
    BidirectionalRing,
    /// Through the scratch, for operations with one such way.
    Staged,
    /// In the window, everybody pulls. Only for data that is there.
    WindowPull,
    /// In the window, everybody pushes. Only for data that is there.
    WindowPush,
    /// [`WindowPull`](Way::WindowPull) from an input that is not part of the output. Not to be chosen: it tells the one
    /// from the other.
    WindowInput,
}

impl Way {
    /// Every way.
    pub const ALL: [Way; 9] = [
        Way::Packet,
        Way::OnePhase,
        Way::TwoPhase,
        Way::Ring,
        Way::BidirectionalRing,
        Way::Staged,
        Way::WindowPull,
        Way::WindowPush,
        Way::WindowInput,
    ];

    /// The ways to do an operation; none if there is no choice.
    pub fn of(operation: Operation) -> impl Iterator<Item = Way> {
        Way::ALL.into_iter().filter(move |way| way.does(operation))
    }

    /// The name a user types.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Way::Packet => "packet",
            Way::OnePhase => "onephase",
            Way::TwoPhase => "twophase",
            Way::Ring => "ring",
            Way::BidirectionalRing => "bidirectional-ring",
            Way::Staged => "staged",
            Way::WindowPull => "window-pull",
            Way::WindowPush => "window-push",
            Way::WindowInput => "window-input",
        }
    }

    /// The way of this name, or of the name that others have for the same.
    #[must_use]
    pub fn named(name: &str) -> Option<Way> {
        let name = match name {
            "one-shot" => "onephase",
            "two-shot" => "twophase",
            "window" => "window-pull",
            name => name,
        };
        Way::ALL.into_iter().find(|way| way.name() == name)
    }

    /// Whether the result is the same bits as that of every other exact way.
    #[must_use]
    pub const fn is_exact(self) -> bool {
        !matches!(self, Way::Ring | Way::BidirectionalRing)
    }

    /// Whether the data must be in the window.
    #[must_use]
    pub const fn needs_window(self) -> bool {
        matches!(self, Way::WindowPull | Way::WindowPush | Way::WindowInput)
    }

    /// Whether there is such a way to do an operation.
    #[must_use]
    pub const fn does(self, operation: Operation) -> bool {
        match operation {
            Operation::AllReduce => !matches!(self, Way::Staged | Way::WindowInput),
            Operation::AllGather | Operation::ReduceScatter | Operation::Broadcast | Operation::AllToAll => {
                matches!(self, Way::Packet | Way::Staged | Way::WindowPull)
            }
            _ => false,
        }
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
