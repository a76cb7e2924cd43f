//! Proofs: where results come from is tracked, right kernels pass, and each way of being wrong is named.
#![allow(clippy::unwrap_used, reason = "a test may")]

mod common;

use common::*;
use ringwork_isa::{Contributions, Core, Counted, Difference, Notify, Piece, ReduceOp, Result, Tile, Wrong};
use ringwork_sim::{Machine, Options, SimCore, Topology};
use std::future::Future;

const COUNT: usize = 48;

fn prove<F, Fut>(preset: &str, scratch: usize, kernel: F) -> Machine
where
    F: Fn(SimCore, Domain<u8>) -> Fut,
    Fut: Future<Output = Result<()>> + 'static,
{
    prove_on(&Topology::preset(preset).unwrap(), COUNT, scratch, kernel)
}

fn all_right(machine: &Machine, scratch: usize) {
    for rank in 0..machine.ranks() as usize {
        assert_eq!(not_all(machine, rank, COUNT, scratch), []);
    }
}

#[test]
fn every_way_to_all_reduce_counts_every_input_once() {
    for (preset, n) in [("ring-2", 2), ("ring-6", 6), ("torus-2x2x2", 8)] {
        let run = |scratch: usize, which: usize| {
            all_right(
                &prove(preset, scratch, |core, d| async move {
                    match which {
                        0 => ring_all_reduce(&core, d, RING).await,
                        1 => direct_all_reduce(&core, d).await,
                        _ => one_shot_all_reduce(&core, d).await,
                    }
                }),
                scratch,
            );
        };
        run(COUNT, 0);
        run(COUNT + n * n, 1);
        run(COUNT * n, 2);
    }
    for preset in ["ring-2", "ring-8"] {
        let scratch = 4 * COUNT;
        all_right(
            &prove(preset, scratch, |core, d| async move {
                recursive_doubling(&core, d).await
            }),
            scratch,
        );
        all_right(
            &prove(preset, scratch, |core, d| async move {
                halving_doubling(&core, d).await
            }),
            scratch,
        );
    }
}

/// A ring all-reduce in 6 parts with one thing wrong on rank 2 in step 1 of the reduction.
async fn wrong_ring(core: SimCore, d: Domain<u8>, wrong: &'static str) -> Result<()> {
    for step in 0..d.n - 1 {
        let (out, came) = ((d.me + d.n - step) % d.n, (d.me + 2 * d.n - step - 1) % d.n);
        let strange = d.me == 2 && step == 1;
        let from = d.buffer.part(d.n, out)?;
        d.send(&core, (d.me + 1) % d.n, d.scratch.part(d.n, out)?, from, 0)
            .await?;
        d.recv(&core, 0, step + 1).await?;
        let (into, came) = (d.buffer.part(d.n, came)?, d.scratch.part(d.n, came)?);
        match wrong {
            // Nothing is added, or what came replaces what was there.
            "mine dropped" if strange => core.copy(into, came).await?,
            "theirs dropped" if strange => {}
            "mine twice" if strange => core.reduce(into, [into, came, into], ReduceOp::Sum).await?,
            "elsewhere" if strange => {
                let other = d.scratch.part(d.n, (d.me + 1) % d.n)?;
                core.copy(other, d.buffer.part(d.n, (d.me + 1) % d.n)?).await?;
                core.reduce(into, [other, came], ReduceOp::Sum).await?;
            }
            "scaled" if strange => {
                let tile = core.load(came).await?.cast::<u8>();
                core.store(came, &tile).await?;
                core.reduce(into, [into, came], ReduceOp::Sum).await?;
            }
            _ => core.reduce(into, [into, came], ReduceOp::Sum).await?,
        }
    }
    ring_all_gather(&core, d, RING, 1).await
}

