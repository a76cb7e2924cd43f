"""torch.distributed over ringwork: each case is compared with what one process computes."""

import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import threading
import time
import traceback

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402

import ringwork  # noqa: E402

if tuple(int(part) for part in torch.__version__.split(".")[:2]) < (2, 15):
    import ringwork.torch  # newer ones find the backend by its entry point

LONG = 3 << 20  # elements; more than any buffer between two ranks


def each(n, make):
    return [make(r) for r in range(n)]


def case_reductions(r, n):
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.uint8, torch.int32, torch.int64, torch.int16):
        x = torch.arange(5).to(dtype) + r
        dist.all_reduce(x)
        assert torch.equal(x, sum(torch.arange(5).to(dtype) + k for k in range(n))), dtype
    for dtype in (torch.float8_e4m3fn, torch.float8_e5m2):
        x = torch.full((5,), r + 1.0).to(dtype)
        dist.all_reduce(x)
        assert torch.equal(x.float(), torch.full((5,), float(sum(range(1, n + 1))))), dtype
    x = torch.full((4,), float(r))
    dist.all_reduce(x, dist.ReduceOp.MAX)
    assert torch.equal(x, torch.full((4,), float(n - 1)))
    x = torch.full((4,), float(r))
    dist.all_reduce(x, dist.ReduceOp.AVG)
    assert torch.equal(x, torch.full((4,), (n - 1) / 2))
    x = torch.tensor([r == 0, False])
    dist.all_reduce(x)
    assert x.tolist() == [True, False]
    x = torch.complex(torch.ones(3), torch.full((3,), float(r)))
    dist.all_reduce(x)
    assert torch.equal(x, torch.complex(torch.full((3,), float(n)), torch.full((3,), float(sum(range(n))))))
    x = torch.arange(12.0).view(3, 4).t() * (r + 1)
    dist.all_reduce(x)
    assert torch.equal(x, torch.arange(12.0).view(3, 4).t() * sum(range(1, n + 1)))
    x = torch.full((2,), float(r + 1))
    dist.reduce(x, n - 1)
    assert x[0] == (sum(range(1, n + 1)) if r == n - 1 else r + 1)
    with pytest.raises(ValueError, match="there is no reduction"):
        dist.all_reduce(torch.ones(1, dtype=torch.int32), dist.ReduceOp.BXOR)


def case_bits(r, n):
    """A sum has the bits of adding in rank order, in own memory and in the window, as with NumPy and on a node."""
    every = [torch.randn(5000, generator=torch.Generator().manual_seed(k)) for k in range(n)]
    want = every[0].clone()
    for more in every[1:]:
        want += more
    x = every[r].clone()
    dist.all_reduce(x)
    assert torch.equal(x.view(torch.int32), want.view(torch.int32))
    comm = ringwork.join(f"bits-{os.getppid()}", r, n)
    array = every[r].numpy().copy()
    comm.all_reduce(array)
    assert array.tobytes() == want.numpy().tobytes()
    comm.close()


def case_async(r, n):
    x = torch.ones(1000) * (r + 1)
    work = dist.all_reduce(x, async_op=True)
    work.wait()
    assert torch.equal(x, torch.full((1000,), float(sum(range(1, n + 1)))))
    x = torch.ones(8)
    twice = dist.all_reduce(x, async_op=True).get_future().then(lambda f: f.value()[0] * 2)
    assert torch.equal(twice.wait(), torch.full((8,), 2.0 * n))
    works = [dist.all_reduce(torch.ones(1000), async_op=True) for _ in range(300)]
    del works  # abandoned: the calls own their memory
    dist.barrier()


