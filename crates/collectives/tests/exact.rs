//! The bit-exact contract: the same bits on every rank, for every chunking, from every direct algorithm.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test that panics has failed"
)]

mod support;

use ringwork_collectives::Algorithm;
use ringwork_collectives::window::Spread;
use ringwork_isa::{Dtype, Element, MAX_RANKS, ReduceOp, bf16, f16, with_dtype};
use support::calls::outputs;
use support::{Call, Op, Schedule, World};

const COUNT: usize = 45;

fn call(op: Op, dtype: Dtype, reduce: ReduceOp) -> Call {
    Call {
        op,
        dtype,
        reduce,
        count: COUNT,
        root: 0,
        in_place: false,
    }
}

/// What each rank gets with `half` elements per half of the scratch.
fn run(op: Op, dtype: Dtype, reduce: ReduceOp, ranks: u32, half: usize, seed: u64) -> Vec<Vec<u8>> {
    let world = World::new(ranks, 2 * half * dtype.bytes());
    // The same inputs always: only schedule and chunking change.
    outputs(world, &call(op, dtype, reduce), Schedule::from_seed(seed), 99).unwrap()
}

#[test]
fn direct_algorithms_give_the_same_bits_on_every_rank_and_for_every_chunking() {
    let direct = [
        Op::AllReduce(Algorithm::OnePhase),
        Op::AllReduce(Algorithm::TwoPhase),
        Op::WindowAllReduce(Spread::Pull),
        Op::WindowAllReduce(Spread::Push(MAX_RANKS)),
        Op::WindowAllReduce(Spread::Push(2)),
    ];
    for dtype in Dtype::ALL {
        for reduce in ReduceOp::ALL {
            for ranks in [2, 3, 7] {
                let wanted = run(direct[0], dtype, reduce, ranks, COUNT, 0).swap_remove(0);
                for half in [1, 2, 7, 44, 45, 64] {
                    for op in direct {
                        for got in run(op, dtype, reduce, ranks, half, half as u64) {
                            assert_eq!(
                                got, wanted,
                                "{op:?} {dtype} {reduce} {ranks} ranks, halves of {half}"
                            );
                        }
                    }
                    if half >= ranks as usize {
                        let parts = run(Op::ReduceScatter, dtype, reduce, ranks, half, half as u64);
                        assert_eq!(parts.concat(), wanted);
                    }
                    let on_root = run(Op::Reduce, dtype, reduce, ranks, half, half as u64);
                    assert_eq!(on_root[0], wanted);
                }
                let parts = run(Op::WindowReduceScatter, dtype, reduce, ranks, 8, 1);
                assert_eq!(parts.concat(), wanted);
            }
        }
    }
}

#[test]
fn ring_algorithms_give_all_ranks_the_same_bits_close_to_the_exact_ones() {
    fn close<T: Element>(got: &[u8], wanted: &[u8], tolerance: f64) {
        let values = |bytes: &[u8]| -> Vec<f64> {
            bytemuck::pod_collect_to_vec::<u8, T>(bytes)
                .into_iter()
                .map(T::to_f64)
                .collect()
        };
        for (got, wanted) in values(got).into_iter().zip(values(wanted)) {
            // Of the size of the inputs, not of a sum that may have cancelled.
            assert!(
                (got - wanted).abs() <= tolerance * wanted.abs().max(300.0),
                "{got} {wanted}"
            );
        }
    }
    for op in [Op::AllReduce(Algorithm::StagedRing)] {
        for (dtype, tolerance) in [
            (Dtype::F32, 1e-6),
            (Dtype::F16, f16::EPSILON.to_f64() * 4.0),
            (Dtype::BF16, bf16::EPSILON.to_f64() * 4.0),
            (Dtype::F64, 1e-14),
            (Dtype::I32, 0.0),
        ] {
            for ranks in [2, 3, 4, 7] {
                let exact = Op::AllReduce(Algorithm::OnePhase);
                let wanted = run(exact, dtype, ReduceOp::Sum, ranks, COUNT, 0).swap_remove(0);
                for half in [1, 7, 45] {
                    let got = run(op, dtype, ReduceOp::Sum, ranks, half, half as u64);
                    assert!(
                        got.iter().all(|rank| *rank == got[0]),
                        "{op:?} {dtype} {ranks} {half}"
                    );
                    with_dtype!(dtype, T => close::<T>(&got[0], &wanted, tolerance));
                }
            }
        }
    }
}

#[test]
fn the_inputs_used_here_would_show_another_order_of_summation() {
    for dtype in [Dtype::F32, Dtype::F16, Dtype::BF16, Dtype::F64] {
        let exact = run(Op::AllReduce(Algorithm::TwoPhase), dtype, ReduceOp::Sum, 5, 64, 0);
        let ring = run(
            Op::AllReduce(Algorithm::StagedRing),
            dtype,
            ReduceOp::Sum,
            5,
            64,
            0,
        );
        assert_ne!(exact[0], ring[0], "{dtype}");
    }
}
