//! Counters may begin anywhere: every algorithm is proved from values before, at and after the places where they wrap.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use ringwork_proofs::{Size, workloads};

#[test]
fn every_algorithm_is_right_whatever_value_its_counters_begin_with() {
    for workload in workloads() {
        for ranks in [2, 3].into_iter().filter(|ranks| workload.fits(*ranks)) {
            // So that the wrap of `i32` and that of the sign are passed within the calls.
            for first in [-2, 7, i32::MAX - 2, i32::MIN] {
                let program = workload.program(ranks, 5, Size::Pieces).unwrap();
                let verdict = program.first_value(first).prove();
                assert!(
                    verdict.is_proved(),
                    "{} on {ranks} ranks from {first}: {verdict}",
                    workload.name
                );
            }
        }
    }
}
