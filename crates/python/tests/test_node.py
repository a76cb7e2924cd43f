"""The node: chips, memory, tasks, domains, runs; on chips that are processes and on a simulated machine."""

import os
import signal
import threading
import time

import numpy as np
import pytest

import ringwork
from ringwork import DomainSpec, Node, kernels

PLATFORMS = {"native": {}, "sim": {"machine": "ring-4"}}


@pytest.fixture(params=PLATFORMS)
def make(request):
    """Makes nodes of either kind, and closes them."""
    made = []

    def make(devices, **options):
        node = Node(devices, **PLATFORMS[request.param], **options)
        made.append(node)
        return node

    yield make
    for node in made:
        node.close()


def test_an_array_comes_back_from_a_chip_as_it_went(make):
    node = make(2)
    for dtype in ["f2", "f4", "f8", "i1", "u1", "i4", "i8"]:
        array = (np.arange(24) % 7).astype(dtype).reshape(2, 3, 4)
        x = node.tensor(1, array)
        assert (x.device, x.shape, x.size, x.nbytes) == (1, (2, 3, 4), 24, array.nbytes)
        assert np.array_equal(x.numpy(), array) and x.numpy().dtype == array.dtype
        assert np.array_equal(x[1].numpy(), array[1]) and np.array_equal(x[-1:].numpy(), array[-1:])
        assert np.array_equal(np.asarray(x.reshape(6, 4)), array.reshape(6, 4))
        x[0].write(array[1])
        assert np.array_equal(x.numpy()[0], array[1])
    zeros = node.zeros(0, (3, 0))
    assert zeros.dtype == "f32" and zeros.numpy().shape == (3, 0)


def test_bf16_is_its_bits_or_what_ml_dtypes_makes_of_them(make):
    node = make(1)
    bits = np.array([0x3F80, 0x4000, 0xC000], "u2")
    x = node.tensor(0, bits, dtype="bf16")
    assert x.dtype == "bf16"
    assert x.numpy().view("u2").tolist() == bits.tolist()
    y = node.zeros(0, 3, "bf16")
    node.run(lambda orch: orch.submit(0, kernels.add(x, x, y)))
    assert y.numpy().view("u2").tolist() == [0x4000, 0x4080, 0xC080]


def test_lists_become_the_type_of_the_memory_and_arrays_must_have_it(make):
    node = make(1)
    x = node.zeros(0, 3)
    x.write([1, 2, 3])
    assert x.numpy().tolist() == [1, 2, 3]
    with pytest.raises(ringwork.ArgumentError, match="astype"):
        x.write(np.ones(3))
    with pytest.raises(ringwork.ArgumentError):
        node.tensor(0, np.array([object()]))
    with pytest.raises(ringwork.LengthMismatch) as told:
        x.write([1, 2])
    assert (told.value.have, told.value.asked) == (3, 2)
    with pytest.raises(ringwork.LengthMismatch):
        x.reshape(2, 2)
    with pytest.raises(IndexError):
        x[3]
    assert x.numpy().tolist() == [1, 2, 3]


def test_a_task_comes_after_those_that_write_what_it_reads(make):
    node = make(2)
    x, y, z = node.tensor(0, np.arange(8, dtype="f4")), node.zeros(0, 8), node.zeros(0, 8)

    def orchestration(orch):
        for _ in range(5):
            orch.submit(0, kernels.add(x, x, y))
            orch.submit(0, kernels.copy(y, x))
        orch.submit(0, kernels.scale(x, z, 0.5, 1))
        return "done"

    assert node.run(orchestration) == "done"
    assert np.array_equal(z.numpy(), np.arange(8) * 16 + 1)


def team_of(node, elements, dtype="f32"):
    return node.domain("tp", teams={"team": (dtype, elements)})["team"]


@pytest.mark.parametrize("algorithm", ["onephase", "twophase"])
def test_all_reduce_over_four_chips(make, algorithm):
    node = make(4)
    n = 1000
    x = [node.tensor(d, np.arange(n, dtype="f4") + 100 * d) for d in node.devices]
    y = [node.zeros(d, n) for d in node.devices]
    team = team_of(node, n)
    for _ in range(3):
        node.run(lambda orch: orch.group(node.devices, lambda d: kernels.all_reduce(x[d], y[d], team, "sum", algorithm)))
        for d in node.devices:
            assert np.array_equal(y[d].numpy(), 4 * np.arange(n) + 600)


