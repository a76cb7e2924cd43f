//! Every operation, dtype, reduction, number of ranks and count; in and out of place, windowed and staged.

use super::spmd::{all_well, done, ends, here, long, rank, start};
use super::values::{assert_bits, reduced, value, values};
use ringwork_communicator::Communicator;
use ringwork_isa::{Collective, Dtype, Element, ReduceOp, part_range, with_dtype};

/// 1 MiB and three elements, in the smallest type; the long form has as many elements of each.
const LARGE: usize = (1 << 20) + 3;

fn job(test: &str, body: impl FnOnce(&Communicator)) {
    if rank().is_some() {
        body(&Communicator::from_env().expect("joining"));
        done();
    }
    for size in (1..=9).chain([16]) {
        all_well(&ends(start(test, size, &[])));
    }
}

fn counts(comm: &Communicator, dtype: Dtype) -> Vec<usize> {
    let mut counts = vec![0, 1, 7, 4095, 4097];
    let few = [2, 5].contains(&comm.size()) && [Dtype::F32, Dtype::BF16].contains(&dtype);
    if long() {
        counts.push(LARGE);
    } else if few {
        counts.push(LARGE / dtype.bytes());
    }
    counts
}

#[test]
fn reductions_are_the_fold_in_rank_order() {
    job(here!(), |comm| {
        for dtype in Dtype::ALL {
            for count in counts(comm, dtype) {
                for op in ReduceOp::ALL.into_iter().filter(|op| op.is_for(dtype)) {
                    with_dtype!(dtype, T => reductions::<T>(comm, count, op));
                }
            }
        }
    });
}

fn reductions<T: Element>(comm: &Communicator, count: usize, op: ReduceOp) {
    let (me, n) = (comm.rank(), comm.size());
    let what = |call: &str| format!("{call} of {count} x {}, {op}, {n} ranks", T::DTYPE);
    let mine: Vec<T> = values(op, me, 0..count);
    let wanted: Vec<T> = (0..count).map(|i| reduced(op, n, i)).collect();

    let mut data = mine.clone();
    comm.all_reduce(&mut data, op).unwrap();
    assert_bits(&data, |i| wanted[i], &what("all_reduce"));
    let mut out = vec![T::zeroed(); count];
    comm.all_reduce_into(&mine, &mut out, op).unwrap();
    assert_bits(&out, |i| wanted[i], &what("all_reduce_into"));
    if op != ReduceOp::Avg {
        let before = |end: u32, i: usize| {
            if end == 0 {
                T::zeroed()
            } else {
                reduced(op, end, i)
            }
        };
        let mut out = vec![T::zeroed(); count];
        comm.scan(&mine, &mut out, op).unwrap();
        assert_bits(&out, |i| before(me + 1, i), &what("scan"));
        let mut out = vec![T::zeroed(); count];
        comm.exclusive_scan(&mine, &mut out, op).unwrap();
        assert_bits(&out, |i| before(me, i), &what("exclusive_scan"));
    }
    for algorithm in ringwork_collectives::all_reduce::BY_TEAM {
        if !algorithm.is_exact() || count > 5000 {
            continue;
        }
        let mut data = mine.clone();
        comm.all_reduce_with(&mut data, op, algorithm).unwrap();
        assert_bits(&data, |i| wanted[i], &what(algorithm.name()));
    }

    let root = count as u32 % n;
    let mut data = mine.clone();
    comm.reduce(&mut data, op, root).unwrap();
    let golden = |i: usize| if me == root { wanted[i] } else { mine[i] };
    assert_bits(&data, golden, &what("reduce"));

    let part = count / n as usize;
    let mut out = vec![T::zeroed(); part];
    comm.reduce_scatter(&mine[..part * n as usize], &mut out, op)
        .unwrap();
    assert_bits(&out, |i| wanted[me as usize * part + i], &what("reduce_scatter"));
    let mut data = mine.clone();
    comm.reduce_scatter_in_place(&mut data, op).unwrap();
    let part = part_range(count, n as usize, me as usize);
    assert_bits(
        &data[part.clone()],
        |i| wanted[part.start + i],
        &what("reduce_scatter_in_place"),
    );
}

