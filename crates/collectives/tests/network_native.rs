//! The network algorithms as they ship, on `NativeCore`, a thread per rank, on heap memory.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use ringwork_collectives::Algorithm;
use ringwork_collectives::catalogue::{self, Call, Needs, Resources};
use ringwork_collectives::network::ports;
use ringwork_isa::{Collective, Core, Device, Dtype, Queues, Rank, ReduceOp, Result, Segment, Tile};
use ringwork_layout::{BufferPlace, CellRow, Layout, WindowBuilder};
use ringwork_native::cell::Patience;
use ringwork_native::segment::Attached;
use ringwork_native::{NativeCore, Waiting};
use std::sync::Arc;
use std::time::Duration;

const COUNT: usize = 23;
const SLOT: usize = 5;
const DEPTH: u32 = 2;
/// Rounds, so that slots and numbers are used again.
const ROUNDS: i32 = 3;

/// The all-reduces that go by messages.
fn by_queues() -> impl Iterator<Item = Algorithm> {
    let all = catalogue::of(Collective::AllReduce);
    all.filter(|entry| entry.needs == Needs::Queues)
        .map(|entry| entry.algorithm)
}

/// Where an algorithm's queues, their slots, its input and its output are.
#[derive(Clone, Copy)]
struct Places {
    layout: Layout,
    cells: CellRow,
    slots: BufferPlace,
    x: BufferPlace,
    y: BufferPlace,
}

fn places(ranks: u32, ports: u32) -> Places {
    let mut window = WindowBuilder::default();
    let slots = SLOT * ports as usize * DEPTH as usize;
    Places {
        cells: window.row(Queues::cells(ports, DEPTH)).unwrap(),
        x: window.buffer(Dtype::I32, COUNT).unwrap(),
        y: window.buffer(Dtype::I32, COUNT).unwrap(),
        slots: window.buffer(Dtype::I32, slots).unwrap(),
        layout: window.layout(Segment(3), ranks).unwrap(),
    }
}

async fn rounds(
    core: &NativeCore,
    places: Places,
    me: Rank,
    sizes: &[u32],
    algorithm: Algorithm,
) -> Result<()> {
    let Places { layout, cells, .. } = places;
    let [x, y, slots] = [places.x, places.y, places.slots].map(|place| layout.region::<i32>(me, place));
    let cells = layout.signals(me, cells);
    let queues = Queues::new(slots.erase(), cells, ports(algorithm, sizes), DEPTH)?;
    let input = |rank: i32, round: i32| (0..23).map(move |i| rank * 100 + i * round);
    for round in 1..=ROUNDS {
        core.store(x, &Tile::new(input(me.0.cast_signed(), round).collect()))
            .await?;
        let call = Call {
            x: x.into(),
            y: y.into(),
            op: ReduceOp::Sum,
            root: Rank(0),
            workers: layout.ranks,
            grid: sizes,
        };
        let entry = catalogue::find(Collective::AllReduce, algorithm).unwrap();
        catalogue::run(core, entry, Resources::Queues(queues), call).await?;
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
        for algorithm in by_queues() {
            let ranks: u32 = sizes.iter().product();
            let places = places(ranks, ports(algorithm, sizes));
            let windows = Arc::new(Attached::on_heap(places.layout).unwrap());
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
                        core.run(rounds(&core, places, Rank(rank), sizes, algorithm))
                            .unwrap();
                    });
                }
            });
        }
    }
}
