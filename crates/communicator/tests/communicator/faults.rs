//! Ranks that die, stop, stay away or abort.

use super::spmd::{all_well, done, ends, here, is_well, rank, spmd, start};
use ringwork_communicator::{Communicator, Error};
use ringwork_isa::{Rank, ReduceOp};
use std::process::Command;
use std::time::Duration;

#[test]
fn survivors_learn_who_died_and_go_on_without_it() {
    let statuses = spmd(here!(), 4, |comm| {
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
        assert_eq!(error.dead_rank(), Some(Rank(1)), "{error}");
        assert!(error.to_string().contains("rank 1 died"), "{error}");
        let rest = comm.shrink().unwrap();
        assert_eq!(rest.size(), 3);
        let mut data = [comm.rank() as i32];
        rest.all_reduce(&mut data, ReduceOp::Sum).unwrap();
        assert_eq!(data, [5]);
        let later = comm.barrier().unwrap_err();
        assert_eq!(later.dead_rank(), Some(Rank(1)), "the old one stays broken");
    });
    let well: Vec<_> = statuses.iter().map(is_well).collect();
    assert_eq!(well, [true, false, true, true], "{statuses:?}");
}

#[test]
fn ranks_that_die_while_the_others_shrink_are_left_out_too() {
    let statuses = spmd(here!(), 6, |comm| {
        match comm.rank() {
            // The first that everybody would turn to, and one that has come already.
            0 => std::process::exit(9),
            1 => {
                while comm.barrier().is_ok() {}
                // Some moment in the others' shrinking, or before or after it: the same is expected.
                std::thread::sleep(Duration::from_millis(30));
                std::process::exit(9);
            }
            4 => {
                while comm.barrier().is_ok() {}
                std::thread::spawn(|| {
                    std::thread::sleep(Duration::from_millis(20)); // as above, in its own
                    std::process::exit(9);
                });
            }
            _ => while comm.barrier().is_ok() {},
        }
        let rest = comm.shrink().unwrap();
        let rest = if rest.size() > 3 { until_three(rest) } else { rest };
        let mut ranks = [comm.rank() as i32];
        rest.all_reduce(&mut ranks, ReduceOp::Sum).unwrap();
        assert_eq!(ranks, [2 + 3 + 5]);
    });
    let well: Vec<_> = statuses.iter().map(is_well).collect();
    assert_eq!(well, [false, false, true, true, false, true], "{statuses:?}");
}

/// Those who were still alive at the first shrink may die after it.
fn until_three(mut comm: Communicator) -> Communicator {
    while comm.size() > 3 {
        while comm.barrier().is_ok() {}
        comm = comm.shrink().unwrap();
    }
    comm
}

#[test]
fn a_root_need_not_stay_until_its_small_broadcasts_are_taken() {
    all_well(&spmd(here!(), 3, |comm| {
        let mut process = [i64::from(std::process::id())];
        comm.broadcast(&mut process, 0).unwrap();
        if comm.rank() != 0 {
            until_ended(process[0]);
        }
        for round in 0..5 {
            let mut data = [comm.rank() as i32 + 10 * round; 20];
            comm.broadcast(&mut data, 0).unwrap();
            assert_eq!(data, [10 * round; 20]);
        }
    }));
}

#[test]
fn who_has_left_and_ended_is_not_missed_by_those_who_do_not_wait_for_it() {
    all_well(&spmd(here!(), 3, |comm| {
        let mut process = [i64::from(std::process::id())];
        comm.broadcast(&mut process, 2).unwrap();
        let mut data = [f64::from(comm.rank()); 5];
        match comm.rank() {
            2 => return,
            me => {
                until_ended(process[0]);
                let (input, peer) = (data, 1 - me);
                comm.exchange((&input, peer), (&mut data, peer)).unwrap();
                assert_eq!(data, [f64::from(peer); 5]);
            }
        }
        let text = comm.recv(&mut data, 2).unwrap_err().to_string();
        assert!(text.contains("rank 2 has left"), "{text}");
    }));
}

/// Waits until a process has ended, whether or not its parent has asked for it.
fn until_ended(process: i64) {
    let ended = || match std::fs::read_to_string(format!("/proc/{process}/stat")) {
        Ok(stat) => stat.contains(") Z"),
        Err(_) => true,
    };
    while !ended() {
        std::thread::sleep(Duration::from_millis(1)); // it is looked again
    }
}

#[test]
fn an_abort_frees_everybody() {
    all_well(&spmd(here!(), 3, |comm| {
        if comm.rank() == 2 {
            comm.abort("the loss is NaN");
        }
        let error = comm.barrier().unwrap_err().to_string();
        assert!(error.contains("rank 2 aborted: the loss is NaN"), "{error}");
    }));
}

#[test]
fn a_rank_that_does_not_come_is_named_with_its_last_call() {
    all_well(&spmd(here!(), 3, |comm| {
        let given_up = comm.split(0, comm.rank()).unwrap();
        comm.all_reduce(&mut [1i32; 3], ReduceOp::Sum).unwrap();
        if comm.rank() != 2 {
            comm.set_timeout(Duration::from_millis(700));
            let text = comm
                .all_reduce(&mut [1i32; 4], ReduceOp::Sum)
                .unwrap_err()
                .to_string();
            assert!(text.contains("got no further in 700 ms"), "{text}");
            assert!(text.contains("rank 2 did not arrive"), "{text}");
            assert!(text.contains("last call: all_reduce of 3 x i32"), "{text}");
        }
        // Rank 2 stays away, but alive, until the others have given up.
        given_up.barrier().unwrap();
    }));
}

#[test]
fn a_stopped_rank_is_named_with_its_last_call() {
    if rank().is_some() {
        let mut comm = Communicator::from_env().unwrap();
        let mut rounds = 0;
        let error = loop {
            let mut data = vec![1f32; [1, 100, 5000, 200_000][rounds % 4]];
            if let Err(error) = comm.all_reduce(&mut data, ReduceOp::Sum) {
                break error;
            }
            rounds += 1;
            if rounds == 20 {
                // Until here a machine that is busy elsewhere must not look like a rank that stopped.
                comm.set_timeout(Duration::from_millis(2500));
                if comm.rank() == 1 {
                    // In the middle of whatever it is doing by then.
                    std::thread::spawn(|| signal("STOP", std::process::id()));
                }
            }
        };
        let text = error.to_string();
        assert!(
            text.contains("rank 1 did not arrive (last call: all_reduce of"),
            "{text}"
        );
        assert!(
            matches!(error, Error::Deadline { .. } | Error::Aborted { .. }),
            "{text}"
        );
        done();
    }
    let mut children = start(here!(), 3, &[]);
    for survivor in [2, 0] {
        assert!(is_well(&children[survivor].wait().unwrap()));
    }
    children[1].kill().unwrap();
    let _ = ends(children);
}

fn signal(name: &str, process: u32) {
    let command = format!("kill -{name} {process}");
    assert!(
        Command::new("sh")
            .args(["-c", &command])
            .status()
            .unwrap()
            .success()
    );
}
