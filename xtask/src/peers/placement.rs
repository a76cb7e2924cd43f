//! Where the cores of a virtual machine really were while a sample was taken.
//!
//! A hypervisor moves virtual cores between sharing a last-level cache ("near") and not ("far"), every
//! few seconds on the machines we know; on some they are two threads of one core for a while, with half a core
//! each. Everything that crosses cores changes 1.5 to 5 times with it, so a sample counts only if the hop between
//! the cores said the same before and after it, and only beside samples of the same placement.

use super::sample::Sample;
use std::fmt;

/// How far apart the cores of ranks 0 and 1 were.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Placement {
    Near,
    Far,
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Placement::Near => "near",
            Placement::Far => "far",
        })
    }
}

/// Which hop is near and which is far; between the two lies neither, nor below what is near.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Thresholds {
    pub(crate) near_above_ns: f64,
    pub(crate) near_below_ns: f64,
    pub(crate) far_above_ns: f64,
}

impl Default for Thresholds {
    /// For hops of 50-75 ns and 235-275 ns (Zen 4), or of 80-150 ns, and 20-30 within one core (Ice Lake).
    fn default() -> Thresholds {
        Thresholds {
            near_above_ns: 40.0,
            near_below_ns: 160.0,
            far_above_ns: 190.0,
        }
    }
}

/// Longer than any hop: the two shared a core, or the probe was disturbed, or never ran.
const DISTURBED_NS: f64 = 1000.0;

impl Thresholds {
    /// Where a sample ran, or `None` if the cores moved meanwhile or the probe cannot tell.
    pub(crate) fn placement_of(&self, sample: &Sample) -> Option<Placement> {
        let before = self.placement_at(sample.hop_before_ns)?;
        (self.placement_at(sample.hop_after_ns)? == before).then_some(before)
    }

    fn placement_at(&self, hop_ns: f64) -> Option<Placement> {
        if hop_ns > self.near_above_ns && hop_ns < self.near_below_ns {
            Some(Placement::Near)
        } else if hop_ns > self.far_above_ns && hop_ns < DISTURBED_NS {
            Some(Placement::Far)
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::table::tests::sample;
    use super::*;
    use proptest::prelude::*;

    fn at(before: f64, after: f64) -> Option<Placement> {
        Thresholds::default().placement_of(&Sample {
            hop_before_ns: before,
            hop_after_ns: after,
            ..sample()
        })
    }

    #[test]
    fn near_and_far_are_told_apart() {
        assert_eq!(at(65.0, 74.0), Some(Placement::Near));
        assert_eq!(at(112.0, 139.0), Some(Placement::Near));
        assert_eq!(at(241.0, 260.0), Some(Placement::Far));
    }

    #[test]
    fn two_threads_of_one_core_are_neither() {
        assert_eq!(at(24.0, 28.0), None);
        assert_eq!(at(28.0, 112.0), None);
    }

    #[test]
    fn a_flip_is_dropped_in_either_direction() {
        assert_eq!(at(65.0, 241.0), None);
        assert_eq!(at(241.0, 65.0), None);
    }

    #[test]
    fn a_hop_that_is_neither_or_was_never_measured_is_dropped() {
        for hop in [175.0, 0.0, -1.0, f64::NAN, f64::INFINITY, 2e6] {
            assert_eq!(at(hop, hop), None, "{hop}");
            assert_eq!(at(65.0, hop), None, "{hop}");
        }
    }

    proptest! {
        #[test]
        fn the_order_of_the_two_probes_does_not_matter(a in 0.0f64..400.0, b in 0.0f64..400.0) {
            prop_assert_eq!(at(a, b), at(b, a));
        }

        #[test]
        fn what_is_kept_lies_on_one_side_of_the_gap(a in 0.0f64..400.0, b in 0.0f64..400.0) {
            match at(a, b) {
                Some(Placement::Near) => prop_assert!(a.min(b) > 40.0 && a.max(b) < 160.0),
                Some(Placement::Far) => prop_assert!(a.min(b) > 190.0),
                None => {}
            }
        }
    }
}
