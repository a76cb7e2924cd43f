"""An all-reduce on the simulated machine, checked on every rank.

    python -m ringwork.kernbench all_reduce_bench.py --topology sip6-torus --ccl ccl.yaml

One worker for each SIP; or, if there are more ranks than SIPs, one worker whose tensor is dealt over PEs.
"""

import numpy as np


def run(torch):
    n_elem = torch.ccl.get("n_elem", 256)
    ranks = torch.world_size
    means = [None] * ranks

    def worker(rank):
        torch.ahbm.set_device(rank)
        torch.distributed.init_process_group(backend="ahbm")
        x = torch.from_numpy(np.full(n_elem, rank + 1, "f4"))
        torch.distributed.all_reduce(x)
        means[rank] = float(x.numpy().mean())

    if ranks <= torch.ahbm.device_count():
        torch.multiprocessing.spawn(worker, nprocs=ranks)
    else:
        torch.distributed.init_process_group(backend="ahbm")
        per_cube = pes_per_cube(torch.spec)
        pes = next(pes for pes in range(min(per_cube, ranks), 0, -1) if ranks % pes == 0)
        dealt = torch.DPPolicy(cube="row_wise", pe="row_wise", num_cubes=ranks // pes, num_pes=pes)
        values = np.repeat(np.arange(1, ranks + 1, dtype="f4")[:, None], n_elem, axis=1)
        x = torch.from_numpy(values, dp=dealt)
        torch.distributed.all_reduce(x)
        means = [float(row.mean()) for row in x.numpy()]

    wanted = ranks * (ranks + 1) / 2
    wrong = [(rank, mean) for rank, mean in enumerate(means) if mean != wanted]
    name = f"{torch.ccl['algorithm']} (ws={ranks})"
    if not wrong:
        print(f"{name}: {ranks} OK")
    for rank, mean in wrong[:5]:
        print(f"{name}: rank {rank}: mean {mean}, expected {wanted}")
    return not wrong


def pes_per_cube(spec):
    layout = spec["cube"]["pe_layout"]
    return layout["pe_per_corner"] * len(layout["corners"])
