//! Queues between neighbours, asynchronous copies: their times, their deadlocks.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use common::{Domain, timed, topology};
use ringwork_isa::{Compare, Core, Port, Queues, Rank, ReduceOp, Result, Segment, Tile, Work};
use ringwork_sim::{Machine, Options, SegmentSpec, SimCore, SimError, Topology};

const WEST: u32 = 0;
const EAST: u32 = 1;
const DEPTH: u32 = 4;

/// A ring of two, whose messages cross 10 GB/s and 1 us; slots at 100 GB/s and 50 ns, 20 ns to start.
fn pair() -> Topology {
    topology(
        "network: {kind: ring, size: 2, bandwidth: 10 GB/s, latency: 1 us}
chip: {memory: {name: sram, bandwidth: 100 GB/s, latency: 50 ns}, vector: 1 TB/s, queues: {memory: sram, start: 20 ns, credit: 16 B}}
",
    )
}

fn queues(d: &Domain<u8>) -> Queues<u8> {
    Queues::new(d.scratch, d.signals, 2, DEPTH).unwrap()
}

/// My ports, west and east; in a ring of two both lead to the same peer.
fn ring(d: &Domain<u8>) -> (Port<u8>, Port<u8>) {
    let (west, east) = (d.rank(d.me + d.n - 1), d.rank(d.me + 1));
    let queues = queues(d);
    (
        queues.port(WEST, west, EAST).unwrap(),
        queues.port(EAST, east, WEST).unwrap(),
    )
}

/// Picoseconds of a message of `bytes` over the link; and of one access to its slot.
fn link(bytes: u64) -> u64 {
    bytes * 100 + 1_000_000
}
fn slot(bytes: u64) -> u64 {
    bytes * 10 + 50_000
}
const START: u64 = 20_000;

#[test]
fn a_message_crosses_its_link_then_enters_and_leaves_its_slot() {
    let t = timed(&pair(), 8, 2 * 4 * 10_000, |core, d| async move {
        let (west, east) = ring(&d);
        if d.me == 0 {
            core.send(east, &Tile::hollow(10_000)).await
        } else {
            core.recv(west, 10_000).await.map(drop)
        }
    });
    // The credit is still on its way when the message is there.
    let message = START + link(10_000) + slot(10_000) + START + slot(10_000);
    assert_eq!(t, message + link(16));
}

#[test]
fn credits_bound_the_throughput_of_a_queue() {
    let count = 12;
    let t = timed(&pair(), 8, 2 * 4 * 1000, move |core, d| async move {
        let (west, east) = ring(&d);
        for _ in 0..count {
            if d.me == 0 {
                core.send(east, &Tile::hollow(1000)).await?;
            } else {
                core.recv(west, 1000).await?;
            }
        }
        Ok(())
    });
    // Four slots a round trip: the first message of each four waits for the credit of the one before.
    let round = START + link(1000) + slot(1000) + START + slot(1000) + link(16);
    assert!(t >= 3 * round, "{t} is below {}", 3 * round);
    // Within a round the four follow each other at the pace of the slowest step, the link.
    assert!(t <= 3 * round + 3 * 4 * 100_000, "{t} is far above {}", 3 * round);
}

#[test]
fn slots_that_are_joined_together_are_read_side_by_side() {
    let time = |together: bool| {
        timed(&pair(), 8, 2 * 4 * 10_000, move |core, d| async move {
            let (west, east) = ring(&d);
            if d.me == 0 {
                core.send(east, &Tile::hollow(10_000)).await?;
                return core.send(west, &Tile::hollow(10_000)).await;
            }
            if together {
                let both = [
                    core.recv_async(west, 10_000).await?,
                    core.recv_async(east, 10_000).await?,
                ];
                core.join(both).await.map(drop)
            } else {
                // Both are there before the first is read.
                core.spend(Work::Vector {
                    elements: 10_000_000,
                    dtype: ringwork_isa::Dtype::U8,
                })
                .await?;
                core.recv(west, 10_000).await?;
                core.recv(east, 10_000).await.map(drop)
            }
        })
    };
    // In a ring of two both messages share one link, the second behind the first.
    let both_there = START + 2 * 10_000 * 100 + 1_000_000 + slot(10_000);
    // And so do their credits.
    assert_eq!(time(true), both_there + START + slot(10_000) + link(32));
    assert_eq!(time(false), 10_000_000 + 2 * (START + slot(10_000)) + link(16));
}

