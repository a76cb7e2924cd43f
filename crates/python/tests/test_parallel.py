"""The parallel state and the tensor-parallel layers, among real ranks, against dense float64 layers.

Gradients are compared with differences of the dense forward pass.
"""

import numpy as np
import pytest

import ringwork
from ringwork.errors import ArgumentError
from ringwork.parallel import (
    ColumnParallelLinear,
    Grid,
    ParallelAttention,
    ParallelMLP,
    ParallelState,
    RowParallelLinear,
    VocabParallelEmbedding,
)

TOKENS, HIDDEN, WIDE, HEADS = 5, 6, 12, 6
IDS = np.array([[3, 11, 0], [3, 7, 3]])


def array(*shape, seed=0):
    return np.random.default_rng(seed).uniform(-0.5, 0.5, shape)


def f4(*arrays):
    return [a.astype("f4") for a in arrays]


def gelu(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def mlp(x, up, b, down, c):
    return gelu(x @ up.T + b) @ down.T + c


def attention(x, w, b, out, c, causal):
    result = np.empty((*x.shape[:2], HEADS * 2))
    for sequence, rows in enumerate(x @ w.T + b):
        for head in range(HEADS):
            q, k, v = (rows[:, (3 * head + part) * 2 : (3 * head + part + 1) * 2] for part in range(3))
            for token in range(len(rows)):
                last = token + 1 if causal else len(rows)
                powers = np.exp(k[:last] @ q[token] / np.sqrt(2))
                result[sequence, token, head * 2 : head * 2 + 2] = powers / powers.sum() @ v[:last]
    return result @ out.T + c


def gradient(f, at, dy, step=1e-5):
    """Of `sum(f(at) * dy)` with respect to every element of `at`."""
    result = np.empty_like(at)
    for i in np.ndindex(at.shape):
        above, below = at.copy(), at.copy()
        above[i] += step
        below[i] -= step
        result[i] = ((f(above) - f(below)) * dy).sum() / (2 * step)
    return result


def near(got, wanted):
    assert got.dtype == np.float32 and got.shape == wanted.shape
    np.testing.assert_allclose(got, wanted, atol=2e-5)


def equal_everywhere(comm, *values):
    for value in values:
        least, most = (np.ascontiguousarray(value).view("i4").copy() for _ in range(2))
        comm.all_reduce(least, "min")
        comm.all_reduce(most, "max")
        assert np.array_equal(least, most)


def mine(comm, whole, axis):
    return np.split(whole, comm.size, axis)[comm.rank]


def linear_layers(comm):
    x, w, b = array(TOKENS, HIDDEN, seed=1), array(WIDE, HIDDEN, seed=2), array(WIDE, seed=3)
    dy = array(TOKENS, WIDE, seed=4)
    column = ColumnParallelLinear(*f4(w, b), group=comm)
    y, dx = column.forward(*f4(x)), column.backward(*f4(dy))
    near(y, x @ w.T + b)
    near(dx, gradient(lambda x: x @ w.T + b, x, dy))
    near(column.weight_grad, mine(comm, gradient(lambda w: x @ w.T, w, dy), 0))
    near(column.bias_grad, mine(comm, dy.sum(axis=0), 0))
    equal_everywhere(comm, y, dx)

    row = RowParallelLinear(*f4(w.T.copy(), b[:HIDDEN]), group=comm, input_is_parallel=False)
    x, dy = dy, x
    y, dx = row.forward(*f4(x)), row.backward(*f4(dy))
    # The whole product: not a rank's share of it, nor the mean.
    near(y, x @ w + b[:HIDDEN])
    near(dx, gradient(lambda x: x @ w, x, dy))
    near(row.weight_grad, mine(comm, gradient(lambda w: x @ w.T, w.T.copy(), dy), 1))
    near(row.bias_grad, dy.sum(axis=0))
    equal_everywhere(comm, y, dx, row.bias_grad)


def blocks(comm):
    x, dy = array(2, 3, HIDDEN, seed=1), array(2, 3, HIDDEN, seed=2)
    weights = [array(WIDE, HIDDEN, seed=3), array(WIDE, seed=4), array(HIDDEN, WIDE, seed=5), array(HIDDEN, seed=6)]
    up, b, down, c = f4(*weights)
    layer = ParallelMLP(up, down, b, c, group=comm)
    y, dx = layer.forward(*f4(x)), layer.backward(*f4(dy))
    compare(comm, mlp, (x, *weights), dy, (y, dx), (layer.up, layer.down))
    heads = HEADS * 2
    weights = [array(3 * heads, HIDDEN, seed=7), array(3 * heads, seed=8), array(HIDDEN, heads, seed=9), array(HIDDEN, seed=10)]
    qkv, b, out, c = f4(*weights)
    for causal in (True, False):
        layer = ParallelAttention(qkv, out, HEADS, b, c, group=comm, causal=causal)
        y, dx = layer.forward(*f4(x)), layer.backward(*f4(dy))
        dense = lambda *given, causal=causal: attention(*given, causal)  # noqa: E731
        compare(comm, dense, (x, *weights), dy, (y, dx), (layer.qkv, layer.output))


def compare(comm, dense, given, dy, results, layers):
    """A block of two layers with what one rank computes in float64."""
    (y, dx), (first, second) = results, layers
    near(y, dense(*given))
    got = [dx, first.weight_grad, first.bias_grad, second.weight_grad, second.bias_grad]
    axes = [None, 0, 0, 1, None]
    for at, (value, axis) in enumerate(zip(got, axes)):
        moved = lambda a, at=at: dense(*given[:at], a, *given[at + 1 :])  # noqa: E731
        wanted = gradient(moved, given[at], dy)
        near(value, wanted if axis is None else mine(comm, wanted, axis))
    equal_everywhere(comm, y, dx, second.bias_grad)


def embeddings(comm):
    table, dy = array(WIDE, HIDDEN, seed=1), array(*IDS.shape, HIDDEN, seed=2)
    layer = VocabParallelEmbedding(*f4(table), group=comm)
    y = layer.forward(IDS)
    layer.backward(*f4(dy))
    assert np.array_equal(y, table.astype("f4")[IDS])
    near(layer.weight_grad, mine(comm, gradient(lambda table: table[IDS], table, dy), 0))
    equal_everywhere(comm, y)
    for wrong in (-1, WIDE):
        with pytest.raises(ArgumentError, match="the vocabulary has 12"):
            layer.forward(np.array([wrong]))


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("layers", [linear_layers, blocks, embeddings])
def test_layers_equal_dense_ones_and_are_equal_on_every_rank(layers, size):
    ringwork.spawn(layers, size, timeout=60)


def states(comm):
    with ParallelState(comm, tensor=2, pipeline=2) as state:
        for axis in ("tensor", "data", "pipeline"):
            group, members = getattr(state, axis), state.grid.group(axis, comm.rank)
            assert (group.size, group.rank) == (state.grid.size(axis), state.grid.rank(axis, comm.rank))
            ranks = np.empty(len(members), "i8")
            group.all_gather(np.array([comm.rank]), ranks)
            assert ranks.tolist() == members
        assert (state.is_first_stage, state.is_last_stage) == (comm.rank < 2, comm.rank >= 2)
        assert state.next_stage == state.previous_stage == (comm.rank + 2) % 4
        with pytest.raises(ArgumentError, match="divided into groups already"):
            ParallelState(comm, tensor=4)
    with ParallelState(comm, tensor=4) as again:
        assert again.tensor.size == 4
    with pytest.raises(ArgumentError, match="must divide 4"):
        ParallelState(comm, tensor=3)


def test_the_groups_of_a_state_are_those_of_its_grid_and_dividing_twice_is_an_error():
    ringwork.spawn(states, 4, timeout=60)


def test_every_rank_is_in_one_group_of_each_direction():
    for world, tensor, pipeline in [(1, 1, 1), (8, 2, 2), (24, 4, 3), (6, 1, 6), (6, 6, 1)]:
        grid = Grid(world, tensor, pipeline)
        for axis in ("tensor", "data", "pipeline"):
            assert sorted(rank for group in grid.groups(axis) for rank in group) == list(range(world))
            for rank in range(world):
                assert grid.group(axis, rank)[grid.rank(axis, rank)] == rank
    assert Grid(8, 2, 4).neighbour("pipeline", 7, 1) == 1


class Alone:
    """A group of one rank of two: enough for what is refused before anything is sent."""

    rank, size = 0, 2


def test_what_cannot_be_divided_is_refused_by_name():
    three = np.ones((3, 4), "f4")
    with pytest.raises(ArgumentError, match="outputs of a column-parallel layer: 3 cannot be divided among 2 ranks"):
        ColumnParallelLinear(three, group=Alone())
    with pytest.raises(ArgumentError, match="inputs of a row-parallel layer"):
        RowParallelLinear(three.T, group=Alone())
    with pytest.raises(ArgumentError, match="the vocabulary"):
        VocabParallelEmbedding(three, group=Alone())
    with pytest.raises(ArgumentError, match="attention heads"):
        ParallelAttention(np.ones((18, 4)), np.ones((4, 6)), 3, group=Alone())


def test_backward_needs_a_forward_and_a_gradient_of_its_shape():
    layer = RowParallelLinear(np.ones((3, 4), "f4"), group=Alone())
    with pytest.raises(ArgumentError, match="call forward first"):
        layer.backward(np.ones((1, 3)))
    column = ColumnParallelLinear(np.ones((4, 3), "f4"), group=Alone(), gather_output=False)
    with pytest.raises(ArgumentError, match="4 columns and this rank's weight 3"):
        column.forward(np.ones((1, 4)))
    column.forward(np.ones((1, 3), "f4"))
    with pytest.raises(ArgumentError, match=r"must have \(1, 2\)"):
        column.backward(np.ones((1, 4)))
