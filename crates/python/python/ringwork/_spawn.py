"""Starting ranks from a script or a notebook."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import time
import traceback
import uuid
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any

from .errors import Aborted, ArgumentError, Deadline, RankDied, RankLeft, SpawnError

_pickler: Any = pickle
try:  # functions of a notebook have no module to be imported from
    import cloudpickle as _cloudpickle  # type: ignore[import-untyped, import-not-found, unused-ignore]

    _pickler = _cloudpickle
except ImportError:
    pass


def _rank(answer: Connection, job: str, rank: int, size: int, timeout: float, work: bytes) -> None:
    from . import join

    os.environ["RINGWORK_RANK"], os.environ["RINGWORK_SIZE"] = str(rank), str(size)
    os.environ["RINGWORK_RENDEZVOUS"] = job
    try:
        function, args = pickle.loads(work)
        comm = join(job, rank, size, timeout)
        result = _pickler.dumps(function(comm, *args))
        comm.close()
        answer.send(("done", result))
    except BaseException as error:
        kind = "cause"
        if isinstance(error, Deadline):
            kind = "deadline"
        elif isinstance(error, (RankDied, RankLeft, Aborted)):
            kind = "noticed"
        answer.send((kind, traceback.format_exc()))
        raise SystemExit(1) from None


def spawn(
    function: Callable[..., Any],
    size: int,
    args: Sequence[Any] = (),
    *,
    timeout: float = 60.0,
    grace: float = 5.0,
) -> list[Any]:
    """Calls `function(comm, *args)` in `size` new processes and returns what each returned, in rank order.

    `timeout` in seconds is how long a call of `comm` may wait. A script needs the usual `if __name__ == "__main__":`
    around it. In a notebook, install cloudpickle.

    Raises `SpawnError` if ranks fail, with the tracebacks of the ranks that caused the failure. Ranks that failed only
    because another rank did are left out. Once a rank has failed, the others have `grace` seconds to end and are then
    terminated. All processes have ended when this returns.
    """
    if size < 1:
        raise ArgumentError("spawn: the number of ranks must be at least 1", call="spawn", problem="no ranks")
    context = multiprocessing.get_context("spawn")
    job = f"spawn-{uuid.uuid4()}"
    work = _pickler.dumps((function, tuple(args)))
    answers: list[Connection] = []
    processes: list[Any] = []
    try:
        for rank in range(size):
            ours, theirs = context.Pipe(duplex=False)
            process = context.Process(
                target=_rank, args=(theirs, job, rank, size, timeout, work), name=f"ringwork-{rank}", daemon=True
            )
            process.start()
            theirs.close()
            answers.append(ours)
            processes.append(process)
        outcomes = _collect(answers, processes, grace)
    finally:
        _end(processes)
    failures = _root_causes(outcomes)
    if failures:
        ranks = ", ".join(str(rank) for rank, _ in failures)
        details = "\n".join(f"rank {rank}:\n{text}" for rank, text in failures)
        raise SpawnError(f"rank {ranks} of {size} failed\n{details}", failures=failures)
    return [pickle.loads(result) for _, _, result in sorted(outcomes, key=lambda outcome: outcome[0])]


def _end(processes: list[Any]) -> None:
    for process in processes:
        if process.is_alive():
            process.terminate()
    for process in processes:
        process.join(2.0)
        if process.is_alive():  # it has a handler for SIGTERM, or waits in the kernel
            process.kill()
            process.join()


def _collect(answers: list[Connection], processes: list[Any], grace: float) -> list[tuple[int, str, Any]]:
    """What each rank ended with: (rank, "done", result) or (rank, kind of failure, text)."""
    outcomes: list[tuple[int, str, Any]] = []
    left = dict(enumerate(answers))
    end: float | None = None
    while left:
        limit = None if end is None else max(end - time.monotonic(), 0.0)
        ready = wait(list(left.values()), limit)
        if not ready:
            outcomes += [(rank, "terminated", f"it did not end within {grace} s") for rank in left]
            break
        for rank in [rank for rank, answer in left.items() if answer in ready]:
            answer = left.pop(rank)
            try:
                kind, rest = answer.recv()
            except EOFError:
                processes[rank].join()
                kind, rest = "cause", _exit(processes[rank].exitcode)
            outcomes.append((rank, kind, rest))
            if kind != "done" and end is None:
                end = time.monotonic() + grace
    return outcomes


def _exit(code: int) -> str:
    if code >= 0:
        return f"it ended with exit code {code}"
    try:
        return f"it was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"it was killed by signal {-code}"


def _root_causes(outcomes: list[tuple[int, str, Any]]) -> list[tuple[int, str]]:
    """The failures that explain the others. A deadline is one only if no rank failed otherwise."""
    for kind in ("cause", "deadline", "noticed", "terminated"):
        failures = sorted((rank, text) for rank, this, text in outcomes if this == kind)
        if failures:
            return failures
    return []
