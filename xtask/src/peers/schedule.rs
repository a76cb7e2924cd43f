//! The order of the runs: short rounds, everyone in each, nobody always first.
//!
//! Placement and load drift within seconds. So those who are compared run one right after the other, at
//! one operation, and the next round begins with another.

use super::sample::Op;

/// One process to start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Turn {
    pub(crate) round: usize,
    pub(crate) ranks: u32,
    pub(crate) op: Op,
    /// Which runner, as an index.
    pub(crate) runner: usize,
}

/// All turns. `takes_part(runner, op, ranks)` says who runs what.
pub(crate) fn turns(
    rounds: usize,
    ranks: &[u32],
    ops: &[Op],
    runners: usize,
    takes_part: impl Fn(usize, Op, u32) -> bool,
) -> Vec<Turn> {
    let mut turns = Vec::new();
    for round in 0..rounds {
        for &ranks in ranks {
            for &op in ops {
                let mut order: Vec<usize> = (0..runners)
                    .filter(|&runner| takes_part(runner, op, ranks))
                    .collect();
                let first = round % order.len().max(1);
                order.rotate_left(first);
                turns.extend(order.into_iter().map(|runner| Turn {
                    round,
                    ranks,
                    op,
                    runner,
                }));
            }
        }
    }
    turns
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn those_who_are_compared_run_one_after_the_other() {
        let order: Vec<_> = turns(2, &[2], &[Op::Barrier, Op::AllReduce], 3, |_, _, _| true)
            .into_iter()
            .map(|turn| (turn.op, turn.runner))
            .collect();
        let (b, a) = (Op::Barrier, Op::AllReduce);
        let first = [(b, 0), (b, 1), (b, 2), (a, 0), (a, 1), (a, 2)];
        let second = [(b, 1), (b, 2), (b, 0), (a, 1), (a, 2), (a, 0)];
        assert_eq!(order, [first, second].concat());
    }

    #[test]
    fn who_does_not_take_part_is_left_out() {
        let turns = turns(1, &[2, 4], &[Op::Barrier], 2, |runner, _, ranks| {
            runner == 0 || ranks == 2
        });
        let order: Vec<_> = turns.iter().map(|turn| (turn.ranks, turn.runner)).collect();
        assert_eq!(order, [(2, 0), (2, 1), (4, 0)]);
        assert!(super::turns(3, &[2], &[Op::Barrier], 2, |_, _, _| false).is_empty());
    }

    proptest! {
        #[test]
        fn everyone_runs_everything_once_a_round(rounds in 1usize..6, runners in 1usize..8) {
            let turns = turns(rounds, &[2, 4], &Op::ALL, runners, |_, _, _| true);
            prop_assert_eq!(turns.len(), rounds * 2 * Op::ALL.len() * runners);
            for (i, turn) in turns.iter().enumerate() {
                prop_assert!(!turns[..i].contains(turn));
            }
        }

        #[test]
        fn in_as_many_rounds_as_runners_everyone_is_first_once(runners in 1usize..8) {
            let turns = turns(runners, &[2], &[Op::Barrier], runners, |_, _, _| true);
            let mut first: Vec<usize> = turns.chunks(runners).map(|round| round[0].runner).collect();
            first.sort_unstable();
            prop_assert_eq!(first, (0..runners).collect::<Vec<_>>());
        }
    }
}