def case_moves(r, n):
    parts = [torch.empty(3) for _ in range(n)]
    dist.all_gather(parts, torch.full((3,), float(r)))
    assert [p[0].item() for p in parts] == list(range(n))
    out = torch.empty(n * 2, 3)
    dist.all_gather_into_tensor(out, torch.full((2, 3), float(r)))
    assert torch.equal(out, torch.cat(each(n, lambda k: torch.full((2, 3), float(k)))))
    uneven = [torch.empty(k + 1) for k in range(n)]
    dist.all_gather(uneven, torch.full((r + 1,), float(r)))
    assert all(torch.equal(u, torch.full((k + 1,), float(k))) for k, u in enumerate(uneven))
    out = torch.empty(2)
    dist.reduce_scatter_tensor(out, torch.arange(2.0 * n) * (r + 1))
    assert torch.equal(out, torch.arange(2.0 * n)[2 * r : 2 * r + 2] * sum(range(1, n + 1)))
    out = torch.empty(2)
    dist.reduce_scatter(out, [torch.full((2,), float(k + r)) for k in range(n)])
    assert torch.equal(out, torch.full((2,), float(sum(r + k for k in range(n)))))
    out = torch.empty(n, dtype=torch.int64)
    dist.all_to_all_single(out, torch.arange(n) + 10 * r)
    assert out.tolist() == [10 * k + r for k in range(n)]
    sends, receives = [k + 1 for k in range(n)], [r + 1] * n
    out = torch.empty(sum(receives), 2)
    dist.all_to_all_single(out, torch.full((sum(sends), 2), float(r)), receives, sends)
    assert torch.equal(out, torch.cat(each(n, lambda k: torch.full((r + 1, 2), float(k)))))
    outs = [torch.empty(2) for _ in range(n)]
    dist.all_to_all(outs, [torch.full((2,), float(10 * r + k)) for k in range(n)])
    assert [o[0].item() for o in outs] == [10 * k + r for k in range(n)]
    x = torch.full((2, 2), float(r)).t()
    dist.broadcast(x, 1)
    assert torch.equal(x, torch.ones(2, 2))
    got = [torch.empty(2) for _ in range(n)] if r == 0 else None
    dist.gather(torch.full((2,), float(r)), got)
    assert r != 0 or [g[0].item() for g in got] == list(range(n))
    out = torch.empty(2)
    dist.scatter(out, each(n, lambda k: torch.full((2,), float(k))) if r == 0 else None)
    assert torch.equal(out, torch.full((2,), float(r)))


def case_messages(r, n):
    ahead, behind = (r + 1) % n, (r - 1) % n
    # Long, in both directions at once: blocking sends would wait for each other.
    x, y = torch.full((LONG,), float(r)), torch.empty(LONG)
    sent, received = dist.isend(x, ahead), dist.irecv(y, behind)
    sent.wait()
    received.wait()
    assert torch.equal(y, torch.full((LONG,), float(behind)))
    y.zero_()
    for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, x, ahead), dist.P2POp(dist.irecv, y, behind)]):
        work.wait()
    assert torch.equal(y, torch.full((LONG,), float(behind)))
    # Tags are matched, whatever the order.
    if r == 0:
        dist.send(torch.ones(1), 1, tag=1)
        dist.send(torch.full((1,), 2.0), 1, tag=2)
    elif r == 1:
        a, b = torch.empty(1), torch.empty(1)
        dist.recv(b, 0, tag=2)
        dist.recv(a, 0, tag=1)
        assert (a.item(), b.item()) == (1.0, 2.0)
    dist.barrier()


def case_objects(r, n):
    got = [None] * n
    dist.all_gather_object(got, {"rank": r})
    assert got == [{"rank": k} for k in range(n)]
    box = ["from 0" if r == 0 else None]
    dist.broadcast_object_list(box)
    assert box == ["from 0"]


def case_groups(r, n):
    alone = [dist.new_group([k]) for k in range(n)]
    x = torch.full((1,), float(r))
    dist.all_reduce(x, group=alone[r])
    assert x.item() == r
    backwards = dist.new_group(list(range(n)))
    dist.all_reduce(x, group=backwards)
    assert x.item() == sum(range(n))


