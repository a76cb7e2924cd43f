//! Any rank may die before any of its instructions, in every algorithm: no survivor blocks, and errors name the rank that died.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use ringwork_isa::Rank;
use ringwork_proofs::{Size, Told, workloads};

#[test]
fn whoever_dies_before_whatever_instruction_is_named_and_blocks_nobody() {
    let is_long = std::env::var_os("RINGWORK_LONG").is_some();
    let program = if is_long {
        (4, 2, Size::Pieces)
    } else {
        (3, 1, Size::Whole)
    };
    let mut deaths = 0;
    for workload in workloads()
        .iter()
        .filter(|one| !one.is_mixed() && one.fits(program.0))
    {
        for victim in (0..program.0).map(Rank) {
            for number in 0.. {
                let told = [Told::AtOnce, Told::WhenStuck];
                let ends = told.map(|told| workload.with_death(program, victim, number, told).unwrap());
                for end in &ends {
                    let wrong = end.wrong(victim);
                    let of = format!(
                        "{}: rank {victim} dies before instruction {number}",
                        workload.name
                    );
                    assert_eq!(wrong, None, "{of}");
                }
                if !ends[0].has_died {
                    break;
                }
                deaths += ends.len();
            }
        }
    }
    println!("{deaths} deaths");
    assert!(deaths > 1000, "{deaths}");
}
