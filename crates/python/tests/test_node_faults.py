"""What goes wrong on a node: who is named, what comes out, and that the next run is clean."""

import gc
import os
import pathlib
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import ringwork
from ringwork import DomainSpec, Node, kernels

CHIP = pathlib.Path(ringwork._core.__file__).with_name("bin") / "ringwork-chip"


@pytest.fixture(params=["native", "sim"])
def make(request):
    made = []

    def make(devices, **options):
        node = Node(devices, **({"machine": "ring-4"} if request.param == "sim" else {}), **options)
        made.append(node)
        return node

    yield make
    for node in made:
        node.close()


def doubles(node, device=0):
    """A run that must go well."""
    x, y = node.tensor(device, np.arange(4, dtype="f4")), node.zeros(device, 4)
    node.run(lambda orch: orch.submit(device, kernels.scale(x, y, 2)))
    return y.numpy().tolist() == [0, 2, 4, 6]


def test_an_exception_of_the_orchestration_comes_out_unchanged_and_the_next_run_is_clean(make):
    node = make(2)
    error, x = ValueError("mine"), node.zeros(0, 4)

    def orchestration(orch):
        orch.submit(0, kernels.scale(x, x, 1, 5))
        raise error

    with pytest.raises(ValueError) as told:
        node.run(orchestration)
    assert told.value is error
    assert x.numpy().tolist() == [5] * 4  # what was submitted has ended
    assert doubles(node)


def test_a_failed_kernel_names_its_chip_its_line_and_what_it_cancelled(make):
    node = make(2)
    a, b, c = node.zeros(1, (2, 3)), node.zeros(1, (4, 5)), node.zeros(1, (2, 5))

    def orchestration(orch):
        orch.submit(1, kernels.gemm(a, b, c))
        orch.submit(1, kernels.softmax(c, c))

    with pytest.raises(ringwork.TaskFailed, match="2 x 3 times 4 x 5 is not 2 x 5") as told:
        node.run(orchestration)
    error = told.value
    assert (error.chip, error.kernel, error.cancelled) == (1, "gemm", ["kernel `softmax` on chip 1"])
    assert error.file.endswith("dense.rs") and error.line > 0 and error.worker == "node"
    assert doubles(node, 1)


def test_an_argument_of_the_wrong_kind_is_refused_before_it_is_sent(make):
    node = make(1)
    x = node.zeros(0, 4)
    team = node.domain("tp", [0], teams={"team": ("f32", 4)})["team"]
    with pytest.raises(ringwork.ArgumentError, match="`b` is a tensor"):
        kernels.add(x, 3, x)
    with pytest.raises(ringwork.ArgumentError, match="`op` is"):
        kernels.all_reduce(x, x, team, "median")
    with pytest.raises(ringwork.ArgumentError, match="`team` is"):
        kernels.all_reduce(x, x, x)
    with pytest.raises(TypeError, match="takes 2 arguments"):
        ringwork.Kernel.named("softmax")(x)
    with pytest.raises(ringwork.ArgumentError, match="no built-in kernel"):
        ringwork.Kernel.named("hardmax")
    whole = node.zeros(0, 4, "i32")
    with pytest.raises(ringwork.TaskFailed, match="elements of type f32"):
        node.run(lambda orch: orch.submit(0, kernels.softmax(whole, whole)))
    assert doubles(node)


def test_a_chip_that_does_not_have_the_memory_is_refused(make):
    node = make(2)
    x = node.zeros(1, 4)
    with pytest.raises(ringwork.NotAMember) as told:
        node.run(lambda orch: orch.submit(0, kernels.scale(x, x, 1)))
    assert told.value.chip == 0
    with pytest.raises(ringwork.NoSuchDevice):
        node.zeros(7, 4)
    with pytest.raises(ringwork.NoSuchDevice):
        node.run(lambda orch: orch.submit(9, kernels.scale(x, x, 1)))
    with pytest.raises(ValueError):
        node.zeros(-1, 4)
    assert doubles(node, 1)


def test_a_host_closure_that_raises_fails_the_run_from_what_it_raised(make):
    node = make(1)
    x = node.zeros(0, 4)

    def lose():
        raise KeyError("nothing here")

    def orchestration(orch):
        orch.host(lose, writes=x)
        orch.submit(0, kernels.scale(x, x, 2))

    with pytest.raises(ringwork.HostFailed, match="lose") as told:
        node.run(orchestration)
    assert told.value.name == "lose" and isinstance(told.value.__cause__, KeyError)
    assert doubles(node)


