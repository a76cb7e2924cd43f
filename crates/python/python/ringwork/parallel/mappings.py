"""The ways into the tensor-parallel region of a model and out of it.

Each is a function and its gradient: `copy_to` and `reduce_from` are each other's, and so are `scatter_to` and `gather_from`.
"""

from __future__ import annotations

from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from ..errors import ArgumentError

Array: TypeAlias = npt.NDArray[Any]


class Group(Protocol):
    """The ranks that share a layer: a `ringwork.Comm`, or anything with these."""

    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...
    def all_reduce(self, data: Any, /) -> Any: ...
    def all_gather(self, data: Any, out: Any, /) -> Any: ...


def divide(what: str, size: int, ranks: int) -> int:
    """A share of `size` for each of `ranks`."""
    if size % ranks:
        problem = f"{size} cannot be divided among {ranks} ranks; make it a multiple of {ranks}"
        raise ArgumentError(f"{what}: {problem}", call=what, problem=problem)
    return size // ranks


def copy_to(x: Array, group: Group) -> Array:
    """Forward: the same value. Its gradient is `reduce_from`."""
    return x


def reduce_from(x: Array, group: Group) -> Array:
    """The sum of all ranks' values, with the same bits on every rank. Its gradient is `copy_to`."""
    total = np.array(x, order="C")
    if group.size > 1:
        group.all_reduce(total)
    return total


def scatter_to(x: Array, group: Group) -> Array:
    """This rank's part of the last dimension. Its gradient is `gather_from`."""
    each = divide("the last dimension of an array", x.shape[-1], group.size)
    return np.ascontiguousarray(x[..., group.rank * each : (group.rank + 1) * each])


def gather_from(x: Array, group: Group) -> Array:
    """All ranks' parts of the last dimension. Its gradient is `scatter_to`."""
    if group.size == 1:
        return x
    parts = np.empty((group.size, *x.shape), x.dtype)
    group.all_gather(np.ascontiguousarray(x), parts)
    return np.concatenate(list(parts), axis=-1)
