"""The simulated machine of a bench, and what is queued for it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .. import kernels
from .._core import Machine, Node
from ..errors import ArgumentError
from .ccl import resolve_algorithm_config, resolve_world_size

#: NumPy's names of the element types.
DTYPES = {"float32": "f32", "float16": "f16", "float64": "f64", "int8": "i8", "uint8": "u8", "int32": "i32", "int64": "i64"}

Submit = Callable[[Any], object]


class Simulation:
    """A machine, its node, and the tasks that no host read has asked for yet.

    A rank is a SIP, device by device, unless there are more ranks than SIPs: then the devices are the PEs.
    """

    def __init__(self, topology: str = "sip6-torus", config: dict[str, Any] | None = None) -> None:
        import yaml

        described = Machine(topology)
        self.spec: dict[str, Any] = yaml.safe_load(described.yaml)
        self.name = described.name
        self.config = config or {}
        self.sips = described.chips
        cube, sip = self.spec.get("cube", {}), self.spec.get("sip", {})
        layout, mesh = cube.get("pe_layout", {}), sip.get("cube_mesh", {})
        self.pes_per_cube = layout.get("pe_per_corner", 1) * len(layout.get("corners", [0]))
        self.cubes_per_sip = mesh.get("w", 1) * mesh.get("h", 1)
        self.resolved = resolve_algorithm_config(self.config)
        self.world_size = resolve_world_size(self.resolved, self.sips, self.cubes_per_sip * self.pes_per_cube)
        self.on_pes = self.world_size > self.sips
        unit = "cores" if self.on_pes else "chips"
        text = re.sub(r"(?m)^ranks:.*\n?", "", described.yaml)
        self.node = Node(machine=Machine.from_yaml(f"{text.rstrip()}\nranks: {unit}\n", self.name), record=False)
        self._queue: list[Submit | tuple[Any, Any]] = []
        self._teams: dict[tuple[tuple[int, ...], str], Any] = {}

    def close(self) -> None:
        """Ends the machine; nothing can be read from tensors afterwards."""
        self.node.close()

    @property
    def time(self) -> float:
        """Virtual time in seconds, when everything queued is done."""
        self.drain()
        return float(self.node.time or 0.0)

    def device(self, sip: int, cube: int, pe: int) -> int:
        """The device that a PE is, or is part of."""
        return (sip * self.cubes_per_sip + cube) * self.pes_per_cube + pe if self.on_pes else sip

    def memory(self, device: int, shape: Sequence[int], dtype: Any) -> Any:
        """Zeros on a device."""
        name = np.dtype(dtype).name
        if name not in DTYPES:
            problem = f"there are no elements of type {name}; take one of {', '.join(DTYPES)}"
            raise ArgumentError(f"tensor: {problem}", call="tensor", problem=problem)
        return self.node.zeros(device, tuple(shape), DTYPES[name])

    def submit(self, task: Submit) -> None:
        """Queues something for an orchestrator."""
        self._queue.append(task)

    def write(self, memory: Any, values: Any) -> None:
        """Queues new contents for memory: after what was queued before."""
        self._queue.append((memory, values))

    def drain(self) -> None:
        """Does everything that is queued, in order. What fails is not done again."""
        queue, self._queue = self._queue, []
        tasks: list[Submit] = []

        def run() -> None:
            batch, tasks[:] = list(tasks), []
            if batch:
                self.node.run(lambda orch: [task(orch) for task in batch])

        for item in queue:
            if isinstance(item, tuple):
                run()
                item[0].write(item[1])
            else:
                tasks.append(item)
        run()

    def collective(self, kernel: str, pairs: Sequence[tuple[Any, Any]], devices: Sequence[int], **how: Any) -> None:
        """Queues a collective: `(x, y)` of each member, in the order of their ranks."""
        x = pairs[0][0]
        team = self._team(tuple(devices), x.dtype, max(max(x.size, y.size) for x, y in pairs))
        make = getattr(kernels, kernel)
        # The others have one algorithm that works in the memory of any team.
        how["algorithm"] = self.resolved["algorithm"] if kernel == "all_reduce" else "staged"
        of = dict(zip(devices, pairs, strict=True))
        self.submit(lambda orch: orch.group(list(devices), lambda device: make(*of[device], team, **how)))

    def _team(self, devices: tuple[int, ...], dtype: str, elements: int) -> Any:
        key = devices, dtype
        if key not in self._teams:
            # Later calls that are longer go in several pieces.
            domain = self.node.domain(f"group {len(self._teams)}", list(devices), teams={"team": (dtype, elements)})
            self._teams[key] = domain["team"]
        return self._teams[key]
