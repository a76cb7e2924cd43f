"""Every operation, compared with what NumPy computes from all ranks' data."""

import numpy as np
import pytest

import ringwork

DTYPES = ["f2", "f4", "f8", "i1", "u1", "i4", "i8"]
OPS = {"sum": np.add, "max": np.maximum, "min": np.minimum, "prod": np.multiply}
LENGTHS = [1, 7, 1000, 70_000]


def data(rank, n, dtype):
    """Small whole numbers, so that every reduction is exact in every dtype."""
    return ((np.arange(n) * 7 + rank * 3) % 4).astype(dtype)


def reduced(op, size, n, dtype):
    """What one process computes in 64 bits, in the elements' type."""
    wide = "f8" if np.dtype(dtype).kind == "f" else "i8"
    return OPS[op].reduce([data(r, n, wide) for r in range(size)]).astype(dtype)


def run(function, size, *args):
    return ringwork.spawn(function, size, args, timeout=30)


def reductions(comm):
    for dtype in DTYPES:
        for op in OPS:
            for n in LENGTHS:
                x = data(comm.rank, n, dtype)
                want = reduced(op, comm.size, n, dtype)
                comm.all_reduce(x, op)
                assert x.dtype == dtype and np.array_equal(x, want), (dtype, op, n)
                y, before = np.zeros(n, dtype), data(comm.rank, n, dtype)
                comm.all_reduce(before, op, out=y)
                assert np.array_equal(y, want) and np.array_equal(before, data(comm.rank, n, dtype))


@pytest.mark.parametrize("size", [1, 2, 3])
def test_all_reduce_equals_one_process_for_every_dtype_and_op(size):
    run(reductions, size)


def averages(comm):
    x = np.full(5, float(comm.rank), "f4")
    comm.all_reduce(x, "avg")
    assert np.array_equal(x, np.full(5, (comm.size - 1) / 2, "f4"))
    truth = np.array([comm.rank == 0, False, True])
    comm.all_reduce(truth)
    assert truth.tolist() == [True, False, True]
    every = np.array([comm.rank == 0, False, True])
    comm.all_reduce(every, "prod")
    assert every.tolist() == [comm.size == 1, False, True]
    square = np.full((3, 4), comm.rank + 1, "i4")
    comm.all_reduce(square)
    assert square.shape == (3, 4) and (square == sum(range(1, comm.size + 1))).all()
    raw = bytearray([comm.rank])
    comm.all_reduce(raw, "max")
    assert raw == bytes([comm.size - 1])


def test_averages_truth_values_shapes_and_bytearrays():
    run(averages, 3)


def bfloats(comm):
    # 1.5 is 0x3FC0 in bf16; three of them are 4.5, 0x4090.
    x = np.full(9, 0x3FC0, "u2")
    comm.all_reduce(x, dtype="bf16")
    assert (x == 0x4090).all()
    with pytest.raises(ringwork.ArgumentError, match="cannot compute with elements of format `H`"):
        comm.all_reduce(np.ones(3, "u2"))
    window = comm.zeros(9, "bf16")
    np.asarray(window.as_uint16())[:] = 0x3FC0
    comm.all_reduce(window)
    assert (np.asarray(window.as_uint16()) == 0x4090).all()


def test_bf16_is_summed_when_named_and_uint16_is_refused_otherwise():
    run(bfloats, 3)


def moves(comm):
    r, size = comm.rank, comm.size
    for dtype in [*DTYPES, "c16", "u2", "?", "S3", [("a", "i4"), ("b", "f8")]]:
        for n in (1, 5, 4000):
            mine = [np.arange(n * 100 * k, n * (100 * k + 1)).astype(np.uint8) for k in range(size)]
            item = np.dtype(dtype).itemsize
            of = lambda k: np.resize(mine[k], n * item).view(np.uint8) // 2 % 2  # noqa: E731  valid for truth values too
            array = lambda k: of(k).view(dtype)  # noqa: E731
            both = np.concatenate([array(k) for k in range(size)])
            out = np.zeros(size * n, dtype)
            comm.all_gather(array(r), out)
            assert out.tobytes() == both.tobytes(), dtype
            place = np.zeros(size * n, dtype)
            place[r * n : (r + 1) * n] = array(r)
            comm.all_gather(place)
            assert place.tobytes() == both.tobytes(), dtype
            for root in range(size):
                x = array(r).copy()
                comm.broadcast(x, root)
                assert x.tobytes() == array(root).tobytes()
                out = np.zeros(size * n, dtype) if r == root else None
                comm.gather(array(r), out, root)
                assert r != root or out.tobytes() == both.tobytes()
                got = np.zeros(n, dtype)
                comm.scatter(both if r == root else None, got, root)
                assert got.tobytes() == array(r).tobytes()


