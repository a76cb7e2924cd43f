//! Every algorithm of the catalogue is proved for any number of calls: after a few calls it repeats itself.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use ringwork_proofs::{Size, Workload, workloads};

/// Of the mixture of all algorithms with a root that moves: the packets of a broadcast go round 64 places, so that the mixture
/// repeats itself only after thousands of calls. It is proved for the calls of `catalogue.rs`.
const TOO_LONG: &str = "mixed/all";

/// The workloads that repeat themselves soon.
fn endless() -> impl Iterator<Item = Workload> {
    workloads().into_iter().filter(|one| one.name != TOO_LONG)
}

fn assert_proved(workload: &Workload, ranks: u32, size: Size) -> u32 {
    let verdict = workload.prove_any_calls(ranks, size).unwrap();
    let of = format!("{} on {ranks} ranks, {}", workload.name, size.name());
    assert!(verdict.is_proved(), "{of}: {verdict}");
    let reuse = verdict.reuse;
    let reuse = reuse.unwrap_or_else(|| panic!("{of} does not repeat itself within {} calls", verdict.calls));
    reuse.period
}

#[test]
fn every_algorithm_is_proved_for_any_number_of_calls() {
    let is_long = std::env::var_os("RINGWORK_LONG").is_some();
    let ranks: &[u32] = if is_long { &[2, 3, 4, 8] } else { &[2, 3] };
    let (mut programs, mut longest) = (0, 0);
    for workload in endless() {
        for ranks in ranks.iter().copied().filter(|ranks| workload.fits(*ranks)) {
            for size in Size::ALL {
                longest = longest.max(assert_proved(&workload, ranks, size));
                programs += 1;
            }
        }
    }
    println!("{programs} programs repeat themselves, the last after {longest} calls");
}
