"""The package and its stubs, checked by mypy, and compared with the compiled module."""

import ast
import inspect
import pathlib
import subprocess
import sys

import pytest

import ringwork
from ringwork import _core

STUB = pathlib.Path(ringwork.__file__).with_name("_core.pyi")
GOOD = """
import numpy as np
import ringwork

def train(comm: ringwork.Comm) -> float:
    x = np.ones(4, "f4")
    comm.all_reduce(x, "avg")
    call: ringwork.Pending = comm.all_gather(x, np.ones(8, "f4"), wait=False)
    call.wait()
    window: ringwork.Window = comm.zeros((2, 2), "bf16")
    comm.broadcast(window)
    comm.send(b"bytes", 1)
    return float(x[0])

results: list[object] = ringwork.spawn(train, 2)

with ringwork.Node(machine="h100x8", domains=[ringwork.DomainSpec("tp", [0, 1], teams={"team": ("f32", 4)})]) as node:
    x: ringwork.Tensor = node.tensor(0, np.ones(4, "f4"))

    def orchestration(orch: ringwork.Orchestrator) -> int:
        first: ringwork.TaskId = orch.submit(0, ringwork.kernels.scale(x, x, 2.0))
        orch.host(lambda: print(x.numpy()), reads=x, after=[first], priority=1)
        return 3

    three: int = node.run(orchestration)
    time: float | None = node.time
"""
BAD = {
    "comm.all_reduce([1.0])": "call-overload",
    'comm.all_reduce(x, "median")': "call-overload",
    "comm.all_reduce(x).wait()": "",  # mypy has two words for this
    'comm.broadcast(x, "root")': "call-overload",
    "comm.alltoall(x)": "attr-defined",
    "node.run(lambda orch: orch.submit(0, ringwork.kernels.copy(t, t), befor=None))": "call-arg",
    "ringwork.kernels.gemm(t, t)": "call-arg",
    'node.zeros("0", 4)': "arg-type",
}


def mypy(path):
    pytest.importorskip("mypy", reason="mypy is not installed")
    command = [sys.executable, "-m", "mypy", "--strict", "--show-error-codes", "--cache-dir", str(path.parent / "cache")]
    done = subprocess.run([*command, str(path)], capture_output=True, text=True)
    return done.returncode, done.stdout


def test_mypy_accepts_a_right_program_and_refuses_wrong_ones(tmp_path):
    good = tmp_path / "good.py"
    good.write_text(GOOD)
    assert mypy(good)[0] == 0, mypy(good)[1]
    bad = tmp_path / "bad.py"
    lines = ["import numpy as np, ringwork", "def f(comm: ringwork.Comm, x: np.ndarray[tuple[int], np.dtype[np.float32]], node: ringwork.Node, t: ringwork.Tensor) -> None:"]
    bad.write_text("\n".join([*lines, *(f"    {line}" for line in BAD)]))
    _, text = mypy(bad)
    for number, (line, word) in enumerate(BAD.items(), 3):
        assert any(f"bad.py:{number}:" in told and word in told for told in text.splitlines()), (line, text)


def test_mypy_accepts_the_package_itself():
    pytest.importorskip("mypy", reason="mypy is not installed")
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", "/dev/null", "-p", "ringwork"]
    command += ["--exclude", "torch"]
    done = subprocess.run(command, capture_output=True, text=True)
    ours = [line for line in done.stdout.splitlines() if "error:" in line and "torch" not in line]
    assert not ours, ours


def test_the_stub_names_what_the_compiled_module_has():
    tree = ast.parse(STUB.read_text())
    for node in tree.body:
        if not isinstance(node, ast.ClassDef) or node.name.startswith("_"):
            continue
        methods = [item for item in node.body if isinstance(item, ast.FunctionDef)]
        said = {method.name for method in methods if not method.name.startswith("__")}
        there = {name for name in vars(getattr(_core, node.name)) if not name.startswith("__")}
        assert said == there, node.name
        for method in methods:
            member = getattr(getattr(_core, node.name), method.name, None)
            if method.name.startswith("__") or not callable(member):
                continue
            stars = method.args.vararg, method.args.kwarg
            said = [*method.args.args, stars[0], *method.args.kwonlyargs, stars[1]]
            said_names = [argument.arg for argument in said if argument and argument.arg != "self"]
            there_names = [name for name in inspect.signature(member).parameters if name != "self"]
            assert said_names == there_names, (node.name, method.name)


def test_everything_public_has_a_docstring():
    for name in ringwork.__all__:
        if not name.startswith("_"):
            assert inspect.getdoc(getattr(ringwork, name)), name
    kinds = [kind for kind in vars(_core).values() if isinstance(kind, type)]
    assert len(kinds) > 10
    for kind in kinds:
        for name, member in vars(kind).items():
            if not name.startswith("_"):
                assert inspect.getdoc(member), (kind, name)
