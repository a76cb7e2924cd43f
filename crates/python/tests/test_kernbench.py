"""The ancestor's surface over the simulator: parallel state, layers, ranks, host reads, and its all-reduce bench."""

import pathlib

import numpy as np
import pytest

from ringwork import kernbench
from ringwork.errors import ArgumentError
from ringwork.kernbench import DPPolicy, SpawnException, Torch
from ringwork.kernbench import __main__ as program
from ringwork.kernbench.tensor import HOST_READS, Tensor

pytest.importorskip("yaml", reason="PyYAML is not installed")
BENCH = pathlib.Path(__file__).parents[1] / "examples" / "all_reduce_bench.py"


@pytest.fixture
def torch():
    torch = Torch("sip6-torus")
    yield torch
    torch.close()


def each(torch, worker, ranks=2):
    """Runs `worker(rank)` on ranks with a process group and a SIP each."""

    def ready(rank):
        torch.ahbm.set_device(rank)
        torch.distributed.init_process_group(backend="ahbm")
        worker(rank)

    torch.multiprocessing.spawn(ready, nprocs=ranks)


# --- the parallel state ---


def test_the_parallel_state_has_ranks_and_sizes_and_is_initialised_once(torch):
    seen = []

    def worker(rank):
        state = torch.tp.parallel_state
        with pytest.raises(ArgumentError, match="not initialised"):
            state.get_tensor_model_parallel_rank()
        assert not state.model_parallel_is_initialized()
        state.initialize_model_parallel(3)
        seen.append((state.get_tensor_model_parallel_rank(), state.get_tensor_model_parallel_world_size()))
        with pytest.raises(ArgumentError, match="initialised already"):
            state.initialize_model_parallel(3)
        state.destroy_model_parallel()
        state.initialize_model_parallel()

    each(torch, worker, 3)
    assert seen == [(0, 3), (1, 3), (2, 3)]


def test_a_tensor_group_that_is_not_the_world_is_refused(torch):
    def worker(rank):
        with pytest.raises(ArgumentError, match="group of 3 in a world of 2"):
            torch.tp.parallel_state.initialize_model_parallel(3)

    each(torch, worker)


# --- layers ---


def test_layers_have_the_shapes_of_their_parts_and_a_row_parallel_one_gives_the_whole_product(torch):
    rng = np.random.default_rng(1)
    x, w = rng.integers(-3, 4, (4, 6)).astype("f4"), rng.integers(-3, 4, (8, 6)).astype("f4")
    results = {}

    def worker(rank):
        torch.tp.parallel_state.initialize_model_parallel()
        column = torch.tp.ColumnParallelLinear(6, 8)
        assert column.weight.shape == (4, 6)
        column.weight.copy_(w[rank * 4 : rank * 4 + 4])
        y = column(torch.from_numpy(x))
        assert y.shape == (4, 4)
        row = torch.tp.RowParallelLinear(6, 8)
        assert row.weight.shape == (8, 3)
        row.weight.copy_(w[:, rank * 3 : rank * 3 + 3])
        z = row(torch.from_numpy(x[:, rank * 3 : rank * 3 + 3]))
        results[rank] = y.numpy(), z.numpy()
        with pytest.raises(ArgumentError, match="takes 6 columns"):
            column(torch.zeros(4, 5))

    each(torch, worker)
    whole = x @ w.T
    assert np.array_equal(np.concatenate([results[0][0], results[1][0]], axis=1), whole)
    # The sum over the ranks, not their mean.
    assert np.array_equal(results[0][1], whole) and np.array_equal(results[1][1], whole)


def test_two_layers_equal_the_reference_and_are_equal_on_every_rank(torch):
    rng = np.random.default_rng(2)
    x, up, down = (rng.normal(size=shape).astype("f4") for shape in [(5, 8), (12, 8), (8, 12)])
    results = {}

    def worker(rank):
        torch.tp.parallel_state.initialize_model_parallel()
        first, second = torch.tp.ColumnParallelLinear(8, 12), torch.tp.RowParallelLinear(12, 8)
        first.weight.copy_(up[rank * 4 : rank * 4 + 4])
        second.weight.copy_(down[:, rank * 4 : rank * 4 + 4])
        results[rank] = second(first(torch.from_numpy(x))).numpy()

    each(torch, worker, 3)
    wide = x.astype("f8") @ up.T.astype("f8") @ down.T.astype("f8")
    np.testing.assert_allclose(results[0], wide, atol=1e-4)
    assert results[0].tobytes() == results[1].tobytes() == results[2].tobytes()
    assert torch.ahbm.time() > 0