def case_coalesced(r, n):
    from torch.distributed.distributed_c10d import _coalescing_manager

    xs = [torch.full((k + 1,), float(r)) for k in range(3)]
    with _coalescing_manager(device=torch.device("cpu")):
        for x in xs:
            dist.all_reduce(x)
    assert all(torch.equal(x, torch.full((k + 1,), float(sum(range(n))))) for k, x in enumerate(xs))


def case_functional(r, n):
    import torch.distributed._functional_collectives as fc

    x = torch.full((4,), float(r), requires_grad=True)
    y = fc.all_reduce(x, "sum", list(range(n)))
    assert torch.equal(y.detach().clone(), torch.full((4,), float(sum(range(n)))))
    z = fc.all_gather_tensor_autograd(x, 0, list(range(n)))
    z.sum().backward()
    assert x.grad.shape == x.shape


def model(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))


def batches(n):
    torch.manual_seed(1)
    return [torch.randn(n * 4, 8) for _ in range(3)]


def reference(n):
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for batch in batches(n):
        optimizer.zero_grad()
        net(batch).square().mean().backward()
        optimizer.step()
    return net


def trained(net, r, n):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for batch in batches(n):
        optimizer.zero_grad()
        net(batch[r * 4 : r * 4 + 4]).square().mean().backward()
        optimizer.step()
    return net


def case_ddp(r, n):
    wanted = list(reference(n).parameters())
    for options in ({}, {"static_graph": True}, {"gradient_as_bucket_view": True}):
        net = trained(nn.parallel.DistributedDataParallel(model(), **options), r, n)
        for got, want in zip(net.parameters(), wanted):
            torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-6)


def case_fsdp2(r, n):
    from torch.distributed.fsdp import fully_shard

    net = model()
    mesh = dist.init_device_mesh("cpu", (n,))
    for layer in net:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(net, mesh=mesh)
    trained(net, r, n)
    for got, want in zip(net.parameters(), reference(n).parameters()):
        torch.testing.assert_close(got.full_tensor(), want, rtol=1e-5, atol=1e-6)


