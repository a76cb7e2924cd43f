"""Which part of a tensor lies on which PE."""

from __future__ import annotations

import dataclasses
from typing import Literal

from ..errors import ArgumentError

How = Literal["replicate", "row_wise", "column_wise"]
_HOWS = ("replicate", "row_wise", "column_wise")


@dataclasses.dataclass(frozen=True)
class Shard:
    """Some rows and columns of a tensor, on a PE of a cube."""

    cube: int
    pe: int
    rows: range
    columns: range

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return len(self.rows), len(self.columns)

    @property
    def index(self) -> tuple[slice, slice]:
        """What NumPy indexes the whole tensor with to get this part."""
        return slice(self.rows.start, self.rows.stop), slice(self.columns.start, self.columns.stop)


def _split(part: range, into: int, at: int, what: str) -> range:
    if len(part) % into:
        problem = f"{len(part)} {what} cannot be divided among {into}; make them a multiple of {into}"
        raise ArgumentError(f"DPPolicy: {problem}", call="DPPolicy", problem=problem)
    each = len(part) // into
    return part[at * each : (at + 1) * each]


def _part(rows: range, columns: range, how: How, into: int, at: int) -> tuple[range, range]:
    if how == "row_wise":
        return _split(rows, into, at, "rows"), columns
    if how == "column_wise":
        return rows, _split(columns, into, at, "columns")
    return rows, columns


@dataclasses.dataclass(frozen=True)
class DPPolicy:
    """How a tensor is dealt: first over cubes, then in each cube over its PEs. `replicate` gives each the whole.

    >>> [shard.rows for shard in DPPolicy(pe="row_wise", num_pes=2).shards(4, 8)]
    [range(0, 2), range(2, 4)]
    """

    cube: How = "replicate"
    pe: How = "replicate"
    num_cubes: int = 1
    num_pes: int = 1

    def __post_init__(self) -> None:
        for name, how in (("cube", self.cube), ("pe", self.pe)):
            if how not in _HOWS:
                problem = f"{name}={how!r} is not one of {', '.join(_HOWS)}"
                raise ArgumentError(f"DPPolicy: {problem}", call="DPPolicy", problem=problem)
        if self.num_cubes < 1 or self.num_pes < 1:
            problem = f"{self.num_cubes} cubes of {self.num_pes} PEs; there is at least one of each"
            raise ArgumentError(f"DPPolicy: {problem}", call="DPPolicy", problem=problem)

    def shards(self, rows: int, columns: int) -> list[Shard]:
        """The parts of a tensor, in the order of cubes and of PEs in them."""
        shards = []
        for cube in range(self.num_cubes):
            in_cube = _part(range(rows), range(columns), self.cube, self.num_cubes, cube)
            for pe in range(self.num_pes):
                shards.append(Shard(cube, pe, *_part(*in_cube, self.pe, self.num_pes, pe)))
        return shards