# --- waits inside workers ---


def test_ranks_wait_for_each_other_and_go_on_in_the_same_order_every_time(torch):
    def run():
        order = []

        def worker(rank):
            for step in range(2):
                order.append((step, rank))
                torch.distributed.barrier()

        each(torch, worker, 3)
        return order

    first = run()
    # Nobody begins a step before all have begun the one before.
    assert [step for step, _ in first] == [0, 0, 0, 1, 1, 1]
    assert run() == run() == first


def test_a_call_that_was_begun_can_be_waited_for_more_than_once(torch):
    def worker(rank):
        x = torch.from_numpy(np.full(4, rank + 1, "f4"))
        work = torch.distributed.all_reduce(x, async_op=True)
        assert work.is_completed() == (rank == 1)
        work.wait()
        work.wait()
        assert work.is_completed() and x.numpy().tolist() == [3.0] * 4

    each(torch, worker)


def test_ranks_that_disagree_all_get_the_error_and_none_is_left(torch):
    def worker(rank):
        torch.distributed.all_reduce(torch.zeros(4 + rank))

    with pytest.raises(SpawnException, match=r"rank 0 calls all_reduce\(sum, 4 float32\), rank 1 all_reduce\(sum, 5") as caught:
        each(torch, worker)
    assert set(caught.value.ranks) <= {0, 1}


def test_a_rank_that_waits_for_one_that_ended_says_so(torch):
    def worker(rank):
        if rank == 0:
            torch.distributed.barrier()

    with pytest.raises(SpawnException, match="rank 0 waits for a call that rank 1 will never make") as caught:
        each(torch, worker)
    assert caught.value.ranks == [0]


RELATIVES = {
    "broadcast": (lambda d, x, y: d.broadcast(x, src=1), lambda all, rank: all[1]),
    "reduce": (lambda d, x, y: d.reduce(x, dst=2, op=d.ReduceOp.MAX), lambda all, rank: all.max(0) if rank == 2 else all[rank]),
    "gather": (lambda d, x, y: d.all_gather_into_tensor(y, x), lambda all, rank: all.reshape(-1)),
    "scatter": (lambda d, x, y: d.reduce_scatter_tensor(y, x), lambda all, rank: all.sum(0).reshape(3, 2)[rank]),
    "all to all": (lambda d, x, y: d.all_to_all_single(y, x), lambda all, rank: all.reshape(3, 3, 2)[:, rank].reshape(-1)),
}


@pytest.mark.parametrize("name", RELATIVES)
def test_every_collective_gives_each_rank_its_result(torch, name):
    call, wanted = RELATIVES[name]
    everything = np.arange(18, dtype="f4").reshape(3, 6) % 7
    results = {}

    def worker(rank):
        x = torch.from_numpy(everything[rank])
        y = torch.zeros(*wanted(everything, rank).shape)
        call(torch.distributed, x, y)
        results[rank] = (x if name in ("broadcast", "reduce") else y).numpy()

    each(torch, worker, 3)
    for rank, result in results.items():
        assert np.array_equal(result, wanted(everything, rank)), rank


# --- spawn ---


def test_spawn_gives_each_rank_its_number_the_arguments_and_its_sip(torch):
    seen = []

    def worker(rank, word, number):
        torch.ahbm.set_device(5 - rank)
        seen.append((rank, word, number, torch.ahbm.current_device(), torch.zeros(2).sip))

    torch.multiprocessing.spawn(worker, args=("a", 7), nprocs=3)
    assert seen == [(rank, "a", 7, 5 - rank, 5 - rank) for rank in range(3)]
    assert torch.ahbm.current_device() == 0


