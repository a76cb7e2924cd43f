//! Bad input: a clear error, on every rank that is to blame, and nothing left behind.

use super::spmd::{all_well, done, ends, here, is_well, rank, spmd, start};
use ringwork_collectives::Algorithm;
use ringwork_communicator::{Communicator, Error};
use ringwork_isa::{ReduceOp, signature_hash};
use std::time::{Duration, Instant};

#[test]
fn wrong_arguments_are_refused_and_nobody_waits() {
    all_well(&spmd(here!(), 2, |comm| {
        let text = |error: Error| error.to_string();
        assert!(text(comm.broadcast(&mut [0f32], 2).unwrap_err()).contains("no rank 2 among 2"));
        assert!(
            text(comm.all_gather(&[0f32; 2], &mut [0f32; 3]).unwrap_err())
                .contains("the output has 3 elements where 4 are needed")
        );
        assert!(text(comm.all_to_all(&[0f32; 3], &mut [0f32; 3]).unwrap_err()).contains("equally"));
        assert!(text(comm.all_to_all_in_place(&mut [0f32; 3]).unwrap_err()).contains("equally"));
        assert!(text(comm.group(&[0, 0]).unwrap_err()).contains("twice"));
        assert!(text(comm.group(&[]).unwrap_err()).contains("at least one"));
        assert!(text(comm.group(&[7]).unwrap_err()).contains("no rank 7 among 2"));
        assert!(text(comm.alloc::<f64>(usize::MAX).unwrap_err()).contains("more than any memory"));
        assert!(text(comm.send(&[1u8], comm.rank()).unwrap_err()).contains("itself"));
        assert!(text(comm.recv(&mut [1u8], 2).unwrap_err()).contains("no rank 2"));
        let average = comm.all_reduce_with(&mut [1f32], ReduceOp::Avg, Algorithm::StagedRing);
        assert!(text(average.unwrap_err()).contains("cannot average"));
        let bits = comm.all_reduce(&mut [1f32], ReduceOp::BitAnd);
        assert!(text(bits.unwrap_err()).contains("`band` is not defined for f32"));
        let other = comm.split(0, 0).unwrap();
        let mut foreign = other.alloc::<f32>(8).unwrap();
        assert!(
            text(comm.all_reduce(&mut foreign, ReduceOp::Sum).unwrap_err()).contains("another communicator")
        );
        comm.barrier().unwrap();
    }));
}

#[test]
fn a_group_without_me_is_nothing_to_me() {
    all_well(&spmd(here!(), 3, |comm| {
        let group = comm.group(&[2, 1]).unwrap();
        assert_eq!(group.is_some(), comm.rank() != 0);
        if let Some(group) = group {
            group.barrier().unwrap();
        }
        comm.barrier().unwrap();
    }));
}

#[test]
fn memory_that_cannot_be_had_is_refused_on_every_rank_and_the_rest_goes_on() {
    all_well(&spmd(here!(), 3, |comm| {
        for _ in 0..3 {
            let error = comm.alloc::<u8>(1 << 45).unwrap_err().to_string();
            assert!(error.contains("memory") || error.contains("stride"), "{error}");
        }
        let mut small = comm.alloc::<u8>(10).unwrap();
        comm.all_reduce(&mut small, ReduceOp::Sum).unwrap();
    }));
}

#[test]
fn counts_that_do_not_fit_are_named_on_every_rank() {
    all_well(&spmd(here!(), 2, |comm| {
        let text = |error: Error| error.to_string();
        let me = comm.rank() as usize;
        // Rank 0 sends 2 to rank 1, which wants 3.
        let (sends, receives) = ([[1, 2], [1, 0]][me], [[1, 1], [3, 0]][me]);
        let (input, mut output) = (vec![1i32; [3, 1][me]], vec![0i32; [2, 3][me]]);
        let error = comm
            .all_to_all_v((&input, &sends), (&mut output, &receives))
            .unwrap_err();
        assert!(text(error).contains("rank 0 sends 2 elements to rank 1, which receives 3"));
        // Only rank 1's counts are wrong; both learn of it.
        let sends: &[usize] = if me == 0 { &[1, 2] } else { &[usize::MAX, 2] };
        let error = comm
            .all_to_all_v((&input, sends), (&mut output, &[1, 1]))
            .unwrap_err();
        let text = text(error);
        assert!(
            text.contains("rank 1") || text.contains("do not add up"),
            "{text}"
        );
        comm.barrier().unwrap();
    }));
}