def test_an_orchestrator_is_good_for_its_own_run_only(make):
    node = make(1)
    kept, x = [], node.zeros(0, 4)
    task = kernels.scale(x, x, 2)
    node.run(kept.append)
    with pytest.raises(ringwork.NodeError, match="over"):
        kept[0].submit(0, task)

    def orchestration(orch):
        orch.host(lambda: orch.submit(0, task))

    with pytest.raises(ringwork.HostFailed, match="only the orchestration itself submits"):
        node.run(orchestration)
    with pytest.raises(ringwork.NodeError, match="inside of another"):
        node.run(lambda orch: node.run(lambda inner: None))
    assert doubles(node)


# --- domains ---


def test_a_domain_maps_chips_to_ranks_and_has_no_rank_for_others(make):
    node = make([2, 0, 3])
    tp = node.domain("tp", [3, 2], buffers={"slots": ("f32", 8)}, signals={"filled": 2}, barriers=["meet"])
    assert tp.ranks == {3: 0, 2: 1} and tp.members == [3, 2]
    assert tp.rank_of(2) == 1
    with pytest.raises(KeyError, match="not a member"):
        tp.rank_of(0)
    assert sorted(tp.keys()) == ["filled", "meet", "slots"] and "meet" in tp
    with pytest.raises(KeyError, match="no buffer `slot`; it has `slots`"):
        tp["slot"]
    assert tp["slots"].shape == (8,) and tp["slots"].dtype == "f32"
    tp["slots"].on(1).write(np.arange(8, dtype="f4"))
    assert tp["slots"].on(1).numpy().tolist() == list(range(8)) and not tp["slots"].on(0).numpy().any()
    with pytest.raises(ringwork.NodeError):
        tp["slots"].on(2)


def test_contexts_say_what_each_chip_has_when_it_is_ready(make):
    specs = [
        DomainSpec("tp", [0, 1], buffers={"slots": ("f32", 512), "flags": ("u8", 3)}),
        DomainSpec("dp", [1], buffers={"x": ("bf16", 4)}),
    ]
    node = make(2, domains=specs)
    first, second = node.contexts
    assert (first["device"], second["device"]) == (0, 1)
    assert list(first["domains"]) == ["tp"] and set(second["domains"]) == {"tp", "dp"}
    assert second["domains"]["tp"]["rank"] == 1 and second["domains"]["tp"]["ranks"] == 2
    offset, dtype, count = first["domains"]["tp"]["buffers"]["slots"]
    assert (dtype, count) == ("f32", 512) and offset % 64 == 0
    assert first["domains"]["tp"]["window_bytes"] >= 512 * 4 + 3
    assert set(node.domains) == {"tp", "dp"}


def test_staged_data_is_there_from_the_start(make):
    data = np.arange(4, dtype="f4")
    node = make(2, domains=[DomainSpec("tp", [0, 1], buffers={"x": ("f32", 4)}, stage={"x": {1: data}})])
    x = node.domains["tp"]["x"]
    assert x.on(1).numpy().tolist() == data.tolist() and not x.on(0).numpy().any()


@pytest.mark.parametrize(
    "named, problem",
    [
        ({"members": []}, "0 members"),
        ({"members": [0, 0]}, "twice"),
        ({"members": [0, 9]}, "device 9 is not a chip"),
        ({"buffers": {"x": ("f32", 4)}, "signals": {"x": 1}}, None),
        ({"buffers": {"x": ("f32", 4)}, "window_bytes": 8}, "need 1"),
        ({"buffers": {"x": ("f32", 4)}, "stage": {"y": {0: [1.0]}}}, "no such buffer"),
        ({"buffers": {"x": ("f32", 4)}, "stage": {"x": {0: [1.0]}}}, "1 elements and the buffer 4"),
        ({"buffers": {"x": ("f32", 4)}, "stage": {"x": {5: [1.0] * 4}}}, "2 ranks"),
    ],
)
def test_a_domain_that_cannot_be_is_refused_before_anything_starts(named, problem):
    named = {"members": [0, 1], **named}
    spec = DomainSpec("tp", named.pop("members"), **named)
    if problem is None:
        return Node(2, machine="ring-4", domains=[spec]).close()  # buffers and signals have names of their own
    with pytest.raises(ringwork.ConfigError, match=problem) as told:
        # Nothing is started: there is no such program.
        Node(2, domains=[spec], chip="/bin/false")
    assert "domain `tp`" in told.value.field