def test_a_failure_names_the_ranks_that_caused_it_and_the_others_end(torch):
    ended = []

    def worker(rank):
        try:
            torch.distributed.barrier()
            if rank == 1:
                raise KeyError("lost")
            torch.distributed.barrier()
            ended.append("never")
        finally:
            ended.append(rank)

    with pytest.raises(SpawnException, match="rank 1 of 3 failed") as caught:
        each(torch, worker, 3)
    [(rank, error)] = caught.value.failures
    assert caught.value.ranks == [rank] == [1] and isinstance(error, KeyError)
    assert sorted(ended) == [0, 1, 2]
    each(torch, lambda rank: torch.distributed.barrier(), 3)


def test_a_process_group_is_made_once_with_the_backend_that_there_is(torch):
    with pytest.raises(ArgumentError, match="there is no process group"):
        torch.distributed.get_rank()
    with pytest.raises(ArgumentError, match="no backend `nccl`"):
        torch.distributed.init_process_group(backend="nccl")
    torch.distributed.init_process_group(backend="ahbm")
    assert (torch.distributed.get_rank(), torch.distributed.get_world_size()) == (0, 6)
    with pytest.raises(ArgumentError, match="has a process group already"):
        torch.distributed.init_process_group(backend="ahbm")
    with pytest.raises(ArgumentError, match="there is no SIP 6"):
        torch.ahbm.set_device(6)


# --- host reads ---

READS = {
    "numpy": lambda x: x.numpy(),
    "data": lambda x: x.data,
    "item": lambda x: x.item(),
    "__getitem__": lambda x: x[0],
    "__repr__": lambda x: float(repr(x).split("[")[1].split("]")[0]),
    "copy_": lambda x: type(x)(x._simulation, (1,), "f4", DPPolicy(), 0).copy_(x).numpy(),
}


@pytest.mark.parametrize("read", READS)
def test_every_host_read_finishes_what_is_queued(torch, read):
    x = torch.from_numpy(np.full(1, 5, "f4"))
    assert torch._simulation._queue
    assert float(np.squeeze(READS[read](x))) == 5
    assert not torch._simulation._queue


def test_the_list_of_host_reads_is_closed(torch):
    assert set(HOST_READS) == set(READS)
    for name, member in vars(Tensor).items():
        method = member.fget if isinstance(member, property) else member
        reads = "_read" in getattr(getattr(method, "__code__", None), "co_names", ())
        assert reads == (name in HOST_READS), name


def test_the_target_of_a_copy_is_not_waited_for_and_is_written_after_what_was_queued(torch):
    x, y = torch.from_numpy(np.ones(2, "f4")), torch.zeros(2)
    x.copy_(np.full(2, 7, "f4"))
    assert len(torch._simulation._queue) == 2
    y.copy_(x)
    assert len(torch._simulation._queue) == 1  # the source was read, the target was not
    assert (x.numpy().tolist(), y.numpy().tolist()) == ([7, 7], [7, 7])


# --- placement and configuration ---


def test_a_policy_deals_rows_and_columns_over_cubes_and_then_over_pes():
    shards = DPPolicy(cube="row_wise", pe="column_wise", num_cubes=2, num_pes=2).shards(4, 6)
    got = [(shard.cube, shard.pe, shard.index) for shard in shards]
    top, bottom, left, right = slice(0, 2), slice(2, 4), slice(0, 3), slice(3, 6)
    assert got == [(0, 0, (top, left)), (0, 1, (top, right)), (1, 0, (bottom, left)), (1, 1, (bottom, right))]
    assert {shard.shape for shard in DPPolicy(num_cubes=2, num_pes=2).shards(4, 6)} == {(4, 6)}
    with pytest.raises(ArgumentError, match="3 rows cannot be divided among 2"):
        DPPolicy(pe="row_wise", num_pes=2).shards(3, 1)
    with pytest.raises(ArgumentError, match="is not one of replicate"):
        DPPolicy(cube="diagonal")


