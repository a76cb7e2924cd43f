//! Schemes known to be wrong, to show that the test engine would notice if ours were.
//!
//! Each was found by exhaustive exploration or nearly happened here. The right version of each runs under
//! the very same schedules, so a detector that cries wolf fails too.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test that panics has failed"
)]

mod support;

use ringwork_collectives::Algorithm;
use ringwork_collectives::packets::{self, ring_packets};
use ringwork_collectives::window::{self, Spread};
use ringwork_isa::stepped::SteppedCore;
use ringwork_isa::{
    Compare, Core, Dtype, Epoch, InOut, Notify, Out, Packets, Rank, ReduceOp, Result, Shared, Signals, Tile,
};
use std::future::Future;
use std::rc::Rc;
use support::calls::{run_calls, typed};
use support::{Call, Failure, Op, Schedule, World};

const SEEDS: u64 = 300;
const ROUNDS: i32 = 4;

#[derive(Debug, Default)]
struct Found {
    races: u64,
    deadlocks: u64,
    last: String,
}

/// Runs a kernel under many schedules of a kind, and counts what is found.
fn explore<F: Future<Output = Result<()>> + 'static>(
    ranks: u32,
    schedule: impl Fn(u64) -> Schedule,
    kernel: impl Fn(SteppedCore, Rank, Rc<World>) -> F + Copy,
) -> Found {
    let mut found = Found::default();
    for seed in 0..SEEDS {
        let world = Rc::new(World::new(ranks, 64));
        let outcome = world.run(schedule(seed), |core, rank| {
            Box::pin(kernel(core, rank, world.clone()))
        });
        match &outcome {
            Ok(results) => assert!(results.iter().all(Result::is_ok), "{results:?}"),
            Err(Failure::Race(_)) => found.races += 1,
            Err(Failure::Deadlock(_)) => found.deadlocks += 1,
            Err(Failure::TooLong) => panic!("a kernel here is short"),
        }
        if let Err(failure) = outcome {
            found.last = failure.to_string();
        }
    }
    found
}

fn random(seed: u64) -> Schedule {
    Schedule::Random(seed)
}

fn priority(seed: u64) -> Schedule {
    Schedule::Priority {
        seed,
        depth: (seed % 4) as usize,
    }
}

/// Explores both ways: random schedules and priorities find different bugs.
fn both<F: Future<Output = Result<()>> + 'static>(
    ranks: u32,
    kernel: impl Fn(SteppedCore, Rank, Rc<World>) -> F + Copy,
) -> Found {
    let (a, b) = (explore(ranks, random, kernel), explore(ranks, priority, kernel));
    Found {
        races: a.races + b.races,
        deadlocks: a.deadlocks + b.deadlocks,
        last: if b.last.is_empty() { a.last } else { b.last },
    }
}

/// One-phase all-reduces of one element, staged where `slot` says for each epoch.
async fn one_phase(
    core: SteppedCore,
    rank: Rank,
    world: Rc<World>,
    slot: fn(Shared<i32>, Epoch) -> Shared<i32>,
) -> Result<()> {
    let (meet, scratch) = (world.meet(rank), world.scratch::<i32>(rank));
    let y: Out<i32> = typed(scratch.slice(15..16)?.span());
    for _ in 0..ROUNDS {
        let epoch = meet.epoch(&core).await?;
        let slot = slot(scratch.slice(0..2)?, epoch).slice(0..1)?;
        core.store(slot, &Tile::new(vec![epoch.into()])).await?;
        meet.arrive(&core, epoch).await?;
        meet.wait(&core, epoch).await?;
        core.reduce(y, slot.on_all(), ReduceOp::Sum).await?;
    }
    Ok(())
}

#[test]
fn epochs_with_a_single_scratch_buffer_race_and_with_two_halves_do_not() {
    let single = |core, rank, world| one_phase(core, rank, world, |scratch, _| scratch);
    let halves = |core, rank, world| one_phase(core, rank, world, |scratch, epoch| scratch.half(epoch));
    assert!(explore(2, random, single).races > SEEDS / 2);
    assert!(explore(2, priority, single).races > 0);
    for ranks in 2..=4 {
        let found = both(ranks, halves);
        assert_eq!((found.races, found.deadlocks), (0, 0), "{}", found.last);
    }
}

