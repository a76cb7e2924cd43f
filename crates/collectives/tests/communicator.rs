//! Communicators among real processes: each test starts itself again, once for every rank.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use ringwork_collectives::Algorithm;
use ringwork_collectives::communicator::{Communicator, Error};
use ringwork_isa::{Dtype, Element, ReduceOp, bf16, f16, with_dtype};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Runs `body` in `size` processes of this test binary; in the ranks it does not return.
fn spmd(name: &str, size: u32, body: impl FnOnce(&mut Communicator)) -> Vec<ExitStatus> {
    if std::env::var_os("RINGWORK_RANK").is_some() {
        let mut comm = Communicator::from_env().expect("joining");
        body(&mut comm);
        std::process::exit(0);
    }
    let job = format!("{name}-{}-{:?}", std::process::id(), std::thread::current().id());
    let start = |rank: u32| {
        Command::new(std::env::current_exe().unwrap())
            .args([name, "--exact", "--nocapture", "--test-threads=1"])
            .env("RINGWORK_RANK", rank.to_string())
            .env("RINGWORK_SIZE", size.to_string())
            .env("RINGWORK_RENDEZVOUS", format!("{job}-{size}"))
            .env("RINGWORK_TIMEOUT", "20")
            .stdout(Stdio::null())
            .spawn()
            .unwrap()
    };
    let children: Vec<_> = (0..size).map(start).collect();
    children
        .into_iter()
        .map(|mut child| child.wait().unwrap())
        .collect()
}

fn all_well(statuses: &[ExitStatus]) {
    assert!(statuses.iter().all(ExitStatus::success), "{statuses:?}");
}

fn value<T: Element>(rank: u32, i: usize) -> T {
    T::from_i64(i64::from(rank) * 3 + (i % 5) as i64)
}

fn sum<T: Element>(ranks: u32, i: usize) -> T {
    T::from_i64((0..i64::from(ranks)).map(|rank| rank * 3 + (i % 5) as i64).sum())
}

#[test]
fn every_operation_works_on_own_memory_and_in_windows() {
    for size in [1, 2, 3, 5] {
        all_well(&spmd(
            "every_operation_works_on_own_memory_and_in_windows",
            size,
            |comm| {
                for dtype in Dtype::ALL {
                    with_dtype!(dtype, T => {
                        for count in [0, 1, 7, 1023, 4097, 300_003] {
                            operations::<T>(comm, count);
                        }
                    });
                }
            },
        ));
    }
}

