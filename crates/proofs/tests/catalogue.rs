//! Every algorithm of the catalogue is proved: no race, no deadlock, every input exactly once.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use ringwork_collectives::catalogue::CATALOGUE;
use ringwork_proofs::{Size, workloads};
use std::time::Duration;

const CALLS: u32 = 3;

#[test]
fn every_algorithm_of_the_catalogue_is_proved_on_two_to_sixteen_ranks() {
    let (mut programs, mut instructions, mut elapsed) = (0, 0, Duration::ZERO);
    for workload in workloads() {
        for ranks in (2..=16).filter(|ranks| workload.fits(*ranks)) {
            for size in Size::ALL {
                let verdict = workload.program(ranks, CALLS, size).unwrap().prove();
                assert!(
                    verdict.is_proved(),
                    "{} on {ranks} ranks, {}: {verdict}",
                    workload.name,
                    size.name()
                );
                programs += 1;
                instructions += verdict.instructions;
                elapsed += verdict.elapsed;
            }
        }
    }
    let each = elapsed.as_nanos() / u128::from(instructions.max(1));
    println!("{programs} programs, {instructions} instructions in {elapsed:?}: {each} ns each");
    assert!(programs >= 15 * 3 * CATALOGUE.len(), "{programs}");
}