#[test]
fn two_ranks_that_disagree_both_learn_of_both_calls() {
    all_well(&spmd(here!(), 2, |comm| {
        let mut data = vec![1f32; 8 + comm.rank() as usize];
        let text = comm.all_reduce(&mut data, ReduceOp::Sum).unwrap_err().to_string();
        assert!(text.contains("8 x f32") && text.contains("9 x f32"), "{text}");
    }));
}

#[test]
fn three_ranks_that_disagree_all_learn_of_it() {
    all_well(&spmd(here!(), 3, |comm| {
        let error = match comm.rank() {
            0 => comm.barrier(),
            1 => comm.all_reduce(&mut vec![1f64; 100_000], ReduceOp::Sum),
            _ => comm.broadcast(&mut [1u8], 0),
        };
        let text = error.unwrap_err().to_string();
        assert!(text.contains("called") && text.contains("rank"), "{text}");
    }));
}

#[test]
fn a_root_that_has_gone_on_is_named_by_those_who_called_something_else() {
    all_well(&spmd(here!(), 3, |comm| {
        let text = if comm.rank() == 1 {
            comm.broadcast(&mut [1u8], 1).unwrap();
            comm.barrier().unwrap_err().to_string()
        } else {
            comm.all_reduce(&mut [1f32; 3], ReduceOp::Sum)
                .unwrap_err()
                .to_string()
        };
        assert!(text.contains("called all_reduce of 3 x f32"), "{text}");
        assert!(text.contains("called broadcast of 1 x u8"), "{text}");
    }));
}

#[test]
fn a_message_of_another_length_is_reported_by_both() {
    all_well(&spmd(here!(), 2, |comm| {
        let error = if comm.rank() == 0 {
            // The second waits for the first to be taken.
            (0..9).find_map(|_| comm.send(&[1f32; 9], 1).err())
        } else {
            comm.recv(&mut [1f32; 8], 0).err()
        };
        let text = error.unwrap().to_string();
        assert!(text.contains("8 x f32") && text.contains("9 x f32"), "{text}");
    }));
}

#[test]
fn a_rank_that_drops_its_communicator_is_named_at_once() {
    all_well(&spmd(here!(), 3, |comm| {
        let other = comm.split(0, comm.rank()).unwrap();
        other.barrier().unwrap();
        if comm.rank() == 1 {
            drop(other);
        } else {
            let text = other
                .all_reduce(&mut [1f32; 3], ReduceOp::Sum)
                .unwrap_err()
                .to_string();
            assert!(
                text.contains("rank 1 called leave: it dropped its communicator"),
                "{text}"
            );
        }
        comm.barrier().unwrap();
    }));
}

#[test]
fn a_rank_that_ends_before_the_rendezvous_is_named_by_the_others() {
    if let Some(me) = rank() {
        if me == 2 {
            done();
        }
        let text = Communicator::from_env().unwrap_err().to_string();
        assert!(text.contains("rank 2"), "{text}");
        done();
    }
    all_well(&ends(start(here!(), 4, &[("RINGWORK_TIMEOUT", "1")])));
}

#[test]
fn a_rank_that_ends_at_the_rendezvous_is_named_by_the_others() {
    if let Some(me) = rank() {
        if me == 3 {
            done(); // It never comes, so that the others wait.
        }
        let text = Communicator::from_env().unwrap_err().to_string();
        assert!(
            text.contains("rank 1") && text.contains("ended before everybody had come"),
            "{text}"
        );
        done();
    }
    let job = format!("{}-{}", here!(), std::process::id());
    let mut children = start(here!(), 4, &[("RINGWORK_RENDEZVOUS", &job)]);
    let address = format!("ringwork-ringwork-{:016x}", signature_hash(&job));
    // Rank 0's door and the two who came through it; both have said who they are, rank 0 has heard it, and all wait.
    eventually("ranks 1 and 2 have come", || {
        sockets_at(&address) == 3 && children[..3].iter().all(|child| all_asleep(child.id()))
    });
    children[1].kill().unwrap();
    let statuses = ends(children);
    for well in [0, 2, 3] {
        assert!(is_well(&statuses[well]), "{statuses:?}");
    }
}

/// Sockets of this address, or one that begins with it: the one that listens, and its end of each connection.
fn sockets_at(address: &str) -> usize {
    let sockets = std::fs::read_to_string("/proc/net/unix").unwrap();
    sockets.lines().filter(|line| line.contains(address)).count()
}

/// Whether every thread of a process waits for something.
fn all_asleep(process: u32) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).unwrap();
    threads.flatten().all(|thread| {
        let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        stat.rsplit_once(") ")
            .is_some_and(|(_, rest)| rest.starts_with('S'))
    })
}

/// Waits until it holds.
fn eventually(what: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::yield_now();
    }
}