def case_tensors_in_the_window(r, n):
    from ringwork.torch import window_tensor

    total = sum(range(1, n + 1))
    for dtype in (torch.float32, torch.bfloat16, torch.int64):
        x = window_tensor((100, 500), dtype)
        assert not x.any() and x.shape == (100, 500)
        x += r + 1
        dist.all_reduce(x)
        assert (x == total).all()
        x.fill_(r + 1)
        dist.all_reduce(x, async_op=True).wait()
        assert (x == total).all()
    # Elsewhere on rank 0, whether in the window or not.
    more = window_tensor(20_000) if r == 0 else None
    for make in (window_tensor, torch.zeros if r == 0 else window_tensor):
        y = make(20_000)
        y += r + 1
        dist.all_reduce(y)
        assert (y == total).all()
        part = torch.empty(20_000 // n // 8 * 8)
        whole = make(part.numel() * n)
        whole += r + 1
        dist.reduce_scatter_tensor(part, whole)
        assert (part == total).all()
        whole[r * part.numel() : (r + 1) * part.numel()] = r
        dist.all_gather_into_tensor(whole, whole[r * part.numel() : (r + 1) * part.numel()])
        assert torch.equal(whole, torch.arange(float(n)).repeat_interleave(part.numel()))
    del more
    # Memory comes back when the last user of a tensor is gone, and a full window is not an error.
    arena = dist.group.WORLD._get_backend(torch.device("cpu"))._arena
    del x, y, whole
    for _ in range(20):
        z = window_tensor(2 << 20)
        view = z[5:]
        del z
        assert len(arena._lent) == 1
        del view
    kept = [window_tensor(2 << 20) for _ in range(10)]
    assert len(arena._lent) == 8, "the window has 64 MiB"
    dist.all_reduce(kept[-1][:10_000])
    assert not kept[-1].any()


def case_fsdp2_in_the_window(r, n):
    import ringwork.torch as over
    from torch.distributed.fsdp import fully_shard

    net, backend = model(), dist.group.WORLD._get_backend(torch.device("cpu"))
    fully_shard(net, mesh=dist.DeviceMesh.from_group(dist.group.WORLD, "cpu"))
    net.set_allocate_memory_from_process_group_for_comm(True)
    before, least = backend._arena._count, over._WINDOW_FROM
    over._WINDOW_FROM = 0  # the model is small
    trained(net, r, n)
    over._WINDOW_FROM = least
    assert backend._arena._count > before, "torch did not allocate in the window"
    for got, want in zip(net.parameters(), reference(n).parameters(), strict=True):
        torch.testing.assert_close(got.full_tensor(), want, rtol=1e-5, atol=1e-6)


def case_tensor_parallel(r, n):
    from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    if n == 3:
        return  # the layers have 16 columns, and torch needs equal shards
    mesh = dist.init_device_mesh("cpu", (n,))
    torch.manual_seed(0)
    full = torch.randn(8, 6)
    assert torch.equal(distribute_tensor(full, mesh, [Shard(0)]).redistribute(mesh, [Replicate()]).to_local(), full)
    assert isinstance(distribute_tensor(full, mesh, [Shard(0)]), DTensor)
    net, wanted = model(), model()
    parallelize_module(net, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    x = batches(1)[0]
    y = net(x)
    torch.testing.assert_close(y, wanted(x))
    y.square().mean().backward()
    wanted(x).square().mean().backward()
    torch.testing.assert_close(net[0].weight.grad.full_tensor(), wanted[0].weight.grad)


def flat(net):
    return torch.cat([parameter.detach().flatten() for parameter in net.parameters()])


def close(net, wanted):
    for got, want in zip(net.parameters(), wanted.parameters(), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-6)


def case_ddp_with_a_bf16_hook(r, n):
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook

    net = nn.parallel.DistributedDataParallel(model())
    net.register_comm_hook(None, bf16_compress_hook)
    trained(net, r, n)
    for got, want in zip(net.parameters(), reference(n).parameters(), strict=True):
        torch.testing.assert_close(got, want, rtol=2e-2, atol=2e-3)


def case_ddp_join(r, n):
    """Rank r has r + 1 batches; a rank without one takes part with zeros."""
    net = nn.parallel.DistributedDataParallel(model())
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    wanted = model()
    plain = torch.optim.SGD(wanted.parameters(), lr=0.1)
    batch = batches(1)[0]
    for step in range(n):
        plain.zero_grad()
        # Of n ranks, those from `step` on still have a batch: the mean over n has zeros of the others.
        (wanted(batch).square().mean() * (n - step) / n).backward()
        plain.step()
    with net.join(divide_by_initial_world_size=True):
        for _ in range(r + 1):
            optimizer.zero_grad()
            net(batch).square().mean().backward()
            optimizer.step()
    close(net.module, wanted)


def case_fsdp1(r, n):
    import warnings

    from torch.distributed.fsdp import FullyShardedDataParallel

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        net = FullyShardedDataParallel(model(), device_id=torch.device("cpu"), use_orig_params=False)
        trained(net, r, n)
        with FullyShardedDataParallel.summon_full_params(net):
            torch.testing.assert_close(flat(net), flat(reference(n)), rtol=1e-5, atol=1e-6)


def case_zero(r, n):
    from torch.distributed.optim import ZeroRedundancyOptimizer

    net = nn.parallel.DistributedDataParallel(model())
    optimizer = ZeroRedundancyOptimizer(net.parameters(), torch.optim.Adam, lr=0.01)
    wanted = model()
    plain = torch.optim.Adam(wanted.parameters(), lr=0.01)
    for batch in batches(n):
        for this, net_, data in ((optimizer, net, batch[r * 4 : r * 4 + 4]), (plain, wanted, batch)):
            this.zero_grad()
            net_(data).square().mean().backward()
            this.step()
    for got, want in zip(net.parameters(), wanted.parameters(), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


def case_functional_gradients(r, n):
    import torch.distributed._functional_collectives as fc

    x = torch.full((2,), float(r), requires_grad=True)
    gathered = fc.all_gather_tensor_autograd(x, 0, list(range(n)))
    weights = torch.arange(2.0 * n)
    (gathered * weights).sum().backward()
    # Every rank weighs part r with the same weights: the gradient is n times these.
    assert torch.equal(x.grad, weights[2 * r : 2 * r + 2] * n)
    y = torch.arange(2.0 * n, requires_grad=True)
    part = fc.reduce_scatter_tensor_autograd(y, "sum", 0, list(range(n)))
    (part * (r + 1)).sum().backward()
    assert torch.equal(y.grad, torch.arange(1.0, n + 1).repeat_interleave(2))


def case_more_objects(r, n):
    got = [None]
    dist.scatter_object_list(got, [f"for {k}" for k in range(n)] if r == 0 else None)
    assert got == [f"for {r}"]
    box = [None] * n if r == 0 else None
    dist.gather_object((r, "x" * 1000 * r), box)
    assert r != 0 or box == [(k, "x" * 1000 * k) for k in range(n)]
    if r == 0:
        dist.send_object_list(["hello", {1: 2}], 1)
    elif r == 1:
        two = [None, None]
        dist.recv_object_list(two, 0)
        assert two == ["hello", {1: 2}]


def case_compile(r, n):
    import torch.distributed._functional_collectives as fc

    group = list(range(n))

    def f(x):
        return fc.all_reduce(x * 2, "sum", group) + 1

    x = torch.full((4,), float(r))
    want = torch.full((4,), 2.0 * sum(range(n)) + 1)
    assert torch.equal(torch.compile(f, backend="aot_eager", fullgraph=True)(x), want)

    def in_place(x):
        y = x * 2
        dist.all_reduce(y)
        return y + 1

    assert torch.equal(torch.compile(in_place, backend="aot_eager")(x), want)


def case_checkpoint(r, n):
    import tempfile

    import torch.distributed.checkpoint as dcp
    from torch.distributed.tensor import Shard, distribute_tensor

    path = [tempfile.mkdtemp() if r == 0 else None]
    dist.broadcast_object_list(path)
    mesh = dist.init_device_mesh("cpu", (n,))
    full = torch.arange(24.0).view(12, 2)
    dcp.save({"w": distribute_tensor(full, mesh, [Shard(0)]), "step": 7}, checkpoint_id=path[0])
    state = {"w": distribute_tensor(torch.zeros(12, 2), mesh, [Shard(0)]), "step": 0}
    dcp.load(state, checkpoint_id=path[0])
    assert torch.equal(state["w"].full_tensor(), full) and state["step"] == 7


def case_mesh(r, n):
    if n != 4:
        return
    mesh = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("rows", "columns"))
    x = torch.full((1,), float(r))
    dist.all_reduce(x, group=mesh.get_group("rows"))
    assert x.item() == (r % 2) + (r % 2 + 2)
    x = torch.full((1,), float(r))
    dist.all_reduce(x, group=mesh.get_group("columns"))
    assert x.item() == 2 * (r // 2 * 2) + 1


def case_windows(r, n):
    """A tensor in the window of a communicator is the same memory."""
    comm = ringwork.join(f"window-{os.getppid()}", r, n)
    for name, dtype in (("f32", torch.float32), ("bf16", torch.bfloat16), ("i64", torch.int64)):
        window = comm.zeros((3, 4), dtype)
        assert window.dtype == name
        x = torch.from_dlpack(window)
        assert x.dtype == dtype and x.shape == (3, 4)
        x += r + 1
        comm.all_reduce(window)
        assert torch.equal(x, torch.full((3, 4), sum(range(1, n + 1)), dtype=dtype))
    comm.close()
    del window
    x += 1  # the view keeps the memory


def everything(comm, path):
    dist.init_process_group("ringwork", init_method=f"file://{path}", rank=comm.rank, world_size=comm.size)
    assert dist.get_backend() == "ringwork"
    for name, case in list(globals().items()):
        if name.startswith("case_"):
            try:
                case(comm.rank, comm.size)
            except BaseException as error:
                raise AssertionError(f"{name}: {type(error).__name__}: {error}") from error
    dist.destroy_process_group()


@pytest.mark.parametrize("n", [2, 3, 4])
def test_everything_agrees_with_one_process(tmp_path, monkeypatch, n):
    monkeypatch.setenv("RINGWORK_TORCH_WINDOW_MIB", "64")
    ringwork.spawn(everything, n, (str(tmp_path / "store"),), timeout=120)


def death(comm, path):
    dist.init_process_group("ringwork", init_method=f"file://{path}", rank=comm.rank, world_size=comm.size)
    net = nn.parallel.DistributedDataParallel(model())
    net(torch.ones(1, 8)).sum().backward()
    if comm.rank == 1:
        comm.barrier()
        os._exit(0)
    loss = net(torch.ones(1, 8)).sum()
    comm.barrier()
    start = time.monotonic()
    try:
        loss.backward()
    except ringwork.RankDied as error:
        assert error.rank == 1
        assert time.monotonic() - start < 5
        with open(path + ".noticed", "w") as file:
            file.write(str(error))
        return
    raise AssertionError("the death was not noticed")


def test_a_dead_peer_is_an_exception_of_backward(tmp_path):
    path = str(tmp_path / "store")
    with pytest.raises(ringwork.SpawnError) as caught:
        ringwork.spawn(death, 2, (path,), timeout=60)
    assert caught.value.ranks == [1], caught.value
    assert "rank 1" in open(path + ".noticed").read()


def test_the_programs_of_the_page_run_under_torchrun(tmp_path):
    page = pathlib.Path(__file__).parents[3] / "docs/python-torch.md"
    blocks = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.S | re.M)
    program = tmp_path / "program.py"
    program.write_text("\n".join([*blocks, "dist.destroy_process_group()"]))
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run([*torchrun, str(program)], capture_output=True, text=True, check=False)
    assert len(blocks) == 2 and done.returncode == 0, done.stderr


# --- ranks that are killed ---

KILLS = 1000 if "RINGWORK_LONG" in os.environ else 5


def trains_until_killed(rank, size, path, victim, after_s):
    """A forked rank: trains until the victim is killed. Its exit code is 0 if it was told who died."""
    try:
        dist.init_process_group("ringwork", init_method=f"file://{path}", rank=rank, world_size=size)
        if rank == victim:
            threading.Timer(after_s, os.kill, (os.getpid(), signal.SIGKILL)).start()
        net = nn.parallel.DistributedDataParallel(model(), bucket_cap_mb=0.0001)  # several buckets
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        while True:
            optimizer.zero_grad()
            net(torch.ones(4, 8)).square().mean().backward()
            optimizer.step()
    except ringwork.RankDied as error:
        return 0 if error.rank == victim else 3
    except BaseException:
        traceback.print_exc()
        return 4


def kill_storm(path, kills, seed=0):
    """Runs in a process of its own, which imported torch and forks the ranks: to import it for each takes seconds."""
    torch.set_num_threads(1)
    rng = random.Random(seed)
    for kill in range(kills):
        size = rng.choice([2, 3])
        victim, after_s = rng.randrange(size), rng.random() * 0.2
        pids = {}
        for rank in range(size):
            pid = os.fork()
            if pid == 0:
                signal.alarm(60)  # a rank that hangs is killed, and fails the test
                os._exit(trains_until_killed(rank, size, f"{path}-{kill}", victim, after_s))
            pids[pid] = rank
        for pid, rank in pids.items():
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            assert code == (-signal.SIGKILL if rank == victim else 0), (kill, size, victim, rank, code)
        os.unlink(f"{path}-{kill}")
    assert [name for name in os.listdir("/dev/shm") if "ringwork" in name] == []


def test_kills_under_ddp_are_always_told_and_nothing_crashes_or_hangs(tmp_path):
    code = f"import sys; sys.path.insert(0, {os.path.dirname(__file__)!r}); import test_torch; test_torch.kill_storm({str(tmp_path / 's')!r}, {KILLS})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