@pytest.mark.parametrize("size", [2, 3])
def test_gather_scatter_and_broadcast_move_any_fixed_size_dtype_from_every_root(size):
    run(moves, size)


def partial(comm):
    r, size = comm.rank, comm.size
    for dtype in DTYPES:
        for op in OPS:
            n = 6
            x = data(r, n * size, dtype)
            want = reduced(op, size, n * size, dtype)
            out = np.zeros(n, dtype)
            comm.reduce_scatter(x, out, op)
            assert np.array_equal(out, want[r * n : (r + 1) * n])
            comm.reduce_scatter(x, op=op)
            assert np.array_equal(x[r * n : (r + 1) * n], want[r * n : (r + 1) * n])
            for root in range(size):
                y = data(r, n, dtype)
                comm.reduce(y, root, op)
                assert np.array_equal(y, reduced(op, size, n, dtype) if r == root else data(r, n, dtype))


def test_reduce_and_reduce_scatter_give_each_rank_its_part():
    run(partial, 3)


def crosswise(comm):
    r, size = comm.rank, comm.size
    n = 500
    x = np.concatenate([np.full(n, 10 * r + k, "i4") for k in range(size)])
    want = np.concatenate([np.full(n, 10 * k + r, "i4") for k in range(size)])
    out = np.zeros_like(x)
    comm.all_to_all(x, out)
    assert np.array_equal(out, want)
    comm.all_to_all(x)
    assert np.array_equal(x, want)
    # Rank r sends k + 1 elements to rank k; complex numbers travel as bytes.
    sends, receives = [k + 1 for k in range(size)], [r + 1] * size
    x = np.full(sum(sends), r + 1j, "c8")
    out = np.zeros(sum(receives), "c8")
    comm.all_to_all(x, out, sends=sends, receives=receives)
    assert np.array_equal(out, np.repeat([k + 1j for k in range(size)], r + 1).astype("c8"))
    with pytest.raises(ringwork.ArgumentError, match="counts need all of"):
        comm.all_to_all(x, out, sends=sends)


def test_all_to_all_with_equal_and_unequal_parts():
    run(crosswise, 3)


def messages(comm):
    r, size = comm.rank, comm.size
    ahead, behind = (r + 1) % size, (r - 1) % size
    for n in (0, 1, 3000, 1 << 20):
        x, y = np.full(n, r, "f4"), np.empty(n, "f4")
        comm.exchange(x, ahead, y, behind)
        assert np.array_equal(y, np.full(n, behind, "f4"))
        if r == 0:
            comm.send(x + 5, 1)
        elif r == 1:
            comm.recv(y, 0)
            assert np.array_equal(y, np.full(n, 5, "f4"))
    comm.barrier()


def test_messages_of_any_length_go_round_a_ring():
    run(messages, 3)


