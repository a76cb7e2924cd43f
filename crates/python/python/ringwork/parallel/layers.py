"""Layers whose weights are divided among the ranks of a group.

Weights are outputs x inputs: `y = x W^T + b`. What every rank has, such as the output of a row-parallel layer, has the same
bits on every rank.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import ArgumentError
from .mappings import Array, Group, copy_to, divide, gather_from, reduce_from, scatter_to


class _Linear:
    """One rank's part of a linear layer."""

    weight: Array
    bias: Array | None
    weight_grad: Array | None = None
    bias_grad: Array | None = None

    def __init__(self, group: Group) -> None:
        self.group = group
        self._input: Array | None = None

    def _local_forward(self, x: Array) -> Array:
        if x.shape[-1] != self.weight.shape[1]:
            problem = f"the input has {x.shape[-1]} columns and this rank's weight {self.weight.shape[1]}"
            raise ArgumentError(f"forward: {problem}", call="forward", problem=problem)
        self._input = x
        return x @ self.weight.T

    def _local_backward(self, dy: Array) -> Array:
        x = _saved(self._input)
        wanted = (*x.shape[:-1], self.weight.shape[0])
        if dy.shape != wanted:
            problem = f"the gradient has the shape {dy.shape} and must have {wanted}"
            raise ArgumentError(f"backward: {problem}", call="backward", problem=problem)
        rows = dy.reshape(-1, dy.shape[-1])
        self.weight_grad = rows.T @ x.reshape(-1, x.shape[-1])
        if self.bias is not None:
            self.bias_grad = rows.sum(axis=0)
        return dy @ self.weight


def _saved(value: Any) -> Any:
    if value is None:
        problem = "there was no forward pass; call forward first"
        raise ArgumentError(f"backward: {problem}", call="backward", problem=problem)
    return value


class ColumnParallelLinear(_Linear):
    """A linear layer of which each rank has some outputs: rows of the weight, and the bias for them.

    With `gather_output` every rank gets all outputs; without it, its own, as `RowParallelLinear` wants them.
    """

    def __init__(self, weight: Array, bias: Array | None = None, *, group: Group, gather_output: bool = True) -> None:
        super().__init__(group)
        each = divide("outputs of a column-parallel layer", weight.shape[0], group.size)
        mine = slice(group.rank * each, (group.rank + 1) * each)
        self.weight = np.array(weight[mine])
        self.bias = None if bias is None else np.array(bias[mine])
        self.gather_output = gather_output

    def forward(self, x: Array) -> Array:
        """The outputs for `x`, which is the same on every rank."""
        y = self._local_forward(copy_to(x, self.group))
        if self.bias is not None:
            y = y + self.bias
        return gather_from(y, self.group) if self.gather_output else y

    def backward(self, dy: Array) -> Array:
        """The gradient of the input, the same on every rank; those of the weights are kept."""
        if self.gather_output:
            dy = scatter_to(dy, self.group)
        return reduce_from(self._local_backward(dy), self.group)


class RowParallelLinear(_Linear):
    """A linear layer of which each rank has some inputs: columns of the weight. All ranks have the bias.

    With `input_is_parallel` each rank is given its own inputs, as `ColumnParallelLinear` yields them; without it, all.
    """

    def __init__(
        self, weight: Array, bias: Array | None = None, *, group: Group, input_is_parallel: bool = True
    ) -> None:
        super().__init__(group)
        divide("inputs of a row-parallel layer", weight.shape[1], group.size)
        self.weight = scatter_to(weight, group)
        self.bias = None if bias is None else np.array(bias)
        self.input_is_parallel = input_is_parallel

    def forward(self, x: Array) -> Array:
        """All outputs for `x`, the same on every rank. The bias is added once, to the sum."""
        if not self.input_is_parallel:
            x = scatter_to(x, self.group)
        y = reduce_from(self._local_forward(x), self.group)
        return y if self.bias is None else y + self.bias

    def backward(self, dy: Array) -> Array:
        """The gradient of what `forward` was given; those of the weights are kept."""
        dx = self._local_backward(copy_to(dy, self.group))
        return dx if self.input_is_parallel else gather_from(dx, self.group)


