//! Communicators over several hosts. `.ci/hosts/suite.sh` starts these rank programs with the launchers of MPI; each prints
//! `well: RANK of RANKS` when it got through.

use ringwork_communicator::{Communicator, Error};
use ringwork_isa::{Algorithm, Collective, Dtype, Element, ReduceOp, part_range, with_dtype};
use std::time::{Duration, Instant};

/// Elements: one, a few, what leaders exchange, and what every rank has a share of.
const COUNTS: [usize; 4] = [1, 7, 1000, 40_000];

/// The ranks of each host, in the order of hosts.
fn layout(comm: &Communicator) -> Vec<Vec<usize>> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let mut mine = [0u8; 64];
    mine[..name.trim().len()].copy_from_slice(name.trim().as_bytes());
    let mut all = vec![0u8; 64 * comm.size() as usize];
    comm.all_gather(&mine, &mut all).unwrap();
    let mut hosts: Vec<(&[u8], Vec<usize>)> = Vec::new();
    for (rank, name) in all.chunks(64).enumerate() {
        match hosts.iter_mut().find(|(known, _)| *known == name) {
            Some((_, ranks)) => ranks.push(rank),
            None => hosts.push((name, vec![rank])),
        }
    }
    hosts.into_iter().map(|(_, ranks)| ranks).collect()
}

/// What rank `rank` has at `i`: values whose sums must be rounded.
fn value<T: Element>(rank: usize, i: usize) -> T {
    let whole = (rank * 37 + i * 11) % 101;
    if T::DTYPE.is_float() {
        T::from_f64(0.3 + whole as f64 / 7.0)
    } else {
        T::from_i64(whole as i64 - 50)
    }
}

fn values<T: Element>(rank: usize, count: usize) -> Vec<T> {
    (0..count).map(|i| value(rank, i)).collect()
}

/// The reduction as it is promised: inside each host in rank order, then in the order of hosts, rounded once.
fn reduced<T: Element>(hosts: &[Vec<usize>], op: ReduceOp, i: usize) -> T {
    let fold = |mut wide: Box<dyn Iterator<Item = T::Wide> + '_>| {
        let first = wide.next().unwrap();
        wide.fold(first, |sum, next| T::combine(op, sum, next))
    };
    let host = |ranks: &Vec<usize>| {
        let ranks = ranks.clone();
        fold(Box::new(
            ranks.into_iter().map(move |rank| value::<T>(rank, i).widen()),
        ))
    };
    let ranks = hosts.iter().map(Vec::len).sum();
    let sum = fold(Box::new(hosts.iter().map(host)));
    T::narrow(T::finish(op, sum, ranks))
}

fn same<T: Element>(what: &str, got: &[T], wanted: impl Iterator<Item = T>) {
    for (i, (got, wanted)) in got.iter().zip(wanted).enumerate() {
        assert!(
            bytemuck::bytes_of(got) == bytemuck::bytes_of(&wanted),
            "{what} of {} at {i}: {got:?} and not {wanted:?}",
            T::DTYPE
        );
    }
}

fn reductions<T: Element>(comm: &Communicator, hosts: &[Vec<usize>], count: usize, op: ReduceOp) {
    let (me, ranks) = (comm.rank() as usize, comm.size() as usize);
    let mut data = values::<T>(me, count);
    comm.all_reduce(&mut data, op).unwrap();
    same("all_reduce", &data, (0..count).map(|i| reduced(hosts, op, i)));

    let mut window = comm.alloc::<T>(count).unwrap();
    comm.all_reduce_into(&values(me, count), &mut window, op).unwrap();
    same(
        "all_reduce_into",
        &window.to_vec(),
        (0..count).map(|i| reduced(hosts, op, i)),
    );

    let root = ranks - 1;
    let mut data = values::<T>(me, count);
    comm.reduce(&mut data, op, root as u32).unwrap();
    let wanted = |i| {
        if me == root {
            reduced(hosts, op, i)
        } else {
            value(me, i)
        }
    };
    same("reduce", &data, (0..count).map(wanted));

    let mut mine = vec![T::zeroed(); count];
    comm.reduce_scatter(&values::<T>(me, count * ranks), &mut mine, op)
        .unwrap();
    same(
        "reduce_scatter",
        &mine,
        (me * count..).map(|i| reduced(hosts, op, i)),
    );

    let mut data = values::<T>(me, count);
    comm.reduce_scatter_in_place(&mut data, op).unwrap();
    let part = part_range(count, ranks, me);
    same(
        "reduce_scatter_in_place",
        &data[part.clone()],
        part.map(|i| reduced(hosts, op, i)),
    );

    let in_order: Vec<Vec<usize>> = (0..ranks).map(|rank| vec![rank]).collect();
    let mut data = values::<T>(me, count);
    comm.all_reduce_with(&mut data, op, Algorithm::TwoPhase).unwrap();
    same(
        "exact all_reduce",
        &data,
        (0..count).map(|i| reduced(&in_order, op, i)),
    );

    if op != ReduceOp::Avg {
        let mut output = vec![T::from_i64(5); count];
        comm.scan(&values::<T>(me, count), &mut output, op).unwrap();
        same(
            "scan",
            &output,
            (0..count).map(|i| reduced(&in_order[..=me], op, i)),
        );
        comm.exclusive_scan(&values::<T>(me, count), &mut output, op)
            .unwrap();
        if me > 0 {
            same(
                "exclusive_scan",
                &output,
                (0..count).map(|i| reduced(&in_order[..me], op, i)),
            );
        }
    }
}

