//! Every interleaving of every algorithm, for any number of calls, by a search that shares nothing with the detector.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use ringwork_proofs::{Size, workloads};

/// Programs with more states than this are left to the long form.
const MOST_STATES: usize = 20_000;

#[test]
fn every_interleaving_of_every_algorithm_is_right() {
    let is_long = std::env::var_os("RINGWORK_LONG").is_some();
    let (ranks, most): (&[u32], usize) = if is_long {
        (&[2, 3], 1_000_000)
    } else {
        (&[2], MOST_STATES)
    };
    let (mut proved, mut states, mut bounded) = (0, 0, Vec::new());
    // The mixture of everything repeats itself only after thousands of calls.
    for workload in workloads().into_iter().filter(|one| one.name != "mixed/all") {
        for ranks in ranks.iter().copied().filter(|ranks| workload.fits(*ranks)) {
            let found = workload.interleave(ranks, Size::Whole, most).unwrap();
            let of = format!("{} on {ranks} ranks", workload.name);
            assert_eq!((&found.race, &found.deadlock), (&None, &None), "{of}");
            assert!(!found.needs_more_calls, "{of}: {} states", found.states);
            states += found.states;
            match found.bound {
                None => proved += 1,
                Some(_) => bounded.push(of),
            }
        }
    }
    println!("{proved} programs, {states} states; not to their end: {bounded:?}");
    assert!(proved >= 30, "{proved}; not to their end: {bounded:?}");
}