def test_every_collective(make):
    node = make(4)
    n, ranks = 12, range(4)
    data = [(np.arange(n) + 10 * d).astype("i4") for d in ranks]
    x = [node.tensor(d, data[d]) for d in ranks]
    team = team_of(node, 4 * n, "i32")

    def run(length, make_task):
        y = [node.zeros(d, length, "i32") for d in ranks]
        node.run(lambda orch: orch.group(node.devices, lambda d: make_task(x[d], y[d])))
        return [part.numpy() for part in y]

    total, everything = sum(data), np.concatenate(data)
    assert all(np.array_equal(y, everything) for y in run(4 * n, lambda x, y: kernels.all_gather(x, y, team)))
    parts = run(n // 4, lambda x, y: kernels.reduce_scatter(x, y, team, "max"))
    assert np.array_equal(np.concatenate(parts), np.maximum.reduce(data))
    assert all(np.array_equal(y, data[2]) for y in run(n, lambda x, y: kernels.broadcast(x, y, team, root=2)))
    assert np.array_equal(run(n, lambda x, y: kernels.reduce(x, y, team, root=1))[1], total)
    assert np.array_equal(run(4 * n, lambda x, y: kernels.gather(x, y, team, root=3))[3], everything)
    parts = run(n // 4, lambda x, y: kernels.scatter(x, y, team, root=1))
    assert np.array_equal(np.concatenate(parts), data[1])
    for d, y in enumerate(run(n, lambda x, y: kernels.all_to_all(x, y, team))):
        assert np.array_equal(y, np.concatenate([part.reshape(4, -1)[d] for part in data]))


def test_arithmetic_equals_numpy_where_every_step_is_exact(make):
    node = make(1)
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-8, 8, (300, 70)).astype("f4") for _ in range(2))
    b[b == 0] = 1
    row = b[0]
    x, other, line, y = node.tensor(0, a), node.tensor(0, b), node.tensor(0, row), node.zeros(0, a.shape)
    cases = [
        (kernels.add, np.add),
        (kernels.sub, np.subtract),
        (kernels.mul, np.multiply),
        (kernels.div, np.divide),
        (kernels.max, np.maximum),
        (kernels.min, np.minimum),
    ]
    for kernel, golden in cases:
        for memory, array in [(other, b), (line, row)]:
            node.run(lambda orch: orch.submit(0, kernel(x, memory, y)))
            assert np.array_equal(y.numpy(), golden(a, array)), kernel
    for name, golden in {"abs": np.abs, "neg": np.negative, "relu": lambda a: np.maximum(a, 0)}.items():
        node.run(lambda orch: orch.submit(0, kernels.map(x, y, name)))
        assert np.array_equal(y.numpy(), golden(a)), name
    whole, sums = node.tensor(0, a.astype("i4")), node.zeros(0, a.shape, "i32")
    node.run(lambda orch: orch.submit(0, kernels.add(whole, whole, sums)))
    assert np.array_equal(sums.numpy(), 2 * a.astype("i4"))


@pytest.mark.parametrize("shape", [(1, 1, 1), (7, 130, 5), (150, 260, 140)])
def test_gemm_equals_numpy_on_whole_numbers(make, shape):
    m, k, n = shape
    node = make(1)
    rng = np.random.default_rng(1)
    a, b = rng.integers(-4, 4, (m, k)).astype("f4"), rng.integers(-4, 4, (k, n)).astype("f4")
    c = node.zeros(0, (m, n))
    for turn_a in (False, True):
        for turn_b in (False, True):
            x = node.tensor(0, np.ascontiguousarray(a.T) if turn_a else a)
            y = node.tensor(0, np.ascontiguousarray(b.T) if turn_b else b)
            node.run(lambda orch: orch.submit(0, kernels.gemm(x, y, c, transpose_a=turn_a, transpose_b=turn_b)))
            assert np.array_equal(c.numpy(), a @ b)


def test_norms_and_softmax_are_close_to_numpy_in_64_bits(make):
    node = make(1)
    rng = np.random.default_rng(2)
    a, w = rng.standard_normal((50, 33)), rng.standard_normal(33)
    x, weight, y = node.tensor(0, a), node.tensor(0, w), node.zeros(0, a.shape, "f64")
    node.run(lambda orch: orch.submit(0, kernels.softmax(x, y)))
    powers = np.exp(a - a.max(1, keepdims=True))
    assert np.allclose(y.numpy(), powers / powers.sum(1, keepdims=True), rtol=1e-13)
    node.run(lambda orch: orch.submit(0, kernels.rms_norm(x, weight, y, 1e-5)))
    assert np.allclose(y.numpy(), a / np.sqrt((a * a).mean(1, keepdims=True) + 1e-5) * w, rtol=1e-13)
    node.run(lambda orch: orch.submit(0, kernels.map(x, y, "silu")))
    assert np.allclose(y.numpy(), a / (1 + np.exp(-a)), rtol=1e-13)


