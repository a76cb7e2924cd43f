"""`torch.tp`: Megatron's parallel state and linear layers, on tensors of the simulated machine."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import kernels
from ..errors import ArgumentError
from ..parallel.mappings import divide
from .distributed import ReduceOp
from .ranks import identity
from .tensor import Tensor

if TYPE_CHECKING:
    from .namespace import Torch


class ParallelState:
    """`torch.tp.parallel_state`: one tensor-parallel group of all ranks."""

    def __init__(self, torch: Torch) -> None:
        self._torch = torch
        self._initialized: set[tuple[int, int]] = set()

    def initialize_model_parallel(self, tensor_model_parallel_size: int | None = None) -> None:
        """Makes the group. Each rank calls it once, after `init_process_group`."""
        world = self._torch.distributed.get_world_size()
        if identity() in self._initialized:
            self._refuse("it is initialised already; call destroy_model_parallel first")
        if tensor_model_parallel_size not in (None, world):
            self._refuse(f"a tensor-parallel group of {tensor_model_parallel_size} in a world of {world}; take all")
        self._initialized.add(identity())

    def destroy_model_parallel(self) -> None:
        """Forgets the group."""
        self._initialized.discard(identity())

    def model_parallel_is_initialized(self) -> bool:
        """Whether this rank has a group."""
        return identity() in self._initialized

    def get_tensor_model_parallel_rank(self) -> int:
        """This rank's place in the group."""
        self._check()
        return self._torch.distributed.get_rank()

    def get_tensor_model_parallel_world_size(self) -> int:
        """Ranks of the group."""
        self._check()
        return self._torch.distributed.get_world_size()

    def _check(self) -> None:
        if identity() not in self._initialized:
            self._refuse("it is not initialised; call initialize_model_parallel first")

    @staticmethod
    def _refuse(problem: str) -> None:
        raise ArgumentError(f"parallel_state: {problem}", call="parallel_state", problem=problem)


class _Linear:
    """One rank's part of a linear layer: `weight` is outputs x inputs; fill it with `copy_`."""

    def __init__(self, torch: Torch, outputs: int, inputs: int, dtype: Any) -> None:
        self._torch = torch
        self.weight = torch.zeros(outputs, inputs, dtype=dtype)

    def _multiply(self, x: Tensor) -> Tensor:
        outputs, inputs = self.weight.shape
        if len(x.shape) != 2 or x.shape[1] != inputs:
            problem = f"the input has the shape {x.shape}; this rank's weight takes {inputs} columns"
            raise ArgumentError(f"forward: {problem}", call="forward", problem=problem)
        if len(x.memory) != 1:
            problem = "the input is dealt over several PEs; a layer takes one that is not"
            raise ArgumentError(f"forward: {problem}", call="forward", problem=problem)
        y = self._torch.zeros(x.shape[0], outputs, dtype=x.dtype)
        (device,), (a,), (b,), (c,) = x.devices, x.memory, self.weight.memory, y.memory
        task = kernels.gemm(a, b, c, transpose_b=True)
        self._torch._simulation.submit(lambda orch: orch.submit(device, task))
        return y


class ColumnParallelLinear(_Linear):
    """A linear layer of which each rank has some outputs; its result has this rank's columns."""

    def __init__(self, torch: Torch, inputs: int, outputs: int, dtype: Any = np.float32) -> None:
        ranks = torch.tp.parallel_state.get_tensor_model_parallel_world_size()
        super().__init__(torch, divide("outputs of a column-parallel layer", outputs, ranks), inputs, dtype)

    def __call__(self, x: Tensor) -> Tensor:
        """This rank's outputs for `x`, which all ranks have."""
        return self._multiply(x)


class RowParallelLinear(_Linear):
    """A linear layer of which each rank has some inputs; its result is the sum over all ranks."""

    def __init__(self, torch: Torch, inputs: int, outputs: int, dtype: Any = np.float32) -> None:
        ranks = torch.tp.parallel_state.get_tensor_model_parallel_world_size()
        super().__init__(torch, outputs, divide("inputs of a row-parallel layer", inputs, ranks), dtype)

    def __call__(self, x: Tensor) -> Tensor:
        """All outputs, from this rank's columns of the input."""
        y = self._multiply(x)
        self._torch.distributed.all_reduce(y, ReduceOp.SUM)
        return y


def bind(torch: Torch) -> Any:
    """The namespace `tp` of a bench."""
    return types.SimpleNamespace(
        parallel_state=ParallelState(torch),
        ColumnParallelLinear=lambda *args, **named: ColumnParallelLinear(torch, *args, **named),
        RowParallelLinear=lambda *args, **named: RowParallelLinear(torch, *args, **named),
    )