#[test]
fn a_contribution_that_is_dropped_doubled_or_in_the_wrong_place_is_named_on_every_rank() {
    // Rank 2 adds part 0 in step 1: so far it has been to ranks 0 and 1.
    let part = 0..8;
    for (wrong, how) in [
        ("nothing", None),
        ("mine dropped", Some(Difference::Lacks { member: 2 })),
        ("theirs dropped", Some(Difference::Lacks { member: 0 })),
        ("mine twice", Some(Difference::Repeats { member: 2, times: 2 })),
        ("elsewhere", Some(Difference::Misplaced { got: None, wanted: 0 })),
        ("scaled", Some(Difference::Untracked)),
    ] {
        let machine = prove("ring-6", COUNT, |core, d| wrong_ring(core, d, wrong));
        for rank in 0..6 {
            let wanted: Vec<Wrong> = how
                .iter()
                .map(|how| Wrong {
                    bytes: part.clone(),
                    how: *how,
                })
                .collect();
            assert_eq!(
                not_all(&machine, rank, COUNT, COUNT),
                wanted,
                "{wrong}, rank {rank}"
            );
        }
    }
}

#[test]
fn dimensions_one_after_the_other_are_proved_and_one_scratch_for_all_is_caught() {
    let dims = [(1, 2), (2, 2), (4, 2)];
    let right = prove("torus-2x2x2", 3 * COUNT, |core, d| async move {
        by_dimensions(&core, d, &dims).await
    });
    all_right(&right, 3 * COUNT);
    // A rank that is late: the others' next parts arrive before it has added the last ones.
    let late = Topology::from_yaml(
        "late.yaml",
        "network: {kind: torus, dims: [2, 2, 2], bandwidth: 50 GB/s, latency: 500 ns}\n\
         chip: {vector: 1 MB/s}\nstragglers: [{rank: 0, speed: 0.01}]\n",
    );
    let wrong = prove_on(&late.unwrap(), COUNT, COUNT, |core, d| async move {
        let mut part = 0..COUNT;
        for (i, dim) in dims.iter().enumerate() {
            part = dimension(&core, d, *dim, part, i, false).await?;
        }
        Ok(())
    });
    // Whoever is first overwrites what others have not added yet.
    let all = (0..8).flat_map(|rank| not_all(&wrong, rank, COUNT, COUNT));
    assert!(
        all.into_iter()
            .any(|wrong| matches!(wrong.how, Difference::Repeats { .. }))
    );
}

#[test]
fn what_moves_is_followed_to_its_place() {
    let n = 6;
    let machine = prove("ring-6", COUNT, |core, d| async move {
        all_to_all(&core, d).await?;
        // One too many, at the wrong place.
        if d.me == 3 {
            core.copy(d.scratch.part(d.n, 0)?, d.scratch.part(d.n, 1)?)
                .await?;
        }
        Ok(())
    });
    for rank in 0..n {
        let got = scratch_origin(&machine, rank, COUNT, COUNT);
        let mut wanted = Contributions::default();
        for from in 0..n {
            let member = u32::try_from(from).unwrap();
            let counted = Counted::once(member..member + 1);
            let counted = if from == rank { Counted::NOTHING } else { counted };
            wanted.push(Piece::new(counted, rank as u64 * 8, 8));
        }
        let wrong = got.differences(&wanted);
        if rank == 3 {
            let how = Difference::Lacks { member: 0 };
            assert_eq!(wrong, [Wrong { bytes: 0..8, how }]);
        } else {
            assert_eq!(wrong, []);
        }
    }
}

#[test]
fn tiles_and_constants_carry_their_origin() {
    let machine = prove("ring-2", COUNT, |core, d| async move {
        let mine = core.load(d.buffer).await?;
        let theirs = core.load(d.buffer.on(d.rank(d.me + 1))?).await?;
        core.notify(d.signal(0).on(d.rank(d.me + 1))?, Notify::Add(1))
            .await?;
        d.recv(&core, 0, 1).await?;
        let sum = mine.combine(&theirs, ReduceOp::Sum)?;
        let sum = Tile::fold(&[&sum, &Tile::new(vec![7; COUNT])], ReduceOp::Sum)?;
        core.store(d.buffer, &sum).await
    });
    all_right(&machine, COUNT);
}

#[test]
fn a_proof_takes_the_same_events_and_the_same_time() {
    let kernel = |core: SimCore, d: Domain<u8>| async move { ring_all_reduce(&core, d, RING).await };
    let proved = prove("ring-6", COUNT, kernel);
    let topology = Topology::preset("ring-6").unwrap();
    let data = run_on(&topology, Options::default(), COUNT, COUNT, true, kernel);
    assert_eq!(
        (proved.now_ps(), proved.events(), proved.fingerprint()),
        (data.now_ps(), data.events(), data.fingerprint())
    );
}
