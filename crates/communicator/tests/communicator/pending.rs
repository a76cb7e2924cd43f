//! Non-blocking calls.

use super::spmd::{all_well, here, spmd};
use ringwork_isa::ReduceOp;

#[test]
fn calls_are_made_in_the_order_they_were_begun_and_give_their_buffers_back() {
    all_well(&spmd(here!(), 3, |comm| {
        let (me, n) = (comm.rank() as i32, 3);
        for round in 0..30 {
            let sums = comm.all_reduce_start(vec![me + round; 1 + 1000 * round as usize], ReduceOp::Sum);
            let gathered = comm.all_gather_start(vec![me, round], vec![0; 6]);
            let meet = comm.barrier_start();
            let scattered = comm.reduce_scatter_start(vec![me, 1, 2], vec![0], ReduceOp::Sum);
            let sent = comm.broadcast_start(vec![me * 7; 5], 2);
            let swapped = comm.all_to_all_start(vec![me * 10, me * 10 + 1, me * 10 + 2], vec![0; 3]);
            // A blocking call comes after all of them.
            let mut data = [me];
            comm.all_reduce(&mut data, ReduceOp::Max).unwrap();
            assert_eq!(data, [2]);
            assert_eq!(swapped.wait().unwrap().1, [me, 10 + me, 20 + me]);
            assert_eq!(sent.wait().unwrap(), [14; 5]);
            assert_eq!(scattered.wait().unwrap().1, [[3], [3], [6]][me as usize]);
            meet.wait().unwrap();
            assert_eq!(gathered.wait().unwrap().1, [0, round, 1, round, 2, round]);
            let sums = sums.wait().unwrap();
            assert!(sums.iter().all(|sum| *sum == 3 + n * round));
        }
    }));
}

#[test]
fn a_pending_call_can_be_tested_and_overlaps_with_other_work() {
    all_well(&spmd(here!(), 2, |comm| {
        let me = comm.rank();
        let mut window = comm.alloc::<f32>(1000).unwrap();
        window.fill(me as f32);
        let begun = comm.split(0, me).unwrap();
        if me == 1 {
            begun.barrier().unwrap();
        }
        let mut pending = comm.all_reduce_start(window, ReduceOp::Avg);
        if me == 0 {
            assert!(!pending.test(), "the other has not begun");
            begun.barrier().unwrap();
        }
        while !pending.test() {
            std::thread::yield_now();
        }
        assert!(pending.test());
        let window = pending.wait().unwrap();
        assert!(window.to_vec().iter().all(|value| *value == 0.5));
        let other = 1 - me;
        let message = vec![me as i64; 100_000];
        let (first, second) = if me == 0 {
            (
                comm.send_start(message.clone(), other),
                comm.recv_start(message, other),
            )
        } else {
            let receiving = comm.recv_start(message.clone(), other);
            (receiving, comm.send_start(message, other))
        };
        let received = if me == 0 {
            first.wait().unwrap();
            second.wait().unwrap()
        } else {
            second.wait().unwrap();
            first.wait().unwrap()
        };
        assert!(received.iter().all(|value| *value == i64::from(other)));
    }));
}

#[test]
fn dropped_handles_are_made_all_the_same_and_errors_come_out_at_wait() {
    all_well(&spmd(here!(), 3, |comm| {
        for _ in 0..20 {
            drop(comm.all_reduce_start(vec![1i32; 5000], ReduceOp::Sum));
        }
        let mut data = [1];
        comm.all_reduce(&mut data, ReduceOp::Sum).unwrap();
        assert_eq!(data, [3]);
        // Refused on every rank, without disturbing what follows.
        let refused = comm.broadcast_start(vec![1], 9);
        let fine = comm.barrier_start();
        assert!(refused.wait().unwrap_err().to_string().contains("no rank 9"));
        fine.wait().unwrap();
        let stuck = (comm.rank() != 1).then(|| comm.barrier_start());
        if comm.rank() == 1 {
            comm.abort("enough");
        }
        if let Some(stuck) = stuck {
            assert!(
                stuck
                    .wait()
                    .unwrap_err()
                    .to_string()
                    .contains("rank 1 aborted: enough")
            );
        }
        // Dropping a communicator with something pending does not hang.
        drop(comm.split(0, 0));
        let _ = comm.barrier_start();
    }));
}
