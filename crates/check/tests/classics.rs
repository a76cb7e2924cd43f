//! Three faults that are often made when signals are used again, each found with the shortest execution that shows it.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use ringwork_check::{Fault, Program, Proof, Seat, Verdict};
use ringwork_isa::stepped::SteppedCore;
use ringwork_isa::{Compare, Core, Notify, Rank, Result, Signal, Tile};

/// The cell of mine that `peer` notifies.
fn from(seat: &Seat, peer: u32) -> Result<Signal> {
    seat.signal(peer)
}

fn others(seat: &Seat) -> impl Iterator<Item = u32> + use<> {
    let (me, ranks) = (seat.me.0, seat.layout.ranks);
    (0..ranks).filter(move |peer| *peer != me)
}

/// Says to everybody that I am here.
async fn notify_all(core: &SteppedCore, seat: &Seat, how: Notify) -> Result<()> {
    for peer in others(seat) {
        core.notify(seat.signal(seat.me.0)?.on(Rank(peer))?, how).await?;
    }
    Ok(())
}

async fn wait_for_all(core: &SteppedCore, seat: &Seat, compare: Compare, value: i32) -> Result<()> {
    for peer in others(seat) {
        core.wait(from(seat, peer)?, compare, value).await?;
    }
    Ok(())
}

/// Checks that the trace is a real execution that ends in the same fault.
fn replays(program: &Program, verdict: &Verdict) -> usize {
    let trace = verdict.trace.as_ref().unwrap();
    let text = trace.schedule.to_string();
    let again = program.replay(&text.parse().unwrap()).unwrap();
    assert_eq!(again.steps.len(), trace.steps.len());
    let kind = |fault: &Fault| std::mem::discriminant(fault);
    assert_eq!(
        again.faults.first().map(kind),
        verdict.faults.first().map(kind),
        "{verdict}"
    );
    assert!(trace.is_shortest, "{verdict}");
    trace.steps.len()
}

/// A barrier whose signals are set once: the second time it is open before anybody has come.
#[test]
fn a_barrier_of_one_shot_signals_is_no_barrier_the_second_time() {
    let program = |calls| {
        Program::new(2, calls, async |core, seat| {
            let place = seat.buffer::<i32>(u64::from(seat.call % 2) * 4, 1);
            core.store(place, &Tile::new(vec![1])).await?;
            notify_all(core, &seat, Notify::Set(1)).await?;
            wait_for_all(core, &seat, Compare::Ge, 1).await?;
            core.load(place.on(Rank(1 - seat.me.0))?).await.map(drop)
        })
    };
    program(1).prove().expect_proved();
    let verdict = program(2).prove();
    let [Fault::Race(race), ..] = &verdict.faults[..] else {
        panic!("{verdict}");
    };
    assert_eq!((race.first.call, race.second.call), (1, 1), "{verdict}");
    // One rank has done both calls (8 instructions), the other its first and the store of its second (5).
    assert_eq!(replays(&program(2), &verdict), 13, "{verdict}");
    assert!(
        verdict
            .to_string()
            .contains("is satisfied by a notify of call 0 already"),
        "{verdict}"
    );
}

/// A barrier with one bit that changes its sense: a fast rank takes its bit back before the slow one has seen it.
#[test]
fn a_barrier_with_one_bit_of_sense_deadlocks() {
    let program = |calls| {
        Program::new(2, calls, async |core, seat| {
            let sense = 1 - (seat.call % 2).cast_signed();
            notify_all(core, &seat, Notify::Set(sense)).await?;
            wait_for_all(core, &seat, Compare::Eq, sense).await
        })
    };
    assert!(program(1).prove().is_proved());
    let verdict = program(2).prove();
    assert!(
        matches!(&verdict.faults[..], [Fault::Deadlock(stuck)] if stuck.len() == 2),
        "{verdict}"
    );
    // Set 1, Set 1, the fast rank's wait, its Set 0: then both wait for ever.
    assert_eq!(replays(&program(2), &verdict), 4, "{verdict}");
    assert!(!verdict.ordered.is_empty());
}

/// A signal that is reset after each wait: a notify that comes before the reset is lost.
#[test]
fn a_reset_loses_the_signal_that_came_before_it() {
    let program = |reset: Notify| {
        Program::new(2, 2, async move |core, seat| {
            let signal = seat.signal(0)?.on(Rank(1))?;
            if seat.me == Rank(0) {
                return core.notify(signal, Notify::Add(1)).await;
            }
            core.wait(signal, Compare::Ge, 1).await?;
            core.notify(signal, reset).await
        })
    };
    let verdict = program(Notify::Set(0)).prove();
    assert!(
        matches!(&verdict.faults[..], [Fault::Deadlock(stuck)] if stuck.len() == 1),
        "{verdict}"
    );
    // Add, Add, wait, Set 0: the second Add is gone.
    assert_eq!(replays(&program(Notify::Set(0)), &verdict), 4, "{verdict}");
    assert!(
        verdict.to_string().contains("a reset loses what came before it"),
        "{verdict}"
    );
    // Taking away what was waited for loses nothing.
    let right = program(Notify::Add(-1)).prove();
    assert_eq!(right.proof, Some(Proof::AllExecutions), "{right}");
}
