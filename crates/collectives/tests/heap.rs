//! Collectives as they ship, on `NativeCore`, a thread per rank, on heap memory: what Miri can run.
//!
//! The matrix of sizes, types and schedules is checked elsewhere; here it is the unsafe code underneath,
//! and that everything it does is ordered by signals: Miri reports what is not as a data race.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![allow(clippy::cast_possible_truncation, reason = "patterns are small numbers")]

use ringwork_collectives::{
    Team, all_gather, all_reduce, all_to_all, barrier, broadcast, reduce, reduce_scatter,
};
use ringwork_isa::{Barrier, Core, Device, Dtype, Rank, ReduceOp, Result, Segment, Shared, Tile, part_range};
use ringwork_layout::{BufferPlace, CellRow, Layout};
use ringwork_native::cell::Patience;
use ringwork_native::segment::Attached;
use ringwork_native::{NativeCore, Waiting};
use std::sync::Arc;
use std::time::Duration;

const COUNT: usize = 7;
const SCRATCH_BYTES: u64 = 256;
fn packet_area_bytes(ranks: u32) -> u64 {
    Team::packet_words(ranks as usize, 100) as u64 * 8
}

/// A rank's handles: a team, an input and an output of `COUNT`.
struct Place {
    team: Team,
    x: Shared<i32>,
    y: Shared<i32>,
}

fn place(layout: &Layout, me: Rank) -> Place {
    let place = |dtype: Dtype, offset: u64, count: usize| BufferPlace { offset, dtype, count };
    let region = |offset: u64, len: usize| layout.region(me, place(Dtype::I32, offset, len));
    let signals = |first: u32, count: u32| layout.signals(me, CellRow { first, count });
    let meet = Barrier::new(signals(0, 1));
    let words = packet_area_bytes(layout.ranks) as usize / 8;
    let packets = layout.region(me, place(Dtype::I64, SCRATCH_BYTES + 128, words));
    Place {
        team: Team::new(
            region(0, SCRATCH_BYTES as usize / 4),
            meet,
            signals(1, Team::STEP_CELLS),
        )
        .unwrap()
        .with_packets(packets)
        .unwrap(),
        x: region(SCRATCH_BYTES, COUNT),
        y: region(SCRATCH_BYTES + 64, COUNT),
    }
}

/// Runs a kernel on every rank of a domain, a thread each.
fn on_threads(ranks: u32, kernel: impl AsyncFn(&NativeCore, Place) -> Result<()> + Sync) {
    let layout = Layout::windows(
        Segment(1),
        ranks,
        1 + Team::STEP_CELLS,
        SCRATCH_BYTES + 128 + packet_area_bytes(ranks),
    )
    .unwrap();
    let segment = Arc::new(Attached::on_heap(layout).unwrap());
    let one = |rank| {
        let patience = Patience {
            spin: Duration::ZERO,
            yields: 1,
        };
        let limit = Duration::from_secs(120);
        let mut core = NativeCore::new(Device(rank), Waiting { patience, limit });
        core.attach(segment.clone());
        core.run(kernel(&core, place(&layout, Rank(rank))))
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..ranks)
            .map(|rank| (rank, scope.spawn(move || one(rank))))
            .collect();
        for (rank, thread) in threads {
            assert_eq!(thread.join().unwrap(), Ok(()), "rank {rank}");
        }
    });
}

/// What rank `r` puts in: `100 r + i`.
fn input(rank: i32) -> Vec<i32> {
    (0..COUNT as i32).map(|i| 100 * rank + i).collect()
}

async fn holds<C: Core>(core: &C, region: Shared<i32>, wanted: Vec<i32>) -> Result<()> {
    assert_eq!(core.load(region).await?.values(), wanted);
    Ok(())
}

#[test]
fn every_all_reduce_gives_its_closed_form_over_and_over() {
    for ranks in [2, 3] {
        on_threads(ranks, async |core, Place { team, x, y }| {
            let n = x.ranks().cast_signed();
            let sums: Vec<i32> = (0..COUNT as i32).map(|i| n * i + 50 * n * (n - 1)).collect();
            core.store(x, &Tile::new(input(x.me().0.cast_signed()))).await?;
            for algorithm in ringwork_collectives::all_reduce::BY_TEAM
                .into_iter()
                .chain(ringwork_collectives::all_reduce::BY_TEAM)
            {
                core.store(y, &Tile::new(vec![-1; COUNT])).await?;
                all_reduce(core, team, x.into(), y.into(), ReduceOp::Sum, algorithm).await?;
                holds(core, y, sums.clone()).await?;
            }
            Ok(())
        });
    }
}

#[test]
fn the_other_collectives_give_their_closed_forms() {
    on_threads(3, async |core, Place { team, x, y }| {
        let (n, me) = (3, x.me().0 as usize);
        let rank = x.me().0.cast_signed();
        let sums: Vec<i32> = (0..COUNT as i32).map(|i| 3 * i + 300).collect();
        let part = part_range(COUNT, n, me);
        core.store(x, &Tile::new(input(rank))).await?;

        broadcast(core, team, x.into(), y.into(), Rank(1)).await?;
        holds(core, y, input(1)).await?;

        reduce(core, team, x.into(), y.into(), ReduceOp::Sum, Rank(2)).await?;
        holds(core, y, if me == 2 { sums.clone() } else { input(1) }).await?;

        let mine = y.slice(part.clone())?;
        reduce_scatter(core, team, x.into(), mine.into(), ReduceOp::Sum).await?;
        holds(core, mine, sums[part.clone()].to_vec()).await?;

        all_gather(core, team, mine.into(), y.into()).await?;
        holds(core, y, sums).await?;

        barrier(core, team).await?;
        let (six, out) = (x.slice(0..6)?, y.slice(0..6)?);
        all_to_all(core, team, six.into(), out.into()).await?;
        let from = |peer: i32| [100 * peer + 2 * rank, 100 * peer + 2 * rank + 1];
        holds(core, out, (0..3).flat_map(from).collect()).await
    });
}
