//! The ways to all-reduce, as a choice a user can name.

use ringwork_isa::Way;
use std::fmt;
use std::str::FromStr;

/// How an all-reduce is done.
///
/// ```
/// use ringwork_collectives::Algorithm;
/// assert_eq!("twophase".parse(), Ok(Algorithm::TwoPhase));
/// assert!(Algorithm::TwoPhase.is_exact() && !Algorithm::Ring.is_exact());
/// let error = "rign".parse::<Algorithm>().unwrap_err();
/// assert!(error.contains("did you mean `ring`?"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// Payload and flag in one cache line, for small data: [`all_reduce::packet`](crate::all_reduce::packet).
    Packet,
    /// Everybody stages and reduces everybody: [`all_reduce::one_phase`](crate::all_reduce::one_phase).
    OnePhase,
    /// Reduce-scatter, then all-gather: [`all_reduce::two_phase`](crate::all_reduce::two_phase).
    TwoPhase,
    /// Neighbour to neighbour, one way: [`all_reduce::ring`](crate::all_reduce::ring).
    Ring,
    /// Half the data each way round:
    /// [`all_reduce::bidirectional_ring`](crate::all_reduce::bidirectional_ring).
    BidirectionalRing,
}

impl Algorithm {
    /// Every algorithm, in the order they are listed to users.
    pub const ALL: [Algorithm; 5] = [
        Algorithm::Packet,
        Algorithm::OnePhase,
        Algorithm::TwoPhase,
        Algorithm::Ring,
        Algorithm::BidirectionalRing,
    ];

    /// The same among all ways to do a collective.
    #[must_use]
    pub const fn way(self) -> Way {
        match self {
            Algorithm::Packet => Way::Packet,
            Algorithm::OnePhase => Way::OnePhase,
            Algorithm::TwoPhase => Way::TwoPhase,
            Algorithm::Ring => Way::Ring,
            Algorithm::BidirectionalRing => Way::BidirectionalRing,
        }
    }

    /// The name a user types.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.way().name()
    }

    /// Whether every element is accumulated in rank order and rounded once, so that the result is the
    /// same bits as that of every other exact algorithm.
    #[must_use]
    pub const fn is_exact(self) -> bool {
        self.way().is_exact()
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Algorithm {
    type Err = String;
    fn from_str(name: &str) -> Result<Self, String> {
        let way = Way::named(name);
        if let Some(found) = Algorithm::ALL.into_iter().find(|one| Some(one.way()) == way) {
            return Ok(found);
        }
        let names = Algorithm::ALL.map(Algorithm::name);
        let nearest = names
            .into_iter()
            .map(|known| (distance(name, known), known))
            .min()
            .filter(|&(edits, known)| edits <= known.len() / 2)
            .map(|(_, known)| format!("did you mean `{known}`? "))
            .unwrap_or_default();
        Err(format!(
            "`{}` is not an algorithm; {nearest}use one of {}",
            name.escape_debug(),
            names.join(", ")
        ))
    }
}

/// Edits between two names; of a long input only the beginning counts, so that the work is bounded.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().take(64).enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, to) in b.iter().enumerate() {
            let edits = (diagonal + usize::from(from.to_ascii_lowercase() != *to))
                .min(row[j] + 1)
                .min(row[j + 1] + 1);
            diagonal = std::mem::replace(&mut row[j + 1], edits);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parse_back() {
        for algorithm in Algorithm::ALL {
            assert_eq!(algorithm.to_string().parse(), Ok(algorithm));
        }
    }

    #[test]
    fn a_wrong_name_suggests_the_nearest_and_lists_all() {
        let suggestion = |name: &str| name.parse::<Algorithm>().unwrap_err();
        assert_eq!(
            suggestion("two-phase"),
            "`two-phase` is not an algorithm; did you mean `twophase`? \
             use one of packet, onephase, twophase, ring, bidirectional-ring"
        );
        assert!(suggestion("OnePhase").contains("`onephase`?"));
        assert!(suggestion("bidirectionalring").contains("`bidirectional-ring`?"));
        assert!(!suggestion("hypercube-of-trees").contains("did you mean"));
        assert!(!suggestion("").contains("did you mean"));
        assert!(suggestion(&"r".repeat(100_000)).contains("use one of"));
    }

    #[test]
    fn the_distance_is_the_number_of_edits() {
        assert_eq!(distance("ring", "ring"), 0);
        assert_eq!(distance("rng", "ring"), 1);
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("", "ring"), 4);
    }
}
