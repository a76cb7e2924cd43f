//! The data of a run is what the same kernels compute natively, on every kind of network.

use crate::common::*;
use ringwork_isa::{Core, Element, Notify, Rank, ReduceOp, with_dtype};
use ringwork_sim::{Options, SimError, Topology};

const KINDS: [&str; 8] = [
    "ring-7",
    "line-5",
    "mesh-2x3",
    "torus-2x3x2",
    "full-8",
    "switch-6",
    "fat-tree-2x4",
    "nodes-2x4",
];

/// The sum over ranks in rank order, as the contract says.
fn reference<T: Element>(n: usize, count: usize) -> Vec<T> {
    (0..count)
        .map(|i| {
            let mut sum = value::<T>(0, i).widen();
            for rank in 1..n {
                sum = T::combine(ReduceOp::Sum, sum, value::<T>(rank, i).widen());
            }
            T::narrow(sum)
        })
        .collect()
}

#[test]
fn direct_all_reduce_has_the_contracts_bits_on_every_kind_of_network_and_dtype() {
    for kind in KINDS {
        let topology = Topology::preset(kind).unwrap();
        let n = topology.ranks() as usize;
        for dtype in DTYPES {
            with_dtype!(dtype, T => {
                let (count, scratch) = (101, 16 * n * n);
                let machine = run_on::<T, _, _>(&topology, Options::default(), count, scratch, true, |core, d| async move {
                    direct_all_reduce(&core, d).await
                });
                let wanted = reference::<T>(n, count);
                for rank in 0..n {
                    assert_eq!(buffer::<T>(&machine, rank, count, scratch), wanted, "{kind} {dtype} rank {rank}");
                }
            });
        }
    }
}

#[test]
fn every_algorithm_leaves_the_sum_on_every_rank() {
    for kind in ["ring-8", "full-8", "torus-2x2x2", "h100x8", "v100x8"] {
        let topology = Topology::preset(kind).unwrap();
        let wanted = reference::<i32>(8, 64);
        for algorithm in 0..3 {
            let machine = run_on::<i32, _, _>(
                &topology,
                Options::default(),
                64,
                256,
                true,
                |core, d| async move {
                    match algorithm {
                        0 => ring_all_reduce(&core, d, RING).await,
                        1 => recursive_doubling(&core, d).await,
                        _ => halving_doubling(&core, d).await,
                    }
                },
            );
            for rank in 0..8 {
                assert_eq!(
                    buffer::<i32>(&machine, rank, 64, 256),
                    wanted,
                    "{kind} {algorithm} {rank}"
                );
            }
        }
    }
}

#[test]
fn a_ring_of_two_works_though_both_neighbours_are_one_peer_and_its_wrong_form_is_a_deadlock() {
    let topology = Topology::preset("ring-2").unwrap();
    let machine = run_on::<f32, _, _>(
        &topology,
        Options::default(),
        64,
        64,
        true,
        |core, d| async move { ring_all_reduce(&core, d, RING).await },
    );
    assert_eq!(buffer::<f32>(&machine, 0, 64, 64), reference::<f32>(2, 64));
    // Both neighbours' messages counted on one cell, each waiting for two from "the other side".
    let machine = machine_with::<u8>(&topology, Options::default(), 8, 8);
    for rank in 0..2 {
        let d = Domain::<u8>::new(rank as usize, 2, 8, 8);
        machine
            .spawn(rank, "wrong", move |core| async move {
                core.notify(d.signal(0).on(Rank(1 - rank))?, Notify::Set(1))
                    .await?;
                core.notify(d.signal(0).on(Rank(1 - rank))?, Notify::Set(1))
                    .await?;
                d.recv(&core, 0, 2).await
            })
            .unwrap();
    }
    let SimError::Deadlock { stuck, .. } = machine.run().unwrap_err() else {
        panic!("no deadlock")
    };
    assert_eq!(stuck.len(), 2);
}
