//! Any mixture of operations on one team, with any types, under any schedule.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test that panics has failed"
)]

mod support;

use proptest::prelude::*;
use ringwork_collectives::Algorithm;
use ringwork_isa::{Dtype, ReduceOp};
use support::calls::run_calls;
use support::{Call, Op, Rng, Schedule, World};

/// Enough for one element of the widest type for each of 6 ranks per half, and a multiple of 16, so that
/// teams of all types may share it.
const SCRATCH_BYTES: usize = 2 * 64;

fn call() -> impl Strategy<Value = Call> {
    let choices = (0..Op::ALL.len(), 0..Dtype::ALL.len(), 0..ReduceOp::ALL.len());
    let count = prop_oneof![Just(0usize), Just(1), 2usize..20, 20usize..90];
    (choices, count, 0usize..64, any::<bool>()).prop_map(|((op, dtype, reduce), count, root, in_place)| {
        let (op, reduce) = (Op::ALL[op], ReduceOp::ALL[reduce]);
        Call {
            op,
            dtype: Dtype::ALL[dtype],
            reduce: if op.can(reduce) { reduce } else { ReduceOp::Sum },
            count,
            root,
            in_place,
        }
    })
}

fn schedule() -> impl Strategy<Value = Schedule> {
    prop_oneof![
        any::<u64>().prop_map(Schedule::Random),
        (any::<u64>(), 0usize..6).prop_map(|(seed, depth)| Schedule::Priority { seed, depth }),
    ]
}

/// Calls with roots that exist.
fn rooted(mut calls: Vec<Call>, ranks: u32) -> Vec<Call> {
    calls.iter_mut().for_each(|call| call.root %= ranks as usize);
    calls
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    #[test]
    fn any_sequence_of_operations_and_types_on_one_team_is_right_and_races_nowhere(
        ranks in 1u32..=6,
        calls in prop::collection::vec(call(), 1..10),
        schedule in schedule(),
        // Counters that start anywhere, also just before they wrap.
        first in prop_oneof![Just(0), any::<i32>(), i32::MAX - 20..=i32::MAX],
        seed: u64,
    ) {
        let world = World::with(ranks, SCRATCH_BYTES, 32 << 10, first);
        prop_assert_eq!(run_calls(world, &rooted(calls, ranks), schedule, seed >> 1), Ok(()));
    }
}

#[test]
fn every_operation_may_follow_every_other() {
    let mut rng = Rng(7);
    for first in Op::ALL {
        for second in Op::ALL {
            let ranks = 2 + rng.below(3) as u32;
            let mut some = |op| Call {
                op,
                dtype: Dtype::ALL[rng.below(8)],
                reduce: ReduceOp::ALL[rng.below(if op.can(ReduceOp::Avg) { 5 } else { 4 })],
                count: 1 + rng.below(40),
                root: rng.below(ranks as usize),
                in_place: rng.below(2) == 0,
            };
            let calls = [some(first), some(second), some(first), some(second)];
            for kind in 0..4 {
                let seed = rng.next_u64();
                let schedule = match kind {
                    0 | 1 => Schedule::Random(seed),
                    _ => Schedule::Priority {
                        seed,
                        depth: kind as usize,
                    },
                };
                let world = World::with(ranks, SCRATCH_BYTES, 16 << 10, 0);
                assert_eq!(run_calls(world, &calls, schedule, seed >> 1), Ok(()));
            }
        }
    }
}

#[test]
fn a_bidirectional_ring_of_two_ranks_survives_every_kind_of_schedule() {
    for seed in 0..400 {
        let calls: Vec<Call> = [7, 1, 64, 2]
            .map(|count| Call {
                op: Op::AllReduce(Algorithm::StagedRing),
                dtype: Dtype::I64,
                reduce: ReduceOp::Sum,
                count,
                root: 0,
                in_place: count == 7,
            })
            .to_vec();
        let world = World::with(2, SCRATCH_BYTES, 0, i32::MAX - 5);
        assert_eq!(run_calls(world, &calls, Schedule::from_seed(seed), seed), Ok(()));
    }
}
