"""Megatron's parallel state and tensor-parallel layers, on NumPy arrays over a communicator.

    import numpy as np, ringwork
    from ringwork.parallel import ColumnParallelLinear, ParallelState

    state = ParallelState(ringwork.init(), tensor=2)
    layer = ColumnParallelLinear(np.ones((4, 3), "f4"), group=state.tensor)
    y = layer.forward(np.ones((1, 3), "f4"))
    dx = layer.backward(y)              # layer.weight_grad is this rank's part

A layer is made from the whole weight and keeps this rank's part of it. `forward` keeps what `backward` needs.
"""

from .layers import (
    ColumnParallelLinear,
    ParallelAttention,
    ParallelMLP,
    RowParallelLinear,
    VocabParallelEmbedding,
)
from .mappings import Group, copy_to, gather_from, reduce_from, scatter_to
from .state import Grid, ParallelState

__all__ = [
    "ColumnParallelLinear",
    "Grid",
    "Group",
    "ParallelAttention",
    "ParallelMLP",
    "ParallelState",
    "RowParallelLinear",
    "VocabParallelEmbedding",
    "copy_to",
    "gather_from",
    "reduce_from",
    "scatter_to",
]