def test_the_bits_are_the_same_on_chips_and_on_a_simulated_machine():
    def results(**options):
        with Node(2, **options) as node:
            rng = np.random.default_rng(3)
            a, b = (rng.standard_normal((65, 40)).astype("f4") for _ in range(2))
            x = [node.tensor(d, a if d else b) for d in range(2)]
            t = [node.zeros(d, a.shape) for d in range(2)]
            y, c = [node.zeros(d, a.shape) for d in range(2)], node.zeros(0, (65, 65))
            team = team_of(node, a.size)

            def orchestration(orch):
                for d in range(2):
                    orch.submit(d, kernels.map(x[d], t[d], "gelu"))
                orch.group([0, 1], lambda d: kernels.all_reduce(t[d], y[d], team, "avg"))
                orch.submit(0, kernels.gemm(y[0], x[0], c, transpose_b=True))
                orch.submit(0, kernels.softmax(c, c))

            node.run(orchestration)
            return [c.numpy().tobytes(), y[0].numpy().tobytes(), y[1].numpy().tobytes()]

    native, sim = results(), results(machine="h100x8")
    assert native == sim
    assert native[1] == native[2]


def test_a_simulated_run_has_a_time_that_repeats_and_grows_with_the_data():
    def run(n):
        with Node(machine="h100x8") as node:
            assert node.devices == list(range(8)) and node.time == 0
            x, y = ([node.zeros(d, n) for d in node.devices] for _ in range(2))
            team = team_of(node, n)
            node.run(lambda orch: orch.group(node.devices, lambda d: kernels.all_reduce(x[d], y[d], team)))
            return node.time, node.simulated, node.timeline.json()

    (short, facts, trace), again, (long, _, _) = run(1000), run(1000), run(100_000)
    assert 0 < short < long < 1
    assert (short, facts, trace) == again
    assert facts["machine"] == "h100x8" and facts["loads"] and facts["now_ps"] == round(short * 1e12)


def test_a_timeline_is_a_page_a_trace_and_a_cell(make, tmp_path):
    node = make(2)
    x = node.zeros(1, 100)
    node.run(lambda orch: orch.submit(1, kernels.map(x, x, "exp")))
    timeline = node.timeline
    assert any("map" in label for _, label, *_ in timeline.slices) and timeline.end > 0
    timeline.save(tmp_path / "run.html")
    timeline.save(tmp_path / "run.json")
    assert "<html" in (tmp_path / "run.html").read_text()
    assert '"traceEvents"' in (tmp_path / "run.json").read_text()
    assert timeline._repr_html_().startswith("<iframe srcdoc=")


def test_machines_are_presets_files_and_pictures(tmp_path):
    machine = ringwork.Machine("ring-4")
    assert (machine.ranks, machine.name) == (4, "ring-4") and "<svg" in machine._repr_html_()
    path = tmp_path / "mine.yaml"
    path.write_text(machine.yaml)
    with Node(machine=path) as node:
        assert len(node.devices) == 4 and node.machine.ranks == 4
    with Node(devices=[3, 1], machine=machine) as node:
        assert node.devices == [3, 1] and node.time == 0
    with pytest.raises(ringwork.ConfigError, match="h100x8"):
        Node(machine="h100x9000")
    path.write_text("network: {kind: rink}")
    with pytest.raises(ringwork.ConfigError, match="mine.yaml"):
        Node(machine=path)


def test_a_host_closure_takes_its_turn_and_reads_what_is_ready(make):
    node = make(1)
    x, y, seen = node.tensor(0, np.ones(4, "f4")), node.zeros(0, 4), []

    def orchestration(orch):
        orch.submit(0, kernels.scale(x, y, 3))
        orch.host(lambda: seen.append(y.numpy().tolist()), reads=y, name="look")
        orch.host(lambda: y.write(np.full(4, 7, "f4")), updates=[y])
        orch.submit(0, kernels.copy(y, x))

    node.run(orchestration)
    assert seen == [[3] * 4] and x.numpy().tolist() == [7] * 4


def test_conditions_order_tasks_that_share_nothing(make):
    node = make(2)
    x, log = [node.zeros(d, 4) for d in range(2)], []

    def orchestration(orch):
        first = orch.host(lambda: log.append("first"))
        second = orch.submit(1, kernels.copy(x[1], x[1].reshape(4)), after=first, priority=3)
        orch.host(lambda: log.append("last"), after=[first, second])
        with pytest.raises(TypeError, match="no condition `afer`"):
            orch.submit(0, kernels.map(x[0], x[0], "abs"), afer=first)

    node.run(orchestration)
    assert log == ["first", "last"]