#[test]
fn a_copy_that_is_joined_overlaps_with_compute() {
    let time = |elements: u64| {
        timed(&pair(), 10_000, 10_000, move |core, d| async move {
            if d.me > 0 {
                return Ok(());
            }
            let copy = core.copy_async(d.scratch.on(Rank(1))?, d.buffer).await?;
            core.spend(Work::Vector {
                elements,
                dtype: ringwork_isa::Dtype::U8,
            })
            .await?;
            core.join(copy).await?;
            core.reduce(d.buffer, [d.buffer], ReduceOp::Sum).await
        })
    };
    let copy = 10_000 * 100 + 1_000_000 + 2 * 50_000;
    let (short, long) = (time(1000), time(50_000_000));
    assert_eq!(
        short - copy,
        long - 50_000_000,
        "the longer of the two is what counts"
    );
}

fn machine(
    kernel: impl Fn(SimCore, Domain<u8>) -> std::pin::Pin<Box<dyn Future<Output = Result<()>>>>,
) -> Machine {
    let machine = Machine::new(&pair(), Options::default());
    machine
        .define(SegmentSpec {
            segment: Segment(1),
            members: vec![0, 1],
            bytes: Domain::<u8>::places(2, 8, 80).0.bytes(),
            memory: 0,
        })
        .unwrap();
    for rank in 0..2 {
        let d = Domain::new(rank as usize, 2, 8, 80);
        machine.spawn(rank, "ring", |core| kernel(core, d)).unwrap();
    }
    machine
}

/// Each sends to the east and receives from the west, in a ring of two.
async fn shift(core: SimCore, d: Domain<u8>, (west, east): (Port<u8>, Port<u8>)) -> Result<()> {
    let me = u8::try_from(d.me).unwrap();
    for round in 0..10 {
        core.send(east, &Tile::new(vec![me, round])).await?;
        assert_eq!(core.recv(west, 2).await?.values(), [1 - me, round]);
        core.send(west, &Tile::new(vec![me, round + 100])).await?;
        assert_eq!(core.recv(east, 2).await?.values(), [1 - me, round + 100]);
    }
    Ok(())
}

#[test]
fn a_ring_of_two_whose_neighbours_are_the_same_peer_works() {
    machine(|core, d| Box::pin(async move { shift(core, d, ring(&d)).await }))
        .run()
        .unwrap();
}

#[test]
fn a_ring_of_two_that_mixes_up_its_ports_is_reported_with_the_queue_and_the_peer() {
    let wrong = machine(|core, d| {
        Box::pin(async move {
            // East leads to the peer's east: what comes from there never arrives in the west.
            let peer = d.rank(d.me + 1);
            let (west, east) = (
                queues(&d).port(WEST, peer, WEST)?,
                queues(&d).port(EAST, peer, EAST)?,
            );
            shift(core, d, (west, east)).await
        })
    });
    let error = wrong.run().unwrap_err();
    let SimError::Deadlock { stuck, .. } = &error else {
        panic!("{error}")
    };
    assert_eq!(stuck.len(), 2);
    let text = error.to_string();
    assert!(text.contains("chip 0 (`ring`): rank 0 waited at "), "{text}");
    assert!(
        text.contains("queues.rs:")
            && text.contains("for message 1 in the queue of port 0 from rank 1, which did not send it"),
        "{text}"
    );
}

#[test]
fn a_queue_without_credit_names_the_reader_that_stopped() {
    let stopped = machine(|core, d| {
        Box::pin(async move {
            let (west, east) = ring(&d);
            if d.me == 0 {
                for _ in 0..6 {
                    core.send(east, &Tile::new(vec![1])).await?;
                }
            } else {
                core.recv(west, 1).await?;
                core.wait(d.signal(500), Compare::Ge, 1).await?;
            }
            Ok(())
        })
    });
    let text = stopped.run().unwrap_err().to_string();
    let wanted = "for a free slot in the queue of port 1 to rank 1, which stopped reading: it took message 0 out of this slot and not 2";
    assert!(text.contains(wanted), "{text}");
}
