//! Every interleaving without the detector: it finds what the detector finds, and agrees where there is nothing.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use ringwork_check::{Program, Seat};
use ringwork_isa::stepped::SteppedCore;
use ringwork_isa::{Compare, Core, Notify, Rank, Result, Tile};

/// Every rank writes a place of its own, tells the other, waits for it, and reads its place.
async fn exchange(core: &SteppedCore, seat: &Seat, place: u32, how: Notify, value: i32) -> Result<()> {
    let other = Rank(1 - seat.me.0);
    let line = seat.buffer::<i32>(u64::from(place) * 4, 1);
    core.store(line, &Tile::new(vec![1])).await?;
    core.notify(seat.signal(seat.me.0)?.on(other)?, how).await?;
    core.wait(seat.signal(other.0)?, Compare::Ge, value).await?;
    core.load(line.on(other)?).await.map(drop)
}

#[test]
fn a_counter_and_two_halves_are_right_for_any_number_of_calls() {
    let program = Program::new(2, 12, async |core, seat| {
        exchange(
            core,
            &seat,
            seat.call % 2,
            Notify::Add(1),
            seat.call.cast_signed() + 1,
        )
        .await
    });
    let found = program.interleave(2);
    assert!(found.is_proved(), "{found:?}");
    // As many as there are positions of two ranks that are at most one call apart.
    assert!((20..400).contains(&found.states), "{found:?}");
    // More calls, the same states.
    let again = Program::new(2, 40, async |core, seat| {
        exchange(
            core,
            &seat,
            seat.call % 2,
            Notify::Add(1),
            seat.call.cast_signed() + 1,
        )
        .await
    });
    assert_eq!(again.interleave(2).states, found.states);
}

#[test]
fn one_place_and_a_signal_that_is_set_once_are_races() {
    let one_place = Program::new(2, 12, async |core, seat| {
        exchange(core, &seat, 0, Notify::Add(1), seat.call.cast_signed() + 1).await
    });
    let one_shot = Program::new(2, 12, async |core, seat| {
        exchange(core, &seat, seat.call % 2, Notify::Set(1), 1).await
    });
    for program in [one_place, one_shot] {
        let found = program.interleave(2);
        let (first, second) = found.race.unwrap();
        let mut names = [first.instruction, second.instruction];
        names.sort_unstable();
        assert_eq!(names, ["load", "store"]);
    }
}

#[test]
fn a_bit_that_changes_its_sense_is_a_deadlock() {
    let program = Program::new(2, 12, async |core, seat| {
        let (other, sense) = (Rank(1 - seat.me.0), 1 - (seat.call % 2).cast_signed());
        let mine = seat.signal(seat.me.0)?.on(other)?;
        core.notify(mine, Notify::Set(sense)).await?;
        core.wait(seat.signal(other.0)?, Compare::Eq, sense).await
    });
    let stuck = program.interleave(2).deadlock.unwrap();
    assert!(stuck.iter().all(|side| side.instruction == "wait"), "{stuck:?}");
}

#[test]
fn a_copy_under_way_races_with_who_does_not_wait_for_its_join() {
    let program = |joins_first: bool| {
        Program::new(2, 8, async move |core, seat| {
            let line = seat.buffer::<i32>(0, 1);
            let (data, ack) = (seat.signal(0)?, seat.signal(1)?);
            let round = seat.call.cast_signed() + 1;
            if seat.me == Rank(0) {
                core.wait(ack, Compare::Ge, round - 1).await?;
                let copy = core
                    .copy_async(line.on(Rank(1))?, seat.input::<i32>(0, 1))
                    .await?;
                if joins_first {
                    core.join(copy).await?;
                    return core.notify(data.on(Rank(1))?, Notify::Set(round)).await;
                }
                core.notify(data.on(Rank(1))?, Notify::Set(round)).await?;
                return core.join(copy).await;
            }
            core.wait(data, Compare::Ge, round).await?;
            core.load(line).await?;
            core.notify(ack.on(Rank(0))?, Notify::Set(round)).await
        })
    };
    assert!(program(true).interleave(1).is_proved());
    assert!(program(false).interleave(1).race.is_some());
}

#[test]
fn what_never_comes_back_needs_more_calls_than_there_are() {
    let program = Program::new(2, 6, async |core, seat| {
        exchange(
            core,
            &seat,
            seat.call,
            Notify::Add(1),
            seat.call.cast_signed() + 1,
        )
        .await
    });
    let found = program.interleave(2);
    assert!(found.needs_more_calls && !found.is_proved(), "{found:?}");
}
