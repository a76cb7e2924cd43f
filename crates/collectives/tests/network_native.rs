//! The network algorithms as they ship, on `NativeCore`, a thread per rank, on heap memory.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use ringwork_collectives::network::{NetworkAlgorithm, all_reduce};
use ringwork_isa::{
    Core, Device, Dtype, Queues, Rank, ReduceOp, Region, Result, Segment, Shared, Signals, Span, Tile,
};
use ringwork_native::cell::Patience;
use ringwork_native::memory::PAGE_BYTES;
use ringwork_native::segment::{Attached, Layout};
use ringwork_native::{NativeCore, Waiting};
use std::sync::Arc;
use std::time::Duration;

const COUNT: usize = 23;
const SLOT: usize = 5;
const DEPTH: u32 = 2;
/// Rounds, so that slots and numbers are used again.
const ROUNDS: i32 = 3;

fn region(layout: &Layout, me: Rank, offset: u64, len: usize) -> Shared<i32> {
    Region::from_span(Span {
        segment: layout.segment,
        base: layout.data_offset() + offset,
        stride: layout.stride,
        me,
        rank: me,
        ranks: layout.ranks,
        dtype: Dtype::I32,
        start: 0,
        len: len as u64,
    })
    .unwrap()
}

async fn rounds(
    core: &NativeCore,
    layout: &Layout,
    me: Rank,
    sizes: &[u32],
    algorithm: NetworkAlgorithm,
) -> Result<()> {
    let ports = algorithm.ports(sizes);
    let cells = Signals {
        segment: layout.segment,
        base: PAGE_BYTES,
        stride: layout.stride,
        count: Queues::<i32>::cells(ports, DEPTH),
        me,
        ranks: layout.ranks,
    };
    let (x, y) = (region(layout, me, 0, COUNT), region(layout, me, 128, COUNT));
    let slots = region(layout, me, 256, SLOT * ports as usize * DEPTH as usize);
    let queues = Queues::new(slots, cells, ports, DEPTH)?;
    let input = |rank: i32, round: i32| (0..23).map(move |i| rank * 100 + i * round);
    for round in 1..=ROUNDS {
        core.store(x, &Tile::new(input(me.0.cast_signed(), round).collect()))
            .await?;
        all_reduce(
            core,
            queues,
            sizes,
            x.into(),
            y.into(),
            (ReduceOp::Sum, algorithm),
        )
        .await?;
        let ranks = layout.ranks.cast_signed();
        let sums: Vec<i32> = (0..23)
            .map(|i| (0..ranks).map(|rank| rank * 100 + i * round).sum())
            .collect();
        assert_eq!(
            core.load(y).await?.values(),
            sums,
            "{algorithm} {sizes:?} round {round}"
        );
    }
    Ok(())
}

#[test]
fn every_network_algorithm_leaves_the_sum_on_every_rank_round_after_round() {
    for sizes in [&[1u32][..], &[2], &[3], &[2, 2]] {
        for algorithm in NetworkAlgorithm::ALL {
            let ranks: u32 = sizes.iter().product();
            let ports = algorithm.ports(sizes);
            let bytes = 256 + 4 * SLOT as u64 * u64::from(ports * DEPTH);
            let cells = Queues::<i32>::cells(ports, DEPTH);
            let layout = Layout::windows(Segment(3), ranks, cells, bytes).unwrap();
            let windows = Arc::new(Attached::on_heap(layout).unwrap());
            std::thread::scope(|scope| {
                for rank in 0..ranks {
                    let windows = windows.clone();
                    scope.spawn(move || {
                        let patience = Patience {
                            spin: Duration::ZERO,
                            yields: 1,
                        };
                        let limit = Duration::from_secs(60);
                        let mut core = NativeCore::new(Device(rank), Waiting { patience, limit });
                        core.attach(windows.clone());
                        core.run(rounds(&core, &windows.layout(), Rank(rank), sizes, algorithm))
                            .unwrap();
                    });
                }
            });
        }
    }
}