/// Meets on a pairwise matrix: rank i writes cell i of every peer, and waits for all its own cells.
async fn matrix_meet(
    core: &SteppedCore,
    matrix: Signals,
    how: Notify,
    (compare, operand): (Compare, i32),
) -> Result<()> {
    let me = matrix.rank().0;
    for peer in (0..matrix.ranks()).filter(|&peer| peer != me) {
        core.notify(matrix.at(me)?.on(Rank(peer))?, how).await?;
    }
    for peer in (0..matrix.ranks()).filter(|&peer| peer != me) {
        core.wait(matrix.at(peer)?, compare, operand).await?;
    }
    Ok(())
}

/// Rounds of: stage in the half of the round, meet on the matrix as told, reduce.
async fn matrix_rounds(
    core: SteppedCore,
    rank: Rank,
    world: Rc<World>,
    rule: fn(i32) -> (Notify, (Compare, i32)),
) -> Result<()> {
    let (matrix, scratch) = (world.matrix(rank), world.scratch::<i32>(rank));
    for round in 1..=ROUNDS {
        let slot = scratch.half(Epoch::of(round)).slice(0..1)?;
        core.store(slot, &Tile::new(vec![round])).await?;
        let (how, until) = rule(round);
        matrix_meet(&core, matrix, how, until).await?;
        core.reduce(scratch.slice(7..8)?, slot.on_all(), ReduceOp::Sum)
            .await?;
    }
    Ok(())
}

#[test]
fn waiting_for_at_least_one_again_passes_too_early_and_for_the_round_does_not() {
    let reused = |core, rank, world| matrix_rounds(core, rank, world, |_| (Notify::Add(1), (Compare::Ge, 1)));
    let by_epoch =
        |core, rank, world| matrix_rounds(core, rank, world, |round| (Notify::Add(1), (Compare::Ge, round)));
    assert!(explore(2, random, reused).races > 0);
    assert!(explore(2, priority, reused).races > 0);
    for ranks in 2..=3 {
        let found = both(ranks, by_epoch);
        assert_eq!((found.races, found.deadlocks), (0, 0), "{}", found.last);
    }
}

#[test]
fn sense_reversal_deadlocks_and_the_report_says_who_waits_where_for_what() {
    let sense = |core, rank, world| {
        matrix_rounds(core, rank, world, |round| {
            (Notify::Set(round % 2), (Compare::Eq, round % 2))
        })
    };
    let (by_chance, by_priority) = (explore(2, random, sense), explore(2, priority, sense));
    assert!(by_chance.deadlocks > 0, "{by_chance:?}");
    assert!(by_priority.deadlocks > SEEDS / 2, "{by_priority:?}");
    let report = by_priority.last;
    assert!(
        report.starts_with("deadlock:\n  rank 0 waited at ") && report.contains("known_bad.rs:"),
        "{report}"
    );
    assert!(report.contains("for signal 1 of rank 0 to be == "), "{report}");
}

#[test]
fn clearing_a_signal_after_use_loses_one() {
    async fn clearing(core: SteppedCore, rank: Rank, world: Rc<World>) -> Result<()> {
        let matrix = world.matrix(rank);
        for _ in 0..ROUNDS {
            matrix_meet(&core, matrix, Notify::Add(1), (Compare::Ge, 1)).await?;
            for peer in (0..matrix.ranks()).filter(|&peer| peer != rank.0) {
                core.notify(matrix.at(peer)?, Notify::Set(0)).await?;
            }
        }
        Ok(())
    }
    let found = both(2, clearing);
    // Either two write the same word at once, or the signal is lost and somebody waits for ever.
    assert!(found.races > 0 && found.deadlocks > 0, "{found:?}");
}

