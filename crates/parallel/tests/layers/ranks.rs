//! Over a communicator among real processes: each starts this test program again, once for every rank.

use crate::chips::{assert_same_bits, simulated};
use crate::model::{Named, Spread, check, compute};
use ringwork_communicator::Communicator;
use ringwork_isa::ReduceOp;
use ringwork_parallel::{Axis, Error, ParallelState, RankGroup};
use std::process::{Command, Stdio};

/// What a rank that got through its test ends with: a program that ran no test at all ends with 0.
const DONE: i32 = 77;

/// Runs `body` in `size` processes; in the ranks it does not return.
fn spmd(test: &str, size: u32, body: impl FnOnce(Communicator)) {
    if std::env::var_os("RINGWORK_RANK").is_some() {
        body(Communicator::from_env().unwrap());
        std::process::exit(DONE);
    }
    let rank = |rank: u32| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args([test, "--exact", "--nocapture", "--test-threads=1"])
            .stdout(Stdio::null());
        command
            .env("RINGWORK_RANK", rank.to_string())
            .env("RINGWORK_SIZE", size.to_string());
        command.env("RINGWORK_RENDEZVOUS", format!("{test}-{}", std::process::id()));
        command.env("RINGWORK_TIMEOUT", "60").spawn().unwrap()
    };
    let ranks: Vec<_> = (0..size).map(rank).collect();
    let ends: Vec<_> = ranks
        .into_iter()
        .map(|mut rank| rank.wait().unwrap().code())
        .collect();
    assert!(ends.iter().all(|code| *code == Some(DONE)), "{ends:?}");
}

#[test]
fn layers_over_a_communicator_have_the_bits_of_the_simulated_node() {
    spmd(
        "ranks::layers_over_a_communicator_have_the_bits_of_the_simulated_node",
        3,
        |comm| {
            let results = compute(&RankGroup::new(&comm)).unwrap();
            let read = |result: Named<ringwork_parallel::Matrix<ringwork_parallel::RankMemory>>| Named {
                name: result.name,
                spread: result.spread,
                value: result.value.parts()[0].read().unwrap(),
            };
            let results: Vec<_> = results.into_iter().map(read).collect();
            let me = comm.rank() as usize;
            check(&results, me, 3);
            assert_same_bits(&results, &simulated(3)[me]);
            for result in results
                .iter()
                .filter(|result| result.spread == Spread::Everywhere)
            {
                let mine: Vec<i32> = result
                    .value
                    .iter()
                    .map(|value| value.to_bits().cast_signed())
                    .collect();
                let (mut least, mut most) = (mine.clone(), mine.clone());
                comm.all_reduce(&mut least, ReduceOp::Min).unwrap();
                comm.all_reduce(&mut most, ReduceOp::Max).unwrap();
                assert_eq!((&least, &most), (&mine, &mine), "{}", result.name);
            }
        },
    );
}

#[test]
fn the_groups_of_a_world_are_those_of_its_grid_and_communicate_apart() {
    spmd(
        "ranks::the_groups_of_a_world_are_those_of_its_grid_and_communicate_apart",
        4,
        |world| {
            let me = world.rank();
            let state = ParallelState::initialize(world, 2, 2).unwrap();
            for axis in [Axis::Tensor, Axis::Data, Axis::Pipeline] {
                let (group, members) = (state.group(axis), state.grid().group(axis, me));
                assert_eq!(group.size(), state.grid().size(axis));
                assert_eq!(group.rank(), state.grid().rank(axis, me));
                let mut ranks = vec![0i32; members.len()];
                group.all_gather(&[me.cast_signed()], &mut ranks).unwrap();
                assert_eq!(
                    ranks,
                    members.iter().map(|rank| rank.cast_signed()).collect::<Vec<_>>()
                );
            }
            assert_eq!((state.is_first_stage(), state.is_last_stage()), (me < 2, me >= 2));
            // A value goes around the pipeline.
            let mut stage = [0u8];
            let (next, previous) = (state.next_stage(), state.previous_stage());
            state
                .world()
                .exchange((&[me as u8], next), (&mut stage, previous))
                .unwrap();
            assert_eq!(u32::from(stage[0]), (me + 2) % 4);
        },
    );
}

#[test]
fn a_world_that_does_not_divide_is_refused_on_every_rank() {
    spmd(
        "ranks::a_world_that_does_not_divide_is_refused_on_every_rank",
        2,
        |world| {
            let refused = ParallelState::initialize(world, 3, 1);
            assert!(matches!(
                refused,
                Err(Error::Grid {
                    world: 2,
                    tensor: 3,
                    pipeline: 1
                })
            ));
        },
    );
}
