//! Every algorithm of the catalogue is proved for any number of calls: after a few calls it repeats itself.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use ringwork_proofs::{Size, Workload, workloads};

fn assert_proved(workload: &Workload, ranks: u32, size: Size) -> u32 {
    let verdict = workload.prove_any_calls(ranks, size).unwrap();
    let of = format!("{} on {ranks} ranks, {}", workload.name, size.name());
    assert!(verdict.is_proved(), "{of}: {verdict}");
    let reuse = verdict.reuse;
    let reuse = reuse.unwrap_or_else(|| panic!("{of} does not repeat itself within {} calls", verdict.calls));
    reuse.period
}

#[test]
fn every_algorithm_is_proved_for_any_number_of_calls_on_two_and_three_ranks() {
    let (mut programs, mut longest) = (0, 0);
    for workload in workloads() {
        for ranks in [2, 3].into_iter().filter(|ranks| workload.fits(*ranks)) {
            for size in Size::ALL {
                longest = longest.max(assert_proved(&workload, ranks, size));
                programs += 1;
            }
        }
    }
    println!("{programs} programs repeat themselves, the last after {longest} calls");
}

#[test]
fn every_algorithm_is_proved_for_any_number_of_calls_on_four_ranks_and_more() {
    let is_long = std::env::var_os("RINGWORK_LONG").is_some();
    let ranks: &[u32] = if is_long { &[4, 5, 8, 16] } else { &[4] };
    for workload in workloads() {
        for ranks in ranks.iter().copied().filter(|ranks| workload.fits(*ranks)) {
            assert_proved(&workload, ranks, Size::Pieces);
        }
    }
}