#[test]
fn two_epochs_in_one_operation_bring_back_the_same_half_and_race() {
    async fn two_epochs(core: SteppedCore, rank: Rank, world: Rc<World>) -> Result<()> {
        let (meet, scratch) = (world.meet(rank), world.scratch::<i32>(rank));
        let ranks = meet.ranks() as usize;
        for _ in 0..ROUNDS {
            let slot = scratch.half(meet.epoch(&core).await?).slice(0..ranks)?;
            let staged = Tile::new(vec![1; ranks]);
            core.store(slot, &staged).await?;
            meet.arrive_and_wait(&core).await?;
            let mine = slot.part(ranks, rank.0 as usize)?;
            core.reduce(mine, mine.on_all(), ReduceOp::Sum).await?;
            meet.arrive_and_wait(&core).await?;
            for peer in 0..meet.ranks() {
                core.load(slot.on(Rank(peer))?.part(ranks, peer as usize)?)
                    .await?;
            }
        }
        Ok(())
    }
    assert!(both(3, two_epochs).races > 0);
    // Ours, with the first meeting in the step cells.
    clean(3, &[Op::AllReduce(Algorithm::TwoPhase); 4]);
}

#[test]
fn a_broadcast_that_waits_for_the_root_only_lets_the_root_run_ahead() {
    async fn eager(core: SteppedCore, rank: Rank, world: Rc<World>) -> Result<()> {
        let (meet, scratch) = (world.meet(rank), world.scratch::<i32>(rank));
        for _ in 0..ROUNDS {
            let epoch = meet.epoch(&core).await?;
            let slot = scratch.half(epoch).slice(0..1)?;
            if rank == Rank(0) {
                core.store(slot, &Tile::new(vec![epoch.into()])).await?;
            }
            meet.arrive(&core, epoch).await?;
            core.wait(meet.signals().at(0)?.on(Rank(0))?, Compare::Ge, epoch)
                .await?;
            core.load(slot.on(Rank(0))?).await?;
        }
        Ok(())
    }
    assert!(both(2, eager).races > 0);
    clean(2, &[Op::Broadcast; 4]);
}

#[test]
fn data_in_a_window_may_be_changed_after_a_call_but_not_before_all_have_left() {
    /// A two-shot by pull without the last meeting.
    async fn hasty(core: SteppedCore, rank: Rank, world: Rc<World>) -> Result<()> {
        let (meet, data) = (world.meet(rank), world.scratch::<i32>(rank));
        let (me, ranks) = (rank.0 as usize, meet.ranks());
        meet.arrive_and_wait(&core).await?;
        let mine = data.part(ranks as usize, me)?;
        core.reduce(mine, mine.on_all(), ReduceOp::Sum).await?;
        meet.arrive_and_wait(&core).await?;
        for step in 1..ranks {
            let peer = Rank((rank.0 + step) % ranks);
            let part = data.part(ranks as usize, peer.0 as usize)?;
            core.copy(part, part.on(peer)?).await?;
        }
        core.store(data, &Tile::new(vec![0; data.len()])).await
    }
    async fn ours(core: SteppedCore, rank: Rank, world: Rc<World>, spread: Spread) -> Result<()> {
        let data = world.scratch::<i32>(rank);
        for _ in 0..2 {
            core.store(data, &Tile::new(vec![1; data.len()])).await?;
            window::all_reduce(&core, world.meet(rank), data.erase(), ReduceOp::Sum, spread).await?;
        }
        core.store(data, &Tile::new(vec![0; data.len()])).await
    }
    assert!(both(3, hasty).races > 0);
    for found in [
        both(3, |core, rank, world| ours(core, rank, world, Spread::Pull)),
        both(3, |core, rank, world| ours(core, rank, world, Spread::Push(3))),
        both(3, |core, rank, world| ours(core, rank, world, Spread::Push(2))),
    ] {
        assert_eq!((found.races, found.deadlocks), (0, 0), "{}", found.last);
    }
}

