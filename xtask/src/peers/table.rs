//! From samples to ratios: medians by placement, the best peer at each size, and us beside it.

use super::placement::{Placement, Thresholds};
use super::sample::{Mode, Op, Sample};
use std::collections::BTreeMap;

/// The name of our own library in the samples.
pub(crate) const OURS: &str = "ringwork";

/// The median over the runs of one library, and how many runs that was.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Timing {
    pub(crate) median_us: f64,
    pub(crate) runs: usize,
}

/// The best peer and us, at one size in one placement.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Pair {
    pub(crate) best: Option<(String, Timing)>,
    pub(crate) ours: Option<Timing>,
}

impl Pair {
    /// How many times faster we are than the best peer.
    pub(crate) fn ratio(&self) -> Option<f64> {
        let (_, best) = self.best.as_ref()?;
        Some(best.median_us / self.ours?.median_us)
    }
}

/// One operation at one size in one mode.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Row {
    pub(crate) ranks: u32,
    pub(crate) op: Op,
    pub(crate) bytes: u64,
    pub(crate) mode: Mode,
    pub(crate) near: Pair,
    pub(crate) far: Pair,
}

impl Row {
    /// The pair of a placement.
    pub(crate) fn at(&self, placement: Placement) -> &Pair {
        match placement {
            Placement::Near => &self.near,
            Placement::Far => &self.far,
        }
    }
}

/// What became of the samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) near: usize,
    pub(crate) far: usize,
    /// The placement changed during the sample, or could not be told.
    pub(crate) unplaced: usize,
    /// A result was wrong.
    pub(crate) wrong: usize,
    /// Of those, ours.
    pub(crate) wrong_ours: usize,
}

/// All rows, by ranks, operation, size, mode, and what they were made from.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Table {
    pub(crate) rows: Vec<Row>,
    pub(crate) tally: Tally,
}

/// The middle value; between two middle values, halfway. `None` of nothing.
pub(crate) fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let upper = *sorted.get(sorted.len() / 2)?;
    let lower = sorted[(sorted.len() - 1) / 2];
    // Not (lower + upper) / 2: that may overflow.
    Some(lower + (upper - lower) / 2.0)
}

type RowKey = (u32, Op, u64, Mode);

/// Compares what was measured. Samples that are wrong or whose placement changed count for nothing.
pub(crate) fn compare(samples: &[Sample], thresholds: &Thresholds) -> Table {
    let mut tally = Tally::default();
    let mut runs: BTreeMap<RowKey, BTreeMap<(Placement, &str), Vec<f64>>> = BTreeMap::new();
    for sample in samples {
        if !sample.right {
            tally.wrong += 1;
            tally.wrong_ours += usize::from(sample.peer == OURS);
            continue;
        }
        let Some(placement) = thresholds.placement_of(sample) else {
            tally.unplaced += 1;
            continue;
        };
        match placement {
            Placement::Near => tally.near += 1,
            Placement::Far => tally.far += 1,
        }
        let (bytes, mode) = match sample.op {
            Op::Barrier => (0, Mode::Oop),
            _ => (sample.bytes, sample.mode),
        };
        let row = runs.entry((sample.ranks, sample.op, bytes, mode)).or_default();
        row.entry((placement, &sample.peer))
            .or_default()
            .push(sample.median_us);
    }
    let rows = runs
        .into_iter()
        .map(|((ranks, op, bytes, mode), runs)| {
            let (near, far) = (pair(&runs, Placement::Near), pair(&runs, Placement::Far));
            Row {
                ranks,
                op,
                bytes,
                mode,
                near,
                far,
            }
        })
        .collect();
    Table { rows, tally }
}

