"""Tensors in the memory of a simulated machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from ..errors import ArgumentError
from .machine import Simulation
from .policy import DPPolicy, Shard

Array = npt.NDArray[Any]
_Method = TypeVar("_Method", bound=Callable[..., Any])

#: The methods by which the host sees values: each finishes what is queued first. `copy_` does so for its source only.
HOST_READS: dict[str, str] = {}


def host_read(method: _Method) -> _Method:
    """Marks a method that reads values."""
    HOST_READS[method.__name__] = method.__doc__ or ""
    return method


class Tensor:
    """A tensor of one or two dimensions on a SIP, dealt over cubes and PEs by a `DPPolicy`.

    Work on it is queued. Whatever reads its values on the host finishes everything that is queued first.
    """

    def __init__(self, simulation: Simulation, shape: tuple[int, ...], dtype: Any, dp: DPPolicy, sip: int) -> None:
        if not 1 <= len(shape) <= 2:
            problem = f"the shape {shape} has {len(shape)} dimensions; tensors have one or two"
            raise ArgumentError(f"tensor: {problem}", call="tensor", problem=problem)
        self._simulation, self.sip, self.dp = simulation, sip, dp
        self.shape, self.dtype = shape, np.dtype(dtype)
        self.shards = dp.shards(*self._matrix)
        self._check_place()
        # On whole SIPs the shards share one memory; on PEs each has its own.
        whole = Shard(0, 0, range(self._matrix[0]), range(self._matrix[1]))
        self._parts = self.shards if simulation.on_pes else [whole]
        self.devices = [simulation.device(sip, part.cube, part.pe) for part in self._parts]
        self.memory = [
            simulation.memory(device, part.shape, dtype) for device, part in zip(self.devices, self._parts)
        ]

    @property
    def _matrix(self) -> tuple[int, int]:
        """Rows and columns; a vector is one column, so that `row_wise` deals its elements."""
        return (self.shape[0], 1) if len(self.shape) == 1 else (self.shape[0], self.shape[1])

    def _check_place(self) -> None:
        of = self._simulation
        # More ranks than SIPs: one worker's tensor goes on over the next SIPs.
        cubes = of.cubes_per_sip * (of.sips - self.sip if of.on_pes else 1)
        if self.dp.num_cubes > cubes or self.dp.num_pes > of.pes_per_cube:
            problem = (
                f"{self.dp.num_cubes} cubes of {self.dp.num_pes} PEs from SIP {self.sip} on; there are {cubes} of "
                f"{of.pes_per_cube}"
            )
            raise ArgumentError(f"DPPolicy: {problem}", call="DPPolicy", problem=problem)

    def _read(self) -> Array:
        self._simulation.drain()
        whole = np.zeros(self._matrix, self.dtype)
        for part, memory in zip(self._parts, self.memory):
            whole[part.index] = memory.numpy().reshape(part.shape)
        return whole.reshape(self.shape)

    @host_read
    def numpy(self) -> Array:
        """A copy as a NumPy array."""
        return self._read()

    @property
    @host_read
    def data(self) -> Array:
        """A copy as a NumPy array."""
        return self._read()

    @host_read
    def item(self) -> Any:
        """The value of a tensor of one element."""
        return self._read().item()

    @host_read
    def __getitem__(self, index: Any) -> Any:
        """Some of its values, as NumPy indexes them."""
        return self._read()[index]

    @host_read
    def __repr__(self) -> str:
        """Its values and where it is."""
        return f"tensor({np.array2string(self._read(), threshold=20)}, sip={self.sip})"

    @host_read
    def copy_(self, source: Tensor | npt.ArrayLike) -> Tensor:
        """Takes the values of another tensor, or of an array. Reads the source; what is queued for this tensor comes first,
        and is not waited for."""
        values = source._read() if isinstance(source, Tensor) else np.asarray(source)
        try:
            values = np.broadcast_to(values, self.shape).astype(self.dtype)
        except ValueError:
            problem = f"the source has the shape {values.shape} and the tensor {self.shape}"
            raise ArgumentError(f"copy_: {problem}", call="copy_", problem=problem) from None
        matrix = values.reshape(self._matrix)
        for part, memory in zip(self._parts, self.memory):
            self._simulation.write(memory, np.ascontiguousarray(matrix[part.index]))
        return self

    def numel(self) -> int:
        """Number of elements."""
        return int(np.prod(self.shape))

    def __len__(self) -> int:
        return self.shape[0]
