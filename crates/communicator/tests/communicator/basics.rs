//! Groups, threads, joining twice, rounding.

use super::spmd::{all_well, here, spmd};
use ringwork_communicator::Communicator;
use ringwork_isa::{ReduceOp, bf16, f16};

#[test]
fn splits_have_their_own_ranks_and_calls() {
    all_well(&spmd(here!(), 4, |comm| {
        let me = comm.rank();
        // Reversed order inside each half.
        let half = comm.split(me % 2, 10 - me).unwrap();
        assert_eq!((half.size(), half.rank()), (2, 1 - me / 2));
        let pair = comm.group(&[3, 0]).unwrap();
        let wanted = match me {
            3 => Some(0),
            0 => Some(1),
            _ => None,
        };
        assert_eq!(pair.as_ref().map(Communicator::rank), wanted);
        for round in 0..50 {
            let mut data = [me as i32, round];
            half.all_reduce(&mut data, ReduceOp::Sum).unwrap();
            let other = (me + 2) % 4;
            assert_eq!(data, [(me + other) as i32, 2 * round]);
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
fn broadcasts_of_a_root_that_does_not_wait_arrive_whole_and_in_order() {
    all_well(&spmd(here!(), 3, |comm| {
        for number in 0..3000 {
            // One line, several, a flag for all of them, and more than a packet carries.
            let count = [1, 60, 300, 1500][number as usize % 4];
            let mut data = vec![if comm.rank() == 1 { number } else { -1 }; count];
            comm.broadcast(&mut data, 1).unwrap();
            assert!(data.iter().all(|value| *value == number), "{number}: {data:?}");
            if number % 500 == 0 {
                comm.all_reduce(&mut [1i32], ReduceOp::Sum).unwrap();
            }
        }
    }));
}

#[test]
fn a_window_buffer_is_read_and_written_by_element_by_part_and_as_a_whole() {
    all_well(&spmd(here!(), 2, |comm| {
        // More than the block that goes through a stack buffer, and not a multiple of it.
        const LEN: usize = 2500;
        let mut window = comm.alloc::<i32>(LEN).unwrap();
        window.fill_with(|i| i as i32);
        comm.all_reduce(&mut window, ReduceOp::Sum).unwrap();
        assert!(window.iter().eq((0..LEN).map(|i| 2 * i as i32)));
        assert_eq!(window.iter().len(), LEN);
        window.update(|i, value| value / 2 - i as i32);
        assert_eq!(window.to_vec(), [0; LEN]);
        window.set(LEN - 1, 7).unwrap();
        assert_eq!((window.get(LEN - 1), window.get(LEN)), (Some(7), None));
        let mut part = [1, 1];
        window.read(LEN - 2, &mut part).unwrap();
        assert_eq!(part, [0, 7]);
    }));
}

#[test]
fn what_does_not_fit_a_window_buffer_is_refused_and_changes_nothing() {
    all_well(&spmd(here!(), 2, |comm| {
        let mut window = comm.alloc::<u8>(3).unwrap();
        let said = window.write(2, &[9, 9]).unwrap_err().to_string();
        assert!(
            said.starts_with("elements 2..4 are outside a window buffer of 3"),
            "{said}"
        );
        let mut values = [5; 4];
        assert!(window.read(0, &mut values).is_err());
        assert!(window.copy_from_slice(&[1, 2]).is_err() && window.set(3, 1).is_err());
        assert!(window.write(usize::MAX, &[1, 1]).is_err());
        assert_eq!((window.to_vec(), values), (vec![0; 3], [5; 4]));
        window.copy_from_slice(&[1, 2, 3]).unwrap();
        assert_eq!(window.to_vec(), [1, 2, 3]);
    }));
}

#[test]
fn ranks_that_join_and_end_disturb_nobody() {
    for size in [2, 3, 6, 6, 6] {
        all_well(&spmd(here!(), size, |_| {}));
    }
}

#[test]
fn joining_twice_makes_two_communicators() {
    all_well(&spmd(here!(), 3, |comm| {
        for _ in 0..5 {
            let again = Communicator::from_env().unwrap();
            let mut data = [comm.rank() as i32];
            again.all_reduce(&mut data, ReduceOp::Sum).unwrap();
            comm.all_reduce(&mut data, ReduceOp::Max).unwrap();
            assert_eq!(data, [3]);
        }
    }));
}

#[test]
fn two_threads_use_two_communicators_at_once() {
    all_well(&spmd(here!(), 3, |comm| {
        let other = comm.split(0, comm.rank()).unwrap();
        let sums = |comm: &Communicator, step: i32| {
            for round in 0..300 {
                let mut data = vec![comm.rank() as i32 + round * step; 1 + round as usize * 7];
                comm.all_reduce(&mut data, ReduceOp::Sum).unwrap();
                assert!(data.iter().all(|sum| *sum == 3 + 3 * round * step));
            }
        };
        // A communicator moves to the thread that uses it.
        let thread = std::thread::spawn(move || sums(&other, 2));
        sums(comm, 5);
        thread.join().unwrap();
    }));
}

#[test]
fn sixteen_bit_sums_round_once() {
    all_well(&spmd(here!(), 3, |comm| {
        // 2048 + 1 + 1: rounding after each step would stay at 2048 in f16.
        let mine = if comm.rank() == 0 { 2048.0 } else { 1.0 };
        for algorithm in ringwork_collectives::all_reduce::BY_TEAM
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

#[test]
fn every_algorithm_gives_the_sum() {
    all_well(&spmd(here!(), 5, |comm| {
        for algorithm in ringwork_collectives::all_reduce::BY_TEAM {
            for count in [1, 7, 4097, 300_003] {
                let mut data: Vec<i32> = (0..count).map(|i| i + comm.rank() as i32).collect();
                comm.all_reduce_with(&mut data, ReduceOp::Sum, algorithm).unwrap();
                assert!(
                    (0..).zip(&data).all(|(i, sum)| *sum == 5 * i + 10),
                    "{algorithm} {count}"
                );
            }
        }
        // Around a ring one may be done while others are not; who ends then is dead to them.
        comm.barrier().unwrap();
    }));
}
