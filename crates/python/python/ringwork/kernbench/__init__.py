"""The ancestor's benches on the simulator: a torch-like namespace over a simulated `ringwork.Node`.

    python -m ringwork.kernbench BENCH.py --topology sip6-torus --ccl ccl.yaml

calls the file's `run(torch)`:

    def run(torch):
        torch.distributed.init_process_group(backend="ahbm")
        x = torch.zeros((8, 64), dp=torch.DPPolicy(num_cubes=1, num_pes=8, pe="row_wise"))
        ...

Data and virtual time come from the same run. What is asked of a tensor is queued, and finished when the host reads one.
"""

from .ccl import load_ccl_config, resolve_algorithm_config, resolve_world_size
from .namespace import Torch
from .policy import DPPolicy
from .ranks import SpawnException
from .tensor import Tensor

__all__ = [
    "DPPolicy",
    "SpawnException",
    "Tensor",
    "Torch",
    "load_ccl_config",
    "resolve_algorithm_config",
    "resolve_world_size",
]
