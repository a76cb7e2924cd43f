//! Sending between two ranks, and all-to-all with counts of their own, under every kind of schedule.
#![allow(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test that panics has failed"
)]

mod support;

use ringwork_collectives::{Post, all_to_all_v, exchange, recv, send};
use ringwork_isa::{Dtype, ErrorKind, In, Out, Rank, Result};
use std::rc::Rc;
use support::engine::Kernel;
use support::{Rng, Schedule, World};

/// Fills a buffer of every rank with numbers that say whose and which they are.
fn numbered(world: &World, spans: &[ringwork_isa::Span]) {
    for (rank, span) in spans.iter().enumerate() {
        let values: Vec<i32> = (0..span.len as i32).map(|i| rank as i32 * 1000 + i).collect();
        world.machine.fill(*span, bytemuck::cast_slice(&values));
    }
}

fn values(world: &World, span: ringwork_isa::Span) -> Vec<i32> {
    bytemuck::pod_collect_to_vec(&world.machine.bytes(span))
}

#[test]
fn messages_of_any_length_arrive_in_order_whatever_the_schedule_and_the_count_before() {
    for seed in 0..60 {
        let mut rng = Rng(seed);
        let first = [0, i32::MAX - 3, -2][seed as usize % 3];
        let world = Rc::new(World::with(3, 64, 16 << 10, first));
        let post: Rc<Vec<Post>> = Rc::new(world.post(Dtype::I32, 1 + rng.below(5)));
        let lengths: Vec<usize> = (0..6).map(|_| rng.below(30)).collect();
        let all: usize = lengths.iter().sum();
        let (x, y) = (
            world.private_buffer(Dtype::I32, all),
            world.private_buffer(Dtype::I32, all),
        );
        numbered(&world, &x);
        let (from, to) = (rng.below(3) as u32, rng.below(2) as u32);
        let to = (from + 1 + to) % 3;
        let kernel = |core, rank: Rank| -> Kernel {
            let (post, lengths) = (post[rank.0 as usize], lengths.clone());
            let (x, y) = (x[rank.0 as usize], y[rank.0 as usize]);
            Box::pin(async move {
                let mut start = 0;
                for len in lengths {
                    let range = start..start + len;
                    start += len;
                    if rank.0 == from {
                        send(&core, post, In::of_span(x).slice(range)?, Rank(to)).await?;
                    } else if rank.0 == to {
                        recv(&core, post, Out::of_span(y).slice(range)?, Rank(from)).await?;
                    }
                }
                Ok(())
            })
        };
        world.run_well(Schedule::from_seed(seed), kernel).unwrap();
        assert_eq!(values(&world, y[to as usize]), values(&world, x[from as usize]));
    }
}

#[test]
fn rings_that_exchange_do_not_wait_in_a_circle() {
    for seed in 0..40 {
        let mut rng = Rng(seed);
        let ranks = 2 + rng.below(4) as u32;
        let (each, len) = (1 + rng.below(4), rng.below(40));
        let world = Rc::new(World::with(ranks, 64, 16 << 10, 0));
        let post: Rc<Vec<Post>> = Rc::new(world.post(Dtype::I32, each));
        let (x, y) = (
            world.private_buffer(Dtype::I32, len),
            world.private_buffer(Dtype::I32, len),
        );
        numbered(&world, &x);
        let kernel = |core, rank: Rank| -> Kernel {
            let post = post[rank.0 as usize];
            let (x, y) = (In::of_span(x[rank.0 as usize]), Out::of_span(y[rank.0 as usize]));
            let (next, before) = ((rank.0 + 1) % ranks, (rank.0 + ranks - 1) % ranks);
            Box::pin(async move { exchange(&core, post, (x, Rank(next)), (y, Rank(before))).await })
        };
        world.run_well(Schedule::from_seed(seed), kernel).unwrap();
        for (rank, got) in y.iter().enumerate() {
            let before = (rank + ranks as usize - 1) % ranks as usize;
            assert_eq!(values(&world, *got), values(&world, x[before]));
        }
    }
}

#[test]
fn a_message_of_another_length_is_named_and_none_goes_to_oneself() {
    let world = Rc::new(World::with(2, 64, 8 << 10, 0));
    let post: Rc<Vec<Post>> = Rc::new(world.post(Dtype::I32, 4));
    let x = world.private_buffer(Dtype::I32, 8);
    let kernel = |core, rank: Rank| -> Kernel {
        let (post, x) = (post[rank.0 as usize], x[rank.0 as usize]);
        Box::pin(async move {
            if rank.0 == 0 {
                let to_me: Result<()> = send(&core, post, In::of_span(x), rank).await;
                assert!(to_me.unwrap_err().to_string().contains("itself"));
                send(&core, post, In::of_span(x), Rank(1)).await
            } else {
                recv(&core, post, Out::of_span(x).slice(0..7)?, Rank(0)).await
            }
        })
    };
    let results = world.run(Schedule::Random(1), kernel).unwrap();
    let error = results[1].as_ref().unwrap_err();
    let ErrorKind::Mismatch { mine, theirs, .. } = error.kind() else {
        panic!("{results:?}");
    };
    assert_eq!(
        (mine.as_str(), theirs.as_str()),
        ("recv of 7 x i32 from rank 0", "send of 8 x i32 to rank 1")
    );
}

#[test]
fn all_to_all_with_any_counts_gives_everybody_what_is_meant_for_it() {
    for seed in 0..60 {
        let mut rng = Rng(seed);
        let ranks = 1 + rng.below(5);
        let counts: Rc<Vec<usize>> = Rc::new((0..ranks * ranks).map(|_| rng.below(12)).collect());
        let world = Rc::new(World::with(
            ranks as u32,
            2 * (ranks + rng.below(8)) * 4,
            8 << 10,
            0,
        ));
        let (x, y) = (
            world.private_buffer(Dtype::I32, 12 * ranks),
            world.private_buffer(Dtype::I32, 12 * ranks),
        );
        numbered(&world, &x);
        let sent = |from: usize| -> usize { counts[from * ranks..][..ranks].iter().sum() };
        let got = |to: usize| -> usize { (0..ranks).map(|from| counts[from * ranks + to]).sum() };
        let kernel = |core, rank: Rank| -> Kernel {
            let (me, counts) = (rank.0 as usize, counts.clone());
            let team = world.team::<i32>(rank);
            let x = In::of_span(x[me]).slice(0..sent(me)).unwrap();
            let y = Out::of_span(y[me]).slice(0..got(me)).unwrap();
            Box::pin(async move { all_to_all_v(&core, team, x, y, &counts).await })
        };
        world.run_well(Schedule::from_seed(seed), kernel).unwrap();
        for to in 0..ranks {
            let wanted = (0..ranks).flat_map(|from| {
                let start: usize = counts[from * ranks..][..to].iter().sum();
                (start..start + counts[from * ranks + to]).map(move |i| (from * 1000 + i) as i32)
            });
            assert_eq!(values(&world, y[to])[..got(to)], wanted.collect::<Vec<_>>());
        }
    }
}
