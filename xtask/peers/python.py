"""Times collectives from Python: ringwork and one other library in the same processes, their batches in turns.

    mpiexec -n 2 python python.py mpi4py ...                 beside NumPy arrays
    torchrun --nproc-per-node 2 python.py gloo ...           beside torch.distributed

A batch is as many calls, back to back, as take some 300 us; a sample is its time over its calls, on the slowest rank. The
libraries take turns batch by batch, so that both meet the same machine. A line is the median of the samples:

    what,peer,np,bytes,calls,med_us,verify

`what` is what is compared: the call, or a step of training. `peer` is the other library, or one of ours:
`numpy` (own memory), `window`, `dist` (torch over ringwork), `dist-window`.
"""

import argparse
import os
import statistics
import time

BATCH_S = 300e-6
MOST_SAMPLES = 200


def options():
    parser = argparse.ArgumentParser()
    parser.add_argument("library", choices=["mpi4py", "gloo"])
    parser.add_argument("--peer", required=True, help="the other library's name in the lines")
    parser.add_argument("--job", required=True, help="a name that no other run has")
    parser.add_argument("--smallest", type=int, default=4)
    parser.add_argument("--largest", type=int, default=64 << 20)
    parser.add_argument("--factor", type=int, default=4)
    parser.add_argument("--target-ms", type=float, default=15)
    parser.add_argument("--pin", action="store_true", help="rank r to core r modulo cores")
    parser.add_argument("--out", required=True)
    return parser.parse_args()


def pin(rank):
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[rank % len(cores)]})


def timed(comm, contenders, target_s):
    """The median seconds of each contender's call, and how many calls were timed. `contenders` are functions."""
    import numpy as np

    counts, samples = [], [[] for _ in contenders]
    for call in contenders:
        count = np.ones(1, "i8")
        for _ in range(4):  # each guess is as good as its number of calls
            comm.barrier()
            start = time.perf_counter()
            for _ in range(int(count[0])):
                call()
            count[0] = max(1, int(BATCH_S * count[0] / (time.perf_counter() - start)))
            comm.all_reduce(count, "max")
        counts.append(int(count[0]))
    begun, stop = time.perf_counter(), np.zeros(1, "i4")
    for turn in range(MOST_SAMPLES):
        for index in range(len(contenders)):
            index = (index + turn) % len(contenders)
            call, count = contenders[index], counts[index]
            comm.barrier()
            start = time.perf_counter()
            for _ in range(count):
                call()
            samples[index].append((time.perf_counter() - start) / count)
        stop[0] = turn >= 6 and time.perf_counter() - begun > target_s * len(contenders)
        comm.broadcast(stop)
        if stop[0]:
            break
    slowest = np.array(samples)
    comm.all_reduce(slowest, "max")
    return [statistics.median(times) for times in slowest], [len(times) * n for times, n in zip(slowest, counts)]


def sizes(wanted):
    size = wanted.smallest
    while size <= wanted.largest:
        yield size
        size *= wanted.factor


def write(wanted, comm, what, size, peers, times, calls, right):
    if comm.rank == 0:
        with open(wanted.out, "a") as out:
            for peer, seconds, count, ok in zip(peers, times, calls, right):
                out.write(f"{what},{peer},{comm.size},{size},{count},{seconds * 1e6:.3f},{'ok' if ok else 'BAD'}\n")


def beside_mpi4py(wanted):
    if wanted.pin:
        names = ("OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "PMI_RANK")
        pin(int(next(os.environ[name] for name in names if name in os.environ)))
    from mpi4py import MPI
    import numpy as np
    import ringwork

    world = MPI.COMM_WORLD
    comm = ringwork.join(wanted.job, world.Get_rank(), world.Get_size())
    total = sum(range(1, comm.size + 1))
    for size in sizes(wanted):
        own, theirs, window = np.zeros(size // 4, "f4"), np.zeros(size // 4, "f4"), comm.zeros(size // 4)
        view = np.asarray(window)
        contenders = [
            lambda: comm.all_reduce(own),
            lambda: comm.all_reduce(window),
            lambda: world.Allreduce(MPI.IN_PLACE, theirs, MPI.SUM),
        ]
        right = []
        for call, array in zip(contenders, (own, view, theirs)):
            array[:] = comm.rank + 1
            call()
            right.append(bool((array == total).all()))
            array[:] = 0  # so that sums stay finite
        times, calls = timed(comm, contenders, wanted.target_ms / 1000)
        write(wanted, comm, "all_reduce", size, ["numpy", "window", wanted.peer], times, calls, right)
    comm.close()


def beside_gloo(wanted):
    import torch
    import torch.distributed as dist
    import ringwork
    import ringwork.torch

    torch.set_num_threads(1)
    dist.init_process_group("ringwork")
    gloo = dist.new_group(backend="gloo")
    ours = dist.group.WORLD
    comm = ringwork.join(wanted.job, dist.get_rank(), dist.get_world_size())
    total = sum(range(1, comm.size + 1))
    peers = ["dist", "dist-window", wanted.peer]
    for size in sizes(wanted):
        tensors = [torch.zeros(size // 4), ringwork.torch.window_tensor(size // 4), torch.zeros(size // 4)]
        own, window, theirs = tensors
        contenders = [
            lambda: dist.all_reduce(own),
            lambda: dist.all_reduce(window),
            lambda: dist.all_reduce(theirs, group=gloo),
        ]
        right = []
        for call, x in zip(contenders, tensors):
            x.fill_(comm.rank + 1)
            call()
            right.append(bool((x == total).all()))
            x.zero_()
        times, calls = timed(comm, contenders, wanted.target_ms / 1000)
        write(wanted, comm, "all_reduce", size, peers, times, calls, right)
    for what in ("ddp_step", "fsdp2_step"):
        if what == "ddp_step":  # torch gives no way to put its buckets in the window
            peers = ["dist", wanted.peer]
            nets = [torch.nn.parallel.DistributedDataParallel(model(), process_group=group) for group in (ours, gloo)]
        else:
            peers = ["dist", "dist-window", wanted.peer]
            nets = [fully_sharded(model(), group) for group in (ours, ours, gloo)]
            nets[1].set_allocate_memory_from_process_group_for_comm(True)
        optimizers = [torch.optim.SGD(net.parameters(), lr=0.01) for net in nets]
        batch = torch.randn(16, WIDTH)

        def step(net, optimizer):
            optimizer.zero_grad()
            net(batch).square().mean().backward()
            optimizer.step()

        contenders = [lambda n=net, o=optimizer: step(n, o) for net, optimizer in zip(nets, optimizers)]
        times, calls = timed(comm, contenders, wanted.target_ms / 1000)
        size = 4 * sum(parameter.numel() for parameter in model().parameters())
        write(wanted, comm, what, size, peers, times, calls, [True] * len(peers))
    comm.close()
    dist.destroy_process_group()


WIDTH = 256


def model():
    import torch

    torch.manual_seed(0)
    layers = [torch.nn.Linear(WIDTH, WIDTH) for _ in range(4)]
    return torch.nn.Sequential(*layers)


def fully_sharded(net, group):
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import fully_shard

    mesh = DeviceMesh.from_group(group, "cpu")
    for layer in net:
        fully_shard(layer, mesh=mesh)
    return fully_shard(net, mesh=mesh)


if __name__ == "__main__":
    wanted = options()
    (beside_mpi4py if wanted.library == "mpi4py" else beside_gloo)(wanted)
