//! Random programs of mixed operations on several overlapping communicators: the same on every rank.

use super::spmd::{Rng, all_well, done, ends, here, rank, start};
use super::values::{assert_bits, reduced, value, values};
use ringwork_communicator::{Communicator, Pending};
use ringwork_isa::{Dtype, Element, ReduceOp, with_dtype};
use std::time::{Duration, Instant};

/// All ranks, the odd and the even ones, all but the last, and all once more.
fn communicators(world: &Communicator) -> Vec<Option<Communicator>> {
    let (me, n) = (world.rank(), world.size());
    let but_last: Vec<u32> = (0..n.max(2) - 1).rev().collect();
    vec![
        Some(world.split(me % 2, me).unwrap()),
        world.group(&but_last).unwrap(),
        Some(Communicator::from_env().unwrap()),
    ]
}

/// A step on one communicator; every member draws the same numbers.
fn step<T: Element>(comm: &Communicator, rng: &mut Rng, pending: &mut Vec<(Pending<Vec<i64>>, i64)>) {
    let (me, n) = (comm.rank(), comm.size());
    let count = [0, 1, 5, 64, 300, 3000, 20_000][rng.below(7)];
    let op = ReduceOp::ALL[rng.below(5)];
    let root = rng.below(n as usize) as u32;
    match rng.below(8) {
        0 => comm.barrier().unwrap(),
        1 => {
            let mut data: Vec<T> = values(op, me, 0..count);
            comm.all_reduce(&mut data, op).unwrap();
            assert_bits(&data, |i| reduced(op, n, i), "all_reduce");
        }
        2 => {
            let mut all = vec![T::zeroed(); count * n as usize];
            comm.all_gather(&values::<T>(op, me, 0..count), &mut all).unwrap();
            assert_bits(&all, |i| value(op, (i / count) as u32, i % count), "all_gather");
        }
        3 => {
            let mut part = vec![T::zeroed(); count];
            comm.reduce_scatter(&values::<T>(op, me, 0..count * n as usize), &mut part, op)
                .unwrap();
            assert_bits(
                &part,
                |i| reduced(op, n, me as usize * count + i),
                "reduce_scatter",
            );
        }
        4 => {
            let mut data: Vec<T> = values(op, me, 0..count);
            comm.broadcast(&mut data, root).unwrap();
            assert_bits(&data, |i| value(op, root, i), "broadcast");
        }
        5 => {
            let data = vec![i64::from(me); count];
            let sum = i64::from(n * (n - 1) / 2);
            pending.push((comm.all_reduce_start(data, ReduceOp::Sum), sum));
        }
        6 if n > 1 => {
            let (next, before) = ((me + 1) % n, (me + n - 1) % n);
            let mut got = vec![T::zeroed(); count];
            comm.exchange((&values::<T>(op, me, 0..count), next), (&mut got, before))
                .unwrap();
            assert_bits(&got, |i| value(op, before, i), "exchange");
        }
        _ => {
            let mut window = comm.alloc::<T>(count.min(3000)).unwrap();
            window.write(0, &values::<T>(op, me, 0..window.len())).unwrap();
            comm.all_reduce(&mut window, op).unwrap();
            assert_bits(&window.to_vec(), |i| reduced(op, n, i), "all_reduce in a window");
        }
    }
}

fn program(world: &Communicator, seed: u64, steps: usize) {
    let comms = communicators(world);
    let mut pending = Vec::new();
    // What everybody draws; what happens on a communicator depends on its own draws only.
    let mut rng = Rng(seed);
    for _ in 0..steps {
        let (which, dtype) = (rng.below(comms.len() + 1), Dtype::ALL[rng.below(8)]);
        let mut draws = Rng(rng.next_u64());
        let comm = if which == comms.len() {
            Some(world)
        } else {
            comms[which].as_ref()
        };
        if let Some(comm) = comm {
            with_dtype!(dtype, T => step::<T>(comm, &mut draws, &mut pending));
        }
        if pending.len() > 4 {
            for (call, sum) in pending.drain(..) {
                assert!(call.wait().unwrap().iter().all(|value| *value == sum));
            }
        }
    }
    // What is still pending is abandoned with its communicator.
}

#[test]
fn random_programs_on_overlapping_communicators_give_the_right_bits() {
    if rank().is_some() {
        let world = Communicator::from_env().unwrap();
        for seed in 0..10 {
            program(&world, seed, 120);
        }
        world.barrier().unwrap();
        done();
    }
    for size in [2, 3, 5, 8] {
        all_well(&ends(start(here!(), size, &[])));
    }
}

#[test]
#[ignore = "takes ten minutes; `.ci/run long` runs it"]
fn ten_minutes_at_random() {
    if rank().is_some() {
        let world = Communicator::from_env().unwrap();
        let (begun, mut seed) = (Instant::now(), 1000);
        loop {
            program(&world, seed, 200);
            seed += 1;
            // Rank 0's clock decides.
            let mut over = [i32::from(begun.elapsed() > Duration::from_secs(600))];
            world.broadcast(&mut over, 0).unwrap();
            if over == [1] {
                world.barrier().unwrap();
                done();
            }
        }
    }
    all_well(&ends(start(here!(), 4, &[])));
}
