"""What a bench sees as `torch`."""

from __future__ import annotations

import types
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import ArgumentError
from . import ranks
from .ccl import load_ccl_config, resolve_algorithm_config
from .distributed import Distributed
from .machine import Simulation
from .policy import DPPolicy
from .ranks import identity
from .tensor import Tensor


class Ahbm:
    """`torch.ahbm`: the SIPs."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._of: dict[tuple[int, int], int] = {}

    def set_device(self, sip: int) -> None:
        """Makes tensors of this rank on that SIP from now on."""
        if not 0 <= sip < self._simulation.sips:
            problem = f"there is no SIP {sip}; `{self._simulation.name}` has {self._simulation.sips}"
            raise ArgumentError(f"set_device: {problem}", call="set_device", problem=problem)
        self._of[identity()] = sip

    def current_device(self) -> int:
        """The SIP of this rank: what it set, else 0."""
        return self._of.get(identity(), 0)

    def device_count(self) -> int:
        """How many SIPs there are."""
        return self._simulation.sips

    def time(self) -> float:
        """Virtual time in seconds, when everything queued is done."""
        return self._simulation.time


class Torch:
    """The namespace of a bench over one simulated machine.

    `spec` is the machine's description as a mapping, with the ancestor's keys `system`, `sip` and `cube` where it has
    them; `ccl` the settings of the algorithm that was resolved.
    """

    float16, float32, float64 = np.float16, np.float32, np.float64
    int8, uint8, int32, int64 = np.int8, np.uint8, np.int32, np.int64

    def __init__(self, topology: str = "sip6-torus", ccl: str | None = None) -> None:
        from . import tp

        self._simulation = Simulation(topology, load_ccl_config(ccl))
        self.DPPolicy, self.Tensor, self.SpawnException = DPPolicy, Tensor, ranks.SpawnException
        self.spec = self._simulation.spec
        self.ccl = dict(self._simulation.resolved)
        self.distributed = Distributed(self._simulation)
        self.ahbm = Ahbm(self._simulation)
        self.multiprocessing = types.SimpleNamespace(spawn=ranks.spawn, SpawnException=ranks.SpawnException)
        self.tp: Any = tp.bind(self)

    def zeros(self, *shape: Any, dtype: Any = np.float32, dp: DPPolicy | None = None) -> Tensor:
        """Zeros on this rank's SIP, dealt by `dp`; on one PE unless it says otherwise."""
        if len(shape) == 1 and not isinstance(shape[0], int):
            shape = tuple(shape[0])
        return Tensor(self._simulation, tuple(shape), dtype, dp or DPPolicy(), self.ahbm.current_device())

    def from_numpy(self, array: npt.ArrayLike, dp: DPPolicy | None = None) -> Tensor:
        """The values of an array, on this rank's SIP."""
        values = np.asarray(array)
        return self.zeros(*values.shape, dtype=values.dtype, dp=dp).copy_(values)

    @property
    def world_size(self) -> int:
        """Ranks of the resolved configuration."""
        return self._simulation.world_size

    @staticmethod
    def load_ccl_config(path: str | None = None) -> dict[str, Any]:
        """See `ringwork.kernbench.load_ccl_config`."""
        return load_ccl_config(path)

    @staticmethod
    def resolve_algorithm_config(config: dict[str, Any], algorithm: str | None = None) -> dict[str, Any]:
        """See `ringwork.kernbench.resolve_algorithm_config`."""
        return resolve_algorithm_config(config, algorithm)

    def close(self) -> None:
        """Ends the machine."""
        self._simulation.close()
