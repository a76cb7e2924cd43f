//! What many measured times say.

use serde::Serialize;

/// Times of calls, in microseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Stats {
    pub(crate) calls: usize,
    pub(crate) min: f64,
    pub(crate) p50: f64,
    pub(crate) p90: f64,
    pub(crate) p99: f64,
    pub(crate) max: f64,
    pub(crate) mean: f64,
}

impl Stats {
    /// `None` if there are none.
    pub(crate) fn of(mut times: Vec<f64>) -> Option<Stats> {
        times.sort_unstable_by(f64::total_cmp);
        let at = |hundredths: usize| {
            times
                .get((times.len() * hundredths / 100).min(times.len().checked_sub(1)?))
                .copied()
        };
        Some(Stats {
            calls: times.len(),
            min: at(0)?,
            p50: at(50)?,
            p90: at(90)?,
            p99: at(99)?,
            max: at(100)?,
            mean: times.iter().sum::<f64>() / times.len() as f64,
        })
    }
}

/// Whose exit from a call counts: `-a`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whose {
    Rank0,
    Average,
    First,
    Last,
}

impl Whose {
    pub(crate) fn from_flag(flag: u8) -> Whose {
        match flag {
            0 => Whose::Rank0,
            1 => Whose::Average,
            2 => Whose::First,
            _ => Whose::Last,
        }
    }

    /// One moment out of every rank's.
    pub(crate) fn of(self, moments: impl Iterator<Item = i64>) -> f64 {
        let moments: Vec<i64> = moments.collect();
        let Some((first, last)) = moments.iter().min().zip(moments.iter().max()) else {
            return 0.0;
        };
        match self {
            Whose::Rank0 => moments[0] as f64,
            // From the first on, so that the sum of large numbers stays exact.
            Whose::Average => {
                *first as f64
                    + moments.iter().map(|moment| (moment - first) as f64).sum::<f64>() / moments.len() as f64
            }
            Whose::First => *first as f64,
            Whose::Last => *last as f64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_the_sorted_times() {
        let stats = Stats::of((0..100).rev().map(f64::from).collect()).unwrap();
        assert_eq!(
            (stats.min, stats.p50, stats.p99, stats.max),
            (0.0, 50.0, 99.0, 99.0)
        );
        assert!((stats.mean - 49.5).abs() < 1e-9);
        assert!(Stats::of(Vec::new()).is_none());
    }

    #[test]
    fn the_exit_that_counts_is_the_one_asked_for() {
        let of = |flag| Whose::from_flag(flag).of([3, 1, 8].into_iter());
        assert_eq!([of(0), of(1), of(2), of(3)], [3.0, 4.0, 1.0, 8.0]);
    }
}