fn moves<T: Element>(comm: &Communicator, count: usize) {
    let (me, ranks) = (comm.rank() as usize, comm.size() as usize);
    let of = |rank: usize| move |i: usize| value::<T>(rank, i);
    let everybody = || (0..ranks).flat_map(|rank| (0..count).map(of(rank)));
    let mut all = vec![T::zeroed(); count * ranks];
    comm.all_gather(&values::<T>(me, count), &mut all).unwrap();
    same("all_gather", &all, everybody());

    let mut data = values::<T>(me, count);
    comm.all_gather_in_place(&mut data).unwrap();
    let owner = |i: usize| {
        (0..ranks)
            .find(|rank| part_range(count, ranks, *rank).contains(&i))
            .unwrap()
    };
    same(
        "all_gather_in_place",
        &data,
        (0..count).map(|i| value(owner(i), i)),
    );

    for root in 0..ranks {
        let mut data = values::<T>(me, count);
        comm.broadcast(&mut data, root as u32).unwrap();
        same("broadcast", &data, (0..count).map(of(root)));
        let mut all = vec![T::zeroed(); if me == root { count * ranks } else { 0 }];
        comm.gather(&values::<T>(me, count), &mut all, root as u32)
            .unwrap();
        same("gather", &all, everybody());
        let mut part = vec![T::zeroed(); count];
        let given = values::<T>(root, if me == root { count * ranks } else { 0 });
        comm.scatter(&given, &mut part, root as u32).unwrap();
        same("scatter", &part, (me * count..).map(of(root)));
    }

    let mut dealt = vec![T::zeroed(); count * ranks];
    let given = values::<T>(me, count * ranks);
    let wanted = || (0..ranks).flat_map(|rank| (me * count..(me + 1) * count).map(of(rank)));
    comm.all_to_all(&given, &mut dealt).unwrap();
    same("all_to_all", &dealt, wanted());
    let mut data = given.clone();
    comm.all_to_all_in_place(&mut data).unwrap();
    same("all_to_all_in_place", &data, wanted());

    // From each rank to each the product of their numbers, in elements: some send nothing.
    let sends: Vec<usize> = (0..ranks).map(|to| me * to).collect();
    let mut output = vec![T::zeroed(); sends.iter().sum()];
    let input = values::<T>(me, output.len());
    comm.all_to_all_v((&input, &sends), (&mut output, &sends))
        .unwrap();
    let part = |from: usize| {
        (0..from * me).map(move |i| value(from, (0..me).map(|to| from * to).sum::<usize>() + i))
    };
    same("all_to_all_v", &output, (0..ranks).flat_map(part));

    let (next, before) = ((me + 1) % ranks, (me + ranks - 1) % ranks);
    let mut data = vec![T::zeroed(); count];
    comm.exchange((&values::<T>(me, count), next as u32), (&mut data, before as u32))
        .unwrap();
    same("exchange", &data, (0..count).map(of(before)));
    // Through all ranks, one after the other.
    if me > 0 {
        comm.recv(&mut data, before as u32).unwrap();
    } else {
        data = values(0, count);
    }
    if me + 1 < ranks {
        comm.send(&data, next as u32).unwrap();
    }
    same("send", &data, (0..count).map(of(0)));
    comm.barrier().unwrap();
}