#[test]
fn data_gets_where_it_belongs() {
    job(here!(), |comm| {
        for dtype in Dtype::ALL {
            for count in counts(comm, dtype) {
                with_dtype!(dtype, T => movements::<T>(comm, count));
            }
        }
        comm.barrier().unwrap();
    });
}

fn movements<T: Element>(comm: &Communicator, count: usize) {
    let (me, n, op) = (comm.rank(), comm.size(), ReduceOp::Sum);
    let what = |call: &str| format!("{call} of {count} x {}, {n} ranks", T::DTYPE);
    let part = count / n as usize;
    let mine: Vec<T> = values(op, me, 0..part);
    let from = |i: usize| value::<T>(op, (i / part) as u32, i % part);

    let mut all = vec![T::zeroed(); part * n as usize];
    comm.all_gather(&mine, &mut all).unwrap();
    assert_bits(&all, from, &what("all_gather"));
    let parts = |rank: usize| part_range(count, n as usize, rank);
    let mut all: Vec<T> = vec![T::zeroed(); count];
    all[parts(me as usize)].copy_from_slice(&values(op, me, parts(me as usize)));
    comm.all_gather_in_place(&mut all).unwrap();
    for rank in 0..n {
        let part = parts(rank as usize);
        assert_bits(
            &all[part.clone()],
            |i| value(op, rank, part.start + i),
            &what("all_gather_in_place"),
        );
    }

    let root = n / 2;
    let mut data: Vec<T> = values(op, me, 0..count);
    comm.broadcast(&mut data, root).unwrap();
    assert_bits(&data, |i| value(op, root, i), &what("broadcast"));
    let mut gathered = vec![T::zeroed(); part * n as usize];
    comm.gather(&mine, &mut gathered, root).unwrap();
    if me == root {
        assert_bits(&gathered, from, &what("gather"));
    }
    let mut back = vec![T::zeroed(); part];
    comm.scatter(&gathered, &mut back, root).unwrap();
    assert_bits(&back, |i| mine[i], &what("scatter"));

    let wide: Vec<T> = values(op, me, 0..part * n as usize);
    let mut swapped = vec![T::zeroed(); wide.len()];
    comm.all_to_all(&wide, &mut swapped).unwrap();
    let swap = |i: usize| value::<T>(op, (i / part) as u32, me as usize * part + i % part);
    assert_bits(&swapped, swap, &what("all_to_all"));
    let mut data = wide.clone();
    comm.all_to_all_in_place(&mut data).unwrap();
    assert_bits(&data, swap, &what("all_to_all_in_place"));
    uneven::<T>(comm, count);

    if n > 1 {
        let (next, before) = ((me + 1) % n, (me + n - 1) % n);
        let mut got = vec![T::zeroed(); count];
        comm.exchange((&values::<T>(op, me, 0..count), next), (&mut got, before))
            .unwrap();
        assert_bits(&got, |i| value(op, before, i), &what("exchange"));
        match me {
            0 => comm.send(&values::<T>(op, me, 0..count), n - 1).unwrap(),
            last if last == n - 1 => {
                comm.recv(&mut got, 0).unwrap();
                assert_bits(&got, |i| value(op, 0, i), &what("recv"));
            }
            _ => {}
        }
    }
}

/// Rank `s` sends `(s + 2 d) % 3 + 1` shares of `count` to `d`.
fn uneven<T: Element>(comm: &Communicator, count: usize) {
    let (me, n, op) = (comm.rank() as usize, comm.size() as usize, ReduceOp::Sum);
    let each = count / n / 3;
    let len = |from: usize, to: usize| ((from + 2 * to) % 3 + 1) * each;
    let sends: Vec<usize> = (0..n).map(|to| len(me, to)).collect();
    let receives: Vec<usize> = (0..n).map(|from| len(from, me)).collect();
    let input: Vec<T> = values(op, me as u32, 0..sends.iter().sum());
    let mut output = vec![T::zeroed(); receives.iter().sum()];
    comm.all_to_all_v((&input, &sends), (&mut output, &receives))
        .unwrap();
    let mut rest = &output[..];
    for (from, count) in receives.iter().enumerate() {
        let start: usize = (0..me).map(|to| len(from, to)).sum();
        let (part, later) = rest.split_at(*count);
        assert_bits(part, |i| value(op, from as u32, start + i), "all_to_all_v");
        rest = later;
    }
}

