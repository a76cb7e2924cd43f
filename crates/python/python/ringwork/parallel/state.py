"""Which ranks of a world belong together."""

from __future__ import annotations

import dataclasses
from typing import Literal

from .._core import Comm
from ..errors import ArgumentError

Axis = Literal["tensor", "data", "pipeline"]


@dataclasses.dataclass(frozen=True)
class Grid:
    """A world divided into tensor, data and pipeline groups, in Megatron's order: the tensor rank changes fastest, then the
    data rank, then the stage of the pipeline.

    >>> Grid(world=8, tensor=2, pipeline=2).group("data", 5)
    [5, 7]
    """

    world: int
    tensor: int = 1
    pipeline: int = 1

    def __post_init__(self) -> None:
        if min(self.world, self.tensor, self.pipeline) < 1 or self.world % (self.tensor * self.pipeline):
            problem = (
                f"a world of {self.world} ranks cannot be divided into tensor groups of {self.tensor} and pipelines of "
                f"{self.pipeline}: {self.tensor} x {self.pipeline} must divide {self.world}"
            )
            raise ArgumentError(problem, call="Grid", problem=problem)

    @property
    def data(self) -> int:
        """Replicas of the model."""
        return self.world // (self.tensor * self.pipeline)

    def size(self, axis: Axis) -> int:
        """Ranks of each group in this direction."""
        return {"tensor": self.tensor, "data": self.data, "pipeline": self.pipeline}[axis]

    def _stride(self, axis: Axis) -> int:
        return {"tensor": 1, "data": self.tensor, "pipeline": self.tensor * self.data}[axis]

    def rank(self, axis: Axis, world_rank: int) -> int:
        """The rank that `world_rank` has in its group in this direction."""
        return world_rank // self._stride(axis) % self.size(axis)

    def group(self, axis: Axis, world_rank: int) -> list[int]:
        """The group of `world_rank` in this direction, in the order of its ranks."""
        first = world_rank - self.rank(axis, world_rank) * self._stride(axis)
        return [first + rank * self._stride(axis) for rank in range(self.size(axis))]

    def groups(self, axis: Axis) -> list[list[int]]:
        """All groups in this direction. Every rank of the world is in one of them."""
        return [self.group(axis, rank) for rank in range(self.world) if self.rank(axis, rank) == 0]

    def neighbour(self, axis: Axis, world_rank: int, steps: int) -> int:
        """The rank of the world `steps` after `world_rank` in its group; after the last comes the first."""
        group = self.group(axis, world_rank)
        return group[(self.rank(axis, world_rank) + steps) % len(group)]


class ParallelState:
    """A communicator for each group that this rank is in. A collective call of all ranks of `world`.

    A communicator is divided once: a second `ParallelState` of the same `world` raises `ArgumentError` until the first
    is closed.
    """

    def __init__(self, world: Comm, tensor: int = 1, pipeline: int = 1) -> None:
        if id(world) in _divided:
            problem = "this communicator is divided into groups already; close that state first"
            raise ArgumentError(problem, call="ParallelState", problem=problem)
        self.grid = Grid(world.size, tensor, pipeline)
        self.world = world

        def group(axis: Axis) -> Comm:
            return world.split(self.grid.group(axis, world.rank)[0], world.rank)

        self.tensor, self.data, self.pipeline = group("tensor"), group("data"), group("pipeline")
        _divided[id(world)] = self

    def close(self) -> None:
        """Closes the groups; the world stays open and can be divided again."""
        if _divided.pop(id(self.world), None) is self:
            for group in (self.tensor, self.data, self.pipeline):
                group.close()

    def __enter__(self) -> ParallelState:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    @property
    def is_first_stage(self) -> bool:
        """Whether this rank has the first layers."""
        return self.pipeline.rank == 0

    @property
    def is_last_stage(self) -> bool:
        """Whether this rank has the last layers."""
        return self.pipeline.rank == self.pipeline.size - 1

    @property
    def next_stage(self) -> int:
        """The rank of the world that has the next stage; after the last stage comes the first."""
        return self.grid.neighbour("pipeline", self.world.rank, 1)

    @property
    def previous_stage(self) -> int:
        """The rank of the world that has the stage before; before the first stage comes the last."""
        return self.grid.neighbour("pipeline", self.world.rank, -1)


# By the identity of the world, which a state keeps alive.
_divided: dict[int, ParallelState] = {}
