//! Every operation, dtype, reduction, number of ranks and count, against the reference.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test that panics has failed"
)]

mod support;

use ringwork_collectives::Algorithm;
use ringwork_collectives::window::Spread;
use ringwork_isa::{Dtype, MAX_RANKS, ReduceOp};
use support::calls::run_calls;
use support::{Call, Op, Schedule, World};

const COUNTS: [usize; 6] = [0, 1, 7, 64, 65, 200];

/// Elements per half of the scratch: enough for one of each rank, less than the larger counts.
fn half(ranks: u32) -> usize {
    (ranks as usize).max(24)
}

fn check(op: Op, ranks: u32, counts: &[usize], dtypes: &[Dtype], reductions: &[ReduceOp]) {
    let reductions = if op.reduces() {
        reductions
    } else {
        &[ReduceOp::Sum]
    };
    let mut seed = u64::from(ranks) << 32;
    for &dtype in dtypes {
        for &reduce in reductions.iter().filter(|reduce| op.can(**reduce)) {
            for &count in counts {
                seed += 1;
                let call = Call {
                    op,
                    dtype,
                    reduce,
                    count,
                    root: seed as usize % ranks as usize,
                    in_place: seed % 3 == 0,
                };
                let world = World::with(ranks, 2 * half(ranks) * dtype.bytes(), 4 << 10, 0);
                // Twice, so that the second finds what the first left behind.
                if let Err(error) = run_calls(world, &[call.clone(), call], Schedule::from_seed(seed), seed) {
                    panic!("{ranks} ranks: {error}");
                }
            }
        }
    }
}

fn check_all(op: Op) {
    for ranks in [1, 2, 3, 4, 5, 8] {
        check(op, ranks, &COUNTS, &Dtype::ALL, &ReduceOp::ALL);
    }
    check(
        op,
        16,
        &[1, 7, 65, 200],
        &[Dtype::BF16, Dtype::U8],
        &ReduceOp::ALL,
    );
    // With 64 ranks a scatter moves one element per chunk: three are plenty.
    let counts = if op == Op::Scatter { [1, 3] } else { [1, 65] };
    check(op, 64, &counts, &[Dtype::F32], &[ReduceOp::Sum]);
}

/// The long form: everything with 16 and with 9 ranks, and more with 64.
#[test]
#[ignore = "half a minute when optimised: cargo test --release -- --ignored"]
fn every_combination_in_full() {
    for op in Op::ALL {
        for ranks in [9, 16] {
            check(op, ranks, &COUNTS, &Dtype::ALL, &ReduceOp::ALL);
        }
        check(
            op,
            64,
            &[0, 1, 7, 64, 65],
            &[Dtype::F16, Dtype::I8],
            &ReduceOp::ALL,
        );
    }
}

macro_rules! operations {
    ($($name:ident: $op:expr;)*) => {$(
        #[test]
        fn $name() {
            check_all($op);
        }
    )*};
}

operations! {
    all_reduce_one_phase_is_the_fold_in_rank_order: Op::AllReduce(Algorithm::OnePhase);
    all_reduce_two_phase_is_the_fold_in_rank_order: Op::AllReduce(Algorithm::TwoPhase);
    all_reduce_staged_ring_is_the_reduction: Op::AllReduce(Algorithm::StagedRing);
    all_gather_gives_everybody_every_part: Op::AllGather;
    reduce_scatter_gives_each_its_part_of_the_fold: Op::ReduceScatter;
    broadcast_gives_everybody_the_roots_data: Op::Broadcast;
    reduce_gives_the_root_the_fold_and_touches_nobody_else: Op::Reduce;
    gather_gives_the_root_every_part_and_touches_nobody_else: Op::Gather;
    scatter_gives_each_its_part_of_the_roots_data: Op::Scatter;
    all_to_all_transposes: Op::AllToAll;
    barrier_returns: Op::Barrier;
    window_all_reduce_by_pull_is_the_fold_in_place: Op::WindowAllReduce(Spread::Pull);
    window_all_reduce_by_push_is_the_fold_in_place: Op::WindowAllReduce(Spread::Push(MAX_RANKS));
    window_all_reduce_by_push_of_two_is_the_fold_in_place: Op::WindowAllReduce(Spread::Push(2));
    window_all_gather_fills_every_window: Op::WindowAllGather;
    window_reduce_scatter_gives_each_its_part_of_the_fold: Op::WindowReduceScatter;
    window_broadcast_fills_every_window: Op::WindowBroadcast;
}