fn operations<T: Element>(comm: &Communicator, count: usize) {
    let (me, n) = (comm.rank(), comm.size());
    let mine: Vec<T> = (0..count).map(|i| value(me, i)).collect();
    let summed = |i: usize| sum::<T>(n, i);

    let mut data = mine.clone();
    comm.all_reduce(&mut data, ReduceOp::Sum).unwrap();
    assert!(
        data.iter().enumerate().all(|(i, v)| *v == summed(i)),
        "all_reduce {count}"
    );
    for algorithm in Algorithm::ALL {
        let mut data = mine.clone();
        comm.all_reduce_with(&mut data, ReduceOp::Sum, algorithm).unwrap();
        assert!(
            data.iter().enumerate().all(|(i, v)| *v == summed(i)),
            "{algorithm} {count}"
        );
    }
    let mut window = comm.alloc::<T>(count).unwrap();
    assert!(window.write(0, &mine));
    comm.all_reduce(&mut window, ReduceOp::Sum).unwrap();
    assert!(
        window.to_vec().iter().enumerate().all(|(i, v)| *v == summed(i)),
        "in window {count}"
    );

    let mut out = vec![T::zeroed(); count];
    comm.all_reduce_into(&mine, &mut out, ReduceOp::Max).unwrap();
    assert!(out.iter().enumerate().all(|(i, v)| *v == value(n - 1, i)));

    let mut all = vec![T::zeroed(); count * n as usize];
    comm.all_gather(&mine, &mut all).unwrap();
    for (rank, part) in (0..n).zip(all.chunks(count.max(1))) {
        assert!(
            part.iter().enumerate().all(|(i, v)| *v == value(rank, i)),
            "all_gather"
        );
    }
    let wide: Vec<T> = (0..count * n as usize).map(|i| value(me, i)).collect();
    comm.reduce_scatter(&wide, &mut out, ReduceOp::Sum).unwrap();
    assert!(
        out.iter()
            .enumerate()
            .all(|(i, v)| *v == summed(me as usize * count + i)),
        "reduce_scatter"
    );

    let root = n - 1;
    let mut data = mine.clone();
    comm.broadcast(&mut data, root).unwrap();
    assert!(
        data.iter().enumerate().all(|(i, v)| *v == value(root, i)),
        "broadcast"
    );
    let mut data = mine.clone();
    comm.reduce(&mut data, ReduceOp::Sum, root).unwrap();
    let golden = |i| if me == root { summed(i) } else { value(me, i) };
    assert!(data.iter().enumerate().all(|(i, v)| *v == golden(i)), "reduce");
    comm.gather(&mine, &mut all, root).unwrap();
    comm.scatter(&all, &mut out, root).unwrap();
    assert_eq!(out, mine, "gather, then scatter, is nothing");
    let mut swapped = vec![T::zeroed(); wide.len()];
    comm.all_to_all(&wide, &mut swapped).unwrap();
    for (rank, part) in (0..n).zip(swapped.chunks(count.max(1))) {
        assert!(
            part.iter()
                .enumerate()
                .all(|(i, v)| *v == value(rank, me as usize * count + i)),
            "all_to_all"
        );
    }
    comm.barrier().unwrap();
}

#[test]
fn splits_have_their_own_ranks_and_calls() {
    all_well(&spmd("splits_have_their_own_ranks_and_calls", 4, |comm| {
        let me = comm.rank();
        // Reversed order inside each half.
        let half = comm.split(me % 2, 10 - me).unwrap();
        assert_eq!((half.size(), half.rank()), (2, 1 - me / 2));
        let pair = comm.group(&[3, 0]).unwrap();
        assert_eq!(
            pair.as_ref().map(Communicator::rank),
            match me {
                3 => Some(0),
                0 => Some(1),
                _ => None,
            }
        );
        for round in 0..50 {
            let mut data = [me, round];
            let mut data: Vec<i32> = data.iter_mut().map(|v| i32::try_from(*v).unwrap()).collect();
            half.all_reduce(&mut data, ReduceOp::Sum).unwrap();
            let other = (me + 2) % 4;
            assert_eq!(data, [(me + other) as i32, 2 * round as i32]);
            if let Some(pair) = &pair {
                let mut data = [1i64];
                pair.all_reduce(&mut data, ReduceOp::Sum).unwrap();
                assert_eq!(data, [2]);
            }
            comm.barrier().unwrap();
        }
    }));
}

#[test]
fn ranks_that_disagree_both_learn_of_both_calls() {
    all_well(&spmd("ranks_that_disagree_both_learn_of_both_calls", 2, |comm| {
        let error = if comm.rank() == 0 {
            comm.all_reduce(&mut [1f32; 8], ReduceOp::Sum).unwrap_err()
        } else {
            comm.all_reduce(&mut [1f32; 9], ReduceOp::Sum).unwrap_err()
        };
        let text = error.to_string();
        assert!(text.contains("8 x f32") && text.contains("9 x f32"), "{text}");
    }));
    all_well(&spmd("ranks_that_disagree_both_learn_of_both_calls", 3, |comm| {
        let error = match comm.rank() {
            0 => comm.barrier().unwrap_err(),
            1 => comm
                .all_reduce(&mut vec![1f64; 100_000], ReduceOp::Sum)
                .unwrap_err(),
            _ => comm.broadcast(&mut [1u8], 0).unwrap_err(),
        };
        let text = error.to_string();
        assert!(text.contains("called") && text.contains("rank"), "{text}");
    }));
}