#[test]
fn windows_are_used_in_place_with_the_same_bits() {
    job(here!(), |comm| {
        let large = if long() { LARGE } else { 40_003 };
        for dtype in Dtype::ALL {
            for count in [0, 7, 4097, large] {
                let ops = if long() {
                    &ReduceOp::ALL[..]
                } else {
                    &[ReduceOp::Sum, ReduceOp::Avg]
                };
                with_dtype!(dtype, T => windowed::<T>(comm, count, ops));
            }
        }
        // Who ends while others still send to each other is dead to them.
        comm.barrier().unwrap();
    });
}

#[test]
fn every_way_of_every_operation_gives_the_same_values() {
    job(here!(), |comm| {
        for count in [1, 3, 13, 300, 5000] {
            every_way::<f32>(comm, count);
            every_way::<u8>(comm, count);
        }
        comm.barrier().unwrap();
    });
}

/// `count` elements for each rank; input and output in own memory and in windows.
fn every_way<T: Element>(comm: &Communicator, count: usize) {
    let (me, n, op) = (comm.rank(), comm.size(), ReduceOp::Sum);
    let len = count * n as usize;
    let (part, all): (Vec<T>, Vec<T>) = (values(op, me, 0..count), values(op, me, 0..len));
    let (mut part_window, mut all_window) = (comm.alloc(count).unwrap(), comm.alloc(len).unwrap());
    let mut other_window = comm.alloc(len).unwrap();
    let (mut small, mut large) = (vec![T::zeroed(); count], vec![T::zeroed(); len]);
    let gathered = |i: usize| value::<T>(op, (i / count) as u32, i % count);
    let swapped = |i: usize| value::<T>(op, (i / count) as u32, me as usize * count + i % count);
    let scattered = |i: usize| reduced(op, n, me as usize * count + i);
    let each = |operation: Collective, run: &mut dyn FnMut(&str)| {
        for way in ringwork_communicator::choices(operation) {
            comm.set_algorithm(operation, Some(way)).unwrap();
            run(&format!(
                "{} by {way}, {count} x {}, {n} ranks",
                operation.name(),
                T::DTYPE
            ));
        }
        comm.set_algorithm(operation, None).unwrap();
    };
    each(Collective::AllGather, &mut |what| {
        comm.all_gather(&part, &mut large).unwrap();
        assert_bits(&large, gathered, what);
        part_window.write(0, &part).unwrap();
        comm.all_gather(&part_window, &mut large).unwrap();
        assert_bits(&large, gathered, what);
        comm.all_gather(&part_window, &mut all_window).unwrap();
        assert_bits(&all_window.to_vec(), gathered, what);
    });
    each(Collective::AllToAll, &mut |what| {
        comm.all_to_all(&all, &mut large).unwrap();
        assert_bits(&large, swapped, what);
        large.copy_from_slice(&all);
        comm.all_to_all_in_place(&mut large).unwrap();
        assert_bits(&large, swapped, what);
        all_window.write(0, &all).unwrap();
        comm.all_to_all(&all_window, &mut other_window).unwrap();
        assert_bits(&other_window.to_vec(), swapped, what);
    });
    each(Collective::ReduceScatter, &mut |what| {
        comm.reduce_scatter(&all, &mut small, op).unwrap();
        assert_bits(&small, scattered, what);
        all_window.write(0, &all).unwrap();
        comm.reduce_scatter(&all_window, &mut part_window, op).unwrap();
        assert_bits(&part_window.to_vec(), scattered, what);
    });
    each(Collective::Broadcast, &mut |what| {
        for root in [0, n - 1] {
            large.copy_from_slice(&all);
            comm.broadcast(&mut large, root).unwrap();
            assert_bits(&large, |i| value(op, root, i), what);
        }
    });
}