class VocabParallelEmbedding:
    """An embedding of which each rank has some of the vocabulary: rows of the table."""

    def __init__(self, table: Array, *, group: Group) -> None:
        each = divide("the vocabulary", table.shape[0], group.size)
        self.group = group
        self.vocabulary = table.shape[0]
        self._first = group.rank * each
        self.weight = np.array(table[self._first : self._first + each])
        self.weight_grad: Array | None = None
        self._rows: tuple[Array, Array] | None = None

    def forward(self, ids: Array) -> Array:
        """The rows of the table for these ids, on every rank: a rank that does not have a row adds zeros."""
        ids = np.asarray(ids)
        if ids.size and (ids.min() < 0 or ids.max() >= self.vocabulary):
            problem = f"ids from {ids.min()} to {ids.max()}; the vocabulary has {self.vocabulary}, counted from 0"
            raise ArgumentError(f"forward: {problem}", call="forward", problem=problem)
        rows = ids - self._first
        mine = (rows >= 0) & (rows < len(self.weight))
        self._rows = rows, mine
        y = np.zeros((*ids.shape, self.weight.shape[1]), self.weight.dtype)
        y[mine] = self.weight[rows[mine]]
        return reduce_from(y, self.group)

    def backward(self, dy: Array) -> None:
        """Keeps the gradient of this rank's part of the table. Ids have none."""
        rows, mine = _saved(self._rows)
        self.weight_grad = np.zeros_like(self.weight)
        np.add.at(self.weight_grad, rows[mine], dy[mine])


_C = float(np.sqrt(2 / np.pi))


def _gelu(x: Array) -> Array:
    y: Array = 0.5 * x * (1 + np.tanh(_C * (x + 0.044715 * x**3)))
    return y.astype(x.dtype)


def _gelu_slope(x: Array) -> Array:
    t = np.tanh(_C * (x + 0.044715 * x**3))
    slope: Array = 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * _C * (1 + 3 * 0.044715 * x * x)
    return slope.astype(x.dtype)


class ParallelMLP:
    """`gelu(x U^T + b) D^T + c`: each rank has some of the inner columns. One all-reduce forward and one backward."""

    def __init__(
        self,
        up: Array,
        down: Array,
        up_bias: Array | None = None,
        down_bias: Array | None = None,
        *,
        group: Group,
    ) -> None:
        self.up = ColumnParallelLinear(up, up_bias, group=group, gather_output=False)
        self.down = RowParallelLinear(down, down_bias, group=group)
        self._inner: Array | None = None

    def forward(self, x: Array) -> Array:
        """The output for `x`, the same on every rank."""
        self._inner = self.up.forward(x)
        return self.down.forward(_gelu(self._inner))

    def backward(self, dy: Array) -> Array:
        """The gradient of the input; those of the weights are kept in `up` and `down`."""
        inner = _saved(self._inner)
        return self.up.backward(self.down.backward(dy) * _gelu_slope(inner))


class ParallelAttention:
    """Self-attention of which each rank has some heads. One all-reduce forward and one backward.

    `qkv` has, for each head, rows for its query, then its key, then its value. The input is sequences x tokens x inputs,
    or tokens x inputs for one sequence.
    """

    def __init__(
        self,
        qkv: Array,
        output: Array,
        heads: int,
        qkv_bias: Array | None = None,
        output_bias: Array | None = None,
        *,
        group: Group,
        causal: bool = True,
    ) -> None:
        self.heads = divide("attention heads", heads, group.size)
        divide("rows of the weight of query, key and value, among three for each head", qkv.shape[0], 3 * heads)
        self.qkv = ColumnParallelLinear(qkv, qkv_bias, group=group, gather_output=False)
        self.output = RowParallelLinear(output, output_bias, group=group)
        self.causal = causal
        self._attended: tuple[Array, Array, Array, Array] | None = None

    def forward(self, x: Array) -> Array:
        """The output for `x`, the same on every rank."""
        qkv = self.qkv.forward(x)
        # Sequences x tokens x (head, part, width) to heads before tokens.
        parts = qkv.reshape(-1, *x.shape[-2:-1], self.heads, 3, qkv.shape[-1] // (3 * self.heads))
        q, k, v = (parts[..., part, :].swapaxes(1, 2) for part in range(3))
        scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]).astype(x.dtype)
        if self.causal:
            scores = np.where(np.tri(x.shape[-2], dtype=bool), scores, -np.inf)
        powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
        weights = powers / powers.sum(axis=-1, keepdims=True)
        self._attended = q, k, v, weights
        attended = (weights @ v).swapaxes(1, 2)
        return self.output.forward(attended.reshape(*x.shape[:-1], -1))

    def backward(self, dy: Array) -> Array:
        """The gradient of the input; those of the weights are kept in `qkv` and `output`."""
        q, k, v, weights = _saved(self._attended)
        dattended = self.output.backward(dy)
        shape = dattended.shape
        d = dattended.reshape(-1, shape[-2], self.heads, shape[-1] // self.heads).swapaxes(1, 2)
        dweights = d @ v.swapaxes(-1, -2)
        dscores = weights * (dweights - (weights * dweights).sum(axis=-1, keepdims=True))
        dscores = dscores / np.sqrt(q.shape[-1]).astype(d.dtype)
        parts = [dscores @ k, dscores.swapaxes(-1, -2) @ q, weights.swapaxes(-1, -2) @ d]
        dqkv = np.stack([part.swapaxes(1, 2) for part in parts], axis=-2)
        return self.qkv.backward(np.ascontiguousarray(dqkv.reshape(*shape[:-1], -1)))