fn pair(runs: &BTreeMap<(Placement, &str), Vec<f64>>, placement: Placement) -> Pair {
    let mut pair = Pair::default();
    for ((at, peer), values) in runs {
        let Some(median_us) = median(values).filter(|_| *at == placement) else {
            continue;
        };
        let timing = Timing {
            median_us,
            runs: values.len(),
        };
        if *peer == OURS {
            pair.ours = Some(timing);
        } else if pair
            .best
            .as_ref()
            .is_none_or(|(_, best)| median_us < best.median_us)
        {
            pair.best = Some(((*peer).to_owned(), timing));
        }
    }
    pair
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A good sample of nobody in particular.
    pub(crate) fn sample() -> Sample {
        Sample {
            peer: "mpich4".into(),
            ranks: 2,
            op: Op::AllReduce,
            mode: Mode::Inp,
            bytes: 1024,
            median_us: 1.0,
            right: true,
            hop_before_ns: 65.0,
            hop_after_ns: 65.0,
            version: String::new(),
        }
    }

    fn of(peer: &str, median_us: f64) -> Sample {
        Sample {
            peer: peer.into(),
            median_us,
            ..sample()
        }
    }

    fn far(sample: Sample) -> Sample {
        Sample {
            hop_before_ns: 240.0,
            hop_after_ns: 240.0,
            ..sample
        }
    }

    fn table(samples: &[Sample]) -> Table {
        compare(samples, &Thresholds::default())
    }

    #[test]
    fn the_best_peer_is_the_one_with_the_least_median() {
        let samples = [
            of("a", 1.0),
            of("a", 9.0),
            of("a", 8.0),
            of("b", 3.0),
            of("b", 4.0),
            of(OURS, 2.0),
        ];
        let rows = table(&samples).rows;
        assert_eq!(rows.len(), 1);
        let best = (
            "b".to_owned(),
            Timing {
                median_us: 3.5,
                runs: 2,
            },
        );
        assert_eq!(rows[0].near.best, Some(best));
        assert_eq!(rows[0].near.ratio(), Some(1.75));
        assert_eq!(rows[0].far, Pair::default());
    }

    #[test]
    fn near_is_never_compared_with_far() {
        let rows = table(&[of("a", 10.0), far(of(OURS, 1.0))]).rows;
        assert_eq!((rows[0].near.ratio(), rows[0].far.ratio()), (None, None));
        let rows = table(&[
            of("a", 10.0),
            far(of("a", 40.0)),
            far(of(OURS, 10.0)),
            of(OURS, 5.0),
        ])
        .rows;
        assert_eq!(
            (rows[0].near.ratio(), rows[0].far.ratio()),
            (Some(2.0), Some(4.0))
        );
    }

    #[test]
    fn wrong_and_moved_samples_count_for_nothing_but_are_counted() {
        let samples = [
            of("a", 4.0),
            Sample {
                right: false,
                ..of("b", 0.1)
            },
            Sample {
                right: false,
                ..of(OURS, 0.1)
            },
            Sample {
                hop_after_ns: 240.0,
                ..of("c", 0.1)
            },
            far(of("a", 9.0)),
        ];
        let Table { rows, tally } = table(&samples);
        assert_eq!(rows[0].near.best.as_ref().map(|best| best.0.as_str()), Some("a"));
        assert_eq!(
            tally,
            Tally {
                near: 1,
                far: 1,
                unplaced: 1,
                wrong: 2,
                wrong_ours: 1
            }
        );
    }

    #[test]
    fn rows_are_apart_by_ranks_operation_size_and_mode() {
        let samples = [
            sample(),
            Sample { ranks: 4, ..sample() },
            Sample {
                op: Op::AllGather,
                ..sample()
            },
            Sample { bytes: 4, ..sample() },
            Sample {
                mode: Mode::Use,
                ..sample()
            },
        ];
        let rows = table(&samples).rows;
        assert_eq!(rows.len(), 5);
        let order: Vec<_> = rows
            .iter()
            .map(|row| (row.ranks, row.op, row.bytes, row.mode))
            .collect();
        assert!(order.is_sorted());
    }

    #[test]
    fn a_barrier_is_one_row_whatever_mode_and_size_it_was_labelled_with() {
        let barrier = |mode, bytes| Sample {
            op: Op::Barrier,
            mode,
            bytes,
            ..sample()
        };
        assert_eq!(
            table(&[barrier(Mode::Oop, 0), barrier(Mode::Inp, 4)]).rows.len(),
            1
        );
    }

    #[test]
    fn the_median_of_an_even_count_lies_halfway() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0]), Some(3.0));
        assert_eq!(median(&[4.0, 1.0]), Some(2.5));
        assert_eq!(median(&[9.0, 1.0, 2.0]), Some(2.0));
    }

    proptest! {
        #[test]
        fn half_of_the_values_lie_on_each_side_of_the_median(values in prop::collection::vec(0.0f64..1e12, 1..60)) {
            let middle = median(&values).unwrap();
            prop_assert!(values.iter().filter(|v| **v <= middle).count() * 2 >= values.len());
            prop_assert!(values.iter().filter(|v| **v >= middle).count() * 2 >= values.len());
        }

        #[test]
        fn the_median_does_not_depend_on_order(values in prop::collection::vec(0.0f64..1e12, 1..60), turn: usize) {
            let mut turned = values.clone();
            turned.rotate_left(turn % values.len());
            prop_assert_eq!(median(&values), median(&turned));
        }

        #[test]
        fn ratios_do_not_depend_on_the_unit(
            peers in prop::collection::vec((0usize..3, 0.01f64..1e6), 1..30),
            ours in prop::collection::vec(0.01f64..1e6, 1..10),
            power in -8i32..8,
        ) {
            let unit = f64::from(power).exp2(); // exact: only the exponent changes
            let build = |unit: f64| -> Vec<Sample> {
                let theirs = peers.iter().map(|(peer, us)| of(["a", "b", "c"][*peer], us * unit));
                theirs.chain(ours.iter().map(|us| of(OURS, us * unit))).collect()
            };
            prop_assert_eq!(table(&build(1.0)).rows[0].near.ratio(), table(&build(unit)).rows[0].near.ratio());
        }

        #[test]
        fn every_sample_is_tallied_once(
            samples in prop::collection::vec((any::<bool>(), 0.0f64..400.0, 0.0f64..400.0), 0..60),
        ) {
            let samples: Vec<_> = samples
                .into_iter()
                .map(|(right, hop_before_ns, hop_after_ns)| Sample { right, hop_before_ns, hop_after_ns, ..sample() })
                .collect();
            let tally = table(&samples).tally;
            prop_assert_eq!(tally.near + tally.far + tally.unplaced + tally.wrong, samples.len());
        }

        #[test]
        fn the_best_peer_is_never_slower_than_any_peer(runs in prop::collection::vec((0usize..4, 0.1f64..100.0), 1..40)) {
            let names = ["a", "b", "c", "d"];
            let samples: Vec<_> = runs.iter().map(|(peer, us)| of(names[*peer], *us)).collect();
            let best = table(&samples).rows[0].near.best.as_ref().unwrap().1.median_us;
            for name in names {
                let own: Vec<f64> = samples.iter().filter(|s| s.peer == name).map(|s| s.median_us).collect();
                if let Some(median) = median(&own) {
                    prop_assert!(best <= median);
                }
            }
        }
    }
}