fn pending_and_groups(comm: &Communicator, hosts: &[Vec<usize>]) {
    let (me, ranks) = (comm.rank() as usize, comm.size() as usize);
    let begun: Vec<_> = [3, 50_000, 20]
        .map(|count| {
            (
                count,
                comm.all_reduce_start(values::<f32>(me, count), ReduceOp::Sum),
            )
        })
        .into();
    let gathered = comm.all_gather_start(vec![me as i32], vec![0i32; ranks]);
    for (count, pending) in begun {
        let sum = pending.wait().unwrap();
        same(
            "all_reduce_start",
            &sum,
            (0..count).map(|i| reduced(hosts, ReduceOp::Sum, i)),
        );
    }
    assert!(gathered.wait().unwrap().1.into_iter().eq(0..ranks as i32));

    // Reversed order, over the hosts; then one group for each host, and one of two ranks.
    let half = comm.split((me % 2) as u32, (ranks - me) as u32).unwrap();
    let mut members = vec![0i32; half.size() as usize];
    half.all_gather(&[me as i32], &mut members).unwrap();
    let wanted = (0..ranks).rev().filter(|rank| rank % 2 == me % 2);
    assert!(members.into_iter().eq(wanted.map(|rank| rank as i32)));
    let host = hosts.iter().position(|ranks| ranks.contains(&me)).unwrap();
    let local = comm.split(host as u32, me as u32).unwrap();
    assert_eq!(local.size() as usize, hosts[host].len());
    let mut one = [1i32];
    local.all_reduce(&mut one, ReduceOp::Sum).unwrap();
    assert_eq!(one[0] as usize, hosts[host].len());
    let ends = comm.group(&[ranks as u32 - 1, 0]).unwrap();
    assert_eq!(ends.is_some(), me == 0 || me == ranks - 1);
    if let Some(ends) = ends {
        let mut both = [0i32; 2];
        ends.all_gather(&[me as i32], &mut both).unwrap();
        assert_eq!(both, [ranks as i32 - 1, 0]);
    }
    // A group of a group has calls of its own, between those of the others.
    let again = half.split(0, half.rank()).unwrap();
    again.all_reduce(&mut one, ReduceOp::Max).unwrap();
    comm.barrier().unwrap();
}

fn well(comm: Communicator) {
    let (rank, ranks) = (comm.rank(), comm.size());
    comm.barrier().unwrap();
    drop(comm);
    println!("well: {rank} of {ranks}");
}

#[test]
#[ignore = "a rank, to be started over several hosts"]
fn rank_program_of_every_call() {
    let comm = Communicator::from_env().unwrap();
    let hosts = layout(&comm);
    for dtype in Dtype::ALL {
        let thorough = matches!(dtype, Dtype::F32 | Dtype::BF16 | Dtype::I32);
        let counts = if thorough { &COUNTS[..] } else { &COUNTS[1..2] };
        for count in counts {
            with_dtype!(dtype, T => reductions::<T>(&comm, &hosts, *count, ReduceOp::Sum));
        }
        for op in ReduceOp::ALL
            .into_iter()
            .filter(|op| thorough && op.is_for(dtype))
        {
            with_dtype!(dtype, T => reductions::<T>(&comm, &hosts, 100, op));
        }
        with_dtype!(dtype, T => moves::<T>(&comm, 33));
    }
    moves::<f32>(&comm, 40_000);
    let mut nothing: [f32; 0] = [];
    comm.all_reduce(&mut nothing, ReduceOp::Sum).unwrap();
    comm.collective_in_place(Collective::Broadcast, &mut [1i32], (ReduceOp::Sum, 0))
        .unwrap();
    pending_and_groups(&comm, &hosts);
    well(comm);
}

#[test]
#[ignore = "a rank, to be started over several hosts"]
fn rank_program_that_disagrees() {
    let comm = Communicator::from_env().unwrap();
    let count = if comm.rank() == 0 { 4 } else { 5 };
    let error = comm
        .all_reduce(&mut vec![1f32; count], ReduceOp::Sum)
        .unwrap_err();
    let said = error.to_string();
    assert!(
        said.contains("same calls") || said.contains("all_reduce of"),
        "{said}"
    );
    println!("well: {} of {} ({said})", comm.rank(), comm.size());
}

#[test]
#[ignore = "a rank, to be started over several hosts"]
fn rank_program_that_loops_until_a_death() {
    let mut comm = Communicator::from_env().unwrap();
    comm.set_timeout(Duration::from_secs(30));
    let mut data = vec![1f32; 1000];
    println!(
        "looping: {} of {}, process {}",
        comm.rank(),
        comm.size(),
        std::process::id()
    );
    let error = loop {
        let begin = Instant::now();
        if let Err(error) = comm.all_reduce(&mut data, ReduceOp::Max) {
            break (error, begin.elapsed());
        }
    };
    let died = matches!(error.0, Error::Died { .. });
    println!(
        "well: {} of {} after {} ms, died {died}: {}",
        comm.rank(),
        comm.size(),
        error.1.as_millis(),
        error.0
    );
}

#[test]
#[ignore = "a rank, to be started over several hosts"]
fn rank_program_that_is_refused() {
    let error = Communicator::from_env().map(drop).unwrap_err();
    println!("refused: {error}");
}