def test_overlapping_domains_keep_their_members_apart(make):
    node = make(3)
    pairs = [node.domain(name, members, teams={"team": ("f32", 4)}) for name, members in [("left", [0, 1]), ("right", [2, 1])]]
    x = [node.tensor(d, np.full(4, 10.0**d, "f4")) for d in range(3)]
    y = {(pair.name, d): node.zeros(d, 4) for pair in pairs for d in pair.members}

    def orchestration(orch):
        for pair in pairs:
            orch.group(pair.members, lambda d: kernels.all_reduce(x[d], y[pair.name, d], pair["team"]))

    for _ in range(3):
        node.run(orchestration)
    assert y["left", 1].numpy().tolist() == [11] * 4 and y["right", 1].numpy().tolist() == [110] * 4
    assert y["left", 0].numpy().tolist() == [11] * 4 and y["right", 2].numpy().tolist() == [110] * 4


def test_what_was_released_is_refused_and_what_was_submitted_before_is_done(make):
    node = make(2)
    tp = node.domain("tp", teams={"team": ("f32", 4)}, buffers={"b": ("f32", 4)})
    x, y, team, buffer = [node.tensor(d, np.ones(4, "f4")) for d in range(2)], node.zeros(0, 4), tp["team"], tp["b"]

    def orchestration(orch):
        orch.group([0, 1], lambda d: kernels.all_reduce(x[d], x[d], team))
        tp.release()
        with pytest.raises(ringwork.Released, match="tp"):
            orch.group([0, 1], lambda d: kernels.all_reduce(x[d], x[d], team))

    node.run(orchestration)
    assert x[1].numpy().tolist() == [2] * 4
    with pytest.raises(ringwork.Released):
        buffer.on(0).numpy()
    del x
    gc.collect()
    assert doubles(node)


def test_a_tensor_without_a_name_lives_as_long_as_its_task(make):
    node = make(1)
    y = node.zeros(0, 1000)

    def orchestration(orch):
        for i in range(50):
            orch.submit(0, kernels.copy(node.tensor(0, np.full(1000, i, "f4")), y))

    node.run(orchestration)
    assert y.numpy().tolist() == [49] * 1000


# --- chips that die, and nodes that end ---


def waits_for_ever(node, team):
    x = node.zeros(0, 4)
    return lambda orch: orch.submit(0, kernels.all_reduce(x, x, team))


def test_a_killed_chip_is_named_in_less_than_a_second():
    with Node(3) as node:
        team = node.domain("tp", teams={"team": ("f32", 4)})["team"]
        x = [node.zeros(d, 4) for d in range(3)]

        def orchestration(orch):
            orch.group([0, 2], lambda d: kernels.all_reduce(x[d], x[d], team))
            os.kill(node.pid(1), signal.SIGKILL)
            start.append(time.monotonic())

        start = []
        with pytest.raises(ringwork.NodeError, match="SIGKILL"):
            node.run(orchestration)
        assert time.monotonic() - start[0] < 1
        with pytest.raises(ringwork.ChipGone, match="SIGKILL") as told:
            node.run(lambda orch: orch.submit(1, kernels.scale(x[1], x[1], 1)))
        assert told.value.chip == 1
        assert doubles(node, 0) and doubles(node, 2)


def test_a_chip_that_dies_in_its_kernel_is_named_with_the_kernel():
    with Node(2) as node:
        team = node.domain("tp", teams={"team": ("f32", 4)})["team"]

        def orchestration(orch):
            waits_for_ever(node, team)(orch)
            while not any("all_reduce" in label for _, label, *_ in node.timeline.slices):
                time.sleep(0.01)
            os.kill(node.pid(0), signal.SIGKILL)

        with pytest.raises(ringwork.ChipGone) as told:
            node.run(orchestration)
        assert (told.value.chip, told.value.kernel) == (0, "all_reduce") and "SIGKILL" in told.value.cause
        assert doubles(node, 1)


def test_a_kernel_that_waits_in_vain_says_for_whom_at_the_limit():
    with Node(2, timeout=0.3) as node:
        team = node.domain("tp", teams={"team": ("f32", 4)})["team"]
        with pytest.raises(ringwork.TaskFailed, match="nothing came in") as told:
            node.run(waits_for_ever(node, team))
        assert told.value.chip == 0 and told.value.file.endswith(".rs")
        assert doubles(node)


