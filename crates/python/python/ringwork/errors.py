"""What can go wrong. Every exception has its facts as attributes."""

from __future__ import annotations

from typing import Any


class RingworkError(Exception):
    """Everything that ringwork raises."""

    def __init__(self, message: str = "", **facts: Any) -> None:
        super().__init__(message)
        self.__dict__.update(facts)

    def __reduce__(self) -> tuple[Any, ...]:
        # Facts travel from a rank to the process that spawned it.
        return (_rebuilt, (type(self), str(self), dict(self.__dict__)))


def _rebuilt(kind: type[RingworkError], message: str, facts: dict[str, Any]) -> RingworkError:
    return kind(message, **facts)


class ArgumentError(RingworkError, ValueError):
    """Arguments that do not fit together: `call`, `problem`."""

    call: str
    problem: str


class CommError(RingworkError):
    """A communicator that cannot be made or used."""


class NotLaunched(CommError):
    """This process was not started as a rank: `missing`."""

    missing: str


class BadEnvironment(CommError):
    """An environment variable that makes no sense: `name`, `value`, `problem`."""

    name: str
    value: str
    problem: str


class RankDied(CommError):
    """A rank died: `rank`, `cause`; this was rank `me`, in `call`. Go on with `Comm.shrink`."""

    me: int
    rank: int
    cause: str
    call: str


class RankLeft(CommError):
    """A rank closed its communicator: `rank`; this was rank `me`, in `call`."""

    me: int
    rank: int
    call: str


class Deadline(CommError):
    """Ranks did not come in time: `missing`, and what each did last in `last_calls`."""

    me: int
    call: str
    after_ms: int
    missing: list[int]
    last_calls: list[tuple[int, str]]


class Aborted(CommError):
    """A rank aborted the communicator or gave up waiting: `reason`."""

    me: int
    reason: str
    call: str


class Disagreement(CommError):
    """Ranks made different calls: rank `me` made `call`, rank `rank` made `their_call`."""

    me: int
    rank: int
    call: str
    their_call: str


class SpawnError(RingworkError):
    """Ranks of `ringwork.spawn` failed: `failures` holds (rank, traceback) of those that failed first."""

    failures: list[tuple[int, str]]

    @property
    def ranks(self) -> list[int]:
        """The ranks that failed of themselves, and not because another did."""
        return [rank for rank, _ in self.failures]
