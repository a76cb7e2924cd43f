"""Collectives for the processes of one host, on NumPy arrays and torch tensors.

    import numpy as np, ringwork

    comm = ringwork.init()              # ringwork launch, torchrun, mpirun or srun
    x = np.ones(4, "f4")
    comm.all_reduce(x)                  # in place
"""

from __future__ import annotations

import atexit as _atexit
import weakref as _weakref

from . import errors
from ._core import Comm, Pending, Window, __version__
from ._spawn import spawn
from .errors import (
    Aborted,
    ArgumentError,
    BadEnvironment,
    CommError,
    Deadline,
    Disagreement,
    NotLaunched,
    RankDied,
    RankLeft,
    RingworkError,
    SpawnError,
)

__all__ = [
    "Aborted",
    "ArgumentError",
    "BadEnvironment",
    "Comm",
    "CommError",
    "Deadline",
    "Disagreement",
    "NotLaunched",
    "Pending",
    "RankDied",
    "RankLeft",
    "RingworkError",
    "SpawnError",
    "Window",
    "__version__",
    "errors",
    "init",
    "join",
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
