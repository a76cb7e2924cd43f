"""The built-in kernels, as functions that make tasks for `Orchestrator.submit` and `Orchestrator.group`.

    from ringwork import kernels
    node.run(lambda orch: orch.submit(0, kernels.gemm(a, b, c)))

Matrices are tensors: the last dimension is the columns, those before are the rows. Everything is computed in the type of
the elements, with the same bits on chips that are processes and on a simulated machine. The members of a collective have
their memory in a team: `node.domain("tp", teams={"team": ("f32", 1024)})["team"]`.
"""

from __future__ import annotations

import json as _json
import os as _os
import subprocess as _subprocess

from ._core import Buffer, Kernel, Task, Team, Tensor

__all__ = [
    "add",
    "all_gather",
    "all_reduce",
    "all_to_all",
    "broadcast",
    "copy",
    "div",
    "gather",
    "gemm",
    "load",
    "map",
    "max",
    "min",
    "mul",
    "reduce",
    "reduce_scatter",
    "rms_norm",
    "scale",
    "scatter",
    "softmax",
    "sub",
]

_Memory = Tensor | Buffer

_all_reduce = Kernel.named("all_reduce")
_all_gather = Kernel.named("all_gather")
_reduce_scatter = Kernel.named("reduce_scatter")
_broadcast = Kernel.named("broadcast")
_reduce = Kernel.named("reduce")
_gather = Kernel.named("gather")
_scatter = Kernel.named("scatter")
_all_to_all = Kernel.named("all_to_all")
_combine = Kernel.named("combine")
_sub = Kernel.named("sub")
_div = Kernel.named("div")
_map = Kernel.named("map")
_scale = Kernel.named("scale")
_copy = Kernel.named("copy")
_gemm = Kernel.named("gemm")
_softmax = Kernel.named("softmax")
_rms_norm = Kernel.named("rms_norm")


def all_reduce(x: _Memory, y: _Memory, team: Team, op: str = "sum", algorithm: str = "twophase") -> Task:
    """`y` becomes the reduction of everybody's `x`."""
    return _all_reduce(x, y, team, op, algorithm)


def all_gather(x: _Memory, y: _Memory, team: Team, algorithm: str = "staged") -> Task:
    """`y` becomes everybody's `x`, one after the other."""
    return _all_gather(x, y, team, algorithm)


def reduce_scatter(x: _Memory, y: _Memory, team: Team, op: str = "sum", algorithm: str = "staged") -> Task:
    """`y` becomes my part of the reduction of everybody's `x`."""
    return _reduce_scatter(x, y, team, op, algorithm)


def broadcast(x: _Memory, y: _Memory, team: Team, root: int = 0, algorithm: str = "staged") -> Task:
    """`y` becomes the root's `x`."""
    return _broadcast(x, y, team, root, algorithm)


def reduce(
    x: _Memory, y: _Memory, team: Team, op: str = "sum", root: int = 0, algorithm: str = "staged"
) -> Task:
    """The root's `y` becomes the reduction of everybody's `x`."""
    return _reduce(x, y, team, op, root, algorithm)


def gather(x: _Memory, y: _Memory, team: Team, root: int = 0, algorithm: str = "staged") -> Task:
    """The root's `y` becomes everybody's `x`, one after the other."""
    return _gather(x, y, team, root, algorithm)


def scatter(x: _Memory, y: _Memory, team: Team, root: int = 0, algorithm: str = "staged") -> Task:
    """`y` becomes my part of the root's `x`."""
    return _scatter(x, y, team, root, algorithm)


def all_to_all(x: _Memory, y: _Memory, team: Team, algorithm: str = "staged") -> Task:
    """`y` becomes my part of everybody's `x`, one after the other."""
    return _all_to_all(x, y, team, algorithm)


def add(a: _Memory, b: _Memory, y: _Memory) -> Task:
    """`y = a + b`. Here and below `b` has the shape of `a`, or is one row that meets every row."""
    return _combine(a, b, y, "sum")


def mul(a: _Memory, b: _Memory, y: _Memory) -> Task:
    """`y = a * b`."""
    return _combine(a, b, y, "prod")


def max(a: _Memory, b: _Memory, y: _Memory) -> Task:
    """The larger of two elements; NaN wins."""
    return _combine(a, b, y, "max")


def min(a: _Memory, b: _Memory, y: _Memory) -> Task:
    """The smaller of two elements; NaN wins."""
    return _combine(a, b, y, "min")


def sub(a: _Memory, b: _Memory, y: _Memory) -> Task:
    """`y = a - b`, of floats."""
    return _sub(a, b, y)


def div(a: _Memory, b: _Memory, y: _Memory) -> Task:
    """`y = a / b`, of floats."""
    return _div(a, b, y)


def map(x: _Memory, y: _Memory, function: str) -> Task:
    """`y = function(x)`: one of exp, log, sqrt, rsqrt, tanh, sigmoid, reciprocal, abs, neg, relu, silu, gelu."""
    return _map(x, y, function)


def scale(x: _Memory, y: _Memory, factor: float = 1.0, offset: float = 0.0) -> Task:
    """`y = factor * x + offset`."""
    return _scale(x, y, float(factor), float(offset))


def copy(x: _Memory, y: _Memory) -> Task:
    """`y = x`."""
    return _copy(x, y)


def gemm(a: _Memory, b: _Memory, c: _Memory, *, transpose_a: bool = False, transpose_b: bool = False) -> Task:
    """The matrix product `c = a @ b`; an operand that is transposed lies in memory the other way round."""
    return _gemm(a, b, c, transpose_a, transpose_b)


def softmax(x: _Memory, y: _Memory) -> Task:
    """Each row of `y` is the softmax of the same row of `x`."""
    return _softmax(x, y)


def rms_norm(x: _Memory, weight: _Memory, y: _Memory, epsilon: float = 1e-6) -> Task:
    """Each row of `y` is that of `x`, divided by the root of its mean square and times `weight`."""
    return _rms_norm(x, weight, y, float(epsilon))


def load(chip: str | _os.PathLike[str]) -> dict[str, Kernel]:
    """The kernels of a chip program of yours, by name: one whose `main` is `ringwork::native::chip::main()`.

    Give the same program to the node: `Node(devices=range(4), chip="./my-chip")`.
    """
    listed = _subprocess.run([_os.fspath(chip), "--kernels"], capture_output=True, text=True, check=True)
    kernels: dict[str, Kernel] = {}
    for kernel in _json.loads(listed.stdout):
        params = [(param["name"], param["tag"]) for param in kernel["params"]]
        made = Kernel._foreign(kernel["name"], int(kernel["signature"], 16), params)
        kernels[kernel["name"].rpartition("::")[2]] = made
    return kernels
