//! Proofs for any number of calls: a program that repeats itself goes on so for ever.

use ringwork_check::{Fault, Program, Reuse, Seat};
use ringwork_isa::stepped::SteppedCore;
use ringwork_isa::{Compare, Core, Notify, Rank, Result, Tile};

/// Every rank writes its line and reads that of the next.
async fn exchange(core: &SteppedCore, seat: &Seat, place: u64) -> Result<()> {
    let meet = seat.barrier();
    let line = seat.buffer::<i32>(place, 8);
    core.store(line, &Tile::new(vec![1; 8])).await?;
    meet.arrive_and_wait(core).await?;
    let next = Rank((seat.me.0 + 1) % seat.layout.ranks);
    core.load(line.on(next)?).await.map(drop)
}

fn reuse_of(calls: u32, place: impl Fn(u32) -> u64 + Copy + 'static) -> Option<Reuse> {
    let program = Program::new(3, calls, async move |core, seat| {
        exchange(core, &seat, place(seat.call)).await
    });
    let verdict = program.prove_reuse();
    verdict.expect_proved();
    verdict.reuse
}

#[test]
fn two_halves_in_turn_repeat_themselves_after_two_calls() {
    let reuse = reuse_of(8, |call| u64::from(call % 2) * 32);
    assert!(
        matches!(
            reuse,
            Some(Reuse {
                period: 2,
                after: 0..=2
            })
        ),
        "{reuse:?}"
    );
}

#[test]
fn five_places_in_turn_repeat_themselves_after_five_calls() {
    let places = |call| u64::from(call % 5) * 32;
    assert_eq!(reuse_of(16, places).map(|reuse| reuse.period), Some(5));
    // Two periods must have been seen.
    assert_eq!(reuse_of(9, places), None);
}

#[test]
fn what_never_comes_back_is_not_repeated() {
    assert_eq!(reuse_of(16, |call| u64::from(call) * 32), None);
}

#[test]
fn the_verdict_says_from_when_on_and_how_often() {
    let program = Program::new(2, 8, async |core, seat| {
        exchange(core, &seat, u64::from(seat.call % 2) * 32).await
    });
    let text = program.prove_reuse().to_string();
    assert!(
        text.starts_with("proved for 2 ranks and any number of calls (tier 3: "),
        "{text}"
    );
    assert!(text.ends_with("on, every 2)"), "{text}");
    assert!(program.prove().reuse.is_none());
}

/// Rank 0 writes into four places of rank 1 in turn and never asks whether they were read.
#[test]
fn a_fault_that_comes_late_is_found() {
    let program = |calls| {
        Program::new(2, calls, async |core, seat| {
            let place = seat.buffer::<i32>(u64::from(seat.call % 4) * 32, 8);
            let (full, epoch) = (seat.signal(0)?, seat.call.cast_signed() + 1);
            if seat.me == Rank(0) {
                core.store(place.on(Rank(1))?, &Tile::new(vec![1; 8])).await?;
                return core.notify(full.on(Rank(1))?, Notify::Set(epoch)).await;
            }
            core.wait(full, Compare::Ge, epoch).await?;
            core.load(place).await.map(drop)
        })
    };
    program(4).prove().expect_proved();
    assert_eq!(program(4).prove_reuse().reuse, None);
    let verdict = program(12).prove_reuse();
    assert!(matches!(verdict.faults[..], [Fault::Race(_), ..]), "{verdict}");
    assert_eq!(verdict.reuse, None);
}

/// Which calls touch what is written once and never again does not matter later.
#[test]
fn what_happened_once_does_not_keep_a_program_from_repeating_itself() {
    let program = Program::new(3, 12, async |core, seat| {
        if seat.call == 0 {
            let once = seat.buffer::<i32>(1024, 8);
            core.store(once, &Tile::new(vec![1; 8])).await?;
        }
        exchange(core, &seat, u64::from(seat.call % 2) * 32).await
    });
    let verdict = program.prove_reuse();
    assert!(
        matches!(
            verdict.reuse,
            Some(Reuse {
                period: 2,
                after: 1..=3
            })
        ),
        "{verdict}"
    );
}