#[test]
fn a_rank_that_does_not_come_is_named_with_its_last_call() {
    all_well(&spmd(
        "a_rank_that_does_not_come_is_named_with_its_last_call",
        3,
        |comm| {
            comm.set_timeout(Duration::from_millis(300));
            comm.all_reduce(&mut [1i32; 3], ReduceOp::Sum).unwrap();
            if comm.rank() == 2 {
                // Stays away, but alive, until the others have given up.
                let start = Instant::now();
                while comm.barrier().is_ok() || start.elapsed() < Duration::from_millis(1) {}
                return;
            }
            let error = comm.all_reduce(&mut [1i32; 4], ReduceOp::Sum).unwrap_err();
            let text = error.to_string();
            assert!(
                text.contains("rank 2") || text.contains("aborted") || text.contains("called barrier"),
                "{text}"
            );
        },
    ));
}

#[test]
fn survivors_learn_who_died_and_go_on_without_it() {
    let statuses = spmd("survivors_learn_who_died_and_go_on_without_it", 4, |comm| {
        let mut data = [comm.rank() as i32];
        comm.all_reduce(&mut data, ReduceOp::Sum).unwrap();
        if comm.rank() == 1 {
            std::process::exit(9);
        }
        let error = loop {
            if let Err(error) = comm.all_reduce(&mut data, ReduceOp::Sum) {
                break error;
            }
        };
        assert!(error.to_string().contains("rank 1 died"), "{error}");
        let rest = comm.shrink().unwrap();
        assert_eq!(rest.size(), 3);
        let mut data = [comm.rank() as i32];
        rest.all_reduce(&mut data, ReduceOp::Sum).unwrap();
        assert_eq!(data, [5]);
        assert!(
            matches!(comm.barrier(), Err(Error::Collective(_))),
            "the old one stays broken"
        );
    });
    assert_eq!(
        statuses.iter().map(|status| status.code()).collect::<Vec<_>>(),
        [Some(0), Some(9), Some(0), Some(0)]
    );
}

#[test]
fn an_abort_frees_everybody() {
    all_well(&spmd("an_abort_frees_everybody", 3, |comm| {
        if comm.rank() == 2 {
            comm.abort("the loss is NaN");
        }
        let error = comm.barrier().unwrap_err().to_string();
        assert!(error.contains("rank 2 aborted: the loss is NaN"), "{error}");
    }));
}

#[test]
fn wrong_arguments_are_refused_and_nobody_waits() {
    all_well(&spmd("wrong_arguments_are_refused_and_nobody_waits", 2, |comm| {
        let text = |error: Error| error.to_string();
        assert!(text(comm.broadcast(&mut [0f32], 2).unwrap_err()).contains("no rank 2 among 2"));
        assert!(text(comm.all_gather(&[0f32; 2], &mut [0f32; 3]).unwrap_err()).contains("4 are needed"));
        assert!(text(comm.all_to_all(&[0f32; 3], &mut [0f32; 3]).unwrap_err()).contains("equally"));
        assert!(text(comm.group(&[0, 0]).unwrap_err()).contains("twice"));
        assert!(text(comm.alloc::<f64>(usize::MAX).unwrap_err()).contains("more than any memory"));
        comm.barrier().unwrap();
    }));
}

#[test]
fn sixteen_bit_sums_round_once() {
    all_well(&spmd("sixteen_bit_sums_round_once", 3, |comm| {
        // 2048 + 1 + 1: rounding after each step would stay at 2048 in f16.
        let mine = if comm.rank() == 0 { 2048.0 } else { 1.0 };
        for algorithm in Algorithm::ALL
            .into_iter()
            .filter(|algorithm| algorithm.is_exact())
        {
            let mut half = [f16::from_f32(mine)];
            comm.all_reduce_with(&mut half, ReduceOp::Sum, algorithm).unwrap();
            assert_eq!(half[0], f16::from_f32(2050.0));
            let mut brain = [bf16::from_f32(mine / 8.0)];
            comm.all_reduce_with(&mut brain, ReduceOp::Sum, algorithm)
                .unwrap();
            assert_eq!(brain[0], bf16::from_f32(256.25));
        }
    }));
}
