"""Collectives for the processes of one host, on NumPy arrays and torch tensors; and nodes of chips.

    import numpy as np, ringwork

    comm = ringwork.init()              # ringwork launch, torchrun, mpirun or srun
    x = np.ones(4, "f4")
    comm.all_reduce(x)                  # in place

    with ringwork.Node(machine="h100x8") as node:   # or Node(devices=range(4)): processes of this host
        x, y = node.tensor(0, np.ones(4, "f4")), node.zeros(0, 4)
        node.run(lambda orch: orch.submit(0, ringwork.kernels.add(x, x, y)))
        y.numpy(), node.time
"""

from __future__ import annotations

import atexit as _atexit
import weakref as _weakref

from . import errors
from ._core import (
    Buffer,
    Comm,
    Condition,
    Domain,
    DomainSpec,
    Kernel,
    Machine,
    Node,
    Orchestrator,
    Pending,
    Signals,
    Task,
    TaskId,
    Team,
    Tensor,
    Timeline,
    Window,
    __version__,
)
from . import kernels
from ._bench import BenchTable, bench
from ._spawn import spawn
from .errors import (
    Aborted,
    ArgumentError,
    BadEnvironment,
    ChipGone,
    CommError,
    ConfigError,
    Deadline,
    Disagreement,
    HostFailed,
    Interrupted,
    LengthMismatch,
    NoSuchDevice,
    NoSuchName,
    NodeClosed,
    NodeError,
    NotAMember,
    NotLaunched,
    Overdue,
    RankDied,
    RankLeft,
    Released,
    RingworkError,
    SpawnError,
    Stalled,
    TaskFailed,
)

__all__ = [
    "Aborted",
    "ArgumentError",
    "BadEnvironment",
    "BenchTable",
    "Buffer",
    "ChipGone",
    "Comm",
    "CommError",
    "Condition",
    "ConfigError",
    "Deadline",
    "Disagreement",
    "Domain",
    "DomainSpec",
    "HostFailed",
    "Interrupted",
    "Kernel",
    "LengthMismatch",
    "Machine",
    "NoSuchDevice",
    "NoSuchName",
    "Node",
    "NodeClosed",
    "NodeError",
    "NotAMember",
    "NotLaunched",
    "Orchestrator",
    "Overdue",
    "Pending",
    "RankDied",
    "RankLeft",
    "Released",
    "RingworkError",
    "Signals",
    "SpawnError",
    "Stalled",
    "Task",
    "TaskFailed",
    "TaskId",
    "Team",
    "Tensor",
    "Timeline",
    "Window",
    "__version__",
    "bench",
    "errors",
    "init",
    "join",
    "kernels",
    "spawn",
]

_open: "_weakref.WeakSet[Comm]" = _weakref.WeakSet()


def init() -> Comm:
    """Joins the job that this process was started in, by `ringwork launch`, torchrun, mpirun or srun.

    Called again, it makes another communicator of all ranks: every rank must do so as often.
    """
    comm = Comm.from_env()
    _open.add(comm)
    return comm


def join(name: str, rank: int, size: int, timeout: float = 60.0) -> Comm:
    """Joins the `size` processes of this user and host that give the same `name`, as `rank`."""
    comm = Comm.join(name, rank, size, timeout)
    _open.add(comm)
    return comm


@_atexit.register
def _leave() -> None:
    # While the interpreter is whole: a communicator that is closed later cannot let its last calls end.
    for comm in list(_open):
        try:
            comm.close()
        except CommError:
            pass  # in a child of os.fork, which is no rank
