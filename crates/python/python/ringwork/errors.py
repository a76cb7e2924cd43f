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


class NodeError(RingworkError):
    """A node that cannot be made or used, or a run that failed."""


class ConfigError(NodeError, ValueError):
    """A node, domain or machine that cannot be as it was asked for: `field`, `problem`. Nothing was started."""

    field: str
    problem: str


class TaskFailed(NodeError):
    """A kernel failed: on `chip`, in `kernel`, at `file` and `line` if they are known, because of `cause`.

    `others` are tasks that failed because of it or beside it, `missing` the chips it waited for, `cancelled` the tasks that
    never ran because they needed it.
    """

    worker: str
    chip: int
    kernel: str
    file: str | None
    line: int | None
    cause: str
    others: list[tuple[int, str]]
    missing: list[int]
    cancelled: list[str]


class ChipGone(NodeError):
    """The process of `chip` ended: `cause`; it ran `kernel`, or None. Make a new node to use the chip again."""

    chip: int
    kernel: str | None
    cause: str


class HostFailed(NodeError):
    """A host closure failed: its `name` and `problem`; `__cause__` is what it raised."""

    worker: str
    name: str
    problem: str


class Overdue(NodeError):
    """A task waited for a signal that never came: `task`, `waited_for`, `after_ms`."""

    worker: str
    task: str
    after_ms: int
    waited_for: str


class Stalled(NodeError):
    """Nothing runs and nothing can start: `left` tasks, and what waits for what in `chains`."""

    worker: str
    left: int
    chains: list[str]


class NoSuchName(NodeError, KeyError):
    """A domain has no `kind` (buffer, team, ...) of this `name`."""

    domain: str
    kind: str
    name: str

    # A KeyError would show its text in quotes.
    __str__ = Exception.__str__


class NotAMember(NodeError):
    """A task on a `chip` that has no part in `what` it uses."""

    chip: int
    what: str


class NoSuchDevice(NodeError, LookupError):
    """A node has no such `chip`; it has `have`."""

    chip: int
    have: str


class Released(NodeError):
    """Memory that was released: `what`."""

    what: str


class LengthMismatch(NodeError, ValueError):
    """Another number of elements than there are: `what`, `have`, `asked`."""

    what: str
    have: int
    asked: int


class NodeClosed(NodeError):
    """The node was closed."""


class Interrupted(NodeError):
    """The node was interrupted and can run nothing more."""


class SpawnError(RingworkError):
    """Ranks of `ringwork.spawn` failed: `failures` holds (rank, traceback) of those that failed first."""

    failures: list[tuple[int, str]]

    @property
    def ranks(self) -> list[int]:
        """The ranks that failed of themselves, and not because another did."""
        return [rank for rank, _ in self.failures]
