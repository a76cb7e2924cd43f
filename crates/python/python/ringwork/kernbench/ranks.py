"""Cooperative ranks: threads of which one runs at a time, in an order that never changes.

A rank runs until it waits for the others or ends; then the next one that can go on runs. So the same bench makes the same
calls in the same order every time.
"""

from __future__ import annotations

import itertools
import threading
import traceback
from collections.abc import Callable, Sequence
from typing import Any

from ..errors import RingworkError


class SpawnException(RingworkError):
    """Ranks of `spawn` failed: `failures` holds (rank, exception) of those that failed of themselves."""

    failures: list[tuple[int, BaseException]]

    @property
    def ranks(self) -> list[int]:
        """The ranks that failed of themselves, and not because another did."""
        return [rank for rank, _ in self.failures]


class Stuck(RingworkError):
    """A rank waits for ranks that have ended, or that wait for something else: `rank`, `missing`."""

    rank: int
    missing: list[int]


class _Ended(BaseException):
    """Ends a rank because another one failed. Not an `Exception`, so that a bench does not catch it."""


class _Rank(threading.local):
    """What the running thread is."""

    job: Job | None = None
    rank: int = 0


_current = _Rank()


class Job:
    """The ranks of one `spawn`."""

    _numbers = itertools.count(1)

    def __init__(self, size: int) -> None:
        self.size = size
        self.number = next(self._numbers)
        self._turn = threading.Condition()
        self._running: int | None = None
        #: What each rank waits for, and whom it misses; `None` if it can run.
        self._waits: list[tuple[Callable[[], bool], Callable[[], list[int]]] | None] = [None] * size
        self._ended = [False] * size
        self._failures: list[tuple[int, BaseException]] = []
        self._stuck: set[int] = set()

    def run(self, function: Callable[..., Any], args: Sequence[Any]) -> None:
        """Runs `function(rank, *args)` on every rank; returns when all have ended."""
        threads = [
            threading.Thread(target=self._rank, args=(rank, function, args), name=f"rank {rank}", daemon=True)
            for rank in range(self.size)
        ]
        for thread in threads:
            thread.start()
        with self._turn:
            self._pass_on()
        for thread in threads:
            thread.join()
        if self._failures:
            told = [f"rank {rank}:\n{''.join(traceback.format_exception(error))}" for rank, error in self._failures]
            ranks = ", ".join(str(rank) for rank, _ in self._failures)
            raise SpawnException(f"rank {ranks} of {self.size} failed\n" + "\n".join(told), failures=self._failures)

    def _rank(self, rank: int, function: Callable[..., Any], args: Sequence[Any]) -> None:
        _current.job, _current.rank = self, rank
        try:
            self._await_turn(rank)
            function(rank, *args)
        except _Ended:
            pass
        except BaseException as error:
            # One that waits in vain because another has failed is no cause.
            if not (isinstance(error, Stuck) and self._failures):
                self._failures.append((rank, error))
        finally:
            with self._turn:
                self._ended[rank] = True
                self._pass_on()

    def wait(self, rank: int, ready: Callable[[], bool], missing: Callable[[], list[int]]) -> None:
        """Lets the others run until `ready()`. Returns at once if it is so already."""
        if ready():
            return
        with self._turn:
            self._waits[rank] = ready, missing
            self._pass_on()
        self._await_turn(rank)
        if rank in self._stuck:
            self._stuck.discard(rank)
            ranks = missing()
            problem = f"rank {rank} waits for a call that rank {', '.join(map(str, ranks))} will never make"
            raise Stuck(problem, rank=rank, missing=ranks)

    def _await_turn(self, rank: int) -> None:
        with self._turn:
            self._turn.wait_for(lambda: self._running == rank)
        if self._failures:
            raise _Ended

    def _pass_on(self) -> None:
        """Gives the turn to the next rank that can go on. The lock is held."""
        after = -1 if self._running is None else self._running
        order = [(after + step) % self.size for step in range(1, self.size + 1)]
        left = [rank for rank in order if not self._ended[rank]]
        self._running = None
        if not left:
            return
        for rank in left:
            wait = self._waits[rank]
            # After a failure all are woken, one by one, to end.
            if self._failures or wait is None or wait[0]():
                break
        else:
            rank = min(left)
            self._stuck.add(rank)
        self._waits[rank] = None
        self._running = rank
        self._turn.notify_all()


def current() -> tuple[Job | None, int]:
    """The job and the rank of this thread; no job and rank 0 outside `spawn`."""
    return _current.job, _current.rank


def identity() -> tuple[int, int]:
    """What distinguishes this rank from all others of the program: the number of its job, 0 outside `spawn`, and its rank."""
    job, rank = current()
    return (job.number if job else 0), rank


def spawn(function: Callable[..., Any], args: Sequence[Any] = (), nprocs: int = 1) -> None:
    """Calls `function(rank, *args)` for ranks 0 to `nprocs` - 1, which take turns.

    Raises `SpawnException` with the ranks that failed; the others end where they wait.
    """
    if nprocs < 1:
        raise ValueError(f"spawn: {nprocs} ranks; there is at least one")
    if _current.job is not None:
        raise RuntimeError("spawn: this is a rank already; ranks do not spawn others")
    Job(nprocs).run(function, tuple(args))
