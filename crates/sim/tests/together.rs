//! Waiting for the signals of many ranks at once: all questions are under way together.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use common::*;
use ringwork_isa::{Barrier, Compare, Core};
use ringwork_sim::Topology;

/// One microsecond from each rank to each other.
const A: u64 = 1_000_000;

fn machine(ranks: usize) -> Topology {
    topology(&format!(
        "network: {{kind: full, size: {ranks}, bandwidth: 10 GB/s, latency: 1 us}}"
    ))
}

#[test]
fn a_barrier_takes_one_round_trip_however_many_meet() {
    for n in [2usize, 3, 8, 64] {
        let t = timed(&machine(n), 16, 16, |core, d| async move {
            Barrier::new(d.signals).arrive_and_wait(&core).await
        });
        assert_eq!(t, 2 * A, "{n} ranks");
    }
}

#[test]
fn who_waits_for_a_late_rank_hears_of_it_by_the_way_back_alone() {
    for n in [2usize, 5, 16] {
        let machine = run_on::<u8, _, _>(
            &machine(n),
            ringwork_sim::Options::default(),
            16,
            16,
            false,
            |core, d| async move {
                if d.me == 0 {
                    // A question and its answer: 2 us.
                    core.test(d.signal(1).on(d.rank(1))?, Compare::Ge, 1).await?;
                }
                Barrier::new(d.signals).arrive_and_wait(&core).await
            },
        );
        assert_eq!(machine.now_ps(), 4 * A, "rank 0 asks when it arrives, {n} ranks");
    }
}