def test_a_simulated_kernel_that_waits_in_vain_is_a_deadlock_at_once():
    with Node(2, machine="ring-4") as node:
        team = node.domain("tp", teams={"team": ("f32", 4)})["team"]
        with pytest.raises(ringwork.TaskFailed, match="deadlock"):
            node.run(waits_for_ever(node, team))


def test_a_closed_node_says_so_and_closing_again_does_nothing(make):
    node = make(1)
    x = node.zeros(0, 4)
    node.close()
    node.close()
    assert node.closed
    for use in (x.numpy, lambda: node.zeros(0, 4), lambda: node.run(lambda orch: None), lambda: x.write([0] * 4)):
        with pytest.raises(ringwork.NodeClosed):
            use()


def test_the_processes_of_a_node_are_gone_when_it_is():
    with Node(2) as node:
        pids = [node.pid(d) for d in node.devices]
        assert all(pathlib.Path(f"/proc/{pid}").exists() for pid in pids)
    assert not any(pathlib.Path(f"/proc/{pid}").exists() for pid in pids)
    node = Node(1)
    pid = node.pid(0)
    del node
    gc.collect()
    assert not pathlib.Path(f"/proc/{pid}").exists()


# --- starting ---


def python(code, **environment):
    """What a fresh interpreter does: its exit code and what it wrote."""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, env={**os.environ, **environment}
    )
    return done.returncode, done.stdout, done.stderr


def test_importing_the_package_never_makes_a_chip_of_the_process():
    assert python("import ringwork; print('alive')", RINGWORK_CHIP="1") == (0, "alive\n", "")


def test_a_node_that_is_never_closed_ends_with_the_interpreter():
    code = "import ringwork; node = ringwork.Node(2); print(node.pid(0), node.pid(1))"
    status, out, err = python(code)
    assert (status, err) == (0, "")
    for pid in out.split():
        for _ in range(100):
            if not pathlib.Path(f"/proc/{pid}").exists():
                break
            time.sleep(0.05)
        assert not pathlib.Path(f"/proc/{pid}").exists()


def test_a_child_of_fork_gets_an_error_and_leaves_its_parents_chips_alone():
    code = """
import os, ringwork
from ringwork import kernels
node = ringwork.Node(1)
x, domain = node.zeros(0, 4), node.domain("tp", teams={"team": ("f32", 4)})
team = domain["team"]
pid = os.fork()
if pid == 0:
    for use in (lambda: node.zeros(0, 4), x.numpy, domain.release, lambda: node.run(print)):
        try:
            use()
        except ringwork.RingworkError as error:
            print(error, flush=True)
    node.close()
    del x, team, domain, use, node   # tells nothing to the parent's chips
    raise SystemExit
os.waitpid(pid, 0)
node.run(lambda orch: (orch.submit(0, kernels.scale(x, x, 1, 3)), orch.submit(0, kernels.all_reduce(x, x, team))))
print(x.numpy().tolist())
"""
    status, out, err = python(code)
    assert (status, err) == (0, "") and out.count("os.fork") == 4 and "[3.0, 3.0, 3.0, 3.0]" in out


def test_a_program_that_is_no_chip_is_named():
    with pytest.raises(ringwork.ConfigError, match="there is no program `/nowhere`"):
        Node(1, chip="/nowhere")
    with pytest.raises(ringwork.NodeError, match="chip 0 bootstrap failed"):
        Node(1, chip="/bin/true")
    with pytest.raises(ValueError, match="devices"):
        Node()
    with pytest.raises(ringwork.ConfigError, match="twice"):
        Node([0, 0])


def test_a_chip_program_lists_its_kernels_and_runs_them_by_name():
    listed = kernels.load(CHIP)
    assert listed["scale"].parameters == ["x", "y", "factor", "offset"]
    done = subprocess.run([CHIP], capture_output=True, text=True)
    assert done.returncode == 2 and "a ringwork node starts it" in done.stderr
    with Node(1, chip=CHIP) as node:
        x = node.tensor(0, np.arange(3, dtype="f4"))
        node.run(lambda orch: orch.submit(0, listed["scale"].matrices(x, x, factor=3.0, offset=1.0)))
        assert x.numpy().tolist() == [1, 4, 7]
        team = node.domain("tp", teams={"team": ("f32", 3)})["team"]
        node.run(lambda orch: orch.submit(0, listed["all_reduce"](x, x, team, "sum", "twophase")))
        assert x.numpy().tolist() == [1, 4, 7]