#[test]
fn a_ring_of_packets_whose_places_nobody_meets_for_races_and_ours_does_not() {
    const RANKS: u32 = 3;
    const PLACES: u32 = ring_packets(RANKS as usize) as u32;
    const NUMBERS: i32 = 6 * PLACES as i32;
    /// A root for twice around the ring, then another: with a new one for every number nobody gets ahead.
    fn root(number: i32) -> Rank {
        Rank(number.cast_unsigned() / (2 * PLACES) % RANKS)
    }
    async fn hasty(core: SteppedCore, rank: Rank, world: Rc<World>) -> Result<()> {
        // A ring of one place.
        let (area, given) = (world.scratch::<i64>(rank), world.steps(rank).own(0)?);
        let packets = Packets::new(area, (0, 8, 8), 1, given)?;
        let data: InOut<i32> = typed(world.private_buffer(Dtype::I32, 1)[rank.0 as usize]);
        for number in 1..=NUMBERS {
            let root = root(number);
            if rank == root {
                core.put_packet(&packets, data, Epoch::of(number)).await?;
            } else {
                core.get_packet(data, &packets.on(root)?, Epoch::of(number))
                    .await?;
            }
            core.notify(given.signal(), Notify::Set(number)).await?;
        }
        Ok(())
    }
    async fn ours(core: SteppedCore, rank: Rank, world: Rc<World>) -> Result<()> {
        let (team, data) = (world.team::<i32>(rank), world.scratch::<i32>(rank));
        for number in 1..=NUMBERS {
            let (root, y) = (root(number), data.slice(0..1)?);
            if rank == root {
                core.store(y, &Tile::new(vec![number])).await?;
            }
            packets::broadcast(&core, &team.ring()?, y.into(), y.into(), root).await?;
            assert_eq!(core.load(y).await?.values(), [number]);
        }
        Ok(())
    }
    assert!(explore(RANKS, priority, hasty).races > 0);
    let found = both(RANKS, ours);
    assert_eq!((found.races, found.deadlocks), (0, 0), "{}", found.last);
}

#[test]
fn a_window_may_be_changed_after_every_zero_copy_collective() {
    async fn changing(core: SteppedCore, rank: Rank, world: Rc<World>) -> Result<()> {
        let (meet, data) = (world.meet(rank), world.scratch::<i32>(rank));
        let mine = data.part(data.ranks() as usize, rank.0 as usize)?;
        let ones = Tile::new(vec![1; data.len()]);
        let change = || core.store(data, &ones);
        change().await?;
        window::all_gather(&core, meet, data.erase()).await?;
        change().await?;
        window::broadcast(&core, meet, data.erase(), Rank(1)).await?;
        change().await?;
        window::reduce_scatter(&core, meet, data.erase(), mine.into(), ReduceOp::Sum).await?;
        change().await
    }
    for ranks in 2..=4 {
        let found = both(ranks, changing);
        assert_eq!((found.races, found.deadlocks), (0, 0), "{}", found.last);
    }
}

#[test]
fn a_rank_that_leaves_out_a_call_is_a_deadlock_that_names_the_signal_and_the_need() {
    let world = Rc::new(World::new(3, 64));
    let outcome = world.run(Schedule::Random(1), |core, rank| {
        let world = world.clone();
        Box::pin(async move {
            let calls = if rank == Rank(2) { 1 } else { 2 };
            for _ in 0..calls {
                ringwork_collectives::barrier(&core, world.team::<f32>(rank)).await?;
            }
            Ok(())
        })
    });
    let Err(Failure::Deadlock(waiting)) = outcome else {
        panic!("{outcome:?}");
    };
    assert_eq!(waiting.len(), 2);
    for waited in waiting {
        assert_eq!((waited.on, waited.value, waited.needed), (Rank(2), 1, 2));
        assert!(waited.site.file.ends_with("barrier.rs"));
    }
}

#[test]
fn a_read_without_any_signal_is_a_race_that_names_both_lines() {
    let found = both(2, |core, rank, world| async move {
        let scratch = world.scratch::<i32>(rank);
        if rank == Rank(0) {
            core.store(scratch, &Tile::new(vec![1; 16])).await
        } else {
            core.load(scratch.on(Rank(0))?).await.map(drop)
        }
    });
    assert_eq!(found.races, 2 * SEEDS);
    assert_eq!(found.last.matches("known_bad.rs:").count(), 2, "{}", found.last);
}

/// Our own operations, under the same number of schedules of both kinds.
fn clean(ranks: u32, ops: &[Op]) {
    let calls: Vec<Call> = ops
        .iter()
        .map(|&op| Call {
            op,
            dtype: Dtype::I32,
            reduce: ReduceOp::Sum,
            count: 5,
            root: 0,
            in_place: false,
        })
        .collect();
    for seed in 0..SEEDS {
        for schedule in [random(seed), priority(seed)] {
            if let Err(error) = run_calls(World::new(ranks, 64), &calls, schedule, seed) {
                panic!("{error}");
            }
        }
    }
}