def test_a_tensor_is_whole_again_when_it_is_read_however_it_was_dealt(tmp_path):
    ccl = tmp_path / "ccl.yaml"
    ccl.write_text("defaults: {world_size: 8}")
    for torch in (Torch("sip6-torus"), Torch("sip6-torus", str(ccl))):
        values = np.arange(48, dtype="i4").reshape(8, 6)
        for cube in ("replicate", "row_wise", "column_wise"):
            for pe in ("replicate", "row_wise", "column_wise"):
                # 6 columns: among 3 cubes, and then among 2 PEs.
                dealt = DPPolicy(cube=cube, pe=pe, num_cubes=3 if cube == "column_wise" else 2, num_pes=2)
                x = torch.from_numpy(values, dp=dealt)
                assert np.array_equal(x.numpy(), values) and x.dtype == np.int32, dealt
        too_many = DPPolicy(num_cubes=97) if torch.world_size > 6 else DPPolicy(num_cubes=17)
        with pytest.raises(ArgumentError, match="of 8"):
            torch.zeros(4, dp=too_many)
        torch.close()


CCL = """
defaults: {algorithm: staged-ring, world_size: 5, n_elem: 64}
collectives: {broadcast: {world_size: 4}}
algorithms: {twophase: {world_size: 3, n_elem: 8}}
"""


def test_settings_of_an_algorithm_go_over_the_defaults_and_a_world_size_is_explicit_else_default(tmp_path):
    file = tmp_path / "ccl.yaml"
    file.write_text(CCL)
    config = kernbench.load_ccl_config(file)
    ring = kernbench.resolve_algorithm_config(config)
    assert (ring["algorithm"], ring["n_elem"], kernbench.resolve_world_size(ring, 6)) == ("staged-ring", 64, 5)
    twophase = kernbench.resolve_algorithm_config(config, "twophase")
    assert (twophase["n_elem"], kernbench.resolve_world_size(twophase, 6)) == (8, 3)
    nothing = kernbench.resolve_algorithm_config({})
    assert (nothing["algorithm"], kernbench.resolve_world_size(nothing, 6)) == ("twophase", 6)
    assert kernbench.resolve_world_size(nothing | {"world_size": 100}, 6, 128) == 100
    with pytest.raises(ArgumentError, match="769 .explicit. is more than the 6 SIPs of 128 PEs"):
        kernbench.resolve_world_size(nothing | {"world_size": 769}, 6, 128)
    with pytest.raises(ArgumentError, match="did you mean `twophase`"):
        kernbench.resolve_algorithm_config(config, "twofase")
    file.write_text("defaults: {world_sise: 3}")
    with pytest.raises(ArgumentError, match="did you mean `world_size`"):
        kernbench.load_ccl_config(file)


def test_the_specification_has_the_keys_of_the_ancestor(torch):
    assert torch.spec["system"]["sips"]["count"] == torch.ahbm.device_count() == 6
    assert torch.spec["sip"]["cube_mesh"] == {"w": 4, "h": 4}


# --- the bench ---


def bench(tmp_path, algorithm, ranks, path=BENCH):
    ccl = tmp_path / "ccl.yaml"
    ccl.write_text(f"algorithms: {{{algorithm}: {{world_size: {ranks}, n_elem: 48}}}}\ndefaults: {{algorithm: {algorithm}}}\n")
    return program.main([str(path), "--topology", "sip6-torus", "--ccl", str(ccl)])


@pytest.mark.parametrize("algorithm", kernbench.ccl.ALGORITHMS)
@pytest.mark.parametrize("ranks", [2, 6, 8, 16])
def test_the_bench_is_right_for_every_algorithm_and_number_of_ranks(tmp_path, capsys, algorithm, ranks):
    assert bench(tmp_path, algorithm, ranks) == 0
    assert capsys.readouterr().out == f"{algorithm} (ws={ranks}): {ranks} OK\n"


def test_a_bench_that_is_wrong_prints_the_first_five_ranks(tmp_path, capsys):
    wrong = tmp_path / "wrong.py"
    wrong.write_text(BENCH.read_text().replace("torch.distributed.all_reduce(x)", "pass"))
    assert bench(tmp_path, "staged-ring", 6, wrong) == 1
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 5 and lines[0] == "staged-ring (ws=6): rank 0: mean 1.0, expected 21.0"


def test_a_file_without_a_run_is_refused(tmp_path, capsys):
    empty = tmp_path / "empty.py"
    empty.write_text("")
    assert program.main([str(empty)]) == 1
    assert "there is no function run(torch)" in capsys.readouterr().err
