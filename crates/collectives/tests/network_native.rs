//! The network algorithms as they ship, on `NativeCore`, a thread per rank, on heap memory.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use ringwork_collectives::catalogue::{self, CATALOGUE, Call, Entry, Needs, Resources};
use ringwork_collectives::network::ports;
use ringwork_isa::{Core, Counts, Device, Dtype, Queues, Rank, ReduceOp, Result, Segment, Tile};
use ringwork_layout::{BufferPlace, CellRow, Layout, WindowBuilder};
use ringwork_native::cell::Patience;
use ringwork_native::segment::Attached;
use ringwork_native::{NativeCore, Waiting};
use std::sync::Arc;
use std::time::Duration;

const COUNT: usize = 24;
const SLOT: usize = 5;
const DEPTH: u32 = 2;
/// Rounds, so that slots and numbers are used again.
const ROUNDS: i32 = 3;

/// All entries that go over queues.
fn by_queues() -> impl Iterator<Item = &'static Entry> {
    CATALOGUE.iter().filter(|entry| entry.needs == Needs::Queues)
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

fn places(entry: &Entry, ranks: u32, ports: u32) -> Places {
    let mut window = WindowBuilder::default();
    let slots = SLOT * ports as usize * DEPTH as usize;
    let Counts { send, recv } = entry.collective.counts(COUNT, ranks as usize);
    Places {
        cells: window.row(Queues::cells(ports, DEPTH)).unwrap(),
        x: window.buffer(Dtype::I32, send).unwrap(),
        y: window.buffer(Dtype::I32, recv).unwrap(),
        slots: window.buffer(Dtype::I32, slots).unwrap(),
        layout: window.layout(Segment(3), ranks).unwrap(),
    }
}

async fn rounds(core: &NativeCore, places: Places, me: Rank, sizes: &[u32], entry: &Entry) -> Result<()> {
    let Places { layout, cells, .. } = places;
    let [x, y, slots] = [places.x, places.y, places.slots].map(|place| layout.region::<i32>(me, place));
    let cells = layout.signals(me, cells);
    let queues = Queues::new(slots.erase(), cells, ports(entry, sizes, &[]), DEPTH)?;
    let input =
        |rank: u32, at: usize, round: i32| rank.cast_signed() * 100 + i32::try_from(at).unwrap() * round;
    for round in 1..=ROUNDS {
        let mine = (0..x.len()).map(|at| input(me.0, at, round));
        core.store(x, &Tile::new(mine.collect())).await?;
        let root = Rank(round.cast_unsigned() % layout.ranks);
        let call = Call {
            x: x.into(),
            y: y.into(),
            op: ReduceOp::Sum,
            root,
            workers: layout.ranks,
            grid: sizes,
            by_side: &[],
        };
        catalogue::run(core, entry, Resources::Queues(queues), call).await?;
        let got = core.load(y).await?;
        for piece in entry.collective.golden(me.0, layout.ranks, root.0, COUNT) {
            for (at, i) in (piece.start..).zip(piece.output) {
                let sum: i32 = piece.ranks.clone().map(|rank| input(rank, at, round)).sum();
                assert_eq!(
                    got.values()[i],
                    sum,
                    "{entry:?} {sizes:?} round {round}, element {i}"
                );
            }
        }
    }
    Ok(())
}

#[test]
fn every_network_algorithm_gives_what_it_promises_round_after_round() {
    for sizes in [&[1u32][..], &[2], &[3], &[2, 2]] {
        let ranks: u32 = sizes.iter().product();
        for entry in by_queues().filter(|entry| entry.fits(ranks, Some(sizes)).is_ok()) {
            let places = places(entry, ranks, ports(entry, sizes, &[]));
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
                        core.run(rounds(&core, places, Rank(rank), sizes, entry)).unwrap();
                    });
                }
            });
        }
    }
}