def pending(comm):
    r, size = comm.rank, comm.size
    both = np.arange(2 * size, dtype="f4")
    x, total = np.full(3000, r, "f4"), np.zeros(3000, "f4")
    gathered, part, crossed = np.zeros(2 * size, "f4"), np.zeros(2, "f4"), np.zeros(2 * size, "f4")
    out, ring = np.zeros(2, "f4"), np.zeros(2, "f4")
    root_out = np.zeros(2 * size, "f4") if r == 0 else None
    reduced = np.full(2, r, "f4")
    shared = np.full(2, r, "f4")
    calls = [
        comm.all_reduce(x, out=total, wait=False),
        comm.all_gather(both[2 * r : 2 * r + 2].copy(), gathered, wait=False),
        comm.reduce_scatter(both, part, wait=False),
        comm.broadcast(shared, size - 1, wait=False),
        comm.reduce(reduced, 0, wait=False),
        comm.gather(np.full(2, r, "f4"), root_out, wait=False),
        comm.scatter(both if r == 0 else None, out, wait=False),
        comm.all_to_all(both, crossed, wait=False),
        comm.exchange(np.full(2, r, "f4"), (r + 1) % size, ring, (r - 1) % size, wait=False),
        comm.barrier(wait=False),
    ]
    for call in calls:
        call.wait()
        assert call.test()
        call.wait()  # again: it returns at once
    ranks = sum(range(size))
    assert (total == ranks).all() and (x == r).all()
    assert np.array_equal(gathered, both)
    assert np.array_equal(part, both[2 * r : 2 * r + 2] * size)
    assert (shared == size - 1).all()
    assert (reduced == (ranks if r == 0 else r)).all()
    assert r != 0 or np.array_equal(root_out, np.repeat(np.arange(size), 2))
    assert np.array_equal(out, both[2 * r : 2 * r + 2])
    assert np.array_equal(crossed, np.tile(both[2 * r : 2 * r + 2], size))
    assert (ring == (r - 1) % size).all()


def test_every_call_can_be_begun_and_waited_for():
    run(pending, 3)


def pairs(comm):
    if comm.rank == 0:
        comm.send(np.arange(4, dtype="i8"), 1, wait=False).wait()
    else:
        x = np.zeros(4, "i8")
        comm.recv(x, 0, wait=False).wait()
        assert x.tolist() == [0, 1, 2, 3]


def test_messages_can_be_begun():
    run(pairs, 2)


def windows(comm):
    w = comm.zeros((4, 25), np.float32)
    assert (w.shape, w.dtype, w.nbytes, len(w)) == ((4, 25), "f32", 400, 4)
    view = np.asarray(w)
    assert view.shape == (4, 25) and view.dtype == "f4" and not view.any() and view.flags.writeable
    view[:] = comm.rank + 1
    comm.all_reduce(w)
    assert (view == sum(range(1, comm.size + 1))).all(), "the view and the window are the same memory"
    assert np.shares_memory(view, np.asarray(w))
    out = np.zeros(100, "f4")
    comm.all_reduce(w, out=out)
    assert (out == view[0, 0] * comm.size).all()
    back = np.from_dlpack(w)
    assert np.shares_memory(back, view) and back.flags.writeable
    for dtype in ("f16", "f64", "i8", "u8", "i32", "i64"):
        x = comm.zeros(3, dtype)
        np.asarray(x)[:] = comm.rank
        comm.all_reduce(x, "max")
        assert np.asarray(x).tolist() == [comm.size - 1] * 3
    with pytest.raises(ringwork.ArgumentError, match="dtype"):
        comm.zeros(3, "f33")
    comm.barrier()


def test_a_window_is_one_memory_for_the_calls_and_for_numpy():
    run(windows, 2)


def groups(comm):
    r = comm.rank
    half = comm.split(r % 2, key=10 - r)
    assert (half.size, half.rank) == (2, 0 if r >= 2 else 1), "the key turned the order round"
    x = np.full(1, float(r))
    half.all_reduce(x)
    assert x[0] == (0 + 2 if r % 2 == 0 else 1 + 3)
    some = comm.group([3, 1])
    assert (some is None) == (r in (0, 2))
    if some is not None:
        assert some.rank == (0 if r == 3 else 1)
        some.barrier()
    with pytest.raises(ringwork.ArgumentError, match="there is no rank 9"):
        comm.group([9])
    comm.barrier()


def test_split_and_group_order_their_ranks():
    run(groups, 4)


def bits(comm, size):
    """Sums whose bits depend on the order of additions are the same on every rank, and in rank order."""
    rng = [np.random.default_rng(k).standard_normal(10_000).astype("f4") for k in range(size)]
    x = rng[comm.rank].copy()
    comm.all_reduce(x)
    want = rng[0].copy()
    for other in rng[1:]:
        want += other
    assert x.tobytes() == want.tobytes()
    w = comm.zeros(10_000)
    np.asarray(w)[:] = rng[comm.rank]
    comm.all_reduce(w)
    assert np.asarray(w).tobytes() == want.tobytes()


def test_sums_have_the_bits_of_adding_in_rank_order():
    run(bits, 3, 3)