fn windowed<T: Element>(comm: &Communicator, count: usize, ops: &[ReduceOp]) {
    let (me, n) = (comm.rank(), comm.size());
    let (parts, part) = (n as usize, count / n as usize);
    let mut window = comm.alloc::<T>(part * parts).unwrap();
    let mut other = comm.alloc::<T>(part).unwrap();
    let len = window.len();
    for &op in ops.iter().filter(|op| op.is_for(T::DTYPE)) {
        let what = |call: &str| format!("{call} in a window, {count} x {}, {op}, {n} ranks", T::DTYPE);
        let mine: Vec<T> = values(op, me, 0..len);
        window.write(0, &mine).unwrap();
        comm.all_reduce(&mut window, op).unwrap();
        assert_bits(&window.to_vec(), |i| reduced(op, n, i), &what("all_reduce"));
        for way in ringwork_communicator::choices(Collective::AllReduce).filter(|way| way.needs_window()) {
            comm.set_algorithm(Collective::AllReduce, Some(way)).unwrap();
            window.write(0, &mine).unwrap();
            comm.all_reduce(&mut window, op).unwrap();
            assert_bits(&window.to_vec(), |i| reduced(op, n, i), &what(way.name()));
        }
        comm.set_algorithm(Collective::AllReduce, None).unwrap();
        comm.all_reduce_into(&mine, &mut window, op).unwrap();
        assert_bits(&window.to_vec(), |i| reduced(op, n, i), &what("all_reduce_into"));
        window.write(0, &mine).unwrap();
        comm.reduce_scatter(&window, &mut other, op).unwrap();
        let offset = me as usize * part;
        assert_bits(
            &other.to_vec(),
            |i| reduced(op, n, offset + i),
            &what("reduce_scatter"),
        );
        comm.reduce_scatter_in_place(&mut window, op).unwrap();
        assert_bits(
            &window.to_vec()[offset..offset + part],
            |i| reduced(op, n, offset + i),
            &what("reduce_scatter_in_place"),
        );
    }
    let op = ReduceOp::Sum;
    let from = |i: usize| value::<T>(op, (i / part) as u32, i % part);
    let mine: Vec<T> = values(op, me, 0..part);
    comm.all_gather(&mine, &mut window).unwrap();
    assert_bits(&window.to_vec(), from, "all_gather into a window");
    window.fill(T::zeroed());
    window.write(me as usize * part, &mine).unwrap();
    comm.all_gather_in_place(&mut window).unwrap();
    assert_bits(&window.to_vec(), from, "all_gather in a window");
    window.write(0, &values::<T>(op, me, 0..len)).unwrap();
    comm.all_to_all_in_place(&mut window).unwrap();
    let swap = |i: usize| value::<T>(op, (i / part) as u32, me as usize * part + i % part);
    assert_bits(&window.to_vec(), swap, "all_to_all in a window");
    for way in ringwork_communicator::choices(Collective::Broadcast) {
        comm.set_algorithm(Collective::Broadcast, Some(way)).unwrap();
        window.write(0, &values::<T>(op, me, 0..len)).unwrap();
        comm.broadcast(&mut window, n - 1).unwrap();
        assert_bits(&window.to_vec(), |i| value(op, n - 1, i), "broadcast in a window");
    }
    comm.set_algorithm(Collective::Broadcast, None).unwrap();
    if n > 1 {
        let (next, before) = ((me + 1) % n, (me + n - 1) % n);
        comm.exchange((&values::<T>(op, me, 0..part), next), (&mut other, before))
            .unwrap();
        assert_bits(
            &other.to_vec(),
            |i| value(op, before, i),
            "exchange into a window",
        );
    }
}