def test_intermediates_pass_between_tasks_and_are_never_seen_by_the_host(make):
    node = make(1)
    x, y = node.tensor(0, np.arange(6, dtype="f4")), node.zeros(0, 6)

    def orchestration(orch):
        between = orch.intermediate(0, 6)
        orch.submit(0, kernels.scale(x, between, 2))
        orch.submit(0, kernels.scale(between, y, 1, 1))
        with pytest.raises(ringwork.ArgumentError, match="intermediate"):
            between.numpy()

    node.run(orchestration)
    assert np.array_equal(y.numpy(), np.arange(6) * 2 + 1)


def test_anywhere_runs_on_a_chip_that_has_the_memory(make):
    node = make(2)
    x = node.tensor(1, np.arange(3, dtype="f4"))
    node.run(lambda orch: orch.anywhere(kernels.scale(x, x, 2)))
    assert x.numpy().tolist() == [0, 2, 4]


def test_two_threads_do_not_drive_one_node_at_once():
    with Node(1) as node:
        x, inside, told = node.zeros(0, 1), threading.Event(), []

        def other():
            inside.wait()
            try:
                x.numpy()
            except ringwork.NodeError as error:
                told.append(str(error))

        thread = threading.Thread(target=other)
        thread.start()

        def orchestration(orch):
            inside.set()
            thread.join()

        node.run(orchestration)
        assert told and "another thread" in told[0]
        assert x.numpy().tolist() == [0]


def test_other_threads_run_while_a_run_waits():
    with Node(1) as node:
        count = 0

        def counting():
            nonlocal count
            while not stop.is_set():
                count += 1

        stop, thread = threading.Event(), threading.Thread(target=counting)

        def orchestration(orch):
            orch.host(lambda: time.sleep(0.2))
            thread.start()

        node.run(orchestration)
        stop.set()
        thread.join()
        assert count > 1000


def test_ctrl_c_ends_a_run_and_comes_out_as_itself():
    with Node(2, domains=[DomainSpec("tp", [0, 1], teams={"team": ("f32", 4)})]) as node:
        x, team = node.zeros(0, 4), node.domains["tp"]["team"]
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        start = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            # Alone in a team of two: it waits for its partner.
            node.run(lambda orch: orch.submit(0, kernels.all_reduce(x, x, team)))
        assert time.monotonic() - start < 20
        with pytest.raises(ringwork.NodeError):
            node.run(lambda orch: orch.wait())


def reduced_by_rank(comm, seed, n):
    x = np.random.default_rng([seed, comm.rank]).standard_normal(n).astype("f4")
    comm.all_reduce(x)
    return x.tobytes()


def test_the_bits_of_a_sum_are_those_of_numpy_in_rank_order_wherever_it_is_computed():
    n, ranks = 3000, 3
    data = [np.random.default_rng([7, rank]).standard_normal(n).astype("f4") for rank in range(ranks)]
    golden = data[0].copy()
    for more in data[1:]:
        golden += more
    assert set(ringwork.spawn(reduced_by_rank, ranks, (7, n))) == {golden.tobytes()}
    for options in ({}, {"machine": "ring-4"}):
        with Node(ranks, **options) as node:
            x, y = [node.tensor(d, data[d]) for d in range(ranks)], [node.zeros(d, n) for d in range(ranks)]
            team = team_of(node, n)
            for algorithm in ("onephase", "twophase"):
                node.run(lambda orch: orch.group(range(ranks), lambda d: kernels.all_reduce(x[d], y[d], team, "sum", algorithm)))
                assert {part.numpy().tobytes() for part in y} == {golden.tobytes()}, (options, algorithm)


def test_the_bits_of_a_product_are_those_of_numpy_in_the_order_of_k(make):
    rng = np.random.default_rng(8)
    a, b = rng.standard_normal((40, 150)).astype("f4"), rng.standard_normal((150, 130)).astype("f4")
    golden = np.zeros((40, 130), "f4")
    for k in range(150):
        golden += a[:, k : k + 1] * b[k : k + 1]
    node = make(1)
    c = node.zeros(0, golden.shape)
    node.run(lambda orch: orch.submit(0, kernels.gemm(node.tensor(0, a), node.tensor(0, b), c)))
    assert c.numpy().tobytes() == golden.tobytes()
